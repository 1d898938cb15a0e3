"""A solve that leaves a preconditioner for later ones: the largest Ritz pairs of the matrix (docs/maths.md, section 9).

The Lanczos process gives an orthonormal basis `Q` of a Krylov space, a row for each product, and `T = Q A Q^T`. Then
`Q^T T^-1 Q b` solves `A x = b` in that space, as conjugate gradient does. `T y = l y` gives a Ritz pair `(l, Q^T y)`.
The largest ones are close to eigenpairs of `A`. They serve later solves with `A` and with matrices close to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphforget.linalg.solution import Product

SHARE = 0.5  # of the Ritz pairs, the largest ones: the others have not converged
FEWEST = 8  # Ritz pairs that are worth a preconditioner
EXHAUSTED = 1e-6  # of the norm of a product; what is left of it is rounding


@dataclass(frozen=True, eq=False)
class RitzPreconditioner:
    """`r -> r + U^T diag(shrinkage) U r`, with a row of `U` for each Ritz vector.

    Its eigenvalues are 1 and `f / l` with `f` the smallest of the Ritz values `l`, or more if rounding asks for it.
    It is positive definite whatever matrix it is used for, so conjugate gradient ends at the same solution with it.
    """

    vectors: Tensor  # U, with orthonormal rows
    shrinkage: Tensor  # f / l - 1

    @property
    def size(self) -> int:
        """The length of the vectors that it is for."""
        return self.vectors.shape[1]

    def __call__(self, residual: Tensor) -> Tensor:
        inside = (self.vectors @ residual.to(self.vectors)).mul_(self.shrinkage)
        return residual + (inside @ self.vectors).to(residual)


@dataclass(frozen=True, eq=False)
class KrylovSolution:
    """The solution of `A x = b` in a Krylov space, the products that it took, and a preconditioner from them."""

    x: Tensor
    products: int
    ritz: RitzPreconditioner | None  # None if the space is too small, or the matrix not positive definite there


def krylov_solution(product: Product, b: Tensor, *, products: int) -> KrylovSolution:
    """Solves `A x = b` for positive definite `A` with so many products, fewer if the Krylov space has no more.

    New directions are made orthogonal to all others, twice, which is enough.
    """
    most, scale = min(products, b.numel()), float(b.norm())
    basis, projected = b.new_empty(most, b.numel()), torch.zeros(most, most, dtype=torch.float64)
    direction, size = b / (scale or 1.0), 0
    while size < most and scale:
        basis[size] = direction
        size += 1
        image = product(direction)
        length, known = float(image.norm()), basis[:size]
        along = known @ image
        image = image - along @ known
        again = known @ image
        image -= again @ known
        projected[:size, size - 1] = projected[size - 1, :size] = (along + again).double()
        left = float(image.norm())
        if not left > EXHAUSTED * length:
            break
        direction = image / left
    values, inner = torch.linalg.eigh(projected[:size, :size])
    if not size or not values[0] > 0:
        return KrylovSolution(b.clone(), size, None)
    inside = inner @ (scale * inner[0] / values)
    chosen = int(SHARE * size)
    if chosen < FEWEST:
        return KrylovSolution(inside.to(basis) @ basis[:size], size, None)
    vectors = inner[:, -chosen:].T.to(basis) @ basis[:size]
    floor = torch.maximum(values[-chosen], values[-1] * torch.finfo(basis.dtype).eps ** 0.5)  # far over rounding errors
    shrinkage = ((floor / values[-chosen:]).clamp_max(1) - 1).to(basis)
    return KrylovSolution(inside.to(basis) @ basis[:size], size, RitzPreconditioner(vectors, shrinkage))
