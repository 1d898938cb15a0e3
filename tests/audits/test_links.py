"""The link attack, and the pairs that it is measured on."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter

import numpy as np
import pytest
import scipy.spatial.distance as reference
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch import Tensor

import graphforget as gf
from cases import graphs, random_graph
from graphforget.audits.links import known_half, link_attacker, matched_non_edges, pair_features, uniform_non_edges

C = 5
DISTANCES = (
    *("cosine", "euclidean", "correlation", "chebyshev"),
    *("braycurtis", "canberra", "cityblock", "sqeuclidean"),
)
Pairs = set[tuple[int, int]]


def posteriors(nodes: int = 40, *, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(C, 0.5), size=nodes))


def some_pairs(nodes: int = 40, count: int = 60, *, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, nodes, size=(2, count)))


def as_set(pairs: Tensor) -> Pairs:
    return {(u, v) for u, v in pairs.T.tolist()}


def linked(graph: gf.Graph) -> Pairs:
    """Pairs u < v with an edge in either direction."""
    return {(min(u, v), max(u, v)) for u, v in graph.edge_index.T.tolist() if u != v}


def every_pair(graph: gf.Graph) -> Pairs:
    return set(itertools.combinations(range(graph.num_nodes), 2))


def degrees(graph: gf.Graph) -> np.ndarray:
    counts = Counter(node for pair in linked(graph) for node in pair)
    return np.array([counts[node] for node in range(graph.num_nodes)])


def kind(graph: gf.Graph, pair: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Class and power of two of the degree of both nodes, whichever comes first."""
    degree = degrees(graph)
    return tuple(sorted((int(graph.y[node]), int(degree[node]).bit_length()) for node in pair))


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    kinds = np.repeat([1, 0], [len(positive), len(negative)])
    return float(roc_auc_score(kinds, np.concatenate([positive, negative])))


