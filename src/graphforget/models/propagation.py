"""The matrices that carry messages along edges."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphforget.linalg.sparse import SparseMatrix, csr_tensor


def adjacency(edge_index: Tensor, num_nodes: int, *, dtype: torch.dtype) -> SparseMatrix:
    """`A[target, source] = 1` for every edge."""
    ones = torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device)
    return _matrix(edge_index, ones, torch.bincount(edge_index[1], minlength=num_nodes))


def normalised_adjacency(
    edge_index: Tensor,
    num_nodes: int,
    *,
    dtype: torch.dtype,
    edge_weight: Tensor | None = None,
    true_degrees: Tensor | None = None,
) -> SparseMatrix:
    """`D^-1/2 (A + I) D^-1/2` with `D` the number of incoming edges, as in GCN and SGC. A self-loop counts once.

    With weights, `A` holds them and `D` is the sum of those of incoming edges, in float64. A node without a self-loop
    has one of weight 1. `true_degrees` are the degrees in a larger graph, of which not all edges are there.
    """
    full, is_sorted = _with_loops(edge_index, num_nodes)
    degrees = torch.bincount(full[1], minlength=num_nodes)
    if edge_weight is not None:
        weights = weights_with_loops(edge_index, edge_weight, full, num_nodes)
        scale = torch.bincount(full[1], weights=weights, minlength=num_nodes).rsqrt()
        values = (scale[full[1]] * scale[full[0]]).mul_(weights)  # in this order, so that it is symmetric
        return _matrix(full, values.to(dtype), degrees, is_sorted=is_sorted)
    scale = (degrees if true_degrees is None else true_degrees).to(dtype).rsqrt()
    values = scale.index_select(0, full[1]).mul_(scale.index_select(0, full[0]))
    return _matrix(full, values, degrees, is_sorted=is_sorted)


def plain_normalised_adjacency(edge_index: Tensor, num_nodes: int, *, dtype: torch.dtype) -> SparseMatrix:
    """`D^-1/2 A D^-1/2` without self-loops: a node without neighbours gets nothing, not even from itself."""
    degrees = torch.bincount(edge_index[1], minlength=num_nodes)
    scale = degrees.clamp_min(1).to(dtype).rsqrt()
    return _matrix(edge_index, scale[edge_index[1]] * scale[edge_index[0]], degrees)


def mean_adjacency(edge_index: Tensor, num_nodes: int, *, dtype: torch.dtype) -> SparseMatrix:
    """`D^-1 (A + I)` with `D` the number of incoming edges: every row is a mean, so none gets longer."""
    full, is_sorted = _with_loops(edge_index, num_nodes)
    degrees = torch.bincount(full[1], minlength=num_nodes)
    return _matrix(full, (1 / degrees.to(dtype))[full[1]], degrees, is_sorted=is_sorted)


def neighbour_mean_adjacency(edge_index: Tensor, num_nodes: int, *, dtype: torch.dtype) -> SparseMatrix:
    """`D^-1 A` with `D` the number of incoming edges: the mean over the neighbours, 0 for a node without any."""
    degrees = torch.bincount(edge_index[1], minlength=num_nodes)
    return _matrix(edge_index, (1 / degrees.to(dtype))[edge_index[1]], degrees)


def weighted_mean_adjacency(
    edge_index: Tensor, num_nodes: int, *, dtype: torch.dtype, weights: Tensor | None
) -> SparseMatrix:
    """`D^-1 A` with the weights of the edges in `A`, and `D` their sum at each node; without weights, the mean."""
    if weights is None:
        return neighbour_mean_adjacency(edge_index, num_nodes, dtype=dtype)
    target, degrees = edge_index[1], torch.bincount(edge_index[1], minlength=num_nodes)
    sums = torch.zeros(num_nodes, dtype=torch.float64, device=weights.device).index_add_(0, target, weights.double())
    return _matrix(edge_index, (weights.double() / sums[target]).to(dtype), degrees)


def weights_with_loops(edge_index: Tensor, edge_weight: Tensor, full: Tensor, num_nodes: int) -> Tensor:
    """The weights of edges with all self-loops: those of the graph, and 1 for the loops that it does not have."""
    keys, wanted = (edges[1] * num_nodes + edges[0] for edges in (edge_index, full))
    keys, order = keys.sort()
    place = torch.searchsorted(keys, wanted).clamp_max(max(keys.numel() - 1, 0))
    weights = torch.ones(wanted.numel(), dtype=torch.float64, device=full.device)
    if keys.numel():
        known = keys[place] == wanted
        weights[known] = edge_weight.to(torch.float64)[order[place[known]]]
    return weights


def _with_loops(edge_index: Tensor, n: int) -> tuple[Tensor, bool]:
    """Every node's self-loop once, put where it belongs if the edges are sorted by (target, source); if they are."""
    source, target = edge_index.cpu().numpy()
    if (source == target).any():
        source, target = source[source != target], target[source != target]
    loops = np.arange(n)
    keys = target * n + source
    is_sorted = not (keys[1:] <= keys[:-1]).any()
    if is_sorted:
        full = np.empty((2, source.size + n), dtype=np.int64)
        full[0, np.arange(source.size) + target + (source > target)] = source
        full[0, np.searchsorted(keys, loops * (n + 1)) + loops] = loops
        full[1] = np.repeat(loops, np.bincount(target, minlength=n) + 1)
    else:
        full = np.concatenate([[source, target], [loops, loops]], axis=1)
    return torch.from_numpy(full).to(edge_index.device), is_sorted


def _matrix(edges: Tensor, values: Tensor, degrees: Tensor, *, is_sorted: bool = False) -> SparseMatrix:
    """`M[target, source] = value`, from edges of which so many come in at each node."""
    n, (source, target) = degrees.numel(), edges
    if not is_sorted:
        keys = target * n + source
        if (keys.diff() < 0).any():
            order = keys.argsort()
            source, values = source[order], values[order]
    crow = torch.zeros(n + 1, dtype=torch.int64, device=edges.device)
    torch.cumsum(degrees, dim=0, out=crow[1:])
    return SparseMatrix(csr_tensor(crow, source, values, (n, n)))
