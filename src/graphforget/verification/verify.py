"""Recomputes what a certificate says from the retained graph and the weights, without the deleted data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from torch import Tensor, nn

from graphforget.certificates.annex import Annex, digest_of_all, released_digest
from graphforget.certificates.chain import START, Entry
from graphforget.certificates.deleted_data import without_readmitted
from graphforget.certificates.document import READMIT, Certificate
from graphforget.certificates.issue import expected_algorithms, graph_digest, roots_of, subject
from graphforget.certificates.releases import counted_in, counted_ratio
from graphforget.certificates.signing import check_signature
from graphforget.errors import Mismatch
from graphforget.graph.graph import Graph
from graphforget.models.recorded_settings import has_recorded_settings
from graphforget.privacy.noise import grid
from graphforget.progress import Progress
from graphforget.training.state import same_tensors
from graphforget.training.trained import Trained
from graphforget.validation import check_instance
from graphforget.verification.entries import check_entries
from graphforget.verification.evidence import Evidence
from graphforget.verification.noise import check_fresh, check_gaussian, largest_detected_sigma
from graphforget.verification.replay import check_by_replay

CANNOT_BE_CHECKED = (
    "that the noise came from a secret source and covers every direction of the weights: the signer vouches for it",
    "that the noise was drawn once, and not chosen from several draws: the signer vouches for it",
)

ROOTS_UNCHECKED = "the roots from which absence is shown: 'verify' checks them with the run directory"


@dataclass(frozen=True)
class Check:
    """The name of a check and its result, in words."""

    name: str
    result: str


@dataclass(frozen=True)
class Verification:
    """Everything that was checked and holds, and what could not be checked. It is public."""

    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "audience": "public",
            "ok": True,
            "checks": {check.name: check.result for check in self.checks},
            "unchecked": list(self.unchecked),
        }


# Longer than 50 lines because of the documentation of its parameters.
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
    device: str = "cpu",
    progress: Progress | None = None,
) -> Verification:
    """Checks a certificate: recomputes every number that it can.

    Args:
        certificate: The certificate.
        trained: The model with its private weights after the deletion (`outcome.trained`).
        graph: The retained graph (`outcome.graph`).
        released: The released weights. With them the noise is tested.
        annexes: The annexes of all requests so far. With them the salted digests are checked, and that nothing deleted
            is in the graph.
        entries: The entries of the ledger. With them the chain is checked.
        follows: The hash that the first entry continues from.
        key: The public key of the signer. Without it nobody knows who signed.
        before: The evidence of the release before this one. With it the noise is compared with the noise before.
        replay: Whether to train again and compare the weights, for `exact` claims and for encoders.
        model: Makes a fresh module for the replay, if the model is a user's own module.
        device: The torch device of a replay.
        progress: The callback to report to.

    Returns:
        What was checked, and what could not be checked.

    Raises:
        Mismatch: Something does not match. The message names the first such thing.
        InputError: An argument is of another kind, or a replay was asked for a certificate of another level.
        Refused: A replay is impossible, because the environment is not the one of the training.

    Example:
        >>> import graphforget as gf
        >>> graph = gf.load("patients")
        >>> outcome = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(nodes=["patient-0017"]))
        >>> verification = gf.verify(outcome.certificate, outcome.trained, outcome.graph)
        >>> "claim" in [check.name for check in verification.checks]
        True
    """
    check_instance(certificate, Certificate, "certificate")
    check_instance(trained, Trained, "model")
    check_instance(graph, Graph, "graph")
    if isinstance(released, Trained):
        if not same_tensors(released.released_state, trained.released_state):
            raise Mismatch("the released model has another state beside its weights than the private one")
        released = released.theta
    ledger = check_entries(entries, follows=follows) if entries else None
    evidence = Evidence(
        certificate, trained, graph, released=released, annexes=annexes, ledger=ledger, key=key, before=before
    )
    result = verify_evidence(evidence, replay=replay, model=model, device=device, progress=progress)
    roots = (ROOTS_UNCHECKED,) if roots_of(certificate) else ()
    return dataclasses.replace(result, unchecked=(*result.unchecked, *roots))


def verify_evidence(
    evidence: Evidence,
    *,
    replay: bool = False,
    model: Callable[[], nn.Module] | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Verification:
    """What `verify` does, for a caller that has the evidence, with its ledger checked. It leaves out the roots."""
    certificate = evidence.certificate
    if replay:
        check_by_replay(evidence, model=model, device=device, progress=progress)
        evidence = dataclasses.replace(evidence, replayed=True)
    checks: list[Check] = []
    unchecked: list[str] = []
    for name, check in CHECKS:
        result = check(evidence)
        if result is None:
            unchecked.append(name)
        else:
            checks.append(Check(name, result))
    if certificate.signature is not None and evidence.key is None:
        unchecked.append("who signed: no public key was given, and anybody can sign with one of their own")
    unchecked += certificate.claim.unchecked(evidence)
    if certificate.sigma:
        unchecked += CANNOT_BE_CHECKED
    if certificate.chosen:
        names = ", ".join(certificate.chosen)
        unchecked.append(f"why this was chosen for this request, which may tell of it: {names}")
    return Verification(tuple(checks), tuple(unchecked))


# Each check returns its result in words, or None if the evidence for it is missing. Later checks rely on earlier ones.


def _signature(evidence: Evidence) -> str | None:
    if evidence.certificate.signature is None and evidence.key is None:
        return None
    signer = check_signature(evidence.certificate, evidence.key)
    return f"signed by {signer[:16]}..." + ("" if evidence.key else ", an unknown signer")


def _graph(evidence: Evidence) -> str:
    if evidence.trained.graph_digest != evidence.graph.digest:
        raise Mismatch("the graph is not the one that the model stands on")
    certificate = evidence.certificate
    if dict(certificate.algorithms) != expected_algorithms(certificate, evidence.trained):
        raise Mismatch("the certificate's digests are of algorithms that this version does not know")
    digest = graph_digest(certificate, evidence.graph)
    if certificate.digests["graph"] != evidence.trained.graph_commitment(evidence.graph, digest=digest):
        raise Mismatch("the graph does not match the certificate")
    items = evidence.trained.items(evidence.graph)
    if evidence.certificate.training_nodes != items.num_training:
        raise Mismatch(f"the number of training {items.word}s is not that of the retained graph")
    size = f"{evidence.graph.num_nodes:,} nodes and {evidence.graph.num_edges:,} edges"
    return f"the salted digest of {size} is the certificate's"


def _model(evidence: Evidence) -> str:
    recipe, stated, module = evidence.trained.recipe, evidence.certificate, evidence.trained.module
    if not has_recorded_settings(module, evidence.graph, name=recipe.model, options=dict(recipe.options)):
        raise Mismatch("the model has other settings than its recipe says")
    for name, ours in subject(evidence.trained, strongly_convex=evidence.strongly_convex).items():
        theirs = dict(getattr(stated, name))
        if theirs != ours:
            raise Mismatch(f"the certificate states the {name} {theirs}, the model has {ours}")
    if stated.releases_left != evidence.trained.releases_left:
        raise Mismatch(
            f"the certificate has {stated.releases_left} releases left, the model {evidence.trained.releases_left}"
        )
    for name in ("epsilon", "delta"):
        value, fixed = stated.claim.number(name), stated.chosen.get(name, getattr(recipe, name))
        own = name == "epsilon" and bool(stated.chosen.get("budget"))  # CGU's published budget states its own
        if value and stated.level != "exact" and value != fixed and not own:
            raise Mismatch(f"{name} is {value:g}, which is neither the model's nor listed as chosen for this request")
    objective_noise_vector, noise = evidence.trained.objective_noise_vector, recipe.objective_noise
    if (objective_noise_vector is not None) != bool(noise):
        raise Mismatch("the noise in the objective is missing, or there should be none")
    if objective_noise_vector is None:
        return f"{recipe.model}, mu = {recipe.mu:g}"
    check_gaussian(objective_noise_vector, sigma=noise, label="the noise in the objective")
    return f"{recipe.model}, mu = {recipe.mu:g}, noise in the objective as if from N(0, {noise:g}^2)"


def _claim(evidence: Evidence) -> str:
    claim = evidence.certificate.claim
    if not claim.covers(evidence.parts):
        raise Mismatch(f"the claim is not about all parts of the model: {', '.join(evidence.parts) or 'it has none'}")
    result = claim.recheck(evidence)
    counted = (
        counted_ratio(claim, evidence.certificate.settings) if evidence.trained.releases_left is not None else None
    )
    if counted is not None and not _all_close(evidence.trained.releases[-1:], [counted]):
        raise Mismatch("the model does not count this release")
    sigma, fixed = evidence.certificate.sigma, evidence.certificate.chosen.get("sigma", evidence.trained.recipe.sigma)
    if sigma is not None and sigma != fixed and (fixed or not claim.sizes_noise):
        raise Mismatch(f"sigma is {sigma:g}, which is neither the model's nor listed as chosen for this request")
    return f"level {claim.level!r}: {result}"


def _weights(evidence: Evidence) -> str | None:
    if not evidence.annexes:
        return None
    if evidence.annexes[-1].weights(evidence.trained.theta) != evidence.certificate.digests["weights"]:
        raise Mismatch("the weights do not match the certificate")
    if evidence.annexes[-1].state(evidence.trained.state_summary()) != evidence.certificate.digests["state"]:
        raise Mismatch("recipe, reach or history of the model do not match the certificate")
    return "the salted digests of the weights and of what is written down of them are the certificate's"


def _released(evidence: Evidence) -> str | None:
    if evidence.released is None:
        return None
    if released_digest(evidence.released, evidence.trained.released_state) != evidence.certificate.digests["released"]:
        raise Mismatch("the released weights do not match the certificate")
    return "the digest of the released weights is the certificate's"


def _noise(evidence: Evidence) -> str | None:
    """Whether what was added looks like `N(0, sigma^2)`: its size by chi-square, its shape by Kolmogorov-Smirnov."""
    added, sigma = evidence.noise, evidence.certificate.sigma or 0.0
    if added is None:
        return None
    if sigma == 0:
        if added.any():
            raise Mismatch("the released weights are not the private ones, although they should carry no noise")
        return "none, as the certificate says"
    # Released weights lie on a grid; spread over its cells again, the noise has no steps that a test would find.
    cells = torch.rand(added.shape, generator=torch.Generator().manual_seed(0), dtype=added.dtype) - 0.5
    check_gaussian(added, sigma=sigma, label="the noise in the released weights", spread=grid(sigma) * cells)
    if evidence.released is not None and torch.remainder(evidence.released, grid(sigma)).any():
        raise Mismatch("the released weights are not on the grid: their last digits tell of the private ones")
    least = largest_detected_sigma(sigma=sigma, count=added.numel())
    return (
        f"as if from N(0, {sigma:g}^2), {added.numel():,} weights; a standard deviation up to {least:.2g} would be "
        "detected in 99 of 100 cases; one closer to sigma could pass"
    )


def _fresh_noise(evidence: Evidence) -> str | None:
    if evidence.before is None or evidence.noise is None or not evidence.certificate.sigma:
        return None
    earlier = evidence.before.noise
    if earlier is None or not evidence.before.certificate.sigma:
        return None
    check_fresh(evidence.noise, earlier)
    return "it is not correlated with that of the release before, at one false alarm in 1,000"


def _request(evidence: Evidence) -> str | None:
    if not evidence.annexes:
        return None
    own = evidence.annexes[-1]
    if (own.request, own.digest) != (evidence.certificate.digests["request"], evidence.certificate.digests["annex"]):
        raise Mismatch("the annex does not match the certificate")
    for number, annex in enumerate(evidence.annexes):
        if annex.request != digest_of_all([one.digest for one in annex.commitments]):
            raise Mismatch("the annex is not about the requests that its certificate is about")
        kind = annex.still_in(without_readmitted(evidence.graph, evidence.annexes[number + 1 :]))
        if kind is not None:
            raise Mismatch(f"{kind} is in the retained graph")
    if (own.readmitted is not None) != (READMIT in evidence.certificate.chosen):
        raise Mismatch("the annex readmits deleted data without a reason in the certificate, or the reverse")
    requests = _count(sum(len(annex.commitments) for annex in evidence.annexes), "request")
    readmitted = any(annex.released and annex.readmitted is not None for annex in evidence.annexes)
    but = ", but what was readmitted for the reasons that the ledger keeps" if readmitted else ""
    return f"nothing that the {requests} so far named is in the retained graph{but}"


def _ledger(evidence: Evidence) -> str | None:
    ledger = evidence.ledger
    if ledger is None:
        return None
    signer = None if evidence.key is None else evidence.key.public_bytes_raw().hex()
    if signer is not None and ledger.entries[-1].signer != signer:  # by the chain it covers all entries before it
        raise Mismatch("the ledger's last entry was signed with another key, or by nobody")
    last = ledger.last_release
    if last is None or ledger.releases[last].certificate_digest != evidence.certificate.digest:
        raise Mismatch("the certificate is not the one of the ledger's last entry")
    ratios, retrained = counted_in(ledger.releases[: last + 1], ledger.certificates[: last + 1])
    if not _all_close(
        evidence.trained.releases[-len(ratios) :] if ratios and not retrained else evidence.trained.releases, ratios
    ):
        raise Mismatch("the model does not count the releases that its ledger holds")
    stated = [c.digests["annex"] for c in ledger.certificates if c is not None]
    own = [annex.digest for annex in evidence.annexes if annex.released][-len(stated) :]
    if evidence.annexes and own != stated:  # those of an earlier format stand before them
        raise Mismatch("the ledger and the annexes are about different requests")
    answered = ledger.certificates[: last + 1]  # the annexes of refusals since then are not among the evidence
    for annex, certificate in zip(reversed(evidence.annexes), reversed(answered), strict=False):
        reasons = () if certificate is None else certificate.chosen
        if annex.released and annex.readmitted is not None and READMIT not in reasons:
            raise Mismatch("an annex readmits deleted data without a reason in its certificate")
    return f"unbroken, {_count(len(ledger.entries), 'request')}, the last one that of this certificate"


def _all_close(ratios: Sequence[float], others: Sequence[float]) -> bool:
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
