"""One graph from a PyG `HeteroData`: the nodes of all types one after the other, the edge types as relations."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.canonical import checked_pairs
from graphforget.graph.pyg import MOST_NODES
from graphforget.graph.schema import MARK, checked_types
from graphforget.graph.targets import UNLABELLED
from graphforget.graph.validation import attribute_matrix
from graphforget.linalg.sparse import to_scipy

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

MASKS = ("train_mask", "val_mask", "test_mask")
REVERSE = "rev_"  # before the name of a relation whose edges are those of another one, turned
PRESENT = "present"  # the column of a type without attributes: 1 for each of its nodes
MOST_RELATIONS = 62
MOST_COLUMNS = 2**24  # of all types together

Names = Mapping[str, Sequence[str]]
EdgeType = tuple[str, str, str]


def read_hetero(
    data: HeteroData, target: str, *, directed: bool, subject_ids: Names | None, column_names: Names | None
) -> dict[str, Any]:
    """The arguments of `Graph.create` for a `HeteroData`; see `Graph.from_hetero`."""
    from torch_geometric.data import HeteroData

    if not isinstance(data, HeteroData):
        raise InputError(f"the data is a {type(data).__name__}, a PyG HeteroData is needed")
    types = checked_types(data.node_types)
    if target not in types:
        raise InputError(f"the target is {target!r}, one of the types {', '.join(map(repr, types))} is needed")
    for given, label in ((subject_ids, "subject ids"), (column_names, "column names")):
        unknown = sorted(set(given or ()) - set(types))
        if unknown:
            raise InputError(f"there are {label} for the type {unknown[0]!r}, which the data does not have")
    sizes = {kind: _num_nodes(data, kind) for kind in types}
    _check_sizes(data, sizes)
    blocks = [_attributes(data, kind, sizes[kind]) for kind in types]
    widths = {kind: block.shape[1] for kind, block in zip(types, blocks, strict=True)}
    own_columns = {kind: _columns(data, kind, widths[kind], column_names) for kind in types}
    ignored = [kind for kind in types if kind != target and getattr(data[kind], "y", None) is not None]
    notes = [f"labels of type {kind!r} left out, the target is {target!r}" for kind in ignored]
    return {
        "x": sp.csr_matrix(sp.block_diag(blocks, format="csr")),
        "subject_ids": [name for kind in types for name in _named(kind, sizes[kind], subject_ids, "subject ids")],
        "column_names": [f"{kind}{MARK}{column}" for kind in types for column in own_columns[kind]],
        "directed": directed,
        "notes": notes,
        **_targets(data, target, sizes),
        **_edges(data, sizes, directed=directed),
    }


def _num_nodes(data: HeteroData, kind: str) -> int:
    x = getattr(data[kind], "x", None)
    try:
        with warnings.catch_warnings():  # PyG warns where it guesses
            warnings.simplefilter("ignore", UserWarning)
            nodes = operator.index(data[kind].num_nodes if x is None else x.shape[0])
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError):
        nodes = -1
    if nodes < 0:
        raise InputError(f"the type {kind!r} has neither 'x' nor 'num_nodes', so its number of nodes is unknown")
    return nodes


def _check_sizes(data: HeteroData, sizes: Mapping[str, int]) -> None:
    """Raises `InputError` for counts that a small file could name and no memory could hold."""
    attributes = {kind: getattr(data[kind], "x", None) for kind in sizes}
    nodes = sum(sizes[kind] for kind, x in attributes.items() if x is None)
    if nodes > MOST_NODES:
        raise InputError(f"{nodes:,} nodes have no attributes, up to {MOST_NODES:,} are possible")
    columns = sum(x.shape[-1] for x in attributes.values() if isinstance(x, Tensor) and x.dim())
    if columns > MOST_COLUMNS:
        raise InputError(f"the types have {columns:,} columns together, up to {MOST_COLUMNS:,} are possible")


def _attributes(data: HeteroData, kind: str, nodes: int) -> sp.csr_matrix:
    x = getattr(data[kind], "x", None)
    if x is None:
        return sp.csr_matrix((torch.ones(nodes).numpy(), (range(nodes), [0] * nodes)), shape=(nodes, 1))
    if nodes == 0:
        return sp.csr_matrix((0, x.shape[1] if x.dim() == 2 else 1))
    try:
        matrix = attribute_matrix(x)
    except InputError as error:
        raise InputError(f"type {kind!r}: {error}") from error
    if matrix.dtype.is_complex:
        raise InputError(f"the attributes of type {kind!r} are {matrix.dtype}, real numbers are needed")
    return to_scipy(matrix.to(torch.promote_types(matrix.dtype, torch.float32)))


def _named(kind: str, count: int, names: Names | None, label: str) -> list[str]:
    """The given names of a type, or its numbers from 0, with the type before them."""
    own = [str(place) for place in range(count)] if names is None or kind not in names else list(names[kind])
    if len(own) != count:
        raise InputError(f"there are {len(own)} {label} for the {count} nodes of type {kind!r}")
    return [f"{kind}{MARK}{name}" for name in own]


def _columns(data: HeteroData, kind: str, width: int, names: Names | None) -> list[str]:
    if names is not None and kind in names:
        if len(names[kind]) != width:
            raise InputError(f"there are {len(names[kind])} column names for the {width} columns of type {kind!r}")
        return list(names[kind])
    return [PRESENT] if getattr(data[kind], "x", None) is None else [str(place) for place in range(width)]


def _targets(data: HeteroData, target: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Labels and masks of the target type, on the rows of all nodes."""
    store, total, first = data[target], sum(sizes.values()), 0
    for kind in sizes:
        if kind == target:
            break
        first += sizes[kind]
    rows = slice(first, first + sizes[target])
    masks = {name: getattr(store, name, None) for name in MASKS}
    y = getattr(store, "y", None)
    if y is None and any(mask is not None for mask in masks.values()):
        raise InputError(f"the type {target!r} has a mask and no 'y'")
    if y is None:
        return {"y": None}
    y = torch.as_tensor(y).detach().cpu()
    if y.dim() == 0 or y.shape[0] != sizes[target] or y.dim() > 2:
        raise InputError(f"the labels of type {target!r} have shape {tuple(y.shape)} for {sizes[target]} nodes")
    y = y if y.dtype.is_floating_point else y.to(torch.int64)
    everywhere = torch.full(
        (total, *y.shape[1:]), torch.nan if y.dtype.is_floating_point else UNLABELLED, dtype=y.dtype
    )
    everywhere[rows] = y
    return {"y": everywhere} | {name: _mask(mask, rows, total, name) for name, mask in masks.items()}


