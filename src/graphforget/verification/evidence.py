"""What a certificate is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from torch import Tensor

from graphforget.certificates.annex import Annex
from graphforget.certificates.document import Certificate
from graphforget.certificates.ledger import Entry
from graphforget.certificates.residual import Residual, residual
from graphforget.graph import Graph
from graphforget.losses import is_convex
from graphforget.models.registry import is_affine
from graphforget.trained import Trained


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

    @cached_property
    def measured(self) -> Residual:
        """Of a strongly convex objective on the retained graph: where its optimum can be, here and now."""
        return residual(self.trained.objective(self.graph), self.trained.theta)

    @property
    def centre(self) -> Tensor:
        """What the noise is to be found around."""
        return self.measured.centre if self.certificate.centred else self.trained.theta
