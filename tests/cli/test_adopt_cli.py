"""`graphforget adopt`, and the commands that read its run: import paths come from the command line alone."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.data import Data

import graphforget as gf
from adopted_cases import PlainGCN, retrain_gcn
from cases import Run, RunJson, random_graph

MODULE = ("--module", "adopted_cases:PlainGCN", "--module-option", "hidden=8")
RETRAIN = ("--retrain", "adopted_cases:retrain_gcn")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model and its data, as files."""
    place = tmp_path_factory.mktemp("files")
    data = random_graph(3, nodes=40, edges=60, sparse=False).to_pyg()
    data = Data(x=data.x.float(), edge_index=data.edge_index, y=data.y, train_mask=data.train_mask)
    data.num_classes = 3
    module = retrain_gcn(data)
    torch.save(data, place / "graph.pt")
    torch.save(module.state_dict(), place / "model.pt")
    save_file(module.state_dict(), place / "model.safetensors")
    torch.save(module, place / "pickled.pt")
    (place / "request.json").write_text('{"nodes": [4]}')
    return place


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def adopted(files: Path, *more: str, checkpoint: str = "model.safetensors", data: str = "graph.pt") -> tuple[str, ...]:
    return ("adopt", str(files / checkpoint), "--data", str(files / data), *more)


