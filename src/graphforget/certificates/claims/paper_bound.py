"""`conditional`, by the bound of the IDEA paper under declared constants (docs/maths.md, section 8)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from graphforget.certificates.claims.base import Subject, checked_ids, checked_number
from graphforget.certificates.claims.conditional import ConditionalClaim, condition_measurements
from graphforget.certificates.conditions import BOUNDED, CONVEX, LIPSCHITZ, OPTIMUM, REACH, ConditionCheck, refuted_by
from graphforget.errors import InputError, Mismatch
from graphforget.privacy.gaussian import epsilon_of, exact_sigma, paper_sigma
from graphforget.privacy.paper_bounds import Constants, sequential_bound

if TYPE_CHECKING:
    from graphforget.training.trained import Trained

CONDITIONS = (BOUNDED, LIPSCHITZ, CONVEX, OPTIMUM)


@dataclass(frozen=True)
class PaperBound(ConditionalClaim):
    """The paper's claim: (epsilon, delta) if every condition holds under `constants`.

    It is void, and its level `empirical`, if a condition is known not to hold or the noise is too little for the
    requested epsilon. The measurements and the bound itself stay private.
    """

    kind = "paper-bound/1"

    epsilon: float | None  # None: no guarantee
    delta: float
    sigma: float
    constants: Constants
    conditions: tuple[str, ...]  # ids of what has to hold

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", checked_number(self.epsilon, "epsilon", above=0))
        object.__setattr__(self, "delta", checked_number(self.delta, "delta", above=0, below=1))
        object.__setattr__(self, "sigma", checked_number(self.sigma, "sigma"))
        object.__setattr__(self, "conditions", checked_ids(self.conditions, "conditions"))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        if not isinstance(content.get("constants"), Mapping):
            raise InputError("the claim's constants are missing")
        return super().from_dict({**content, "constants": Constants.of(content["constants"])})

    @classmethod
    def issue(
        cls,
        trained: Trained,
        *,
        epsilon: float,
        delta: float,
        sigma: float | None,
        constants: Constants,
        findings: tuple[ConditionCheck, ...],
    ) -> tuple[PaperBound, dict[str, Any]]:
        """The claim, and what was measured for it.

        Without a `sigma` the bound determines the size of the noise. If a condition of the bound is refuted, there is
        no noise.
        """
        distance = distance_bound(trained, constants)
        needed = exact_sigma(zeta=distance, epsilon=epsilon, delta=delta)
        refuted = refuted_by(findings, trained.refuted)
        added = (0.0 if refuted else needed) if sigma is None else sigma
        implied = epsilon_of(ratio=_ratio(distance, added), delta=delta)
        holds = not refuted and implied <= epsilon * (1 + 1e-9)
        claim = cls(
            epsilon=epsilon if holds else None,
            delta=delta,
            sigma=added,
            constants=constants,
            conditions=tuple(finding.name for finding in findings),
        )
        measurements = {
            "distance": distance,
            "sigma_needed": needed,
            "sigma_by_paper": paper_sigma(zeta=distance, epsilon=epsilon, delta=delta),
        }
        return claim, measurements | condition_measurements(findings, refuted, implied_epsilon=implied)

    @property
    def sizes_noise(self) -> bool:
        return True

    @property
    def statement(self) -> str:
        if self.epsilon is None:
            return "no guarantee for this model: at least one condition of the paper's bound fails"
        return (
            f"if every condition listed holds, the released weights are ({self.epsilon:g}, {self.delta:g})-"
            f"indistinguishable from retrained weights with the same noise of standard deviation {self.sigma:.4g}"
        )

    def recheck(self, subject: Subject) -> str:
        trained = subject.trained
        if self.epsilon is None:
            return "nothing is claimed"
        if trained.certification_blockers:
            raise Mismatch(f"the level is too high for this model: {trained.certification_blockers[0]}")
        if not trained.history:
            raise Mismatch("the paper's bound needs the model's history, which is missing")
        if trained.was_updated:
            raise Mismatch(
                "the level is too high: the graph was updated since training, which the bound does not cover"
            )
        needed = CONDITIONS if trained.reach_is_proven else (*CONDITIONS, REACH)
        missing = [condition for condition in needed if condition not in self.conditions]
        if missing:
            raise Mismatch(f"the claim does not list a condition that it needs: {missing[0]}")
        if trained.refuted:
            raise Mismatch(f"the level is too high: a condition does not hold, {trained.refuted[0]}")
        implied = epsilon_of(ratio=_ratio(distance_bound(trained, self.constants), self.sigma), delta=self.delta)
        if implied > self.epsilon * (1 + 1e-9):
            raise Mismatch(f"epsilon is {self.epsilon:g}, the bound and the noise imply {implied:.4g}")
        return "epsilon follows from the bound, the constants and the noise"

    def unchecked(self, subject: Subject) -> tuple[str, ...]:
        if self.epsilon is None:
            return ()
        return ("what was measured of the conditions, since what it was measured on is deleted",)


def distance_bound(trained: Trained, constants: Constants) -> float:
    """The paper's sequential bound over the model's history, plus the gradient norm after training over lambda."""
    history = trained.history
    return (
        sequential_bound(
            m=history[0].m,
            removed=[entry.removed for entry in history],
            affected=[entry.affected for entry in history],
            step_norms=[entry.step_norm for entry in history],
            constants=constants,
            nonnegative_losses=trained.loss_is_convex,
        )
        + history[0].gradient_norm / constants.strong_convexity
    )


def _ratio(distance: float, sigma: float) -> float:
    if distance == 0:
        return 0.0
    return distance / sigma if sigma > 0 else math.inf
