"""The union of several requests against one graph, by what their names mean there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from graphforget.errors import InputError

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph
    from graphforget.request.request import Columns, Name, Request

T = TypeVar("T")
Place = TypeVar("Place", bound=Hashable)


def merged_names(requests: Iterable[Request], graph: Graph) -> dict[str, Any]:
    """The arguments of a request that names everything that one of these names, each thing once.

    A thing that several requests name is spelled as in the last of them. All attributes include single ones.

    Raises:
        InputError: A name is not in the graph, or one request names the same thing twice.
    """
    if not isinstance(requests, list | tuple) or not requests:
        raise InputError(f"the requests are {requests!r}, a list of one or more requests is needed")
    nodes: dict[int, Name] = {}
    edges: dict[tuple[int, int], tuple[Name, Name]] = {}
    attributes: dict[int, tuple[Name, Columns]] = {}
    graphs: dict[int, Name] = {}
    labels: dict[int, Name] = {}
    weights: dict[tuple[int, int], tuple[Name, Name]] = {}
    for request in requests:
        nodes |= _by_place(request.nodes, graph.row, "node")
        labels |= _by_place(request.labels, graph.row, "label of node")
        edges |= _by_place(request.edges, lambda edge: _ends(edge, graph), "edge")
        weights |= _by_place(request.edge_weights, lambda edge: _ends(edge, graph), "weight of edge")
        if request.graphs:
            graphs |= zip(graph.numbers_by_name(request.graphs), request.graphs, strict=True)
        for row, node in _by_place(request.attributes, graph.row, "attributes of node").items():
            columns = request.attributes[node]
            _, earlier = attributes.get(row, (node, columns))
            attributes[row] = node, columns if columns == earlier else _union(earlier, columns, graph)
    return {
        "nodes": tuple(nodes.values()),
        "edges": tuple(edges.values()),
        "attributes": dict(attributes.values()),
        "graphs": tuple(graphs.values()),
        "labels": tuple(labels.values()),
        "edge_weights": tuple(weights.values()),
    }


def _union(first: Columns, second: Columns, graph: Graph) -> Columns:
    """The columns that one of the two names."""
    single = [_by_place(columns, graph.column, "column") for columns in (first, second) if columns != "all"]
    return "all" if len(single) < 2 else tuple((single[0] | single[1]).values())


def _ends(edge: tuple[Name, Name], graph: Graph) -> tuple[int, int]:
    """The rows of an edge's ends, in one order for both directions of an undirected edge."""
    u, v = graph.row(edge[0]), graph.row(edge[1])
    return (u, v) if graph.directed else (min(u, v), max(u, v))


def _by_place(names: Iterable[T], place_of: Callable[[T], Place], label: str) -> dict[Place, T]:
    """The names of one request by what they mean. Two names for one thing are refused, as in a request alone."""
    places: dict[Place, T] = {}
    for name in names:
        place = place_of(name)
        if place in places:
            raise InputError(f"{label} {name!r} appears twice in the request")
        places[place] = name
    return places
