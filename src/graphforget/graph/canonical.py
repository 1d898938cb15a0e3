"""Edges in canonical form: for every node the nodes that send to it, ascending, each once (CSR).

Lists of edges may be large, so nothing here works on 64-bit keys of the whole list. A list that is sorted is read as it
is; other lists, transposes and unions take linear time and 32-bit indices (scipy).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.errors import InputError

BLOCK = 1 << 20  # edges that are looked at together; their temporaries stay in cache


@dataclass(frozen=True)
class CanonicalEdges:
    """The edges of a graph, for every receiving node its senders in ascending order.

    Attributes:
        indptr: n + 1 int64; the senders of node v are `indices[indptr[v]:indptr[v + 1]]`.
        indices: int32 senders, ascending for every node, without repetitions.
        repeated: How many entries of the list that was given repeat an earlier one. The other direction of an edge is
            no repetition.
        directed: False if every edge is present in both directions.
    """

    indptr: Tensor
    indices: Tensor
    repeated: int
    directed: bool


def canonical_adjacency(edges: Any, n: int, *, directed: bool | None) -> CanonicalEdges:
    """The canonical form of a list of edges, which is neither changed nor kept.

    Args:
        edges: 2 x E rows of senders and receivers in any order; each undirected edge once, or in both directions, or a
            mixture. Canonical edges are returned as they are.
        n: The number of nodes.
        directed: Whether messages flow only from `edges[0]` to `edges[1]`. If False, the missing directions are added.
            If None, the graph is undirected if every edge is present in both directions.

    Returns:
        The canonical edges. They share no memory with the list.

    Raises:
        InputError: The list is malformed, or names a node that the graph does not have.
    """
    if isinstance(edges, CanonicalEdges):
        assert edges.indptr.numel() == n + 1
        assert directed in (None, edges.directed)
        return edges
    pairs = checked_pairs(edges, n).numpy()
    forward, turned = _adjacency(pairs[0], pairs[1], n)
    repeated = pairs.shape[1] - forward.nnz
    if not directed:
        turned = _transposed(forward) if turned is None else turned
        symmetric = _same_pattern(forward, turned)
        directed = directed is None and not symmetric
        if not directed and not symmetric:
            forward = forward + turned
    return _canonical(forward, repeated, directed)


def checked_pairs(edges: Any, n: int) -> Tensor:
    """The list as an integer tensor on the CPU; it is shared with the input if that is of 32 or 64 bits.

    Raises:
        InputError: The list is malformed, or names a node that the graph does not have.
    """
    edges = torch.as_tensor(edges).detach().cpu()
    if edges.numel() == 0:
        return torch.zeros(2, 0, dtype=torch.int64)
    if edges.dim() != 2 or edges.shape[0] != 2 or edges.dtype.is_floating_point:
        raise InputError(f"the edges are {edges.dtype} of shape {tuple(edges.shape)}, whole numbers 2 x E are needed")
    if edges.dtype not in (torch.int32, torch.int64):
        edges = edges.to(torch.int64)
    low, high = map(int, edges.aminmax())
    if low < 0 or high >= n:
        raise InputError(f"an edge names node {low if low < 0 else high}, the graph has nodes 0 to {n - 1}")
    return edges


def edge_list(indptr: Tensor, indices: Tensor) -> Tensor:
    """The edges of a CSR as 2 x E int64, sorted by receiver, then by sender."""
    edges = torch.empty(2, indices.numel(), dtype=torch.int64)
    edges[0] = indices
    receivers = edges[1].numpy()
    for (first, last), block in receiver_blocks(indptr, BLOCK):
        receivers[first:last] = block
    return edges


def receiver_blocks(indptr: Tensor, size: int) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """The receiver of every edge of a CSR, some `size` edges at a time: the edges' range, and their receivers."""
    starts = indptr.numpy()
    bounds = np.unique(np.searchsorted(starts, np.arange(0, int(starts[-1]) + size, size)).clip(max=starts.size - 1))
    for top, bottom in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        counts = np.diff(starts[top : bottom + 1])
        yield (int(starts[top]), int(starts[bottom])), np.repeat(np.arange(top, bottom), counts)


def _adjacency(senders: np.ndarray, receivers: np.ndarray, n: int) -> tuple[sp.csr_matrix, sp.csr_matrix | None]:
    """Receivers x senders without repetitions; and the transpose where it is known on the way."""
    forward = _from_sorted(receivers, senders, n)
    if forward is not None:
        return forward, None
    backward = _from_sorted(senders, receivers, n)
    if backward is not None:
        return _transposed(backward), backward
    return _from_unsorted(receivers, senders, n), None


def _from_unsorted(major: np.ndarray, minor: np.ndarray, n: int) -> sp.csr_matrix:
    """The CSR of pairs in any order, without repetitions."""
    rows, columns = major.astype(np.int32), minor.astype(np.int32)
    return sp.csr_matrix((np.ones(rows.size, dtype=bool), (rows, columns)), shape=(n, n))


def _from_sorted(major: np.ndarray, minor: np.ndarray, n: int) -> sp.csr_matrix | None:
    """The CSR of pairs that are in ascending order already, without repetitions; None if they are not in order."""
    repeated = _repeated_in_order(major, minor, n)
    if repeated is None:
        return None
    indptr = np.searchsorted(major, np.arange(n + 1, dtype=major.dtype))
    indices = minor.astype(np.int32)
    if repeated.size:
        indices = np.delete(indices, repeated)
        indptr -= np.searchsorted(repeated, indptr)
    return _matrix(indptr, indices, n)


def _repeated_in_order(major: np.ndarray, minor: np.ndarray, n: int) -> np.ndarray | None:
    """The places that repeat the pair before them, if the pairs are in ascending order; None if they are not."""
    repeated = []
    for start in range(0, major.size, BLOCK):
        part = slice(start, start + BLOCK + 1)  # one pair of the next block
        keys = major[part].astype(np.int64)
        keys *= n
        keys += minor[part]
        steps = np.diff(keys)
        least = steps.min(initial=1)
        if least < 0:
            return None
        if least == 0:
            repeated.append(np.flatnonzero(steps == 0) + (start + 1))
    return np.concatenate(repeated) if repeated else np.zeros(0, dtype=np.int64)


def _matrix(indptr: np.ndarray, indices: np.ndarray, n: int) -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(indices.size, dtype=bool), indices, indptr), shape=(n, n))


def _transposed(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """The transpose by one counting sort, with ascending indices."""
    by_column = matrix.tocsc()
    return _matrix(by_column.indptr, by_column.indices, matrix.shape[0])


def _same_pattern(first: sp.csr_matrix, second: sp.csr_matrix) -> bool:
    return np.array_equal(first.indptr, second.indptr) and np.array_equal(first.indices, second.indices)


def _canonical(matrix: sp.csr_matrix, repeated: int, directed: bool) -> CanonicalEdges:
    indptr = torch.from_numpy(matrix.indptr.astype(np.int64))
    indices = torch.from_numpy(matrix.indices.astype(np.int32, copy=False))
    return CanonicalEdges(indptr, indices, repeated=repeated, directed=directed)
