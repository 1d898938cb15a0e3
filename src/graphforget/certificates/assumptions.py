"""Measures what the paper's bound assumes of a model."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from graphforget.certificates.conditions import BOUNDED, CONVEX, LIPSCHITZ, ConditionCheck, Verdict, trained_to_optimum
from graphforget.linalg.lanczos import extreme_eigenvalues
from graphforget.privacy.paper_bounds import Constants
from graphforget.training.objective import Objective


def measure_conditions(
    before: Objective,
    after: Objective,
    *,
    start: Tensor,
    end: Tensor,
    removed: Tensor,
    removed_before: bool,
    constants: Constants,
    strongly_convex: bool,
    training_gradient: float,
    training_tolerance: float,
    nodes: int = 32,
    lanczos_steps: int = 30,
    on_part: Callable[[str, int, int], None] | None = None,
) -> tuple[ConditionCheck, ...]:
    """Measures what the bound of `paper_bounds` assumes, at the weights before and after.

    `before` and `after` are the objectives on `G` and `G'`, `removed` the rows of the removed training nodes in `G`
    (`removed_before`: some went with earlier requests), `training_gradient` is `||grad F||` where training ended. A
    measurement can refute an assumption about all weights and can seldom prove one.
    """
    report = on_part or (lambda part, done, total: None)
    report("measure_conditions: losses", 0, 3)
    losses = _largest_loss(before, after, start, end, constants)
    report("measure_conditions: gradients of single nodes", 1, 3)
    gradients = _largest_gradient(before, start, removed, constants, removed_before=removed_before, nodes=nodes)
    report("measure_conditions: smallest eigenvalue", 2, 3)
    eigenvalue = convexity(before, start, constants, strongly_convex=strongly_convex, steps=lanczos_steps)
    return losses, gradients, eigenvalue, trained_to_optimum(training_gradient, training_tolerance)


def _largest_loss(
    before: Objective, after: Objective, start: Tensor, end: Tensor, constants: Constants
) -> ConditionCheck:
    losses = torch.cat([f.data.losses(theta) for f in (before, after) for theta in (start, end)])
    measured = float(losses.abs().max())  # NaN if any is
    return ConditionCheck(
        BOUNDED,
        measured if math.isfinite(measured) else None,
        constants.loss_bound,
        "not checkable" if measured <= constants.loss_bound else "fails",
        "the largest training loss at the weights before and after, on both graphs; it has to hold at the retrained "
        "weights too, which nobody has",
    )


def _largest_gradient(
    before: Objective, theta: Tensor, removed: Tensor, constants: Constants, *, removed_before: bool, nodes: int
) -> ConditionCheck:
    """Of `l_i + (mu/2) ||theta||^2` for the removed nodes, which the bound needs it for; the steepest losses first."""
    if not removed.numel():
        verdict: Verdict = "not checkable" if removed_before else "holds"
        return ConditionCheck(LIPSCHITZ, None, constants.lipschitz, verdict, "this request removes no training node")
    data = before.data
    slopes = data.loss.gradient(data.logits(theta).detach(), data.labels)
    rows = torch.isin(data.rows, removed.to(data.rows.device)).nonzero().flatten()
    chosen = rows[slopes[rows].norm(dim=1).argsort(descending=True)[:nodes]]
    pull = data.jacobian(theta).adjoint
    norms = []
    for i in chosen.tolist():
        one = torch.zeros_like(slopes)
        one[i] = slopes[i]
        norms.append((pull(one) + before.mu * theta).norm())
    measured = float(torch.stack(norms).max())  # NaN if any is
    return ConditionCheck(
        LIPSCHITZ,
        measured if math.isfinite(measured) else None,
        constants.lipschitz,
        "not checkable" if measured <= constants.lipschitz else "fails",
        f"the largest gradient of a removed node's loss at the weights before, of {chosen.numel()} looked at; it has "
        "to hold all the way to the retrained weights, which no measurement can show",
    )


def convexity(
    before: Objective, theta: Tensor, constants: Constants, *, strongly_convex: bool, steps: int = 30
) -> ConditionCheck:
    """The smallest eigenvalue against the constant."""
    threshold = constants.strong_convexity
    eigenvalues = extreme_eigenvalues(before.hessian(theta), theta, steps=steps, stop_below=threshold)
    meaning = "at most this is the smallest eigenvalue of the Hessian at the weights before (Lanczos); "
    verdict: Verdict
    if strongly_convex and threshold <= before.mu:
        verdict, meaning = "holds", meaning + "the L2 term alone makes the objective mu-strongly convex everywhere"
    elif eigenvalues.smallest < threshold:
        verdict, meaning = "fails", meaning + "it lies under the constant"
    else:
        verdict, meaning = "not checkable", meaning + "it has to hold at all weights, which no measurement can show"
    measured = None if eigenvalues.status == "not finite" else eigenvalues.smallest
    return ConditionCheck(CONVEX, measured, threshold, verdict, meaning)
