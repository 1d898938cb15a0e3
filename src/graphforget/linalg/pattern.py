"""Sums along the entries of one sparsity pattern whose values vary, differentiable any number of times.

With the pattern's entries `e` at (row, column):

    weighted_sum(v, R)[row]  = sum over e in row of v_e R[column]
    inner_products(L, R)_e   = L[row] . R[column]

The derivatives of each are made of both, so nothing of size entries x features is ever formed. Values are
entries x heads and features nodes x heads x features; heads are independent.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from graphforget.linalg.sparse import csr_tensor


class Pattern:
    """Where a square CSR matrix has entries, and how those are ordered in its transpose."""

    def __init__(self, rows: Tensor, columns: Tensor, size: int) -> None:
        """`rows` and `columns` of the entries, sorted by row, then column."""
        self.rows, self.columns, self.size = rows, columns, size
        self.crow = torch.zeros(size + 1, dtype=torch.int64, device=rows.device)
        torch.cumsum(torch.bincount(rows, minlength=size), dim=0, out=self.crow[1:])

    @cached_property
    def order(self) -> Tensor:
        """The entries in the transpose's order."""
        return (self.columns * self.size + self.rows).argsort()

    @cached_property
    def T(self) -> Pattern:
        transposed = Pattern(self.columns[self.order], self.rows[self.order], self.size)
        inverse = torch.empty_like(self.order)
        inverse[self.order] = torch.arange(self.order.numel(), device=self.order.device)
        transposed.__dict__.update(T=self, order=inverse)
        return transposed

    def weighted_sum(self, values: Tensor, dense: Tensor) -> Tensor:
        out: Tensor = _WeightedSum.apply(values, dense, self)
        return out

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        out: Tensor = _InnerProducts.apply(left, right, self)
        return out

    def in_transpose(self, values: Tensor) -> Tensor:
        """`values`, reordered for the transpose."""
        out: Tensor = _Reordered.apply(values, self)
        return out

    def filled(self, values: Tensor) -> Tensor:
        """The CSR matrix with these values, one for each entry."""
        return csr_tensor(self.crow, self.columns, values.contiguous(), (self.size, self.size))


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: Tensor, dense: Tensor, pattern: Pattern) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.pattern = pattern
        ctx.save_for_backward(values, dense)
        heads = range(values.shape[1])
        return torch.stack([pattern.filled(values[:, h]) @ dense[:, h].contiguous() for h in heads], dim=1)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[no-untyped-def]
        values, dense = ctx.saved_tensors
        pattern = ctx.pattern
        by_values = pattern.inner_products(gradient, dense) if ctx.needs_input_grad[0] else None
        by_dense = None
        if ctx.needs_input_grad[1]:
            by_dense = pattern.T.weighted_sum(pattern.in_transpose(values), gradient)
        return by_values, by_dense, None


class _InnerProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.pattern = pattern
        ctx.save_for_backward(left, right)
        where = pattern.filled(left.new_zeros(pattern.rows.numel()))

        def one(h: int) -> Tensor:
            a, b = left[:, h].contiguous(), right[:, h].t().contiguous()
            return torch.sparse.sampled_addmm(where, a, b, beta=0.0).values()

        return torch.stack([one(h) for h in range(left.shape[1])], dim=1)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[no-untyped-def]
        left, right = ctx.saved_tensors
        pattern = ctx.pattern
        by_left = pattern.weighted_sum(gradient, right) if ctx.needs_input_grad[0] else None
        by_right = None
        if ctx.needs_input_grad[1]:
            by_right = pattern.T.weighted_sum(pattern.in_transpose(gradient), left)
        return by_left, by_right, None


class _Reordered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: Tensor, pattern: Pattern) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.pattern = pattern
        return values[pattern.order]

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[no-untyped-def]
        return ctx.pattern.T.in_transpose(gradient), None
