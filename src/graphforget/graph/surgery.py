"""Other graphs made from a graph: without what a request names, a part of it, with the numbers of another one."""

from __future__ import annotations

import dataclasses
import weakref
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.collection import remaining_ids, renumbered_graphs
from graphforget.graph.digest import follow
from graphforget.graph.edge_arrays import FORGOTTEN_WEIGHT, WEIGHT, has_edge_arrays, selected
from graphforget.graph.overlay import Overlay, overlay_without
from graphforget.graph.resolved import Resolved
from graphforget.graph.row_change import RowChange
from graphforget.graph.targets import targets_where, without_targets
from graphforget.linalg.sparse import entry_rows, from_scipy, keep_entries, masked, to_scipy, without_rows

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph


def overlay_of(graph: Graph) -> Overlay | None:
    """The graph as its own base; None if it is directed, a collection, or has sparse attributes or edge arrays."""
    if graph.directed or graph.graph_numbers is not None or graph.has_sparse_attributes or has_edge_arrays(graph):
        return None
    return Overlay(graph.x.numpy(), graph.adjacency)


def without(graph: Graph, resolved: Resolved) -> Graph:
    """`G (-) dG`: the graph as if it had never held what a request names (docs/maths.md, section 1).

    Where it can be, it shares everything that stays with `graph`, and costs what it changes.
    """
    if graph.overlay is None:
        return _copied_without(graph, resolved)
    overlay, change = overlay_without(graph.overlay, resolved, graph)
    rows = _kept_rows(graph, resolved)
    if overlay.is_worn:
        after = dataclasses.replace(graph, x=overlay.x(), edge_index=overlay.edge_index(), **rows)
    else:
        known = {"num_columns": graph.num_columns, "has_sparse_attributes": False, "is_symmetric": graph.is_symmetric}
        shared: dict[str, Any] = {"overlay": overlay, "_change": change, **known}
        after = type(graph).lazy({"x": overlay.x, "edge_index": overlay.edge_index}, like=graph, **rows, **shared)
    numbers, before = graph.numbers.numpy(), graph.overlay
    changed = np.union1d(before.rows_of(np.union1d(change.relinked, change.altered)), resolved.label_rows.numpy())
    follow(graph, after, numbers[changed], numbers[before.rows_of(change.gone)])
    return after


def _kept_rows(graph: Graph, resolved: Resolved) -> dict[str, Any]:
    """The fields with one value a node, without the deleted nodes. Notes are left out: they could show a deletion."""
    unlabelled = _unlabelled(graph, resolved)
    if not resolved.node_rows.numel():
        return {"notes": (), **unlabelled}
    gone = np.unique(resolved.node_rows.numpy())
    rows: dict[str, Any] = {}
    for name in (*row_fields(graph), "y"):
        values = unlabelled.get(name, getattr(graph, name))
        rows[name] = torch.from_numpy(np.delete(values.numpy(), gone, axis=0))
    subjects = graph.subject_ids
    if subjects is not None:
        pieces = zip([0, *(gone + 1).tolist()], [*gone.tolist(), len(subjects)], strict=True)
        rows["subject_ids"] = tuple(chain.from_iterable(subjects[first:last] for first, last in pieces))
    return rows | {"notes": (), "next_number": graph.free_number}


def _unlabelled(graph: Graph, resolved: Resolved) -> dict[str, Any]:
    """The targets and the split if some nodes have no target and are on no side of it; nothing if none are named."""
    rows = resolved.label_rows
    if not rows.numel():
        return {}
    named = torch.zeros_like(graph.train_mask).index_fill_(0, rows, True)
    masks: dict[str, Any] = {name: getattr(graph, name) & ~named for name in ("train_mask", "val_mask", "test_mask")}
    return masks | {"y": without_targets(graph.y, named)}


def _unweighted(graph: Graph, columns: Tensor) -> dict[str, Any]:
    """The weights if the edges of this mask weigh 1; nothing if there are none."""
    if graph.edge_weight is None or not columns.any():
        return {}
    return {WEIGHT: graph.edge_weight.masked_fill(columns, FORGOTTEN_WEIGHT)}


def _copied_without(graph: Graph, resolved: Resolved) -> Graph:
    keep = torch.ones(graph.num_nodes, dtype=torch.bool)
    keep[resolved.node_rows] = False
    edges = ~resolved.edge_mask(graph) & _among(graph, keep)
    unweighted = resolved.weight_mask(graph)
    lost = _unlabelled(graph, resolved) | _unweighted(graph, unweighted)
    part = _rows(dataclasses.replace(graph, **lost) if lost else graph, keep, _blanked(graph, resolved, keep), edges)
    after = dataclasses.replace(part, next_number=graph.free_number)
    receivers = graph.edge_index[1, ~edges | unweighted]
    if not (graph.directed or has_edge_arrays(graph) or graph.graph_numbers is not None):
        after.__dict__["_change"] = _row_change(graph, resolved, keep, receivers)
    changed = torch.cat([receivers, resolved.full_rows, resolved.partial_rows, resolved.label_rows])
    if graph.graph_ids is None:  # or the header changes too
        follow(graph, after, *(graph.numbers[rows].numpy() for rows in (changed, resolved.node_rows)))
    return after


