"""The example in the help of each command works as it stands, in one folder, one after the other."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.datasets import KarateClub

from cases import Run
from graphforget.cli.app import COMMANDS
from graphforget.cli.serve import SUBCOMMANDS

LONG = ("compare", "audit", "reproduce", "launch")  # minutes, or several processes: run by `make test-long`
SERVERS = ("serve api", "serve worker", "serve trial")  # they run until they are stopped: tests/service starts them
EXAMPLES = {example.split(" ")[1]: example for example in COMMANDS.values()}
EXAMPLES |= {f"serve {one.__name__}": example for one, example in SUBCOMMANDS.items()}
MODULE = """import torch
from torch_geometric.nn import GCNConv


class MyGNN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(34, 5), GCNConv(5, 4)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).tanh(), edge_index)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    """What the examples take as given: a request, records, new data, a model of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("request.json").write_text('{"nodes": ["patient-0017"]}')
    write_records("records", 120)
    write_records("new-folder", 124)
    return tmp_path


def write_records(name: str, nodes: int) -> None:
    """A folder with CSV files: a ring with attributes and labels."""
    place = Path(name)
    place.mkdir()
    rows = (f"n{i},{i % 7},{i % 3},{'xy'[i % 2]},{'test' if i % 5 == 4 else 'train'}" for i in range(nodes))
    (place / "nodes.csv").write_text("id,age,stage,label,split\n" + "\n".join(rows) + "\n")
    pairs = (f"n{i},n{(i + 1) % nodes}" for i in range(nodes))
    (place / "edges.csv").write_text("source,target\n" + "\n".join(pairs) + "\n")


def write_model() -> None:
    """A checkpoint with the module and the data that it was trained on."""
    package = Path("mypackage")
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text(MODULE)
    names: dict[str, type[torch.nn.Module]] = {}
    exec(MODULE, names)
    torch.manual_seed(0)
    save_file(names["MyGNN"]().state_dict(), "model.safetensors")
    torch.save(KarateClub()[0], "graph.pt")


def test_every_command_has_one_example_and_it_is_of_this_command() -> None:
    assert len(EXAMPLES) == len(COMMANDS) + len(SUBCOMMANDS)
    named = {function.__name__.replace("_", "-") for function in COMMANDS}
    assert {name for name in EXAMPLES if not name.startswith("serve ")} == named
    for example in SUBCOMMANDS.values():
        assert example.startswith("graphforget serve ")


@pytest.mark.slow
def test_the_examples_work(run: Run) -> None:
    before: dict[str, Callable[[], object]] = {
        "adopt": write_model,
        "update": lambda: run("train", "--data", "./records", "--model", "sgc", "--out", "runs/one", "--force"),
    }
    last = ("serve init", "serve model", "serve token", "serve migrate", "update")
    first = ("keygen", "train", "plan", "unlearn", "prove-absence")
    others = [name for name in EXAMPLES if name not in (*first, *last, *LONG, *SERVERS)]
    for name in (*first, *others, *last):
        before.get(name, lambda: None)()
        ran = run(*shlex.split(EXAMPLES[name])[1:])
        assert (ran.code, ran.stderr) == (0, ""), f"{EXAMPLES[name]}: {ran.stderr}"


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_the_longer_examples_work(name: str, run: Run, raw_data: Path) -> None:
    for earlier in {"audit": ("keygen", "train", "unlearn"), "launch": ("shard",)}.get(name, ()):
        assert run(*shlex.split(EXAMPLES[earlier])[1:]).code == 0
    ran = run(*shlex.split(EXAMPLES[name])[1:])
    assert ran.code == 0, ran.stderr
