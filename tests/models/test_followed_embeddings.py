"""Embeddings that follow deletions, against those of a pass over the retained graph: bit for bit."""

from __future__ import annotations

import functools
import gc
import math
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import graphforget as gf
from cases import CLASSES, COLUMNS, chains, present, random_graph
from graphforget.graph import overlay as overlay_module
from graphforget.models import embedding_nodes, followed_embeddings, prepared
from graphforget.models.composite import made_by_seed
from graphforget.models.encoders import Encoders
from graphforget.models.gcn import GCN
from graphforget.models.inputs import model_inputs
from graphforget.models.registry import build
from graphforget.models.sage import SAGE
from graphforget.models.stacked import Stacked

NETWORKS = ("gcn", "gcn-unscaled", "sage", "sage-with-self")


def stacked(network: str) -> Stacked:
    """A stacked model of three encoders whose weights are not trained; one of them has no part."""
    name, _, form = network.partition("-")
    module = build(f"stacked-{name}", columns=COLUMNS, classes=CLASSES, parts=3)
    assert isinstance(module, Stacked)
    if form == "with-self":
        module.make = functools.partial(SAGE, COLUMNS, CLASSES, hidden=module.width, include_self=True)
    encoders = [made_by_seed(module.make, seed).double().eval() for seed in range(3)]
    for encoder in encoders:
        assert isinstance(encoder, GCN | SAGE)
        torch.nn.init.normal_(encoder.first_bias if isinstance(encoder, GCN) else present(encoder.own.bias))
        encoder.scale_rows = form != "unscaled"
    module.encoders = Encoders(tuple(encoders), (0.7, 0.0, 1.3))
    return module


def renewed(module: Stacked, place: int, seed: int) -> None:
    """Puts another encoder in the place of one, as a request does that touches its part."""
    old = present(module.encoders)
    modules, scales = list(old.modules), list(old.scales)
    modules[place], scales[place] = made_by_seed(module.make, seed).double().eval(), scales[place] or 1.0
    module.encoders = Encoders(tuple(modules), tuple(scales))


def embeddings(module: Stacked, graph: gf.Graph) -> Tensor:
    values: Tensor = model_inputs(module, graph, dtype=torch.float64)[1].embeddings
    return values


def anew(module: Stacked, graph: gf.Graph) -> Tensor:
    """By a pass over the same graph as a file would give it, which follows nothing."""
    return embeddings(module, pickle.loads(pickle.dumps(graph)))


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Zeros of either sign differ."""
    return left.numpy().tobytes() == right.numpy().tobytes()


@pytest.fixture(params=["rows", "default"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether every change is followed row by row, however much it reaches. Small graphs never become a base anew."""
    way: str = request.param
    if way == "rows":
        monkeypatch.setattr(followed_embeddings, "MOST", math.inf)
        monkeypatch.setattr(overlay_module, "MOST_CHANGED", math.inf)
    monkeypatch.setattr(embedding_nodes, "NUMBERS", 8)  # several blocks in a small graph
    prepared.clear()
    return way