def _row_change(graph: Graph, resolved: Resolved, keep: Tensor, receivers: Tensor) -> RowChange:
    """What a request changes of an undirected graph without arrays of edges; `receivers` lost an edge."""
    relinked, altered = (
        _renumbered(rows[keep[rows]].unique(), keep).numpy()
        for rows in (receivers, torch.cat([resolved.full_rows, resolved.partial_rows]))
    )
    return RowChange(weakref.ref(graph), (~keep).numpy().nonzero()[0], relinked, altered)


def induced(graph: Graph, keep: Tensor) -> Graph:
    """The nodes where `keep`, and the edges among them."""
    return _rows(graph, keep, _select(graph.x, keep), _among(graph, keep))


def neighbourhood(graph: Graph, rows: Tensor, *, hops: int) -> tuple[Graph, Tensor]:
    """The part of the graph that decides what `hops` rounds of messages bring to `rows`, and their rows in it.

    It holds every node within `hops + 1` steps, whichever way the edges point, and all edges among those: one
    step more than messages travel, so that the degrees that weigh them are those of the whole graph.
    """
    source, target = graph.edge_index
    keep = torch.zeros(graph.num_nodes, dtype=torch.bool)
    keep[rows] = True
    for _ in range(hops + 1):
        sends, receives = keep[source], keep[target]
        keep[source[receives]] = True
        keep[target[sends]] = True
    return induced(graph, keep), _renumbered(rows, keep)


def changed_attribute_rows(graph: Graph, resolved: Resolved) -> Tensor:
    """Rows whose attributes really change: a value that is 0 already is not changed by setting it to 0."""
    if not resolved.names_attributes:
        return torch.zeros(0, dtype=torch.int64)
    if graph.has_sparse_attributes:
        changed = _named_entries(graph, resolved) & (graph.x.values() != 0)
        return entry_rows(graph.x)[changed].unique()
    full = resolved.full_rows[(attributes_of(graph, resolved.full_rows) != 0).any(dim=1)]
    values = attributes_of(graph, resolved.partial_rows)
    single = resolved.partial_rows[values.gather(1, resolved.partial_columns.unsqueeze(1)).squeeze(1) != 0]
    return torch.cat([full, single]).unique()


def attributes_of(graph: Graph, rows: Tensor) -> Tensor:
    """The dense attributes of some rows, at the cost of these rows."""
    if graph.overlay is None:
        return graph.x[rows]
    return torch.from_numpy(graph.overlay.attributes(graph.overlay.slots_of(rows.numpy())))


def count_named_values(graph: Graph, resolved: Resolved) -> int:
    """How many attribute values are not 0 and will be."""
    if graph.has_sparse_attributes:
        return int((_named_entries(graph, resolved) & (graph.x.values() != 0)).sum())
    rows, place = torch.cat([resolved.full_rows, resolved.partial_rows]).unique(return_inverse=True)
    named = torch.zeros(rows.numel(), graph.num_columns, dtype=torch.bool)
    named[place[: resolved.full_rows.numel()]] = True
    named[place[resolved.full_rows.numel() :], resolved.partial_columns] = True
    return int((attributes_of(graph, rows)[named] != 0).sum())


def row_fields(graph: Graph) -> tuple[str, ...]:
    """The vectors with one number a node. Attributes and targets may have several."""
    fields = ("train_mask", "val_mask", "test_mask", "numbers")
    return fields if graph.graph_numbers is None else (*fields, "graph_numbers")


def numbered_as(graph: Graph, other: Graph) -> Graph:
    """The same graph with the node numbers that `other` has for the same subjects.

    Use it for records from another source, which have subject ids but not the node numbers of `other`.

    Raises:
        InputError: A subject is not in `other`.
    """
    if graph.subject_ids is None or other.subject_ids is None:
        return graph
    if graph.class_names != other.class_names and set(graph.class_names or ()) == set(other.class_names or ()):
        return with_classes(graph, other.class_names or ()).numbered_as(other)
    subjects = graph.subject_ids
    if set(graph.relation_names or ()) <= set(other.relation_names or ()):
        graph = with_relations(graph, other.relation_names or ())
    graph = dataclasses.replace(graph, **renumbered_graphs(graph, other))
    known = {subject: int(number) for subject, number in zip(other.subject_ids, other.numbers, strict=True)}
    unknown = [subject for subject in subjects if subject not in known]
    if unknown:
        raise InputError(f"subject {unknown[0]!r} is not in the other graph")
    numbers = torch.tensor([known[subject] for subject in subjects])
    return reordered(dataclasses.replace(graph, digit_ids=other.digit_ids), numbers)


