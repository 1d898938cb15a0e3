"""Features of graphs against their definitions: colours by dictionaries, pooled attributes by loops."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import graphforget as gf
from collection_cases import random_collection
from graphforget.graph.hashing import salt
from graphforget.models.graph_features import sign_features, wl_colours, wl_features
from graphforget.models.items import items_of
from graphforget.models.registry import build
from graphforget.training.rounding import rounding_allowance

CASES = [
    {"sparse": sparse, "directed": directed, "mixed": mixed}
    for sparse in (False, True)
    for directed in (False, True)
    for mixed in (False, True)
]


def colours_by_name(graph: gf.Graph, *, rounds: int, attributes: bool, degrees: bool) -> list[list[Any]]:
    """Weisfeiler-Lehman by its definition: a colour is the tuple of what it stands for."""
    senders: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for u, v in graph.edge_index.T.tolist():
        senders[v].append(u)
    rows = [tuple(round(math.asinh(value)) for value in row) for row in graph.x.to_dense().tolist()]
    colours: list[Any] = [
        (rows[node] if attributes else (), len(senders[node]) if degrees else 0) for node in range(graph.num_nodes)
    ]
    by_round = [colours]
    for _ in range(rounds):
        colours = [(colours[node], tuple(sorted(colours[u] for u in senders[node]))) for node in range(len(colours))]
        by_round.append(colours)
    return by_round


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("attributes", "degrees"), [(True, False), (True, True), (False, True), (False, False)])
def test_two_nodes_have_one_colour_exactly_if_weisfeiler_and_lehman_say_so(
    case: dict[str, bool], attributes: bool, degrees: bool
) -> None:
    graph = random_collection(7, graphs=30, **case)
    settings = {"attributes": attributes, "degrees": degrees}
    by_name = colours_by_name(graph, rounds=3, **settings)
    hashed = wl_colours(graph, rounds=3, **settings)
    assert len(hashed) == 4
    for names, hashes in zip(by_name, hashed, strict=True):
        pairs = set(zip(names, hashes.tolist(), strict=True))
        assert len(pairs) == len(set(names)) == len(set(hashes.tolist()))
    assert attributes or degrees or len(set(by_name[0])) == 1


def test_rounds_tell_more_and_more_nodes_apart() -> None:
    graph = random_collection(7, graphs=30)
    kinds = [colours.unique().numel() for colours in wl_colours(graph, rounds=3)]
    assert kinds[0] < kinds[1] < kinds[2] <= kinds[3]


@pytest.mark.parametrize("case", CASES)
def test_features_count_the_colours_of_each_graph(case: dict[str, bool]) -> None:
    """Up to collisions, which 2^20 columns make none of here: a graph's numbers are those of its colours' counts."""
    graph = random_collection(8, **case)
    assert graph.graph_numbers is not None
    found = wl_features(graph, rounds=2, buckets=2**20, degrees=True).csr.to_dense()
    by_round = colours_by_name(graph, rounds=2, attributes=True, degrees=True)
    for row, number in enumerate(graph.numbers_of_graphs.tolist()):
        nodes = (graph.graph_numbers == number).nonzero().flatten().tolist()
        for at, colours in enumerate(by_round):
            counts = sorted(Counter(colours[node] for node in nodes).values())
            own = found[row, at * 2**20 : (at + 1) * 2**20]
            values = own[own > 0].sort().values
            lengths = [math.log1p(count) for count in counts]
            assert len(values) == len(counts)
            assert (values / values[0]).numpy() == pytest.approx(np.array(lengths) / lengths[0])
        assert float(found[row].norm()) == pytest.approx(1)


def test_few_columns_add_up_the_colours_that_fall_together() -> None:
    graph = random_collection(8)
    one = wl_features(graph, rounds=0, buckets=1)
    assert one.csr.to_dense().flatten().tolist() == pytest.approx([1.0] * len(graph.numbers_of_graphs))
    assert wl_features(graph, rounds=2, buckets=5).shape == (10, 15)


@pytest.mark.parametrize("case", CASES)
def test_the_row_of_a_graph_is_a_function_of_that_graph_alone(case: dict[str, bool]) -> None:
    """Bit for bit."""
    graph = random_collection(9, **case)
    alone = [int(number) for number in graph.numbers_of_graphs]
    wl, sign = wl_features(graph, rounds=2, buckets=64).csr.to_dense(), sign_features(graph, hops=2).values
    for row, number in enumerate(alone):
        keep = graph.graph_numbers == number
        part = graph.induced(torch.as_tensor(keep))
        assert torch.equal(wl_features(part, rounds=2, buckets=64).csr.to_dense()[0], wl[row])
        assert torch.equal(sign_features(part, hops=2).values[0], sign[row])


@pytest.mark.parametrize("case", CASES)
def test_pooled_attributes_are_those_of_the_definition(case: dict[str, bool]) -> None:
    graph = random_collection(9, **case)
    n = graph.num_nodes
    a = np.eye(n)
    for u, v in graph.edge_index.T.tolist():
        a[v, u] = 1
    degree = a.sum(axis=1)
    s = a / np.sqrt(degree)[:, None] / np.sqrt(degree)[None, :]
    incoming = np.bincount(graph.edge_index[1].numpy(), minlength=n)
    x = np.column_stack([graph.x.to_dense().numpy(), np.log1p(incoming)])
    values = np.column_stack([x, s @ x, s @ s @ x, np.ones(n)])
    found = sign_features(graph, hops=2).values.numpy()
    assert graph.graph_numbers is not None
    for row, number in enumerate(graph.numbers_of_graphs.tolist()):
        own = values[(graph.graph_numbers == number).numpy()]
        expected = np.arcsinh(np.concatenate([own.sum(axis=0), own.mean(axis=0)]))
        assert found[row] == pytest.approx(expected / np.linalg.norm(expected))


def test_colours_stay_the_same_from_version_to_version() -> None:
    """Weights belong to columns, so a run directory needs the same hash for ever."""
    graph = gf.Graph.create(
        x=torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, 0.0]]),
        edges=torch.tensor([[0], [1]]),
        y=torch.tensor([0, 0, 1]),
        graph_numbers=torch.tensor([0, 0, 1]),
    )
    features = wl_features(graph, rounds=1, buckets=2**14, degrees=True).csr
    assert salt("wl", 0) == PINNED_SALT
    assert features.col_indices().tolist() == PINNED_COLUMNS


PINNED_SALT = 4983476124393178556
PINNED_COLUMNS = [6325, 14944, 26416, 29032, 14147, 26477]


# -- rounding --------------------------------------------------------------------------------------------------------


def long_rows(model: str, module: Any, graph: gf.Graph) -> np.ndarray:
    """The features, with a 1 for the bias, from the definition in extended precision."""
    long = np.longdouble
    assert graph.graph_numbers is not None
    members = [(graph.graph_numbers == number).numpy() for number in graph.numbers_of_graphs.tolist()]
    n = graph.num_nodes
    if model == "graph-wl":
        colours = wl_colours(graph, rounds=module.rounds, degrees=True)
        width = module.buckets
        columns = [((c.numpy().view(np.uint64) >> np.uint64(32)) * np.uint64(width)) >> np.uint64(32) for c in colours]
        places = [column.astype(np.int64) for column in columns]
        counts = np.array(
            [np.concatenate([np.bincount(place[own], minlength=width) for place in places]) for own in members]
        )
        values = np.log1p(counts.astype(long))
    else:
        a = np.eye(n, dtype=long)
        for u, v in graph.edge_index.T.tolist():
            a[v, u] = 1
        degree = a.sum(axis=1)
        s = a / np.sqrt(degree)[:, None] / np.sqrt(degree)[None, :]
        incoming = np.bincount(graph.edge_index[1].numpy(), minlength=n).astype(long)
        x = np.column_stack([graph.x.to_dense().numpy().astype(long), np.log1p(incoming)])
        powers = [x]
        for _ in range(module.hops):
            powers.append(s @ powers[-1])
        nodes = np.column_stack([*powers, np.ones(n, dtype=long)])
        values = np.arcsinh(np.array([np.r_[nodes[own].sum(axis=0), nodes[own].mean(axis=0)] for own in members]))
    rows = values / np.sqrt((values * values).sum(axis=1))[:, None]
    return np.column_stack([rows, np.ones(len(rows), dtype=long)])


def long_gradient(module: Any, model: str, graph: gf.Graph, theta: np.ndarray, mu: float) -> np.ndarray:
    items = items_of(module, graph)
    train = items.train_rows.numpy()
    rows = long_rows(model, module, graph)[train]
    weights = theta.astype(np.longdouble).reshape(-1, 2)  # the bias comes last, as its column of ones does
    logits = rows @ weights
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(train)), items.y.numpy()[train]] -= 1
    return (rows.T @ shares / len(train)).ravel() + mu * weights.ravel()


@pytest.mark.parametrize("model", ["graph-wl", "graph-sign"])
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e9])
@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_is_within_its_rounding_bound(model: str, scale: float, seed: int) -> None:
    """Also where attributes cancel in the sums over a graph."""
    rng = np.random.default_rng(seed)
    graph = random_collection(seed, graphs=12, directed=seed % 2 == 1)
    x = torch.from_numpy(rng.choice([-1.0, 1.0], size=tuple(graph.x.shape)) * scale + rng.normal(size=graph.x.shape))
    graph = dataclasses.replace(graph, x=x)
    options: dict[str, Any] = {"rounds": 2, "buckets": 16} if model == "graph-wl" else {"hops": 2}
    module = build(model, columns=3, classes=2, **options).double()
    objective = gf.Objective(module, graph, mu=1e-3)
    theta = torch.from_numpy(10 * rng.normal(size=sum(p.numel() for p in module.parameters())))
    gradient = objective.gradient(theta)
    exact = long_gradient(module, model, graph, theta.numpy(), 1e-3)
    off = float(np.sqrt(((gradient.numpy() - exact) ** 2).sum()))
    allowed = rounding_allowance(objective, theta, gradient_norm=float(gradient.norm()))
    assert 0 < off <= allowed
    assert allowed < 1e-8 or scale > 1  # large numbers that cancel are refused rather than certified


def cancelling_collection(seed: int, size: float) -> gf.Graph:
    """Complete graphs of six nodes, of which one half has the attributes of the other with the opposite sign."""
    rng = np.random.default_rng(seed)
    graphs, half = 16, 3
    x = size * rng.random((graphs, half, 2)) + rng.normal(size=(graphs, half, 2))
    x = np.concatenate([x, rng.normal(size=x.shape) - x], axis=1).reshape(-1, 2)
    own = np.arange(2 * half)
    pairs = [(6 * graph + u, 6 * graph + v) for graph in range(graphs) for u in own for v in own[u + 1 :]]
    return gf.Graph.create(
        x=torch.from_numpy(x),
        edges=torch.tensor(pairs).T,
        y=torch.arange(graphs).repeat_interleave(6) % 2,
        train_mask=torch.ones(6 * graphs, dtype=torch.bool),
        graph_numbers=torch.arange(graphs).repeat_interleave(6),
        num_classes=2,
    )


def lengths_without_cancellation(model: str, graph: gf.Graph, hops: int) -> np.ndarray:
    """`q_i` of each graph of `cancelling_collection` (docs/maths.md, section 15): messages reach a whole graph."""
    if model == "graph-wl":
        return np.full(graph.num_nodes // 6, math.sqrt(2))  # a row of unit length, and the bias
    x = np.concatenate([graph.x.numpy(), np.full((graph.num_nodes, 1), math.log1p(5))], axis=1).astype(np.longdouble)
    sums, sizes = (values.reshape(-1, 6, 3).sum(axis=1) for values in (x, abs(x)))  # `S` keeps them: each row is 1 / 6
    ones = np.full((len(sums), 1), 6.0)
    pooled, size = (np.concatenate([each] * (hops + 1) + [ones], axis=1) for each in (sums, sizes))
    pooled, size = (np.concatenate([each, each / 6], axis=1) for each in (pooled, size))
    values = np.arcsinh(abs(pooled))
    errors = values + size / np.sqrt(1 + pooled**2)
    lengths = 2 * np.sqrt((errors**2).sum(axis=1) / (values**2).sum(axis=1))
    return np.sqrt(lengths**2 + 1).astype(np.float64)


@pytest.mark.parametrize("model", ["graph-wl", "graph-sign"])
@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("hops", [0, 3])
def test_the_allowance_is_at_least_the_bound_of_the_proof_where_attributes_cancel(
    model: str, size: float, hops: int
) -> None:
    """The bound is computed here from the formula of section 9, with no more terms in a sum than there are."""
    graph = cancelling_collection(hops, size)
    options: dict[str, Any] = {"rounds": hops, "buckets": 16} if model == "graph-wl" else {"hops": hops}
    module: Any = build(model, columns=2, classes=2, **options).double()
    mu, u = 1e-3, 2.0**-53
    objective = gf.Objective(module, graph, mu=mu)
    theta = torch.from_numpy(np.random.default_rng(1).normal(size=module.weight.numel() + 2))
    gradient = objective.gradient(theta)
    off = gradient.numpy() - long_gradient(module, model, graph, theta.numpy(), mu)
    error, slope, norm = float(np.sqrt((off**2).sum())), float(gradient.norm()), float(theta.norm())
    allowed = rounding_allowance(objective, theta, gradient_norm=slope)
    q = lengths_without_cancellation(model, graph, hops)
    k = 6 * (hops + 1) + module.weight.shape[0] + len(q)
    g = k * u / (1 - k * u)
    bound = float((q * (g * (q * norm / 2 + math.sqrt(2)) + (2 + 20) * u)).mean())
    bound = 2 * (bound + 5 * u * (mu * norm + slope) + (len(theta) + 2) * u * slope)
    assert 0 < error <= bound
    assert bound <= allowed * 1.01  # sums that cancel are known to about a thousandth
    assert allowed <= 40 * bound or size > 1e5  # from there on a sum that cancels is taken for 0
