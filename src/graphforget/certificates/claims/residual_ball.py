"""`certified`: a ball computed from one gradient holds the optimum, and noise hides where (docs/maths.md, 9)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphforget.certificates.claims.base import Claim, Subject, checked_ids, checked_number
from graphforget.certificates.levels import Level
from graphforget.errors import Mismatch, Refused
from graphforget.privacy.gaussian import LARGEST_DELTA, ROUNDING_SHARE, epsilon_of, release_ratio, tolerance
from graphforget.privacy.rounding import rounded_up
from graphforget.validation import whole_number

if TYPE_CHECKING:
    from graphforget.certificates.residual import Residual
    from graphforget.training.trained import Trained

DECLARED_CONVEX = "convex loss"  # a condition's id


@dataclass(frozen=True)
class ResidualBall(Claim):
    """A release around the centre of the ball that holds the optimum of a strongly convex objective.

    Its fields are settings. The measured radius is at most `tolerance` and is never published: somebody who has the
    deleted data could compute it to every digit.
    """

    kind = "residual-ball/1"

    epsilon: float
    delta: float
    sigma: float  # standard deviation of the noise, fixed when the model was trained
    mu: float  # strong convexity
    releases: int  # that together keep epsilon and delta
    tolerance: float  # the largest radius that they allow
    conditions: tuple[str, ...] = ()  # ids; empty if convexity follows from the construction

    def __post_init__(self) -> None:
        for name in ("epsilon", "sigma", "mu", "tolerance"):
            object.__setattr__(self, name, checked_number(getattr(self, name), name, above=0))
        object.__setattr__(self, "delta", checked_number(self.delta, "delta", above=0, below=1))
        object.__setattr__(self, "releases", whole_number(self.releases, "the claim's number of releases"))
        object.__setattr__(self, "conditions", checked_ids(self.conditions, "conditions"))

    @classmethod
    def issue(cls, measured: Residual, trained: Trained, *, epsilon: float, delta: float) -> ResidualBall:
        """Raises `Refused` if the measured radius or delta is too large."""
        if delta > LARGEST_DELTA:
            raise Refused(f"delta is {delta:g}, and over {LARGEST_DELTA:g} nothing is certified")
        recipe = trained.recipe
        allowed = tolerance(sigma=recipe.sigma, epsilon=epsilon, delta=delta, releases=recipe.releases)
        if not measured.radius <= allowed:
            raise Refused(f"the optimum may be {measured.radius:.2e} away, over the tolerance {allowed:.2e}")
        return cls(
            epsilon=epsilon,
            delta=delta,
            sigma=recipe.sigma,
            mu=recipe.mu,
            releases=recipe.releases,
            tolerance=allowed,
            conditions=() if trained.loss_is_convex else (DECLARED_CONVEX,),
        )

    def measurements(self, measured: Residual) -> dict[str, Any]:
        """What stays private: the measured distance of the optimum, and the epsilon of this release that it implies."""
        radius = min(rounded_up(measured.radius), self.tolerance)
        implied = epsilon_of(ratio=radius / self.sigma, delta=(1 - ROUNDING_SHARE) * self.delta)
        return {
            "distance": radius,
            "tolerance": self.tolerance,
            "epsilon_measured": min(rounded_up(implied), self.epsilon),
            "rounding": rounded_up(measured.rounding / measured.mu),
        }

    @property
    def level(self) -> Level:
        return "conditional" if self.conditions else "certified"

    @property
    def statement(self) -> str:
        together = f"up to {self.releases} releases that keep this tolerance are together"
        releases = "this release is" if self.releases == 1 else together
        condition = "if the loss is convex, as its author declares, " if self.conditions else ""
        return (
            f"{condition}{releases} ({self.epsilon:g}, {self.delta:g})-indistinguishable from the optimum on the "
            f"retained graph, to which retraining leads, with fresh Gaussian noise of standard deviation "
            f"{self.sigma:g} in both"
        )

    @property
    def ratio(self) -> float | None:
        return None if self.conditions else self.tolerance / self.sigma

    @property
    def counted_ratio(self) -> float:
        return self.tolerance / self.sigma  # under a condition too: the claim is about `releases` of them

    @property
    def centred(self) -> bool:
        return True

    def recheck(self, subject: Subject) -> str:
        trained, recipe = subject.trained, subject.trained.recipe
        if trained.certification_blockers:
            raise Mismatch(f"the level is too high for this model: {trained.certification_blockers[0]}")
        if not subject.strongly_convex and not self.conditions:
            raise Mismatch("the level is too high: the objective is not strongly convex by construction")
        if self.conditions and self.conditions != (DECLARED_CONVEX,):
            raise Mismatch("the claim lists conditions that it cannot have")
        if trained.objective_noise_vector is not None:
            raise Mismatch("the level is too high: noise in the objective can be made to fit any weights afterwards")
        for name in ("sigma", "mu", "releases"):
            stated, fixed = getattr(self, name), getattr(recipe, name)
            if stated != fixed:
                raise Mismatch(f"{name} is {stated}, the model's was fixed at {fixed} when it was trained")
        if self.delta > LARGEST_DELTA:
            raise Mismatch(f"delta is {self.delta:g}, and over {LARGEST_DELTA:g} nothing is certified")
        ratio = release_ratio(epsilon=self.epsilon, delta=self.delta, releases=self.releases)
        if not math.isclose(self.tolerance, self.sigma * ratio, rel_tol=1e-9):
            raise Mismatch(f"the tolerance is {self.tolerance:.6g}, epsilon and delta allow {self.sigma * ratio:.6g}")
        measured = subject.measured
        if not measured.radius <= self.tolerance * (1 + 1e-9):
            distance = f"the optimum may be {rounded_up(measured.radius):g} from the centre of the release"
            raise Mismatch(f"{distance}, over the tolerance {self.tolerance:.3g}")
        return f"the optimum is within the tolerance {self.tolerance:.3g} of the centre of the release"
