"""The base classes of the built-in models, which take PyG's `(x, edge_index)` or prepared matrices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from inspect import signature

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import Matrix, SparseMatrix, as_matrix, scale_rows_to_unit
from graphforget.models.propagation import adjacency, normalised_adjacency

WEIGHTED_MODELS = "sgc, sign, gcn and gat, alone, linearised, stacked, boosted or sharded,"


class GraphModel(nn.Module):
    """A built-in model. `model(x, edge_index)` works on PyG's tensors (x dense or sparse CSR).

    For many calls on one graph, call `prepare` once and pass its results: attributes and propagation as constant
    matrices. `prepare` scales the rows of `x` to unit length on the graph that is given, so that a removed attribute
    leaves no trace in the length of its row.
    """

    reach: Reach
    takes_edge_weight: bool = False  # whether it can read the weights of edges
    symmetric_propagation = False  # messages from s to t and from t to s have the same weight
    takes_relations = False  # it reads in which relations an edge is

    def __init__(self, *, scale_rows: bool = True) -> None:
        super().__init__()
        self.scale_rows = scale_rows

    def prepare(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Matrix, object]:
        """Attributes and propagation, ready for many calls of `forward` on the same graph."""
        scaled = scale_rows_to_unit(x) if self.scale_rows else x
        weights = () if edge_weight is None else (edge_weight,)  # a subclass of a user may take none
        return as_matrix(scaled), self.propagation(edge_index, x.shape[0], x.dtype, *weights)

    @property
    def preparation(self) -> Hashable | None:
        """All that `prepare` depends on beside the graph. Models of equal value share it; None: it is never shared."""
        return type(self), self.scale_rows

    @abstractmethod
    def propagation(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
    ) -> object:
        """The form of the edges that the layers use."""

    def checked_weight(self, edge_weight: Tensor | None) -> Tensor | None:
        """The weights, if the model can read them. Raises `InputError` if it cannot."""
        if edge_weight is not None and not self.takes_edge_weight:
            raise InputError(f"the graph has edge weights, and {type(self).__name__} takes none: {WEIGHTED_MODELS} do")
        return edge_weight

    def marked_symmetric(self, propagation: object) -> object:
        """The same propagation, known to be symmetric: its transpose need not be computed."""
        return propagation.symmetric() if isinstance(propagation, SparseMatrix) else propagation

    @abstractmethod
    def logits(self, x: Matrix, propagation: object) -> Tensor:
        """The n x C logits, from the results of `prepare`."""

    def forward(self, x: Tensor | Matrix, edge_index: object, edge_weight: Tensor | None = None) -> Tensor:
        if isinstance(x, Tensor):
            assert isinstance(edge_index, Tensor)
            x, edge_index = self.prepare(x, edge_index, self.checked_weight(edge_weight))
        return self.logits(x, edge_index)


def reads_edge_weight(module: nn.Module) -> bool:
    """Whether a module takes the weights of edges: a model of this package that does, or a third parameter."""
    called_with_it = [*signature(module.forward).parameters][2:3] == ["edge_weight"]
    if isinstance(module, GraphModel):  # a user may have replaced its propagation or its `forward`
        own = [*signature(module.propagation).parameters][3:4] == ["edge_weight"]
        return called_with_it and module.takes_edge_weight and own
    return called_with_it


class NormalisedModel(GraphModel):
    """A model whose messages are weighted by `D^-1/2 (A + I) D^-1/2`."""

    symmetric_propagation = True
    takes_edge_weight = True

    def propagation(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
    ) -> Matrix:
        return normalised_adjacency(edge_index, num_nodes, dtype=dtype, edge_weight=edge_weight)


class PlainModel(GraphModel):
    """A model that sums its neighbours' messages without weights."""

    symmetric_propagation = True

    def propagation(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
    ) -> Matrix:
        self.checked_weight(edge_weight)
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
