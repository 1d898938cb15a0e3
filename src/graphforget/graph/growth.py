"""The next state of a graph from new records: known nodes keep their numbers, new ones get the numbers after those."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.digest import follow_state
from graphforget.graph.edge_arrays import RELATIONS, WEIGHT
from graphforget.graph.schema import is_typed, target_type
from graphforget.graph.surgery import reordered, with_classes, with_relations
from graphforget.graph.validation import checked_attributes

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph


def next_state(graph: Graph, new: Graph) -> Graph:
    """`new` as the next state of `graph`, with its node numbers, classes and way of storing attributes.

    Nodes are matched by their subject ids; without subject ids, by their numbers.

    Raises:
        InputError: `new` cannot be a later state of `graph`: its columns, classes, targets or ids are of another kind.
    """
    _check_kind(graph, new)
    if new.class_names is not None and new.class_names != graph.class_names:
        new = with_classes(new, graph.class_names or ())
    new = with_relations(new, graph.relation_names or ())
    numbers = _numbers(graph, new)
    settings: dict[str, Any] = {
        name: getattr(graph, name) for name in ("num_classes", "class_names", "digit_ids", "name")
    }
    after = dataclasses.replace(
        new, x=_stored_as(new.x, graph.x), column_names=graph.column_names, notes=(), **settings
    )
    after = reordered(after, numbers) if numbers is not None else after
    after = dataclasses.replace(after, next_number=max(graph.free_number, after.free_number))
    follow_state(graph, after)
    return after


def with_sides_of(new: Graph, graph: Graph) -> Graph:
    """The same records with the split of `graph`: known nodes keep their side, and other labelled nodes train.

    A known node that is on no side of the split, such as one that had no label, trains if it has a label now.
    """
    row_of = _known_rows(graph, new)
    known = row_of >= 0
    labelled = new.train_mask | new.val_mask | new.test_mask
    val, test = (labelled & known & mask[row_of.clamp_min(0)] for mask in (graph.val_mask, graph.test_mask))
    return dataclasses.replace(new, train_mask=labelled & ~val & ~test, val_mask=val, test_mask=test)


def numbers_that_stay(graph: Graph, later: Graph) -> Tensor:
    """The numbers of the nodes of `graph` that are in a later state of it.

    A number alone does not tell: a new node may have that of a last one that left.
    """
    return later.numbers[_known_rows(graph, later) >= 0]


def _known_rows(graph: Graph, new: Graph) -> Tensor:
    """The row in `graph` of each node of `new`; -1 for a new one."""
    if new.subject_ids is not None:
        rows = map(graph.row_of_subject.get, new.subject_ids, itertools.repeat(-1))
        return torch.from_numpy(np.fromiter(rows, dtype=np.int64, count=new.num_nodes))
    place = torch.searchsorted(graph.numbers, new.numbers).clamp_max(graph.num_nodes - 1)
    return torch.where(graph.numbers[place] == new.numbers, place, -1)


def _numbers(graph: Graph, new: Graph) -> Tensor | None:
    """The number of each row of `new`; None if it has them already.

    New nodes follow the highest number that stays. A number feeds parts, samples and links, so it must not tell how
    many nodes are gone: the last of them may lend their numbers again, as subject ids are what names a node.
    """
    if new.subject_ids is None:
        return None
    row_of = _known_rows(graph, new)
    is_new = row_of < 0
    numbers = graph.numbers[row_of.clamp_min(0)]
    first = int(numbers[~is_new].max()) + 1 if bool((~is_new).any()) else 0
    numbers[is_new] = first + torch.arange(int(is_new.sum()))
    return numbers


def _check_kind(graph: Graph, new: Graph) -> None:
    for one in (graph, new):
        if one.graph_numbers is not None:
            raise InputError("a collection of graphs cannot be updated, only a single graph")
    if graph.directed != new.directed:
        kinds = {True: "directed", False: "undirected"}
        raise InputError(
            f"the new graph is {kinds[new.directed]}, and the graph of the model is {kinds[graph.directed]}"
        )
    for array, label in ((WEIGHT, "edge weights"), (RELATIONS, "relations")):
        both = ("new graph", "graph of the model")
        is_new = getattr(new, array) is not None
        if is_new != (getattr(graph, array) is not None):
            raise InputError(f"the {both[not is_new]} has {label}, and the {both[is_new]} has none")
    unknown_relations = sorted(set(new.relation_names or ()) - set(graph.relation_names or ()))
    if unknown_relations:
        raise InputError(f"the new graph has the relation {unknown_relations[0]!r}, which the model does not know")
    if is_typed(graph) and target_type(new) != target_type(graph):
        types = f"{target_type(new)!r}, and those of the graph of the model are of type {target_type(graph)!r}"
        raise InputError(f"the nodes with labels of the new graph are of type {types}")
    if new.num_columns != graph.num_columns:
        raise InputError(f"the new graph has {new.num_columns} columns, and the model knows {graph.num_columns}")
    if None not in (graph.column_names, new.column_names) and graph.column_names != new.column_names:
        pairs = zip(graph.column_names or (), new.column_names or (), strict=True)
        old, other = next(pair for pair in pairs if pair[0] != pair[1])
        raise InputError(f"the new graph has the column {other!r} where the model has {old!r}")
    if graph.class_names is None and new.class_names is not None:
        raise InputError("the classes of the new graph have names, and those of the model have none")
    if new.target_kind != graph.target_kind:
        raise InputError(f"the new graph has {new.target_kind} to predict, and the model predicts {graph.target_kind}")
    if (new.subject_ids is None) != (graph.subject_ids is None):
        which = ("new graph", "graph of the model")
        having, lacking = which if graph.subject_ids is None else which[::-1]
        raise InputError(f"the {having} has subject ids and the {lacking} has none, so nodes cannot be matched")
    if new.digit_ids and not graph.digit_ids:
        raise InputError(
            "a subject id of the new graph is a number, and no id of the graph of the model is: a number "
            "in a request would come to mean another node"
        )
    unknown = sorted(set(new.class_names or ()) - set(graph.class_names or ()))
    if graph.class_names is not None and unknown:
        raise InputError(f"the new graph has the class {unknown[0]!r}, which the model does not know")
    if new.target_kind != "classes" and new.num_classes != graph.num_classes:
        raise InputError(f"the new graph has {new.num_classes} {new.target_kind} a node, the model {graph.num_classes}")
    if (
        new.target_kind == "classes"
        and new.y.numel()
        and int(new.y.max()) >= max(graph.num_classes, len(new.class_names or ()))
    ):
        raise InputError(f"label {int(new.y.max())} is out of range for the {graph.num_classes} classes of the model")


def _stored_as(x: Tensor, like: Tensor) -> Tensor:
    """The attributes in the type and layout of others: these are settings."""
    x = x.to(like.dtype)
    sparse = like.layout == torch.sparse_csr
    return checked_attributes(x.to_dense() if x.layout == torch.sparse_csr and not sparse else x, sparse=sparse)
