"""GraphEraser's three methods to split the training nodes into shards (Chen et al., CCS 2022)."""

from __future__ import annotations

import math
from collections import deque
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.validation import LARGEST, canonical_edges
from graphforget.validation import whole_number

PARTITIONS = ("random", "bekm", "blpa")

CONVERGED_SHARE = (
    0.001  # label propagation ends when a smaller part of the nodes moves: the last few may cycle for ever
)
BYTES = 8  # of a node's hash; some shard is then likelier than another by shards / 2^64 at most

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def capacity(count: int, *, shards: int, slack: float = 0.005) -> int:
    """The most nodes a balanced shard may hold, `ceil(n / k + slack (n - n / k))`.

    The slack is a part of all nodes and not of a shard: 0.005 of 31,043 nodes is half of one of 100 shards. It counts
    as the decimal it is written as, so that no rounding of the sum can add a place.
    """
    count, shards = whole_number(count, "the number of nodes"), positive_integer(shards, "the number of shards")
    if not (math.isfinite(slack) and slack >= 0):
        raise InputError(f"the slack is {slack}, a finite number from 0 is needed")
    mean = Fraction(count, shards)
    return math.ceil(mean + Fraction(repr(float(slack))) * (count - mean))


def random_partition(numbers: Tensor, *, shards: int, seed: int) -> Tensor:
    """Each node's shard is a keyed hash of its own number, `blake2b(number, key=seed) mod k`.

    It depends on no other node, so removing one leaves every other where it is; a shuffle would move them. The sizes
    are those of independent draws, and a shard may be empty.
    """
    shards, key = positive_integer(shards, "the number of shards"), whole_number(seed, "the seed").to_bytes(8, "little")
    numbers = torch.as_tensor(numbers).detach().cpu()
    if numbers.dim() != 1 or numbers.dtype == torch.bool or numbers.is_floating_point() or numbers.is_complex():
        raise InputError(
            f"the node numbers are {numbers.dtype} of shape {tuple(numbers.shape)}, one whole number a node is needed"
        )
    if (numbers < 0).any():
        raise InputError(f"node number {int(numbers.min())} is negative, nodes count from 0")
    names = numbers.numpy().astype("<i8").tobytes()
    pieces = (names[start : start + 8] for start in range(0, len(names), 8))
    hashes = b"".join(blake2b(piece, key=key, digest_size=BYTES).digest() for piece in pieces)
    return torch.from_numpy((np.frombuffer(hashes, dtype="<u8") % np.uint64(shards)).astype(np.int64))


def label_propagation_partition(
    edge_index: Tensor, *, nodes: int, shards: int, seed: int, slack: float = 0.005, iterations: int = 50
) -> Tensor:
    """Balanced label propagation (BLPA): from a random equal split, nodes move to where most of their neighbours are.

    The graph is taken as undirected, without loops and with each edge once. A node without neighbours stays. No shard
    ever holds more than `capacity` nodes; there is no least size, and a shard may end up empty. A move needs a free
    place, so without slack and with equal shards no node moves.
    """
    nodes, shards = whole_number(nodes, "the number of nodes"), positive_integer(shards, "the number of shards")
    max_size = checked_shard_size(nodes, shards=shards, slack=slack)
    iterations = positive_integer(iterations, "the number of iterations")
    generator = np.random.default_rng(whole_number(seed, "the seed"))
    adjacency = adjacency_matrix(edge_index, nodes)
    labels = generator.permutation(np.arange(nodes, dtype=np.int64) % shards)
    for _ in range(iterations):
        preferred, support = preferred_labels(adjacency, labels, shards=shards, generator=generator)
        movers = np.flatnonzero(preferred != labels)
        order = movers[np.argsort(-support[movers], kind="stable")]
        moved = moved_labels(labels, preferred, order, shards=shards, max_size=max_size)
        changes = int((moved != labels).sum())
        labels = moved
        if changes < CONVERGED_SHARE * nodes:
            break
    return torch.from_numpy(labels)


def kmeans_partition(points: Tensor, *, shards: int, seed: int, slack: float = 0.005, iterations: int = 20) -> Tensor:
    """Balanced k-means (BEKM): from random nodes as centroids, `balanced_assignment` and the means in turn.

    Ends when the centroids no longer move. A shard without nodes keeps its centroid; it may end up empty.
    """
    places, shards = checked_points(points), positive_integer(shards, "the number of shards")
    max_size = checked_shard_size(len(places), shards=shards, slack=slack)
    iterations = positive_integer(iterations, "the number of iterations")
    generator = np.random.default_rng(whole_number(seed, "the seed"))
    centroids = places[generator.choice(len(places), size=shards, replace=False)]
    labels = np.zeros(len(places), dtype=np.int64)
    for _ in range(iterations):
        # pair by pair and not as |x|^2 - 2 x c + |c|^2: so that equal points get equal distances
        labels = balanced_assignment(cdist(places, centroids, "sqeuclidean"), max_size=max_size)
        means = shard_means(places, labels, centroids)
        if np.array_equal(means, centroids):
            break
        centroids = means
    return torch.from_numpy(labels)


def positive_integer(value: Any, label: str) -> int:
    number = whole_number(value, label)
    if number < 1:
        raise InputError(f"{label} is {value!r}, a whole number from 1 is needed")
    return number


def checked_shard_size(nodes: int, *, shards: int, slack: float) -> int:
    """The capacity of a shard. Raises `InputError` if there are more shards than nodes."""
    max_size = capacity(nodes, shards=shards, slack=slack)
    if shards > nodes:
        raise InputError(f"the number of shards is {shards}, more than the {nodes} nodes")
    return max_size


