"""The conditions of claims: their ids, what each of them says, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphforget.privacy.paper_bounds import Constants

Verdict = Literal["holds", "fails", "not checkable"]


@dataclass(frozen=True)
class ConditionCheck:
    """One condition: the measured value, the threshold, and the verdict."""

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
RETAINED_ONLY = "training reads the retained graph only"
SENTENCES = {
    BOUNDED: "every loss is at most C",
    LIPSCHITZ: "every loss is L-Lipschitz",
    CONVEX: "the objective is lambda-strongly convex",
    OPTIMUM: "training reached a minimum of the objective",
    REACH: "messages travel no farther than the inspection measured",
    "bounded gradients": "the gradient of every loss is at most c1",
    "Lipschitz gradients": "the gradient of every loss is gamma2-Lipschitz",
    "Lipschitz Hessian": "the Hessian is gamma1-Lipschitz",
    "secret noise": "nobody knows the noise in the objective",
    "leftover independent of the noise": "the gradient after the steps does not depend on the noise",
    "leftover within its bound": "the gradient after the steps is at most its bound",
    "bounded steps": "every earlier request was answered by a method that bounds the remaining gradient",
    "convex loss": "the loss is convex in the logits, as its author declares",
    RETAINED_ONLY: "the training function reads nothing that depends on deleted data, only the retained graph",
}


def sentence(condition: str) -> str:
    """What has to hold, in words."""
    return SENTENCES.get(condition, condition)


def refuted_by(findings: tuple[ConditionCheck, ...], before: tuple[str, ...]) -> tuple[str, ...]:
    """The ids of conditions that do not hold, now or at an earlier request."""
    return tuple(dict.fromkeys([*before, *(finding.name for finding in findings if finding.fails)]))


def unmeasured_conditions(
    *, constants: Constants, training_gradient: float, training_tolerance: float
) -> tuple[ConditionCheck, ...]:
    """The same conditions without measurements; only the gradient after training is known."""
    meaning = "this was not measured"
    return (
        ConditionCheck(BOUNDED, None, constants.loss_bound, "not checkable", meaning),
        ConditionCheck(LIPSCHITZ, None, constants.lipschitz, "not checkable", meaning),
        ConditionCheck(CONVEX, None, constants.strong_convexity, "not checkable", meaning),
        trained_to_optimum(training_gradient, training_tolerance),
    )


def unproven_reach() -> ConditionCheck:
    """For a user's own module: the number of affected losses in the bound depends on its reach."""
    meaning = "the reach of a user's own module was counted or declared, and tested on small graphs only"
    return ConditionCheck(REACH, None, None, "not checkable", meaning)


def trained_to_optimum(measured: float, tolerance: float) -> ConditionCheck:
    return ConditionCheck(
        OPTIMUM,
        measured,
        tolerance,
        "holds" if measured <= tolerance else "fails",
        "||grad F|| where training ended, which the paper takes to be 0; here it is added to the bound, divided by "
        "lambda",
    )
