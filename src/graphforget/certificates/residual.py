"""Measures where the optimum can be: in a ball whose centre and radius follow from one gradient.

docs/maths.md, sections 4 and 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.models.registry import is_affine
from graphforget.training.losses import Loss, assumed_convex, is_convex
from graphforget.training.objective import Objective
from graphforget.training.rounding import NOT_CONVEX, feature_rounding, rounding_allowance
from graphforget.training.trained import Trained

MARGIN = 8  # over one draw of rounding errors, in single precision
FINER = 2.0**29  # float64 rounds so many times more finely than float32


@dataclass(frozen=True, eq=False)
class Residual:
    """The gradient of a mu-strongly convex `F` at `theta`, computed in float64, and a bound on its rounding error.

    For the minimiser `t` strong monotonicity says `grad F(theta) . (theta - t) >= mu ||theta - t||^2`. Completing the
    square, `||theta - grad F / (2 mu) - t|| <= ||grad F|| / (2 mu)`: a ball through `theta`, half as wide as the one
    around `theta`.
    """

    theta: Tensor
    gradient: Tensor
    rounding: float
    mu: float

    @property
    def gradient_norm(self) -> float:
        return float(self.gradient.norm())

    @property
    def distance(self) -> float:
        """`(||grad F|| + rounding) / mu`: the minimiser is no further from `theta` than this."""
        return (self.gradient_norm + self.rounding) / self.mu

    @property
    def centre(self) -> Tensor:
        """`theta - grad F / (2 mu)`, the middle of where the minimiser can be."""
        return self.theta - self.gradient / (2 * self.mu)

    @property
    def radius(self) -> float:
        """`(||grad F|| / 2 + rounding) / mu`: the minimiser is no further from `centre`, as computed, than this."""
        return (self.gradient_norm / 2 + self.rounding) / self.mu


def residual(objective: Objective, theta: Tensor, *, gradient: Tensor | None = None) -> Residual:
    """Measures the gradient at `theta` over all training nodes, unless `gradient` gives it, in float64."""
    if not (objective.data.affine and assumed_convex(objective.data.loss)):
        raise InputError(NOT_CONVEX)
    if not is_convex(objective.data.loss):
        fresh = objective.with_fresh_features()
        objective, gradient = fresh, gradient if fresh is objective else None
    if gradient is None:
        gradient = objective.gradient(theta)
    rounding = rounding_allowance(objective, theta, gradient_norm=float(gradient.norm()))
    if not is_bounded(objective.data.module, objective.data.loss):
        rounding = max(rounding, _scaled_float32_error(objective, theta, gradient))
    return Residual(theta, gradient, rounding, objective.mu)


def noise_centre(trained: Trained, graph: Graph, *, centred: bool) -> Tensor:
    """What the noise of a release was added to: the centre of the ball that holds the optimum, or the weights."""
    if not centred:
        return trained.theta
    if not is_affine(trained.module):
        raise InputError(NOT_CONVEX)
    return residual(trained.objective(graph), trained.theta).centre


def feature_rounding_share(objective: Objective, theta: Tensor, tolerance: float) -> float:
    """Which part of a tolerance of the gradient the rounding errors of followed features take."""
    data, error = objective.data, objective.data.feature_error
    if error is None:
        return 0.0
    if not is_convex(data.loss):  # nothing bounds what a user's own loss makes of an error
        return math.inf
    return 2 * feature_rounding(objective, norm=float(theta.norm()), error=error) / objective.m / tolerance


def _scaled_float32_error(objective: Objective, theta: Tensor, gradient: Tensor) -> float:
    """The rounding error of the gradient in float32, scaled to float64. Unlike norms, it shows cancellation."""
    single = objective.in_single_precision()
    off = float((single.gradient(theta.to(single.like)).to(gradient) - gradient).norm())
    return MARGIN * off / FINER if math.isfinite(off) else math.inf


def is_bounded(module: nn.Module, loss: Loss) -> bool:
    """Whether `rounding_allowance` is a bound for this model and loss, and not an estimate."""
    return is_affine(module) and module.has_fixed_features and is_convex(loss)
