"""What solvers and rounding bounds need of a model whose logits are an affine function of its parameters."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from graphforget.linalg.jacobian import Jacobian


class AffineModel(nn.Module):
    """A model with logits `f_0 + J theta`, where `f_0` and `J` depend on the graph alone.

    This class says what such a model can answer, and proves nothing: a subclass of a user may override every method.
    Ask `registry.is_affine` first, which goes by the exact type.
    """

    has_fixed_features: ClassVar[bool] = False  # `f_0 = 0`, and `J` is known: what follows are bounds, not estimates

    @abstractmethod
    def logits_jacobian(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> Jacobian:
        """`f_0` and `J` of the logits of `rows`, from the inputs that the model is called with."""

    @abstractmethod
    def row_norm_sums(self, inputs: tuple[Any, Any], rows: Tensor, jacobian: Jacobian) -> tuple[float, float]:
        """`sum_i q_i` and `sum_i q_i^2` over `rows`, with `q_i` at least the norm of node i's row of `J`."""

    @abstractmethod
    def longest_sum(self, nodes: int) -> int:
        """More terms than any number in a gradient is added up from: over nodes, columns or units, layer by layer."""

    def feature_error(self, inputs: tuple[Any, Any]) -> float | None:
        """A bound on the Frobenius norm of the rounding error of features that followed deletions, if there are any."""
        return None

    def summed_nodes(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> int:
        """Over how many nodes a sum can run, beside those that `feature_error` covers."""
        return nodes

    @property
    def origin_norm(self) -> float:
        """The norm of the public weights that `f_0` is computed with; 0 if there are none."""
        return 0.0

    def can_share(self, like: Tensor) -> bool:
        """Whether it can compute with parameters of this type and device as it is, without a copy."""
        return False
