"""GNNs that answer for links or graphs: a network gives every node a vector, and the view makes items of nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.linalg.pattern import Pattern
from graphforget.linalg.sparse import Matrix, converted
from graphforget.models.base import GraphModel, Linear
from graphforget.models.items import LINK, ItemModel, ItemView


@dataclass(frozen=True, eq=False)
class NetworkInputs:
    """What a network reads of a graph beside its attributes: where messages flow, and where the items are."""

    propagation: Any
    places: Any
    edges: Tensor | Pattern  # that dropout is keyed by


class ItemNetwork(ItemModel):
    """A network on the nodes, combined into items by the view; then a linear head, or the sum of all columns.

    For links without a head this is the dot product of two nodes' vectors.
    """

    def __init__(self, view: ItemView, inner: GraphModel, *, width: int, outputs: int | None = None) -> None:
        """`inner` gives `width` numbers a node. Without `outputs` there is no head."""
        super().__init__()
        self.view, self.inner, self.reach = view, inner, inner.reach
        self.head = None if outputs is None else Linear(width, outputs)

    @property
    def preparation(self) -> Hashable:
        return type(self), self.view, self.inner.preparation

    def item_inputs(self, graph: Graph, *, dtype: torch.dtype, device: str | torch.device) -> tuple[Any, Any]:
        edges = self.view.messages(graph).to(device)
        rows, propagation = self.inner.prepare(converted(graph.x, dtype=dtype, device=device), edges)
        if self.inner.symmetric_propagation and not graph.directed:
            propagation = self.inner.marked_symmetric(propagation)
        keyed_by = propagation if isinstance(propagation, Pattern) else edges
        return rows, NetworkInputs(propagation, self.view.places(graph, dtype=dtype), keyed_by)

    def pair_logits(self, graph: Graph, rows: Tensor) -> Tensor:
        if self.view.word != LINK:
            return super().pair_logits(graph, rows)
        dtype = next(self.parameters()).dtype
        inputs: NetworkInputs
        x, inputs = self.item_inputs(graph, dtype=dtype, device="cpu")
        with torch.no_grad():
            return self(x, dataclasses.replace(inputs, places=rows))

    def vectors(self, rows: Matrix, inputs: NetworkInputs) -> Tensor:
        """A vector for each item."""
        return self.view.combined(self.inner.logits(rows, inputs.propagation), inputs.places)

    def forward(self, rows: Matrix, inputs: NetworkInputs) -> Tensor:
        vectors = self.vectors(rows, inputs)
        if self.head is None:
            return vectors.sum(dim=1, keepdim=True)
        out: Tensor = self.head(vectors)
        return out
