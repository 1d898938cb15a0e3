"""`exact` by the operator's own training function, for a model that was not trained here (`gf.adopt`)."""

from __future__ import annotations

from dataclasses import dataclass

from graphforget.certificates.claims.base import Claim, Subject, checked_ids, checked_number
from graphforget.certificates.conditions import RETAINED_ONLY, sentence
from graphforget.certificates.levels import Level
from graphforget.errors import InputError, Mismatch


@dataclass(frozen=True)
class OwnTraining(Claim):
    """The operator's training function gave these weights when it was called with the retained graph.

    graphforget calls the function, but it cannot know what the function reads: a file or a database may still hold the
    deleted data. That it reads the retained graph only is therefore a condition of the claim, always the same one.
    """

    kind = "exact-own-training/1"

    sigma: float = 0.0  # standard deviation of the noise in the release; exact weights need none
    conditions: tuple[str, ...] = (RETAINED_ONLY,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", checked_number(self.sigma, "sigma"))
        object.__setattr__(self, "conditions", checked_ids(self.conditions, "conditions"))
        if self.conditions != (RETAINED_ONLY,):
            raise InputError(f"the claim's conditions are {self.conditions!r}, ({RETAINED_ONLY!r},) is needed")

    @property
    def level(self) -> Level:
        return "exact"

    @property
    def definition(self) -> str:
        return f"the weights are those that training on the retained graph gives, if {sentence(RETAINED_ONLY)}"

    @property
    def statement(self) -> str:
        weights = "the released weights are those that the operator's own training function gave on the retained graph"
        noise = f", with fresh Gaussian noise of standard deviation {self.sigma:g}" if self.sigma else ""
        return f"{weights}{noise}; the operator vouches that {sentence(RETAINED_ONLY)}"

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
        if not trained.recipe.adopted:
            raise Mismatch("the claim is about a training function of the operator, and the model was trained here")
        if trained.history:
            raise Mismatch("the level is too high: the weights moved away from those of training")
        if not trained.recipe.environment:
            raise Mismatch("the level is too high: the training function was never called, these are the first weights")
        replay = "; the training function gave the same weights again, bit for bit" if subject.replayed else ""
        return f"no step since the training function was called is recorded{replay}"

    def unchecked(self, subject: Subject) -> tuple[str, ...]:
        condition = f"that {sentence(RETAINED_ONLY)}: the operator vouches for it"
        if subject.replayed:
            return (condition,)
        again = "--replay with --retrain calls it again and compares, else the signer vouches"
        return (f"that the training function gives these weights: {again}", condition)
