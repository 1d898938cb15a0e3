"""Features of pairs are those of their definitions, by dictionaries and sets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import random_graph
from graphforget.graph.links import edge_pairs
from graphforget.models import pair_features as module
from graphforget.models.pair_features import FLOOR, STRUCTURAL, Attributes, Messages, pair_features
from hostile import in_time


def neighbours(edges: list[tuple[int, int]], nodes: int) -> list[set[int]]:
    near: list[set[int]] = [set() for _ in range(nodes)]
    for u, v in edges:
        near[u].add(v)
        near[v].add(u)
    return near


def propagated(x: np.ndarray, near: list[set[int]], hops: int) -> np.ndarray:
    for _ in range(hops):
        scale = [1 / math.sqrt(len(others) + 1) for others in near]
        x = np.array([scale[u] * sum(scale[v] * x[v] for v in sorted({u, *near[u]})) for u in range(len(near))])
    return x


def structural(u: int, v: int, near: list[set[int]]) -> dict[str, float]:
    """The oracle: one pair by its definitions."""
    common = near[u] & near[v]
    degree = [len(others) for others in near]
    union = len(near[u] | near[v])
    paths = sum(1 / math.sqrt(degree[a] * degree[b]) for a in near[u] for b in near[v] if b in near[a])
    logs = math.log1p(degree[u]), math.log1p(degree[v])
    values = (
        math.log1p(len(common)),
        math.log1p(sum(1 / math.log(degree[w]) for w in common)),
        math.sqrt(sum(1 / degree[w] for w in common)),
        len(common) / union if union else 0.0,
        math.log1p(paths),
        math.sqrt(paths),
        logs[0] + logs[1],
        logs[0] * logs[1],
        abs(logs[0] - logs[1]),
        float((degree[u] == 0) + (degree[v] == 0)),
    )
    return dict(zip(STRUCTURAL, values, strict=True))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    edges=st.integers(0, 40),
    sparse=st.booleans(),
    scale_rows=st.booleans(),
    dense_columns=st.sampled_from([0, 512]),
    at_once=st.sampled_from([3, 1 << 14]),
)
def test_features_are_those_of_their_definitions(
    seed: int, edges: int, sparse: bool, scale_rows: bool, dense_columns: int, at_once: int
) -> None:
    graph = random_graph(seed, nodes=11, edges=edges, sparse=sparse)
    pairs = torch.combinations(torch.arange(11)).numpy()
    message_edges = edge_pairs(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW_COLUMNS", dense_columns)
        patch.setattr(module, "PAIRS_AT_ONCE", at_once)
        patch.setattr(module, "CELLS_AT_ONCE", 11 * at_once)
        attributes = Attributes(graph.x, scale_rows=scale_rows)
        found = pair_features(pairs, attributes, Messages(message_edges.numpy(), 11), powers=(0, 2))
    x = graph.x.to_dense().numpy()
    sizes = np.linalg.norm(x, axis=1, keepdims=True)
    x = x / np.where(sizes > 0, sizes, 1) if scale_rows else x
    near = neighbours([(u, v) for u, v in message_edges.tolist()], 11)
    for row, (u, v) in zip(found.values, pairs.tolist(), strict=True):
        expected = []
        for hops in (0, 2):
            z = propagated(x, near, hops)
            lengths = np.linalg.norm(z, axis=1) + FLOOR
            expected += [z[u] @ z[v], z[u] @ z[v] / (lengths[u] * lengths[v])]
        np.testing.assert_allclose(row, [*expected, *structural(u, v, near).values()], rtol=1e-11, atol=1e-13)
    assert (found.norms >= np.linalg.norm(found.values, axis=1) * (1 - 1e-12)).all()


def test_norms_show_what_cancels() -> None:
    """Two rows of attributes that cancel in a neighbour leave rounding errors of their own size, not of the sum's."""
    x = torch.tensor([[1.0, 1e-16], [0.0, 0.0], [-1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    edges = np.array([[0, 1], [1, 2], [1, 3]])
    found = pair_features(np.array([[1, 3]]), Attributes(x, scale_rows=True), Messages(edges, 4), powers=(1,))
    assert found.norms[0] > 1.5 * np.abs(found.values[0, :2]).max()


def test_pair_does_not_depend_on_other_pairs() -> None:
    graph = random_graph(8, nodes=30, edges=80)
    attributes, messages = Attributes(graph.x, scale_rows=True), Messages(edge_pairs(graph).numpy(), 30)
    pairs = torch.combinations(torch.arange(30)).numpy()
    together = pair_features(pairs, attributes, messages, powers=(0, 1)).values
    some = pairs[7::13]
    alone = pair_features(some, attributes, messages, powers=(0, 1)).values
    np.testing.assert_array_equal(together[7::13], alone)


def by_products(pairs: np.ndarray, messages: Messages) -> np.ndarray:
    """The sums over common neighbours by products of sparse rows."""
    degrees = messages.degrees
    weights = np.stack([np.ones_like(degrees), 1 / np.log(np.maximum(degrees, 2)), 1 / np.maximum(degrees, 1)], axis=1)
    shared = messages.adjacency[pairs[:, 0]].multiply(messages.adjacency[pairs[:, 1]])
    sums: np.ndarray = shared.tocsr() @ weights
    return sums


@pytest.mark.parametrize("cells", [1, 50, 1 << 20])
def test_common_neighbours_to_the_last_bit(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CELLS_AT_ONCE", cells)
    for seed in range(5):
        ends = (60 * np.random.default_rng(seed).random((300, 2)) ** 3).astype(np.int64)  # some hubs
        messages = Messages(np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0), 60)
        pairs = torch.combinations(torch.arange(60)).numpy()
        sums = by_products(pairs, messages)
        found = module.structural_features(pairs, messages)
        np.testing.assert_array_equal(found[:, 0], np.log1p(sums[:, 0]))
        np.testing.assert_array_equal(found[:, 1], np.log1p(sums[:, 1]))
        np.testing.assert_array_equal(found[:, 2], np.sqrt(sums[:, 2]))


def test_a_hub_costs_little() -> None:
    star = np.stack([np.zeros(29_999, dtype=np.int64), np.arange(1, 30_000)], axis=1)
    with in_time():
        found = module.structural_features(star, Messages(star, 30_000))
    assert not found[:, :4].any()


def test_no_pair_and_no_edge() -> None:
    attributes = Attributes(torch.eye(3, dtype=torch.float64), scale_rows=True)
    messages = Messages(np.zeros((0, 2), dtype=np.int64), 3)
    assert pair_features(np.zeros((0, 2), dtype=np.int64), attributes, messages, powers=(1,)).values.shape == (0, 12)
    row = pair_features(np.array([[0, 2]]), attributes, messages, powers=(1,)).values[0]
    assert row.tolist() == [0] * 11 + [2]
