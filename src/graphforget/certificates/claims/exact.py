"""`exact`: these weights are what training on the retained graph gives, bit for bit (docs/maths.md, section 11)."""

from __future__ import annotations

from dataclasses import dataclass

from graphforget.certificates.claims.base import Claim, Subject, checked_number
from graphforget.certificates.levels import Level
from graphforget.errors import Mismatch
from graphforget.privacy.rounding import rounded_up


@dataclass(frozen=True)
class Exact(Claim):
    """Training on the retained graph by the same recipe and seeds ends at these weights.

    The wording is the same whether the model was retrained, or some of its shards, or training never used the deleted
    data: how the weights were made would reveal something about what was deleted.
    """

    kind = "exact/1"

    sigma: float = 0.0  # standard deviation of the noise in the release; exact weights need none

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", checked_number(self.sigma, "sigma"))

    @property
    def level(self) -> Level:
        return "exact"

    @property
    def statement(self) -> str:
        weights = "the released weights are those that training on the retained graph gives, by this recipe and seeds"
        return f"{weights}, with fresh Gaussian noise of standard deviation {self.sigma:g}" if self.sigma else weights

    @property
    def epsilon(self) -> float:
        return 0.0

    @property
    def delta(self) -> float:
        return 0.0

    @property
    def ratio(self) -> float:
        return 0.0

    def recheck(self, subject: Subject) -> str:
        trained = subject.trained
        if trained.recipe.adopted:
            raise Mismatch("the level is too high: the model was adopted, and nobody here knows how it was trained")
        if trained.certification_blockers:
            raise Mismatch(f"the level is too high for this model: {trained.certification_blockers[0]}")
        if trained.history:
            raise Mismatch("the level is too high: the weights moved away from those of training")
        if not subject.strongly_convex or trained.objective_noise_vector is not None:
            return "no step since the last training is recorded" + _by_replay(subject)
        if trained.recipe.sigma:
            raise Mismatch("a strongly convex model with noise is published as certified, never as exact")
        measured = subject.measured
        allowed = trained.recipe.tolerance + 2 * measured.rounding / measured.mu
        if measured.distance > allowed:
            distance = f"the weights are up to {rounded_up(measured.distance):g} from the optimum"
            raise Mismatch(f"{distance}, training ends at {allowed:.3g}")
        return "the weights are as near to the optimum as training ends" + _by_replay(subject)

    def unchecked(self, subject: Subject) -> tuple[str, ...]:
        if subject.replayed:
            return ()
        return ("that training gives these weights: --replay trains again and compares, else the signer vouches",)


def _by_replay(subject: Subject) -> str:
    return "; training again gave the same weights, bit for bit" if subject.replayed else ""
