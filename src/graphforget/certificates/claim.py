"""What an outcome claims: its level, its numbers, and the sentence that says no more than they do."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from graphforget.certificates.assumptions import Finding
from graphforget.certificates.gaussian import epsilon_of, exact_sigma, paper_sigma
from graphforget.certificates.levels import Level
from graphforget.certificates.paper_bounds import Constants

NOT_COVERED = (
    "models released before this request, and what can be learned by comparing them with the next one",
    "several releases taken together: each certificate speaks of one, and every further one tells more",
    "copies of the old weights and of the data: checkpoints, backups, run directories, caches, logs",
    "predictions and embeddings that were computed with the old weights",
    "what was fitted on all rows before it came here: scalers, PCA, similarity graphs, the choice of settings",
)


@dataclass(frozen=True)
class Certificate:
    """A claim about released weights. `statement` says it in words."""

    level: Level
    statement: str
    epsilon: float | None = None  # what is claimed; None where nothing is
    delta: float | None = None
    sigma: float | None = None  # standard deviation of the noise in the released weights
    distance: float | None = None  # zeta, the bound on how far the weights are from the retrained ones
    epsilon_under_constants: float | None = None  # what would be claimed if every condition held
    sigma_needed: float | None = None  # for the asked epsilon and delta, by exact accounting
    sigma_by_paper: float | None = None  # the same by the paper's formula, which is proven for epsilon < 1
    constants: Constants | None = None
    conditions: tuple[Finding, ...] = field(default=())
    refuted: tuple[str, ...] = ()  # conditions that were measured and do not hold, now or at an earlier request

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        known = dataclasses.asdict(self)
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in known.items()}


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
    conditions: tuple[Finding, ...],
    refuted_before: tuple[str, ...] = (),
) -> Certificate:
    """The paper's claim (docs/maths.md, section 8): `distance` is its bound under `constants`.

    Without a `sigma` the noise is as large as the asked epsilon and delta need it; with one, the epsilon is the one
    that this sigma implies. No noise, no claim; and a condition that is known not to hold leaves none either.
    """
    needed = exact_sigma(zeta=distance, epsilon=epsilon, delta=delta)
    added = needed if sigma is None else sigma
    implied = epsilon if sigma is None else epsilon_of(ratio=_ratio(distance, sigma), delta=delta)
    refuted = tuple(dict.fromkeys([*refuted_before, *(f.name for f in conditions if f.verdict == "fails")]))
    numbers: dict[str, Any] = {
        "delta": delta,
        "sigma": added,
        "distance": distance,
        "epsilon_under_constants": implied,
        "sigma_needed": needed,
        "sigma_by_paper": paper_sigma(zeta=distance, epsilon=epsilon, delta=delta),
        "constants": constants,
        "conditions": conditions,
        "refuted": refuted,
    }
    if not math.isfinite(implied):
        told = "the noise is too little for any epsilon, so nothing is guaranteed"
        return Certificate("empirical", told, **numbers)
    claim = (
        f"the released weights are ({implied:.4g}, {delta:g})-indistinguishable from retrained weights with the same "
        f"noise of standard deviation {added:.4g}"
    )
    if refuted:
        failing = "; ".join(refuted)
        told = f"nothing follows for this model, because this does not hold: {failing} (the claim would be: {claim})"
        return Certificate("conditional", told, **numbers)
    return Certificate("conditional", f"if every condition listed holds, {claim}", epsilon=implied, **numbers)


def _ratio(distance: float, sigma: float) -> float:
    if distance == 0:
        return 0.0
    return distance / sigma if sigma > 0 else math.inf
