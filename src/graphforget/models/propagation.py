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
    source, target = edge_index
    loops = torch.arange(num_nodes, device=edge_index.device)
    others = source != target
    full = torch.stack([torch.cat([source[others], loops]), torch.cat([target[others], loops])])
    degree = torch.bincount(full[1], minlength=num_nodes).to(dtype)
    scale = degree.rsqrt()
    return _matrix(full, scale[full[1]] * scale[full[0]], num_nodes)


def _matrix(edges: Tensor, values: Tensor, n: int) -> SparseMatrix:
    source, target = edges
    keys = target * n + source
    order = keys.argsort() if (keys.diff() < 0).any() else slice(None)
    crow = torch.zeros(n + 1, dtype=torch.int64, device=edges.device)
    torch.cumsum(torch.bincount(target, minlength=n), dim=0, out=crow[1:])
    return SparseMatrix(csr_tensor(crow, source[order], values[order], (n, n)))
