"""Exported modules need torch alone, and their predictions are ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from cases import OwnGCN, random_graph
from graphforget.models import plain
from graphforget.models.plain_copies import plain_copy

NODE_MODELS = [name for name in gf.MODELS if not name.startswith(("link-", "graph-")) and name != "sharded-released"]
OPTIONS: dict[str, dict[str, Any]] = {
    "stacked": {"epochs": 3, "parts": 3},
    "boosted": {"epochs": 3},
    "sharded": {"shards": 2},
    "cgu": {},
}


def released(model: str, *, directed: bool = False, sparse: bool = True) -> tuple[gf.Outcome, gf.Graph]:
    graph = random_graph(4, nodes=40, edges=60, directed=directed, sparse=sparse)
    options = OPTIONS.get(model.partition("-")[0], {})
    trained = gf.train(graph, model, **options)
    return gf.unlearn(trained, graph, gf.Request(nodes=[7])), graph


@pytest.mark.slow
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("model", NODE_MODELS)
def test_an_exported_module_predicts_as_ours_does(model: str, directed: bool) -> None:
    outcome, _ = released(model, directed=directed)
    copied, graph = plain_copy(outcome.released.module), outcome.graph
    with torch.no_grad():
        logits = copied(graph.x.to_dense().double(), graph.edge_index)
    torch.testing.assert_close(logits, outcome.released.logits(graph), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", ["sgc", "sign", "gcn", "gin", "sage"])
def test_torch_can_export_it_as_a_program(model: str) -> None:
    outcome, _ = released(model)
    copied, graph = plain_copy(outcome.released.module), outcome.graph
    inputs = graph.x.to_dense().double(), graph.edge_index
    traced = torch.jit.trace(copied, inputs)
    other = random_graph(5, nodes=57, edges=90)
    for x, edge_index in (inputs, (other.x.to_dense().double(), other.edge_index)):
        with torch.no_grad():
            torch.testing.assert_close(traced(x, edge_index), copied(x, edge_index))


def test_what_cannot_be_exported_is_told_in_one_sentence() -> None:
    graph = random_graph(4, nodes=40, edges=60)
    links = gf.train(graph, "link-sign", test=0.3, messages=0.5, negatives=4)
    with pytest.raises(gf.InputError, match=r"^a model for links cannot be exported, only one for nodes$"):
        plain_copy(links.module)
    with pytest.raises(gf.InputError, match="is a module of your own, which is plain already"):
        plain_copy(OwnGCN())
    votes = gf.train(graph, "sharded-gcn", shards=2, epochs=2, aggregation="majority")
    with pytest.raises(gf.InputError, match="votes by majority"):
        plain_copy(votes.module)


def test_the_exported_file_runs_where_this_package_is_not(tmp_path: Path) -> None:
    outcome, _ = released("sgc")
    graph = outcome.graph
    run = gf.save_outcome(tmp_path / "run", outcome)
    folder = gf.export_released(run, tmp_path / "served")
    assert {path.name for path in folder.iterdir()} == {"model.pt", "released_model.py"}
    torch.save((graph.x.to_dense().double(), graph.edge_index, outcome.released.logits(graph)), tmp_path / "case.pt")
    code = (
        "import sys, torch, released_model\n"
        "x, edges, expected = torch.load(sys.argv[1])\n"
        "module = released_model.load('model.pt')\n"
        "assert torch.allclose(module(x, edges), expected, rtol=1e-9, atol=1e-9)\n"
        "assert not any(name.startswith('graphforget') for name in sys.modules)\n"
        "print(module.certificate)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "case.pt")]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == outcome.certificate.id
    assert (folder / "released_model.py").read_bytes() == Path(plain.__file__).read_bytes()
    with pytest.raises(gf.InputError, match="exists already"):
        gf.export_released(run, folder)
