"""Conjugate gradient for `A x = b` with `A` given by its products."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from graphforget.linalg.solution import Product, Solution

DRIFT = 1e-6


# Longer than 50 lines because of its signature and its documentation.
def conjugate_gradient(
    product: Product,
    b: Tensor,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    remembered: int = 0,
    preconditioner: Product | None = None,
    on_iteration: Callable[[int, float], None] | None = None,
) -> Solution:
    """Solves `A x = b` for positive definite `A` until `||b - A x|| <= tolerance ||b||`.

    A direction of curvature at most 0 ends it with the last iterate (`b` itself if it was the first direction). The
    residual is that of the recurrence; below `DRIFT`, where rounding can part the two, the true one is computed and a
    solve that fell short of the tolerance by more than twice is called stagnated.

    Residuals are orthogonal to each other but for rounding errors, which cost iterations. With `remembered`, each is
    made orthogonal to so many of the first ones.

    A `preconditioner` is a product with a positive definite matrix that is close to a multiple of `A^-1`.
    Residuals are orthogonal in its inner product then, and none is remembered.
    """
    x = torch.zeros_like(b)
    scale = float(b.norm())
    if scale == 0.0:
        return Solution(x, "converged", 0, 0.0)
    residual = b.clone()
    turned = residual if preconditioner is None else preconditioner(residual)
    direction = turned.clone()
    basis = b.new_empty(min(remembered, max_iterations) if preconditioner is None else 0, b.numel())
    squared, norm = float(residual @ turned), scale
    for iteration in range(1, max_iterations + 1):
        if iteration <= basis.shape[0]:
            torch.div(residual, squared**0.5, out=basis[iteration - 1])
        image = product(direction)
        curvature = float(direction @ image)
        if not math.isfinite(curvature):
            return Solution(x, "not finite", iteration, norm / scale)
        if curvature <= 0.0:
            if iteration == 1:
                return Solution(b.clone(), "negative curvature", 1, float((b - image).norm()) / scale)
            return Solution(x, "negative curvature", iteration, norm / scale)
        step = squared / curvature
        x.add_(direction, alpha=step)
        residual.sub_(image, alpha=step)
        if basis.shape[0]:
            known = basis[:iteration]
            residual.sub_(known.T @ (known @ residual))
        norm = float(residual.norm())
        if on_iteration is not None:
            on_iteration(iteration, norm / scale)
        if norm <= tolerance * scale:
            reached = norm / scale if tolerance >= DRIFT else float((b - product(x)).norm()) / scale
            return Solution(x, "converged" if reached <= 2 * tolerance else "stagnated", iteration, reached)
        turned = residual if preconditioner is None else preconditioner(residual)
        previous, squared = squared, float(residual @ turned)
        direction.mul_(squared / previous).add_(turned)
    return Solution(x, "iterations spent", max_iterations, norm / scale)
