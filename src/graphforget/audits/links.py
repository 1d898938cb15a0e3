"""StealLink, attack 3 (He et al. 2021): infers from the answers on two nodes whether they are linked.

The attacker knows part of the edges. The paper compares with `uniform_non_edges`. Linked nodes are similar, so every
good model separates those; `matched_non_edges` of the same classes and degrees are the fair comparison.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.network import AttackNetwork, FittedNetwork
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.validation import checked_edges
from graphforget.progress import Progress
from graphforget.validation import whole_number

NETWORK = AttackNetwork(hidden=(32, 32), dropout=0.5, learning_rate=1e-3, epochs=50, batch=128, standardise=True)

SOFTENING = 1e-5  # added to probabilities before a Kullback-Leibler divergence, which is infinite at 0
FLAT = 1e-9  # a posterior that varies less than this is constant, and its correlation is rounding


@dataclass(frozen=True, eq=False)
class LinkAttacker:
    """An attacker that was trained on known pairs; it can attack every model with the same classes."""

    network: FittedNetwork = field(repr=False)

    def scores(self, posteriors: Tensor, pairs: Tensor) -> np.ndarray:
        """One score for each pair, higher for linked pairs; the same for (u, v) and (v, u)."""
        return self.network.scores(pair_features(posteriors, pairs))


def link_attacker(
    posteriors: Tensor,
    known_edges: Tensor,
    known_non_edges: Tensor,
    *,
    seed: int,
    progress: Progress | None = None,
) -> LinkAttacker:
    """Trains on the `n x C` posteriors of a model and on 2 x P pairs of rows that are linked and that are not."""
    linked, unlinked = pair_features(posteriors, known_edges), pair_features(posteriors, known_non_edges)
    features = np.concatenate([linked, unlinked])
    return LinkAttacker(NETWORK.fit(features, np.arange(len(features)) < len(linked), seed=seed, progress=progress))


def pair_features(posteriors: Tensor, pairs: Tensor) -> np.ndarray:
    """`4 C + 12` features for each pair, the same for (u, v) and (v, u).

    Mean, product, absolute and squared difference of the two posteriors; their cosine, Euclidean, correlation,
    Chebyshev, Bray-Curtis, Canberra, city-block and squared Euclidean distance; and mean, product, absolute and squared
    difference of the two Kullback-Leibler divergences. An undefined feature is 0.
    """
    p, q = _checked_posteriors(posteriors)[checked_edges(pairs, posteriors.shape[0]).numpy()]
    divergences = _divergence(p, q)[:, None], _divergence(q, p)[:, None]
    features = np.concatenate([*combined(p, q), *distances(p, q), *combined(*divergences)], axis=1)
    return np.nan_to_num(features, nan=0.0)


def known_half(graph: Graph, *, seed: int) -> Tensor:
    """Half of the graph's edges at random, each as (u, v) with u < v: what the attacker knows in the paper."""
    edges = _undirected(graph)
    if edges.shape[1] < 2:
        raise InputError(f"the graph has {edges.shape[1]} edge(s) between two nodes, half of them is none")
    rng = random.Random(f"known edges {whole_number(seed, 'the seed')}")
    return torch.from_numpy(edges[:, sorted(rng.sample(range(edges.shape[1]), edges.shape[1] // 2))])


def uniform_non_edges(graph: Graph, count: int, *, seed: int, avoid: Tensor | None = None) -> Tensor:
    """`count` distinct pairs u < v at random, none of them an edge in either direction or among `avoid`."""
    count = whole_number(count, "the number of non-edges")
    free = _FreePairs(np.zeros(graph.num_nodes, dtype=np.int64), _taken(graph, avoid))
    rng = random.Random(f"uniform non-edges {whole_number(seed, 'the seed')}")
    pairs = free.draw(0, 0, count, rng)
    if pairs.shape[1] < count:
        raise InputError(f"{count} non-edges are to be drawn and there are only {pairs.shape[1]}")
    return torch.from_numpy(pairs)


def matched_non_edges(graph: Graph, pairs: Tensor, *, seed: int, avoid: Tensor | None = None) -> Tensor:
    """For each given pair another one, u < v, with the same two classes and about the same two degrees in `graph`.

    "About" means the same power of two if such a pair is left, else the nearest powers. All pairs are distinct, and
    none is an edge in either direction, among `pairs` or among `avoid`.
    """
    positives = _sorted_pairs(checked_edges(pairs, graph.num_nodes).numpy())
    loops = (positives[0] == positives[1]).nonzero()[0]
    if loops.size:
        raise InputError(f"pair ({positives[0, loops[0]]}, {positives[1, loops[0]]}) is one node, two are needed")
    edges = _undirected(graph)
    degrees = np.bincount(edges.ravel(), minlength=graph.num_nodes)
    kinds = np.stack([graph.y.numpy(), np.frexp(degrees)[1]], axis=1)  # the exponent: 0, 1, 2-3, 4-7 ...
    cells, cell_of = np.unique(kinds, axis=0, return_inverse=True)
    free = _FreePairs(cell_of.ravel(), np.concatenate([_taken(graph, avoid), positives], axis=1))
    rng = random.Random(f"matched non-edges {whole_number(seed, 'the seed')}")
    types, type_of = np.unique(np.sort(free.group_of[positives], axis=0), axis=1, return_inverse=True)
    columns_of = {(int(g), int(h)): (type_of.ravel() == index).nonzero()[0] for index, (g, h) in enumerate(types.T)}
    negatives = np.empty_like(positives)
    for (g, h), columns in columns_of.items():  # all exact matches first, so that no inexact one takes their pairs
        drawn = free.draw(g, h, len(columns), rng)
        negatives[:, columns[: drawn.shape[1]]] = drawn
        columns_of[g, h] = columns[drawn.shape[1] :]
    for (g, h), columns in columns_of.items():
        if columns.size:
            negatives[:, columns] = _nearby(free, cells, g, h, columns.size, rng)
    return torch.from_numpy(negatives)


def _nearby(free: _FreePairs, cells: np.ndarray, g: int, h: int, count: int, rng: random.Random) -> np.ndarray:
    """Pairs of the same classes as those of cells `g` and `h`, of the nearest degrees first."""
    (g_class, g_degree), (h_class, h_degree) = cells[g], cells[h]
    near = [
        (abs(int(a_degree - g_degree)) + abs(int(b_degree - h_degree)), a, b)
        for a, (a_class, a_degree) in enumerate(cells)
        for b, (b_class, b_degree) in enumerate(cells)
        if (a_class, b_class) == (g_class, h_class)
    ]
    parts, missing = [], count
    for _, a, b in sorted(near):
        parts.append(free.draw(min(a, b), max(a, b), missing, rng))
        missing -= parts[-1].shape[1]
        if missing == 0:
            return np.concatenate(parts, axis=1)
    raise InputError(
        f"there are {missing} non-edges too few between classes {g_class} and {h_class} to match every pair"
    )


class _FreePairs:
    """The pairs of nodes that are not taken, by the groups of their two nodes.

    Pairs between two groups are numbered, so that free ones can be drawn without rejection.
    """

    def __init__(self, group_of: np.ndarray, taken: np.ndarray) -> None:
        self.group_of = group_of
        order = np.argsort(group_of, kind="stable")
        sizes = np.bincount(group_of)
        starts = np.cumsum(sizes) - sizes
        self._nodes = np.split(order, starts[1:])
        self._index = np.empty_like(order)
        self._index[order] = np.arange(order.size) - starts[group_of[order]]
        u, v = taken[:, taken[0] != taken[1]]
        swap = group_of[u] > group_of[v]
        u, v = np.where(swap, v, u), np.where(swap, u, v)
        blocks = group_of[u] * sizes.size + group_of[v]
        by_block = np.argsort(blocks, kind="stable")
        names, begins = np.unique(blocks[by_block], return_index=True)
        self._taken: dict[tuple[int, int], np.ndarray] = {}
        for name, part in zip(names.tolist(), np.split(by_block, begins[1:]), strict=True) if names.size else ():
            g, h = divmod(name, len(sizes))
            self._taken[g, h] = np.unique(self._numbers(g, h, self._index[u[part]], self._index[v[part]]))

    def draw(self, g: int, h: int, count: int, rng: random.Random) -> np.ndarray:
        """Up to `count` free pairs u < v between groups `g <= h`; they count as taken afterwards."""
        a, b = len(self._nodes[g]), len(self._nodes[h])
        taken = self._taken.get((g, h), np.zeros(0, dtype=np.int64))
        free = (a * (a - 1) // 2 if g == h else a * b) - taken.size
        ranks = np.array(rng.sample(range(free), min(count, free)), dtype=np.int64)
        numbers = ranks + np.searchsorted(taken - np.arange(taken.size), ranks, side="right")
        self._taken[g, h] = np.union1d(taken, numbers)
        first, second = _triangle(numbers) if g == h else np.divmod(numbers, b)
        return _sorted_pairs(np.stack([self._nodes[g][first], self._nodes[h][second]]))

    def _numbers(self, g: int, h: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        if g != h:
            return np.asarray(first * len(self._nodes[h]) + second)
        low, high = np.minimum(first, second), np.maximum(first, second)
        return np.asarray(high * (high - 1) // 2 + low)


def _triangle(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pairs `low < high` of which `high (high - 1) / 2 + low` are the numbers."""
    high = ((1 + np.sqrt(1 + 8.0 * numbers)) // 2).astype(np.int64)
    high -= high * (high - 1) // 2 > numbers  # the root may be rounded across a whole number
    high += high * (high + 1) // 2 <= numbers
    return numbers - high * (high - 1) // 2, high


def _taken(graph: Graph, avoid: Tensor | None) -> np.ndarray:
    edges = _undirected(graph)
    return edges if avoid is None else np.concatenate([edges, checked_edges(avoid, graph.num_nodes).numpy()], axis=1)


def _undirected(graph: Graph) -> np.ndarray:
    """Edges between two nodes as (u, v) with u < v, whatever their direction, each once."""
    u, v = _sorted_pairs(graph.edge_index.numpy())
    return np.stack(np.divmod(np.unique((u * graph.num_nodes + v)[u < v]), graph.num_nodes))


def _sorted_pairs(pairs: np.ndarray) -> np.ndarray:
    return np.sort(pairs, axis=0)


def _checked_posteriors(posteriors: Tensor) -> np.ndarray:
    p = posteriors.detach().cpu().double().numpy()
    if p.ndim != 2 or not np.isfinite(p).all() or (p < 0).any() or (np.abs(p.sum(axis=1) - 1) > 1e-3).any():
        raise InputError(
            "the posteriors are not probabilities of classes, one row for each node that sums to 1 is needed"
        )
    return p


def combined(p: np.ndarray, q: np.ndarray) -> list[np.ndarray]:
    return [(p + q) / 2, p * q, np.abs(p - q), (p - q) ** 2]


def distances(p: np.ndarray, q: np.ndarray) -> list[np.ndarray]:
    gap, total = np.abs(p - q), p + q
    square = (gap**2).sum(axis=1)
    distances = [
        _cosine(p, q),
        np.sqrt(square),
        _cosine(p - p.mean(axis=1, keepdims=True), q - q.mean(axis=1, keepdims=True)),
        gap.max(axis=1),
        gap.sum(axis=1) / total.sum(axis=1),
        np.divide(gap, total, out=np.zeros_like(gap), where=total > 0).sum(axis=1),
        gap.sum(axis=1),
        square,
    ]
    return [values[:, None] for values in distances]


def _cosine(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """One minus the cosine; NaN if one of the two is zero."""
    sizes = np.linalg.norm(p, axis=1), np.linalg.norm(q, axis=1)
    defined = np.minimum(*sizes) > FLAT
    out = np.full(len(p), np.nan)
    return 1 - np.divide((p * q).sum(axis=1), sizes[0] * sizes[1], out=out, where=defined)


def _divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """`KL(p || q)` of the softened probabilities."""
    p, q = p + SOFTENING, q + SOFTENING
    return np.asarray((p * np.log(p / q)).sum(axis=1) / p.sum(axis=1))
