"""The model, the graph and the files that a certificate is checked against."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from torch import Tensor

from graphforget.certificates.annex import Annex
from graphforget.certificates.claims.base import Subject
from graphforget.certificates.document import Certificate
from graphforget.certificates.residual import Residual, residual
from graphforget.errors import InputError, Mismatch
from graphforget.graph.graph import Graph
from graphforget.training.trained import Trained
from graphforget.verification.entries import CheckedLedger


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a certificate is checked against. `annexes` are those of all requests so far, the certificate's own last."""

    certificate: Certificate
    trained: Trained
    graph: Graph
    released: Tensor | None = None
    annexes: Sequence[Annex] = ()
    ledger: CheckedLedger | None = None
    key: Ed25519PublicKey | None = None
    replayed: bool = False  # training was run again and gave the same weights
    before: Evidence | None = None  # of the release before this one

    @property
    def strongly_convex(self) -> bool:
        """Whether the objective is, by the construction of the model and the loss, whatever a file says."""
        return self.trained.proven_convex

    @cached_property
    def measured(self) -> Residual:
        """Where the optimum of a strongly convex objective on the retained graph can be, measured now."""
        try:
            return residual(self.trained.objective(self.graph), self.trained.theta)
        except InputError as error:  # the claim is about an optimum, and the objective is not convex
            raise Mismatch(str(error)) from error

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the model that have claims of their own."""
        composite = self.trained.composite
        return () if composite is None else composite.claim_parts

    def part(self, name: str) -> Subject:
        """Raises `Mismatch` if the model has no such part."""
        if name not in self.parts:
            raise Mismatch(f"the claim is about a part {name!r}, and the model has none")
        composite = self.trained.composite
        return ReplayedPart(self) if composite is not None and name == composite.replayed_part else self

    @property
    def noise(self) -> Tensor | None:
        """What was added to the weights, or to the centre of a certified ball, to release them."""
        if self.released is None:
            return None
        return self.released - (self.measured.centre if self.certificate.claim.centred else self.trained.theta)


@dataclass(frozen=True, eq=False)
class ReplayedPart:
    """Encoders or a network as the subject of a claim. They are trained again, and no step moves them."""

    whole: Evidence

    @property
    def trained(self) -> Trained:
        return dataclasses.replace(self.whole.trained, history=())

    @property
    def graph(self) -> Graph:
        return self.whole.graph

    @property
    def strongly_convex(self) -> bool:
        return False

    @property
    def measured(self) -> Residual:
        raise Mismatch("the claim is about an optimum, and this part has none")

    @property
    def replayed(self) -> bool:
        return self.whole.replayed

    def part(self, name: str) -> Subject:
        raise Mismatch(f"the claim is about a part {name!r} of a part, which has none")
