"""GraphSAGE with mean aggregation (Hamilton et al. 2017)."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor
from torch.nn import functional

from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import Matrix, SparseMatrix
from graphforget.models.base import GraphModel, Linear
from graphforget.models.propagation import mean_adjacency, neighbour_mean_adjacency


class SAGE(GraphModel):
    """Two layers of `h' = P h W + h U + b`, ReLU and dropout between them, as PyG's SAGEConv.

    `P` is the mean over the neighbours alone, so that a layer can tell a node from its neighbours. With `include_self`
    the node counts among its neighbours, which suits graphs whose neighbours are alike. The partition of balanced
    k-means (`training/shards.py`) uses this form.
    """

    reach = Reach(2, degree_normalised=False)

    def __init__(
        self,
        columns: int,
        classes: int,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        scale_rows: bool = True,
        include_self: bool = False,
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        self.dropout, self.width, self.include_self = dropout, hidden, include_self
        self.near, self.own = Linear(columns, hidden, bias=False), Linear(columns, hidden)
        self.far, self.out = Linear(hidden, classes, bias=False), Linear(hidden, classes)

    @property
    def preparation(self) -> Hashable | None:
        return super().preparation, self.include_self

    def propagation(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
    ) -> Matrix:
        self.checked_weight(edge_weight)
        mean = mean_adjacency if self.include_self else neighbour_mean_adjacency
        return mean(edge_index, num_nodes, dtype=dtype)

    def first_layer(self, x: Matrix, propagation: object) -> Tensor:
        """The n x h numbers before the first activation."""
        assert isinstance(propagation, SparseMatrix)
        out: Tensor = propagation @ self.near(x) + self.own(x)
        return out

    def second_layer(self, hidden: Tensor, propagation: object) -> Tensor:
        """The logits, from the activations of the first layer."""
        assert isinstance(propagation, SparseMatrix)
        out: Tensor = propagation @ self.far(hidden) + self.out(hidden)
        return out

    def embed(self, x: Matrix, propagation: object) -> Tensor:
        """The n x h activations that the last layer reads, before dropout, from the results of `prepare`."""
        return self.first_layer(x, propagation).relu()

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        hidden = functional.dropout(self.embed(x, propagation), self.dropout, self.training)
        return self.second_layer(hidden, propagation)
