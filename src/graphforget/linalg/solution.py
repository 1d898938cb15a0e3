"""What every solver of `A x = b` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Product = Callable[[Tensor], Tensor]

Status = Literal["converged", "iterations spent", "negative curvature", "stagnated", "diverged", "not finite"]


@dataclass(frozen=True)
class Solution:
    """The result of a solver: the solution, its status and its residual."""

    x: Tensor
    status: Status
    iterations: int
    residual: float  # ||b - A x|| / ||b||
