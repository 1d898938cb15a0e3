"""Fixed features of a pair of nodes: how similar they are, and how they are connected (docs/maths.md, section 15).

All of them come from the attributes and the message edges. Each is squashed by a fixed function, never by one that is
fitted, so that the features of a pair depend on nothing but the two nodes' neighbourhoods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.linalg.sparse import row_norms, scale_rows_to_unit, to_scipy

STRUCTURAL = (
    "log(1 + common neighbours)",
    "log(1 + Adamic-Adar)",
    "sqrt(resource allocation)",
    "Jaccard",
    "log(1 + weighted paths of length 3)",
    "sqrt(weighted paths of length 3)",
    "sum of log degrees",
    "product of log degrees",
    "difference of log degrees",
    "ends without a neighbour",
)
FLOOR = 0.01  # added to a norm before something is divided by it
FEW_COLUMNS = 512  # up to this number propagated attributes are dense anyway
PAIRS_AT_ONCE = 1 << 14
CELLS_AT_ONCE = 1 << 20  # they stay in the cache


@dataclass(frozen=True, eq=False)
class PairFeatures:
    """A row of features for each pair, and for each row at least its norm, all numbers taken in absolute value."""

    values: np.ndarray
    norms: np.ndarray


class Attributes:
    """The attributes of all nodes in float64, with rows of unit length if `scale_rows`: sparse if they are many."""

    def __init__(self, x: Tensor, *, scale_rows: bool) -> None:
        x = x.to(torch.float64)
        x = scale_rows_to_unit(x) if scale_rows else x
        self.norms: np.ndarray = row_norms(x).numpy()
        is_dense = x.layout == torch.strided or x.shape[1] <= FEW_COLUMNS
        self.rows: np.ndarray | sp.csr_matrix = x.to_dense().numpy() if is_dense else to_scipy(x)


class Messages:
    """The undirected graph of the message edges, given as m x 2 rows of nodes without self-loops."""

    def __init__(self, edges: np.ndarray, nodes: int) -> None:
        ends = np.concatenate([edges, edges[:, ::-1]])
        self.adjacency = sp.csr_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(nodes, nodes))
        self.adjacency.sort_indices()
        self.degrees = np.diff(self.adjacency.indptr).astype(np.float64)

    def propagation(self) -> sp.csr_matrix:
        """`D^-1/2 (A + I) D^-1/2`."""
        scale = sp.diags_array(1 / np.sqrt(self.degrees + 1))
        with_loops = sp.csr_matrix(self.adjacency + sp.eye_array(len(self.degrees)))
        return sp.csr_matrix(scale @ with_loops @ scale)


def num_features(powers: tuple[int, ...]) -> int:
    return 2 * len(powers) + len(STRUCTURAL)


def pair_features(
    pairs: np.ndarray, attributes: Attributes, messages: Messages, *, powers: tuple[int, ...]
) -> PairFeatures:
    """The features of pairs of rows: of similarity, for each power of the propagation, and `STRUCTURAL`.

    With `z = S^h x` the features of similarity are `z_u . z_v`, and the same divided by the norms of both.
    """
    structural = structural_features(pairs, messages)
    values, bounds = _similarities(pairs, attributes, messages, powers)
    norms = np.sqrt((bounds**2).sum(axis=1) + (structural**2).sum(axis=1))
    return PairFeatures(np.concatenate([values, structural], axis=1), norms)


def _similarities(
    pairs: np.ndarray, attributes: Attributes, messages: Messages, powers: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """The features of similarity, and what they would be at most without any cancellation."""
    s = messages.propagation()
    z, sizes = attributes.rows, attributes.norms
    values, bounds = np.empty((2, len(pairs), 2 * len(powers)))
    for hop in range(max(powers) + 1):
        z, sizes = (s @ z, s @ sizes) if hop else (z, sizes)
        if hop in powers:
            at = 2 * powers.index(hop)
            lengths = _lengths(z) + FLOOR
            (first, second), (length, other_length) = sizes[pairs].T, lengths[pairs].T
            values[:, at] = _row_products(z, pairs)
            values[:, at + 1] = values[:, at] / (length * other_length)
            bounds[:, at] = first * second
            first, second = first / length, second / other_length
            bounds[:, at + 1] = first * second + first + second  # the norms are rounded too
    return values, bounds


def _lengths(z: np.ndarray | sp.csr_matrix) -> np.ndarray:
    squares = (z * z).sum(axis=1) if isinstance(z, np.ndarray) else z.multiply(z).sum(axis=1)
    lengths: np.ndarray = np.sqrt(np.asarray(squares).ravel())
    return lengths


def _row_products(z: np.ndarray | sp.csr_matrix, pairs: np.ndarray) -> np.ndarray:
    """`z_u . z_v` for each pair."""
    products = np.empty(len(pairs))
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        u, v = pairs[start : start + PAIRS_AT_ONCE].T
        both = z[u] * z[v] if isinstance(z, np.ndarray) else z[u].multiply(z[v])
        products[start : start + PAIRS_AT_ONCE] = np.asarray(both.sum(axis=1)).ravel()
    return products


def structural_features(pairs: np.ndarray, messages: Messages) -> np.ndarray:
    """The features `STRUCTURAL` of each pair. Every sum has no negative term."""
    degrees = messages.degrees
    weights = np.stack([np.ones_like(degrees), 1 / np.log(np.maximum(degrees, 2)), 1 / np.maximum(degrees, 1)], axis=1)
    neighbours, adamic_adar, allocation = _over_common_neighbours(pairs, messages, weights).T
    first, second = degrees[pairs[:, 0]], degrees[pairs[:, 1]]
    paths = weighted_paths(pairs, messages)
    log_first, log_second = np.log1p(first), np.log1p(second)
    columns = (
        np.log1p(neighbours),
        np.log1p(adamic_adar),
        np.sqrt(allocation),
        neighbours / np.maximum(first + second - neighbours, 1),
        np.log1p(paths),
        np.sqrt(paths),
        log_first + log_second,
        log_first * log_second,
        np.abs(log_first - log_second),
        (first == 0).astype(np.float64) + (second == 0),
    )
    return np.stack(columns, axis=1)


def _over_common_neighbours(pairs: np.ndarray, messages: Messages, weights: np.ndarray) -> np.ndarray:
    """The sums of the rows of `weights` over the common neighbours of each pair, in ascending order of these.

    The neighbours of the end that has fewer of them are looked up among those of the other: hubs cost little.
    """
    adjacency, counts, n = messages.adjacency, np.diff(messages.adjacency.indptr), len(messages.degrees)
    keys = np.repeat(np.arange(n), counts) * n + adjacency.indices  # ascending
    swap = counts[pairs[:, 0]] > counts[pairs[:, 1]]
    few, many = np.where(swap, pairs[:, 1], pairs[:, 0]), np.where(swap, pairs[:, 0], pairs[:, 1])
    sums = np.zeros((len(pairs), weights.shape[1]))
    for block in _blocks(counts[few]):
        owner, places = _entries(adjacency, few[block])
        near = adjacency.indices[places]
        wanted = many[block][owner] * n + near
        found = np.searchsorted(keys, wanted)
        is_common = keys[np.minimum(found, len(keys) - 1)] == wanted
        owner, near = owner[is_common], near[is_common]
        for column, of_node in enumerate(weights.T):
            sums[block, column] = np.bincount(owner, weights=of_node[near], minlength=block.stop - block.start)
    return sums


def _blocks(sizes: np.ndarray) -> Iterator[slice]:
    """Slices of items with at most `CELLS_AT_ONCE` cells in all, or of one item; none of items without cells only."""
    ends = np.cumsum(sizes, dtype=np.int64)
    start = 0
    while start < len(ends) and ends[-1] > (done := ends[start] - sizes[start]):
        stop = max(int(np.searchsorted(ends, done + CELLS_AT_ONCE, side="right")), start + 1)
        yield slice(start, stop)
        start = stop


def _entries(matrix: sp.csr_matrix, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each entry of these rows of a matrix, the place of its row among `rows`, and its own place in the matrix."""
    starts, counts = matrix.indptr[rows].astype(np.int64), np.diff(matrix.indptr)[rows]
    owner = np.repeat(np.arange(len(rows)), counts)
    return owner, np.arange(owner.size) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def weighted_paths(pairs: np.ndarray, messages: Messages) -> np.ndarray:
    """`sum 1 / sqrt(d_a d_b)` over walks `u - a - b - v` for each pair (Kovács et al. 2019).

    Two steps from a block of nodes at once are a dense array; the last step only sums over the neighbours of `v`.
    """
    n = len(messages.degrees)
    step = sp.csr_matrix(messages.adjacency @ sp.diags_array(1 / np.sqrt(np.maximum(messages.degrees, 1))))
    counts = np.diff(step.indptr)
    order = np.argsort(pairs[:, 0], kind="stable")
    starts = pairs[order, 0]
    sums = np.zeros(len(pairs))
    block = max(CELLS_AT_ONCE // max(n, 1), 1)
    for low in range(0, n, block):
        chosen = order[slice(*np.searchsorted(starts, [low, low + block]))]
        if not chosen.size:
            continue
        two_steps = (step[low : low + block] @ messages.adjacency).toarray()
        for part in _blocks(counts[pairs[chosen, 1]]):
            u, v = pairs[chosen[part]].T
            owner, places = _entries(step, v)
            terms = two_steps[u[owner] - low, step.indices[places]] * step.data[places]
            sums[chosen[part]] = np.bincount(owner, weights=terms, minlength=len(v))
    return sums
