"""The graphs of a collection as items: which they are, what a request does to them, and how nodes are pooled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import SparseMatrix, csr_tensor
from graphforget.models.graph_features import graph_rows
from graphforget.models.items import GRAPH, Items, ItemView
from graphforget.request.footprint import Footprint
from graphforget.request.request import Request

Pooling = Literal["sum", "mean"]


@dataclass(frozen=True)
class GraphView(ItemView):
    """The graphs of a collection. A graph's vector is the sum or the mean of those of its nodes.

    A graph has the label of its nodes and is on their side of the split; a graph without nodes is no item. Nothing in
    one graph has an influence on another one, so a request touches the graphs that it names something in, no others.
    """

    pooling: Pooling = "sum"
    word: ClassVar[str] = GRAPH

    def __post_init__(self) -> None:
        if self.pooling not in get_args(Pooling):
            raise InputError(f"the pooling is {self.pooling!r}, one of {', '.join(get_args(Pooling))} is needed")

    def items(self, graph: Graph) -> Items:
        numbers, of_node = graph_rows(graph)
        first = torch.zeros_like(numbers)
        first[of_node.flip(0)] = torch.arange(graph.num_nodes).flip(0)  # any node will do: all have the same
        parts = (part[first] for part in (graph.y, graph.train_mask, graph.val_mask, graph.test_mask))
        return Items(GRAPH, numbers, *parts)

    def messages(self, graph: Graph) -> Tensor:
        return graph.edge_index

    def nodes_in_a_sum(self, graph: Graph) -> int:
        return int(graph_rows(graph)[1].bincount().max())  # messages and sums stay in a graph

    def part_numbers(self, graph: Graph) -> Tensor:
        assert graph.graph_numbers is not None
        return graph.graph_numbers

    def training_graph(self, graph: Graph) -> Graph:
        return graph if bool(graph.train_mask.all()) else graph.induced(graph.train_mask)

    def touched(self, graph: Graph, retained: Graph, request: Request, reach: Reach) -> Footprint:
        items = self.items(graph)
        resolved = request.resolve(graph)
        changed = torch.zeros(graph.num_nodes, dtype=torch.bool)
        changed[resolved.node_rows] = True
        changed[resolved.edges[1]] = True
        changed[graph.changed_attribute_rows(resolved)] = True
        assert graph.graph_numbers is not None
        assert retained.graph_numbers is not None
        named = torch.isin(items.keys, graph.graph_numbers[changed])
        stays = torch.isin(items.keys, retained.graph_numbers)
        masks = (~stays & items.train_mask, named & stays & items.train_mask, named & stays)
        return Footprint(*(mask.nonzero().flatten() for mask in masks))

    def places(self, graph: Graph, *, dtype: torch.dtype) -> SparseMatrix:
        """The matrix that pools the nodes: a row for each graph."""
        numbers, of_node = graph_rows(graph)
        order = of_node.argsort(stable=True)
        sizes = torch.bincount(of_node, minlength=len(numbers))
        weights = torch.ones(graph.num_nodes, dtype=dtype)
        if self.pooling == "mean":
            weights /= sizes[of_node[order]]
        crow = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return SparseMatrix(csr_tensor(crow, order, weights, (len(numbers), graph.num_nodes)))

    def combined(self, values: Tensor, places: Any) -> Tensor:
        pooled: Tensor = places @ values
        return pooled
