"""Models that are linear in fixed features of items: strongly convex by construction (docs/maths.md, section 15)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import torch
from torch import Tensor, nn

from graphforget.graph.graph import Graph
from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.sparse import (
    BoundedMatrix,
    DenseMatrix,
    Matrix,
    SparseMatrix,
    as_matrix,
    row_norms,
    selected_rows,
)
from graphforget.models.affine import AffineModel
from graphforget.models.items import ItemModel, ItemView


class LinearOnItems(ItemModel, AffineModel):
    """`Phi W + b` with a row of `Phi` for each item."""

    has_fixed_features = True

    def __init__(self, view: ItemView, features: int, outputs: int, *, columns: int) -> None:
        """`features` is the number of columns of `Phi`, `columns` that of the attributes that they are computed of."""
        super().__init__()
        self.view, self.columns = view, columns
        self.weight = nn.Parameter(torch.zeros(features, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All options of the model, for a recipe. They name no item."""

    def untrained(self) -> Self:
        """The same model, its weights at 0."""
        make: Any = type(self)  # a model takes the numbers of columns and outputs, and its settings
        fresh: Self = make(self.columns, self.weight.shape[1], **self.settings).to(self.weight.dtype)
        return fresh

    @abstractmethod
    def features(self, graph: Graph, *, dtype: torch.dtype) -> Matrix:
        """`Phi`, a function of the graph alone; no item's row depends on which other items there are."""

    def item_inputs(self, graph: Graph, *, dtype: torch.dtype, device: str | torch.device) -> tuple[Any, Any]:
        return self.features(graph, dtype=dtype), None

    def forward(self, features: Matrix, _: None = None) -> Tensor:
        return features @ self.weight + self.bias

    # -- as an affine model --------------------------------------------------------------------------------------

    def logits_jacobian(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> Jacobian:
        return _ItemsJacobian(inputs[0], rows, self.weight)

    def row_norm_sums(self, inputs: tuple[Any, Any], rows: Tensor, jacobian: Jacobian) -> tuple[float, float]:
        norms = self.feature_norms(*inputs)[rows]
        return float(norms.sum()), float(norms.square().sum())

    def feature_norms(self, features: Matrix, _: None = None) -> Tensor:
        """At least the norm of each item's features, all numbers in absolute value, the bias included."""
        norms = features.norms if isinstance(features, BoundedMatrix) else row_norms(_tensor(features))
        return (norms.square() + 1).sqrt()

    def longest_sum(self, nodes: int) -> int:
        return (self.reach.hops or 0) * nodes + 3 * (nodes + self.weight.shape[0] + 10)

    def can_share(self, like: Tensor) -> bool:
        return self.weight.to(like) is self.weight  # the Jacobian reads only the shapes of the parameters


class _ItemsJacobian(Jacobian):
    """Some rows of the logits; the parameters are the weights and then the bias."""

    has_shared_features = True

    def __init__(self, features: Matrix, rows: Tensor, weight: Tensor) -> None:
        self._features = _rows(features, rows)
        self._shape, self._size = weight.shape, weight.numel()
        self.value = weight.detach().new_zeros(rows.numel(), weight.shape[1])

    def apply(self, v: Tensor) -> Tensor:
        return self._features @ v[: self._size].view(self._shape) + v[self._size :]

    def adjoint(self, u: Tensor) -> Tensor:
        features = self._features
        turned = features.values.T @ u if isinstance(features, DenseMatrix) else features.T @ u
        return torch.cat([turned.flatten(), u.sum(dim=0)])


def _tensor(features: Matrix) -> Tensor:
    return features.csr if isinstance(features, SparseMatrix) else features.values


def _rows(features: Matrix, rows: Tensor) -> Matrix:
    """Some rows of the features; the same matrix if they are all of them."""
    if rows.numel() == features.shape[0]:
        return features
    if isinstance(features, DenseMatrix):
        return DenseMatrix(features.values.index_select(0, rows))
    return as_matrix(selected_rows(features.csr, rows))
