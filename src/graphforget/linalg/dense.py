"""Dense solutions of small systems, as a reference for the iterative solvers."""

from __future__ import annotations

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.linalg.solution import Product, Solution

LARGEST = 5000  # a matrix of 200 MB in float64


def dense_matrix(product: Product, like: Tensor) -> Tensor:
    """The symmetric `A`, one product a column."""
    if like.numel() > LARGEST:
        raise InputError(f"a dense matrix of {like.numel():,} parameters is too large, up to {LARGEST:,} are possible")
    unit = torch.zeros_like(like)
    columns = []
    for i in range(like.numel()):
        unit[i] = 1
        columns.append(product(unit))
        unit[i] = 0
    matrix = torch.stack(columns)
    return (matrix + matrix.T) / 2


def dense_solve(product: Product, b: Tensor) -> Solution:
    """Solves `A x = b` by a Cholesky factor; returns `b` if `A` is not positive definite."""
    matrix = dense_matrix(product, b)
    size, scale = b.numel(), float(b.norm()) or 1.0
    if not torch.isfinite(matrix).all():
        return Solution(b.clone(), "not finite", size, float("inf"))
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed):
        return Solution(b.clone(), "negative curvature", size, float((b - matrix @ b).norm()) / scale)
    x = torch.cholesky_solve(b.unsqueeze(1), factor).squeeze(1)
    residual = float((b - matrix @ x).norm()) / scale
    return Solution(x, "converged" if residual <= 1e-6 else "stagnated", size, residual)
