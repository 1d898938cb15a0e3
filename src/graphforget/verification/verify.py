"""Recomputes what a certificate says from the retained graph and the weights, without the deleted data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from torch import Tensor, nn

from graphforget.certificates.annex import Annex, weights_digest
from graphforget.certificates.chain import REFUSED, START, Entry
from graphforget.certificates.document import Certificate
from graphforget.certificates.issue import ALGORITHMS, subject
from graphforget.certificates.releases import counted_in, counted_ratio
from graphforget.certificates.signing import check_signature
from graphforget.errors import InputError, Mismatch, Refused
from graphforget.graph.graph import Graph
from graphforget.privacy.noise import grid
from graphforget.progress import Progress
from graphforget.training.environment import environment
from graphforget.training.retraining import replayed
from graphforget.training.trained import Trained
from graphforget.verification.entries import check_entries
from graphforget.verification.evidence import Evidence
from graphforget.verification.noise import check_fresh, check_gaussian, smallest_caught

CANNOT_BE_SEEN = (
    "that the noise came from a secret source, and was left out along no single direction: the signer vouches for it",
    "that nobody drew the noise several times and kept what suited them: the signer vouches for it",
)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what was seen."""

    name: str
    found: str


@dataclass(frozen=True)
class Verification:
    """Everything that was checked and holds, and what could not be checked with what was given. It may be shown."""

    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "audience": "public",
            "ok": True,
            "checks": {check.name: check.found for check in self.checks},
            "unchecked": list(self.unchecked),
        }


