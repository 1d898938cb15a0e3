"""Runs an experiment and writes its results: cells as they are done, then a table as JSON and Markdown, a figure."""

from __future__ import annotations

import dataclasses
import io
import json
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from graphforget.datasets.locate import RAW_FILES, raw_folder
from graphforget.errors import InputError
from graphforget.experiments.cells import Cell, Origin, Record
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.machine import describe
from graphforget.experiments.runner import CellProgress, run
from graphforget.experiments.table import MIN_SEEDS, Table
from graphforget.files import write_atomic
from graphforget.jobs.pool import Pool, process_pool
from graphforget.report.charts import inline
from graphforget.report.results import Section, markdown, page, readme
from graphforget.runs.locks import try_lock
from graphforget.validation import written_fields

STORE = "models"
GROUPED = ("part", "model", "method", "kind", "data")  # the names by which missing cells are listed
MOST_GROUPS = 20
HASH = 10  # characters of a commit that are shown
QUICK = "Short form: one seed, fewer epochs, requests and graphs. It shows only that everything runs."


@dataclass(frozen=True)
class ReproductionPlan:
    """Where results are written and which cells are computed: those with `only` in their label, if it is given.

    `methods` are compared beside those of an experiment, as pairs of model and method.
    """

    out: Path
    quick: bool = False
    jobs: int = 2
    seeds: int = 3
    only: str | None = None
    methods: tuple[tuple[str, str], ...] = ()
    run: bool = True  # False: write the tables of the recorded cells only

    def path(self, name: str, ending: str) -> Path:
        return self.out / f"{name}{'-quick' if self.quick else ''}{ending}"

    def cells(self, experiment: Experiment) -> list[Cell]:
        """Its cells, and those of the further methods if it compares methods."""
        size: Any = {"quick": self.quick, "seeds": self.seeds}
        result = experiment.cells(**size)
        for pair in self.methods if experiment.further is not None else ():
            assert experiment.further is not None
            known = [cell.key for cell in result]
            result += [cell for cell in experiment.further(*pair, **size) if cell.key not in known]
        return result

    def chosen(self, experiment: Experiment) -> list[Cell]:
        """The cells to compute, unless they are recorded already."""
        cells = self.cells(experiment)
        return [cell for cell in cells if self.run and (self.only is None or self.only in cell.label)]

    def command(self, name: str, *, further: bool = False) -> str:
        """The command that repeats this; with its further methods if the experiment compares them."""
        parts = ["graphforget reproduce", name, "--quick" if self.quick else ""]
        outside = self.out.is_absolute() or ".." in self.out.parts
        out = self.out.name if outside else str(self.out)  # paths of this machine are not published
        parts += [f"--seeds {self.seeds}" if self.seeds != 3 and not self.quick else "", f"--out {shlex.quote(out)}"]
        parts += [f"--method {method}:{model}" for model, method in self.methods if further]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class Result:
    """The current state of an experiment."""

    experiment: Experiment
    table: Table
    section: Section
    done: int
    total: int
    errors: dict[str, str]
    left_out: str = ""  # a sentence about unused lines of its file

    def summary(self) -> dict[str, object]:
        return {
            "name": self.experiment.name,
            "done": self.done,
            "total": self.total,
            "errors": self.errors,
            "bars": [written_fields(bar) for bar in self.table.bars],
        }


def reproduce(
    experiment: Experiment,
    plan: ReproductionPlan,
    *,
    report: Callable[[CellProgress], None] | None = None,
    pool: Pool = process_pool,
) -> Result:
    """Computes the missing cells and writes the files of the experiment into `plan.out`.

    After an interrupt it still writes the table of the finished cells.
    """
    cells = plan.cells(experiment)
    record = _record(experiment, plan)
    _table_and_figure(experiment, cells, record)  # so that an unusable record is refused now
    if not plan.run and not record.rows(cells):
        message = f"{record.path} holds no cell of this experiment with these settings. {record.left_out}"
        raise InputError(message.strip())
    if plan.run:
        chosen = plan.chosen(experiment)
        _check_data([cell for cell in chosen if not record.has(cell)])
        store, jobs = _model_store(plan.out), 1 if experiment.alone else plan.jobs
        try:
            with try_lock(plan.out, f"another reproduction is at work in {plan.out}"):
                run(chosen, record, store=store, jobs=jobs, pool=pool, report=report)
        except KeyboardInterrupt:
            _write_result(experiment, plan, cells, record)
            raise
    return _write_result(experiment, plan, cells, record)


def recorded(experiment: Experiment, plan: ReproductionPlan) -> bool:
    """Whether cells of the experiment are finished."""
    cells = plan.cells(experiment)
    return bool(_record(experiment, plan).rows(cells))


def _record(experiment: Experiment, plan: ReproductionPlan) -> Record:
    return Record(plan.path(experiment.name, ".jsonl"), recipe=experiment.recipe)


