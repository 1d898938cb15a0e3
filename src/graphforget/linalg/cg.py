"""Conjugate gradient for `A x = b` with `A` given by its products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Status = Literal["converged", "iterations spent", "negative curvature"]


@dataclass(frozen=True)
class Solution:
    """What a solver found, and how far it got."""

    x: Tensor
    status: Status
    iterations: int
    residual: float  # ||b - A x|| / ||b||


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, *, tolerance: float = 1e-6, max_iterations: int = 1000
) -> Solution:
    """Solves `A x = b` for positive definite `A` until `||b - A x|| <= tolerance ||b||`.

    A direction of curvature at most 0 ends it with the last iterate (`b` itself if it was the first direction).
    """
    x = torch.zeros_like(b)
    scale = float(b.norm())
    if scale == 0.0:
        return Solution(x, "converged", 0, 0.0)
    residual, direction = b.clone(), b.clone()
    squared = float(residual @ residual)
    for iteration in range(1, max_iterations + 1):
        image = product(direction)
        curvature = float(direction @ image)
        if not curvature > 0.0:
            found = b.clone() if iteration == 1 else x
            return Solution(found, "negative curvature", iteration, squared**0.5 / scale)
        step = squared / curvature
        x = x + step * direction
        residual = residual - step * image
        previous, squared = squared, float(residual @ residual)
        if squared**0.5 <= tolerance * scale:
            return Solution(x, "converged", iteration, squared**0.5 / scale)
        direction = residual + (squared / previous) * direction
    return Solution(x, "iterations spent", max_iterations, squared**0.5 / scale)
