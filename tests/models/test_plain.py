"""Exported modules need torch alone, and their predictions are ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from cases import OwnGCN, present, random_graph, weighted, with_targets
from collection_cases import random_collection
from graphforget.models import plain
from graphforget.models.plain_copies import plain_copy
from hetero_cases import random_hetero

PUBLISHED = "sharded-released"  # for one table of the paper, and not for use
LINK_MODELS = [name for name in gf.MODELS if name.startswith("link-")]
GRAPH_MODELS = [name for name in gf.MODELS if name.startswith("graph-")]
NODE_MODELS = [name for name in gf.MODELS if name not in (*LINK_MODELS, *GRAPH_MODELS, PUBLISHED)]
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


@pytest.mark.parametrize("kind", ["labels", "values"])
@pytest.mark.parametrize("model", ["sgc", "relational-sign", "linearised-sage", "stacked-gcn", "boosted-gin"])
def test_an_exported_module_predicts_other_targets_too(model: str, kind: str) -> None:
    graph = with_targets(random_graph(4, nodes=40, edges=60), kind)
    trained = gf.train(graph, model, **OPTIONS.get(model.partition("-")[0], {}))
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[7]))
    copied, after = plain_copy(outcome.released.module), outcome.graph
    with torch.no_grad():
        logits = copied(after.x.to_dense().double(), after.edge_index)
    torch.testing.assert_close(logits, outcome.released.logits(after), rtol=1e-9, atol=1e-9)


LINEARISED = [name for name in NODE_MODELS if name.startswith("linearised-")]
PROGRAMS = [name for name in NODE_MODELS if name not in LINEARISED]
QUICK = ("sgc", "sign", "relational-sign", "gcn", "gat", "gin", "sage", "stacked-gat", "boosted-gin", "sharded-sage")
NODES, EDGES = {0: torch.export.Dim.DYNAMIC}, {1: torch.export.Dim.DYNAMIC}


def inputs_of(graph: gf.Graph) -> tuple[torch.Tensor, torch.Tensor]:
    return graph.x.to_dense().double(), graph.edge_index


@pytest.mark.parametrize(
    "model",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in PROGRAMS],
)
def test_torch_traces_and_exports_it_for_graphs_of_any_size(model: str, tmp_path: Path) -> None:
    """A program that was made with one graph, and read back from a file, predicts on another one."""
    outcome, _ = released(model)
    copied, inputs = plain_copy(outcome.released.module), inputs_of(outcome.graph)
    torch.export.save(torch.export.export(copied, inputs, dynamic_shapes=(NODES, EDGES)), tmp_path / "model.pt2")
    programs = [torch.export.load(tmp_path / "model.pt2").module(), torch.jit.trace(copied, inputs)]
    for x, edge_index in (inputs, inputs_of(random_graph(5, nodes=57, edges=90, directed=True))):
        with torch.no_grad():
            expected = copied(x, edge_index)
            for program in programs:
                torch.testing.assert_close(program(x, edge_index), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("model", ["sgc", "relational-sign", "gat", "stacked-gcn"])
def test_programs_take_edge_weights(model: str) -> None:
    graph, other = (weighted(random_graph(seed, nodes=n, edges=60), seed) for seed, n in ((4, 40), (5, 57)))
    trained = gf.train(graph, model, **OPTIONS.get(model.partition("-")[0], {}))
    copied = plain_copy(trained.module)
    first, second = ((*inputs_of(one), present(one.edge_weight).double()) for one in (graph, other))
    program = torch.export.export(copied, first, dynamic_shapes=(NODES, EDGES, NODES)).module()
    with torch.no_grad():
        torch.testing.assert_close(program(*second), copied(*second), rtol=1e-12, atol=1e-12)
        assert not torch.allclose(program(*second), copied(*second[:2]))


def test_a_program_takes_relations() -> None:
    graph, other = random_hetero(1, papers=20), random_hetero(2, papers=26)
    copied = plain_copy(gf.train(graph, "relational-sign").module)
    first, second = ({"x": x, "edge_index": e} for x, e in map(inputs_of, (graph, other)))
    for given, one in ((first, graph), (second, other)):
        given["edge_relations"] = present(one.edge_relations)
    shapes = {"x": NODES, "edge_index": EDGES, "edge_relations": NODES}
    program = torch.export.export(copied, (), first, dynamic_shapes=shapes).module()
    with torch.no_grad():
        torch.testing.assert_close(program(**second), copied(**second), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "model", ["linearised-gcn", *(pytest.param(n, marks=pytest.mark.long) for n in LINEARISED[1:])]
)
def test_a_linearised_network_is_no_program(model: str) -> None:
    """Its forward pass differentiates: torch traces no such call, and fixes the sizes of its example in an export."""
    outcome, _ = released(model)
    copied, inputs = plain_copy(outcome.released.module), inputs_of(outcome.graph)
    with pytest.raises(RuntimeError):
        torch.jit.trace(copied, inputs)
    with pytest.raises(Exception, match="specialize"):
        torch.export.export(copied, inputs, dynamic_shapes=(NODES, EDGES))


LINKS: dict[str, Any] = {"test": 0.3, "messages": 0.5, "negatives": 4}


@pytest.mark.parametrize("model", LINK_MODELS)
def test_an_exported_module_predicts_links_as_ours_does(model: str) -> None:
    graph = random_graph(5, nodes=60, edges=200).without(gf.Request(nodes=[3]))
    split = {"test": 0.3} if model == "link-gcn" else LINKS
    more: dict[str, Any] = {"stacked": {"epochs": 3, "parts": 3}, "gcn": {"epochs": 3}}.get(model.split("-")[1], {})
    outcome = gf.unlearn(gf.train(graph, model, **split, **more), graph, gf.Request(nodes=[7]))
    released, graph = outcome.released, outcome.graph
    copied, x = plain_copy(released.module), graph.x.to_dense().double()
    items = released.items(graph)
    held_out = ~items.train_mask
    assert held_out.sum() > 20
    rows = torch.searchsorted(graph.numbers, items.keys[held_out])
    with torch.no_grad():
        logits = copied(x, graph.edge_index, rows, graph.numbers)
    torch.testing.assert_close(logits, released.logits(graph)[held_out], rtol=1e-9, atol=1e-9)
    pairs = [(int(u), int(v)) for u, v in graph.numbers[torch.randperm(graph.num_nodes)[:58].reshape(-1, 2)]]
    with torch.no_grad():
        logits = copied(x, graph.edge_index, torch.searchsorted(graph.numbers, torch.tensor(pairs)), graph.numbers)
    torch.testing.assert_close(logits[:, 0], released.link_logits(graph, pairs), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", GRAPH_MODELS)
def test_an_exported_module_predicts_graphs_as_ours_does(model: str) -> None:
    graph = random_collection(0)
    more: dict[str, Any] = {"stacked": {"epochs": 3, "parts": 3}, "gin": {"epochs": 3}, "gcn": {"epochs": 3}}
    trained = gf.train(graph, model, **more.get(model.split("-")[1], {}))
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[int(graph.numbers[7])]))
    released, graph = outcome.released, outcome.graph
    copied = plain_copy(released.module)
    batch = torch.searchsorted(graph.numbers_of_graphs, present(graph.graph_numbers))
    with torch.no_grad():
        logits = copied(graph.x.to_dense().double(), graph.edge_index, batch)
    torch.testing.assert_close(logits, released.logits(graph), rtol=1e-9, atol=1e-9)


def test_what_cannot_be_exported_is_told_in_one_sentence() -> None:
    graph = random_graph(4, nodes=40, edges=60)
    with pytest.raises(gf.InputError, match="is a module of your own, which is plain already"):
        plain_copy(OwnGCN())
    votes = gf.train(graph, "sharded-gcn", shards=2, epochs=2, aggregation="majority")
    with pytest.raises(gf.InputError, match="votes by majority"):
        plain_copy(votes.module)
    eraser = gf.train(graph, PUBLISHED, shards=2, epochs=2)
    with pytest.raises(gf.InputError, match="a PublishedEraser repeats a table of the paper and cannot be exported"):
        plain_copy(eraser.module)


def test_the_exported_file_runs_where_this_package_is_not(tmp_path: Path) -> None:
    outcome, _ = released("sgc")
    graph = outcome.graph
    run = gf.save_outcome(tmp_path / "run", outcome)
    folder = gf.export_released(run, tmp_path / "served")
    assert {path.name for path in folder.iterdir()} == {"model.pt", "released_model"}
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
    for source in Path(plain.__file__).parent.glob("*.py"):
        assert (folder / "released_model" / source.name).read_bytes() == source.read_bytes()
    with pytest.raises(gf.InputError, match="exists already"):
        gf.export_released(run, folder)