def _mask(mask: Any, rows: slice, total: int, name: str) -> Tensor | None:
    if mask is None:
        return None
    mask = torch.as_tensor(mask).detach().cpu()
    if mask.dtype != torch.bool or mask.shape != (rows.stop - rows.start,):
        raise InputError(f"the {name} is {mask.dtype} of shape {tuple(mask.shape)}, a truth value a node is needed")
    everywhere = torch.zeros(total, dtype=torch.bool)
    everywhere[rows] = mask
    return everywhere


def _edges(data: HeteroData, sizes: Mapping[str, int], *, directed: bool) -> dict[str, Any]:
    """All edges with masks of their relations, and weights if some edge type has them."""
    given = list(data.edge_types)
    for one in given:
        if not isinstance(one, tuple) or len(one) != 3 or not all(isinstance(part, str) for part in one):
            raise InputError(f"an edge type is {one!r}, three names are needed: (source, relation, target)")
    if not given:
        raise InputError("the data has no edge type, which a heterogeneous graph needs")
    relation_of = {edge_type: edge_type if directed else _forward(edge_type, given) for edge_type in given}
    relations = list(dict.fromkeys(relation_of.values()))
    if len(relations) > MOST_RELATIONS:
        raise InputError(f"the data has {len(relations)} relations, up to {MOST_RELATIONS} are possible")
    starts = dict(zip(sizes, torch.tensor([0, *sizes.values()]).cumsum(0).tolist(), strict=False))
    pairs, masks, weights = [], [], []
    for edge_type in given:
        edges = _pairs(data, edge_type, sizes)
        source, _, target = edge_type
        pairs.append(edges + torch.tensor([[starts[source]], [starts[target]]]))
        masks.append(torch.full((edges.shape[1],), 1 << relations.index(relation_of[edge_type])))
        weights.append(_weights(data, edge_type, edges.shape[1]))
    weighted = any(weight is not None for weight in weights)
    ones = (torch.ones(mask.numel()) if weight is None else weight for weight, mask in zip(weights, masks, strict=True))
    return {
        "edges": torch.cat(pairs, dim=1),
        "edge_relations": torch.cat(masks),
        "relation_names": [MARK.join(relation) for relation in relations],
        "edge_weight": torch.cat(list(ones)) if weighted else None,
    }


def _forward(edge_type: EdgeType, given: Sequence[EdgeType]) -> EdgeType:
    """The relation of an edge type whose messages flow both ways: that of its reverse if that comes first.

    The reverse of (a, "to", b) is (b, "rev_to", a), or (b, "to", a) if a and b differ.
    """
    source, name, target = edge_type
    others = [(target, name.removeprefix(REVERSE), source)] if name.startswith(REVERSE) else []
    others += [(target, name, source)] if source != target else []
    earlier = given[: given.index(edge_type)] if not name.startswith(REVERSE) else given
    return next((other for other in others if other in earlier), edge_type)


def _pairs(data: HeteroData, edge_type: EdgeType, sizes: Mapping[str, int]) -> Tensor:
    source, name, target = edge_type
    if MARK in name or not name:
        raise InputError(f"a relation is named {name!r}, a name without {MARK!r} is needed")
    label = MARK.join(edge_type)
    if source not in sizes or target not in sizes:
        raise InputError(f"the relation {label} connects a type that the data does not have")
    store = data[edge_type]
    if getattr(store, "edge_index", None) is None:
        raise InputError(f"the relation {label} has no 'edge_index'")
    if getattr(store, "edge_attr", None) is not None:
        raise InputError(f"the relation {label} has 'edge_attr', and only one weight an edge is supported")
    edges = checked_pairs(store.edge_index, max(sizes.values())).to(torch.int64)
    for row, kind in zip(edges, (source, target), strict=True):
        if row.numel() and int(row.max()) >= sizes[kind]:
            raise InputError(f"an edge of {label} names node {int(row.max())}, {kind!r} has {sizes[kind]} nodes")
    return edges


def _weights(data: HeteroData, edge_type: EdgeType, count: int) -> Tensor | None:
    weight = getattr(data[edge_type], "edge_weight", None)
    if weight is None:
        return None
    weight = torch.as_tensor(weight).detach().cpu()
    if weight.shape != (count,):
        raise InputError(f"the weights of {MARK.join(edge_type)} have shape {tuple(weight.shape)} for {count} edges")
    return weight