@pytest.mark.parametrize("checkpoint", ["model.pt", "model.safetensors"])
def test_a_checkpoint_comes_in_as_it_is(checkpoint: str, files: Path, here: Path, run_json: RunJson) -> None:
    result = run_json(*adopted(files, *MODULE, "--out", "one", checkpoint=checkpoint))
    assert result["recipe"]["options"] == {"adopted": True}
    assert (result["nodes"], result["run"], result["retrain"]) == (40, "one", None)
    trained, graph = gf.load_run("one", model=PlainGCN())
    module = PlainGCN()
    module.load_state_dict(torch.load(files / "model.pt", weights_only=True))
    data = torch.load(files / "graph.pt", weights_only=False)
    with torch.no_grad():
        expected = module.eval()(data.x, data.edge_index)
    torch.testing.assert_close(trained.logits(graph).float(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_the_whole_way(files: Path, here: Path, run: Run, run_json: RunJson) -> None:
    ran = run(*adopted(files, *MODULE, *RETRAIN, "--out", "one"))
    assert (ran.code, ran.stderr) == (0, "")
    assert "exact by adopted_cases:retrain_gcn" in ran.stdout
    request = files / "request.json"
    plan = run_json("plan", "one", str(request), *MODULE, *RETRAIN)
    assert (plan["level"], len(plan["conditions"]), len(plan["advice"])) == ("exact", 1, 2)
    shown = run("plan", "one", request, *MODULE)
    assert "would be refused" in shown.stdout
    assert "gf.stacked(PlainGCN)" in shown.stdout
    answer = run_json("unlearn", "one", str(request), "--out", "two", *MODULE, *RETRAIN)
    assert answer["certificate"]["claim"]["kind"] == "exact-own-training/1"
    assert "condition" in run("unlearn", "one", request, *MODULE, *RETRAIN).stdout
    assert run_json("verify", "two", *MODULE, *RETRAIN, "--replay")["ok"]
    assert run("ledger", "two").code == 0
    assert run("report", "two", "--out", "page.html", *MODULE).code == 0
    assert "the training function reads nothing that depends on deleted data" in Path("page.html").read_text()
    step = run_json("unlearn", "one", str(request), *MODULE, "--method", "gif", "--level", "empirical")
    assert step["level"] == "empirical"


@pytest.mark.slow
def test_an_audit_calls_the_function(files: Path, here: Path, run: Run) -> None:
    run(*adopted(files, *MODULE, "--out", "one", "--split", "random"))
    run("unlearn", "one", files / "request.json", "--out", "two", *MODULE, *RETRAIN)
    ran = run("audit", "two", *MODULE, *RETRAIN, "--models", "8", "--seeds", "2", "--jobs", "1", "--json")
    assert ran.code in (0, 1, 3), ran.stderr
    assert json.loads(ran.stdout)["claim"]["level"] == "exact"


def test_commands_say_what_they_need(files: Path, here: Path, run: Run) -> None:
    run(*adopted(files, *MODULE, "--out", "one"))
    request = str(files / "request.json")
    for command in (("plan", "one", request), ("unlearn", "one", request, "--in-place"), ("verify", "one")):
        ran = run(*command)
        assert (ran.code, ran.stdout) == (2, "")
        assert "give an instance of it as model=... (--module)" in ran.stderr
    ran = run("unlearn", "one", request, "--in-place", *MODULE)
    assert ran.code == 3
    assert "--retrain" in ran.stderr


def test_a_file_of_the_current_folder_can_be_named(files: Path, here: Path, run_json: RunJson) -> None:
    (here / "file_of_mine.py").write_text("from adopted_cases import PlainGCN as Mine\n")
    result = run_json(*adopted(files, "--module", "file_of_mine:Mine"))
    assert result["parameters"] == sum(p.numel() for p in PlainGCN().parameters())


# -- nothing of a run directory is imported --------------------------------------------------------------------------

HOSTILE = "import pathlib\npathlib.Path({mark!r}).write_text('it ran')\n"


def test_a_run_directory_never_causes_an_import(files: Path, here: Path, run: Run) -> None:
    run(*adopted(files, *MODULE, "--out", "one"))
    mark = here / "mark"
    for place in (here, here / "one"):
        (place / "hostile_code.py").write_text(HOSTILE.format(mark=str(mark)))
    path = here / "one" / "run.json"
    content = json.loads(path.read_text())
    for name in ("hostile_code.Mine", "hostile_code:Mine"):
        content["recipe"]["model"] = name
        content["recipe"]["loss"] = name
        path.write_text(json.dumps(content))
        for command in (("plan", "one", files / "request.json"), ("verify", "one"), ("report", "one")):
            for own in ((), MODULE):
                assert run(*command, *own).code in (1, 2)
    assert not mark.exists()


def test_the_folder_of_a_run_is_not_searched(
    files: Path, here: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*adopted(files, *MODULE, "--out", "one"))
    (here / "one" / "hostile_file.py").write_text(HOSTILE.format(mark=str(here / "mark")))
    monkeypatch.chdir(here / "one")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(here), str(here / "one"))])
    ran = run("plan", ".", files / "request.json", "--module", "hostile_file:Mine")
    assert (ran.code, (here / "mark").exists()) == (2, False)
    assert "hostile_file cannot be imported" in ran.stderr


def test_a_file_here_does_not_replace_an_installed_library(files: Path, here: Path, run: Run) -> None:
    (here / "xmlrpc.py").write_text(HOSTILE.format(mark=str(here / "mark")))
    assert run(*adopted(files, "--module", "xmlrpc.client:ServerProxy")).code == 2
    assert not (here / "mark").exists()


# -- one sentence ----------------------------------------------------------------------------------------------------


