"""Which row and which column of a graph a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphforget.errors import InputError
from graphforget.validation import as_whole_number, is_digits, is_number

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph


def row(graph: Graph, node: int | str) -> int:
    """The row of a node named by its number or its subject id; see `Graph.row`."""
    name = node if isinstance(node, str) else as_whole_number(node)
    if graph.subject_ids is None and isinstance(name, str) and is_digits(name):
        name = int(name)
    if name is None:
        raise InputError(f"node {node!r} is not in the graph")
    is_node_number = isinstance(name, int) and not graph.digit_ids
    place = _row_of_number(graph, int(name)) if is_node_number else graph.row_of_subject.get(str(name))
    if place is None:
        raise InputError(f"node {name!r} is not in the graph")
    return place


def _row_of_number(graph: Graph, number: int) -> int | None:
    place = int(np.searchsorted(graph.numbers.numpy(), number))
    return place if place < graph.num_nodes and int(graph.numbers[place]) == number else None


def column(graph: Graph, column: int | str) -> int:
    """The position of a column named by its position or its name; see `Graph.column`."""
    names = graph.column_names
    name = column if isinstance(column, str) else as_whole_number(column)
    if name is None:
        raise InputError(f"column {column!r} is neither a whole number nor a name")
    if names is not None and (isinstance(name, str) or any(map(is_number, names))):
        if str(name) not in names:
            raise InputError(f"column {column!r} is not in the graph")
        return names.index(str(name))
    if isinstance(name, str) and not is_digits(name):
        raise InputError(f"column {column!r} is not in the graph, whose columns have no names")
    position = int(name)
    if not 0 <= position < graph.num_columns:
        raise InputError(f"column {position} is out of range, the graph has columns 0 to {graph.num_columns - 1}")
    return position