def write_pages(results: Sequence[Result], plan: ReproductionPlan) -> tuple[Path, Path]:
    """One Markdown page and one HTML page with all results; the HTML page loads nothing."""
    sections = [result.section for result in results]
    text, html = plan.path("README", ".md"), plan.path("index", ".html")
    _write(text, readme(sections).encode())
    _write(html, page(sections).encode())
    return text, html


def _write_result(experiment: Experiment, plan: ReproductionPlan, cells: Sequence[Cell], record: Record) -> Result:
    rows, errors = record.rows(cells), record.errors(cells)
    table, figure = _table_and_figure(experiment, cells, record)
    if len(rows) < len(cells) or plan.seeds < MIN_SEEDS:
        table = dataclasses.replace(table, bars=tuple(dataclasses.replace(bar, so_far=True) for bar in table.bars))
    if plan.quick:
        table = dataclasses.replace(table, notes=(QUICK, *table.notes), bars=())
    picture = plan.path(experiment.name, ".png")
    _make_folder(plan.out)
    if figure is not None:
        _write(picture, _png(figure))
    origins = record.origins(cells)
    machines = list(dict.fromkeys(describe(origin.machine) for origin in origins))
    if 0 < len(origins) < len(rows):
        machines.append(f"not known for {len(rows) - len(origins)} of {len(rows)} cells")
    section = Section(
        name=experiment.name,
        title=table.title,
        columns=table.columns,
        rows=tuple(tuple(row) for row in table.texts),
        notes=table.all_notes,
        bars=tuple((bar.text, bar.met) for bar in table.bars),
        command=plan.command(experiment.name, further=experiment.further is not None),
        machine="; ".join(machines),
        made=_span(origins),
        commits=_commits(origins, len(rows)),
        missing=" ".join(part for part in (_missing(cells, record), record.left_out) if part),
        picture=picture.name if figure is not None else None,
        svg=inline(figure) if figure is not None else None,
        caption=experiment.caption,
    )
    document = {
        "name": experiment.name,
        "command": section.command,
        "machines": machines,
        "made": section.made,
        "commits": section.commits,
        "quick": plan.quick,
        "cells": {"done": len(rows), "total": len(cells), "errors": errors},
        "table": table.to_dict(),
    }
    _write(plan.path(experiment.name, ".json"), (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
    _write(plan.path(experiment.name, ".md"), markdown(section).encode())
    return Result(experiment, table, section, len(rows), len(cells), errors, record.left_out)


def _table_and_figure(experiment: Experiment, cells: Sequence[Cell], record: Record) -> tuple[Table, Figure | None]:
    """The table and the figure of the recorded cells."""
    rows = record.rows(cells)
    try:
        return experiment.table(rows), experiment.figure(rows) if experiment.figure is not None and rows else None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{record.path} has cells that are not of this experiment ({reason}), take these lines out to go on"
        ) from error


def _check_data(cells: Sequence[Cell]) -> None:
    """Raises `InputError` once if a dataset is not available, instead of once for every cell."""
    for name in dict.fromkeys(str(cell.key.get("data")) for cell in cells):
        if name in RAW_FILES:
            raw_folder(name)


def _span(origins: Sequence[Origin]) -> str:
    """The first and the last day on which cells were computed."""
    days = sorted({origin.made[:10] for origin in origins})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""


def _commits(origins: Sequence[Origin], cells: int) -> str:
    """The commits whose code computed the cells, with the number of cells if there are several."""
    counts = Counter(origin.commit[:HASH] + "+" * origin.commit.endswith("+") for origin in origins if origin.commit)
    unknown = cells - counts.total()
    if not counts:
        return "commit not recorded" if cells else ""
    named = [f"{commit} ({count})" if len(counts) > 1 or unknown else commit for commit, count in counts.items()]
    return f"commit{'s' * (len(named) > 1)} {', '.join(named)}" + (f", not recorded ({unknown})" if unknown else "")


def _missing(cells: Sequence[Cell], record: Record) -> str:
    """A sentence about the cells that are not there: how many, which, and why some failed."""
    missing = [cell for cell in cells if not record.has(cell)]
    if not missing:
        return ""
    groups = _groups(missing)
    named = "; ".join(f"{group} ({count})" for group, count in groups.items())
    failed = "".join(f" {label} failed: {reason}." for label, reason in record.errors(missing).items())
    return f"{len(missing)} of {len(cells)} cells are not there yet: {named}.{failed}"


def _groups(cells: Sequence[Cell]) -> Counter[str]:
    """What cells are of, without their seeds and the sizes of their requests; without datasets if that is too long."""
    for names in (GROUPED, GROUPED[:-1]):
        groups = Counter(
            " ".join(str(cell.key[name]) for name in names if name in cell.key) or cell.label for cell in cells
        )
        if len(groups) <= MOST_GROUPS:
            break
    return groups


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", bbox_inches="tight", pad_inches=0.08, metadata={"Software": None})
    return out.getvalue()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"results cannot be written to {folder}: {error.strerror or error}") from error


def _model_store(out: Path) -> Path:
    """The folder of trained models, which git ignores."""
    store = out / STORE
    _make_folder(store)
    _write(store / ".gitignore", b"*\n")
    return store


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomic(path, content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
