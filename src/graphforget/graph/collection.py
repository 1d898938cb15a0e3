"""A collection of graphs as one graph: the number of the graph that each node is in, and names for these graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.edge_arrays import has_edge_arrays
from graphforget.graph.validation import checked_names
from graphforget.validation import as_whole_number

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph


def checked_graph_numbers(graph_numbers: Any, n: int) -> Tensor | None:
    if graph_numbers is None:
        return None
    numbers = torch.as_tensor(graph_numbers).detach().cpu()
    kind = numbers.dtype
    whole = not (kind.is_floating_point or kind.is_complex or kind == torch.bool)
    if not whole or numbers.shape != (n,) or int(numbers.min()) < 0:
        raise InputError("the graph numbers must be one whole number from 0 a node")
    return numbers.to(torch.int64).clone()


def checked_graph_ids(graph_ids: Sequence[str] | None, graph_numbers: Tensor | None) -> tuple[str, ...] | None:
    if graph_ids is None:
        return None
    if graph_numbers is None:
        raise InputError("there are graph ids and no graph numbers, a collection needs the number of each node's graph")
    return checked_names(graph_ids, graph_numbers.unique().numel(), "graph ids")


def check_collection(graph: Graph) -> None:
    """Raises `InputError` unless each graph has one label and is on one side of the split, and no edge joins two."""
    if graph.graph_numbers is None:
        return
    if has_edge_arrays(graph):
        raise InputError("a collection of graphs cannot have edge weights or relations, only a single graph can")
    numbers, of_node = graph.graph_numbers.unique(return_inverse=True)
    first = torch.full_like(numbers, graph.num_nodes)
    first.scatter_reduce_(0, of_node, torch.arange(graph.num_nodes), "amin")
    like = first[of_node]  # the first node of each node's graph
    sides = torch.stack([graph.train_mask, graph.val_mask, graph.test_mask], dim=1)
    for values, label in ((graph.y, "labels"), (sides, "sides of the split")):
        differs = values != values[like]
        if values.is_floating_point():  # no label: not a number
            differs &= ~(values.isnan() & values[like].isnan())
        if differs.any():
            row = int(differs.reshape(graph.num_nodes, -1).any(dim=1).nonzero()[0])
            raise InputError(f"graph {int(graph.graph_numbers[row])} has nodes with different {label}, one is needed")
    source, target = graph.graph_numbers[graph.edge_index]
    if (source != target).any():
        place = int((source != target).nonzero()[0])
        raise InputError(f"an edge joins graph {int(source[place])} and graph {int(target[place])}")


def numbers_of_graphs(graph: Graph, among: Tensor | None = None) -> Tensor:
    """The numbers of the graphs of a collection, ascending; with `among`, those with a node where this mask is set.

    Raises:
        InputError: The graph is no collection.
    """
    if graph.graph_numbers is None:
        raise InputError("the graph is no collection of graphs")
    return (graph.graph_numbers if among is None else graph.graph_numbers[among]).unique()


def graphs_by_name(graph: Graph, names: Iterable[int | str]) -> list[int]:
    """The numbers of graphs, which are named by their ids, or by their numbers if the graphs have no ids.

    Raises:
        InputError: There is no such graph, or one of them is named twice.
    """
    numbers = graph.numbers_of_graphs.tolist()
    known = dict(zip(map(str, numbers) if graph.graph_ids is None else graph.graph_ids, numbers, strict=True))
    named: dict[int, int | str] = {}
    for name in names:
        number = known.get(name if isinstance(name, str) else str(as_whole_number(name)))
        if number is None:
            raise InputError(f"graph {name!r} is not in the collection")
        if number in named:
            raise InputError(f"graph {name!r} appears twice in the request")
        named[number] = name
    return list(named)


def rows_of_graphs(graph: Graph, names: Iterable[int | str]) -> Tensor:
    """The rows of the nodes of these graphs, ascending."""
    numbers = graphs_by_name(graph, names)
    assert graph.graph_numbers is not None
    return torch.isin(graph.graph_numbers, torch.tensor(numbers, dtype=torch.int64)).nonzero().flatten()


def name_of_graph(graph: Graph, number: int) -> int | str:
    """The name of the graph with this number in a request: its id if it has one, otherwise its number."""
    if graph.graph_ids is None:
        return number
    return graph.graph_ids[int(np.searchsorted(graph.numbers_of_graphs.numpy(), number))]


def remaining_ids(graph: Graph, keep: Tensor) -> tuple[str, ...] | None:
    """The ids of the graphs that still have a node where `keep`."""
    if graph.graph_ids is None or graph.graph_numbers is None:
        return graph.graph_ids
    stays = torch.isin(graph.numbers_of_graphs, graph.graph_numbers[keep]).tolist()
    return tuple(name for name, remains in zip(graph.graph_ids, stays, strict=True) if remains)


def renumbered_graphs(graph: Graph, other: Graph) -> dict[str, Any]:
    """The fields of a collection with the graph numbers that `other` has for the same graph ids.

    Raises:
        InputError: A graph is not in `other`.
    """
    if graph.graph_numbers is None or graph.graph_ids is None or other.graph_ids is None:
        return {}
    new = torch.tensor(graphs_by_name(other, graph.graph_ids), dtype=torch.int64)
    of_node = torch.searchsorted(graph.numbers_of_graphs, graph.graph_numbers)
    ids = tuple(graph.graph_ids[place] for place in new.argsort().tolist())
    return {"graph_numbers": new[of_node], "graph_ids": ids}