@pytest.mark.parametrize("sparse", [False, True])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), network=st.sampled_from(NETWORKS))
def test_embeddings_that_follow_have_the_bits_of_a_pass_over_the_retained_graph(
    way: str, sparse: bool, data: Any, network: str
) -> None:
    module = stacked(network)
    for step, graph in enumerate(data.draw(chains(sparse=sparse))):
        if step and data.draw(st.booleans()):
            renewed(module, data.draw(st.integers(0, 2)), step)
        followed = embeddings(module, graph).clone()
        assert same_bits(followed, anew(module, graph))
        assert same_bits(followed, embeddings(module, graph))  # another graph has been prepared since


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("network", NETWORKS)
def test_they_are_the_embeddings_of_the_networks(sparse: bool, network: str) -> None:
    graph, module = random_graph(3, nodes=40, edges=60, sparse=sparse), stacked(network)
    expected = module.embedded(graph.x.to_dense().double() if sparse else graph.x.double(), graph.edge_index)
    assert torch.allclose(embeddings(module, graph), expected, rtol=0, atol=1e-14)
    assert float(expected.abs().max()) > 0.05


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("network", ["gcn", "sage"])
def test_only_what_a_deletion_reaches_is_computed_again(
    monkeypatch: pytest.MonkeyPatch, sparse: bool, network: str
) -> None:
    """On a path, an end of which is deleted."""
    nodes = 60
    x = torch.eye(nodes, COLUMNS, dtype=torch.float64) + 1
    ends = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    y = torch.arange(nodes) % CLASSES
    graph = gf.Graph.create(x=x.to_sparse_csr() if sparse else x, edges=ends, y=y, num_classes=CLASSES, sparse=sparse)
    module, computed = stacked(network), []
    kind = embedding_nodes.SparseNodes if sparse else embedding_nodes.DenseNodes
    for name in ("product", "propagated", "means"):
        original = getattr(kind, name)

        def counted(self: Any, values: Any, slots: Any = None, *, of: Any = original, **more: Any) -> np.ndarray:
            out: np.ndarray = of(self, values, slots, **more)
            computed.append(out.shape[0])
            return out

        monkeypatch.setattr(kind, name, counted)
    embeddings(module, graph)
    assert max(computed) == nodes
    computed.clear()
    embeddings(module, graph.without(gf.Request(nodes=[0])))
    assert computed
    assert max(computed) <= 5


def test_activations_that_are_too_large_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, module = random_graph(3, nodes=40, edges=60), stacked("gcn")
    held: list[bool] = []
    made = followed_embeddings.Embedded

    def noted(*given: Any) -> followed_embeddings.Embedded:
        embedded = made(*given)
        held.append(any(embedded.activations))
        return embedded

    monkeypatch.setattr(followed_embeddings, "Embedded", noted)
    embeddings(module, graph)
    assert held == [True]
    monkeypatch.setattr(followed_embeddings, "MOST_HELD", 0)
    left = graph.without(gf.Request(nodes=[5]))
    follows = embeddings(module, left).clone()
    after = left.without(gf.Request(nodes=[6]))
    assert same_bits(embeddings(module, after), anew(module, after))  # where nothing was held
    assert same_bits(follows, anew(module, left))
    assert held == [True, False, False, False, False]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", ["stacked-gcn", "stacked-sage"])
def test_a_loaded_run_goes_on_with_the_same_bits(tmp_path: Path, sparse: bool, model: str) -> None:
    graph = random_graph(3, nodes=40, edges=60, sparse=sparse)
    first = gf.unlearn(gf.train(graph, model, epochs=3), graph, gf.Request(nodes=[3]))
    gf.save_run(tmp_path / "run", first.trained, first.graph)
    trained, loaded = gf.load_run(tmp_path / "run")
    request = gf.Request(nodes=[9], attributes={5: "all"})
    here, there = gf.unlearn(first.trained, first.graph, request), gf.unlearn(trained, loaded, request)
    inputs = [embeddings(one.trained.stacked, one.graph) for one in (here, there)]  # type: ignore[arg-type]
    assert same_bits(*inputs)


@pytest.mark.parametrize("sparse", [False, True])
def test_every_request_follows_though_encoders_are_trained_meanwhile(
    monkeypatch: pytest.MonkeyPatch, sparse: bool
) -> None:
    graph = random_graph(3, nodes=40, edges=60, sparse=sparse)
    trained = gf.train(graph, "stacked-gcn", epochs=3)

    def refused(*given: Any) -> None:
        raise AssertionError("all rows are computed")

    monkeypatch.setattr(followed_embeddings, "_embedded", refused)
    for node in graph.train_rows[:3].tolist():
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[node]))
        assert outcome.trained.stacked.encoders is not trained.stacked.encoders
    assert gf.unlearn(outcome.trained, outcome.graph, gf.Request(nodes=[30])).graph.num_nodes == 38


@pytest.mark.parametrize("sparse", [False, True])
def test_embeddings_do_not_hold_a_graph_in_memory(sparse: bool) -> None:
    graph, module = random_graph(3, nodes=40, edges=60, sparse=sparse), stacked("sage")
    left = graph.without(gf.Request(nodes=[5]))
    for one in (graph, left):
        embeddings(module, one)
    held = [weakref.ref(graph), weakref.ref(left)]
    del graph, left, one
    gc.collect()
    assert [each() for each in held] == [None, None]
