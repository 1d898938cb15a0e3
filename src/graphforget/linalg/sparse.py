"""Constant sparse matrices that multiply dense ones, forwards and backwards, at full speed."""

from __future__ import annotations

import warnings
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)


class SparseMatrix:
    """A constant matrix `M`, kept as CSR together with the CSR of its transpose.

    `M @ V` is differentiable in `V` any number of times: the derivative of `V -> M V` is `U -> M^T U`. torch's own
    product would transpose the matrix anew in every backward pass (Physics, 64 columns: 160 ms instead of 36 ms).
    """

    def __init__(self, csr: Tensor) -> None:
        self.csr = csr

    @property
    def shape(self) -> torch.Size:
        return self.csr.shape

    @property
    def nnz(self) -> int:
        return self.csr.values().numel()

    @cached_property
    def T(self) -> SparseMatrix:
        transposed = SparseMatrix(from_scipy(to_scipy(self.csr).T.tocsr()).to(self.csr.device))
        transposed.__dict__["T"] = self
        return transposed

    def __matmul__(self, dense: Tensor) -> Tensor:
        product: Tensor = _Product.apply(dense, self)
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dense: Tensor, matrix: SparseMatrix) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.matrix = matrix
        return matrix.csr @ dense

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[no-untyped-def]
        return ctx.matrix.T @ gradient.contiguous(), None


def csr_tensor(crow: Tensor, columns: Tensor, values: Tensor, size: tuple[int, ...]) -> Tensor:
    """A CSR tensor from its parts, which the caller vouches for."""
    return torch.sparse_csr_tensor(crow, columns, values, size=size, check_invariants=False)


def from_scipy(matrix: sp.csr_matrix) -> Tensor:
    """A scipy CSR matrix as a torch CSR tensor in canonical form: sorted, no duplicates, no explicit zeros."""
    matrix = matrix.copy()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    crow, columns = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    values = torch.from_numpy(np.ascontiguousarray(matrix.data))
    return csr_tensor(torch.from_numpy(crow), torch.from_numpy(columns), values, matrix.shape)


def to_scipy(csr: Tensor) -> sp.csr_matrix:
    """A torch CSR (or dense) tensor as a scipy CSR matrix. It may share memory: do not change it."""
    if csr.layout != torch.sparse_csr:
        return sp.csr_matrix(csr.detach().cpu().numpy())
    csr = csr.detach().cpu()
    parts = (csr.values().numpy(), csr.col_indices().numpy(), csr.crow_indices().numpy())
    return sp.csr_matrix(parts, shape=tuple(csr.shape))


def with_values(csr: Tensor, values: Tensor) -> Tensor:
    """The same sparsity pattern with other values."""
    return csr_tensor(csr.crow_indices(), csr.col_indices(), values, tuple(csr.shape))


def entry_rows(csr: Tensor) -> Tensor:
    """The row number of every stored entry."""
    counts = csr.crow_indices().diff()
    return torch.repeat_interleave(torch.arange(csr.shape[0], device=csr.device), counts)


def keep_entries(csr: Tensor, keep: Tensor, rows: Tensor) -> Tensor:
    """The matrix with only the stored entries where `keep`, and only the rows where `rows` (both boolean)."""
    counts = torch.zeros(csr.shape[0], dtype=torch.int64, device=csr.device)
    counts.index_add_(0, entry_rows(csr), keep.to(torch.int64))
    keep = keep & rows[entry_rows(csr)]
    crow = torch.zeros(int(rows.sum()) + 1, dtype=torch.int64, device=csr.device)
    torch.cumsum(counts[rows], dim=0, out=crow[1:])
    size = (crow.numel() - 1, csr.shape[1])
    return csr_tensor(crow, csr.col_indices()[keep], csr.values()[keep], size)


def scale_rows_to_unit(matrix: Tensor) -> Tensor:
    """Every row divided by its Euclidean norm; rows too short to have one stay as they are."""
    norms = row_norms(as_matrix(matrix))
    norms = torch.where(norms > 0, norms, 1)
    if matrix.layout != torch.sparse_csr:
        return matrix / norms.unsqueeze(1)
    return with_values(matrix, matrix.values() / norms[entry_rows(matrix)])


class DenseMatrix:
    """A constant dense matrix with the same face as `SparseMatrix`."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    @property
    def nnz(self) -> int:
        return self.values.numel()

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.values @ dense


Matrix = SparseMatrix | DenseMatrix


def as_matrix(values: Tensor) -> Matrix:
    """A tensor as a constant matrix of its own layout."""
    return SparseMatrix(values) if values.layout == torch.sparse_csr else DenseMatrix(values)


def row_norms(matrix: Matrix) -> Tensor:
    """The Euclidean norm of every row."""
    if isinstance(matrix, DenseMatrix):
        return matrix.values.norm(dim=1)
    values = matrix.csr.values()
    squares = torch.zeros(matrix.shape[0], dtype=values.dtype, device=values.device)
    return squares.index_add_(0, entry_rows(matrix.csr), values.square()).sqrt()
