"""What claims have in common that hold only under conditions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.conditions import ConditionCheck
from graphforget.certificates.levels import Level


class ConditionalClaim(Claim):
    """A claim that is void if a condition is known to fail. Then it has no epsilon, and its level is `empirical`."""

    epsilon: float | None

    @property
    def level(self) -> Level:
        return "empirical" if self.epsilon is None else "conditional"

    @property
    def void(self) -> bool:
        return self.epsilon is None


def condition_measurements(
    checks: Sequence[ConditionCheck], refuted: Sequence[str], *, implied_epsilon: float
) -> dict[str, Any]:
    """The private measurements of the conditions, as JSON values."""
    return {
        "epsilon_under_constants": implied_epsilon if math.isfinite(implied_epsilon) else None,
        "conditions": [dataclasses.asdict(check) for check in checks],
        "refuted": list(refuted),
    }
