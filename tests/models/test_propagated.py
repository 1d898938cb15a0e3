"""Propagated attributes, and how they follow deletions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import COLUMNS, chains, present, random_graph
from graphforget.graph import overlay as overlay_module
from graphforget.graph.overlay import SlotChange
from graphforget.models import followed as followed_module
from graphforget.models.followed import followed
from graphforget.models.propagated import COLUMNS as READ_AT_ONCE
from graphforget.models.propagated import Propagated, Settings, propagate, scaled_attributes

CASES = [
    Settings((2,), (1.0,), True),
    Settings((0, 1, 2, 3), (0.5, 1.0, 1.0, 1.0), True),
    Settings((1,), (1.0,), False),
    Settings((0,), (2.0,), True),
    Settings((0, 2), (1.0, 1.0), False),
]


def of_graph(graph: gf.Graph, what: Settings) -> Propagated:
    overlay = present(graph.overlay)
    return propagate(overlay, what, overlay.slots_of(graph.train_rows.numpy()))


def after(old: Propagated, graph: gf.Graph) -> Propagated:
    overlay, change = present(graph.overlay), graph.change
    assert isinstance(change, SlotChange)
    return followed(old, overlay, change, overlay.slots_of(graph.train_rows.numpy()))


@pytest.mark.parametrize("columns", [3, READ_AT_ONCE - 1, READ_AT_ONCE, READ_AT_ONCE + 1, 3 * READ_AT_ONCE + 7])
def test_the_bits_of_a_scaled_row_do_not_depend_on_the_rows_beside_it(columns: int) -> None:
    """numpy's own sum over more columns does: a row that is computed alone has other last digits."""
    rows = np.random.default_rng(0).normal(size=(12, columns))
    together = scaled_attributes(rows, scale_rows=True)
    for count in (1, 2, 5):
        for first in range(0, 12 - count, count):
            part = slice(first, first + count)
            assert scaled_attributes(rows[part], scale_rows=True).tobytes() == together[part].tobytes()
    assert np.allclose(np.square(together[:, :-1]).sum(axis=1), 1.0, rtol=0, atol=1e-13)


def exact(graph: gf.Graph, what: Settings) -> np.ndarray:
    """The features of the training nodes by their definition, in extended precision."""
    x = graph.x.numpy().astype(np.longdouble)
    if what.scale_rows:
        norms = np.sqrt((x * x).sum(axis=1))
        x = x / np.where(norms > 0, norms, 1)[:, None]
    a = np.eye(graph.num_nodes, dtype=np.longdouble)
    source, target = graph.edge_index.numpy()
    a[target, source] = 1
    root = np.sqrt(a.sum(axis=1))
    s = a / root[:, None] / root[None, :]
    parts, power = [], x
    for hop in range(what.hops + 1):
        power = s @ power if hop else power
        parts += [what.scales[what.powers.index(hop)] * power] if hop in what.powers else []
    return np.concatenate(parts, axis=1)[graph.train_rows.numpy()]


def off(features: Propagated, graph: gf.Graph) -> float:
    difference = features.training.array().astype(np.longdouble) - exact(graph, features.settings)
    return float(np.sqrt((difference**2).sum()))


def measured_defect(version: Propagated, hop: int) -> np.ndarray:
    """`H_k - S H_{k-1}` of the matrices as they are held, in extended precision."""
    adjacency, slots = version.overlay.adjacency, np.arange(version.overlay.num_slots)
    s = np.zeros((slots.size, slots.size), dtype=np.longdouble)
    for slot in slots:
        s[slot, adjacency.lists(np.array([slot]))[1]] = 1
    np.fill_diagonal(s, 1)
    root = np.sqrt(s.sum(axis=1))
    s = s / root[:, None] / root[None, :]
    before = version.power(hop - 1, slots)[:, :-1].astype(np.longdouble)
    if hop < version.settings.hops:
        return version.power(hop, slots)[:, :-1] - s @ before
    columns, scale = before.shape[1], np.longdouble(version.settings.scales[-1])
    held = version.training.array()[:, -columns:] / scale
    return held - (s @ before)[version.train_slots]


def norm(matrix: np.ndarray) -> float:
    return float(np.sqrt((matrix**2).sum()))