def reordered(graph: Graph, numbers: Tensor) -> Graph:
    """The same graph with these node numbers, which differ, and its rows in their order."""
    if (numbers.diff() > 0).all():
        return dataclasses.replace(graph, numbers=numbers)
    subjects = graph.subject_ids
    order = numbers.argsort()
    new_row = torch.empty_like(order)
    new_row[order] = torch.arange(order.numel())
    keys = new_row[graph.edge_index[1]] * graph.num_nodes + new_row[graph.edge_index[0]]
    columns = torch.from_numpy(np.argsort(keys.numpy(), kind="stable"))  # fast where rows stay in long runs
    keys = keys[columns]
    names = [name for name in row_fields(graph) if name != "numbers"]
    rows: dict[str, Any] = {name: getattr(graph, name)[order] for name in ("y", *names)}
    return dataclasses.replace(
        graph,
        x=from_scipy(to_scipy(graph.x)[order.numpy()]) if graph.x.layout == torch.sparse_csr else graph.x[order],
        edge_index=torch.stack([keys % graph.num_nodes, keys // graph.num_nodes]),
        numbers=numbers[order],
        subject_ids=None if subjects is None else tuple(map(subjects.__getitem__, order.tolist())),
        **rows,
        **selected(graph, columns),
    )


def with_classes(graph: Graph, names: tuple[str, ...]) -> Graph:
    """The same labels, with the classes in the order of `names`."""
    place = torch.tensor([names.index(name) for name in graph.class_names or ()])
    if graph.target_kind != "classes":
        return dataclasses.replace(graph, y=graph.y[:, place.argsort()], class_names=names)
    y = torch.where(graph.y >= 0, place[graph.y.clamp_min(0)], graph.y)
    return dataclasses.replace(graph, y=y, class_names=names)


def with_relations(graph: Graph, names: tuple[str, ...]) -> Graph:
    """The same edges, with the relations in the order of `names`, of which some may have no edge."""
    if graph.edge_relations is None or graph.relation_names == names:
        return graph
    masks = torch.zeros_like(graph.edge_relations)
    for number, name in enumerate(graph.relation_names or ()):
        masks |= ((graph.edge_relations >> number) & 1) << names.index(name)
    return dataclasses.replace(graph, edge_relations=masks, relation_names=names)


def _among(graph: Graph, keep: Tensor) -> Tensor:
    """A mask of the edges with both ends in `keep`."""
    ends = keep.numpy()[graph.edge_index.numpy()]
    return torch.from_numpy(ends[0] & ends[1])


def _rows(graph: Graph, keep: Tensor, x: Tensor, edges: Tensor) -> Graph:
    """The kept rows with attributes `x` and the edges of this mask, whose ends are all kept."""
    subjects = graph.subject_ids
    if subjects is not None:
        subjects = tuple(subject for subject, stays in zip(subjects, keep.tolist(), strict=True) if stays)
    rows: dict[str, Any] = {name: masked(getattr(graph, name), keep) for name in row_fields(graph)}
    rows["y"] = targets_where(graph.y, keep)
    rows["graph_ids"] = remaining_ids(graph, keep)
    rows["edge_index"] = _renumbered(masked(graph.edge_index, edges), keep)
    rows |= selected(graph, edges)
    return dataclasses.replace(graph, x=x, subject_ids=subjects, notes=(), **rows)  # notes could disclose a deletion


def _blanked(graph: Graph, resolved: Resolved, keep: Tensor) -> Tensor:
    """The attributes of the kept rows, with the values that the request names set to 0."""
    if graph.x.layout == torch.sparse_csr:
        if not resolved.names_attributes:
            return without_rows(graph.x, keep)
        return keep_entries(graph.x, ~_named_entries(graph, resolved), keep)
    x = graph.x.clone()
    x[resolved.full_rows] = 0
    x[resolved.partial_rows, resolved.partial_columns] = 0
    return x[keep]


def _named_entries(graph: Graph, resolved: Resolved) -> Tensor:
    """A mask of the stored entries of sparse attributes that the request names."""
    if not resolved.names_attributes:
        return torch.zeros(graph.x.values().numel(), dtype=torch.bool)
    rows, d = entry_rows(graph.x), graph.num_columns
    full = torch.zeros(graph.num_nodes, dtype=torch.bool)
    full[resolved.full_rows] = True
    named = full[rows]
    if resolved.partial_rows.numel():
        named |= torch.isin(rows * d + graph.x.col_indices(), resolved.partial_rows * d + resolved.partial_columns)
    return named


def _renumbered(rows: Tensor, keep: Tensor) -> Tensor:
    """The rows that these rows of the graph have in the part where `keep`."""
    return torch.from_numpy((keep.numpy().cumsum() - 1)[rows.numpy()])


def _select(x: Tensor, keep: Tensor) -> Tensor:
    if x.layout != torch.sparse_csr:
        return x[keep]
    return without_rows(x, keep)
