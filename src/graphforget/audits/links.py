"""StealLink, attack 3 (He et al. 2021): are these two nodes linked, told by what the model answers on both?

The attacker knows part of the graph's edges. `uniform_non_edges` are what the paper compares with; linked nodes are
alike, so any good model tells those apart, and `matched_non_edges` of the same classes and degrees are the fair ones.
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
FLAT = 1e-9  # a posterior that varies less than this is constant, and its correlation nothing but rounding


@dataclass(frozen=True, eq=False)
class LinkAttacker:
    """Learned on pairs that the attacker knows, serves for every model of the same classes."""

    network: FittedNetwork = field(repr=False)

    def scores(self, posteriors: Tensor, pairs: Tensor) -> np.ndarray:
        """One score a pair, higher for linked ones; the same for (u, v) and (v, u)."""
        return self.network.scores(pair_features(posteriors, pairs))


def link_attacker(
    posteriors: Tensor,
    known_edges: Tensor,
    known_non_edges: Tensor,
    *,
    seed: int,
    progress: Progress | None = None,
) -> LinkAttacker:
    """Learns from the `n x C` posteriors of a model and from 2 x P pairs of rows that are and that are not linked."""
    linked, others = pair_features(posteriors, known_edges), pair_features(posteriors, known_non_edges)
    features = np.concatenate([linked, others])
    return LinkAttacker(NETWORK.fit(features, np.arange(len(features)) < len(linked), seed=seed, progress=progress))


def pair_features(posteriors: Tensor, pairs: Tensor) -> np.ndarray:
    """`4 C + 12` numbers a pair, all of them the same for (u, v) and (v, u).

    Mean, product, absolute and squared difference of the two posteriors; their cosine, Euclidean, correlation,
    Chebyshev, Bray-Curtis, Canberra, city-block and squared Euclidean distance; and mean, product, absolute and squared
    difference of the two Kullback-Leibler divergences. What is not defined counts as 0.
    """
    p, q = _checked_posteriors(posteriors)[checked_edges(pairs, posteriors.shape[0]).numpy()]
    divergences = _divergence(p, q)[:, None], _divergence(q, p)[:, None]
    features = np.concatenate([*_combined(p, q), *_distances(p, q), *_combined(*divergences)], axis=1)
    return np.nan_to_num(features, nan=0.0)


def known_half(graph: Graph, *, seed: int) -> Tensor:
    """Half of the graph's edges at random, each as (u, v) with u < v: what the attacker knows in the paper."""
    edges = _undirected(graph)
    if edges.shape[1] < 2:
        raise InputError(f"the graph has {edges.shape[1]} edge(s) between two nodes, half of them is none")
    chance = random.Random(f"known edges {whole_number(seed, 'the seed')}")
    return torch.from_numpy(edges[:, sorted(chance.sample(range(edges.shape[1]), edges.shape[1] // 2))])


def uniform_non_edges(graph: Graph, count: int, *, seed: int, avoid: Tensor | None = None) -> Tensor:
    """`count` distinct pairs u < v at random, none of them an edge in either direction or among `avoid`."""
    count = whole_number(count, "the number of non-edges")
    free = _FreePairs(np.zeros(graph.num_nodes, dtype=np.int64), _taken(graph, avoid))
    chance = random.Random(f"uniform non-edges {whole_number(seed, 'the seed')}")
    found = free.draw(0, 0, count, chance)
    if found.shape[1] < count:
        raise InputError(f"{count} non-edges are to be drawn and there are only {found.shape[1]}")
    return torch.from_numpy(found)


def matched_non_edges(graph: Graph, pairs: Tensor, *, seed: int, avoid: Tensor | None = None) -> Tensor:
    """For each given pair another one, u < v, with the same two classes and about the same two degrees in `graph`.

    "About" is the same power of two where such a pair is left, and the nearest powers elsewhere. No pair comes twice,
    none is an edge in either direction, among `pairs` or among `avoid`.
    """
    given = _sorted_pairs(checked_edges(pairs, graph.num_nodes).numpy())
    alike = (given[0] == given[1]).nonzero()[0]
    if alike.size:
        raise InputError(f"pair ({given[0, alike[0]]}, {given[1, alike[0]]}) is one node, two are needed")
    edges = _undirected(graph)
    degrees = np.bincount(edges.ravel(), minlength=graph.num_nodes)
    kinds = np.stack([graph.y.numpy(), np.frexp(degrees)[1]], axis=1)  # the exponent: 0, 1, 2-3, 4-7 ...
    cells, cell_of = np.unique(kinds, axis=0, return_inverse=True)
    free = _FreePairs(cell_of.ravel(), np.concatenate([_taken(graph, avoid), given], axis=1))
    chance = random.Random(f"matched non-edges {whole_number(seed, 'the seed')}")
    types, type_of = np.unique(np.sort(free.group_of[given], axis=0), axis=1, return_inverse=True)
    wanted = {(int(g), int(h)): (type_of.ravel() == place).nonzero()[0] for place, (g, h) in enumerate(types.T)}
    found = np.empty_like(given)
    for (g, h), places in wanted.items():  # all that fit exactly before any of them goes to a pair nearby
        drawn = free.draw(g, h, len(places), chance)
        found[:, places[: drawn.shape[1]]] = drawn
        wanted[g, h] = places[drawn.shape[1] :]
    for (g, h), places in wanted.items():
        if places.size:
            found[:, places] = _nearby(free, cells, g, h, places.size, chance)
    return torch.from_numpy(found)


def _nearby(free: _FreePairs, cells: np.ndarray, g: int, h: int, count: int, chance: random.Random) -> np.ndarray:
    """Pairs of the same classes as those of cells `g` and `h`, of the nearest degrees first."""
    (one, first), (other, second) = cells[g], cells[h]
    near = [
        (abs(int(a_degree - first)) + abs(int(b_degree - second)), a, b)
        for a, (a_class, a_degree) in enumerate(cells)
        for b, (b_class, b_degree) in enumerate(cells)
        if (a_class, b_class) == (one, other)
    ]
    parts, missing = [], count
    for _, a, b in sorted(near):
        parts.append(free.draw(min(a, b), max(a, b), missing, chance))
        missing -= parts[-1].shape[1]
        if missing == 0:
            return np.concatenate(parts, axis=1)
    raise InputError(f"there are {missing} non-edges too few between classes {one} and {other} to match every pair")


class _FreePairs:
    """The pairs of nodes that are not taken, by the groups of their two nodes.

    Pairs between two groups are numbered, so a free one can be drawn without trying.
    """

    def __init__(self, group_of: np.ndarray, taken: np.ndarray) -> None:
        self.group_of = group_of
        order = np.argsort(group_of, kind="stable")
        sizes = np.bincount(group_of)
        starts = np.cumsum(sizes) - sizes
        self._nodes = np.split(order, starts[1:])
        self._place = np.empty_like(order)
        self._place[order] = np.arange(order.size) - starts[group_of[order]]
        u, v = taken[:, taken[0] != taken[1]]
        swap = group_of[u] > group_of[v]
        u, v = np.where(swap, v, u), np.where(swap, u, v)
        blocks = group_of[u] * sizes.size + group_of[v]
        by_block = np.argsort(blocks, kind="stable")
        names, begins = np.unique(blocks[by_block], return_index=True)
        self._taken: dict[tuple[int, int], np.ndarray] = {}
        for name, part in zip(names.tolist(), np.split(by_block, begins[1:]), strict=True) if names.size else ():
            g, h = divmod(name, len(sizes))
            self._taken[g, h] = np.unique(self._numbers(g, h, self._place[u[part]], self._place[v[part]]))

    def draw(self, g: int, h: int, count: int, chance: random.Random) -> np.ndarray:
        """Up to `count` free pairs u < v between groups `g <= h`, which are taken from now on."""
        a, b = len(self._nodes[g]), len(self._nodes[h])
        taken = self._taken.get((g, h), np.zeros(0, dtype=np.int64))
        left = (a * (a - 1) // 2 if g == h else a * b) - taken.size
        ranks = np.array(chance.sample(range(left), min(count, left)), dtype=np.int64)
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
        raise InputError("the posteriors are not probabilities of classes, one row that sums to 1 a node is needed")
    return p


def _combined(p: np.ndarray, q: np.ndarray) -> list[np.ndarray]:
    return [(p + q) / 2, p * q, np.abs(p - q), (p - q) ** 2]


def _distances(p: np.ndarray, q: np.ndarray) -> list[np.ndarray]:
    gap, total = np.abs(p - q), p + q
    square = (gap**2).sum(axis=1)
    found = [
        _cosine(p, q),
        np.sqrt(square),
        _cosine(p - p.mean(axis=1, keepdims=True), q - q.mean(axis=1, keepdims=True)),
        gap.max(axis=1),
        gap.sum(axis=1) / total.sum(axis=1),
        np.divide(gap, total, out=np.zeros_like(gap), where=total > 0).sum(axis=1),
        gap.sum(axis=1),
        square,
    ]
    return [values[:, None] for values in found]


def _cosine(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """One less the cosine; NaN where one of the two has no direction."""
    sizes = np.linalg.norm(p, axis=1), np.linalg.norm(q, axis=1)
    defined = np.minimum(*sizes) > FLAT
    out = np.full(len(p), np.nan)
    return 1 - np.divide((p * q).sum(axis=1), sizes[0] * sizes[1], out=out, where=defined)


def _divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """`KL(p || q)` of the softened probabilities."""
    p, q = p + SOFTENING, q + SOFTENING
    return np.asarray((p * np.log(p / q)).sum(axis=1) / p.sum(axis=1))
