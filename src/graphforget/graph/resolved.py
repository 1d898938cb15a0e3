"""A request in terms of the rows of one graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

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

    def edge_mask(self, graph: Graph) -> Tensor:
        """A mask over the columns of `graph.edge_index`: the edges that are named."""
        n, (source, target) = graph.num_nodes, graph.edge_index
        mask = torch.zeros(source.numel(), dtype=torch.bool)
        mask[torch.searchsorted(target * n + source, self.edges[1] * n + self.edges[0])] = True
        return mask

    @property
    def names_attributes(self) -> bool:
        return bool(self.full_rows.numel() or self.partial_rows.numel())


class Resolvable(Protocol):
    """An object that can be resolved against a graph, such as a `Request`."""

    def resolve(self, graph: Graph) -> Resolved: ...
