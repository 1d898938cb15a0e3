"""The base classes of the built-in models, which take PyG's `(x, edge_index)` or prepared matrices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable

import torch
from torch import Tensor, nn

from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import Matrix, SparseMatrix, as_matrix, scale_rows_to_unit
from graphforget.models.propagation import adjacency, normalised_adjacency


class GraphModel(nn.Module):
    """A built-in model. `model(x, edge_index)` works on PyG's tensors (x dense or sparse CSR).

    For many calls on one graph, call `prepare` once and pass its results: attributes and propagation as constant
    matrices. `prepare` scales the rows of `x` to unit length on the graph that is given, so that a removed attribute
    leaves no trace in the length of its row.
    """

    reach: Reach
    symmetric_propagation = False  # messages from s to t and from t to s have the same weight

    def __init__(self, *, scale_rows: bool = True) -> None:
        super().__init__()
        self.scale_rows = scale_rows

    def prepare(self, x: Tensor, edge_index: Tensor) -> tuple[Matrix, object]:
        """Attributes and propagation, ready for many calls of `forward` on the same graph."""
        scaled = scale_rows_to_unit(x) if self.scale_rows else x
        return as_matrix(scaled), self.propagation(edge_index, x.shape[0], x.dtype)

    @property
    def preparation(self) -> Hashable | None:
        """All that `prepare` depends on beside the graph. Models of equal value share it; None: it is never shared."""
        return type(self), self.scale_rows

    @abstractmethod
    def propagation(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> object:
        """The form of the edges that the layers use."""

    def marked_symmetric(self, propagation: object) -> object:
        """The same propagation, known to be symmetric: its transpose need not be computed."""
        return propagation.symmetric() if isinstance(propagation, SparseMatrix) else propagation

    @abstractmethod
    def logits(self, x: Matrix, propagation: object) -> Tensor:
        """The n x C logits, from the results of `prepare`."""

    def forward(self, x: Tensor | Matrix, edge_index: object) -> Tensor:
        if isinstance(x, Tensor):
            assert isinstance(edge_index, Tensor)
            x, edge_index = self.prepare(x, edge_index)
        return self.logits(x, edge_index)


class NormalisedModel(GraphModel):
    """A model whose messages are weighted by `D^-1/2 (A + I) D^-1/2`."""

    symmetric_propagation = True

    def propagation(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Matrix:
        return normalised_adjacency(edge_index, num_nodes, dtype=dtype)


class PlainModel(GraphModel):
    """A model that sums its neighbours' messages without weights."""

    symmetric_propagation = True

    def propagation(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Matrix:
        return adjacency(edge_index, num_nodes, dtype=dtype)


class Linear(nn.Module):
    """`M -> M W + b` where `M` may be a constant sparse matrix."""

    def __init__(self, columns: int, out: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(columns, out))
        self.bias = nn.Parameter(torch.zeros(out)) if bias else None
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Matrix | Tensor) -> Tensor:
        product = x @ self.weight
        return product if self.bias is None else product + self.bias