def verify(
    certificate: Certificate,
    trained: Trained,
    graph: Graph,
    *,
    released: Trained | Tensor | None = None,
    annexes: Sequence[Annex] = (),
    entries: Sequence[Entry] = (),
    follows: str = START,
    key: Ed25519PublicKey | None = None,
    before: Evidence | None = None,
    replay: bool = False,
    model: Callable[[], nn.Module] | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Recomputes every number it can. Raises `Mismatch` with the first thing that does not match.

    `trained` are the private weights after the deletion and `graph` the retained graph (`outcome.trained`,
    `outcome.graph`). With `released` weights the noise is tested, with `annexes` the salted digests and that nothing
    deleted is in the graph, with ledger `entries` their chain, with a public `key` who signed, with the release
    `before` that the noise is another one. `replay` trains again and compares, for `exact` claims; `model` makes a
    fresh module of one's own for it.

    Example:
        >>> import graphforget as gf
        >>> graph = gf.load("patients")
        >>> outcome = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(nodes=["patient-0017"]))
        >>> verification = gf.verify(outcome.certificate, outcome.trained, outcome.graph)
        >>> "claim" in [check.name for check in verification.checks]
        True
    """
    if isinstance(released, Trained):
        released = released.theta
    same = _replayed(certificate, trained, graph, model, progress) if replay else False
    given = Evidence(certificate, trained, graph, released, annexes, entries, follows, key, same, before)
    checks: list[Check] = []
    unchecked: list[str] = []
    for name, check in CHECKS:
        result = check(given)
        if result is None:
            unchecked.append(name)
        else:
            checks.append(Check(name, result))
    if certificate.signature is not None and key is None:
        unchecked.append("who signed: no public key was given, and anybody can sign with one of their own")
    unchecked += certificate.claim.unchecked(given)
    if certificate.sigma:
        unchecked += CANNOT_BE_SEEN
    if certificate.chosen:
        names = ", ".join(certificate.chosen)
        unchecked.append(f"why this was chosen for this request, which may tell of it: {names}")
    return Verification(tuple(checks), tuple(unchecked))


def _replayed(
    certificate: Certificate,
    trained: Trained,
    graph: Graph,
    model: Callable[[], nn.Module] | None,
    progress: Progress | None,
) -> bool:
    """Whether training again gives the same weights. Raises `Mismatch` if it gives others."""
    if certificate.level != "exact":
        raise InputError(f"a replay is for level 'exact', and this certificate has {certificate.level!r}")
    recorded, here = trained.recipe.environment, environment()
    others = [name for name in {**recorded, **here} if recorded.get(name) != here.get(name)]
    if others:
        there, now = recorded.get(others[0]), here.get(others[0])
        message = f"the training ran with {others[0]} = {there}, this is {now}"
        raise Refused(f"{message}, and bits are the same only in the same environment")
    again = replayed(trained, graph, model=model, progress=progress)
    if not torch.equal(again.theta, trained.theta):
        raise Mismatch("training again on the retained graph gives other weights")
    return True


# Each returns what it saw, or None if it was not given what it needs. The order is that of what depends on what.


def _signature(given: Evidence) -> str | None:
    if given.certificate.signature is None and given.key is None:
        return None
    signer = check_signature(given.certificate, given.key)
    return f"signed by {signer[:16]}..." + ("" if given.key else ", an unknown signer")


def _graph(given: Evidence) -> str:
    if given.trained.graph_digest != given.graph.digest:
        raise Mismatch("the graph is not the one that the model stands on")
    if dict(given.certificate.algorithms) != ALGORITHMS:
        raise Mismatch("the certificate's digests are of algorithms that this version does not know")
    if given.certificate.digests["graph"] != given.trained.graph_commitment(given.graph):
        raise Mismatch("the graph is not the retained graph that the certificate speaks of")
    if given.certificate.training_nodes != given.graph.train_rows.numel():
        raise Mismatch("the number of training nodes is not that of the retained graph")
    size = f"{given.graph.num_nodes:,} nodes and {given.graph.num_edges:,} edges"
    return f"the salted digest of {size} is the certificate's"


def _model(given: Evidence) -> str:
    recipe, stated = given.trained.recipe, given.certificate
    for name, ours in subject(given.trained, strongly_convex=given.strongly_convex).items():
        theirs = dict(getattr(stated, name))
        if theirs != ours:
            raise Mismatch(f"the certificate speaks of the {name} {theirs}, this one is {ours}")
    if stated.releases_left != given.trained.releases_left:
        raise Mismatch(
            f"the certificate has {stated.releases_left} releases left, the model {given.trained.releases_left}"
        )
    for name in ("epsilon", "delta"):
        value, fixed = stated.claim.number(name), stated.chosen.get(name, getattr(recipe, name))
        own = name == "epsilon" and bool(stated.chosen.get("budget"))  # CGU's published budget states its own
        if value and stated.level != "exact" and value != fixed and not own:
            raise Mismatch(f"{name} is {value:g}, which is neither the model's nor listed as chosen for this request")
    objective_noise_vector, noise = given.trained.objective_noise_vector, recipe.objective_noise
    if (objective_noise_vector is not None) != bool(noise):
        raise Mismatch("the noise in the objective is missing, or there should be none")
    if objective_noise_vector is None:
        return f"{recipe.model}, mu = {recipe.mu:g}"
    check_gaussian(objective_noise_vector, sigma=noise, what="the noise in the objective")
    return f"{recipe.model}, mu = {recipe.mu:g}, noise in the objective as if from N(0, {noise:g}^2)"


def _claim(given: Evidence) -> str:
    claim = given.certificate.claim
    result = claim.recheck(given)
    counted = counted_ratio(claim, given.certificate.settings) if given.trained.releases_left is not None else None
    if counted is not None and not _alike(given.trained.releases[-1:], [counted]):
        raise Mismatch("the model does not count this release")
    sigma, fixed = given.certificate.sigma, given.certificate.chosen.get("sigma", given.trained.recipe.sigma)
    if sigma is not None and sigma != fixed and (fixed or not claim.sizes_noise):
        raise Mismatch(f"sigma is {sigma:g}, which is neither the model's nor listed as chosen for this request")
    return f"level {claim.level!r}: {result}"


def _weights(given: Evidence) -> str | None:
    if not given.annexes:
        return None
    if given.annexes[-1].weights(given.trained.theta) != given.certificate.digests["weights"]:
        raise Mismatch("the weights are not those that the certificate speaks of")
    if given.annexes[-1].state(given.trained.state_summary()) != given.certificate.digests["state"]:
        raise Mismatch("recipe, reach or history of the model are not those that the certificate speaks of")
    return "the salted digests of the weights and of what is written down of them are the certificate's"


def _released(given: Evidence) -> str | None:
    if given.released is None:
        return None
    if weights_digest(given.released) != given.certificate.digests["released"]:
        raise Mismatch("the released weights are not those that the certificate speaks of")
    return "the digest of the released weights is the certificate's"


def _noise(given: Evidence) -> str | None:
    """Whether what was added looks like `N(0, sigma^2)`: its size by chi-square, its shape by Kolmogorov-Smirnov."""
    added, sigma = given.noise, given.certificate.sigma or 0.0
    if added is None:
        return None
    if sigma == 0:
        if added.any():
            raise Mismatch("the released weights are not the private ones, although they should carry no noise")
        return "none, as the certificate says"
    # Released weights lie on a grid; spread over its cells again, the noise has no steps that a test would find.
    cells = torch.rand(added.shape, generator=torch.Generator().manual_seed(0), dtype=added.dtype) - 0.5
    check_gaussian(added, sigma=sigma, what="the noise in the released weights", spread=grid(sigma) * cells)
    if given.released is not None and torch.remainder(given.released, grid(sigma)).any():
        raise Mismatch("the released weights are not on the grid: their last digits tell of the private ones")
    least = smallest_caught(sigma=sigma, count=added.numel())
    return (
        f"as if from N(0, {sigma:g}^2), {added.numel():,} weights; a standard deviation up to {least:.2g} would have "
        "been caught in 99 of 100 cases, one between that and sigma not surely"
    )


def _fresh_noise(given: Evidence) -> str | None:
    if given.before is None or given.noise is None or not given.certificate.sigma:
        return None
    earlier = given.before.noise
    if earlier is None or not given.before.certificate.sigma:
        return None
    check_fresh(given.noise, earlier)
    return "it is not correlated with that of the release before, at one false alarm in 1,000"


def _request(given: Evidence) -> str | None:
    if not given.annexes:
        return None
    own = given.annexes[-1]
    if (own.request, own.digest) != (given.certificate.digests["request"], given.certificate.digests["annex"]):
        raise Mismatch("the annex is not that of the request that the certificate speaks of")
    for annex in given.annexes:
        kind = annex.still_in(given.graph)
        if kind is not None:
            raise Mismatch(f"{kind} is in the retained graph")
    return f"nothing that the {_count(len(given.annexes), 'request')} so far named is in the retained graph"


def _ledger(given: Evidence) -> str | None:
    if not given.entries:
        return None
    certificates = check_entries(given.entries, follows=given.follows)
    signer = None if given.key is None else given.key.public_bytes_raw().hex()
    if signer is not None and given.entries[-1].signer != signer:  # by the chain it covers all entries before it
        raise Mismatch("the ledger's last entry was signed with another key, or by nobody")
    last = next((entry for entry in reversed(given.entries) if entry.level != REFUSED), None)
    if last is None or last.certificate_digest != given.certificate.digest:
        raise Mismatch("the certificate is not the one of the ledger's last entry")
    ratios, anew = counted_in(given.entries[: last.number], certificates[: last.number])
    if not _alike(given.trained.releases[-len(ratios) :] if ratios and not anew else given.trained.releases, ratios):
        raise Mismatch("the model does not count the releases that its ledger holds")
    stated = [c.digests["annex"] for c in certificates if c is not None]
    own = [annex.digest for annex in given.annexes if annex.released][-len(stated) :]
    if given.annexes and own != stated:  # those of an earlier format stand before them
        raise Mismatch("the ledger and the annexes speak of other requests")
    return f"unbroken, {_count(len(given.entries), 'request')}, the last one that of this certificate"


def _alike(ratios: Sequence[float], others: Sequence[float]) -> bool:
    pairs = zip(ratios, others, strict=False)
    return len(ratios) == len(others) and all(math.isclose(a, b, rel_tol=1e-9) for a, b in pairs)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


CHECKS: tuple[tuple[str, Callable[[Evidence], str | None]], ...] = (
    ("signature", _signature),
    ("retained graph", _graph),
    ("model and objective", _model),
    ("weights", _weights),
    ("claim", _claim),
    ("released weights", _released),
    ("noise", _noise),
    ("fresh noise", _fresh_noise),
    ("deleted data", _request),
    ("ledger", _ledger),
)
