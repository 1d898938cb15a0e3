"""The command line: what it prints where, what it writes, and its exit codes."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
import torch
from rich.console import Console

import graphforget as gf
from cases import random_graph
from graphforget import cli, terminal
from graphforget.linalg.newton import newton_cg

COMMANDS = ("datasets", "models", "methods", "train", "plan", "unlearn", "demo")
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
}


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`main` with these arguments, as a process would end; a warning would stand on standard error too."""

    def call(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["graphforget", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Ran(code, *capsys.readouterr())

    return call


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
    assert {command.name or command.callback.__name__ for command in cli.app.registered_commands} == set(COMMANDS)
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
            name: getattr(dataset, name) for name in ("nodes", "edges", "columns", "classes", "title", "source")
        }


def test_models(run: Run) -> None:
    ran = run("models", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    rows = parsed(ran.stdout)
    assert [row["name"] for row in rows] == list(gf.MODELS)
    for row in rows:
        entry = gf.MODELS[row["name"]]
        assert row["certifiable"] is entry.affine
        assert (row["mu"], row["epochs"], row["learning_rate"]) == (
            entry.mu,
            entry.epochs,
            entry.learning_rate,
        )


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
    assert answers == {name: entry.affine for name, entry in gf.MODELS.items()}


# -- train ---------------------------------------------------------------------------------------------------


def test_train_without_out_writes_nothing(run: Run, club: Path, space: Path) -> None:
    ran = run("train", "--data", club, "--seed", "3", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = parsed(ran.stdout)
    assert result.keys() == RESULT_FIELDS | {"run"}
    assert result["run"] is None
    assert not tree(space)


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
    ]
    recipe = parsed(run("train", "--data", club, *options, "--json").stdout)["recipe"]
    assert (recipe["model"], recipe["options"], recipe["seed"]) == ("gcn", {"hidden": 3}, 7)
    assert (recipe["epochs"], recipe["learning_rate"], recipe["mu"]) == (4, 0.02, 0.1)
    given = parsed(run("train", "--data", club, "--split", "given", "--json").stdout)
    assert (given["train_nodes"], given["test_nodes"], given["test_micro_f1"]) == (20, 0, None)


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
    assert "18 training nodes, 2 test nodes" in lines["split"]
    assert "sgc, 15 parameters, mu = 0.0001" in lines["model"]
    assert " %" in lines["test micro-F1"]
    assert "a bound on the distance to the optimum" in lines["optimum"]
    assert "can be certified: strongly convex" in lines["certificate"]
    assert ran.stdout.endswith("Written to run.\n")
    assert "\x1b" not in ran.stdout


def test_train_claims_no_more_than_it_knows(run: Run, club: Path) -> None:
    ran = run("train", "--data", club, "--model", "gcn", "--epochs", "2", "--split", "given")
    assert ran.code == 0
    assert "cannot be certified: the objective is not convex" in ran.stdout
    assert "no bound follows from it" in ran.stdout
    assert "no test nodes" in ran.stdout
    assert "can be certified: strongly convex" not in ran.stdout


def test_training_that_does_not_converge_says_so(run: Run, club: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphforget.training.newton_cg", functools.partial(newton_cg, max_steps=1))
    ran = run("train", "--data", club)
    assert ran.code == 0
    assert "NOT CONVERGED" in ran.stdout
    assert "a bound on the distance" not in ran.stdout


# -- demo ----------------------------------------------------------------------------------------------------


def test_demo_for_machines(run: Run, space: Path) -> None:
    ran = run("demo", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = parsed(ran.stdout)
    assert result.keys() == RESULT_FIELDS | {"request", "outcome", "distance_to_retrained"}
    assert (result["data"], result["nodes"]) == ("patients", 569)
    assert result["test_micro_f1"] > 0.9
    graph = gf.load("patients")
    request = gf.Request.from_dict(result["request"])
    found = gf.footprint(graph, request, gf.Reach(**result["reach"]))
    assert result["outcome"]["footprint"] == {"removed": 1, "affected": found.affected.numel()}
    assert result["outcome"]["level"] == "conditional"
    assert result["distance_to_retrained"]["unlearned"] < result["distance_to_retrained"]["old weights"]
    assert request.nodes
    assert request.edges
    assert request.attributes
    assert graph.without(request).num_nodes == 568
    assert not tree(space)


def test_demo_for_people(run: Run, space: Path) -> None:
    ran = run("demo")
    assert (ran.code, ran.stderr) == (0, "")
    assert "patients: 569 nodes" in ran.stdout
    assert "A request to forget: {" in ran.stdout
    assert "1 removed," in ran.stdout
    assert "Distance to the weights retrained without it: " in ran.stdout
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
    assert run("train", "--data", club, "--model", "gcn", "--epochs", "3").code == 0
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
]


@pytest.mark.parametrize(("arguments", "offender"), USAGE, ids=[" ".join(given) for given, _ in USAGE])
def test_arguments_that_cannot_be_read(run: Run, space: Path, arguments: list[str], offender: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert offender in last
    assert not tree(space)


REFUSED: list[tuple[list[str], str]] = [
    (["--data", "nowhere"], "'nowhere' is neither a dataset"),
    (["--data", ""], "nodes.csv does not exist"),
    (["--data", "occupied"], "nodes.csv does not exist"),
    (["--data", "file.txt"], "is neither a dataset"),
    (["--model", "transformer"], "there is no model 'transformer', only sgc, sign, gcn"),
    (["--model", ""], "there is no model ''"),
    (["--split", "half"], "split 'half' is not known, there are random, public, given"),
    (["--split", "public"], "has no 'public' split"),
    (["--data", "patients", "--split", "given"], "patients has no 'given' split, only 'random' is possible"),
    (["--mu", "0"], "mu is 0.0, "),
    (["--mu", "-1"], "mu is -1.0, "),
    (["--mu", "nan"], "mu is nan, "),
    (["--mu", "inf"], "mu is inf, "),
    (["--learning-rate", "-1", "--model", "gcn"], "learning_rate is -1.0, "),
    (["--learning-rate", "nan", "--model", "gcn"], "learning_rate is nan, "),
    (["--learning-rate", "1e30", "--model", "gcn", "--epochs", "5"], "training diverged"),
    (["--hidden", "5"], "model 'sgc' does not take these options"),
    (["--seed", str(2**70)], "seed"),
    (["--out", "occupied"], "occupied exists already"),
    (["--out", "occupied", "--force"], "occupied is not a run directory and is not overwritten"),
    (["--out", "file.txt", "--force"], "file.txt is not a run directory and is not overwritten"),
    (["--out", "file.txt/run"], "file.txt is not a folder that can be written to"),
]


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
    (space / "own" / "nodes.csv").write_text("id,label,a\nann,0,1\nbob,1,nan\n")
    (space / "own" / "edges.csv").write_text("source,target\n")
    ran = run("train", "--data", "own", "--out", "run")
    assert ran == (2, "", "graphforget: line 3 of own/nodes.csv: 'a' is 'nan', it must be a finite number\n")
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
        "graphforget: stopped, nothing was written\n",
    )
    assert not tree(space)


# -- a real process ------------------------------------------------------------------------------------------


def process(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from graphforget.cli import main; main()", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_process_ends_with_2_and_one_sentence(club: Path, tmp_path: Path) -> None:
    ran = process("train", "--data", club, "--model", "transformer", "--out", "run", folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("graphforget: there is no model 'transformer', only ")
    assert ran.stderr.count("\n") == 1
    assert not tree(tmp_path)


def test_a_process_gives_the_same_weights_and_clean_output(run: Run, club: Path, tmp_path: Path) -> None:
    arguments = ["train", "--data", club, "--model", "sgc", "--mu", "0.01", "--json"]
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


def test_methods(run: Run) -> None:
    ran = run("methods", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    rows = parsed(ran.stdout)
    assert [row["name"] for row in rows] == list(gf.METHODS)
    assert all(row["level"] and row["forgets"] for row in rows)
    assert "conditional" in run("methods").stdout


def test_plan(run: Run, members: Path) -> None:
    before = tree(members)
    ran = run("plan", "run", "request.json", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    found = parsed(ran.stdout)
    assert (found["nodes"], found["attribute_nodes"], found["level"]) == (1, 1, "conditional")
    text = run("plan", "run", "request.json").stdout
    assert "nodes that go" in text
    assert "Not covered, whatever the level:" in text
    assert tree(members) == before


def test_unlearn_writes_a_run_that_can_go_on(run: Run, members: Path) -> None:
    before = tree(members / "run")
    ran = run("unlearn", "run", "request.json", "--out", "two", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    result = parsed(ran.stdout)
    assert (result["method"], result["level"], result["run"]) == ("idea", "conditional", "two")
    assert set(result["test_micro_f1"]) == {"old weights", "unlearned", "released"}
    assert json.loads((members / "two" / "outcome.json").read_text()).items() <= result.items()
    _, graph = gf.load_run(members / "two")
    assert "m3" not in graph.subject_ids
    assert tree(members / "run") == before
    ran = run("unlearn", "two", "next.csv", "--out", "three", "--method", "retrain")
    assert (ran.code, ran.stderr) == (0, "")
    assert "exact: the model was trained from fresh weights" in " ".join(ran.stdout.split())
    assert "Written to three." in ran.stdout
    trained, graph = gf.load_run(members / "three")
    assert {"m3", "m4"}.isdisjoint(graph.subject_ids)
    assert trained.history == ()


def test_unlearn_says_what_does_not_hold(run: Run, members: Path) -> None:
    text = " ".join(run("unlearn", "run", "request.json").stdout.split())
    assert "conditional: nothing follows for this model, because this does not hold: " in text
    assert "Some of it does NOT hold here, so nothing follows for this model." in text
    assert "Not kept: --out FOLDER keeps the model and its graph." in text
    bare = " ".join(run("unlearn", "run", "request.json", "--sigma", "0").stdout.split())
    assert "empirical: the noise is too little for any epsilon, so nothing is guaranteed" in bare
    assert "Note: the released weights carry no noise." in bare


def test_noise_is_told_where_no_bound_asks_for_it(run: Run, members: Path) -> None:
    ran = run("unlearn", "run", "request.json", "--method", "retrain", "--sigma", "0.5", "--out", "two")
    assert (ran.code, ran.stderr) == (0, "")
    assert "sigma = 0.5" in ran.stdout
    assert "needed" not in ran.stdout


def test_unlearn_takes_options_of_the_method(run: Run, members: Path) -> None:
    ran = run("unlearn", "run", "request.json", "--json", "--option", "solver=lissa", "--option", "iterations=7")
    (step,) = parsed(ran.stdout)["details"]["steps"]
    assert (step["name"], step["iterations"]) == ("lissa", 7)
    constants = 'constants={"strong_convexity": 1e-4, "lipschitz": 9, "loss_bound": 20}'
    ran = run("unlearn", "run", "request.json", "--json", "--option", constants, "--option", "audit=false")
    certificate = parsed(ran.stdout)["certificate"]
    assert certificate["constants"]["strong_convexity"] == 1e-4
    assert [c["verdict"] for c in certificate["conditions"]] == ["not checkable"] * 3 + ["holds"]
    assert "if every condition listed holds" in certificate["statement"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "bad.json"), "node 'nobody' is not in the graph"),
        (("run", "absent.json"), "absent.json cannot be read"),
        (("absent", "request.json"), "is not a run directory"),
        (("run", "request.json", "--method", "magic"), "there is no method 'magic', only idea, retrain"),
        (("run", "request.json", "--epsilon", "0"), "epsilon is 0.0, a positive number is needed"),
        (("run", "request.json", "--delta", "2"), "delta is 2.0, a number between 0 and 1 is needed"),
        (("run", "request.json", "--option", "solver"), "the option 'solver' is not of the form name=value"),
        (("run", "request.json", "--option", "color=red"), "method 'idea' has no option 'color', only solver"),
        (("run", "request.json", "--option", "epsilon=5"), "method 'idea' has no option 'epsilon', only solver"),
        (("run", "request.json", "--option", "damping=1", "--option", "damping=2"), "option 'damping' stands twice"),
        (
            ("run", "request.json", "--option", 'constants={"lipschitz": "a"}'),
            "lipschitz is a, a finite number",
        ),
        (("run", "request.json", "--out", "run/two"), "run/two lies inside another run directory"),
        (("run", "request.json", "--option", "solver=magic"), "there is no solver 'magic', only cg, lissa, dense"),
        (("run", "request.json", "--out", "run"), "run exists already, choose another place"),
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


def test_a_refusal_ends_with_code_3_and_writes_nothing(
    run: Run, members: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphforget.unlearning.idea.kept_part", lambda *_, **__: None)
    before = tree(members)
    ran = run("unlearn", "run", "request.json", "--out", "two")
    assert (ran.code, ran.stdout) == (3, "")
    assert ran.stderr.startswith("graphforget: no part of the influence step lowers what it aims at")
    assert tree(members) == before
