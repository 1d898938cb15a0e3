"""Constant sparse matrices that multiply dense ones, forwards and backwards, at full speed."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)


SHORT, LONGER = 2.0**-400, 2.0**600  # squares in shorter rows are rounded to nothing in float64; what they grow by
FEW = 64  # rows; up to this number they are removed one by one


class SparseMatrix:
    """A constant matrix `M`, kept as CSR together with the CSR of its transpose.

    `M @ V` is differentiable in `V` any number of times: the derivative of `V -> M V` is `U -> M^T U`. torch's own
    product would transpose the matrix again in every backward pass (Physics, 64 columns: 160 ms instead of 36 ms).
    """

    def __init__(self, csr: Tensor) -> None:
        self.csr = narrowed(csr)
        self._is_symmetric = False
        self._turned: SparseMatrix | None = None
        self._turned_from: weakref.ref[SparseMatrix] | None = None  # not a cycle, which Python would free late

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_turned": None, "_turned_from": None}  # weak references do not travel

    @property
    def shape(self) -> torch.Size:
        return self.csr.shape

    @property
    def nnz(self) -> int:
        return self.csr.values().numel()

    @property
    def T(self) -> SparseMatrix:
        """The transpose, computed once."""
        if self._is_symmetric:
            return self
        origin = None if self._turned_from is None else self._turned_from()
        if origin is not None:
            return origin
        if self._turned is None:
            parts = to_scipy(self.csr).tocsc()  # by columns: the transpose by rows
            crow, columns, values = map(torch.from_numpy, (parts.indptr, parts.indices, parts.data))
            turned = csr_tensor(crow, columns, values, (parts.shape[1], parts.shape[0]))
            self._turned = SparseMatrix(turned.to(self.csr.device))
            self._turned._turned_from = weakref.ref(self)
        return self._turned

    def to(self, dtype: torch.dtype) -> SparseMatrix:
        """The same matrix in another precision."""
        matrix = SparseMatrix(with_values(self.csr, self.csr.values().to(dtype)))
        if self._turned is not None:  # its order need not be found again
            matrix._turned = SparseMatrix(with_values(self._turned.csr, self._turned.csr.values().to(dtype)))
            matrix._turned._turned_from = weakref.ref(matrix)
        return matrix.symmetric() if self._is_symmetric else matrix

    def symmetric(self) -> SparseMatrix:
        """Marks the matrix as symmetric, which the caller guarantees, and returns it."""
        self._is_symmetric = True
        return self

    def __matmul__(self, dense: Tensor) -> Tensor:
        if not (dense.requires_grad and torch.is_grad_enabled()):  # autograd costs much on small graphs
            return self.csr @ dense
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
    """A CSR tensor from its parts, which are not checked."""
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


def narrowed(csr: Tensor) -> Tensor:
    """With 32-bit indices if they suffice: products are faster by at least a fifth."""
    crow, columns = csr.crow_indices(), csr.col_indices()
    if crow.dtype == torch.int32 or max(columns.numel(), *csr.shape) > torch.iinfo(torch.int32).max:
        return csr
    return csr_tensor(crow.to(torch.int32), columns.to(torch.int32), csr.values(), tuple(csr.shape))


def converted(matrix: Tensor, *, dtype: torch.dtype, device: str | torch.device) -> Tensor:
    """A sparse or dense tensor in another precision or on another device; shared if nothing changes."""
    if matrix.layout != torch.sparse_csr or matrix.device != torch.device(device):
        return matrix.to(device=device, dtype=dtype)
    return with_values(matrix, matrix.values().to(dtype))


def with_values(csr: Tensor, values: Tensor) -> Tensor:
    """The same sparsity pattern with other values."""
    return csr_tensor(csr.crow_indices(), csr.col_indices(), values, tuple(csr.shape))


def entry_rows(csr: Tensor) -> Tensor:
    """The row number of every stored entry."""
    return repeated(torch.arange(csr.shape[0], device=csr.device), csr.crow_indices().diff())


def repeated(values: Tensor, counts: Tensor) -> Tensor:
    """Each value so many times; on the CPU by numpy, which takes a twentieth of torch's time."""
    if values.device.type != "cpu":
        return torch.repeat_interleave(values, counts)
    return torch.from_numpy(np.repeat(values.numpy(), counts.numpy()))


def keep_entries(csr: Tensor, keep: Tensor, rows: Tensor) -> Tensor:
    """The matrix with only the stored entries where `keep`, and only the rows where `rows` (both boolean)."""
    starts = csr.crow_indices().numpy()
    stays = keep.numpy() & np.repeat(rows.numpy(), np.diff(starts))
    removed_before = np.searchsorted(np.flatnonzero(~stays), starts)
    ends = torch.from_numpy(starts - removed_before)
    crow = torch.cat([ends[:1], ends[1:][rows]])
    size = (crow.numel() - 1, csr.shape[1])
    mask = torch.from_numpy(stays)
    return csr_tensor(crow, masked(csr.col_indices(), mask), masked(csr.values(), mask), size)


