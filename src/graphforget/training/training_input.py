"""The part of a graph that training reads. If a request leaves it unchanged, the weights need not change."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphforget.graph.edge_arrays import EDGE_ARRAYS, selected
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.graph.surgery import row_fields
from graphforget.graph.targets import targets_where, without_targets
from graphforget.linalg.sparse import entry_rows, keep_entries, masked
from graphforget.models.items import ItemView


def training_input(graph: Graph, reach: Reach) -> Graph:
    """The part of `graph` that can influence its training nodes through a model of this reach (docs/maths.md, 11).

    With `k` the number of hops, it holds the nodes within k hops of the training nodes, against the messages, and the
    edges that end within k - 1 hops. Where layers are degree-normalised, it holds the edges that end within k hops, so
    that every degree that weighs a message is true; nodes that are there only to count, at k + 1 hops, have attributes
    of 0. If the reach goes both ways, distances ignore directions, and an edge is held if either end is near enough.
    An unknown reach gives the whole graph. Labels of nodes that do not train are blanked, and they are in no mask;
    subject ids are left out. Rows are sorted by node number. Making the input of an input changes nothing.
    """
    if reach.hops is None:
        return _blanked(graph)
    source, target = graph.edge_index.numpy()
    hops = _hops(graph, reach)
    last = reach.hops if reach.degree_normalised and reach.hops else reach.hops - 1
    ends = hops[target] <= last
    if reach.both_ways:
        ends |= hops[source] <= last
    keep = hops <= reach.hops
    keep[source[ends]] = True
    keep[target[ends]] = True
    row_of = keep.cumsum() - 1
    rows = torch.from_numpy(keep)
    fields: dict[str, Any] = {name: masked(getattr(graph, name), rows) for name in row_fields(graph)}
    part = dataclasses.replace(
        graph,
        x=_attributes(graph.x, rows, torch.from_numpy(hops <= reach.hops)),
        y=targets_where(graph.y, rows),
        edge_index=torch.from_numpy(row_of[graph.edge_index.numpy()[:, ends]]),
        # An undirected edge is stored twice, and both must be in.
        directed=graph.directed or not (reach.both_ways or bool((hops[source[ends]] <= last).all())),
        **fields,
        **selected(graph, torch.from_numpy(ends)),
    )
    return _blanked(part)


def input_of_view(graph: Graph, reach: Reach, view: ItemView | None) -> Graph:
    """The part of `graph` that training reads for a model of this reach, whatever its items are."""
    return training_input(graph, reach) if view is None else _blanked(view.training_graph(graph))


def same_training_input(before: Graph, after: Graph, reach: Reach, *, view: ItemView | None = None) -> bool:
    """Whether the training input for a model of this reach is the same on both graphs, number for number.

    Then training by one recipe gives the same weights, bit for bit on one machine and thread count.
    """
    first, second = (input_of_view(graph, reach, view) for graph in (before, after))
    settings = ("num_classes", "directed", "relation_names")
    if any(getattr(first, name) != getattr(second, name) for name in settings):
        return False
    optional = ("graph_numbers", *EDGE_ARRAYS)
    if any((getattr(first, name) is None) != (getattr(second, name) is None) for name in optional):
        return False
    given = (name for name in optional if getattr(first, name) is not None)
    names = ("numbers", "train_mask", "y", "edge_index", *given)
    return _equal(first.x, second.x) and all(_equal(getattr(first, name), getattr(second, name)) for name in names)


def input_digest(graph: Graph, reach: Reach) -> str:
    """SHA-256 of the training input of a graph without weights of edges, for a model of this reach. It is private.

    Two graphs with one digest have the same training input, number for number.
    """
    part = training_input(graph, reach)
    sparse = part.x.layout == torch.sparse_csr
    x = (part.x.crow_indices(), part.x.col_indices(), part.x.values()) if sparse else (part.x,)
    settings = [graph.num_classes, graph.directed]
    sha = hashlib.sha256(json.dumps(settings).encode())
    for tensor in (part.numbers, part.train_mask, part.y, part.edge_index, *x):
        sha.update(json.dumps([str(tensor.dtype), list(tensor.shape)]).encode())
        sha.update(np.ascontiguousarray(tensor.numpy()).data)
    return sha.hexdigest()


def _hops(graph: Graph, reach: Reach) -> np.ndarray:
    """How many messages away each node is from the nearest training node, as far as the reach goes."""
    assert reach.hops is not None
    source, target = graph.edge_index.numpy()
    directions = [(source, target), (target, source)] if reach.both_ways else [(source, target)]
    far = reach.hops + 2
    hops = np.where(graph.train_mask.numpy(), 0, far)
    for hop in range(1, reach.hops + 1):
        for sender, receiver in directions:
            new = sender[hops[receiver] == hop - 1]
            hops[new] = np.minimum(hops[new], hop)
    return hops


def _attributes(x: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
    """The attributes of `rows`, 0 for those that are not `seen`; shared with `x` if nothing changes."""
    if bool(seen.all()):
        return x
    if x.layout == torch.sparse_csr:
        return keep_entries(x, seen[entry_rows(x)], rows)
    part = x[rows]
    part[~seen[rows]] = 0
    return part


def _blanked(graph: Graph) -> Graph:
    """The graph without labels and masks of nodes that do not train."""
    none = torch.zeros_like(graph.train_mask)
    y = without_targets(graph.y, ~graph.train_mask)
    names: Any = {"subject_ids": None, "digit_ids": False, "graph_ids": None}
    return dataclasses.replace(graph, y=y, val_mask=none, test_mask=none, **names)


def _equal(first: Tensor, second: Tensor) -> bool:
    if first.layout != second.layout or first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.layout != torch.sparse_csr:
        # A node without values has NaN, which equals nothing.
        return np.array_equal(first.numpy(), second.numpy(), equal_nan=first.dtype.is_floating_point)
    parts = ((m.crow_indices(), m.col_indices(), m.values()) for m in (first, second))
    return all(torch.equal(a, b) for a, b in zip(*parts, strict=True))
