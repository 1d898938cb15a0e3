"""Measures where the optimum can be: in a ball whose centre and radius follow from one gradient.

docs/maths.md, sections 4 and 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.models.registry import is_affine
from graphforget.privacy.noise import UNIT
from graphforget.training.losses import Loss, assumed_convex, is_convex
from graphforget.training.objective import Objective
from graphforget.training.trained import Trained

NOT_CONVEX = "the objective is not strongly convex, so it is not known where its optimum can be"

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


def rounding_allowance(objective: Objective, theta: Tensor, *, gradient_norm: float) -> float:
    """A bound on the rounding error of the gradient for a model of fixed propagation; an estimate for others.

    The gradient is `(1/m) sum_i J_i^T r_i + mu theta` with `r_i = softmax(J_i theta) - e_i`. A sum of `k` terms in any
    order is off by at most `g_k = k u / (1 - k u)` times the sum of their sizes. So logits are off by `g_k q_i
    ||theta||` with `q_i` the norm of the row in absolute values, residuals by half of that (softmax is 1/2-Lipschitz)
    and by the rounding of softmax itself, and their sum by `g_k sqrt(2) q_i` more. Twice the first order covers the
    second. For another built-in loss its own smoothness and steepness stand for 1/2 and sqrt(2). The squared error has
    no largest gradient: `r_i = J_i theta - y_i` is at most `q_i ||theta|| + ||y_i||` long, and is rounded once. Noise
    in the objective adds `b / m`, a sum of one term. `u (mu ||theta|| + ||grad F||)` is for computing the centre.
    """
    data, model = objective.data, objective.data.affine_model
    if model is None:
        raise InputError(NOT_CONVEX)
    total, squares = data.row_norm_sums
    classes = data.jacobian_width
    error, length = data.feature_error, data.longest_sum
    gamma = length * UNIT / (1 - length * UNIT)
    norm = float(theta.norm()) + model.origin_norm  # the logits at public weights are computed too
    loss = data.loss
    known = is_convex(loss)  # nothing is known of a user's own loss: what is measured has to suffice
    shape: Any = {"classes": classes, "total": total, "squares": squares, "norm": norm}
    smooth, steep = (loss.smoothness, loss.steepness_sum(data.target_norm, **shape)) if known else (0.0, 0.0)
    largest = max(total * max(1.0, loss.gradient_scale), 0.0 if math.isfinite(loss.steepness(classes)) else steep)
    own = (classes + 20) * UNIT * largest  # of the residuals themselves
    sums = gamma * (smooth * squares * norm + steep) + own
    if error is not None and known:
        sums += feature_rounding(objective, norm=norm, error=error)
    noise = (
        0.0
        if objective.objective_noise_vector is None
        else float(objective.objective_noise_vector.norm()) / objective.m
    )
    ends = 5 * UNIT * (objective.mu * norm + gradient_norm + noise) + (theta.numel() + 2) * UNIT * gradient_norm
    return 2 * (sums / objective.m + ends)


def feature_rounding(objective: Objective, *, norm: float, error: float) -> float:
    """A bound on what features that are off by `error` in the Frobenius norm add to the summed gradient.

    Features that are off by `dz_i` move logits by at most `||dz_i|| ||theta||`, so the gradient of node i moves by at
    most `||dz_i|| (||r_i|| + smooth q_i ||theta||)`; the sum is bounded by Cauchy and Schwarz.
    """
    data, loss = objective.data, objective.data.loss
    _, squares = data.row_norm_sums
    shape: Any = {"rows": data.num_rows, "classes": data.jacobian_width, "squares": squares, "norm": norm}
    residuals = loss.steepness_norm(data.target_norm, **shape)
    return error * (residuals + loss.smoothness * norm * math.sqrt(squares))


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
