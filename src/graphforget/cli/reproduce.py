"""The command `graphforget reproduce`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bars

from graphforget.cli.console import err, say
from graphforget.cli.options import AsJson
from graphforget.errors import InputError
from graphforget.experiments import registry
from graphforget.experiments.registry import ALL, NAMES

if TYPE_CHECKING:
    from graphforget.experiments.experiment import Experiment
    from graphforget.experiments.reproduce import ReproductionPlan, Result
    from graphforget.experiments.runner import CellProgress

FAILED = 1
DEFAULT_MODEL = "gcn"


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(NAMES)}, or {ALL} for one after the other.")],
    out: Annotated[Path, typer.Option("--out", help="The folder of the results.")] = Path("results"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A short form in files of its own, under three minutes.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time; measurements of time use one.")] = 2,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Splits to average over; the short form has one.")] = 3,
    only: Annotated[
        str | None, typer.Option(help="Compute only cells with this in their name, such as 'data=cora'.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD[:MODEL]",
            help="Also compare this method, such as one of another package, on this model (gcn). Can be repeated.",
        ),
    ] = None,
    render: Annotated[
        bool, typer.Option("--render", help="Compute nothing, write the tables of the finished cells.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compute a table or figure of the paper, beside its own numbers. The same command continues an interrupted run.

    Finished cells are stored in OUT/NAME.jsonl, the cheapest first. Then NAME.json, NAME.md and, for a figure,
    NAME.png are written, and for 'all' README.md and index.html. Exit code 1 if a cell failed; the next run tries it
    again. Cells that were computed with other settings of the models are computed again.
    """
    from graphforget.experiments import reproduce as engine
    from graphforget.experiments.reproduce import ReproductionPlan

    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is not a folder, results need one")
    methods = _pairs(method or [], name)
    plan = ReproductionPlan(out, quick=quick, jobs=jobs, seeds=seeds, only=only, methods=methods, run=not render)
    computed = {one.name: _compute(one, plan, quiet=as_json) for one in _selected(name, plan)}
    results = [computed[each] for each in NAMES if each in computed]  # in the order of the paper
    pages = engine.write_pages(_with_finished(computed, plan), plan) if name.lower() == ALL else ()
    if as_json:
        summaries = [result.summary() for result in results]
        print(json.dumps({"results": summaries, "out": str(out), "pages": [str(path) for path in pages]}))
    else:
        for result in results:
            _show(result, plan)
    if any(result.errors for result in results):
        raise typer.Exit(FAILED)


def _pairs(methods: list[str], name: str) -> tuple[tuple[str, str], ...]:
    """Pairs of model and method, whose names are known."""
    from graphforget.models.registry import entry_of
    from graphforget.unlearning.registry import find

    if methods and all(each.further is None for each in registry.find(name)):
        able = " and ".join(each for each in NAMES if registry.experiment(each).further is not None)
        raise InputError(f"{name} compares no further methods, only {able} do")
    parts = [each.partition(":") for each in methods]
    return tuple(
        dict.fromkeys((entry_of(model or DEFAULT_MODEL).name, find(method).name) for method, _, model in parts)
    )


def _selected(name: str, plan: ReproductionPlan) -> list[Experiment]:
    """The experiments of that name with cells to compute, or with finished cells to render."""
    experiments = registry.find(name)
    if not plan.run:
        stored = [each for each in experiments if plan.path(each.name, ".jsonl").exists()]
        if not stored:
            raise InputError(f"{plan.out} holds nothing of {name} yet, leave --render out to compute it")
        return stored
    chosen = [each for each in experiments if plan.chosen(each)]
    if not chosen:
        first = plan.cells(experiments[0])[0].label
        raise InputError(f"no cell of {name} has {plan.only!r} in its name, the first is {first!r}")
    return chosen


def _with_finished(computed: dict[str, Result], plan: ReproductionPlan) -> list[Result]:
    """These results, and those of experiments with finished cells of which nothing was chosen now."""
    from graphforget.experiments import reproduce as engine

    shown = dict(computed)
    for one in registry.find(ALL):
        if one.name not in shown and engine.recorded(one, plan):
            shown[one.name] = engine.reproduce(one, dataclasses.replace(plan, run=False))
    return [shown[each] for each in NAMES if each in shown]


def _compute(experiment: Experiment, plan: ReproductionPlan, *, quiet: bool) -> Result:
    from graphforget.experiments import reproduce as engine

    if plan.run and not quiet:
        duration = _duration(_cost(experiment, plan))
        say(f"{experiment.name}: {experiment.title}; all of it takes about {duration}.")
    try:
        with _progress(experiment.name, quiet=quiet) as report:
            return engine.reproduce(experiment, plan, report=report)
    except KeyboardInterrupt:
        err.print(f"Interrupted. Finished cells are in {plan.out}; the same command continues.", soft_wrap=True)
        raise


def _show(result: Result, plan: ReproductionPlan) -> None:
    for bar in result.table.bars:
        say(bar.text)
    for label, why in result.errors.items():
        say(f"FAILED {label}: {why}")
    if result.left_out:
        say(result.left_out)
    written = plan.path(result.experiment.name, ".md")
    say(f"{result.done} of {result.total} cells of {result.experiment.name} are there. Written to {written}.")


def _cost(experiment: Experiment, plan: ReproductionPlan) -> float:
    return sum(cell.cost for cell in plan.cells(experiment)) / (1 if experiment.alone else plan.jobs)


@contextmanager
def _progress(name: str, *, quiet: bool) -> Iterator[Callable[[CellProgress], None] | None]:
    """A bar on a terminal, a line for each cell elsewhere, both on standard error."""
    if quiet:
        yield None
        return
    if not err.is_terminal:
        yield lambda now: err.print(_line(name, now), markup=False, highlight=False, soft_wrap=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, console=err, transient=True) as bars:
        task = bars.add_task(name, total=None)

        def report(now: CellProgress) -> None:
            description = f"{name}, about {_duration(now.left)} left"
            bars.update(task, description=description, completed=now.done, total=now.total)
            if now.error is not None:
                err.print(_line(name, now), markup=False, highlight=False, soft_wrap=True)

        yield report


def _line(name: str, now: CellProgress) -> str:
    failure = "" if now.error is None else f" FAILED: {now.error};"
    return f"{name} {now.done}/{now.total} {now.label}: {now.seconds:.1f} s;{failure} about {_duration(now.left)} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
