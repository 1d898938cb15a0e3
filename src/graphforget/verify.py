"""Recomputes what a certificate says from the retained graph and the weights, without the deleted data."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from scipy import stats
from torch import Tensor

from graphforget.certificates.annex import Annex, weights_digest
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
from graphforget.certificates.document import Certificate, subject
from graphforget.certificates.gaussian import grid
from graphforget.certificates.ledger import Entry
from graphforget.certificates.ledger import check as check_chain
from graphforget.certificates.levels import MEANING
from graphforget.certificates.paper_bounds import Constants
from graphforget.certificates.residual import residual
from graphforget.certificates.signing import check_signature
from graphforget.errors import InputError, Mismatch
from graphforget.graph import Graph
from graphforget.losses import is_convex
from graphforget.models.registry import is_affine
from graphforget.models.sharded import Sharded
from graphforget.trained import Trained
from graphforget.unlearning.ceu import ASSUMED, Ceu
from graphforget.unlearning.cgu import Cgu
from graphforget.unlearning.idea import distance_bound
from graphforget.unlearning.perturbation import found_conditions, leftover, strong_convexity

FALSE_ALARM = 1e-6  # the chance that rightly drawn noise is taken for wrong, in each of two tests


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what was found."""

    name: str
    found: str


@dataclass(frozen=True)
class Verification:
    """Everything that was checked and holds, and what could not be checked with what was given."""

    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a certificate is held against. `annexes` are of all requests so far, the certificate's own last."""

    certificate: Certificate
    trained: Trained
    graph: Graph
    released: Tensor | None = None
    annexes: Sequence[Annex] = ()
    entries: Sequence[Entry] = ()  # of the ledger
    key: Ed25519PublicKey | None = None

    @property
    def strongly_convex(self) -> bool:
        """By construction of the model and the loss at hand, whatever anybody wrote down."""
        return is_affine(self.trained.module) and is_convex(self.trained.loss)


def verify(
    certificate: Certificate,
    trained: Trained,
    graph: Graph,
    *,
    released: Tensor | None = None,
    annexes: Sequence[Annex] = (),
    entries: Sequence[Entry] = (),
    key: Ed25519PublicKey | None = None,
) -> Verification:
    """Recomputes every number it can. Raises `Mismatch` with the first thing that does not match.

    `trained` are the private weights after the deletion and `graph` the retained graph (`outcome.trained`,
    `outcome.graph`). With `released` weights the noise is tested, with `annexes` the salted digests and that nothing
    deleted is in the graph, with ledger `entries` their chain, with a public `key` who signed.
    """
    given = Evidence(certificate, trained, graph, released, annexes, entries, key)
    checks: list[Check] = []
    unchecked: list[str] = []
    for name, look in LOOKS:
        found = look(given)
        if found is None:
            unchecked.append(name)
        else:
            checks.append(Check(name, found))
    if certificate.level == "exact":
        unchecked.append("that the weights came of training alone: nothing in them shows it, the signer vouches for it")
    if trained.tilt is not None:
        unchecked.append("that the noise in the objective was drawn before training: the signer vouches for it")
    if certificate.statement.startswith(STANDING):
        unchecked.append("that the request touches no training loss, now that it is deleted: the signer vouches for it")
    if certificate.level == "conditional" and certificate.method != Cgu.name:
        unchecked.append("what was measured of the conditions, now that what it was measured on is deleted")
    return Verification(tuple(checks), tuple(unchecked))


# Each returns what it found, or None if it was not given what it needs. The order is that of what depends on what.


def _signature(given: Evidence) -> str | None:
    if given.certificate.signature is None and given.key is None:
        return None
    signer = check_signature(given.certificate, given.key)
    return f"signed by {signer[:16]}..." + ("" if given.key else ", whose key was not given, so anybody may have")


def _document(given: Evidence) -> str:
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


def _graph(given: Evidence) -> str:
    if given.trained.graph_digest != given.graph.digest:
        raise Mismatch("the graph is not the one that the model stands on")
    if given.certificate.digests["graph"] != given.graph.digest:
        raise Mismatch("the graph is not the retained graph that the certificate speaks of")
    if given.certificate.training_nodes != given.graph.train_rows.numel():
        raise Mismatch("the number of training nodes is not that of the retained graph")
    return f"the digest of {given.graph.num_nodes:,} nodes and {given.graph.num_edges:,} edges is the certificate's"


