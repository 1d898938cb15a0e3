"""Graphs of any size by a generator: power-law degrees, communities, and labels that can be learned."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.validation import whole_number

EXPONENT = 2.5  # of the degrees' power law
LARGEST_DEGREE = 1000.0  # times the smallest expected degree
INSIDE = 0.6  # the share of edges that stay in a community
MORE = 1.05  # edges are drawn in excess, because repeated ones count once
ROUNDS = 20
BLOCK = 1 << 20  # numbers that are computed together


# Longer than 50 lines because of the documentation of its parameters.
def synthetic(
    *,
    nodes: int,
    edges: int,
    columns: int,
    classes: int,
    seed: int = 0,
    train: float = 0.9,
    signal: float = 1.0,
    name: str = "synthetic",
) -> Graph:
    """An undirected graph for tests and benchmarks, in seconds also with many millions of edges.

    Every node is in a community, and its community is its class. Expected degrees follow a power law with exponent
    2.5. Six of ten edges stay in their community. Attributes are dense: the centre of the class and noise.

    Args:
        nodes: The number of nodes.
        edges: The number of undirected edges, without repetitions and self-loops.
        columns: The number of attributes.
        classes: The number of classes.
        seed: The seed; the same one gives the same graph.
        train: The share of nodes that train. The others test.
        signal: The length of a class's centre, where the noise in every column has standard deviation 1. The larger,
            the easier to learn.
        name: The name of the graph.

    Returns:
        The graph.

    Raises:
        InputError: A number is out of its range, or there are not so many different edges.

    Example:
        >>> graph = synthetic(nodes=1000, edges=7000, columns=16, classes=4)
        >>> graph.num_nodes, graph.num_edges, graph.num_columns, graph.num_classes
        (1000, 7000, 16, 4)
    """
    for label, value, least in (
        ("nodes", nodes, 2),
        ("edges", edges, 0),
        ("columns", columns, 1),
        ("classes", classes, 2),
    ):
        if whole_number(value, label) < least:
            raise InputError(f"{label} is {value}, at least {least} is needed")
    if edges > nodes * (nodes - 1) // 4:
        raise InputError(f"{edges:,} edges are over half of all pairs of {nodes:,} nodes")
    if not 0 < train <= 1:
        raise InputError(f"train is {train}, a share over 0 and up to 1 is needed")
    rng = np.random.default_rng(whole_number(seed, "seed"))
    y = rng.integers(0, classes, size=nodes)
    pairs = _edges(y, edges, rng)
    centres = rng.normal(size=(classes, columns)).astype(np.float32)
    centres *= signal / np.linalg.norm(centres, axis=1, keepdims=True)
    x = rng.standard_normal((nodes, columns), dtype=np.float32)
    for part in _blocks(nodes, max(1, BLOCK // columns)):
        x[part] += centres[y[part]]
    trains = rng.random(nodes) < train
    trains[0] = True
    return Graph.create(
        x=torch.from_numpy(x),
        edges=torch.from_numpy(pairs),
        y=torch.from_numpy(y),
        train_mask=torch.from_numpy(trains),
        test_mask=torch.from_numpy(~trains),
        num_classes=classes,
        name=name,
    )


def _blocks(count: int, size: int | None = None) -> Iterator[slice]:
    size = BLOCK if size is None else size
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _edges(community: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """So many different pairs (2 x count), each with the smaller number first, in ascending order."""
    nodes = community.size
    order = np.argsort(community, kind="stable")
    weights = np.minimum((1 - rng.random(nodes)) ** (-1 / (EXPONENT - 1)), LARGEST_DEGREE)
    keys = np.zeros(0, dtype=np.int64)
    for _ in range(ROUNDS):
        missing = count - keys.size
        if missing <= 0:
            break
        drawn = _drawn_pairs(community, order, weights, int(missing * MORE) + 16, rng)
        keys = _sorted_once(np.concatenate([keys, drawn]) if keys.size else drawn)
    if keys.size < count:
        raise InputError(f"only {keys.size:,} different edges were found, {count:,} are too many for {nodes:,} nodes")
    if keys.size > count:
        keys = np.delete(keys, rng.choice(keys.size, size=keys.size - count, replace=False))
    pairs = np.empty((2, count), dtype=_index_type(nodes))
    for part in _blocks(count):
        pairs[0, part], pairs[1, part] = np.divmod(keys[part], nodes)
    return pairs


def _sorted_once(keys: np.ndarray) -> np.ndarray:
    """The different keys in ascending order; sorts the given array in place, which `np.unique` does not."""
    keys.sort()
    first = np.ones(keys.size, dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def _drawn_pairs(
    community: np.ndarray, order: np.ndarray, weights: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Pairs as numbers `smaller * nodes + larger`: every node has stubs by its weight, and stubs are joined at random.

    Stubs lie community by community, so that a random stub of a community is a random number in its range. Random
    numbers are drawn in blocks, in the order in which one call for all stubs would draw them.
    """
    nodes = community.size
    expected = weights[order] * (count / weights.sum())
    copies = (expected + rng.random(nodes)).astype(np.int64)
    sizes = np.bincount(community[order], weights=copies).astype(np.int64)
    starts = sizes.cumsum() - sizes
    stubs = np.repeat(order.astype(_index_type(nodes)), copies)
    stays = np.empty(stubs.size, dtype=bool)
    for part in _blocks(stubs.size):
        stays[part] = rng.random(part.stop - part.start) < INSIDE
    partner = np.empty(stubs.size, dtype=_index_type(stubs.size))
    for part in _blocks(stubs.size):
        place = community[stubs[part]]
        partner[part] = starts[place] + (rng.random(place.size) * sizes[place]).astype(np.int64)
    for part in _blocks(stubs.size):
        anywhere = rng.integers(0, stubs.size, size=part.stop - part.start)
        np.copyto(partner[part], anywhere, where=~stays[part], casting="same_kind")
    keys, end = np.empty(stubs.size, dtype=np.int64), 0
    for part in _blocks(stubs.size):
        one, other = stubs[part].astype(np.int64), stubs[partner[part]].astype(np.int64)
        drawn = (np.minimum(one, other) * nodes + np.maximum(one, other))[one != other]
        keys[end : end + drawn.size] = drawn
        end += drawn.size
    return keys[:end]


def _index_type(count: int) -> type[np.signedinteger]:
    """The smallest type for numbers below `count`."""
    return np.int32 if count <= np.iinfo(np.int32).max else np.int64
