"""Which nodes and edges differ between two states of a graph, of which the second may have more than the first."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from graphforget.graph.edge_arrays import edge_arrays
from graphforget.linalg.sparse import to_scipy

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph

CACHE = "differences"  # the name of a cache on the later graph


@dataclass(frozen=True, eq=False)
class Differences:
    """Nodes are compared by their numbers. A key of an edge is `n` times the place of its receiver, plus the sender's.

    Places are those in `numbers`, and `n` is their number. An undirected edge is there in both directions.
    """

    numbers: np.ndarray  # of the nodes of both graphs, ascending
    common: np.ndarray  # places of the nodes that are in both
    rows: tuple[np.ndarray, np.ndarray]  # of these nodes, in the first graph and in the second
    attributes: np.ndarray  # for each of these nodes, whether its attributes differ
    targets: np.ndarray  # whether its target differs
    edges: np.ndarray  # keys of the edges that are in both, ascending
    reweighted: np.ndarray  # for each of these edges, whether it has another weight or other relations
    lost: np.ndarray  # keys of the edges of the first graph alone
    gained: np.ndarray  # keys of the edges of the second graph alone

    @property
    def changed_edges(self) -> np.ndarray:
        """The keys of all edges that differ."""
        return np.concatenate([self.lost, self.gained, self.edges[self.reweighted]])


def differences(before: Graph, after: Graph) -> Differences:
    """The differences of two graphs with the same columns and kinds of arrays. Those of the last pair are kept."""
    known = after.__dict__.get(CACHE)
    if known is not None and known[0]() is before:
        result: Differences = known[1]
        return result
    result = _differences(before, after)
    after.__dict__[CACHE] = weakref.ref(before), result
    return result


def _differences(before: Graph, after: Graph) -> Differences:
    listed = [graph.numbers.numpy() for graph in (before, after)]
    numbers = np.union1d(*listed)
    places = [np.searchsorted(numbers, some) for some in listed]
    common = np.intersect1d(places[0], places[1], assume_unique=True)
    rows = np.searchsorted(places[0], common), np.searchsorted(places[1], common)
    first, second = (_keys(graph, place, numbers.size) for graph, place in zip((before, after), places, strict=True))
    in_second = _is_in(first, second)
    columns = np.flatnonzero(in_second), np.flatnonzero(_is_in(second, first))
    return Differences(
        numbers=numbers,
        common=common,
        rows=rows,
        attributes=_different_attributes(before, after, *rows),
        targets=_different(before.y, after.y, *rows),
        edges=first[in_second],
        reweighted=_reweighted(before, after, *columns),
        lost=first[~in_second],
        gained=np.delete(second, columns[1]),
    )


@dataclass(frozen=True, eq=False)
class Gained:
    """Where the second graph may hold what the first one does not: all that came, and all that differs."""

    nodes: np.ndarray  # rows of new nodes
    attributes: np.ndarray  # rows of new nodes, and of nodes with other attributes
    targets: np.ndarray  # rows of new nodes, and of nodes with another target
    edges: np.ndarray  # columns of `edge_index`: new edges, and edges with another weight or other relations


def gained(before: Graph, after: Graph) -> Gained:
    """Where the second of two graphs may hold what the first one does not.

    A node with the number of one that left, and another subject id, is new.
    """
    found = differences(before, after)
    rows = found.rows[1]
    is_new = np.ones(after.num_nodes, dtype=bool)
    is_new[rows[~_renamed(before, after, *found.rows)]] = False
    new = np.flatnonzero(is_new)
    keys = _keys(after, np.searchsorted(found.numbers, after.numbers.numpy()), found.numbers.size)
    others = np.union1d(found.gained, found.edges[found.reweighted])
    return Gained(
        nodes=new,
        attributes=np.union1d(new, rows[found.attributes]),
        targets=np.union1d(new, rows[found.targets]),
        edges=np.flatnonzero(_is_in(keys, others) | is_new[after.edge_index.numpy()].any(axis=0)),
    )


def equal_records(before: Graph, after: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the nodes that have the same record in both graphs (`records.py`): in the first, and in the second.

    Some nodes with equal records may be missing.
    """
    found = differences(before, after)
    rows, later = found.rows
    other = found.attributes | found.targets | _other_signs(before.y, after.y, rows, later)
    for name in ("train_mask", "val_mask", "test_mask"):
        other |= _different(getattr(before, name), getattr(after, name), rows, later)
    other |= _renamed(before, after, rows, later)
    relinked = np.zeros(found.numbers.size, dtype=bool)
    relinked[found.changed_edges // found.numbers.size] = True
    other |= relinked[found.common]
    return rows[~other], later[~other]


def _renamed(before: Graph, after: Graph, rows: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Whether nodes with the same numbers have other subject ids."""
    if before.subject_ids is None:
        return np.zeros(rows.size, dtype=bool)
    first, second = (np.array(graph.subject_ids, dtype=object) for graph in (before, after))
    renamed: np.ndarray = first[rows] != second[later]
    return renamed


def _keys(graph: Graph, places: np.ndarray, n: int) -> np.ndarray:
    """The keys of a graph's edges, ascending as its edges are."""
    source, target = places[graph.edge_index.numpy()]
    keys: np.ndarray = target * n + source
    return keys


def _is_in(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """A mask of the keys that are among the others, which ascend."""
    if not others.size:
        return np.zeros(keys.size, dtype=bool)
    place = np.searchsorted(others, keys)
    same: np.ndarray = others[np.minimum(place, others.size - 1)] == keys
    return same


def _reweighted(before: Graph, after: Graph, columns: np.ndarray, later_columns: np.ndarray) -> np.ndarray:
    different = np.zeros(columns.size, dtype=bool)
    later = edge_arrays(after)
    for name, array in edge_arrays(before).items():
        different |= array.numpy()[columns] != later[name].numpy()[later_columns]
    return different


def _different_attributes(before: Graph, after: Graph, rows: np.ndarray, later_rows: np.ndarray) -> np.ndarray:
    if not before.has_sparse_attributes:
        return _different(before.x, after.x, rows, later_rows)
    difference = (to_scipy(before.x)[rows] != to_scipy(after.x)[later_rows]).tocsr()
    different: np.ndarray = np.diff(difference.indptr) > 0
    return different


def _different(before: Tensor, after: Tensor, rows: np.ndarray, later_rows: np.ndarray) -> np.ndarray:
    first, second = before.numpy()[rows], after.numpy()[later_rows]
    same = (first == second) | ((first != first) & (second != second))  # NaN: no value
    return ~same if same.ndim == 1 else ~same.all(axis=1)


def _other_signs(before: Tensor, after: Tensor, rows: np.ndarray, later_rows: np.ndarray) -> np.ndarray:
    """0 and -0 are equal, and their bytes differ."""
    if not before.dtype.is_floating_point:
        return np.zeros(rows.size, dtype=bool)
    other = np.signbit(before.numpy()[rows]) != np.signbit(after.numpy()[later_rows])
    return other if other.ndim == 1 else other.any(axis=1)
