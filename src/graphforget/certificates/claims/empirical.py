"""`empirical`: nothing is guaranteed."""

from __future__ import annotations

from dataclasses import dataclass

from graphforget.certificates.claims.base import Claim, Subject, checked_flag, checked_number
from graphforget.certificates.levels import Level
from graphforget.errors import InputError, Mismatch


@dataclass(frozen=True)
class Empirical(Claim):
    """No guarantee; only audits can measure something. `reason` says why, and reveals nothing about deleted data."""

    kind = "empirical/1"

    reason: str
    sigma: float = 0.0
    around_centre: bool = False  # the noise was added to the centre of the ball that holds the optimum
    refuted: bool = False  # a guarantee was requested, and one of its conditions does not hold

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise InputError(f"the claim's reason is {self.reason!r}, a sentence is needed")
        object.__setattr__(self, "sigma", checked_number(self.sigma, "sigma"))
        checked_flag(self.around_centre, "around_centre")
        checked_flag(self.refuted, "refuted")

    @property
    def level(self) -> Level:
        return "empirical"

    @property
    def statement(self) -> str:
        return f"nothing is guaranteed: {self.reason}"

    @property
    def centred(self) -> bool:
        return self.around_centre

    @property
    def void(self) -> bool:
        return self.refuted

    def recheck(self, subject: Subject) -> str:
        if self.around_centre and not subject.strongly_convex:
            raise Mismatch("the claim is about noise around a ball's centre, and the objective is not strongly convex")
        return "nothing is claimed"
