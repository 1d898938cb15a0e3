"""What every solver of `A x = b` takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

Product = Callable[[Tensor], Tensor]

Status = Literal["converged", "iterations spent", "negative curvature", "stagnated", "diverged", "not finite"]


class Preconditioner(Protocol):
    """A product with a positive definite matrix that is close to a multiple of `A^-1`."""

    @property
    def size(self) -> int:
        """The length of the vectors that it is for."""

    def __call__(self, residual: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Solution:
    """The result of a solver: the solution, its status and its residual."""

    x: Tensor
    status: Status
    iterations: int
    residual: float  # ||b - A x|| / ||b||