def checked_points(points: Tensor) -> Floats:
    points = torch.as_tensor(points).detach().cpu()
    if points.dim() != 2 or points.shape[1] == 0 or points.layout != torch.strided or points.is_complex():
        shape = tuple(points.shape)
        raise InputError(f"the points are {points.dtype} of shape {shape}, dense real nodes x columns are needed")
    if not torch.isfinite(points).all():
        raise InputError("the points hold NaN or infinity, every value must be finite")
    places: Floats = points.to(torch.float64).numpy()
    largest = float(np.abs(places).max(initial=0))
    if largest > LARGEST:
        raise InputError(f"a value of a point is {largest:g}, values up to {LARGEST:g} are possible")
    return places


def adjacency_matrix(edge_index: Tensor, nodes: int) -> sp.csr_matrix:
    """The undirected graph as zeros and ones, without loops."""
    rows, columns = canonical_edges(edge_index, nodes, directed=False).numpy()
    real = rows != columns
    ends = (rows[real], columns[real])
    return sp.csr_matrix((np.ones(int(real.sum()), dtype=np.int64), ends), shape=(nodes, nodes))


def preferred_labels(
    adjacency: sp.csr_matrix, labels: Ints, *, shards: int, generator: np.random.Generator
) -> tuple[Ints, Ints]:
    """For each node the label that most of its neighbours hold, and how many do; ties fall at random.

    The histogram is `A onehot(labels)`. A node without neighbours prefers the label that it has.
    """
    nodes = labels.size
    onehot = sp.csr_matrix((np.ones(nodes, dtype=np.int64), labels, np.arange(nodes + 1)), shape=(nodes, shards))
    histogram = adjacency @ onehot
    histogram.sort_indices()  # the order in which the random numbers are dealt out
    filled = np.diff(histogram.indptr)
    scores = histogram.data + generator.random(histogram.nnz) / 2  # less than a neighbour: it only decides ties
    starts = histogram.indptr[:-1][filled > 0]
    if not starts.size:
        return labels.copy(), np.zeros_like(labels)
    best = np.flatnonzero(scores == np.repeat(np.maximum.reduceat(scores, starts), filled[filled > 0]))
    rows = np.repeat(np.arange(nodes), filled)[best]
    preferred, support = labels.copy(), np.zeros_like(labels)
    preferred[rows], support[rows] = histogram.indices[best], histogram.data[best]
    return preferred, support


def moved_labels(labels: Ints, preferred: Ints, order: Ints, *, shards: int, max_size: int) -> Ints:
    """The labels after the nodes of `order` have moved, one by one, to their preferred shard if it has a free place.

    A node whose preferred shard is full waits. A place that becomes free goes to the first waiting node, whose own
    place goes to the first node that waits for that, and so on; so nodes wait only for full shards.
    """
    current, targets = labels.tolist(), preferred.tolist()  # lists: a loop over array elements takes four times as long
    sizes = np.bincount(labels, minlength=shards).tolist()
    waiting: list[deque[int]] = [deque() for _ in range(shards)]
    for node in order.tolist():
        target = targets[node]
        if sizes[target] >= max_size:
            waiting[target].append(node)
            continue
        sizes[target] += 1
        current[node], free = target, current[node]
        while waiting[free]:
            follower = waiting[free].popleft()
            current[follower], free = free, current[follower]
        sizes[free] -= 1
    return np.array(current, dtype=np.int64)


def balanced_assignment(distances: Floats, *, max_size: int) -> Ints:
    """The assignment of the greedy sweep: all pairs by (distance, node, centroid), taken if both still have room.

    Node and centroid rank each other by the same order, so there is one stable matching, the sweep's, and deferred
    acceptance finds it: each node asks its nearest centroid, a centroid keeps its `max_size` nearest nodes, and the
    refused ask their next. `distances` is nodes x centroids, finite, with room for all.
    """
    shards = distances.shape[1]
    left = distances.copy()  # infinite where the centroid has refused the node
    farthest_member = np.full(shards, np.inf)  # the distance of the farthest node that a full centroid keeps
    labels: Ints = left.argmin(axis=1).astype(np.int64)
    while True:
        crowded = np.bincount(labels, minlength=shards) > max_size
        members = np.flatnonzero(crowded[labels])
        if not members.size:
            return labels
        distance = distances[members, labels[members]]
        order = np.lexsort((distance, labels[members]))  # stable, so ties go by the node's number
        members, distance = members[order], distance[order]
        chosen = labels[members]
        ranks = np.arange(members.size) - np.searchsorted(chosen, chosen)
        last, out = ranks == max_size - 1, ranks >= max_size
        farthest_member[chosen[last]] = distance[last]
        refused = members[out]
        left[refused, chosen[out]] = np.inf
        options = left[refused]
        labels[refused] = np.where(options > farthest_member, np.inf, options).argmin(axis=1)


def shard_means(places: Floats, labels: Ints, centroids: Floats) -> Floats:
    """The mean point of every shard; an empty one keeps its centroid."""
    shards, nodes = len(centroids), labels.size
    sizes = np.bincount(labels, minlength=shards)
    members = sp.csc_matrix((np.ones(nodes), labels, np.arange(nodes + 1)), shape=(shards, nodes))
    means: Floats = (members @ places) / np.maximum(sizes, 1)[:, None]
    return np.where(sizes[:, None] > 0, means, centroids)
