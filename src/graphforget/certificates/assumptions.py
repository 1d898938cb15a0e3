"""The paper's assumptions against what can be measured of a model: a doctor for its certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphforget.certificates.paper_bounds import Constants
from graphforget.linalg.lanczos import extreme_eigenvalues
from graphforget.objective import Objective

Verdict = Literal["holds", "fails", "not checkable"]


@dataclass(frozen=True)
class Finding:
    """One assumption: what was measured, what the constants say, and what follows."""

    name: str
    measured: float | None
    threshold: float
    verdict: Verdict
    meaning: str


def audit(
    before: Objective,
    after: Objective,
    *,
    start: Tensor,
    end: Tensor,
    removed: Tensor,
    constants: Constants,
    strongly_convex: bool,
    training_gradient: float,
    training_tolerance: float,
    nodes: int = 32,
    lanczos_steps: int = 30,
    on_part: Callable[[str, int, int], None] | None = None,
) -> tuple[Finding, ...]:
    """Measures what the bound of `paper_bounds` takes for granted, at the weights before and after.

    `before` and `after` are the objectives on `G` and `G'`, `removed` the rows of the removed training nodes in `G`,
    `training_gradient` is `||grad F||` where training ended. A measurement can refute an assumption about all weights
    and can seldom prove one.
    """
    report = on_part or (lambda part, done, total: None)
    report("audit: losses", 0, 3)
    losses = _largest_loss(before, after, start, end, constants)
    report("audit: gradients of single nodes", 1, 3)
    gradients = _largest_gradient(before, start, removed, constants, nodes=nodes)
    report("audit: smallest eigenvalue", 2, 3)
    eigenvalue = _smallest_eigenvalue(before, start, constants, strongly_convex=strongly_convex, steps=lanczos_steps)
    return losses, gradients, eigenvalue, _optimum(training_gradient, training_tolerance)


def _largest_loss(before: Objective, after: Objective, start: Tensor, end: Tensor, constants: Constants) -> Finding:
    measured = max(float(f.data.losses(theta).max()) for f in (before, after) for theta in (start, end))
    smallest = min(float(f.data.losses(theta).min()) for f in (before, after) for theta in (start, end))
    measured = max(measured, -smallest)
    return Finding(
        "losses are at most C",
        measured,
        constants.loss_bound,
        "fails" if measured > constants.loss_bound else "holds",
        "the largest training loss at the weights before and after, on both graphs; it has to hold at the retrained "
        "weights too, which nobody has",
    )


def _largest_gradient(
    before: Objective, theta: Tensor, removed: Tensor, constants: Constants, *, nodes: int
) -> Finding:
    """Of `l_i + (mu/2) ||theta||^2`, for the nodes that are likely to have the largest, the removed ones first."""
    data = before.data
    logits = data.logits(theta).detach()
    slopes = data.loss.gradient(logits, data.labels)
    order = slopes.norm(dim=1).argsort(descending=True)
    gone = torch.isin(data.rows, removed.to(data.rows.device))
    chosen = torch.cat([order[gone[order]][: nodes // 2], order[: nodes - nodes // 2]]).unique()
    pull = data.jacobian(theta).adjoint
    measured = 0.0
    for i in chosen.tolist():
        one = torch.zeros_like(slopes)
        one[i] = slopes[i]
        measured = max(measured, float((pull(one) + before.mu * theta).norm()))
    return Finding(
        "losses are L-Lipschitz",
        measured,
        constants.lipschitz,
        "fails" if measured > constants.lipschitz else "not checkable",
        f"the largest gradient of a single node's loss among {chosen.numel()} likely ones at the weights before; it "
        "has to hold at all weights, which no measurement can show",
    )


def _smallest_eigenvalue(
    before: Objective, theta: Tensor, constants: Constants, *, strongly_convex: bool, steps: int
) -> Finding:
    wanted = constants.strong_convexity
    found = extreme_eigenvalues(before.hessian(theta), theta, steps=steps, stop_below=wanted)
    meaning = "at most this is the smallest eigenvalue of the Hessian at the weights before (Lanczos); "
    verdict: Verdict
    if strongly_convex and wanted <= before.mu:
        verdict, meaning = "holds", meaning + "the L2 term alone makes the objective mu-strongly convex everywhere"
    elif found.smallest < wanted:
        verdict, meaning = "fails", meaning + "it lies under the constant"
    else:
        verdict, meaning = "not checkable", meaning + "it has to hold at all weights, which no measurement can show"
    measured = None if found.status == "not finite" else found.smallest
    return Finding("the objective is lambda-strongly convex", measured, wanted, verdict, meaning)


def _optimum(measured: float, tolerance: float) -> Finding:
    return Finding(
        "training ended at a minimum",
        measured,
        tolerance,
        "fails" if measured > tolerance else "holds",
        "||grad F|| where training ended, which the paper takes to be 0; here it is added to the bound, divided by "
        "lambda",
    )
