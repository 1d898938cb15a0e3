"""What an outcome claims: its level, its numbers, and the sentence that says no more than they do."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from graphforget.certificates.assumptions import Finding
from graphforget.certificates.gaussian import epsilon_of, exact_sigma, mu_gdp, paper_sigma
from graphforget.certificates.levels import Level
from graphforget.certificates.paper_bounds import Constants
from graphforget.errors import InputError

NOT_COVERED = (
    "models released before this request, and what can be learned by comparing them with the next one",
    "requests that were chosen by looking at earlier releases: this claim takes them as given",
    "several releases taken together: this claim speaks of one (a run's ledger adds up those of its own line)",
    "what this document itself tells: the level, whether the weights changed, a distance of two digits, how many "
    "training nodes are left, the digest of the retained graph, the time; and what a report tells beside it",
    "copies of the old weights and of the data: checkpoints, backups, run directories, caches, logs",
    "predictions and embeddings that were computed with the old weights",
    "what was fitted on all rows before it came here: scalers, PCA, similarity graphs, the choice of settings",
)

ESTIMATED = "rounding of float64 beyond its allowance, which for this model is an estimate and not a bound"


@dataclass(frozen=True)
class Claim:
    """A claim about released weights. `statement` says it in words."""

    level: Level
    statement: str
    epsilon: float | None = None  # what is claimed; None where nothing is
    delta: float | None = None
    sigma: float | None = None  # standard deviation of the noise in the released weights
    distance: float | None = None  # zeta, the bound on how far what the noise is added to is from the retrained weights
    tolerance: float | None = None  # the largest distance that epsilon and delta allow at this sigma
    epsilon_measured: float | None = None  # what the measured distance itself implies, at most epsilon
    epsilon_under_constants: float | None = None  # what would be claimed if every condition held
    sigma_needed: float | None = None  # for the asked epsilon and delta, by exact accounting
    sigma_by_paper: float | None = None  # the same by the paper's formula, which is proven for epsilon < 1
    constants: Constants | None = None
    conditions: tuple[Finding, ...] = field(default=())
    refuted: tuple[str, ...] = ()  # conditions that were measured and do not hold, now or at an earlier request
    centred: bool = False  # the noise is added at the middle of where the optimum can be, not at the weights

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        known = dataclasses.asdict(self)
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in known.items()}


UNTOUCHED = "no training loss depends on what was removed, so training without it gives such weights as well"
RETRAINED = "the model was trained from fresh weights on the retained graph alone"
MADE = "the model was trained on the retained graph alone, from the weights that 'model' made for it"
SHARDED = (
    "every shard whose training had seen what was removed was trained from fresh weights on what is retained, and "
    "which node is in which shard does not depend on what was removed"
)
EXACT = (UNTOUCHED, RETRAINED, MADE, SHARDED)  # why an outcome is exact; there is no other reason


def exact(statement: str, *, sigma: float = 0.0) -> Claim:
    """epsilon = 0: the distribution of retraining itself. It needs no noise, and bears that of every release."""
    return Claim("exact", statement, epsilon=0.0, delta=0.0, sigma=sigma, distance=0.0)


STANDING = "this request touches no training loss, so the weights stay as they are, and of them: "


def standing(claim: Claim) -> Claim:
    """The claim of weights that stay. It says so, for whoever has the new weights alone cannot see it."""
    return dataclasses.replace(claim, statement=STANDING + claim.statement)


def empirical(statement: str) -> Claim:
    return Claim("empirical", statement)


FOR_ROUNDING = 1 / 16  # of delta: what is set aside for noise that is drawn and added in float64


def tolerance(*, sigma: float, epsilon: float, delta: float) -> float:
    """`sigma mu_gdp(epsilon, 15/16 delta)`: how far from the optimum is near enough (docs/maths.md, section 9)."""
    return sigma * mu_gdp(epsilon=epsilon, delta=(1 - FOR_ROUNDING) * delta)


def noise_will_do(slip: float, *, epsilon: float, delta: float) -> bool:
    """Whether noise that is `slip` in total variation from Gaussian keeps within what is set aside for it."""
    return (1 + math.exp(min(epsilon, 700.0))) * slip <= FOR_ROUNDING * delta


def certified(*, distance: float, epsilon: float, delta: float, sigma: float) -> Claim:
    """The claim of a release around the `Residual.centre` of a strongly convex objective, with fixed `sigma`.

    `distance` is its measured `radius`: how far the optimum can be. It is rounded up to two digits, but never over the
    tolerance: a claim with all of its digits would be a way to test guesses about the private weights.
    """
    if not sigma > 0:
        raise InputError(f"sigma is {sigma}, and without noise nothing is certified")
    allowed = tolerance(sigma=sigma, epsilon=epsilon, delta=delta)
    if not 0 <= distance <= allowed:
        raise InputError(f"the distance {distance:.3g} is over the tolerance {allowed:.3g}, so nothing is certified")
    told = min(rounded_up(distance), allowed)
    statement = (
        f"the released weights are ({epsilon:g}, {delta:g})-indistinguishable from the optimum on the retained graph, "
        f"where retraining leads, both with fresh Gaussian noise of standard deviation {sigma:g}"
    )
    return Claim(
        "certified",
        statement,
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        distance=told,
        tolerance=allowed,
        epsilon_measured=min(rounded_up(epsilon_of(ratio=told / sigma, delta=(1 - FOR_ROUNDING) * delta)), epsilon),
        centred=True,
    )


def rounded_up(value: float) -> float:
    """To two significant digits, never down; what has two digits stays as it is."""
    nearest = f"{value:.1e}"
    if float(nearest) >= value:
        return float(nearest)
    unit = Decimal(10) ** (int(nearest.partition("e")[2]) - 1)
    return float(Decimal(nearest) + unit)


def conditional(
    *,
    distance: float,
    epsilon: float,
    delta: float,
    sigma: float | None,
    constants: Constants,
    conditions: tuple[Finding, ...],
    refuted_before: tuple[str, ...] = (),
) -> Claim:
    """The paper's claim (docs/maths.md, section 8): `distance` is its bound under `constants`.

    Without a `sigma` the noise is as large as the asked epsilon and delta need it; with one, the epsilon is the one
    that this sigma implies. No noise, no claim; and a condition that is known not to hold leaves none either.
    """
    needed = exact_sigma(zeta=distance, epsilon=epsilon, delta=delta)
    added = needed if sigma is None else sigma
    implied = epsilon if sigma is None else epsilon_of(ratio=_ratio(distance, sigma), delta=delta)
    refuted = _refuted(conditions, refuted_before)
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
    claim = (
        f"the released weights are ({implied:.4g}, {delta:g})-indistinguishable from retrained weights with the same "
        f"noise of standard deviation {added:.4g}"
    )
    return _hedged(claim, numbers)


def perturbed(
    *,
    leftover: float,
    noise: float,
    scale: float,
    epsilon: float,
    delta: float,
    conditions: tuple[Finding, ...],
    constants: Constants | None = None,
    refuted_before: tuple[str, ...] = (),
) -> Claim:
    """The claim of weights trained with `N(0, noise^2)` in the objective that leave `leftover` of its gradient.

    They are those of training with noise that lies `leftover` away, so as indistinguishable as two Gaussians whose
    means are `leftover / noise` sigmas apart (docs/maths.md, section 10; Guo et al. 2020, whose own formula for epsilon
    is proven for small ones only). `scale` is the strong convexity of the summed objective, by which a gradient becomes
    a distance.
    """
    exactly = epsilon_of(ratio=leftover / noise, delta=delta)
    implied = rounded_up(exactly) if 0 < exactly < math.inf else exactly
    refuted = _refuted(conditions, refuted_before)
    numbers: dict[str, Any] = {
        "delta": delta,
        "distance": rounded_up(leftover / scale),
        "tolerance": noise * mu_gdp(epsilon=epsilon, delta=delta) / scale,
        "epsilon_under_constants": implied,
        "constants": constants,
        "conditions": conditions,
        "refuted": refuted,
    }
    claim = (
        f"the weights are ({implied:.4g}, {delta:g})-indistinguishable from the optimum on the retained graph, where "
        f"training anew leads, with fresh noise of standard deviation {noise:g} in the objective"
    )
    return _hedged(claim, numbers)


def _refuted(conditions: tuple[Finding, ...], before: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*before, *(f.name for f in conditions if f.verdict == "fails")]))


def _hedged(claim: str, numbers: dict[str, Any]) -> Claim:
    """What is claimed under conditions, and not at all if one is refuted or the epsilon infinite."""
    implied, refuted = numbers["epsilon_under_constants"], numbers["refuted"]
    if not math.isfinite(implied):
        return Claim("empirical", "the noise is too little for any epsilon, so nothing is guaranteed", **numbers)
    if refuted:
        failing = "; ".join(refuted)
        told = f"nothing follows for this model, because this does not hold: {failing} (the claim would be: {claim})"
        return Claim("conditional", told, **numbers)
    return Claim("conditional", f"if every condition listed holds, {claim}", epsilon=implied, **numbers)


def _ratio(distance: float, sigma: float) -> float:
    if distance == 0:
        return 0.0
    return distance / sigma if sigma > 0 else math.inf
