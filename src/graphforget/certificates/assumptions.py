"""The paper's assumptions against what can be measured of a model: a doctor for its certificate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphforget.linalg.lanczos import extreme_eigenvalues
from graphforget.privacy.paper_bounds import Constants
from graphforget.training.objective import Objective

Verdict = Literal["holds", "fails", "not checkable"]


@dataclass(frozen=True)
class Finding:
    """One assumption: what was measured, what the constants say, and what follows."""

    name: str  # the condition's id
    measured: float | None
    threshold: float | None
    verdict: Verdict
    meaning: str

    @property
    def fails(self) -> bool:
        return self.verdict == "fails"


BOUNDED, LIPSCHITZ, CONVEX = "bounded losses", "Lipschitz losses", "strong convexity"
OPTIMUM, REACH = "trained to a minimum", "known reach"  # ids: certificates and histories hold them

SENTENCES = {
    BOUNDED: "losses are at most C",
    LIPSCHITZ: "losses are L-Lipschitz",
    CONVEX: "the objective is lambda-strongly convex",
    OPTIMUM: "training ended at a minimum",
    REACH: "messages travel as far as inspected",
    "bounded gradients": "gradients of losses are at most c1",
    "Lipschitz gradients": "gradients of losses are gamma2-Lipschitz",
    "Lipschitz Hessian": "the Hessian is gamma1-Lipschitz",
    "secret noise": "nobody knows the noise in the objective",
    "leftover independent of the noise": "what the steps leave does not depend on the noise",
    "leftover within its bound": "the gradient that is left is at most the bound",
    "bounded steps": "every request before was answered by a method that bounds what it leaves",
    "convex loss": "the loss is convex in the logits, as its author declares",
}


def sentence(condition: str) -> str:
    """What has to hold, in words."""
    return SENTENCES.get(condition, condition)


def refuted_by(findings: tuple[Finding, ...], before: tuple[str, ...]) -> tuple[str, ...]:
    """The ids of conditions that do not hold, now or at an earlier request."""
    return tuple(dict.fromkeys([*before, *(finding.name for finding in findings if finding.fails)]))


def unaudited(*, constants: Constants, training_gradient: float, training_tolerance: float) -> tuple[Finding, ...]:
    """The same conditions where nobody has looked; what training left behind is known anyway."""
    told = "nobody has looked, the audit was left out"
    return (
        Finding(BOUNDED, None, constants.loss_bound, "not checkable", told),
        Finding(LIPSCHITZ, None, constants.lipschitz, "not checkable", told),
        Finding(CONVEX, None, constants.strong_convexity, "not checkable", told),
        _optimum(training_gradient, training_tolerance),
    )


def unproven_reach() -> Finding:
    """For a module of one's own: the number of affected losses in the bound follows from its reach."""
    told = "how far a module of one's own sends messages was counted or declared, and tried out on small graphs only"
    return Finding(REACH, None, None, "not checkable", told)


def audit(
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
) -> tuple[Finding, ...]:
    """Measures what the bound of `paper_bounds` takes for granted, at the weights before and after.

    `before` and `after` are the objectives on `G` and `G'`, `removed` the rows of the removed training nodes in `G`
    (`removed_before`: some went with earlier requests), `training_gradient` is `||grad F||` where training ended. A
    measurement can refute an assumption about all weights and can seldom prove one.
    """
    report = on_part or (lambda part, done, total: None)
    report("audit: losses", 0, 3)
    losses = _largest_loss(before, after, start, end, constants)
    report("audit: gradients of single nodes", 1, 3)
    gradients = _largest_gradient(before, start, removed, constants, removed_before=removed_before, nodes=nodes)
    report("audit: smallest eigenvalue", 2, 3)
    eigenvalue = convexity(before, start, constants, strongly_convex=strongly_convex, steps=lanczos_steps)
    return losses, gradients, eigenvalue, _optimum(training_gradient, training_tolerance)


def _largest_loss(before: Objective, after: Objective, start: Tensor, end: Tensor, constants: Constants) -> Finding:
    losses = torch.cat([f.data.losses(theta) for f in (before, after) for theta in (start, end)])
    measured = float(losses.abs().max())  # NaN if any is
    return Finding(
        BOUNDED,
        measured if math.isfinite(measured) else None,
        constants.loss_bound,
        "not checkable" if measured <= constants.loss_bound else "fails",
        "the largest training loss at the weights before and after, on both graphs; it has to hold at the retrained "
        "weights too, which nobody has",
    )


def _largest_gradient(
    before: Objective, theta: Tensor, removed: Tensor, constants: Constants, *, removed_before: bool, nodes: int
) -> Finding:
    """Of `l_i + (mu/2) ||theta||^2` for the removed nodes, which the bound needs it for; the steepest losses first."""
    if not removed.numel():
        verdict: Verdict = "not checkable" if removed_before else "holds"
        return Finding(LIPSCHITZ, None, constants.lipschitz, verdict, "this request removes no training node")
    data = before.data
    slopes = data.loss.gradient(data.logits(theta).detach(), data.labels)
    gone = torch.isin(data.rows, removed.to(data.rows.device)).nonzero().flatten()
    chosen = gone[slopes[gone].norm(dim=1).argsort(descending=True)[:nodes]]
    pull = data.jacobian(theta).adjoint
    norms = []
    for i in chosen.tolist():
        one = torch.zeros_like(slopes)
        one[i] = slopes[i]
        norms.append((pull(one) + before.mu * theta).norm())
    measured = float(torch.stack(norms).max())  # NaN if any is
    return Finding(
        LIPSCHITZ,
        measured if math.isfinite(measured) else None,
        constants.lipschitz,
        "not checkable" if measured <= constants.lipschitz else "fails",
        f"the largest gradient of a removed node's loss at the weights before, of {chosen.numel()} looked at; it has "
        "to hold all the way to the retrained weights, which no measurement can show",
    )


def convexity(
    before: Objective, theta: Tensor, constants: Constants, *, strongly_convex: bool, steps: int = 30
) -> Finding:
    """The smallest eigenvalue against the constant."""
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
    return Finding(CONVEX, measured, wanted, verdict, meaning)


def _optimum(measured: float, tolerance: float) -> Finding:
    return Finding(
        OPTIMUM,
        measured,
        tolerance,
        "holds" if measured <= tolerance else "fails",
        "||grad F|| where training ended, which the paper takes to be 0; here it is added to the bound, divided by "
        "lambda",
    )
