"""The command line: what it prints where, what it writes, and its exit codes."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

import graphforget as gf
from cases import ENVIRONMENT, Run, RunJson, present, random_graph
from graphforget.certificates.conditions import sentence
from graphforget.cli import app as cli
from graphforget.cli import console as terminal
from graphforget.cli.render import render_plan
from graphforget.linalg.newton import newton_cg
from graphforget.privacy.gaussian import epsilon_of, release_ratio
from graphforget.runs.write import rewrite_checksums
from graphforget.verification.verify import CANNOT_BE_CHECKED

SIGMA = gf.MODELS["sgc"].sigma
ROLLBACK = "that this is not an older copy of the run: keep 'ledger --head' elsewhere and give it as --head"

COMMANDS = (
    *("datasets", "models", "methods", "train", "adopt", "plan", "unlearn", "update", "compare", "predict", "export"),
    *("shard", "launch", "verify", "prove-absence", "verify-absence", "audit", "reproduce", "ledger", "keygen"),
    *("report", "card", "demo"),
)
RESULT_FIELDS = {
    *(
        "data",
        "nodes",
        "edges",
        "train_nodes",
        "test_nodes",
        "test_micro_f1",
        "recipe",
        "parameters",
        "reach",
    ),
    *("certifiable", "obstacles", "strongly_convex", "converged", "objective", "gradient_norm"),
    *("gradient_norm_over_mu", "graph_digest", "seconds", "noise", "history"),
    *("releases", "releases_left", "notes"),
}


@pytest.fixture(scope="module")
def club(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph as CSV files, quicker than any dataset by name."""
    folder = tmp_path_factory.mktemp("data") / "club"
    folder.mkdir()
    graph = random_graph(0, nodes=20, unlabelled=0)
    rows = zip(graph.y.tolist(), graph.x.to_dense().tolist(), strict=True)
    lines = [f"m{i},{label},{','.join(map(str, values))}" for i, (label, values) in enumerate(rows)]
    (folder / "nodes.csv").write_text("id,label,a,b,c,d\n" + "\n".join(lines))
    edges = [f"m{u},m{v}" for u, v in graph.edge_index.T.tolist()]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges))
    return folder


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parsed(text: str) -> Any:
    """One line of strict JSON."""

    def forbidden(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is not JSON")

    assert text.endswith("\n")
    assert text.count("\n") == 1
    return json.loads(text, parse_constant=forbidden)


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


# -- what there is -------------------------------------------------------------------------------------------


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"{gf.__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(run: Run, command: str) -> None:
    ran = run(command, "--help")
    assert (ran.code, ran.stderr) == (0, "")
    assert f"Example: graphforget {command}" in ran.stdout
    assert "--json" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_help_lists_every_command(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    assert all(f"\n  {command} " in ran.stdout for command in COMMANDS)
    assert {command.name or present(command.callback).__name__ for command in cli.app.registered_commands} == set(
        COMMANDS
    )
    assert "Example: graphforget " in ran.stdout


def test_no_command_shows_the_help(run: Run) -> None:
    ran = run()
    assert ran.code == 2
    assert "Usage: " in ran.stdout + ran.stderr
    assert "Commands:" in ran.stdout + ran.stderr


def test_datasets(run: Run) -> None:
    ran = run("datasets", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    rows = parsed(ran.stdout)
    assert [row["name"] for row in rows] == list(gf.DATASETS)
    for row in rows:
        dataset = gf.DATASETS[row.pop("name")]
        assert row == {
            name: getattr(dataset, name)
            for name in ("graphs", "nodes", "edges", "columns", "classes", "title", "source")
        }


def test_models(run: Run) -> None:
    ran = run("models", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    rows = parsed(ran.stdout)
    assert [row["name"] for row in rows] == list(gf.MODELS)
    for row in rows:
        entry = gf.MODELS[row["name"]]
        assert row["certifiable"] is (entry.affine and row["name"] not in ("cgu", "scalegun"))
        quick = {name: row[name] for name in ("epochs", "learning_rate", "polish_steps")}
        assert quick == dataclasses.asdict(entry.schedule("quick"))
        assert row["paper_recipe"] == dataclasses.asdict(entry.schedule("paper"))
        assert row["mu"] == entry.mu


@pytest.mark.parametrize(("command", "names"), [("datasets", list(gf.DATASETS)), ("models", list(gf.MODELS))])
def test_tables_for_people_have_a_line_for_each(run: Run, command: str, names: list[str]) -> None:
    ran = run(command)
    assert (ran.code, ran.stderr) == (0, "")
    header, *lines = ran.stdout.splitlines()
    assert header.startswith("name ")
    assert [line.split()[0] for line in lines] == names
    assert "\x1b" not in ran.stdout


def test_tables_write_numbers_and_answers_for_people(run: Run) -> None:
    assert " 34,493 " in run("datasets").stdout
    answers = {line.split()[0]: " yes " in line for line in run("models").stdout.splitlines()[1:]}
    noisy = ("cgu", "scalegun")
    assert answers == {name: entry.affine and name not in noisy for name, entry in gf.MODELS.items()}


# -- train ---------------------------------------------------------------------------------------------------


def test_train_without_out_writes_nothing(run: Run, club: Path, space: Path) -> None:
    ran = run("train", "--data", club, "--seed", "3", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = parsed(ran.stdout)
    assert result.keys() == RESULT_FIELDS | {"run"}
    assert result["run"] is None
    assert not tree(space)


def test_train_counts_what_it_dropped(run: Run, club: Path, space: Path) -> None:
    assert parsed(run("train", "--data", club, "--json").stdout)["notes"] == []
    shutil.copytree(club, space / "twice")
    edges = (club / "edges.csv").read_text().splitlines()
    (space / "twice" / "edges.csv").write_text("\n".join([*edges, edges[1]]))
    note = "1 repeated entry of the edge list was dropped, each edge counts once"
    assert parsed(run("train", "--data", "twice", "--json").stdout)["notes"] == [note]
    assert f"\nNote: {note}.\n" in run("train", "--data", "twice").stdout


def test_unlearn_does_not_write_over_its_own_run(run: Run, club: Path, space: Path) -> None:
    assert run("train", "--data", club, "--out", "run").code == 0
    (space / "request.json").write_text('{"nodes": ["m1"]}')
    before = tree(space)
    ran = run("unlearn", "run", "request.json", "--out", "./run", "--force")
    assert (ran.code, ran.stdout) == (2, "")
    assert "run is the run itself: for its next state use --in-place" in ran.stderr
    assert tree(space) == before


def test_train_prints_what_python_gives(run: Run, club: Path) -> None:
    result = parsed(run("train", "--data", club, "--seed", "3", "--mu", "0.02", "--json").stdout)
    graph = gf.load(club, seed=3)
    trained = gf.train(graph, "sgc", seed=3, mu=0.02)
    expected = {
        "data": "club",
        "nodes": 20,
        "edges": graph.num_edges,
        "train_nodes": 18,
        "test_nodes": 2,
        "test_micro_f1": trained.micro_f1(graph),
        "run": None,
        "notes": [],
        **json.loads(json.dumps(trained.summary())),
    }
    del result["seconds"], expected["seconds"]
    assert result == expected


def test_train_passes_every_option_on(run: Run, club: Path) -> None:
    options = [
        "--model",
        "GCN",
        "--epochs",
        "4",
        "--learning-rate",
        "0.02",
        "--hidden",
        "3",
        "--mu",
        "0.1",
        "--seed",
        "7",
        "--sigma",
        "0.25",
    ]
    recipe = parsed(run("train", "--data", club, *options, "--json").stdout)["recipe"]
    assert (recipe["model"], recipe["options"], recipe["seed"]) == ("gcn", {"hidden": 3}, 7)
    assert (recipe["epochs"], recipe["learning_rate"], recipe["mu"], recipe["sigma"]) == (4, 0.02, 0.1, 0.25)
    given = parsed(run("train", "--data", club, "--split", "given", "--json").stdout)
    assert (given["train_nodes"], given["test_nodes"], given["test_micro_f1"]) == (20, 0, None)


def test_what_releases_promise_is_fixed_at_training(run: Run, club: Path) -> None:
    promise = {"epsilon": 0.5, "delta": 1e-6, "releases": 3, "floor": 0.25}
    given = [word for name, value in promise.items() for word in (f"--{name}", str(value))]
    result = parsed(run("train", "--data", club, *given, "--json").stdout)
    assert {name: result["recipe"][name] for name in promise} == promise
    assert (result["releases"], result["releases_left"]) == ([], 3)
    text = " ".join(run("train", "--data", club, *given).stdout.split())
    assert "guarantee epsilon = 0.5, delta = 1e-06 for 3 releases together" in text
    network = parsed(run("train", "--data", club, "--model", "gcn", "--epochs", "2", *given, "--json").stdout)
    assert network["releases_left"] is None


@pytest.mark.slow
def test_a_delta_that_is_large_for_the_graph_is_noted(run: Run, club: Path) -> None:
    for delta, told in (
        ("1e-2", ["delta = 0.01 is over 1 / 518, one over the number of training nodes"]),
        ("1e-3", []),
    ):
        ran = run("train", "--delta", delta, "--json")
        assert (ran.code, parsed(ran.stdout)["notes"]) == (0, told)
        text = " ".join(run("train", "--delta", delta).stdout.split())
        assert [f"Note: {note}." in text for note in told] == [True] * len(told)
        assert ("Note: " in text) == bool(told)
    network = parsed(run("train", "--data", club, "--model", "gcn", "--epochs", "2", "--delta", "0.2", "--json").stdout)
    assert network["notes"] == []  # nothing is said of releases without noise


def test_noise_that_costs_more_than_two_points_is_noted(run: Run, space: Path) -> None:
    (note,) = parsed(run("train", "--sigma", "1", "--out", "run", "--json").stdout)["notes"]
    assert re.fullmatch(
        r"noise of sigma = 1 costs \d+\.\d points of micro-F1, 98\.0 % to \d+\.\d %: train with a smaller sigma", note
    )
    assert gf.load_run(space / "run")[0].notes == (note,)
    assert f"Note: {note}." in " ".join(run("train", "--sigma", "1").stdout.split())
    assert parsed(run("train", "--json").stdout)["notes"] == []
    low, under = parsed(run("train", "--sigma", "1", "--floor", "0.97", "--json").stdout)["notes"]
    assert low == note
    assert re.fullmatch(r"with noise the model scores 0\.\d+, under its floor 0\.97", under)


@pytest.mark.parametrize(("model", "sigma"), [("sgc", SIGMA), ("gcn", 0.0)])
def test_the_noise_is_fixed_at_training(run: Run, club: Path, model: str, sigma: float) -> None:
    epochs = ["--epochs", "2"] if model == "gcn" else []
    result = parsed(run("train", "--data", club, "--model", model, *epochs, "--json").stdout)
    assert result["recipe"]["sigma"] == sigma
    assert result["noise"] == 0  # of these weights, which are no release


def test_models_tell_the_noise_that_training_takes(run: Run) -> None:
    told = {entry["name"]: entry["sigma"] for entry in json.loads(run("models", "--json").stdout)}
    assert told == {name: entry.sigma for name, entry in gf.MODELS.items()}
    assert (told["sgc"] > 0, told["gcn"]) == (True, 0)


def test_train_writes_a_run(run: Run, club: Path, space: Path) -> None:
    ran = run("train", "--data", club, "--out", "runs/club", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = parsed(ran.stdout)
    assert result["run"] == "runs/club"
    trained, graph = gf.load_run(space / "runs" / "club")
    assert (trained.graph_digest, trained.seconds) == (result["graph_digest"], result["seconds"])
    assert graph.subject_ids is not None
    assert os.listdir(space) == ["runs"]
    assert os.listdir(space / "runs") == ["club"]


def test_an_existing_run_is_kept_unless_forced(run: Run, club: Path, space: Path) -> None:
    assert run("train", "--data", club, "--out", "run").code == 0
    before = tree(space)
    refused = run("train", "--data", club, "--out", "run", "--seed", "1")
    assert refused == (
        2,
        "",
        "graphforget: run exists already, choose another place or overwrite it with --force (force=True)\n",
    )
    assert tree(space) == before
    assert run("train", "--data", club, "--out", "run", "--seed", "1", "--force").code == 0
    assert gf.load_run(space / "run")[0].recipe.seed == 1
    assert os.listdir(space) == ["run"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("train", "--out", "/"), "the root of the file system"),
        (("verify", "/"), "the root of the file system"),
        (("verify", "run", "--target", "paper"), "--target is given without --data"),
        (("train", "--seed", "9" * 30), "below 2^63"),
        (("train", "--option", "hops=two"), "hops is 'two', a whole number"),
        (("train", "--option", "hops=-1"), "hops is -1, a whole number"),
        (("train", "--model", "gcn", "--hidden", "99999999999999"), "more memory than there is"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_who_asked(
    arguments: tuple[str, ...], word: str, run: Run, club: Path, space: Path
) -> None:
    data = ("--data", club) if arguments[0] == "train" else ()
    ran = run(*arguments, *data)
    assert (ran.code, ran.stdout) == (2, "")
    assert word in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert os.listdir(space) == []


def test_a_place_that_is_taken_is_refused_before_any_work(
    run: Run, space: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (space / "taken").mkdir()
    monkeypatch.setattr(gf, "load", lambda *_, **__: pytest.fail("the data was read"))
    for more in ([], ["--force"]):
        assert run("train", "--out", "taken", *more).code == 2


def test_train_for_people(run: Run, club: Path, space: Path) -> None:
    ran = run("train", "--data", club, "--out", "run")
    assert (ran.code, ran.stderr) == (0, "")
    lines = {line.split("  ")[0]: line for line in ran.stdout.splitlines()}
    assert "club: 20 nodes" in lines["graph"]
    graph = gf.load(club)
    training, test = int(graph.train_mask.sum()), int(graph.test_mask.sum())
    assert f"{training} training nodes, {test} test nodes" in lines["split"]
    assert training + test == 20
    assert "sgc, 15 parameters, mu = 0.0001" in lines["model"]
    assert " %" in lines["test micro-F1"]
    assert "a bound on the distance to the optimum" in lines["optimum"]
    assert "can be certified: strongly convex" in lines["certificate"]
    assert f"sigma = {SIGMA:g} in every release" in lines["noise"]
    assert "epsilon = 1, delta = 1e-05 for 64 releases together" in lines["guarantee"]
    assert ran.stdout.endswith("Written to run.\n")
    assert "\x1b" not in ran.stdout


def test_train_claims_no_more_than_it_knows(run: Run, club: Path) -> None:
    ran = run("train", "--data", club, "--model", "gcn", "--epochs", "2", "--split", "given")
    assert ran.code == 0
    assert "cannot be certified: the objective is not convex" in ran.stdout
    assert "no bound follows from it" in ran.stdout
    assert "20 training nodes, 0 test nodes" in ran.stdout
    assert "can be certified: strongly convex" not in ran.stdout


def test_training_that_does_not_converge_says_so(run: Run, club: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphforget.training.fit.minimise", functools.partial(newton_cg, max_steps=1))
    ran = run("train", "--data", club)
    assert ran.code == 0
    assert "NOT CONVERGED" in ran.stdout
    assert "a bound on the distance" not in ran.stdout


# -- demo ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_for_machines(run: Run, space: Path) -> None:
    ran = run("demo", "--json", "--out", "story.html")
    assert (ran.code, ran.stderr) == (0, "")
    result = parsed(ran.stdout)
    assert result["level"] == result["certificate"]["level"] == result["summary"]["level"] == "certified"
    private = result["summary"]["private"]
    assert (private["method"], private["footprint"]["removed"]) == ("newton", 1)
    assert result["certificate"]["signature"] is not None
    assert {"signature", "weights", "claim", "noise", "deleted data", "ledger"} <= set(result["checks"])
    assert len(result["planted"]) == 5
    assert all(result["planted"].values())
    assert result["ledger_entries"] == 1
    assert min(result["test_micro_f1"].values()) > 0.9
    away = result["distance_to_retrained"]
    assert away["unlearned"] < away["old weights"]
    assert away["unlearned"] <= private["measured"]["distance"] + 1e-3  # and what retraining leaves undone
    assert private["measured"]["distance"] <= result["certificate"]["claim"]["tolerance"]
    assert result["report"] == "story.html"
    page = (space / "story.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert result["certificate"]["id"] in page
    assert os.listdir(space) == ["story.html"]


@pytest.mark.slow
def test_demo_for_people(run: Run, space: Path) -> None:
    ran = run("demo")
    assert (ran.code, ran.stderr) == (0, "")
    assert "Trained SGC on 569 patients" in ran.stdout
    assert "a small graph loses accuracy to larger noise" in ran.stdout
    assert "withdraws consent" in ran.stdout
    assert (
        "Certificate (certified): up to 64 releases that keep this tolerance are together (1, 1e-05)-indistinguishable"
        in ran.stdout
    )
    assert "63 releases are left." in ran.stdout
    assert "The same request id again: the first answer." in ran.stdout
    assert ran.stdout.count(": caught (") == 5
    assert "NOT CAUGHT" not in ran.stdout
    assert "Distance to the retrained weights: " in ran.stdout
    assert os.listdir(space) == ["graphforget-demo.html"]


def test_a_demo_that_cannot_write_its_report_leaves_nothing(run: Run, space: Path) -> None:
    ran = run("demo", "--json", "--out", "nowhere/story.html")
    assert (ran.code, ran.stdout) == (2, "")
    told = "graphforget: the report cannot be written to nowhere/story.html: "
    assert ran.stderr.startswith(told)
    assert ran.stderr.endswith("nowhere is not a folder that can be written to\n")
    assert not tree(space)


# -- progress ------------------------------------------------------------------------------------------------


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "err", Console(stderr=True, force_terminal=True))


@pytest.mark.usefixtures("people")
def test_progress_stands_on_standard_error_for_people_only(run: Run, club: Path) -> None:
    arguments = ["train", "--data", club, "--model", "gcn", "--epochs", "3"]
    shown = run(*arguments)
    assert "\x1b" in shown.stderr
    assert "\x1b" not in shown.stdout
    assert shown.stdout.startswith("graph ")
    machine = run(*arguments, "--json")
    assert machine.stderr == ""
    assert parsed(machine.stdout)["recipe"]["epochs"] == 3


def test_no_progress_into_a_file(run: Run, club: Path) -> None:
    assert run("train", "--data", club, "--model", "gcn", "--epochs", "3").stderr == ""


def test_progress_is_told_stage_by_stage(run: Run, club: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int]] = []
    train = gf.train

    def watched(*given: Any, progress: object, **named: Any) -> gf.Trained:
        assert progress is None
        return train(*given, progress=lambda *report: seen.append(report), **named)

    monkeypatch.setattr(gf, "train", watched)
    assert run("train", "--data", club, "--model", "gcn", "--recipe", "paper", "--epochs", "3").code == 0
    assert seen[:3] == [("Adam", 1, 3), ("Adam", 2, 3), ("Adam", 3, 3)]
    assert {stage for stage, _, _ in seen[3:]} == {"polish"}


# -- bad input -----------------------------------------------------------------------------------------------

USAGE: list[tuple[list[str], str]] = [
    (["tarin"], "tarin"),
    (["train", "extra"], "extra"),
    (["train", "--colour", "red"], "--colour"),
    (["train", "--out"], "--out"),
    (["train", "--seed", "-1"], "--seed"),
    (["train", "--seed", "one"], "--seed"),
    (["train", "--seed", "1.5"], "--seed"),
    (["train", "--epochs", "0"], "--epochs"),
    (["train", "--epochs", "many"], "--epochs"),
    (["train", "--hidden", "0"], "--hidden"),
    (["train", "--hidden", "wide"], "--hidden"),
    (["train", "--mu", "small"], "--mu"),
    (["train", "--learning-rate", "slow"], "--learning-rate"),
    (["datasets", "--out", "x"], "--out"),
    (["demo", "cora"], "cora"),
    (["train", "--sigma", "loud"], "--sigma"),
    (["train", "--releases", "0"], "--releases"),
    (["train", "--releases", "many"], "--releases"),
    (["train", "--floor", "high"], "--floor"),
    (["train", "--epsilon", "small"], "--epsilon"),
    (["plan", "run"], "REQUEST"),
    (["unlearn", "run"], "REQUEST"),
    (["unlearn", "run", "request.json", "--seed", "-1"], "--seed"),
    (["unlearn", "run", "request.json", "--epsilon", "small"], "--epsilon"),
    (["verify"], "RUN"),
    (["verify", "run", "--key"], "--key"),
    (["ledger"], "RUN"),
    (["ledger", "run", "--delta", "tiny"], "--delta"),
    (["keygen"], "PATH"),
    (["report"], "RUN"),
    (["report", "run", "page.html"], "page.html"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "offender"), USAGE, ids=[" ".join(given) for given, _ in USAGE])
def test_arguments_that_cannot_be_read(run: Run, space: Path, arguments: list[str], offender: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
    assert ran.stderr.startswith("graphforget: ")
    assert ran.stderr.count("\n") == 1
    assert offender in ran.stderr
    assert not tree(space)


REFUSED: list[tuple[list[str], str]] = [
    (["--data", "nowhere"], "'nowhere' is neither a dataset"),
    (["--data", ""], "nodes.csv does not exist"),
    (["--data", "occupied"], "nodes.csv does not exist"),
    (["--data", "file.txt"], "is neither a dataset"),
    (
        ["--model", "transformer"],
        "there is no model 'transformer', only sgc, sign, relational-sign, cgu, scalegun",
    ),
    (["--model", ""], "there is no model ''"),
    (["--split", "half"], "split 'half' is not known, there are random, public, given"),
    (["--split", "public"], "has no 'public' split"),
    (["--data", "patients", "--split", "given"], "patients has no 'given' split, only 'random' is possible"),
    (["--mu", "0"], "mu is 0.0, "),
    (["--mu", "-1"], "mu is -1.0, "),
    (["--mu", "nan"], "mu is nan, "),
    (["--mu", "inf"], "mu is inf, "),
    (["--recipe", "slow", "--model", "gcn"], "there is no recipe 'slow', only quick and paper"),
    (["--learning-rate", "-1", "--model", "gcn"], "learning_rate is -1.0, "),
    (["--learning-rate", "nan", "--model", "gcn"], "learning_rate is nan, "),
    (["--learning-rate", "1e30", "--model", "gcn", "--epochs", "5"], "training diverged"),
    (["--sigma", "-1"], "sigma is -1.0, "),
    (["--sigma", "nan"], "sigma is nan, "),
    (["--sigma", "inf"], "sigma is inf, "),
    (["--epsilon", "0"], "epsilon is 0"),
    (["--epsilon", "nan"], "epsilon is nan"),
    (["--delta", "0"], "delta is 0"),
    (["--delta", "1"], "delta is 1"),
    (["--delta", "0.05"], "delta is 0.05, and over 0.01 nothing is certified"),
    (["--floor", "1.5"], "floor is 1.5, a number from 0 to 1 is needed"),
    (["--floor", "-0.1"], "floor is -0.1, "),
    (["--floor", "nan"], "floor is nan, "),
    (["--hidden", "5"], "model 'sgc' has no option"),
    (["--seed", str(2**70)], "seed"),
    (["--out", "occupied"], "occupied exists already"),
    (["--out", "occupied", "--force"], "occupied is not a run directory and is not overwritten"),
    (["--out", "file.txt", "--force"], "file.txt is not a run directory and is not overwritten"),
    (["--out", "file.txt/run"], "file.txt is not a folder that can be written to"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=[" ".join(given) for given, _ in REFUSED])
@pytest.mark.parametrize("as_json", [False, True], ids=["people", "machines"])
def test_bad_input_is_told_in_one_sentence(
    run: Run,
    club: Path,
    space: Path,
    recwarn: pytest.WarningsRecorder,
    as_json: bool,
    arguments: list[str],
    said: str,
) -> None:
    (space / "occupied").mkdir()
    (space / "occupied" / "thesis.txt").write_text("ten years of work")
    (space / "file.txt").write_text("text")
    before = tree(space)
    defaults = {"--data": str(club), "--out": "a/new/run"}
    filled = [word for key, value in defaults.items() if key not in arguments for word in (key, value)]
    ran = run("train", *filled, *arguments, *(["--json"] if as_json else []))
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("graphforget: ")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert tree(space) == before
    assert not [str(warning.message) for warning in recwarn]


def test_bad_data_is_told_with_file_and_line(run: Run, space: Path) -> None:
    (space / "own").mkdir()
    (space / "own" / "nodes.csv").write_text("id,label,a\nann,0,1\nbob,1,inf\n")
    (space / "own" / "edges.csv").write_text("source,target\n")
    ran = run("train", "--data", "own", "--out", "run")
    assert ran == (2, "", "graphforget: line 3 of own/nodes.csv: 'a' is 'inf', it must be a finite number\n")
    assert os.listdir(space) == ["own"]


def test_brackets_in_a_message_are_not_taken_for_markup(run: Run, space: Path) -> None:
    assert "'[bold]x[/bold]'" in run("train", "--model", "[bold]x[/bold]").stderr


def test_an_interrupt_ends_with_130_and_a_sentence(
    run: Run, club: Path, space: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(gf, "train", interrupted)
    assert run("train", "--data", club, "--out", "run") == (
        130,
        "",
        "graphforget: interrupted; every file is either complete or absent\n",
    )
    assert not tree(space)


# -- a real process ------------------------------------------------------------------------------------------


def process(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from graphforget.cli.app import main; main()", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_process_ends_with_2_and_one_sentence(club: Path, tmp_path: Path) -> None:
    ran = process("train", "--data", club, "--model", "transformer", "--out", "run", folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("graphforget: there is no model 'transformer', only ")
    assert ran.stderr.count("\n") == 1
    assert not tree(tmp_path)


@pytest.mark.slow
def test_a_process_gives_the_same_weights_and_clean_output(run: Run, club: Path, tmp_path: Path) -> None:
    arguments: list[str | Path] = ["train", "--data", club, "--model", "sgc", "--mu", "0.01", "--json"]
    ran = process(*arguments, "--out", "run", folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    result = parsed(ran.stdout)
    here = parsed(run(*arguments).stdout)
    assert result["objective"] == pytest.approx(here["objective"], rel=1e-6)
    trained, graph = gf.load_run(tmp_path / "run")
    assert float(trained.objective(graph).value(trained.theta)) == pytest.approx(result["objective"], rel=1e-12)
    assert torch.isfinite(trained.logits(graph)).all()


# -- plan and unlearn ------------------------------------------------------------------------------------------------


@pytest.fixture
def members(run: Run, club: Path, space: Path) -> Path:
    """A run directory of a trained model, with requests beside it."""
    assert run("train", "--data", club, "--out", "run").code == 0
    (space / "request.json").write_text('{"nodes": ["m3"], "attributes": [{"node": "m5", "columns": ["a", "b"]}]}')
    (space / "next.csv").write_text("kind,node,target,column\nnode,m4,,\n")
    (space / "bad.json").write_text('{"nodes": ["nobody"]}')
    return space


@pytest.fixture
def bare(run: Run, club: Path, members: Path) -> Path:
    """The same with a model that was trained without noise, for IDEA to size it."""
    assert run("train", "--data", club, "--out", "run", "--sigma", "0", "--force").code == 0
    return members


@pytest.fixture
def unconvex(run: Run, club: Path, members: Path) -> Path:
    """The same with a GCN."""
    settings = ("--model", "gcn", "--hidden", "4", "--epochs", "20")
    assert run("train", "--data", club, "--out", "run", *settings, "--force").code == 0
    return members


def test_methods(run: Run) -> None:
    ran = run("methods", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    rows = parsed(ran.stdout)
    assert [row["name"] for row in rows] == list(gf.METHODS)
    assert {row["name"]: row["level"] for row in rows} == {
        "newton": "certified",
        "idea": "conditional",
        "retrain": "exact",
        "grapheraser": "exact",
        "gif": "empirical",
        "ceu": "conditional",
        "cgu": "conditional",
        "scalegun": "conditional",
        "gnndelete": "empirical",
        "megu": "empirical",
        "ascent": "empirical",
    }
    assert all(row["forgets"] and row["models"] and row["sequential"] for row in rows)
    assert {row["name"]: row["forgets"] for row in rows}["ceu"] == "edges"
    assert "conditional" in run("methods").stdout


def test_compare(run: Run, club: Path) -> None:
    few = ("compare", "--data", club, "--model", "sgc", "--request", "node:1", "--methods", "newton,ceu,nothing")
    ran = run(*few, "--json")
    assert (ran.code, ran.stderr) == (0, "")
    found = parsed(ran.stdout)
    assert [row["method"] for row in found["rows"]] == ["retrain", "newton", "ceu", "no_op"]
    assert (found["request"], found["model"], found["seed"]) == ("node:1", "sgc", 0)
    shown = run(*few)
    assert shown.code == 0
    assert "certified" in shown.stdout
    assert "ceu: method 'ceu' cannot forget nodes, only edges." in shown.stdout


def test_compare_takes_a_request_file(run: Run, club: Path, space: Path) -> None:
    (space / "go.json").write_text(json.dumps({"nodes": ["m0", "m1"]}))
    ran = run("compare", "--data", club, "--model", "sgc", "--request", "go.json", "--methods", "newton", "--json")
    assert ran.code == 0
    assert [row["level"] for row in parsed(ran.stdout)["rows"]] == ["certified", "certified"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--request", "node"), "the request 'node' is neither a file nor of the form node:5%"),
        (("--request", "node:500"), "500 are to be drawn and there are only"),
        (("--methods", "magic"), "method 'magic' cannot be compared on 'gcn', only no_op, utu, retrain, "),
        (("--methods", "auto"), "method 'auto' cannot be compared on 'gcn', only no_op, utu, retrain, "),
        (("--request", "absent.json"), "absent.json does not exist"),
        (("--model", "cgu"), "model 'cgu' cannot be compared on"),
        (("--data", "nowhere"), "nowhere"),
    ],
)
def test_compare_refuses_in_one_sentence(run: Run, club: Path, given: tuple[str, str], told: str) -> None:
    ran = run("compare", "--data", club, *given)
    assert (ran.code, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_plan(run: Run, members: Path) -> None:
    before = tree(members)
    ran = run("plan", "run", "request.json", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    found = parsed(ran.stdout)
    assert (found["nodes"], found["attribute_nodes"]) == (1, 1)
    assert (found["method"], found["level"]) == ("newton", "certified")
    text = run("plan", "run", "request.json").stdout
    assert "nodes to delete" in text
    assert "Not covered at any level" in text
    assert "floor" not in text
    assert tree(members) == before


def test_a_plan_without_counts_by_kind_has_no_line_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    """On several ranks a mixture has none."""
    graph = random_graph(3)
    plan = gf.plan(gf.train(graph, "sgc"), graph, gf.Request(nodes=[1], labels=[2]))
    for affected_by, lines in ((plan.affected_by, 1), ({}, 0)):
        render_plan(dataclasses.replace(plan, affected_by=affected_by), floor=None)
        assert capsys.readouterr().out.count("by kind") == lines


def test_a_plan_shows_the_floor_of_the_model(run: Run, members: Path, club: Path) -> None:
    assert run("train", "--data", club, "--floor", "0.25", "--out", "floored").code == 0
    ran = run("plan", "floored", "request.json")
    assert ran.code == 0
    assert re.search(r"^floor +0\.25: ", ran.stdout, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "method", "level"),
    [
        ((), "newton", "certified"),
        (("--method", "idea"), "idea", None),
        (("--method", "idea", "--level", "empirical"), "idea", "empirical"),
        (("--method", "retrain"), "retrain", "certified"),
        (("--level", "exact"), "auto", None),
        (("--method", "idea", "--level", "certified"), "retrain", "certified"),
        (("--level", "exact", "--otherwise", "refuse"), "auto", None),
    ],
)
def test_a_plan_takes_the_wishes_of_unlearn(
    run: Run, members: Path, wanted: tuple[str, ...], method: str, level: str | None
) -> None:
    found = parsed(run("plan", "run", "request.json", *wanted, "--json").stdout)
    assert (found["method"], found["level"]) == (method, level)
    told = run("plan", "run", "request.json", *wanted)
    assert (told.code, told.stderr) == (0, "")
    assert ("would be refused: " in told.stdout) == (level is None)


@pytest.mark.slow
def test_unlearn_writes_a_run_that_can_go_on(run: Run, members: Path) -> None:
    before = tree(members / "run")
    ran = run("unlearn", "run", "request.json", "--out", "two", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = parsed(ran.stdout)
    assert (result["private"]["method"], result["level"], result["run"]) == ("newton", "certified", "two")
    assert (result["repeated"], len(result["request_id"])) == (False, 36)
    assert set(result["test_micro_f1"]) == {"released"}
    assert json.loads((members / "two" / "outcome.json").read_text()).items() <= result.items()
    _, graph = gf.load_run(members / "two")
    assert "m3" not in present(graph.subject_ids)
    assert tree(members / "run") == before
    ran = run("unlearn", "two", "next.csv", "--out", "three", "--method", "retrain")
    assert (ran.code, ran.stderr) == (0, "")
    text = " ".join(ran.stdout.split())
    assert "level certified: up to 64 releases that keep this tolerance are together" in text
    assert "method retrain training losses" in text
    assert "releases left 63 of 64" in text  # counted anew
    assert "Written to three." in ran.stdout
    trained, graph = gf.load_run(members / "three")
    assert {"m3", "m4"}.isdisjoint(present(graph.subject_ids))
    assert trained.history == ()


def test_unlearn_without_a_place_writes_nothing(run: Run, members: Path) -> None:
    before = tree(members)
    result = parsed(run("unlearn", "run", "request.json", "--json").stdout)
    assert (result["run"], result["request_id"], result["repeated"]) == (None, None, False)
    assert (result["level"], result["audience"]) == ("certified", "private")
    assert tree(members) == before


def test_unlearn_tells_what_was_measured_and_what_is_guaranteed(run: Run, members: Path) -> None:
    text = " ".join(run("unlearn", "run", "request.json", "--epsilon", "2", "--delta", "1e-4").stdout.split())
    public, _, private = text.partition("Private: depends on the deleted data.")
    assert public.startswith("A rehearsal: nothing is saved, so none of it may be shown or released. Would be public:")
    assert "level certified: up to 64 releases that keep this tolerance are together" in public
    assert "indistinguishable from the optimum on the retained graph" in public
    assert f"noise sigma = {SIGMA:g} " in public
    assert "chosen for this request epsilon = 2.0, delta = 0.0001" in public
    distance = r"distance the optimum is at most \S+ from the centre of the release, allowed \S+ "
    assert re.search(distance, private)
    assert re.search(r"epsilon \S+ by the measurement, for this release alone ", private)
    assert not [word for word in ("at most", "measured", "training losses", " time ") if word in public]
    assert "Not saved: --out FOLDER saves the model and its graph." in text


def test_unlearn_says_what_does_not_hold(run: Run, bare: Path) -> None:
    """IDEA's noise is not sized by a bound that does not hold, so there is none."""
    named = ("unlearn", "run", "request.json", "--method", "idea")
    before = tree(bare)
    refused = run(*named, "--out", "two")
    assert (refused.code, refused.stdout) == (3, "")
    assert refused.stderr.startswith("graphforget: the guarantee of 'idea' does not hold here (the noise that it needs")
    assert refused.stderr.endswith("ask for level 'empirical' to go on without a guarantee, or retrain\n")
    assert tree(bare) == before
    text = " ".join(run(*named, "--level", "empirical").stdout.split())
    assert "method idea " in text
    assert "level empirical: no guarantee for this model: at least one condition of the paper's bound fails" in text
    assert "An assumption does NOT hold, so nothing is guaranteed for this model." in text
    assert "Note: the released weights carry no noise." in text
    assert "Not saved: --out FOLDER saves the model and its graph." in text
    result = parsed(run(*named, "--level", "empirical", "--json").stdout)
    assert (result["level"], result["certificate"]["claim"]["sigma"]) == ("empirical", 0)
    assert result["private"]["measured"]["refuted"]


def test_auto_never_takes_a_bound_that_is_only_assumed(run: Run, bare: Path) -> None:
    """Without noise nothing is certified, so `auto` retrains."""
    result = parsed(run("unlearn", "run", "request.json", "--json").stdout)
    assert (result["private"]["method"], result["level"]) == ("retrain", "exact")


def test_noise_is_told_where_no_bound_asks_for_it(run: Run, members: Path) -> None:
    ran = run("unlearn", "run", "request.json", "--method", "retrain", "--out", "two")
    assert (ran.code, ran.stderr) == (0, "")
    assert f"sigma = {SIGMA:g} " in ran.stdout
    assert "needed" not in ran.stdout
    ran = run("unlearn", "run", "request.json", "--method", "retrain", "--sigma", "0.5", "--out", "three")
    assert (ran.code, ran.stdout) == (2, "")
    assert f"sigma is 0.5, but this model's was fixed at {SIGMA:g} when it was trained" in ran.stderr


@pytest.mark.slow
def test_unlearn_takes_options_of_the_method(run: Run, bare: Path) -> None:
    named = ("unlearn", "run", "request.json", "--json", "--method", "idea", "--level", "empirical")
    ran = run(*named, "--option", "solver=lissa", "--option", "iterations=7")
    result = parsed(ran.stdout)
    (step,) = result["private"]["details"]["steps"]
    assert (step["name"], step["iterations"]) == ("lissa", 7)
    assert (result["certificate"]["chosen"]["solver"], result["certificate"]["chosen"]["iterations"]) == ("lissa", 7)
    constants = 'constants={"strong_convexity": 1e-4, "lipschitz": 9, "loss_bound": 20}'
    result = parsed(run(*named[:-2], "--option", constants, "--option", "audit=false").stdout)
    claim = result["certificate"]["claim"]
    assert claim["constants"]["strong_convexity"] == 1e-4
    conditions = result["private"]["measured"]["conditions"]
    assert [c["verdict"] for c in conditions] == ["not checkable"] * 3 + ["holds"]
    assert [c["name"] for c in conditions] == claim["conditions"]
    assert (result["level"], claim["epsilon"]) == ("conditional", 1.0)
    assert "if every condition listed holds" in result["certificate"]["words"]["statement"]


def test_auto_hands_options_to_the_method_that_has_them(run: Run, members: Path) -> None:
    result = parsed(run("unlearn", "run", "request.json", "--json", "--option", "steps=9").stdout)
    assert (result["private"]["method"], result["level"]) == ("newton", "certified")
    assert result["certificate"]["chosen"] == {"steps": 9}
    ran = run("unlearn", "run", "request.json", "--json", "--option", "solver=lissa")
    assert (ran.code, ran.stdout) == (2, "")  # an option of IDEA, which auto never takes


NO_METHOD = "there is no method 'magic', only auto, newton, retrain, idea"
UNKNOWN = "no method that 'auto' can choose has the option {!r}, name a method"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "bad.json"), "node 'nobody' is not in the graph"),
        (("run", "absent.json"), "absent.json does not exist"),
        (("absent", "request.json"), "is not a run directory"),
        (("run", "request.json", "--method", "magic"), NO_METHOD),
        (("run", "request.json", "--level", "best"), "there is no level 'best', only exact, certified, conditional"),
        (("run", "request.json", "--otherwise", "stop"), "otherwise is 'stop', it must be one of retrain, refuse"),
        (("run", "request.json", "--epsilon", "0"), "epsilon is 0.0, a positive number is needed"),
        (("run", "request.json", "--delta", "2"), "delta is 2.0, a number between 0 and 1 is needed"),
        (("run", "request.json", "--sigma", "1"), f"sigma is 1, but this model's was fixed at {SIGMA:g} when it"),
        (("run", "request.json", "--option", "solver"), "the option 'solver' is not of the form name=value"),
        (("run", "request.json", "--option", "color=red"), UNKNOWN.format("color")),
        (
            ("run", "request.json", "--method", "idea", "--option", "color=red"),
            "method 'idea' has no option 'color', only solver",
        ),
        (
            ("run", "request.json", "--method", "idea", "--option", "epsilon=5"),
            "option 'epsilon' belongs to the command itself",
        ),
        (
            ("run", "request.json", "--method", "newton", "--option", "solver=cg"),
            "method 'newton' has no option 'solver', only steps",
        ),
        (("run", "request.json", "--option", "damping=1", "--option", "damping=2"), "option 'damping' is given twice"),
        (
            ("run", "request.json", "--method", "idea", "--option", 'constants={"lipschitz": "a"}'),
            "lipschitz is a, a finite number",
        ),
        (("run", "request.json", "--out", "run/two"), "run/two is inside another run directory"),
        (
            ("run", "request.json", "--method", "idea", "--option", "solver=magic"),
            "there is no solver 'magic', only cg, lissa, dense",
        ),
        (("run", "request.json", "--option", "solver=cg"), UNKNOWN.format("solver")),
        (("run", "request.json", "--out", "run"), "run is the run itself: for its next state use --in-place"),
        (("run", "request.json", "--out", "two", "--in-place"), "--in-place and --out are both given, choose one"),
        (("run", "request.json", "--key", "absent"), "absent cannot be read as a private key"),
        (("run", "request.json", "--key", "request.json"), "request.json cannot be read as a private key"),
        (("run", "request.json", "--id", " "), "the request id is blank, every request needs one"),
        (("run", "request.json", "--id", "x" * 201), "the request id has 201 characters, up to 200 are allowed"),
        (("run", "request.json", "--id", ""), "the request id is blank, every request needs one"),
    ],
)
def test_bad_input_to_unlearn(run: Run, members: Path, arguments: tuple[str, ...], told: str) -> None:
    before = tree(members)
    ran = run("unlearn", *arguments, *(() if "--out" in arguments else ("--out", "two")))
    assert ran.code == 2
    assert ran.stdout == ""
    assert told in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert tree(members) == before


@pytest.mark.parametrize("more", [("--id", "r-1"), ("--key", "key"), ("--id", "r-1", "--key", "key")])
def test_an_id_or_a_key_needs_a_place(run: Run, members: Path, more: tuple[str, ...]) -> None:
    before = tree(members)
    ran = run("unlearn", "run", "request.json", *more, "--json")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == ("graphforget: --id and --key need a place for the answer: add --out FOLDER or --in-place\n")
    assert tree(members) == before


def test_a_refusal_ends_with_code_3_and_writes_nothing(
    run: Run, members: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphforget.unlearning.influence.line_search", lambda *_, **__: None)
    before = tree(members)
    ran = run("unlearn", "run", "request.json", "--method", "idea", "--out", "two")
    assert (ran.code, ran.stdout) == (3, "")
    assert ran.stderr.startswith("graphforget: no part of the influence step lowers its own objective")
    assert tree(members) == before


@pytest.mark.parametrize("place", [(), ("--out", "two"), ("--in-place",)], ids=["nowhere", "out", "in place"])
def test_a_delta_that_promises_nothing_is_refused_with_code_3(run: Run, members: Path, place: tuple[str, ...]) -> None:
    before = tree(members)
    ran = run("unlearn", "run", "request.json", "--delta", "0.05", *place)
    assert (ran.code, ran.stdout) == (3, "")
    assert ran.stderr == "graphforget: delta is 0.05, and over 0.01 nothing is certified\n"
    assert tree(members) == before


@pytest.mark.slow
@pytest.mark.parametrize("place", [(), ("--out", "two"), ("--in-place",)], ids=["nowhere", "out", "in place"])
@pytest.mark.parametrize("as_json", [False, True], ids=["people", "machines"])
def test_a_level_out_of_reach_is_refused_with_code_3(
    run: Run, unconvex: Path, place: tuple[str, ...], as_json: bool
) -> None:
    before = tree(unconvex)
    wanted = ("--level", "certified", "--otherwise", "refuse", *(("--json",) if as_json else ()))
    ran = run("unlearn", "run", "request.json", *place, *wanted)
    assert (ran.code, ran.stdout) == (3, "")
    assert ran.stderr == (
        "graphforget: no method but retraining has a guarantee that holds for this model, "
        "and retraining was ruled out\n"
    )
    assert tree(unconvex) == before


@pytest.mark.slow
def test_a_level_out_of_reach_is_retrained_where_that_is_allowed(run: Run, unconvex: Path) -> None:
    for more in ((), ("--otherwise", "retrain")):
        result = parsed(run("unlearn", "run", "request.json", "--level", "certified", *more, "--json").stdout)
        assert (result["private"]["method"], result["level"]) == ("retrain", "exact")
        assert result["certificate"]["claim"]["kind"] == "exact/1"
        assert result["certificate"]["claim"]["sigma"] == 0


def test_people_are_told_why_a_model_was_retrained_instead(run: Run, members: Path) -> None:
    asked = ("unlearn", "run", "request.json", "--method", "idea", "--level", "certified")
    result = parsed(run(*asked, "--in-place", "--json").stdout)
    assert (result["private"]["method"], result["level"]) == ("retrain", "certified")
    (note,) = result["private"]["notes"]
    assert note.startswith("the model was retrained, because the guarantee of 'idea' does not hold here")
    assert json.loads((members / "run" / "annex.json").read_text())["annexes"][0]["account"]["notes"] == [note]
    assert note not in json.dumps(result["certificate"])


# -- in place, and asked again ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_in_place_the_run_itself_moves_on(run: Run, members: Path) -> None:
    others = set(os.listdir(members))
    for number, request in enumerate(("request.json", "next.csv"), start=1):
        ran = run("unlearn", "run", request, "--in-place", "--id", f"r-{number}", "--json")
        assert (ran.code, ran.stderr) == (0, "")
        result = parsed(ran.stdout)
        assert (result["run"], result["request_id"], result["repeated"]) == ("run", f"r-{number}", False)
    _, graph = gf.load_run(members / "run")
    assert {"m3", "m4"}.isdisjoint(present(graph.subject_ids))
    assert set(os.listdir(members)) == others
    assert b'"m3"' not in b"".join(content or b"" for content in tree(members / "run").values())
    entries = parsed(run("ledger", "run", "--json").stdout)["entries"]
    assert [entry["request_id"] for entry in entries] == ["r-1", "r-2"]
    assert run("verify", "run").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("place", [("--out", "two"), ("--in-place",)], ids=["out", "in place"])
def test_the_same_id_gets_the_same_answer_and_changes_nothing(run: Run, members: Path, place: tuple[str, ...]) -> None:
    asked = ("unlearn", "run", "request.json", *place, "--id", "r-1")
    first = parsed(run(*asked, "--json").stdout)
    before = tree(members)
    again = run(*asked, "--json")
    assert (again.code, again.stderr) == (0, "")
    assert parsed(again.stdout) == first | {"repeated": True}
    told = run(*asked)
    assert (told.code, told.stderr) == (0, "")
    assert told.stdout.startswith("This request was answered before. Its first answer:\n")
    assert tree(members) == before


@pytest.mark.parametrize("place", [("--out", "two"), ("--in-place",)], ids=["out", "in place"])
def test_an_id_is_for_one_request(run: Run, members: Path, place: tuple[str, ...]) -> None:
    assert run("unlearn", "run", "request.json", *place, "--id", "r-1").code == 0
    before = tree(members)
    ran = run("unlearn", "run", "next.csv", *place, "--id", "r-1")
    assert ran == (2, "", "graphforget: the request id 'r-1' was used for another request\n")
    assert tree(members) == before


# -- keys, verify, ledger, report ------------------------------------------------------------------------------------

DELETED = ("patient-0017", "patient-0042", "mean radius")


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, a run, a request, and the run that came of it, signed."""
    folder = tmp_path_factory.mktemp("answered")
    graph = gf.load("patients")
    gf.save_run(folder / "run", gf.train(graph, "sgc"), graph)
    private, _ = gf.make_keys(folder / "key")
    gf.make_keys(folder / "other")
    request = gf.Request(nodes=["patient-0017"], attributes={"patient-0042": ["mean radius"]})
    (folder / "request.json").write_text(json.dumps(request.to_dict()))
    gf.answer(folder / "run", request, out=folder / "two", request_id="r-1", key=gf.private_key(private))
    return folder


@pytest.fixture
def released(answered: Path, space: Path) -> Path:
    """A copy of it to do anything with."""
    shutil.copytree(answered, space, dirs_exist_ok=True)
    return space


def tamper(run: Path, by: float, *, fitting: bool) -> None:
    """One weight changed, with or without the checksum."""
    tensors = load_file(run / "weights.safetensors")
    tensors["theta"][0] += by
    save_file(tensors, run / "weights.safetensors")
    if fitting:
        rewrite_checksums(run)


def test_the_whole_story(run: Run, run_json: RunJson, space: Path) -> None:
    (space / "request.json").write_text('{"nodes": ["patient-0017"]}')
    assert run_json("keygen", "keys/auditor") == {"private": "keys/auditor", "public": "keys/auditor.pub"}
    assert run_json("train", "--out", "runs/one")["run"] == "runs/one"
    plan = run_json("plan", "runs/one", "request.json")
    asked = ("unlearn", "runs/one", "request.json", "--out", "runs/two", "--key", "keys/auditor", "--id", "r-1")
    result = run_json(*asked)
    assert (result["private"]["method"], result["level"]) == (plan["method"], plan["level"]) == ("newton", "certified")
    assert (result["run"], result["request_id"]) == ("runs/two", "r-1")
    found = run_json("verify", "runs/two", "--key", "keys/auditor.pub")
    assert (found["audience"], found["ok"]) == ("public", True)
    assert found["unchecked"] == ["fresh noise", *CANNOT_BE_CHECKED, ROLLBACK]
    assert {"signature", "weights", "claim", "noise", "deleted data", "ledger"} <= found["checks"].keys()
    ledger = run_json("ledger", "runs/two")
    assert [entry["request_id"] for entry in ledger["entries"]] == ["r-1"]
    ratio = release_ratio(epsilon=1, delta=1e-5, releases=64)
    assert ledger["composed"]["epsilon"] == epsilon_of(ratio=ratio, delta=1e-5)
    report = run_json("report", "runs/two", "--out", "page.html", "--key", "keys/auditor.pub")
    assert report == {"report": "page.html", "audience": "public"}
    before = tree(space)
    assert run_json(*asked) == result | {"repeated": True}
    assert tree(space) == before
    assert not run_json("unlearn", "runs/one", "request.json", "--in-place")["repeated"]
    assert run_json("verify", "runs/one")["unchecked"] == ["signature", "fresh noise", *CANNOT_BE_CHECKED, ROLLBACK]
    tamper(space / "runs" / "two", 1e-6, fitting=True)
    ran = run("verify", "runs/two", "--key", "keys/auditor.pub", "--json")
    assert (ran.code, parsed(ran.stdout)["ok"]) == (1, False)


def test_keygen_makes_keys_for_its_owner_alone_and_never_over_others(run: Run, space: Path) -> None:
    ran = run("keygen", "keys/auditor")
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout == ("Private key: keys/auditor (mode 600, keep it secret). Public key: keys/auditor.pub.\n")
    assert (space / "keys" / "auditor").stat().st_mode & 0o777 == 0o600
    assert gf.private_key("keys/auditor").public_key() == gf.public_key("keys/auditor.pub")
    before = tree(space)
    again = run("keygen", "keys/auditor", "--json")
    assert again == (2, "", "graphforget: keys/auditor exists already, and a key is never overwritten\n")
    assert tree(space) == before


def test_verify_for_people(run: Run, released: Path) -> None:
    before = tree(released)
    ran = run("verify", "two", "--key", "key.pub")
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout.endswith("Everything that could be checked holds.\n")
    assert ran.stdout.count("\nok  ") + ran.stdout.startswith("ok  ") == 10
    assert [line for line in ran.stdout.splitlines() if line.startswith("Not checked: fresh noise")]
    assert not [name for name in DELETED if name in ran.stdout]
    assert tree(released) == before


def test_verify_says_what_it_did_not_check(run: Run, released: Path) -> None:
    assert run("unlearn", "run", "request.json", "--method", "retrain", "--out", "three").code == 0
    ran = run("verify", "three")
    assert (ran.code, ran.stderr) == (0, "")
    text = " ".join(ran.stdout.split())
    fresh = "fresh noise (whether the noise differs from that of the previous release; --before RUN compares them)"
    for gap in ("signature", fresh, *CANNOT_BE_CHECKED, ROLLBACK):
        assert f"Not checked: {gap}." in text
    assert "why this was chosen for this request, which may tell of it: method." in text


@pytest.mark.parametrize(
    ("by", "fitting", "told"),
    [
        (1e-6, True, "the weights do not match the certificate"),
        (1e-6, False, "is damaged: weights.safetensors is not the file that was written"),
        (5.0, False, "is damaged: weights.safetensors is not the file that was written"),
        (5.0, True, "is inconsistent: the objective is"),
    ],
)
def test_a_changed_weight_ends_with_code_1_and_one_sentence(
    run: Run, released: Path, by: float, fitting: bool, told: str
) -> None:
    tamper(released / "two", by, fitting=fitting)
    people = run("verify", "two", "--key", "key.pub")
    assert (people.code, people.stdout) == (1, "")
    assert people.stderr.startswith("graphforget: does not hold: ")
    assert told in people.stderr
    assert people.stderr.count("\n") == 1
    machines = run("verify", "two", "--key", "key.pub", "--json")
    assert (machines.code, machines.stderr) == (1, people.stderr)
    answer = parsed(machines.stdout)
    assert answer.keys() == {"audience", "ok", "mismatch"}
    assert (answer["audience"], answer["ok"]) == ("private", False)
    assert told in answer["mismatch"]


def raised(**changes: Any) -> Callable[[Path], None]:
    """Fields of the certificate or of its claim, with checksums to fit."""

    def change(run: Path) -> None:
        content = json.loads((run / "certificate.json").read_text())
        claim = content["claim"] | {name: value for name, value in changes.items() if name in content["claim"]}
        others = {name: value for name, value in changes.items() if name not in claim}
        (run / "certificate.json").write_text(json.dumps(content | {"claim": claim} | others))
        rewrite_checksums(run)

    return change


def annex_of_nothing(run: Path) -> None:
    (run / "annex.json").write_text("[]")
    rewrite_checksums(run)


CHEATS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a smaller epsilon": (raised(epsilon=0.1), "the signature does not fit"),
    "no signature": (raised(signature=None), "the certificate is not signed"),
    "a ledger gone": (lambda run: (run / "ledger.sqlite").unlink(), "the ledger of two is missing"),
    "released weights gone": (lambda run: (run / "released.safetensors").unlink(), "is damaged"),
    "an annex of nothing": (
        annex_of_nothing,
        "two has 1 entries in its ledger and 0 annexes",
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_ends_with_code_1_and_gets_no_report(run: Run, released: Path, cheat: str) -> None:
    change, told = CHEATS[cheat]
    change(released / "two")
    for command in (("verify", "two"), ("report", "two", "--out", "page.html")):
        ran = run(*command, "--key", "key.pub")
        assert (ran.code, ran.stdout) == (1, "")
        assert ran.stderr.startswith("graphforget: does not hold: ")
        assert told in ran.stderr
        assert ran.stderr.count("\n") == 1
    assert not (released / "page.html").exists()


def test_a_certificate_of_another_signer_ends_with_code_1(run: Run, released: Path) -> None:
    ran = run("verify", "two", "--key", "other.pub")
    assert ran == (1, "", "graphforget: does not hold: the certificate was signed with another key\n")


def test_a_graph_that_still_holds_what_was_deleted_ends_with_code_1(run: Run, released: Path) -> None:
    ran = run("verify", "two", "--data", "patients", "--json")
    assert ran.code == 1
    told = {"mismatch": "the graph is not the one that the model stands on"}
    assert parsed(ran.stdout) == {"audience": "private", "ok": False, **told}


def test_the_retained_graph_may_come_from_ones_own_records(run: Run, club: Path, space: Path) -> None:
    shutil.copytree(club, space / "club")
    for name in ("nodes", "edges"):
        header, *lines = (club / f"{name}.csv").read_text().splitlines()
        if name == "nodes":  # a split of one's own, which a later load does not draw anew
            header = f"{header},split"
            lines = [f"{line},{'test' if number > 17 else 'train'}" for number, line in enumerate(lines)]
        (space / "club" / f"{name}.csv").write_text("\n".join([header, *lines]))
        kept = [line for line in lines if "m3" not in line.split(",")]
        (space / f"{name}.csv").write_text("\n".join([header, *kept]))
    (space / "request.json").write_text('{"nodes": ["m3"]}')
    assert run("train", "--data", "club", "--out", "run").code == 0
    assert run("unlearn", "run", "request.json", "--out", "two").code == 0
    assert run("verify", "two", "--data", space).code == 0
    assert run("verify", "two", "--data", "club").code == 1


@pytest.mark.parametrize("command", ["verify", "ledger", "report"])
def test_a_run_that_came_of_no_deletion_has_nothing_to_show(run: Run, released: Path, command: str) -> None:
    before = tree(released)
    ran = run(command, "run", "--json")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("graphforget: run ")
    assert ran.stderr.endswith("it has not answered any request\n")
    assert ran.stderr.count("\n") == 1
    assert tree(released) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("verify", "two", "--key", "absent.pub"), "absent.pub cannot be read as a public key"),
        (("verify", "two", "--key", "key"), "key cannot be read as a public key"),
        (("verify", "absent"), "absent is not a run directory"),
        (("verify", "two", "--data", "nowhere"), "'nowhere' is neither a dataset"),
        (("ledger", "absent"), "absent is not a run directory"),
        (("ledger", "two", "--delta", "0"), "delta"),
        (("ledger", "two", "--delta", "nan"), "delta"),
        (("report", "absent"), "absent is not a run directory"),
        (("report", "two", "--key", "absent.pub"), "absent.pub cannot be read as a public key"),
        (("report", "two", "--out", "nowhere/page.html"), "cannot be written to nowhere/page.html"),
        (("report", "two", "--out", "run"), "cannot be written to run, which is not a file"),
        (("keygen", "request.json/key"), "the keys cannot be written"),
        (("unlearn", "run", "request.json", "--out", "three", "--key", "absent"), "absent cannot be read as a private"),
        (("unlearn", "run", "request.json", "--out", "three", "--key", "key.pub"), "key.pub cannot be read as a priv"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True], ids=["people", "machines"])
def test_bad_input_to_the_rest(run: Run, released: Path, arguments: tuple[str, ...], told: str, as_json: bool) -> None:
    before = tree(released)
    ran = run(*arguments, *(("--json",) if as_json else ()))
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("graphforget: ")
    assert told in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert tree(released) == before


def test_a_private_key_that_others_can_read_is_not_used(run: Run, released: Path) -> None:
    (released / "key").chmod(0o644)
    before = tree(released)
    ran = run("unlearn", "run", "request.json", "--in-place", "--key", "key")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("graphforget: key can be read by others, set its mode to 600")
    assert tree(released) == before


def test_a_ledger_that_was_taken_away_is_missed(run: Run, released: Path) -> None:
    (released / "two" / "ledger.sqlite").unlink()
    ran = run("ledger", "two", "--json")
    assert (ran.code, ran.stdout) == (1, "")
    assert "the ledger of two is missing" in ran.stderr


def test_the_ledger_tells_the_epsilon_of_all_releases_together(run: Run, released: Path) -> None:
    alone = parsed(run("ledger", "two", "--json").stdout)["composed"]
    (released / "next.json").write_text('{"nodes": ["patient-0100"]}')
    assert run("unlearn", "two", "next.json", "--in-place", "--id", "r-2").code == 0
    ran = run("ledger", "two", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    told = parsed(ran.stdout)
    expected = gf.releases_so_far("two", delta=1e-5)
    assert told["composed"] == {"releases": 2, "epsilon": expected.epsilon, "delta": 1e-5, "reason": None}
    assert alone["epsilon"] < told["composed"]["epsilon"]
    assert [(entry["number"], entry["request_id"]) for entry in told["entries"]] == [(1, "r-1"), (2, "r-2")]
    assert all("answer" not in entry for entry in told["entries"])
    text = run("ledger", "two").stdout
    promise = f"epsilon = {expected.epsilon:.3g} at delta = 1e-05"
    assert f"2 releases of this run together guarantee {promise}." in text
    assert "Releases left: 62." in text
    assert told["releases_left"] == 62
    assert not [name for name in (*DELETED, "patient-0100") if name in text + ran.stdout]
    larger = parsed(run("ledger", "two", "--delta", "1e-3", "--json").stdout)["composed"]
    assert larger["delta"] == 1e-3
    assert larger["epsilon"] < expected.epsilon


def test_the_ledger_knows_no_epsilon_where_nothing_is_proven(run: Run, members: Path) -> None:
    assert run("unlearn", "run", "request.json", "--method", "idea", "--level", "empirical", "--in-place").code == 0
    composed = parsed(run("ledger", "run", "--json").stdout)["composed"]
    assert composed["epsilon"] is None
    text = run("ledger", "run").stdout
    assert f"No epsilon for all releases together: {composed['reason']}." in text
    assert composed["reason"].startswith("entry 1 is empirical")


def test_a_report_names_nobody_and_fetches_nothing(run: Run, released: Path) -> None:
    ran = run("report", "two", "--out", "page.html", "--key", "key.pub")
    assert ran == (0, "Written to page.html.\n", "")
    page = (released / "page.html").read_text()
    certificate = json.loads((released / "two" / "certificate.json").read_text())
    assert certificate["id"] in page
    assert certificate["signature"]["public_key"] in page
    assert certificate["words"]["statement"] in page
    assert not [name for name in DELETED if name in page]
    assert "patient-" not in page
    assert not re.findall(r"<(?:script|link|iframe)\b|(?:src|href)=[\"']?https?:", page)


def test_a_report_takes_the_place_of_the_one_before(run: Run, released: Path) -> None:
    (released / "report.html").write_text("old")
    before = set(os.listdir(released))
    assert parsed(run("report", "two", "--json").stdout) == {"report": "report.html", "audience": "public"}
    assert (released / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert set(os.listdir(released)) == before


# -- every method, told in words -------------------------------------------------------------------------------------

TAKEN: dict[str, tuple[str, ...]] = {
    "retrain": (),
    "newton": (),
    "idea": ("--sigma", "0"),
    "grapheraser": ("--model", "sharded-gcn", "--option", "shards=2", "--epochs", "3"),
    "gif": (),
    "ceu": ("--objective-noise", "1"),
    "cgu": ("--model", "cgu"),
    "scalegun": ("--model", "scalegun"),
    "gnndelete": ("--model", "gcn", "--hidden", "4", "--epochs", "20"),
    "megu": (),
    "ascent": (),
}


def an_edge_of(club: Path) -> str:
    """As a request file: of two members."""
    lines = (club / "edges.csv").read_text().splitlines()[1:]
    u, v = next(line.split(",") for line in lines if len(set(line.split(","))) == 2)
    return json.dumps({"edges": [[u, v]]})


@pytest.mark.slow
@pytest.mark.parametrize("method", list(gf.METHODS))
def test_the_outcome_of_every_method_is_told_in_words(method: str, run: Run, club: Path, space: Path) -> None:
    assert run("train", "--data", club, "--out", "run", *TAKEN[method]).code == 0
    (space / "request.json").write_text(an_edge_of(club) if method == "ceu" else '{"nodes": ["m3"]}')
    epsilon = "1e9" if method in ("cgu", "scalegun", "ceu") else "1"  # no draw of the noise spends that
    void = method in ("idea", "ceu")  # the constants that they declare do not hold of this model
    asked: tuple[str, ...] = ("unlearn", "run", "request.json", "--method", method, "--epsilon", epsilon)
    asked += ("--option", "epochs=20") if method == "gnndelete" else ()
    if void:
        assert run(*asked).code == 3
        asked = (*asked, "--level", "empirical")
    ran = run(*asked)
    assert (ran.code, ran.stderr) == (0, "")
    result = parsed(run(*asked, "--json").stdout)
    text = " ".join(ran.stdout.split())
    assert f"method {method} " in text
    assert f"level {result['level']}: " in text
    assert "training losses" in text
    assert "Traceback" not in text
    assert "None" not in text
    for condition in result["private"]["measured"].get("conditions", ()):
        assert sentence(condition["name"]).split()[0] in text
    if method == "cgu":
        assert result["level"] == "conditional"
        assert result["certificate"]["claim"]["epsilon"] == 1e9
        assert [c["name"] for c in result["private"]["measured"]["conditions"]] == result["certificate"]["claim"][
            "conditions"
        ]
        assert "The assumptions of the claim, and the measurements:" in text
    if void:
        assert result["level"] == "empirical"
        assert result["certificate"]["claim"]["epsilon"] is None
        assert "An assumption does NOT hold, so nothing is guaranteed for this model." in text
    planned = run("plan", "run", "request.json", "--method", method)
    assert (planned.code, planned.stderr) == (0, "")


@pytest.mark.parametrize("method", ["cgu", "ceu"])
def test_a_deletion_by_noise_in_the_objective_is_kept_and_verifies(
    method: str, run: Run, club: Path, space: Path
) -> None:
    decay = ("--mu", "0.1") if method == "ceu" else ()  # its constants hold of a model with that much
    assert run("train", "--data", club, "--out", "run", *TAKEN[method], *decay).code == 0
    (space / "request.json").write_text(an_edge_of(club))
    asked = ("unlearn", "run", "request.json", "--method", method, "--epsilon", "1e9", "--out", "two")
    result = parsed(run(*asked, "--json").stdout)
    assert (result["level"], result["certificate"]["claim"]["epsilon"]) == ("conditional", 1e9)
    ran = run("verify", "two")
    assert (ran.code, ran.stderr) == (0, "")
    told = "that the noise in the objective was drawn before training: the signer vouches for it"
    assert f"Not checked: {told}." in " ".join(ran.stdout.split())
    assert told in parsed(run("verify", "two", "--json").stdout)["unchecked"]


def test_noise_in_the_objective_is_trained_with(run: Run, club: Path, space: Path) -> None:
    ran = run("train", "--data", club, "--objective-noise", "0.1", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    told = parsed(ran.stdout)
    assert (told["recipe"]["objective_noise"], told["recipe"]["sigma"], told["certifiable"]) == (0.1, 0.0, False)
    text = run("train", "--data", club, "--objective-noise", "0.1").stdout
    assert "standard deviation 0.1 in the objective" in " ".join(text.split())
    bad = run("train", "--data", club, "--objective-noise", "-1")
    assert (bad.code, bad.stdout) == (2, "")
    assert bad.stderr == "graphforget: objective_noise is -1.0, a finite number from 0 is needed\n"


def test_options_of_a_model_are_trained_with(run: Run, club: Path, space: Path) -> None:
    options = ("--option", "shards=3", "--option", "partition=blpa")
    ran = run("train", "--data", club, "--model", "sharded-gcn", "--epochs", "3", *options, "--json")
    assert (ran.code, ran.stderr) == (0, "")
    assert parsed(ran.stdout)["recipe"]["options"] == {"shards": 3, "partition": "blpa"}


@pytest.mark.parametrize(
    "option", ["seed=3", "mu=1", "tolerance=1", "device=cpu", "noise_seed=1", "reach=1", "graph=1"]
)
def test_what_belongs_to_training_is_no_option_of_the_model(option: str, run: Run, club: Path, space: Path) -> None:
    ran = run("train", "--data", club, "--out", "run", "--option", option)
    assert (ran.code, ran.stdout) == (2, "")
    name = option.partition("=")[0]
    assert (
        ran.stderr
        == f"graphforget: option {name!r} belongs to the command itself, --option is for the model or method\n"
    )
    assert not (space / "run").exists()


def test_a_model_with_noise_in_its_objective_is_listed_as_not_certifiable(run: Run) -> None:
    listed = {model["name"]: model for model in parsed(run("models", "--json").stdout)}
    assert listed["cgu"]["certifiable"] is False
    assert listed["sgc"]["certifiable"] is True
    (line,) = [line for line in run("models").stdout.splitlines() if line.split()[:1] == ["cgu"]]
    assert "yes" not in line.split()