@functools.cache
def homophilous() -> gf.Graph:
    """Edges lie within classes, and a few nodes have most of them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    weights = rng.pareto(1.5, 300) + 0.1
    u, v = (rng.choice(300, size=3000, p=weights / weights.sum()) for _ in range(2))
    keep = (y[u] == y[v]) & (u != v)
    return gf.Graph.create(
        x=torch.from_numpy(rng.normal(size=(300, 4))),
        edges=torch.from_numpy(np.stack([u, v])[:, keep]),
        y=torch.from_numpy(y),
    )


# -- features ----------------------------------------------------------------------------------------------------


def test_every_number_is_the_one_it_is_named_after() -> None:
    p, pairs = posteriors(), some_pairs()
    result = pair_features(p, pairs)
    assert result.shape == (60, 4 * C + 12)
    for row, (a, b) in zip(result, p.numpy()[pairs.numpy()].transpose(1, 0, 2), strict=True):
        np.testing.assert_allclose(row[: 4 * C], np.concatenate([(a + b) / 2, a * b, abs(a - b), (a - b) ** 2]))
        for value, name in zip(row[4 * C :], DISTANCES, strict=False):
            assert value == pytest.approx(getattr(reference, name)(a, b), abs=1e-9), name
        one, other = scipy.stats.entropy(a + 1e-5, b + 1e-5), scipy.stats.entropy(b + 1e-5, a + 1e-5)
        expected = [(one + other) / 2, one * other, abs(one - other), (one - other) ** 2]
        np.testing.assert_allclose(row[-4:], expected, rtol=1e-7, atol=1e-12)


def test_a_pair_has_no_direction() -> None:
    p, pairs = posteriors(), some_pairs()
    np.testing.assert_allclose(pair_features(p, pairs), pair_features(p, pairs.flip(0)), rtol=1e-12, atol=1e-15)


def test_what_is_not_defined_counts_as_nothing() -> None:
    flat = torch.full((3, 7), 1 / 7, dtype=torch.float64)
    certain = torch.eye(7, dtype=torch.float64)
    result = pair_features(torch.cat([flat, certain]), torch.tensor([[0, 0, 3], [1, 4, 4]]))
    assert np.isfinite(result).all()
    correlation, canberra = result[:, 28 + 2], result[:, 28 + 5]
    assert correlation[:2].tolist() == [0.0, 0.0]
    assert correlation[2] > 1
    assert canberra[2] == 2
    assert pair_features(flat, torch.zeros(2, 0, dtype=torch.int64)).shape == (0, 40)


@pytest.mark.parametrize(
    "bad",
    [torch.randn(9, 3, generator=torch.Generator().manual_seed(0)), torch.ones(9, 3), torch.full((9, 2), torch.nan)],
)
def test_only_probabilities_are_taken(bad: Tensor) -> None:
    with pytest.raises(gf.InputError, match="not probabilities"):
        pair_features(bad, some_pairs(9, 3))


def test_pairs_must_be_of_the_models_nodes() -> None:
    with pytest.raises(gf.InputError, match="node 40"):
        pair_features(posteriors(), torch.tensor([[0], [40]]))
    with pytest.raises(gf.InputError, match="2 x E"):
        pair_features(posteriors(), torch.tensor([0, 1]))


# -- the attack --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_linked_nodes_that_answer_alike_are_found_and_others_are_not() -> None:
    paired = posteriors(300).repeat_interleave(2, dim=0)  # nodes 2 i and 2 i + 1 answer the same
    linked_pairs = torch.arange(600).view(-1, 2).T
    others = torch.stack([linked_pairs[0], linked_pairs[1].roll(1)])
    before = torch.random.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"], random.getstate()  # noqa: NPY002
    attack = link_attacker(paired, linked_pairs[:, :150], others[:, 1:150], seed=0)
    again = link_attacker(paired, linked_pairs[:, :150], others[:, 1:150], seed=0)
    different = link_attacker(paired, linked_pairs[:, :150], others[:, 1:150], seed=1)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert (before[1] == np.random.get_state(legacy=False)["state"]["key"]).all()  # noqa: NPY002
    assert before[2] == random.getstate()
    positive, negative = attack.scores(paired, linked_pairs[:, 150:]), attack.scores(paired, others[:, 151:])
    assert auc(positive, negative) > 0.99
    nodes = posteriors(2000, seed=1)
    apart = attack.scores(nodes, torch.arange(2000).view(2, -1))
    assert 0.4 < auc(apart[:500], apart[500:]) < 0.6
    np.testing.assert_array_equal(positive, again.scores(paired, linked_pairs[:, 150:]))
    assert np.abs(positive - different.scores(paired, linked_pairs[:, 150:])).max() > 1e-3


def test_a_pair_scores_the_same_in_any_company_and_either_way_round() -> None:
    p, pairs = posteriors(), some_pairs()
    attack = link_attacker(p, pairs[:, :30], pairs[:, 30:], seed=0)
    together = attack.scores(p, pairs)
    np.testing.assert_array_equal(together, [attack.scores(p, pairs[:, i : i + 1])[0] for i in range(60)])
    np.testing.assert_allclose(together, attack.scores(p, pairs.flip(0)), atol=1e-8)
    assert np.unique(together).size > 50


def test_an_attacker_who_knows_no_edge_or_no_other_pair_is_refused() -> None:
    p, none = posteriors(), torch.zeros(2, 0, dtype=torch.int64)
    with pytest.raises(gf.InputError, match="only one kind"):
        link_attacker(p, some_pairs(), none, seed=0)
    with pytest.raises(gf.InputError, match="only one kind"):
        link_attacker(p, none, some_pairs(), seed=0)


# -- pairs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [True, False])
def test_the_attacker_knows_half_of_the_edges_each_once(directed: bool) -> None:
    graph = random_graph(7, nodes=30, edges=80, directed=directed)
    known = known_half(graph, seed=0)
    assert as_set(known) < linked(graph)
    assert len(as_set(known)) == known.shape[1] == len(linked(graph)) // 2
    assert torch.equal(known, known_half(graph, seed=0))
    assert as_set(known) != as_set(known_half(graph, seed=1))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 99), st.data())
def test_all_the_pairs_that_are_no_edges_can_be_drawn_and_no_other(
    graph: gf.Graph, seed: int, data: st.DataObject
) -> None:
    n = graph.num_nodes
    avoid = torch.tensor(data.draw(st.lists(st.tuples(*2 * [st.integers(0, n - 1)]), max_size=9))).reshape(-1, 2).T
    free = every_pair(graph) - linked(graph) - {(min(u, v), max(u, v)) for u, v in avoid.T.tolist()}
    result = uniform_non_edges(graph, len(free), seed=seed, avoid=avoid.long())
    assert as_set(result) == free
    assert result.shape == (2, len(free))
    with pytest.raises(gf.InputError, match=f"there are only {len(free)}"):
        uniform_non_edges(graph, len(free) + 1, seed=seed, avoid=avoid.long())


def test_every_pair_is_as_likely_as_another() -> None:
    graph = random_graph(1, nodes=7, edges=6)
    free = every_pair(graph) - linked(graph)
    counts = Counter(pair for seed in range(600) for pair in as_set(uniform_non_edges(graph, 5, seed=seed)))
    assert set(counts) == free
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.001
    assert torch.equal(uniform_non_edges(graph, 5, seed=3), uniform_non_edges(graph, 5, seed=3))


def test_pairs_of_a_graph_too_large_to_list_them_are_distinct_and_in_order() -> None:
    n = 200_000  # 2 x 10^10 pairs
    graph = gf.Graph.create(x=torch.ones(n, 1), edges=torch.tensor([[0], [1]]), y=torch.arange(n) % 2)
    result = uniform_non_edges(graph, 20_000, seed=0)
    assert (result[0] < result[1]).all()
    assert int(result.min()) >= 0
    assert n - 100 < int(result.max()) < n
    assert len(as_set(result)) == 20_000
    assert float(result[0].double().mean()) == pytest.approx(n / 3, rel=0.02)


def test_matched_pairs_have_the_same_classes_and_are_nearer_in_degree() -> None:
    graph = homophilous()
    chosen = known_half(graph, seed=0)[:, ::3]
    avoid = uniform_non_edges(graph, 500, seed=1)
    result = matched_non_edges(graph, chosen, seed=0, avoid=avoid)
    assert result.shape == chosen.shape
    assert not as_set(result) & (linked(graph) | as_set(avoid))
    assert len(as_set(result)) == result.shape[1] > 50
    assert (result[0] < result[1]).all()
    assert torch.equal(graph.y[result].sort(dim=0).values, graph.y[chosen].sort(dim=0).values)
    degree = degrees(graph)
    uniform = uniform_non_edges(graph, result.shape[1], seed=0)
    gaps = [np.abs(np.sort(degree[p], axis=0) - np.sort(degree[chosen], axis=0)).mean() for p in (result, uniform)]
    assert gaps[0] < 0.5 * gaps[1]
    assert torch.equal(result, matched_non_edges(graph, chosen, seed=0, avoid=avoid))
    assert as_set(result) != as_set(matched_non_edges(graph, chosen, seed=1, avoid=avoid))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 99))
def test_degrees_fall_under_the_same_power_of_two_as_long_as_there_are_such_pairs(graph: gf.Graph, seed: int) -> None:
    chosen = torch.tensor(sorted(linked(graph))[:4], dtype=torch.int64).reshape(-1, 2).T
    try:
        result = matched_non_edges(graph, chosen, seed=seed)
    except gf.InputError:
        classes = Counter(tuple(sorted(graph.y[list(pair)].tolist())) for pair in as_set(chosen))
        free = every_pair(graph) - linked(graph)
        left = Counter(tuple(sorted(graph.y[list(pair)].tolist())) for pair in free)
        assert any(left[pair] < count for pair, count in classes.items())
        return
    free_kinds = Counter(kind(graph, pair) for pair in every_pair(graph) - linked(graph))
    expected = Counter(kind(graph, (u, v)) for u, v in chosen.T.tolist())
    same = Counter(
        kind(graph, (u, v))
        for (u, v), (a, b) in zip(chosen.T.tolist(), result.T.tolist(), strict=True)
        if kind(graph, (u, v)) == kind(graph, (a, b))
    )
    for each, count in expected.items():
        assert same[each] == min(count, free_kinds[each])


def test_where_no_pair_fits_the_nearest_degrees_are_taken() -> None:
    # Node 0 (degree 8) and node 1 (degree 1) are linked; of the other pairs of their classes, 0 has none left, and
    # node 9 (degree 4) is nearer to it than node 10 (degree 0).
    edges = torch.tensor([[0] * 8 + [9] * 4, [*range(1, 9), 11, 12, 13, 14]])
    y = torch.tensor([0, 1, *[2] * 7, 0, 0, *[2] * 4])
    graph = gf.Graph.create(x=torch.ones(15, 1), edges=edges, y=y)
    assert matched_non_edges(graph, torch.tensor([[1], [0]]), seed=0).T.tolist() == [[1, 9]]
    avoid = torch.tensor([[9], [1]])
    assert matched_non_edges(graph, torch.tensor([[0], [1]]), seed=0, avoid=avoid).T.tolist() == [[1, 10]]


def test_a_removed_edge_is_never_its_own_match() -> None:
    graph = homophilous()
    removed = known_half(graph, seed=0)[:, :200]
    retained = graph.without(gf.Request(edges=[(u, v) for u, v in removed.T.tolist()]))
    result = matched_non_edges(retained, removed, seed=0)
    assert not as_set(result) & as_set(removed)
    assert not as_set(result) & linked(graph)


def test_pairs_that_cannot_be_had_are_refused() -> None:
    graph = random_graph(3, nodes=12, edges=16)
    with pytest.raises(gf.InputError, match=r"pair \(4, 4\) is one node"):
        matched_non_edges(graph, torch.tensor([[4], [4]]), seed=0)
    all_pairs = torch.tensor(sorted(every_pair(graph))).T
    with pytest.raises(gf.InputError, match="too few between classes"):
        matched_non_edges(graph, all_pairs, seed=0)
    with pytest.raises(gf.InputError, match="number of non-edges is -1"):
        uniform_non_edges(graph, -1, seed=0)
    with pytest.raises(gf.InputError, match="node 12"):
        uniform_non_edges(graph, 1, seed=0, avoid=torch.tensor([[0], [12]]))
    with pytest.raises(gf.InputError, match="half of them is none"):
        known_half(random_graph(3, edges=0), seed=0)
