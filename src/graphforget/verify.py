"""Recomputes what a certificate says from the retained graph and the weights, without the deleted data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from torch import Tensor

from graphforget.certificates.annex import Annex, weights_digest
from graphforget.certificates.claim import STANDING, rounded_up
from graphforget.certificates.document import Certificate, subject
from graphforget.certificates.gaussian import grid
from graphforget.certificates.ledger import Entry
from graphforget.certificates.signing import check_signature
from graphforget.errors import Mismatch
from graphforget.graph import Graph
from graphforget.trained import Trained
from graphforget.unlearning.cgu import Cgu
from graphforget.verification.claims import check_claim
from graphforget.verification.entries import check_entries
from graphforget.verification.evidence import Evidence
from graphforget.verification.noise import check_gaussian


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


def verify(
    certificate: Certificate,
    trained: Trained,
    graph: Graph,
    *,
    released: Trained | Tensor | None = None,
    annexes: Sequence[Annex] = (),
    entries: Sequence[Entry] = (),
    key: Ed25519PublicKey | None = None,
) -> Verification:
    """Recomputes every number it can. Raises `Mismatch` with the first thing that does not match.

    `trained` are the private weights after the deletion and `graph` the retained graph (`outcome.trained`,
    `outcome.graph`). With `released` weights the noise is tested, with `annexes` the salted digests and that nothing
    deleted is in the graph, with ledger `entries` their chain, with a public `key` who signed.
    """
    if isinstance(released, Trained):
        released = released.theta
    given = Evidence(certificate, trained, graph, released, annexes, entries, key)
    checks: list[Check] = []
    unchecked: list[str] = []
    for name, look in LOOKS:
        found = look(given)
        if found is None:
            unchecked.append(name)
        else:
            checks.append(Check(name, found))
    if certificate.signature is not None and key is None:
        unchecked.append("who signed: no public key was given, and anybody can sign with one of their own")
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
    return f"signed by {signer[:16]}..." + ("" if given.key else ", whoever that is")


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
    check_gaussian(tilt, sigma=noise, what="the noise in the objective")
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
    """The heart of it: how far the optimum on the retained graph can be from what goes out, measured here and now."""
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
    found = given.measured
    if stated.level == "exact":
        allowed = trained.recipe.tolerance + found.rounding / found.mu
        if found.distance > allowed:
            raise Mismatch(
                f"the weights are up to {rounded_up(found.distance):g} from the optimum, training ends at {allowed:.3g}"
            )
        return f"at most {rounded_up(found.distance):g} away, as training leaves it"
    for name, limit in (("tolerance", stated.tolerance), ("certificate's distance", stated.distance)):
        if limit is None or not found.radius <= limit * (1 + 1e-9):
            told = f"what is released may be {rounded_up(found.radius):g} from the retrained weights"
            raise Mismatch(f"{told}, over the {name}" + ("" if limit is None else f" {limit:.3g}"))
    return f"at most {stated.distance:g} from what is released, tolerance {stated.tolerance:.3g}"


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
    added, sigma = given.released - given.centre, given.certificate.sigma or 0.0
    if sigma == 0:
        if added.any():
            raise Mismatch("the released weights are not the private ones, although they should carry no noise")
        return "none, as the certificate says"
    # Released weights lie on a grid; spread over its cells again, the noise has no steps that a test would find.
    cells = torch.rand(added.shape, generator=torch.Generator().manual_seed(0), dtype=added.dtype) - 0.5
    check_gaussian(added, sigma=sigma, what="the noise in the released weights", spread=grid(sigma) * cells)
    return f"as if from N(0, {sigma:g}^2), {added.numel():,} weights"


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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


LOOKS: tuple[tuple[str, Callable[[Evidence], str | None]], ...] = (
    ("signature", _signature),
    ("claim", check_claim),
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
