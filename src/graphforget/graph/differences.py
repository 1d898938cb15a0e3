"""What differs between two states of a graph, of which the second may have more than the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphforget.graph.edge_arrays import edge_arrays
from graphforget.linalg.sparse import to_scipy

if TYPE_CHECKING:
    from torch import Tensor

    from graphforget.graph.graph import Graph

SIDES = ("train_mask", "val_mask", "test_mask")


def numbers_of_both(before: Graph, after: Graph) -> np.ndarray:
    """The numbers of the nodes of one of the graphs or both, ascending."""
    numbers = np.sort(np.concatenate([before.numbers.numpy(), after.numbers.numpy()]), kind="stable")
    return numbers[np.diff(numbers, prepend=-1) > 0]


def edge_keys(before: Graph, after: Graph, numbers: np.ndarray) -> list[np.ndarray]:
    """One key for each edge of both graphs, the same in both; `numbers` are those of the nodes of both, ascending."""
    keys = []
    for graph in (before, after):
        source, target = np.searchsorted(numbers, graph.numbers.numpy())[graph.edge_index.numpy()]
        keys.append(target * numbers.size + source)
    return keys


def reweighted(before: Graph, after: Graph, columns: np.ndarray, later_columns: np.ndarray) -> np.ndarray:
    """A mask of the edges of both graphs with another weight or other relations."""
    others = np.zeros(columns.size, dtype=bool)
    later = edge_arrays(after)
    for name, array in edge_arrays(before).items():
        others |= array.numpy()[columns] != later[name].numpy()[later_columns]
    return others


def different_attributes(before: Graph, after: Graph, rows: np.ndarray, later_rows: np.ndarray) -> np.ndarray:
    """A mask of the nodes with other attributes; the rows are those of the same nodes."""
    if not before.has_sparse_attributes:
        return different(before.x, after.x, rows, later_rows)
    difference = (to_scipy(before.x)[rows] != to_scipy(after.x)[later_rows]).tocsr()
    others: np.ndarray = np.diff(difference.indptr) > 0
    return others


def different(before: Tensor, after: Tensor, rows: np.ndarray, later_rows: np.ndarray) -> np.ndarray:
    """A mask of the rows with another value; two that are no number count as the same."""
    first, second = (values.numpy()[some] for values, some in ((before, rows), (after, later_rows)))
    same = (first == second) | ((first != first) & (second != second))  # NaN: no value
    return ~same if same.ndim == 1 else ~same.all(axis=1)


def kept_records(before: Graph, after: Graph) -> np.ndarray:
    """A mask of the nodes of `after`, a next state of `before`, that have the same record in both (`records.py`)."""
    numbers = numbers_of_both(before, after)
    common = np.intersect1d(before.numbers.numpy(), after.numbers.numpy(), True)
    rows, later_rows = (np.searchsorted(one.numbers.numpy(), common) for one in (before, after))
    others = different_attributes(before, after, rows, later_rows) | _renamed(before, after, rows, later_rows)
    for name in ("y", *SIDES):
        others |= different(getattr(before, name), getattr(after, name), rows, later_rows)
    first, second = edge_keys(before, after, numbers)
    shared, *columns = np.intersect1d(first, second, True, return_indices=True)
    changed = np.concatenate([np.setxor1d(first, second, True), shared[reweighted(before, after, *columns)]])
    relinked = np.zeros(numbers.size, dtype=bool)
    relinked[changed // numbers.size] = True
    kept = np.zeros(after.num_nodes, dtype=bool)
    kept[later_rows] = ~others & ~relinked[np.searchsorted(numbers, common)]
    return kept


def _renamed(before: Graph, after: Graph, rows: np.ndarray, later_rows: np.ndarray) -> np.ndarray:
    """A mask of the nodes with another subject id: a new node may have the number of one that left."""
    first, second = before.subject_ids, after.subject_ids
    if first is None or second is None:
        return np.full(rows.size, (first is None) != (second is None))
    pairs = zip(rows.tolist(), later_rows.tolist(), strict=True)
    return np.array([first[row] != second[later] for row, later in pairs], dtype=bool)
