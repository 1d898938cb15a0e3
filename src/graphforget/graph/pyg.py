"""Graphs from and to PyTorch Geometric."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.canonical import canonical_adjacency
from graphforget.graph.edge_arrays import same_weights_both_ways
from graphforget.graph.validation import UNLABELLED, attribute_matrix, checked_edges
from graphforget.linalg.sparse import to_scipy

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from graphforget.graph.graph import Graph

MOST_NODES = 2**24  # without attributes, in all graphs of a list together; more need as many ends of edges


def read_pyg(data: Data, *, directed: bool | None) -> dict[str, Any]:
    """The arguments of `Graph.create` for a PyG `Data`, all but names."""
    from torch_geometric.data import HeteroData

    if isinstance(data, HeteroData):
        raise InputError(
            "a HeteroData was given, and a homogeneous Data with x and edge_index is needed: "
            "graphforget.Graph.from_hetero(data, target=...) takes several types of nodes or edges"
        )
    masks = {mask: getattr(data, mask, None) for mask in ("train_mask", "val_mask", "test_mask")}
    for needed in ("x", "edge_index", *(["y"] if any(mask is not None for mask in masks.values()) else [])):
        if getattr(data, needed, None) is None:
            raise InputError(f"the PyG data has no '{needed}', which a Graph needs")
    weight = _weight(data)
    given: dict[str, Any] = masks | {"numbers": getattr(data, "node_numbers", None)}
    given["graph_numbers"] = getattr(data, "graph_numbers", None)
    classes = getattr(data, "num_classes", None)  # a class may have lost its last node
    given["num_classes"] = classes if isinstance(classes, int) else None
    n = attribute_matrix(data.x).shape[0]
    edges = canonical_adjacency(data.edge_index, n, directed=directed)
    given |= {"x": data.x, "edges": edges, "y": getattr(data, "y", None), "directed": edges.directed}
    if weight is None:
        return given
    if directed is None and not edges.directed:
        given["directed"] = not same_weights_both_ways(data.edge_index, weight, n)
    return given | {"edges": data.edge_index, "edge_weight": weight}


def _weight(data: Data) -> Tensor | None:
    """The weights of the edges. What `edge_attr` means is not known, so it is refused."""
    if getattr(data, "edge_attr", None) is not None:
        raise InputError(
            "the PyG data has 'edge_attr', and an edge of a Graph has one weight: put the column that is the weight "
            "into 'edge_weight', and remove 'edge_attr'"
        )
    return getattr(data, "edge_weight", None)


def read_pyg_list(graphs: Sequence[Data], *, directed: bool | None, graph_ids: Sequence[str] | None) -> dict[str, Any]:
    """The arguments of `Graph.create` for a list of PyG `Data`, all but names. Graphs without nodes are left out."""
    if isinstance(graphs, str | bytes) or not hasattr(graphs, "__iter__") or not len(graphs):
        raise InputError("a list of one or more PyG Data is needed")
    if graph_ids is not None and len(graph_ids) != len(graphs):
        raise InputError(f"there are {len(graph_ids)} graph ids for {len(graphs)} graphs")
    nodes = [_num_nodes(data, place) for place, data in enumerate(graphs)]
    _check_bare_nodes(graphs, nodes)
    parts = [_read_one(data, place, number) for place, (data, number) in enumerate(zip(graphs, nodes, strict=True))]
    places = [place for place, part in enumerate(parts) if part["x"].shape[0]]
    parts = [parts[place] for place in places]
    if not parts or len({part["x"].shape[1] for part in parts}) != 1:
        raise InputError("the graphs have no node, or not the same columns")
    if any(part["has_x"] != parts[0]["has_x"] for part in parts):
        raise InputError("some of the graphs have attributes 'x' and some have none")
    sizes = torch.tensor([part["x"].shape[0] for part in parts])
    starts = (sizes.cumsum(0) - sizes).tolist()
    pairs = torch.cat([part["edges"] + start for part, start in zip(parts, starts, strict=True)], dim=1)
    edges = canonical_adjacency(pairs, int(sizes.sum()), directed=directed)
    empty = len(graphs) - len(places)
    return {
        "x": _stacked([part["x"] for part in parts]),
        "edges": edges,
        "y": torch.stack([part["y"] for part in parts]).repeat_interleave(sizes, dim=0),
        "directed": edges.directed,
        "graph_numbers": torch.tensor(places).repeat_interleave(sizes),
        "graph_ids": None if graph_ids is None else [graph_ids[place] for place in places],
        "notes": [f"{empty:,} graph{'s' * (empty > 1)} without nodes left out"] if empty else [],
    }


def _stacked(attributes: Sequence[Tensor]) -> Tensor | sp.csr_matrix:
    """The rows of all graphs, sparse if those of any graph are."""
    attributes = [x.to(torch.promote_types(x.dtype, torch.float32)) for x in attributes]
    if all(x.layout == torch.strided for x in attributes):
        return torch.cat(attributes)
    return sp.csr_matrix(sp.vstack([to_scipy(x) for x in attributes]))


def _num_nodes(data: Data, place: int) -> int:
    """How many nodes graph `place` of a list has."""
    if getattr(data, "edge_index", None) is None:
        raise InputError(f"graph {place} has no 'edge_index', which a Graph needs")
    x = getattr(data, "x", None)
    if x is not None and (x.dim() != 2 or (x.shape[0] and not x.shape[1])):
        raise InputError(f"graph {place} has attributes of shape {tuple(x.shape)}, nodes x columns is needed")
    given = data.num_nodes if x is None else x.shape[0]
    if given is None:
        raise InputError(f"graph {place} has neither 'x' nor 'num_nodes', so its number of nodes is unknown")
    try:
        nodes = operator.index(given)
    except (TypeError, ValueError, RuntimeError):
        nodes = -1
    if nodes < 0:
        raise InputError(f"graph {place} has a 'num_nodes' that is no whole number from 0")
    return nodes


def _check_bare_nodes(graphs: Sequence[Data], nodes: Sequence[int]) -> None:
    """Refuses a number of nodes that a few bytes can name and no memory can hold, before any row is made."""
    bare = sum(number for data, number in zip(graphs, nodes, strict=True) if getattr(data, "x", None) is None)
    most = max(MOST_NODES, sum(data.edge_index.numel() for data in graphs if isinstance(data.edge_index, Tensor)))
    if bare > most:
        raise InputError(f"the graphs have {bare:,} nodes without attributes 'x', up to {most:,} are possible")


def _read_one(data: Data, place: int, nodes: int) -> dict[str, Any]:
    """One graph of a list: attributes (a column of ones if it has none), edges and its one label."""
    for unsupported in ("edge_weight", "edge_attr"):
        if getattr(data, unsupported, None) is not None:
            raise InputError(f"graph {place} has '{unsupported}', and edges in a collection have no weights")
    x, y = getattr(data, "x", None), getattr(data, "y", None)
    y = torch.tensor(UNLABELLED) if y is None else torch.as_tensor(y).detach().cpu().squeeze()
    if y.dim() != 0:
        raise InputError(f"graph {place} has {y.numel()} labels, one label 'y' is needed")
    attributes = torch.ones(nodes, 1) if x is None else x.detach().cpu()
    if attributes.layout not in (torch.strided, torch.sparse_csr):
        attributes = attributes.to_sparse_csr()
    edges = checked_edges(data.edge_index, attributes.shape[0])
    return {"x": attributes, "has_x": x is not None, "edges": edges, "y": y}


def to_pyg(graph: Graph) -> Data:
    """As a PyG `Data`; `node_numbers` holds each row's stable number, `num_classes` how many classes there are.

    Of a collection, `graph_numbers` holds the number of each row's graph. A graph with weights has `edge_weight`,
    one with relations `edge_relations`, masks in which bit r stands for relation r.
    """
    from torch_geometric.data import Data

    of_graphs = {} if graph.graph_numbers is None else {"graph_numbers": graph.graph_numbers.clone()}
    if graph.edge_weight is not None:
        of_graphs["edge_weight"] = graph.edge_weight.clone()
    if graph.edge_relations is not None:
        of_graphs["edge_relations"] = graph.edge_relations.clone()
    return Data(
        x=graph.x.clone(),
        edge_index=graph.edge_index.clone(),
        y=graph.y.clone(),
        train_mask=graph.train_mask.clone(),
        val_mask=graph.val_mask.clone(),
        test_mask=graph.test_mask.clone(),
        node_numbers=graph.numbers.clone(),
        num_classes=graph.num_classes,
        **of_graphs,
    )
