"""What a certificate is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from torch import Tensor

from graphforget.certificates.annex import Annex
from graphforget.certificates.chain import START, Entry
from graphforget.certificates.document import Certificate
from graphforget.certificates.residual import Residual, residual
from graphforget.errors import InputError, Mismatch
from graphforget.graph.graph import Graph
from graphforget.training.trained import Trained


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a certificate is held against. `annexes` are of all requests so far, the certificate's own last."""

    certificate: Certificate
    trained: Trained
    graph: Graph
    released: Tensor | None = None
    annexes: Sequence[Annex] = ()
    entries: Sequence[Entry] = ()  # of the ledger
    follows: str = START  # what the ledger's first entry continues from
    key: Ed25519PublicKey | None = None
    replayed: bool = False  # training was run again and gave the same weights
    before: Evidence | None = None  # of the release before this one

    @property
    def strongly_convex(self) -> bool:
        """By construction of the model and the loss at hand, whatever anybody wrote down."""
        return self.trained.proven_convex

    @cached_property
    def measured(self) -> Residual:
        """Of a strongly convex objective on the retained graph: where its optimum can be, here and now."""
        try:
            return residual(self.trained.objective(self.graph), self.trained.theta)
        except InputError as error:  # a claim about the optimum of a model of which nobody knows it
            raise Mismatch(str(error)) from error

    def part(self, name: str) -> Evidence:
        """No model of this version is an ensemble whose parts have claims of their own."""
        raise Mismatch(f"the claim speaks of a part {name!r}, and the model has none")

    @property
    def noise(self) -> Tensor | None:
        """What was added to make the released weights."""
        if self.released is None:
            return None
        return self.released - (self.measured.centre if self.certificate.claim.centred else self.trained.theta)
