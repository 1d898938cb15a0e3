"""Experiments from end to end: their files, the pages, and the command."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from matplotlib.figure import Figure
from typer.testing import CliRunner

import graphforget as gf
from graphforget.audits.links import NETWORK
from graphforget.cli import reproduce as cli_reproduce
from graphforget.errors import InputError
from graphforget.experiments import (
    bases,
    figure_bounds,
    figure_time,
    registry,
    table1,
    table_attacks,
    table_attributes,
    table_noise,
    table_seconds,
)
from graphforget.experiments import reproduce as engine
from graphforget.experiments.bases import base
from graphforget.experiments.cells import Cell, Row
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.fingerprint import fingerprint
from graphforget.experiments.machine import describe, machine
from graphforget.experiments.registry import experiment
from graphforget.experiments.reproduce import ReproductionPlan, _commits, reproduce, write_pages
from graphforget.experiments.table import Bar, Spread, Table, TableEntry
from graphforget.report.charts import Line, Panel, line_chart
from graphforget.report.results import Section, markdown, page
from graphforget.runs.locks import try_lock

pytestmark = pytest.mark.usefixtures("one_thread")


def doubled(*, store: Path, number: int) -> Row:
    if number == 3:
        raise ValueError("three <b>|</b> fails")
    return {"double": 2 * number}


def _cells(*, quick: bool, seeds: int) -> list[Cell]:
    return [Cell({"number": number}, 1.0, doubled) for number in range(1 if quick else seeds)]


def _table(rows: Sequence[Row]) -> Table:
    lines = tuple((str(row["number"]), TableEntry(Spread.of([row["double"]]))) for row in rows)
    bar = Bar.of("All are small", {str(row["number"]): row["double"] for row in rows}, most=8, unit="large")
    return Table("A <table>", ("number", "double | twice"), lines, ("A note.",), (bar,))


def _figure(rows: Sequence[Row]) -> Figure:
    return line_chart([Panel("p", [Line("double", [1, 2], [1.0, None])])], "x", "y")


def test_the_numbers_at_an_axis_do_not_overlap() -> None:
    chart = line_chart([Panel("p", [Line("one", [0, 1, 30, 63, 64], [1.0] * 5)])], "x", "y", log_y=False)
    assert list(chart.axes[0].get_xticks()) == [0, 30, 64]


TOY = Experiment("toy", "numbers, doubled", _cells, _table, _figure, "Doubles.")


def threads(jobs: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(jobs)


def test_an_experiment_leaves_its_files(tmp_path: Path) -> None:
    result = reproduce(TOY, ReproductionPlan(tmp_path, seeds=3), pool=threads)
    assert (result.done, result.total, result.errors) == (3, 3, {})
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"toy.jsonl", "toy.json", "toy.md", "toy.png", "models"}
    assert (tmp_path / "models" / ".gitignore").read_text() == "*\n"
    document = json.loads((tmp_path / "toy.json").read_text())
    assert document["command"] == f"graphforget reproduce toy --out {tmp_path.name}"
    assert document["cells"] == {"done": 3, "total": 3, "errors": {}}
    assert document["table"]["rows"][2][1]["ours"] == {"mean": 4.0, "deviation": None, "count": 1}
    assert document["machines"] == [describe(machine())]
    assert document["made"] == json.loads((tmp_path / "toy.jsonl").read_text().splitlines()[0])["made"][:10]
    everything = "".join(path.read_text() for path in tmp_path.glob("toy.*") if path.suffix != ".png")
    assert socket.gethostname() not in everything
    assert str(tmp_path) not in everything
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_short_form_has_files_of_its_own(tmp_path: Path) -> None:
    reproduce(TOY, ReproductionPlan(tmp_path, quick=True), pool=threads)
    assert {path.stem for path in tmp_path.glob("toy*")} == {"toy-quick"}
    assert "Short form" in (tmp_path / "toy-quick.md").read_text()


def test_a_failing_cell_is_told_everywhere_and_the_rest_is_there(tmp_path: Path) -> None:
    result = reproduce(TOY, ReproductionPlan(tmp_path, seeds=5), pool=threads)
    assert (result.done, result.total) == (4, 5)
    assert list(result.errors) == ["number=3"]
    told = "1 of 5 cells are not there yet: number=3 (1). number=3 failed: ValueError"
    assert told in (tmp_path / "toy.md").read_text()
    _, html = write_pages([result], ReproductionPlan(tmp_path, seeds=5))
    assert "three &lt;b&gt;" in html.read_text()


def _models(*, quick: bool, seeds: int, models: int = 2) -> list[Cell]:
    places = [(f"model-{model}", data, seed) for model in range(models) for data in ("a", "b") for seed in range(seeds)]
    return [
        Cell({"model": model, "data": data, "seed": seed, "number": 1}, 1.0, of_model) for model, data, seed in places
    ]


def of_model(*, store: Path, model: str, data: str, seed: int, number: int) -> Row:
    return {"double": 2 * number}


def test_missing_cells_are_named_without_their_seeds(tmp_path: Path) -> None:
    experiment = dataclasses.replace(TOY, cells=_models)
    only = ReproductionPlan(tmp_path, only="model=model-0 data=a")
    missing = reproduce(experiment, only, pool=threads).section.missing
    assert missing == "9 of 12 cells are not there yet: model-0 b (3); model-1 a (3); model-1 b (3)."
    many = dataclasses.replace(TOY, cells=functools.partial(_models, models=12))
    missing = reproduce(many, only, pool=threads).section.missing
    assert missing.startswith("69 of 72 cells are not there yet: model-0 (3); model-1 (6); model-2 (6); ")
    assert reproduce(experiment, ReproductionPlan(tmp_path), pool=threads).section.missing == ""


@pytest.mark.slow
def test_only_some_cells(tmp_path: Path) -> None:
    result = reproduce(TOY, ReproductionPlan(tmp_path, seeds=3, only="number=1"), pool=threads)
    assert (result.done, result.total) == (1, 3)
    assert result.table.bars[0].text == "All are small: reached so far. The worst of 1: 1, 2 large."
    result = reproduce(TOY, ReproductionPlan(tmp_path, seeds=3, run=False), pool=threads)
    assert (result.done, result.total) == (1, 3)
    result = reproduce(TOY, ReproductionPlan(tmp_path, seeds=3), pool=threads)
    assert result.table.bars[0].text == "All are small: reached. The worst of 3: 2, 4 large."


@pytest.mark.slow
def test_days_and_machines_are_those_of_the_cells(tmp_path: Path) -> None:
    reproduce(TOY, ReproductionPlan(tmp_path, seeds=2), pool=threads)
    lines = [json.loads(line) for line in (tmp_path / "toy.jsonl").read_text().splitlines()]
    lines[0] |= {"made": "2025-01-31T10:00:00+00:00", "machine": {"cores": 64}}
    lines[1] |= {"made": "2025-03-01T10:00:00+00:00"}
    (tmp_path / "toy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    section = reproduce(TOY, ReproductionPlan(tmp_path, seeds=2, run=False), pool=threads).section
    assert section.made == "2025-01-31 to 2025-03-01"
    assert section.machine == f"{describe({'cores': 64})}; {describe(machine())}"


def test_results_name_the_commits_whose_code_computed_the_cells(tmp_path: Path) -> None:
    reproduce(TOY, ReproductionPlan(tmp_path, seeds=3), pool=threads)
    lines = [json.loads(line) for line in (tmp_path / "toy.jsonl").read_text().splitlines()]

    def told(*commits: str | None) -> str:
        written = (line | {"commit": commit} for line, commit in zip(lines, commits, strict=True))
        (tmp_path / "toy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
        return reproduce(TOY, ReproductionPlan(tmp_path, run=False), pool=threads).section.commits

    clean, other = "a" * 40, "b" * 40
    assert told(clean, clean, clean) == "commit aaaaaaaaaa"
    assert told(clean, clean, other + "+") == "commits aaaaaaaaaa (2), bbbbbbbbbb+ (1)"
    assert told(clean, None, None) == "commit aaaaaaaaaa (1), not recorded (2)"
    assert told(None, None, None) == "commit not recorded"
    document = json.loads((tmp_path / "toy.json").read_text())
    assert document["commits"] == "commit not recorded"
    assert "commit not recorded." in (tmp_path / "toy.md").read_text()
    assert _commits([], 0) == ""


def test_the_command_that_is_shown_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    assert ReproductionPlan(Path("docs/results")).command("toy") == "graphforget reproduce toy --out docs/results"
    assert ReproductionPlan(Path("my results")).command("toy") == "graphforget reproduce toy --out 'my results'"
    assert ReproductionPlan(tmp_path / "there").command("toy") == "graphforget reproduce toy --out there"


@pytest.mark.parametrize("values", [{}, {"double": "two"}, {"double": [1]}])
def test_cells_of_something_else_are_one_sentence_and_stay(tmp_path: Path, values: Row) -> None:
    text = json.dumps({"key": {"number": 0}, "found": values, "settings": fingerprint()}) + "\n"
    (tmp_path / "toy.jsonl").write_text(text)
    with pytest.raises(InputError, match="has cells that are not of this experiment"):
        reproduce(TOY, ReproductionPlan(tmp_path, seeds=1), pool=threads)
    assert (tmp_path / "toy.jsonl").read_text() == text
    assert not (tmp_path / "toy.json").exists()


@pytest.mark.slow
def test_an_interrupt_still_writes_the_table(tmp_path: Path) -> None:
    def stop(now: Any) -> None:
        if now.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(TOY, ReproductionPlan(tmp_path, seeds=3, jobs=1), pool=threads, report=stop)
    assert json.loads((tmp_path / "toy.json").read_text())["cells"]["done"] == 2


@pytest.mark.slow
def test_what_measures_time_has_one_worker(tmp_path: Path) -> None:
    pools = []

    def pool(jobs: int) -> ThreadPoolExecutor:
        pools.append(jobs)
        return ThreadPoolExecutor(jobs)

    reproduce(dataclasses.replace(TOY, alone=True), ReproductionPlan(tmp_path / "a", jobs=2), pool=pool)
    reproduce(TOY, ReproductionPlan(tmp_path / "b", jobs=2), pool=pool)
    assert pools == [1, 2]


def _section(**changes: Any) -> Section:
    known: dict[str, Any] = {
        "name": "toy",
        "title": "A <table>",
        "columns": ("a", "b|c"),
        "rows": (("1*", "2"),),
        "notes": ("* one seed.",),
        "bars": (("reached", True), ("not", False), ("open", None)),
        "command": "graphforget reproduce toy",
        "machine": "2 cores",
        "made": "2026-01-01",
        "commits": "commit abcdef0123",
        "missing": "",
        "picture": None,
        "svg": None,
        "caption": "",
    }
    return Section(**(known | changes))


def test_markdown_escapes_what_would_break_a_table() -> None:
    text = markdown(_section(picture="toy.png", caption="A picture."))
    assert "| a | b\\|c |\n| --- | --- |\n| 1\\* | 2 |" in text
    assert "![A picture.](toy.png)" in text
    assert "- \\* one seed." in text


def test_text_is_wrapped_and_tables_are_not() -> None:
    words = "each word of this note counts - and 1. no line begins with a mark of a list " * 9
    entry = "a long entry " * 20
    text = markdown(
        _section(notes=(words,), missing=words, machine=words, caption=words, picture="toy.png", rows=((entry, ""),))
    )
    lines = text.splitlines()
    assert max(len(line) for line in lines if not line.startswith("|")) <= 120
    assert any(len(line) > 120 for line in lines)
    assert text.count(" ".join(words.split())) == 0
    assert " ".join(text.split()).count(" ".join(words.split())) == 4
    assert [line for line in lines if line.lstrip().startswith(("- ", "1. "))] == [
        "- reached",
        "- not",
        "- open",
        next(line for line in lines if line.startswith("- each word")),
    ]


def test_the_page_escapes_text_and_fetches_nothing(tmp_path: Path) -> None:
    result = reproduce(TOY, ReproductionPlan(tmp_path, seeds=2), pool=threads)
    html = page([_section(), result.section])
    assert "A &lt;table&gt;" in html
    assert "<table>A" not in html
    assert html.count("<svg") == 1
    assert "default-src 'none'" in html
    assert "src=" not in html.replace("-src", "")
    assert "<script" not in html


# -- short forms that take seconds, cell by cell ---------------------------------------------------------------------


def _rows(given: list[Cell], store: Path) -> list[Row]:
    return [cell.key | cell.work(store=store, **cell.key) for cell in given]


@pytest.mark.slow
def test_table_datasets_from_end_to_end(raw_data: Path, tmp_path: Path) -> None:
    result = reproduce(experiment("table-datasets"), ReproductionPlan(tmp_path, quick=True), pool=threads)
    assert (result.done, result.errors) == (6, {})
    text = (tmp_path / "table-datasets-quick.md").read_text()
    assert "| Physics | 34,493 (34,493) | 247,962 (495,924) |" in text
    again = reproduce(experiment("table-datasets"), ReproductionPlan(tmp_path, quick=True), pool=threads)
    assert again.table == result.table


@pytest.mark.slow
def test_convex_cells_on_patients(tmp_path: Path) -> None:
    known = [cell for cell in table1.cells(quick=True, seeds=1) if cell.key["data"] == "patients"]
    (row,) = _rows(known, tmp_path)
    assert row["level"] == "certified"
    assert abs(row["f1"] - row["retrain"]) <= 100 / 57  # one of the test nodes
    bounds = [cell for cell in figure_bounds.cells(quick=True, seeds=1) if cell.key["data"] == "patients"]
    for row in _rows(bounds, tmp_path):
        assert row["actual"] <= row["measured"] <= row["idea_bound"] / 100
        assert row["actual_idea"] <= row["nothing"]
        assert row["ceu_worst_rightly"] > row["ceu_worst"]
    noise = [cell for cell in table_noise.cells(quick=True, seeds=1) if cell.key["data"] == "patients"]
    (row,) = _rows(noise, tmp_path)
    assert row["f1 measured"] > 90
    assert row["f1 idea"] < 80
    assert row["sigma idea_paper"] > row["sigma idea"] > 100 * row["sigma measured"]
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} == {
        f"patients-sgc-0-{fingerprint()}",
        f"patients-sgc-0-without-5-{fingerprint()}",
    }
    seconds = [cell for cell in table_seconds.cells(quick=True, seeds=1) if cell.key["data"] == "patients"]
    rows = _rows(seconds[:1], tmp_path)
    assert rows[0]["level"] == "certified"
    assert len(table_seconds.table(rows).rows) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("method", "level"), [("newton", "certified"), ("idea", "empirical"), ("random", "exact")])
def test_times_on_patients(tmp_path: Path, method: str, level: str) -> None:
    row = figure_time.measured(store=tmp_path, method=method, data="patients", share=0.01, seed=0)
    assert row["level"] == level
    assert row["seconds"] > 0
    table = figure_time.table([{"method": method, "data": "patients", "share": 0.01, "seed": 0} | row])
    shown = {line[0]: line[1:] for line in table.texts}
    assert shown[figure_time.METHODS[method][0]][1] != "-"


@pytest.mark.slow
def test_half_of_the_work_of_grapheraser(tmp_path: Path) -> None:
    row = table1.erased(store=tmp_path, part="random", data="patients", model="gcn", seed=0, epochs=5)
    assert row["shards"] == 5
    assert row["f1"] > 50


@pytest.mark.slow
def test_attributes_are_blanked_for_all_methods(
    raw_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_attributes, "PARTITIONS", ())
    row = table_attributes.measured(store=tmp_path, data="cora", share=0.5, seed=0)
    assert {"true before", "true nothing", "true retrain", "true idea", "true cgu", "true newton"} <= row.keys()
    assert row["true before"] < row["true nothing"]
    assert row["published idea"] > 1.165  # no double softmax is lower on seven classes


@pytest.mark.slow
def test_attacks_tell_removed_edges_from_other_pairs(
    raw_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphforget.audits.links.NETWORK", dataclasses.replace(NETWORK, epochs=4))
    monkeypatch.setattr(table_attacks, "methods_of", lambda model: ["nothing", "retrain"])
    row = table_attacks.attacked(store=tmp_path, data="cora", kind="edges", seed=0)
    assert row["paper retrain"] > 75  # homophily: no useful model is near 50 %
    assert row["honest retrain"] < row["paper retrain"]
    table = table_attacks.table([{"data": "cora", "kind": "edges", "seed": 0} | row])
    assert table.columns[2] == "nodes, the paper's protocol"


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    made = typer.Typer()
    made.callback()(lambda: None)
    made.command()(cli_reproduce.reproduce)
    monkeypatch.setattr(registry, "find", lambda name: [TOY])
    monkeypatch.setattr(cli_reproduce, "NAMES", ("toy",))
    monkeypatch.setattr(
        engine,
        "reproduce",
        lambda experiment, plan, report=None: reproduce(experiment, plan, report=report, pool=threads),
    )
    return made


def test_the_command_tells_and_writes(app: typer.Typer, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["reproduce", "all", "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert "3 of 3 cells of toy are there" in ran.output
    assert "## A <table>" in (tmp_path / "README.md").read_text()
    assert "<svg" in (tmp_path / "index.html").read_text()


def test_the_command_as_json(app: typer.Typer, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["reproduce", "toy", "--json", "--seeds", "5", "--out", str(tmp_path)])
    assert ran.exit_code == 1  # a cell failed
    content = json.loads(ran.stdout)
    assert content["results"][0]["done"] == 4
    assert list(content["results"][0]["errors"]) == ["number=3"]
    assert content["pages"] == []


def test_the_command_refuses_a_file_for_a_folder(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = CliRunner().invoke(app, ["reproduce", "toy", "--out", str(tmp_path / "file")])
    assert isinstance(ran.exception, InputError)
    assert "is not a folder" in str(ran.exception)


@pytest.mark.slow
def test_pages_of_all_keep_the_experiments_of_which_nothing_was_chosen(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(TOY, name="other", cells=lambda **options: [Cell({"number": 7}, 1.0, doubled)])
    never = dataclasses.replace(TOY, name="never", cells=lambda **options: [Cell({"number": 9}, 1.0, doubled)])
    monkeypatch.setattr(registry, "find", lambda name: [TOY, other, never])
    monkeypatch.setattr(cli_reproduce, "NAMES", ("toy", "other", "never"))
    for only in ("number=7", "number=1"):
        ran = CliRunner().invoke(app, ["reproduce", "all", "--only", only, "--out", str(tmp_path)])
        assert ran.exit_code == 0, ran.output
    page = (tmp_path / "README.md").read_text()
    assert "reproduce toy" in page
    assert "reproduce other" in page
    assert "reproduce never" not in page


@pytest.mark.slow
def test_all_takes_the_experiments_that_have_such_cells(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(TOY, name="other", cells=lambda **options: [Cell({"letter": "a"}, 1.0, doubled)])
    monkeypatch.setattr(registry, "find", lambda name: [TOY, other])
    ran = CliRunner().invoke(app, ["reproduce", "all", "--only", "number=1", "--out", str(tmp_path / "a")])
    assert ran.exit_code == 0, ran.output
    assert not list((tmp_path / "a").glob("other*"))
    ran = CliRunner().invoke(app, ["reproduce", "all", "--only", "zzz", "--out", str(tmp_path / "b")])
    assert isinstance(ran.exception, InputError)
    assert str(ran.exception) == "no cell of all has 'zzz' in its name, the first is 'number=0'"
    assert ran.output == ""
    assert not (tmp_path / "b").exists()


def test_the_command_refuses_an_unknown_name(tmp_path: Path) -> None:
    made = typer.Typer()
    made.callback()(lambda: None)
    made.command()(cli_reproduce.reproduce)
    ran = CliRunner().invoke(made, ["reproduce", "table9", "--out", str(tmp_path / "new")])
    assert isinstance(ran.exception, InputError)
    assert not (tmp_path / "new").exists()


# -- stored models, and messages ---------------------------------------------------------------------------------------


def _emptied(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def _torn(run: Path) -> None:
    weights = next(run.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:100])


def _a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("no run")


def _of_another_seed(run: Path) -> None:
    shutil.rmtree(run)
    graph = gf.load("patients", seed=1)
    gf.save_run(run, gf.train(graph, "sgc", seed=1), graph)


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [_emptied, _torn, _a_file, _of_another_seed])
def test_a_kept_model_that_is_not_the_asked_one_is_trained_anew(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    first, graph = base(tmp_path, "patients", "sgc", 0)
    (run,) = (path for path in tmp_path.iterdir() if not path.name.startswith("."))
    spoil(run)
    bases._load_base.cache_clear()
    again, same = base(tmp_path, "patients", "sgc", 0)
    assert torch.equal(again.theta, first.theta)
    assert same.digest == graph.digest
    assert run.is_dir()


def lost(*, store: Path, number: int) -> Row:
    raise InputError(f"{store.resolve() / 'x'} and {Path.home() / 'y'} and {Path.cwd() / 'z'} are damaged")


def test_where_a_machine_keeps_things_is_not_told(tmp_path: Path) -> None:
    broken = dataclasses.replace(TOY, cells=lambda **options: [Cell({"number": 0}, 1.0, lost)])
    result = reproduce(broken, ReproductionPlan(tmp_path), pool=threads)
    assert result.errors == {"number=0": "OUT/models/x and ~/y and ./z are damaged"}
    assert ReproductionPlan(Path("../../home/out")).command("toy") == "graphforget reproduce toy --out out"


@pytest.mark.slow
def test_two_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    reproduce(TOY, ReproductionPlan(tmp_path, seeds=1), pool=threads)
    with try_lock(tmp_path, "never said"):
        with pytest.raises(InputError, match="another reproduction is at work in"):
            reproduce(TOY, ReproductionPlan(tmp_path, seeds=3), pool=threads)
        assert reproduce(TOY, ReproductionPlan(tmp_path, seeds=3, run=False), pool=threads).done == 1  # looking is free
    assert reproduce(TOY, ReproductionPlan(tmp_path, seeds=3), pool=threads).done == 3


@pytest.mark.slow
def test_data_that_cannot_be_had_is_told_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(name: str) -> Path:
        raise InputError(f"no {name} here")

    monkeypatch.setattr("graphforget.experiments.reproduce.raw_folder", nowhere)
    out = tmp_path / "new"
    with pytest.raises(InputError, match="no cora here"):
        reproduce(experiment("figure-bounds"), ReproductionPlan(out, quick=True), pool=threads)
    assert not out.exists()
    only = ReproductionPlan(out, quick=True, only="data=patients share=0.01")
    assert reproduce(experiment("figure-bounds"), only, pool=threads).done == 1


def test_an_interrupted_command_says_how_to_go_on(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "reproduce", stopped)
    ran = CliRunner().invoke(app, ["reproduce", "toy", "--out", str(tmp_path)])
    assert "the same command continues" in ran.output
    assert ran.exit_code == 130


def test_nothing_is_rendered_over_a_table_from_cells_of_other_settings(tmp_path: Path) -> None:
    reproduce(TOY, ReproductionPlan(tmp_path, seeds=2), pool=threads)
    record, content = tmp_path / "toy.jsonl", (tmp_path / "toy.md").read_bytes()
    record.write_text(record.read_text().replace(fingerprint(), "0" * 16) + "garbage\n")
    with pytest.raises(InputError, match="2 cells of other settings and 1 lines that cannot be read"):
        reproduce(TOY, ReproductionPlan(tmp_path, seeds=2, run=False), pool=threads)
    assert (tmp_path / "toy.md").read_bytes() == content
