"""Whether a certificate's claim follows from its own inputs and from the model at hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from graphforget.certificates.assumptions import BOUNDED, CONVEX, LIPSCHITZ, OPTIMUM, Finding
from graphforget.certificates.claim import (
    EXACT,
    SHARDED,
    STANDING,
    Claim,
    certified,
    conditional,
    exact,
    perturbed,
    standing,
)
from graphforget.certificates.levels import MEANING
from graphforget.certificates.paper_bounds import Constants
from graphforget.errors import InputError, Mismatch
from graphforget.models.sharded import Sharded
from graphforget.unlearning.ceu import ASSUMED, Ceu
from graphforget.unlearning.cgu import Cgu
from graphforget.unlearning.idea import distance_bound
from graphforget.unlearning.perturbation import found_conditions, leftover, strong_convexity
from graphforget.verification.evidence import Evidence


def check_claim(given: Evidence) -> str:
    """That the words and numbers of the claim are those that its level has."""
    stated = given.certificate
    if stated.definition != MEANING[stated.level]:
        raise Mismatch(f"the definition is not that of level {stated.level!r}")
    rebuilt = _rebuilt(given)
    if rebuilt is not None and stated.statement.startswith(STANDING):
        rebuilt = standing(rebuilt)
    for field in dataclasses.fields(Claim) if rebuilt is not None else ():
        ours, theirs = getattr(rebuilt, field.name), getattr(stated, field.name)
        if ours != theirs and not _close(ours, theirs):
            raise Mismatch(f"the certificate's {field.name} is {theirs!r}, recomputed it is {ours!r}")
    if (stated.epsilon is not None) and stated.level == "empirical":
        raise Mismatch("an empirical outcome has no epsilon")
    if stated.centred and stated.level == "empirical" and not given.strongly_convex:
        raise Mismatch("the noise is said to lie around where the optimum can be, and of this model nobody knows it")
    return f"level {stated.level!r}, its words and numbers fit together"


def _rebuilt(given: Evidence) -> Claim | None:
    """The claim as it follows from its own inputs."""
    stated = given.certificate
    if stated.level == "exact":
        if stated.statement not in EXACT:
            raise Mismatch("the statement gives no reason for which an outcome is exact")
        if stated.statement == SHARDED and not isinstance(given.trained.module, Sharded):
            raise Mismatch("the statement speaks of shards, and the model has none")
        return exact(stated.statement, sigma=stated.sigma or 0.0)
    if stated.level == "certified":
        if None in (stated.distance, stated.epsilon, stated.delta, stated.sigma):
            raise Mismatch("a certified claim without distance, epsilon, delta or sigma is none")
        try:
            return certified(
                distance=stated.distance or 0.0,
                epsilon=stated.epsilon or 0.0,
                delta=stated.delta or 0.0,
                sigma=stated.sigma or 0.0,
            )
        except InputError as error:
            raise Mismatch(str(error)) from error
    if stated.level == "conditional":
        return _rebuilt_conditional(given)
    return None


def _rebuilt_conditional(given: Evidence) -> Claim:
    stated, trained = given.certificate, given.trained
    if trained.obstacles:
        raise Mismatch(f"the level is too high for this model: {trained.obstacles[0]}")
    if stated.method in (Cgu.name, Ceu.name):
        return _rebuilt_perturbed(given)
    if stated.constants is None or stated.sigma is None or stated.delta is None or not trained.history:
        raise Mismatch("a conditional claim without constants, sigma, delta or a history is none")
    _listed(stated.conditions, (BOUNDED, LIPSCHITZ, CONVEX, OPTIMUM))
    rebuilt = conditional(
        distance=distance_bound(trained, stated.constants),
        epsilon=1.0,
        delta=stated.delta,
        sigma=stated.sigma,
        constants=stated.constants,
        conditions=stated.conditions,
        refuted_before=trained.refuted,
    )
    # How much noise would have been needed is a remark on the asked epsilon, which the claim does not hold.
    return dataclasses.replace(rebuilt, sigma_needed=stated.sigma_needed, sigma_by_paper=stated.sigma_by_paper)


def _rebuilt_perturbed(given: Evidence) -> Claim:
    """Where the noise is in the objective. What is left of the gradient is measured here and now."""
    stated, trained = given.certificate, given.trained
    noise, by_ceu = trained.recipe.objective_noise, stated.method == Ceu.name
    if not noise or stated.delta is None or not trained.history or by_ceu != (stated.constants is not None):
        raise Mismatch("a claim by noise in the objective without that noise, delta, constants or a history is none")
    if not by_ceu and Cgu().unsupported(trained) is not None:
        raise Mismatch("the claim is CGU's, and the model is not one that CGU takes")
    m = given.graph.train_rows.numel()
    measured = m * float(trained.objective(given.graph).gradient(trained.theta).norm())
    _check_conditions(stated.conditions, found_conditions(trained, m=m, measured=measured))
    if stated.constants is not None:
        _check_assumed(stated.conditions, stated.constants, given)
    rebuilt = perturbed(
        leftover=leftover(trained),
        noise=noise,
        scale=strong_convexity(trained, stated.constants) * m,
        epsilon=1.0,
        delta=stated.delta,
        conditions=stated.conditions,
        constants=stated.constants,
        refuted_before=trained.refuted,
    )
    # The tolerance is that of the asked epsilon, which the claim does not hold; sigma is noise beside it.
    return dataclasses.replace(rebuilt, tolerance=stated.tolerance, sigma=stated.sigma)


def _listed(conditions: Sequence[Finding], needed: Iterable[str]) -> dict[str, Finding]:
    """The conditions of a claim by name. Raises `Mismatch` if one that it needs is not among them."""
    told = {finding.name: finding for finding in conditions}
    missing = set(needed) - told.keys()
    if missing:
        raise Mismatch(f"a conditional claim without this condition is none: {min(missing)}")
    return told


def _check_assumed(stated: Sequence[Finding], constants: Constants, given: Evidence) -> None:
    """Raises `Mismatch` unless CEU's conditions are those of its constants, and hold only where they can."""
    told = _listed(stated, (name for name, _ in ASSUMED))
    for name, constant in ASSUMED:
        if told[name].threshold != getattr(constants, constant):
            raise Mismatch(f"the condition that {name} is not about the constant that the certificate declares")
    proven = given.strongly_convex and constants.strong_convexity <= given.trained.recipe.mu
    if told[CONVEX].verdict == "holds" and not proven:
        raise Mismatch(f"the condition that {CONVEX} is said to hold, and nothing proves it")


def _check_conditions(stated: Sequence[Finding], found: Sequence[Finding]) -> None:
    """Raises `Mismatch` unless every condition that can be looked at again is stated as it is found."""
    told = _listed(stated, (finding.name for finding in found))
    for ours in found:
        theirs = told[ours.name]
        pairs = ((ours.measured, theirs.measured), (ours.threshold, theirs.threshold))
        if ours.verdict != theirs.verdict or any(a != b and not _near(a, b) for a, b in pairs):
            raise Mismatch(f"the condition that {ours.name} is not as the certificate tells it: {ours.verdict}")


def _near(a: float | None, b: float | None) -> bool:
    """A gradient measured again and told with two digits: the same but for rounding."""
    return a is not None and b is not None and math.isclose(a, b, rel_tol=0.11, abs_tol=1e-9)


def _close(a: object, b: object) -> bool:
    """The same number up to rounding; what was infinite is None in a document."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9)
    return isinstance(a, float) and not math.isfinite(a) and b is None
