"""Extreme eigenvalues of a symmetric matrix given by its products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from graphforget.linalg.solution import Product

Status = Literal["converged", "steps spent", "stopped", "not finite"]


@dataclass(frozen=True)
class Extremes:
    """Ritz values: the smallest eigenvalue is at most `smallest`, the largest at least `largest`.

    An eigenvalue lies within the residual of each. The smallest Ritz value can only decrease with more steps, so it can
    refute a lower bound on the spectrum, but never prove one.
    """

    smallest: float
    largest: float
    smallest_residual: float
    largest_residual: float
    status: Status
    products: int


def extreme_eigenvalues(
    product: Product,
    like: Tensor,
    *,
    steps: int = 30,
    seed: int = 0,
    tolerance: float = 1e-3,
    stop_below: float | None = None,
) -> Extremes:
    """Lanczos with full reorthogonalisation, from a random vector shaped as `like`, for at most `steps` products.

    Ends early when both residuals are under `tolerance` times the largest magnitude, or when a Ritz value is below
    `stop_below`.
    """
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(like.numel(), generator=generator, dtype=torch.float64).to(like)
    basis = [start / start.norm()]
    alphas: list[float] = []
    betas: list[float] = []
    extremes = Extremes(float("nan"), float("nan"), float("inf"), float("inf"), "not finite", 0)
    for step in range(1, min(steps, like.numel()) + 1):
        image = product(basis[-1])
        alphas.append(float(basis[-1] @ image))
        for _ in range(2):  # twice is enough
            for vector in basis:
                image = image - (vector @ image) * vector
        beta = float(image.norm())
        if not np.isfinite([alphas[-1], beta]).all():
            return extremes
        values, vectors = eigh_tridiagonal(np.array(alphas), np.array(betas))
        residuals = beta * np.abs(vectors[-1])
        size = max(abs(values[0]), abs(values[-1]))
        converged = max(residuals[0], residuals[-1]) <= tolerance * size
        exhausted = beta <= 1e-14 * max(size, 1e-300)
        below = stop_below is not None and values[0] < stop_below
        status: Status = "converged" if converged or exhausted else "stopped" if below else "steps spent"
        extremes = Extremes(
            float(values[0]), float(values[-1]), float(residuals[0]), float(residuals[-1]), status, step
        )
        if status != "steps spent":
            return extremes
        betas.append(beta)
        basis.append(image / beta)
    return extremes
