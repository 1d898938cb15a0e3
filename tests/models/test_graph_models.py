"""Graphs as items: which there are, which of them a request touches, and what a model says of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import graphforget as gf
from collection_cases import CLASSES, COLUMNS, random_collection, random_request
from graphforget.models.graph_items import GraphView
from graphforget.models.inputs import model_inputs
from graphforget.models.items import item_footprint, items_of
from graphforget.models.registry import build, is_affine

MODELS: dict[str, dict[str, Any]] = {"graph-wl": {"rounds": 2, "buckets": 256}, "graph-sign": {"hops": 2}}


def rows(model: str, graph: gf.Graph) -> Tensor:
    module = build(model, columns=COLUMNS, classes=CLASSES, **MODELS[model])
    features = model_inputs(module, graph, dtype=torch.float64)[0]
    return features.csr.to_dense() if hasattr(features, "csr") else features.values


def test_items_are_the_graphs_with_the_labels_of_their_nodes() -> None:
    graph = random_collection(4, mixed=True)
    items = items_of(build("graph-wl", columns=COLUMNS, classes=CLASSES), graph)
    assert graph.graph_numbers is not None
    assert items.word == "graph"
    assert items.keys.tolist() == sorted(set(graph.graph_numbers.tolist()))
    for row, number in enumerate(items.keys.tolist()):
        node = graph.nodes_of(number)[-1]
        assert isinstance(node, int)
        for name in ("y", "train_mask", "val_mask", "test_mask"):
            assert getattr(items, name)[row] == getattr(graph, name)[node]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(25))
def test_features_change_inside_the_footprint_alone(model: str, seed: int) -> None:
    """The oracle compares the features of all graphs before and after a request."""
    graph = random_collection(
        seed, sparse=seed % 2 == 0, directed=seed % 3 == 0, ids=seed % 4 == 0, mixed=seed % 5 == 0
    )
    request = random_request(graph, seed)
    retained = graph.without(request)
    module: Any = build(model, columns=COLUMNS, classes=CLASSES, **MODELS[model])
    touched = item_footprint(module, graph, retained, request, module.reach)
    before, after = items_of(module, graph), items_of(module, retained)
    there = {int(key): row for row, key in enumerate(after.keys)}
    gone = [row for row, key in enumerate(before.keys.tolist()) if key not in there]
    train = before.train_mask.tolist()
    assert touched.removed.tolist() == [row for row in gone if train[row]]
    assert touched.added.numel() == 0
    first, second = rows(model, graph), rows(model, retained)
    changed = [
        row
        for row, key in enumerate(before.keys.tolist())
        if key in there and not torch.equal(first[row], second[there[key]])
    ]
    assert set(changed) <= set(touched.reached.tolist())
    assert touched.affected.tolist() == [row for row in touched.reached.tolist() if train[row]]


@pytest.mark.parametrize("model", MODELS)
def test_the_footprint_is_not_needlessly_large(model: str) -> None:
    """Of graphs that lose a node, an edge or a value nearly all change; a value that is 0 already touches none."""
    touched, changed = 0, 0
    for seed in range(40):
        graph = random_collection(seed)
        request = random_request(graph, seed)
        retained = graph.without(request)
        module: Any = build(model, columns=COLUMNS, classes=CLASSES, **MODELS[model])
        reached = item_footprint(module, graph, retained, request, module.reach).reached
        there = items_of(module, retained).rows_of(items_of(module, graph).keys[reached])
        touched += reached.numel()
        changed += int((rows(model, graph)[reached] != rows(model, retained)[there]).any(dim=1).sum())
    assert touched > 40
    assert changed > 0.9 * touched
    graph = random_collection(1)
    node, column = (graph.x == 0).nonzero()[0].tolist()
    module = build(model, columns=COLUMNS, classes=CLASSES, **MODELS[model])
    request = gf.Request(attributes={node: [column]})
    assert item_footprint(module, graph, graph.without(request), request, module.reach).empty


@pytest.mark.parametrize("model", MODELS)
def test_training_reads_training_graphs_alone(model: str) -> None:
    graph = random_collection(6, graphs=30)
    module: Any = build(model, columns=COLUMNS, classes=CLASSES, **MODELS[model])
    part = GraphView().training_graph(graph)
    here, there = items_of(module, graph), items_of(module, part)
    assert torch.equal(there.keys, here.keys[here.train_mask])
    assert torch.equal(rows(model, part), rows(model, graph)[here.train_mask])
    assert is_affine(module)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_nodes_are_pooled_by_graph(pooling: Any) -> None:
    graph = random_collection(6, mixed=True)
    view = GraphView(pooling)
    values = torch.randn(graph.num_nodes, 4, dtype=torch.float64, requires_grad=True)
    pooled = view.combined(values, view.places(graph, dtype=torch.float64))
    for row, number in enumerate(graph.numbers_of_graphs.tolist()):
        own = values[torch.as_tensor(graph.graph_numbers == number)]
        torch.testing.assert_close(pooled[row], own.sum(dim=0) if pooling == "sum" else own.mean(dim=0))
    pooled.sum().backward()
    assert values.grad is not None
    with pytest.raises(gf.InputError, match="the pooling is 'max'"):
        GraphView("max")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{"rounds": -1}, {"rounds": 1000}, {"buckets": 0}, {"buckets": 2**30}, {"degrees": 1}, {"hops": 2}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError):
        gf.train(random_collection(4), "wl", **options)


def test_a_collection_needs_a_model_for_graphs() -> None:
    with pytest.raises(gf.InputError, match="collection of graphs"):
        gf.train(random_collection(4), "sgc", task="node")
    with pytest.raises(gf.InputError, match="one graph"):
        gf.train(gf.load("patients"), "graph-wl")