def _model(given: Evidence) -> str:
    recipe, stated = given.trained.recipe, given.certificate
    for what, ours in subject(given.trained, strongly_convex=given.strongly_convex).items():
        theirs = dict(getattr(stated, what))
        if theirs != ours:
            raise Mismatch(f"the certificate speaks of the {what} {theirs}, this one is {ours}")
    tilt, noise = given.trained.tilt, recipe.objective_noise
    if (tilt is not None) != bool(noise):
        raise Mismatch("the noise in the objective is missing, or there should be none")
    if tilt is None:
        return f"{recipe.model}, mu = {recipe.mu:g}"
    _check_gaussian(tilt, sigma=noise, what="the noise in the objective")
    return f"{recipe.model}, mu = {recipe.mu:g}, noise in the objective as if from N(0, {noise:g}^2)"


def _weights(given: Evidence) -> str | None:
    if not given.annexes:
        return None
    if given.annexes[-1].weights(given.trained.theta) != given.certificate.digests["weights_after"]:
        raise Mismatch("the weights are not those that the certificate speaks of")
    if given.annexes[-1].state(given.trained.facts()) != given.certificate.digests["state"]:
        raise Mismatch("recipe, reach or history of the model are not those that the certificate speaks of")
    return "the salted digests of the weights and of what is written down of them are the certificate's"


def _changed(given: Evidence) -> str:
    stated = given.certificate
    if stated.changed == (stated.digests["weights_before"] == stated.digests["weights_after"]):
        raise Mismatch("the certificate does not say rightly whether the weights changed")
    stays = stated.statement.startswith(STANDING)
    if not stated.changed and stated.level != "exact" and not stays:
        raise Mismatch("the weights are those from before, so nothing was unlearned")
    if stays and (stated.changed or stated.level in ("exact", "certified")):
        raise Mismatch("the certificate says that the weights stay, which does not go with the rest of it")
    return "the weights changed" if stated.changed else "the weights are those from before"


def _residual(given: Evidence) -> str | None:
    """The heart of it: how far the weights are from the optimum on the retained graph, measured here and now."""
    stated, trained = given.certificate, given.trained
    if stated.level not in ("exact", "certified"):
        return None
    if trained.obstacles:
        raise Mismatch(f"the level is too high for this model: {trained.obstacles[0]}")
    if stated.level == "exact" and trained.history:
        raise Mismatch("the level is too high: the weights moved away from those of training")
    if not given.strongly_convex:
        if stated.level == "certified":
            raise Mismatch("the level is too high: the objective is not strongly convex by construction")
        return None
    if trained.tilt is not None:
        if stated.level == "certified":
            raise Mismatch("the level is too high: noise in the objective can be made to fit any weights afterwards")
        return None
    if trained.recipe.sigma and stated.sigma != trained.recipe.sigma:
        raise Mismatch(f"sigma is {stated.sigma}, the model's was fixed at {trained.recipe.sigma} when it was trained")
    found = residual(trained.objective(given.graph), trained.theta)
    if stated.level == "exact":
        allowed = trained.recipe.tolerance + found.rounding / found.mu
        if found.distance > allowed:
            raise Mismatch(
                f"the weights are up to {found.distance:.3g} from the optimum, training ends at {allowed:.3g}"
            )
        return f"||grad F|| / mu = {found.distance:.2e}, as training leaves it"
    for name, limit in (("tolerance", stated.tolerance), ("certificate's distance", stated.distance)):
        if limit is None or not found.distance <= limit * (1 + 1e-9):
            raise Mismatch(
                f"the weights are up to {found.distance:.3g} from the retrained ones, over the {name} {limit}"
            )
    return f"||grad F|| / mu = {found.distance:.2e}, at most the tolerance {stated.tolerance:.2e}"


def _released(given: Evidence) -> str | None:
    if given.released is None:
        return None
    if weights_digest(given.released) != given.certificate.digests["released"]:
        raise Mismatch("the released weights are not those that the certificate speaks of")
    return "the digest of the released weights is the certificate's"


