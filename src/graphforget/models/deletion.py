"""A network of two layers with GNNDelete's operators: square matrices for the nodes around deleted data."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.graph.graph import Graph
from graphforget.linalg.sparse import Matrix, converted
from graphforget.models.gcn import GCN
from graphforget.models.item_networks import ItemNetwork
from graphforget.models.items import ItemModel, ItemView
from graphforget.models.sage import SAGE


@dataclass(frozen=True, eq=False)
class DeletionInputs:
    """What the network reads beside the attributes, and the rows that each operator acts on."""

    propagation: Any
    places: Any  # of the items, if these are links
    rows: tuple[Tensor, Tensor]


class DeletionModel(ItemModel):
    """The frozen network, with `h W_1` and `h W_2` in place of the rows `h` of some nodes after each layer.

    The nodes are known by their numbers, so the model answers on every graph that shares them. It keeps the numbers of
    the neighbours of deleted data, and is therefore never stored or released with a guarantee.
    """

    view: ItemView | None  # type: ignore[assignment]

    def __init__(self, inner: nn.Module, numbers: tuple[Tensor, Tensor], *, start: float | None) -> None:
        """`inner` is a network that `two_layers` knows. `start` fills the operators; None: the identity."""
        super().__init__()
        network = two_layers(inner)
        assert network is not None
        self.inner, self.reach = inner, network.reach
        self.view = inner.view if isinstance(inner, ItemNetwork) else None
        self.first_numbers, self.second_numbers = (nn.Buffer(each.clone()) for each in numbers)
        widths = (network.width, _outputs(network))
        fill = [torch.eye(width) if start is None else torch.full((width, width), start) for width in widths]
        self.first_operator, self.second_operator = (nn.Parameter(each) for each in fill)

    @property
    def network(self) -> GCN | SAGE:
        """The two layers inside."""
        network = two_layers(self.inner)
        assert network is not None
        return network

    @property
    def preparation(self) -> Hashable:
        numbers = b"|".join(each.numpy().tobytes() for each in (self.first_numbers, self.second_numbers))
        inner = self.inner.preparation
        return type(self), inner, hashlib.sha256(numbers).hexdigest()

    def item_inputs(
        self, graph: Graph, *, dtype: torch.dtype, device: str | torch.device
    ) -> tuple[Matrix, DeletionInputs]:
        network, view = self.network, self.view
        edges = (graph.edge_index if view is None else view.messages(graph)).to(device)
        rows, propagation = network.prepare(converted(graph.x, dtype=dtype, device=device), edges)
        if network.symmetric_propagation and not graph.directed:
            propagation = network.marked_symmetric(propagation)
        places = None if view is None else view.places(graph, dtype=dtype)
        numbers = (self.first_numbers.cpu(), self.second_numbers.cpu())
        first, second = (torch.isin(graph.numbers, each).nonzero().flatten().to(device) for each in numbers)
        return rows, DeletionInputs(propagation, places, (first, second))

    def layers(self, x: Matrix, inputs: DeletionInputs) -> tuple[Tensor, Tensor]:
        """Each layer's numbers, the first before its activation. The first is cut off from the second's gradient."""
        network = self.network
        first = _applied(network.first_layer(x, inputs.propagation), inputs.rows[0], self.first_operator)
        hidden = first.detach() if self.training else first
        second = network.second_layer(hidden.relu(), inputs.propagation)
        return first, _applied(second, inputs.rows[1], self.second_operator)

    def forward(self, x: Matrix, inputs: DeletionInputs) -> Tensor:
        _, out = self.layers(x, inputs)
        if self.view is None:
            return out
        return self.view.combined(out, inputs.places).sum(dim=1, keepdim=True)


def two_layers(module: nn.Module) -> GCN | SAGE | None:
    """The network of two layers inside a module, known by its exact type; None if there is none."""
    if type(module) is ItemNetwork and module.head is None:
        return two_layers(module.inner)
    return module if isinstance(module, GCN | SAGE) and type(module) in (GCN, SAGE) else None


def without_operator(module: nn.Module) -> nn.Module:
    """The network inside a `DeletionModel`; any other module is returned as it is."""
    return module.inner if isinstance(module, DeletionModel) else module


def _outputs(network: GCN | SAGE) -> int:
    return (network.second if isinstance(network, GCN) else network.out).weight.shape[1]


def _applied(values: Tensor, rows: Tensor, operator: Tensor) -> Tensor:
    return values.index_copy(0, rows, values.index_select(0, rows) @ operator)