def refused(run: Run, match: str, *arguments: str) -> None:
    ran = run(*arguments, "--out", "out")
    assert (ran.code, ran.stdout) == (2, ""), ran
    assert ran.stderr.startswith("graphforget: ")
    assert ran.stderr.count("\n") == 1
    assert match in ran.stderr
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (("--module", "adopted_cases"), "is not an import path, package.file:Name is needed"),
        (("--module", "adopted_cases:"), "is not an import path"),
        (("--module", "../adopted_cases:PlainGCN"), "is not an import path"),
        (("--module", "no_such_file:PlainGCN"), "no_such_file cannot be imported: ModuleNotFoundError"),
        (("--module", "adopted_cases:NoSuchClass"), "adopted_cases has no 'NoSuchClass'"),
        (("--module", "adopted_cases:RETRAIN"), "is a dict, the class of a module or a function is needed"),
        (("--module", "adopted_cases:half_loss"), "cannot be called without arguments"),
        (("--module", "adopted_cases:half_loss"), "give them by --module-option"),
        (("--module", "collections:OrderedDict"), "makes a OrderedDict, a torch.nn.Module is needed"),
        (
            ("--module", "adopted_cases:PlainGCN", "--module-option", "colour=3"),
            "with the arguments of --module-option",
        ),
        (("--module", "adopted_cases:PlainGCN", "--module-option", "hidden"), "is not of the form name=value"),
        (("--module", "adopted_cases:PlainGCN", "--module-option", "hidden=5"), "'first.bias' is (8,), (5,) is needed"),
        (("--module", "adopted_cases:Normalised"), "'norm.weight' is missing"),
        (("--module", "torch.nn:Identity"), "does not fit Identity: the module has no '"),
        ((*MODULE, "--retrain", "adopted_cases:no_such"), "adopted_cases has no 'no_such'"),
        ((*MODULE, "--retrain", "adopted_cases:RETRAIN"), "retrain is a dict, a function"),
        ((*MODULE, "--loss", "no_such_loss"), "no_such_loss"),
        ((*MODULE, "--reach", "1"), "declared reach"),
    ],
)
def test_a_name_that_does_not_fit_is_one_sentence(
    module: tuple[str, ...], match: str, files: Path, here: Path, run: Run
) -> None:
    refused(run, match, *adopted(files, *module))


class Exploit:
    def __reduce__(self) -> Any:
        return (print, ("it ran",))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("missing.pt", None, "does not exist"),
        ("missing.safetensors", None, "does not exist"),
        ("pickled.pt", None, "a pickled module is not read because it could run code: save module.state_dict()"),
        ("code.pt", pickle.dumps(Exploit()), "a pickled module is not read because it could run code"),
        ("text.pt", b"no checkpoint", "is not a state_dict"),
        ("text.safetensors", b"no checkpoint at all", "cannot be read"),
        ("graph.pt", None, "is not a state_dict"),
    ],
)
def test_a_checkpoint_that_is_none_is_one_sentence(
    name: str, content: bytes | None, match: str, files: Path, here: Path, run: Run
) -> None:
    path = files / name if content is None else here / name
    if content is not None:
        path.write_bytes(content)
    refused(run, match, "adopt", str(path), "--data", str(files / "graph.pt"), *MODULE)


def test_another_content_than_a_state_dict_is_one_sentence(files: Path, here: Path, run: Run) -> None:
    state = torch.load(files / "model.pt", weights_only=True)
    for number, content in enumerate((state["first.bias"], {"state_dict": state, "epoch": 3}, [state])):
        torch.save(content, here / f"{number}.pt")
        refused(
            run,
            "that is not a state_dict: save module.state_dict()",
            *("adopt", str(here / f"{number}.pt"), "--data", str(files / "graph.pt"), *MODULE),
        )


def test_repeated_edges_of_a_file_are_refused(files: Path, here: Path, run: Run) -> None:
    data = torch.load(files / "graph.pt", weights_only=False)
    data.edge_index = torch.cat([data.edge_index, data.edge_index[:, :2]], dim=1)
    torch.save(data, here / "repeated.pt")
    for split in ((), ("--split", "random")):
        refused(
            run,
            "the Data repeats 2 of its edges",
            *("adopt", str(files / "model.pt"), "--data", str(here / "repeated.pt"), *MODULE, *split),
        )


def test_a_module_option_needs_a_module(files: Path, here: Path, run: Run) -> None:
    run(*adopted(files, *MODULE, "--out", "one"))
    ran = run("plan", "one", files / "request.json", "--module-option", "hidden=8")
    assert (ran.code, ran.stderr) == (2, "graphforget: --module-option is given without --module\n")
