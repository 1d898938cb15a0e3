"""A small GraphSAGE, whose logits are the points that balanced k-means clusters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import Matrix, SparseMatrix
from graphforget.models.base import GraphModel, Linear
from graphforget.models.propagation import mean_adjacency


class SAGE(GraphModel):
    """Two layers of `h' = P h W + h U + b` with `P` the mean over neighbours and oneself (Hamilton et al. 2017)."""

    reach = Reach(2, degree_normalised=False)

    def __init__(self, columns: int, classes: int, *, hidden: int = 32, dropout: float = 0.5) -> None:
        super().__init__(scale_rows=True)
        self.dropout = dropout
        self.near, self.own = Linear(columns, hidden, bias=False), Linear(columns, hidden)
        self.far, self.out = Linear(hidden, classes, bias=False), Linear(hidden, classes)

    def propagation(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Matrix:
        return mean_adjacency(edge_index, num_nodes, dtype=dtype)

    def embed(self, x: Matrix, propagation: object) -> Tensor:
        """The n x h activations that the last layer reads, before dropout, from the results of `prepare`."""
        assert isinstance(propagation, SparseMatrix)
        return (propagation @ self.near(x) + self.own(x)).relu()

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        assert isinstance(propagation, SparseMatrix)
        hidden = functional.dropout(self.embed(x, propagation), self.dropout, self.training)
        out: Tensor = propagation @ self.far(hidden) + self.out(hidden)
        return out