def _noise(given: Evidence) -> str | None:
    """Whether what was added looks like `N(0, sigma^2)`: its size by chi-square, its shape by Kolmogorov-Smirnov."""
    if given.released is None:
        return None
    added, sigma = given.released - given.trained.theta, given.certificate.sigma or 0.0
    if sigma == 0:
        if added.any():
            raise Mismatch("the released weights are not the private ones, although they should carry no noise")
        return "none, as the certificate says"
    # Released weights lie on a grid; spread over its cells again, the noise has no steps that a test would find.
    cells = torch.rand(added.shape, generator=torch.Generator().manual_seed(0), dtype=added.dtype) - 0.5
    spread = _check_gaussian(added, sigma=sigma, what="the noise in the released weights", spread=grid(sigma) * cells)
    return f"standard deviation {spread:.4g} over {added.numel():,} weights, sigma = {sigma:.4g}"


def _check_gaussian(draws: Tensor, *, sigma: float, what: str, spread: Tensor | float = 0.0) -> float:
    """Raises `Mismatch` for what `N(0, sigma^2)` would hardly give; else how large it is."""
    size = float(draws @ draws) / sigma**2
    found = math.sqrt(size / draws.numel()) * sigma
    if 2 * min(stats.chi2.cdf(size, draws.numel()), stats.chi2.sf(size, draws.numel())) < FALSE_ALARM:
        raise Mismatch(f"{what} has standard deviation {found:.4g}, not {sigma:.4g}")
    if stats.kstest(((draws + spread) / sigma).numpy(), "norm").pvalue < FALSE_ALARM:
        raise Mismatch(f"{what} is not Gaussian")
    return found


def _request(given: Evidence) -> str | None:
    if not given.annexes:
        return None
    own = given.annexes[-1]
    if (own.request, own.digest) != (given.certificate.digests["request"], given.certificate.digests["annex"]):
        raise Mismatch("the annex is not that of the request that the certificate speaks of")
    for annex in given.annexes:
        found = annex.still_in(given.graph)
        if found is not None:
            raise Mismatch(f"{found} is in the retained graph")
    return f"nothing that the {_count(len(given.annexes), 'request')} so far named is in the retained graph"


def _ledger(given: Evidence) -> str | None:
    if not given.entries:
        return None
    annexes = check_entries(given.entries)
    *_, last = given.entries
    if last.certificate_digest != given.certificate.digest:
        raise Mismatch("the certificate is not the one of the ledger's last entry")
    if given.annexes and [annex.digest for annex in given.annexes] != annexes:
        raise Mismatch("the ledger and the annexes tell of other requests")
    return f"unbroken, {_count(len(given.entries), 'request')}, the last one that of this certificate"


def check_entries(entries: Sequence[Entry]) -> list[str]:
    """Raises `Mismatch` unless the chain holds and every entry says what its certificate does. The annexes' digests."""
    try:
        check_chain(entries)
    except InputError as error:
        raise Mismatch(str(error)) from error
    annexes = []
    for entry in entries:
        try:
            certificate = Certificate.from_dict(json.loads(entry.answer)["certificate"])
        except (ValueError, KeyError, TypeError) as error:
            raise Mismatch(f"entry {entry.number} of the ledger holds no certificate") from error
        if certificate.signature is not None:
            check_signature(certificate)
        said = (entry.certificate_digest, entry.level, entry.request_digest, entry.ratio, entry.previous)
        meant = (
            *(certificate.digest, certificate.level, certificate.digests["request"]),
            *(release_ratio(certificate), certificate.follows),
        )
        if said != meant:
            raise Mismatch(f"entry {entry.number} of the ledger says something else than its certificate")
        annexes.append(certificate.digests["annex"])
    return annexes


def release_ratio(certificate: Certificate) -> float | None:
    """`zeta / sigma` of a release: what it adds to those before it. None where nothing is proven."""
    if certificate.level == "exact":
        return 0.0
    if certificate.level == "certified" and certificate.sigma:
        return (certificate.distance or 0.0) / certificate.sigma
    return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _close(a: object, b: object) -> bool:
    """The same number up to rounding; what was infinite is None in a document."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9)
    return isinstance(a, float) and not math.isfinite(a) and b is None


LOOKS: tuple[tuple[str, Callable[[Evidence], str | None]], ...] = (
    ("signature", _signature),
    ("claim", _document),
    ("retained graph", _graph),
    ("model and objective", _model),
    ("weights", _weights),
    ("change", _changed),
    ("distance to the optimum", _residual),
    ("released weights", _released),
    ("noise", _noise),
    ("deleted data", _request),
    ("ledger", _ledger),
)
