"""The matrices that carry messages along edges."""

from __future__ import annotations

import torch
from torch import Tensor

from graphforget.linalg.sparse import SparseMatrix, csr_tensor


def adjacency(edge_index: Tensor, num_nodes: int, *, dtype: torch.dtype) -> SparseMatrix:
    """`A[target, source] = 1` for every edge."""
    return _matrix(edge_index, torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device), num_nodes)


def normalised_adjacency(edge_index: Tensor, num_nodes: int, *, dtype: torch.dtype) -> SparseMatrix:
    """`D^-1/2 (A + I) D^-1/2` with `D` the number of incoming edges, as in GCN and SGC. A self-loop counts once."""
    full = _with_loops(edge_index, num_nodes)
    scale = torch.bincount(full[1], minlength=num_nodes).to(dtype).rsqrt()
    return _matrix(full, scale[full[1]] * scale[full[0]], num_nodes)


def _with_loops(edge_index: Tensor, n: int) -> Tensor:
    """Every node's self-loop once, put where it belongs if the edges are sorted by (target, source)."""
    if (edge_index[0] == edge_index[1]).any():
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    source, target = edge_index
    loops = torch.arange(n, device=source.device)
    keys = target * n + source
    if (keys.diff() <= 0).any():  # not sorted
        return torch.cat([edge_index, loops.expand(2, n)], dim=1)
    full = torch.empty(2, source.numel() + n, dtype=edge_index.dtype, device=source.device)
    place = torch.arange(source.numel(), device=source.device) + target + (source > target)
    full[0, place], full[1, place] = source, target
    full[:, torch.searchsorted(keys, loops * (n + 1)) + loops] = loops
    return full


def _matrix(edges: Tensor, values: Tensor, n: int) -> SparseMatrix:
    source, target = edges
    keys = target * n + source
    order = keys.argsort() if (keys.diff() < 0).any() else slice(None)
    crow = torch.zeros(n + 1, dtype=torch.int64, device=edges.device)
    torch.cumsum(torch.bincount(target, minlength=n), dim=0, out=crow[1:])
    return SparseMatrix(csr_tensor(crow, source[order], values[order], (n, n)))