@pytest.fixture(params=["anew", "differences", "mixed", "filled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How rows follow: all computed anew, all by differences, or some; or whole powers, once a change fills them.

    Small graphs never become a base anew.
    """
    ways = {"anew": (2**40, 1.5), "differences": (0, 0), "mixed": (0, 2), "filled": (0, 0)}
    few, cheap = ways[request.param]
    monkeypatch.setattr(followed_module, "FEW_ENTRIES", few)
    monkeypatch.setattr(followed_module, "CHEAP", cheap)
    monkeypatch.setattr(followed_module, "MOST", 0.3 if request.param == "filled" else math.inf)
    monkeypatch.setattr(overlay_module, "MOST_CHANGED", math.inf)
    way: str = request.param
    return way


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(chain=st.data(), what=st.sampled_from(CASES))
def test_features_that_follow_are_within_the_carried_bound(way: str, chain: Any, what: Settings) -> None:
    graphs = chain.draw(chains())
    versions = [of_graph(graphs[0], what)]
    for graph in graphs[1:]:
        versions.append(after(versions[-1], graph))
    for version, graph in zip(versions, graphs, strict=True):  # the earlier versions too
        assert off(version, graph) <= version.error <= 1e-11
        norms = np.linalg.norm(version.training.array().reshape(len(version.train_slots), -1, COLUMNS), axis=2)
        scales = np.abs(what.scales)
        assert (norms <= version.bounds.array() * scales + version.error).all()
        assert np.allclose(version.single.array(), version.training.array(), rtol=1e-6, atol=1e-30)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(chain=st.data(), what=st.sampled_from(CASES))
def test_rows_that_are_computed_anew_are_those_of_a_fresh_propagation_bit_for_bit(
    way: str, chain: Any, what: Settings
) -> None:
    graphs = chain.draw(chains())
    version = of_graph(graphs[0], what)
    assert version.is_fresh
    for graph in graphs[1:]:
        version = after(version, graph)
    fresh = of_graph(graphs[-1], what)
    if way == "anew" or version.is_fresh:
        assert version.is_fresh
        assert np.array_equal(version.training.array(), fresh.training.array())
        assert np.array_equal(version.bounds.array(), fresh.bounds.array())
    assert fresh.error <= version.error


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(chain=st.data(), what=st.sampled_from(CASES))
def test_logits_and_features_of_any_rows_are_those_of_the_definition(way: str, chain: Any, what: Settings) -> None:
    graphs = chain.draw(chains())
    version = of_graph(graphs[0], what)
    for graph in graphs[1:]:
        version = after(version, graph)
    graph, rows = graphs[-1], np.arange(graphs[-1].num_nodes)
    everywhere = gf.Graph.create(x=graph.x, edges=graph.edge_index, y=rows_as_labels(graph))
    dense = exact(everywhere, what).astype(np.float64)
    weight = np.random.default_rng(0).standard_normal((len(what.powers), COLUMNS, 3))
    np.testing.assert_allclose(version.logits(weight, rows), dense @ weight.reshape(-1, 3), atol=1e-10)
    np.testing.assert_allclose(version.logits(weight, rows[:1]), dense[:1] @ weight.reshape(-1, 3), atol=1e-10)
    np.testing.assert_allclose(version.features(present(version.overlay).slots_of(rows)), dense, atol=1e-10)


def rows_as_labels(graph: gf.Graph) -> Any:
    return graph.numbers % 2


def test_a_change_that_reaches_most_entries_is_followed_by_propagating_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(1, nodes=20, edges=60, sparse=False)
    monkeypatch.setattr(followed_module, "FEW_ENTRIES", 0)
    monkeypatch.setattr(followed_module, "CHEAP", 0)
    monkeypatch.setattr(followed_module, "MOST", 0.0)
    monkeypatch.setattr(overlay_module, "MOST_CHANGED", math.inf)
    left = graph.without(gf.Request(nodes=[3]))
    version = after(of_graph(graph, CASES[1]), left)
    assert version.is_fresh
    assert np.array_equal(version.training.array(), of_graph(left, CASES[1]).training.array())


def test_a_large_change_costs_the_rows_that_it_reaches() -> None:
    """One edge of a long path: three hops on each side are computed, and nothing else is read."""
    n = 3000
    x = np.random.default_rng(0).standard_normal((n, 2))
    path = gf.Graph.create(
        x=torch.from_numpy(x),
        edges=torch.stack([torch.arange(n - 1), torch.arange(1, n)]),
        y=torch.arange(n) % 2,
    )
    old = of_graph(path, CASES[0])
    left = path.without(gf.Request(edges=[(1000, 1001)]))
    new = after(old, left)
    held = old.training.array().copy()
    differs = np.flatnonzero((new.training.array() != held).any(axis=1))
    assert differs.tolist() == list(range(998, 1004))


@pytest.mark.parametrize("what", [Settings((2,), (1.0,), False), Settings((0, 1, 2), (1.0, 1.0, 1.0), False)])
def test_a_large_value_that_goes_leaves_its_rounding_behind_and_the_bound_counts_it(
    monkeypatch: pytest.MonkeyPatch, what: Settings
) -> None:
    """Beside it the bound of a fresh propagation is nothing: what differences round has to be counted by itself."""
    monkeypatch.setattr(followed_module, "FEW_ENTRIES", 0)
    monkeypatch.setattr(followed_module, "CHEAP", 0)
    monkeypatch.setattr(followed_module, "MOST", math.inf)
    monkeypatch.setattr(overlay_module, "MOST_CHANGED", math.inf)
    graph = random_graph(4, nodes=30, edges=60, sparse=False)
    x = graph.x.clone()
    x[7] *= 1e13
    graph = gf.Graph.create(x=x, edges=graph.edge_index, y=graph.y, train_mask=graph.train_mask)
    left = graph.without(gf.Request(attributes={7: "all"}))
    old = of_graph(graph, what)
    fresh, version = of_graph(left, what), after(old, left)
    assert not version.is_fresh
    assert off(fresh, left) <= fresh.error <= 1e-11
    assert 1e-5 < off(version, left) <= version.error
    for hop in range(1, what.hops + 1):  # all rows moved by differences: what these add to the defect is counted
        added = norm(measured_defect(version, hop) - measured_defect(old, hop))
        assert 1e-6 < added <= version.defects[hop] - old.defects[hop]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(chain=st.data())
def test_the_defect_of_each_power_is_within_its_own_bound(way: str, chain: Any) -> None:
    graphs, what = chain.draw(chains()), CASES[1]
    version = of_graph(graphs[0], what)
    for graph in graphs[1:]:
        version = after(version, graph)
    for hop in (1, 2):
        assert norm(measured_defect(version, hop)) <= version.defects[hop]


def test_attributes_whose_squares_underflow_have_unit_rows_too() -> None:
    x = torch.tensor([[3e-300, 4e-300], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    graph = gf.Graph.create(x=x, edges=torch.zeros(2, 0, dtype=torch.int64), y=torch.tensor([0, 1, 0]))
    rows = of_graph(graph, Settings((0,), (1.0,), True)).training.array()
    np.testing.assert_allclose(rows, [[0.6, 0.8], [1.0, 0.0], [0.0, 0.0]], rtol=1e-15)
