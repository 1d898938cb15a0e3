"""Issues a certificate: a claim, with the model, the objective and the settings that it is about."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from graphforget.certificates.audit_trees import ROOT_ALGORITHMS
from graphforget.certificates.chain import START
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.document import ROOTS, Certificate, not_covered
from graphforget.certificates.residual import is_bounded
from graphforget.certificates.signing import signed
from graphforget.graph.digest import DIGEST, DIGEST_OF_FORMAT_3, digest_of_format_3
from graphforget.graph.graph import Graph
from graphforget.models.registry import is_affine
from graphforget.training.environment import versions
from graphforget.training.losses import assumed_convex
from graphforget.training.trained import Trained

ALGORITHMS = {
    "graph": f"HMAC-SHA256 of {DIGEST}",
    "released": "SHA-256 of graphforget-weights-1",
    **dict.fromkeys(("request", "annex", "state", "weights"), "salted SHA-256"),
}
EARLIER_GRAPH = f"HMAC-SHA256 of {DIGEST_OF_FORMAT_3}"  # in certificates of earlier versions
WITH_OTHER_TENSORS = {"released": "SHA-256 of graphforget-release-1"}  # where more than the weights is released
SETTINGS = ("epsilon", "delta", "sigma", "releases", "floor", "mu", "objective_noise")


def subject(trained: Trained, *, strongly_convex: bool) -> dict[str, dict[str, Any]]:
    """The model, the objective and the settings that a certificate is about."""
    recipe = trained.recipe
    objective = {"loss": recipe.loss, "mu": recipe.mu, "strongly_convex": strongly_convex}
    if recipe.objective_noise:
        objective["noise"] = recipe.objective_noise
    if is_affine(trained.module) and assumed_convex(trained.loss):
        objective["rounding"] = "bounded" if is_bounded(trained.module, trained.loss) else "estimated"
    if trained.is_stacked:
        objective["parts"] = "given" if trained.stacked.has_given_parts else "hashed"
    if trained.composite is not None and not trained.composite.built_in_modules:
        objective["modules"] = "own"
    model = {"name": recipe.model, "options": recipe.options, "parameters": trained.theta.numel()}
    return {"model": model, "objective": objective, "settings": {name: getattr(recipe, name) for name in SETTINGS}}


def algorithms(trained: Trained, roots: Iterable[str] = ()) -> dict[str, str]:
    """The algorithms of the digests in a certificate, with those of these roots."""
    others = WITH_OTHER_TENSORS if trained.composite is not None else {}
    return ALGORITHMS | others | {name: ROOT_ALGORITHMS[name] for name in roots}


def graph_digest(certificate: Certificate, graph: Graph) -> str:
    """The graph's digest by the algorithm that the certificate names: that of this version or of an earlier one."""
    earlier = digest_of_format_3(graph) if certificate.algorithms.get("graph") == EARLIER_GRAPH else None
    return graph.digest if earlier is None else earlier


def expected_algorithms(certificate: Certificate, trained: Trained) -> dict[str, str]:
    """The algorithms that a certificate for this model must name; the graph's digest may be an earlier one."""
    earlier = {"graph": EARLIER_GRAPH} if certificate.algorithms.get("graph") == EARLIER_GRAPH else {}
    return algorithms(trained, roots_of(certificate)) | earlier


def roots_of(certificate: Certificate) -> dict[str, str]:
    """The roots in a certificate from which absence is shown; none in certificates that no run directory issued."""
    return {name: certificate.digests[name] for name in ROOTS if name in certificate.digests}


def without_roots(certificate: Certificate) -> Certificate:
    """The certificate without the roots from which absence is shown, for where their trees are not kept."""
    digests, named = (
        {name: value for name, value in given.items() if name not in ROOTS}
        for given in (certificate.digests, certificate.algorithms)
    )
    return dataclasses.replace(certificate, digests=digests, algorithms=named, signature=None)


@dataclass(frozen=True)
class Filing:
    """Where a certificate will be filed: the ledger's head that it follows, and the key that signs it, if any.

    `commit` updates the trees from which absence is shown to the retained graph, and gives their roots. `made` is the
    time to state in public documents, for requests that are answered in fixed rounds; by default it is the present.
    """

    follows: str = START
    key: Ed25519PrivateKey | None = None
    commit: Callable[[Graph], Mapping[str, str]] | None = None
    made: str | None = None

    @property
    def time(self) -> str:
        """The time to state in public documents."""
        return self.made or datetime.now(UTC).isoformat(timespec="seconds")

    def roots(self, retained: Graph) -> dict[str, str]:
        """The roots of the trees from which absence is shown; none where no trees are kept."""
        return {} if self.commit is None else dict(self.commit(retained))

    def file(self, certificate: Certificate) -> Certificate:
        """The certificate as it is filed here. One that was filed elsewhere is chained and signed again."""
        if certificate.follows != self.follows or (certificate.signature is not None and self.key is None):
            certificate = dataclasses.replace(certificate, follows=self.follows, signature=None)
        return certificate if self.key is None else signed(certificate, self.key)


def issue_certificate(claim: Claim, *, filing: Filing, **about: Any) -> Certificate:
    """A certificate for `claim`, as it is filed."""
    words = {
        "statement": claim.statement,
        "definition": claim.definition,
        "not_covered": list(not_covered(about["objective"])),
    }
    certificate = Certificate(
        claim=claim,
        id=str(uuid.uuid4()),
        made=filing.time,
        words=words,
        environment=versions(),
        follows=filing.follows,
        **about,
    )
    return filing.file(certificate)
