"""What an outcome claims: its level, its numbers, and the sentence that says no more than they do."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from graphforget.certificates.assumptions import Finding
from graphforget.certificates.gaussian import epsilon_of, exact_sigma, paper_sigma
from graphforget.certificates.levels import Level
from graphforget.certificates.paper_bounds import Constants


@dataclass(frozen=True)
class Certificate:
    """A claim about released weights. `statement` says it in words."""

    level: Level
    statement: str
    epsilon: float | None = None
    delta: float | None = None
    sigma: float | None = None  # standard deviation of the noise in the released weights
    distance: float | None = None  # zeta, the bound on how far the weights are from the retrained ones
    sigma_needed: float | None = None  # for the asked epsilon and delta, by exact accounting
    sigma_by_paper: float | None = None  # the same by the paper's formula, which is proven for epsilon < 1
    constants: Constants | None = None
    conditions: tuple[Finding, ...] = field(default=())

    @property
    def refuted(self) -> tuple[str, ...]:
        """The conditions that were measured and do not hold; the claim then says nothing about this model."""
        return tuple(finding.name for finding in self.conditions if finding.verdict == "fails")

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"refuted": list(self.refuted)}


def exact(statement: str) -> Certificate:
    """epsilon = 0: the distribution of retraining itself, no noise needed."""
    return Certificate("exact", statement, epsilon=0.0, delta=0.0, sigma=0.0, distance=0.0)


def empirical(statement: str) -> Certificate:
    return Certificate("empirical", statement)


def conditional(
    *,
    distance: float,
    epsilon: float,
    delta: float,
    sigma: float | None,
    constants: Constants,
    conditions: tuple[Finding, ...] = (),
) -> Certificate:
    """The paper's claim (docs/maths.md, section 8): `distance` is its bound under `constants`.

    Without a `sigma` the noise is as large as the asked epsilon and delta need it; with one, the epsilon is the one
    that this sigma implies. No noise, no claim.
    """
    needed = exact_sigma(zeta=distance, epsilon=epsilon, delta=delta)
    numbers: dict[str, Any] = {
        "delta": delta,
        "distance": distance,
        "sigma_needed": needed,
        "sigma_by_paper": paper_sigma(zeta=distance, epsilon=epsilon, delta=delta),
        "constants": constants,
        "conditions": conditions,
    }
    if sigma == 0 and distance > 0:
        told = "no noise was added, so nothing is guaranteed: weights without noise can be told from retrained ones"
        return Certificate("empirical", told, sigma=0.0, **numbers)
    if sigma is None:
        sigma, implied = needed, epsilon
    else:
        implied = epsilon_of(ratio=distance / sigma if distance else 0.0, delta=delta)
    told = (
        f"if every condition listed holds, the released weights are ({implied:.4g}, {delta:g})-indistinguishable from "
        f"retrained weights with the same noise of standard deviation {sigma:.4g}"
    )
    return Certificate("conditional", told, epsilon=implied, sigma=sigma, **numbers)
