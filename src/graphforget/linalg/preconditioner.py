"""A low-rank preconditioner for the curvature of a model that is linear in its weights (docs/maths.md, section 9).

With features `z_i` and curvatures `B_i` of the losses, `H = sum_i B_i (x) z_i z_i^T / m + mu I`. With `w_i I` in place
of `B_i`, all outputs share one matrix `G = sum_i w_i z_i z_i^T / m`. Few of its eigenvalues are far above `mu`, and
conjugate gradient needs its iterations for these.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphforget.linalg.jacobian import Jacobian


@dataclass(frozen=True, eq=False)
class LowRankPreconditioner:
    """`r -> r + U diag(shrinkage) U^T r` for each output; `r` has a column for each.

    Its eigenvalues are positive, so conjugate gradient ends at the same solution with it, and sooner.
    """

    vectors: Tensor  # U, with orthonormal columns
    shrinkage: Tensor  # min(1, floor / (eigenvalues + mu)) - 1
    outputs: int

    @property
    def size(self) -> int:
        """The length of the vectors that it is for."""
        return self.vectors.shape[0] * self.outputs

    def __call__(self, residual: Tensor) -> Tensor:
        matrix = residual.view(self.vectors.shape[0], -1)
        inside = self.vectors.T @ matrix.to(self.vectors)
        inside.mul_(self.shrinkage[:, None])
        return (matrix + (self.vectors @ inside).to(matrix)).flatten()


def low_rank_preconditioner(jacobian: Jacobian, row_weights: Tensor, *, mu: float) -> LowRankPreconditioner | None:
    """One step of subspace iteration from sums of rows with random signs, at the cost of about two curvature products.

    Its rank is the number of outputs, so that each step is one product with the Jacobian. None if there are too few
    features for that. The floor is the smallest eigenvalue found, or the largest one times the root of the rounding
    unit: with a smaller one, rounding errors would make the preconditioner indefinite.

    Args:
        jacobian: That of the logits, with `has_shared_features`.
        row_weights: `w_i`, not negative.
        mu: The weight of the L2 term.
    """
    rows, outputs = jacobian.value.shape
    generator = torch.Generator().manual_seed(0)  # any sketch does; the same one gives the same bits
    columns, signs = (torch.randint(0, most, (rows, 1), generator=generator) for most in (outputs, 2))
    weights = row_weights[:, None]
    sketch = weights.new_zeros(rows, outputs).scatter_(1, columns.to(weights.device), weights.sqrt())
    basis = _features_first(jacobian, sketch * (2.0 * signs.to(weights) - 1))
    if basis.shape[0] < 2 * outputs:
        return None
    basis = torch.linalg.qr(basis).Q
    basis = torch.linalg.qr(_features_first(jacobian, weights * jacobian.apply(basis.flatten()))).Q
    image = jacobian.apply(basis.flatten())
    projected = image.T @ (weights * image) / rows
    eigenvalues, inner = torch.linalg.eigh((projected + projected.T) / 2)
    eigenvalues = eigenvalues.clamp_min(0) + mu
    floor = torch.maximum(eigenvalues[0], eigenvalues[-1] * torch.finfo(eigenvalues.dtype).eps ** 0.5)
    return LowRankPreconditioner(basis @ inner, (floor / eigenvalues).clamp_max(1) - 1, outputs)


def _features_first(jacobian: Jacobian, outputs: Tensor) -> Tensor:
    """`Z^T u`, a row for each feature."""
    return jacobian.adjoint(outputs).view(-1, outputs.shape[1])
