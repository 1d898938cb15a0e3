"""Graph convolutional network (Kipf and Welling 2017)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import Matrix, SparseMatrix
from graphforget.models.base import Linear, NormalisedModel


class GCN(NormalisedModel):
    """Two layers, `S relu(S X W_1 + b_1) W_2 + b_2`, with dropout between them while training."""

    reach = Reach(2, degree_normalised=True)

    def __init__(
        self, columns: int, classes: int, *, hidden: int = 64, dropout: float = 0.5, scale_rows: bool = True
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        self.dropout, self.width = dropout, hidden
        self.first = Linear(columns, hidden, bias=False)
        self.first_bias = torch.nn.Parameter(torch.zeros(hidden))
        self.second = Linear(hidden, classes, bias=False)
        self.second_bias = torch.nn.Parameter(torch.zeros(classes))

    def first_layer(self, x: Matrix, propagation: object) -> Tensor:
        """The n x h numbers before the first activation."""
        assert isinstance(propagation, SparseMatrix)
        return propagation @ self.first(x) + self.first_bias

    def second_layer(self, hidden: Tensor, propagation: object) -> Tensor:
        """The logits, from the activations of the first layer."""
        assert isinstance(propagation, SparseMatrix)
        return propagation @ self.second(hidden) + self.second_bias

    def embed(self, x: Matrix, propagation: object) -> Tensor:
        """The n x h activations that the last layer reads, before dropout, from the results of `prepare`."""
        return self.first_layer(x, propagation).relu()

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        hidden = functional.dropout(self.embed(x, propagation), self.dropout, self.training)
        return self.second_layer(hidden, propagation)
