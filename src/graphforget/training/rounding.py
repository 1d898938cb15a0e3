"""Bounds on the rounding error of a gradient in float64 (docs/maths.md, section 9)."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.privacy.gaussian import release_ratio
from graphforget.privacy.noise import UNIT
from graphforget.training.losses import is_convex
from graphforget.training.objective import Objective
from graphforget.training.trained import Trained

NOT_CONVEX = "the objective is not strongly convex, so it is not known where its optimum can be"
LOST = 2.0**-400  # far over any norm whose square is rounded to nothing


def rounding_allowance(objective: Objective, theta: Tensor, *, gradient_norm: float) -> float:
    """A bound on the rounding error of the gradient for a model of fixed propagation; an estimate for others.

    The gradient is `(1/m) sum_i J_i^T r_i + mu theta` with `r_i = softmax(J_i theta) - e_i`. A sum of `k` terms in any
    order is off by at most `g_k = k u / (1 - k u)` times the sum of their sizes. So logits are off by `g_k q_i
    ||theta||` with `q_i` the norm of the row in absolute values, residuals by half of that (softmax is 1/2-Lipschitz)
    and by the rounding of softmax itself, and their sum by `g_k sqrt(2) q_i` more. Twice the first order covers the
    second. For another built-in loss its own smoothness and steepness stand for 1/2 and sqrt(2). The squared error has
    no largest gradient: `r_i = J_i theta - y_i` is at most `q_i ||theta|| + ||y_i||` long, and is rounded once. Noise
    in the objective adds `b / m`, a sum of one term. `u (mu ||theta|| + ||grad F||)` is for computing the centre.
    A norm whose square is rounded to nothing counts as 0 in all of this, so `LOST` is added.
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
    return 2 * (sums / objective.m + ends) + LOST


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


def notes_on_rounding(trained: Trained, graph: Graph) -> list[str]:
    """A warning if no release can be certified, because rounding alone takes the whole tolerance."""
    recipe = trained.recipe
    if not (recipe.sigma and trained.certifiable) or isinstance(graph, DistributedGraph):
        return []
    objective = trained.objective(graph)
    model = objective.data.affine_model
    if model is None or not model.has_fixed_features:
        return []
    rounding = rounding_allowance(objective, trained.theta, gradient_norm=trained.gradient_norm) / recipe.mu
    ratio = release_ratio(epsilon=recipe.epsilon, delta=recipe.delta, releases=recipe.releases)
    allowed = ratio * recipe.sigma
    if rounding < allowed:
        return []
    numbers = f"the tolerance {allowed:.1e} of this sigma is below the rounding error {rounding:.1e} on this graph"
    return [f"{numbers}, so no request can be certified: choose a larger mu or sigma, or shorter attributes"]
