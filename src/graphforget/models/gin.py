"""Graph isomorphism network (Xu et al. 2019), without BatchNorm, which would carry statistics of the data."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import Matrix, SparseMatrix
from graphforget.models.base import Linear, PlainModel


class GINLayer(nn.Module):
    """`relu(((1 + eps) x + A x) U + a) V + b`. The first map comes before the sum, so sparse `x` stays sparse.

    While training, dropout falls on what is sent and on the hidden units.
    """

    def __init__(self, columns: int, hidden: int, out: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.eps = nn.Parameter(torch.zeros(()))
        self.first = Linear(columns, hidden, bias=False)
        self.first_bias = nn.Parameter(torch.zeros(hidden))
        self.second = Linear(hidden, out)

    def forward(self, x: Matrix | Tensor, propagation: SparseMatrix) -> Tensor:
        sent = functional.dropout(self.first(x), self.dropout, self.training)
        hidden = ((1 + self.eps) * sent + propagation @ sent + self.first_bias).relu()
        out: Tensor = self.second(functional.dropout(hidden, self.dropout, self.training))
        return out


class GIN(PlainModel):
    """Two GIN layers; as in the original, the logits add up a linear readout of every layer, the input included."""

    reach = Reach(2, degree_normalised=False)

    def __init__(
        self, columns: int, classes: int, *, hidden: int = 64, dropout: float = 0.5, scale_rows: bool = True
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        self.dropout = dropout
        self.first = GINLayer(columns, hidden, hidden, dropout=dropout)
        self.second = GINLayer(hidden, hidden, classes, dropout=dropout)
        self.read_input = Linear(columns, classes, bias=False)
        self.read_first = Linear(hidden, classes, bias=False)

    def embed(self, x: Matrix, propagation: object) -> Tensor:
        """The n x h activations of the first layer, before dropout, from the results of `prepare`.

        The last layer reads them; the logits also add a linear readout of them and one of the input.
        """
        activations: Tensor = self.first(x, propagation).relu()
        return activations

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        hidden = functional.dropout(self.embed(x, propagation), self.dropout, self.training)
        out: Tensor = self.second(hidden, propagation) + self.read_first(hidden) + self.read_input(x)
        return out
