"""Graph isomorphism network (Xu et al. 2019), without BatchNorm, which would carry statistics of the data."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphforget.linalg.sparse import Matrix, SparseMatrix
from graphforget.models.base import Linear, PlainModel
from graphforget.models.reach import Reach


class GINLayer(nn.Module):
    """`relu(((1 + eps) x + A x) U + a) V + b`. The first map comes before the sum, so sparse `x` stays sparse."""

    def __init__(self, columns: int, hidden: int, out: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.first = Linear(columns, hidden, bias=False)
        self.first_bias = nn.Parameter(torch.zeros(hidden))
        self.second = Linear(hidden, out)

    def forward(self, x: Matrix | Tensor, propagation: SparseMatrix) -> Tensor:
        mapped = self.first(x)
        summed = (1 + self.eps) * mapped + propagation @ mapped
        out: Tensor = self.second((summed + self.first_bias).relu())
        return out


class GIN(PlainModel):
    """Two GIN layers with dropout between them while training."""

    reach = Reach(2, degree_normalised=False)

    def __init__(
        self, columns: int, classes: int, *, hidden: int = 64, dropout: float = 0.5, scale_rows: bool = True
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        self.dropout = dropout
        self.first = GINLayer(columns, hidden, hidden)
        self.second = GINLayer(hidden, hidden, classes)

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        hidden = self.first(x, propagation).relu()
        out: Tensor = self.second(functional.dropout(hidden, self.dropout, self.training), propagation)
        return out
