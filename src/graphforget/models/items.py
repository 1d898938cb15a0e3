"""Items: what a model answers for. These are the nodes of a graph, pairs of its nodes, or the graphs of a collection.

Everything that is proven needs an objective over items whose features are a fixed function of the graph at hand
(docs/maths.md, section 15). Nodes are one kind of item; a view of the graph gives the others.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.models.prepared import prepared_once
from graphforget.request.change import change_footprint
from graphforget.request.footprint import CountedFootprint, Footprint, footprint
from graphforget.request.request import Request

NODE, LINK, GRAPH = "node", "link", "graph"


@dataclass(frozen=True, eq=False)
class Items:
    """The items of one graph, with their labels and their split."""

    word: str  # NODE, LINK or GRAPH, as messages have it
    keys: Tensor  # stable names, ascending: n numbers, or n x 2 numbers of the nodes of a pair
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    elsewhere: int = field(default=0, kw_only=True)  # training items that lie on ranks, and have no row here
    tests_elsewhere: int = field(default=0, kw_only=True)  # and test items

    @property
    def num_training(self) -> int:
        """The number of training items, wherever they lie."""
        return self.elsewhere or self.train_rows.numel()

    @classmethod
    def of_nodes(cls, graph: Graph) -> Items:
        """The nodes of a graph."""
        items = cls(NODE, graph.numbers, graph.y, graph.train_mask, graph.val_mask, graph.test_mask)
        if not isinstance(graph, DistributedGraph):
            return items
        return dataclasses.replace(items, elsewhere=graph.num_training, tests_elsewhere=graph.counts["test"])

    @cached_property
    def train_rows(self) -> Tensor:
        return self.train_mask.nonzero().flatten()

    def __len__(self) -> int:
        return self.keys.shape[0]

    def rows_of(self, keys: Tensor) -> Tensor:
        """Where items of these names are, which must be among these."""
        if keys.dim() == 1:
            return torch.searchsorted(self.keys, keys)
        if not (len(self) and keys.numel()):
            return torch.zeros(keys.shape[0], dtype=torch.int64)
        base = int(max(self.keys.max(), keys.max())) + 1
        own, named = (pairs[:, 0] * base + pairs[:, 1] for pairs in (self.keys, keys))
        return torch.searchsorted(own, named)


class ItemView(ABC):
    """Which items a model answers for, and how values of nodes become values of items.

    A view is a frozen dataclass of settings. What it says of an item depends on the graph at hand alone.
    """

    word: ClassVar[str]
    outputs: ClassVar[int | None] = None  # numbers that a model gives for an item; None: one for each class

    @abstractmethod
    def items(self, graph: Graph) -> Items:
        """The items of a graph."""

    @abstractmethod
    def messages(self, graph: Graph) -> Tensor:
        """The edges along which messages flow, as an `edge_index`."""

    def nodes_in_a_sum(self, graph: Graph) -> int:
        """Over how many nodes a sum in a feature can run, at most."""
        return graph.num_nodes

    def part_numbers(self, graph: Graph) -> Tensor:
        """The number of each node that decides in which part of a stacked model it is."""
        return graph.numbers

    @abstractmethod
    def training_graph(self, graph: Graph) -> Graph:
        """The part of the graph that training reads. It has the same training items, with the same features."""

    def encoder_view(self) -> ItemView:
        """How the encoders of a stacked model see the graph that they are trained on."""
        return self

    @abstractmethod
    def touched(self, graph: Graph, retained: Graph, request: Request, reach: Reach) -> Footprint:
        """The items that a request removes, may change or adds, for features of nodes that reach so far."""

    @abstractmethod
    def places(self, graph: Graph, *, dtype: torch.dtype) -> Any:
        """Where the items lie among the nodes, for `combined`."""

    @abstractmethod
    def combined(self, values: Tensor, places: Any) -> Tensor:
        """Values of items from values of nodes, a row each. Differentiable in the values."""


class ItemModel(nn.Module):
    """A model of this package whose items are not nodes."""

    view: ItemView
    reach: Reach  # of the features of nodes that it computes on the way

    @property
    @abstractmethod
    def preparation(self) -> Hashable:
        """All that `item_inputs` depends on beside the graph."""

    @abstractmethod
    def item_inputs(self, graph: Graph, *, dtype: torch.dtype, device: str | torch.device) -> tuple[Any, Any]:
        """What `forward` is called with. Its output has a row for each item."""

    def pair_logits(self, graph: Graph, rows: Tensor) -> Tensor:
        """The logits of any pairs of different rows (n x 2), each as a held-out pair. Only models of links have them.

        The pairs have the lower row first.
        """
        raise InputError(f"the model answers for {self.view.word}s, not for links")


def view_of(module: nn.Module) -> ItemView | None:
    """How a model of this package sees a graph if its items are not nodes; None for every other module."""
    return module.view if isinstance(module, ItemModel) else None


def num_outputs(module: nn.Module, graph: Graph) -> int:
    """How many numbers a model gives for an item."""
    view = view_of(module)
    return graph.num_classes if view is None or view.outputs is None else view.outputs


def items_of(module: nn.Module, graph: Graph) -> Items:
    """What the module answers for on this graph: nodes, unless it is an `ItemModel`."""
    view = view_of(module)
    if view is None:
        return Items.of_nodes(graph)
    items: Items = prepared_once(graph, (type(view), view), lambda: view.items(graph))
    return items


def item_footprint(
    module: nn.Module, graph: Graph, retained: Graph, request: Request | None, reach: Reach
) -> Footprint:
    """The footprint among the items of the module of a request; without one, of an update of the graph.

    After an update, every pair counts as one whose loss may differ.
    """
    view = view_of(module)
    if isinstance(retained, DistributedGraph):  # the ranks counted it
        return CountedFootprint.of(**retained.changed)
    if request is None:
        return change_footprint(graph, retained, reach) if view is None else _changed_items(module, graph, retained)
    if view is None:
        return footprint(graph, request, reach, retained=retained)
    return view.touched(graph, retained, request, reach)


def _changed_items(module: nn.Module, graph: Graph, retained: Graph) -> Footprint:
    """The items that go and come; all others may differ."""
    before, after = items_of(module, graph), items_of(module, retained)
    _, place = torch.cat([before.keys, after.keys]).unique(dim=0, return_inverse=True)
    here, there = place[: len(before)], place[len(before) :]
    stays, trained_before = torch.isin(here, there), torch.isin(there, here[before.train_mask])
    trains = before.train_mask & torch.isin(here, there[after.train_mask])
    masks = (before.train_mask & ~trains, trains, stays, after.train_mask & ~trained_before)
    return Footprint(*(mask.nonzero().flatten() for mask in masks))
