"""A request in terms of the rows of one graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from graphforget.graph.edge_arrays import FORGOTTEN_WEIGHT

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph


@dataclass(frozen=True)
class Resolved:
    """A request in terms of one graph's rows. Made by `Request.resolve`, which has checked it."""

    node_rows: Tensor  # rows of the nodes to remove
    edges: Tensor  # 2 x k, columns of edge_index: the edges that are named (not those of removed nodes), in its order
    full_rows: Tensor  # rows that lose all attributes
    partial_rows: Tensor  # with partial_columns: the single attribute values to remove
    partial_columns: Tensor
    label_rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # that lose their target
    weight_edges: Tensor = field(default_factory=lambda: torch.zeros(2, 0, dtype=torch.int64))  # as `edges`: weigh 1

    def edge_mask(self, graph: Graph) -> Tensor:
        """A mask over the columns of `graph.edge_index`: the edges that are named."""
        return _columns(graph, self.edges)

    def weight_mask(self, graph: Graph) -> Tensor:
        """A mask over the columns of `graph.edge_index`: the edges whose weight is named and is not 1 already."""
        named = _columns(graph, self.weight_edges)
        return named if graph.edge_weight is None else named & (graph.edge_weight != FORGOTTEN_WEIGHT)

    @property
    def edge_ends(self) -> Tensor:
        """The rows of the ends of all edges that are named, or whose weight is."""
        return torch.cat([self.edges.flatten(), self.weight_edges.flatten()])

    @property
    def names_attributes(self) -> bool:
        return bool(self.full_rows.numel() or self.partial_rows.numel())


def _columns(graph: Graph, edges: Tensor) -> Tensor:
    n, (source, target) = graph.num_nodes, graph.edge_index
    mask = torch.zeros(source.numel(), dtype=torch.bool)
    mask[torch.searchsorted(target * n + source, edges[1] * n + edges[0])] = True
    return mask


class Resolvable(Protocol):
    """An object that can be resolved against a graph, such as a `Request`."""

    def resolve(self, graph: Graph) -> Resolved: ...