def without_rows(csr: Tensor, keep: Tensor) -> Tensor:
    """The rows where `keep`. A few rows are removed by copying the blocks between them, many by masks."""
    removed = np.flatnonzero(~keep.numpy())
    if removed.size > FEW:
        return keep_entries(csr, torch.ones(csr.values().numel(), dtype=torch.bool), keep)
    starts = csr.crow_indices().numpy()
    ends = zip([0, *starts[removed + 1].tolist()], [*starts[removed].tolist(), int(starts[-1])], strict=True)
    pieces = [slice(first, last) for first, last in ends]
    crow = np.concatenate([[0], np.delete(np.diff(starts), removed).cumsum()])
    columns, values = (torch.cat([part[piece] for piece in pieces]) for part in (csr.col_indices(), csr.values()))
    return csr_tensor(torch.from_numpy(crow), columns, values, (crow.size - 1, csr.shape[1]))


def selected_rows(csr: Tensor, rows: Tensor) -> Tensor:
    """These rows, in this order."""
    part = to_scipy(csr)[rows.cpu().numpy()]
    crow, columns, values = map(torch.from_numpy, (part.indptr, part.indices, part.data))
    return csr_tensor(crow, columns, values, part.shape).to(csr.device)


def masked(values: Tensor, keep: Tensor) -> Tensor:
    """`values[..., keep]` on the CPU by numpy, which takes a tenth of torch's time."""
    return torch.from_numpy(np.compress(keep.numpy(), values.numpy(), axis=-1))


def scale_rows_to_unit(matrix: Tensor) -> Tensor:
    """Every row divided by its Euclidean norm; rows of zeros stay as they are."""
    norms = row_norms(matrix)
    if matrix.dtype == torch.float64 and (norms < SHORT).any():
        matrix = _with_longer_rows(matrix, norms < SHORT)
        norms = row_norms(matrix)
    norms = torch.where(norms > 0, norms, 1)
    if matrix.layout != torch.sparse_csr:
        return matrix / norms.unsqueeze(1)
    return with_values(matrix, matrix.values() / repeated(norms, matrix.crow_indices().diff()))


def _with_longer_rows(matrix: Tensor, short: Tensor) -> Tensor:
    """The matrix with these rows times a power of two, which scales to the same rows, unless all of them are zeros."""
    if matrix.layout != torch.sparse_csr:
        return torch.where(short.unsqueeze(1), matrix * LONGER, matrix) if matrix[short].any() else matrix
    values, longer = matrix.values(), repeated(short, matrix.crow_indices().diff())
    return with_values(matrix, torch.where(longer, values * LONGER, values)) if values[longer].any() else matrix


class DenseMatrix:
    """A constant dense matrix with the interface of `SparseMatrix`."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    @property
    def nnz(self) -> int:
        return self.values.numel()

    def to(self, dtype: torch.dtype) -> DenseMatrix:
        """The same matrix in another precision."""
        return DenseMatrix(self.values.to(dtype))

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.values @ dense


class BoundedMatrix(DenseMatrix):
    """A dense matrix with a bound on the norm of each row, all numbers that it comes from taken in absolute value."""

    def __init__(self, values: Tensor, norms: Tensor) -> None:
        super().__init__(values)
        self.norms = norms

    def to(self, dtype: torch.dtype) -> BoundedMatrix:
        return BoundedMatrix(self.values.to(dtype), self.norms.to(dtype))


Matrix = SparseMatrix | DenseMatrix


def as_matrix(values: Tensor) -> Matrix:
    """A tensor as a constant matrix of its own layout."""
    return SparseMatrix(values) if values.layout == torch.sparse_csr else DenseMatrix(values)


def row_norms(matrix: Tensor) -> Tensor:
    """The Euclidean norm of every row, sparse or dense. A sparse row is added up in its own order, on the CPU."""
    if matrix.layout != torch.sparse_csr:
        return matrix.norm(dim=1)
    values = matrix.values()
    if values.device.type == "cpu" and not values.requires_grad:
        squares = to_scipy(with_values(matrix, values.square()))
        return torch.from_numpy(squares @ np.ones(matrix.shape[1], dtype=squares.dtype)).sqrt()
    ones = torch.ones(matrix.shape[1], 1, dtype=values.dtype, device=values.device)
    norms: Tensor = (with_values(matrix, values.square()) @ ones).squeeze(1).sqrt()
    return norms
