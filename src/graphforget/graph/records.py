"""The canonical record of a node as bytes, and its hash: everything that a graph holds at that node.

A record is the node's number, the number of its graph in a collection, its side of the split, the lengths of what
follows, its target, its subject id, its attributes that are not 0 as columns and values, and the numbers of the nodes
that send it messages. If the graph has arrays of its edges (`edge_arrays.py`), their values for these edges follow in
the same order. It does not depend on how attributes are stored or on the order of edges.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from graphforget.graph.edge_arrays import RELATIONS, WEIGHT, edge_arrays
from graphforget.graph.record_tree import HASH
from graphforget.linalg.ranges import ranges

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph

BLOCK_VALUES = 2**20  # attribute values that are looked at together, which bounds the memory
MOST_ROWS = 2**13  # of a block


def record_hashes(graph: Graph, rows: np.ndarray | None = None) -> np.ndarray:
    """SHA-256 of the records of these rows, of all rows by default: k x 32 bytes."""
    rows = np.arange(graph.num_nodes) if rows is None else np.asarray(rows, dtype=np.int64)
    size = max(1, min(MOST_ROWS, BLOCK_VALUES // graph.num_columns))
    digests = [
        sha256(record).digest()
        for start in range(0, len(rows), size)
        for record in records(graph, rows[start : start + size])
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(rows), HASH)


def records(graph: Graph, rows: np.ndarray) -> Iterator[bytes]:
    """The canonical records of these rows."""
    numbers = graph.numbers.numpy()
    counts, senders = in_neighbours(graph, rows)
    return encoded_records(
        numbers=numbers[rows],
        in_graph=np.full(len(rows), -1) if graph.graph_numbers is None else graph.graph_numbers.numpy()[rows],
        roles=graph.train_mask.numpy()[rows] + 2 * graph.val_mask.numpy()[rows] + 4 * graph.test_mask.numpy()[rows],
        targets=graph.y.numpy()[rows],
        names=_names(graph, rows),
        attributes=_attributes(graph, rows),
        counts=counts,
        neighbours=numbers[senders],
        of_edges=_of_edges(graph, rows),
    )


def encoded_records(
    *,
    numbers: np.ndarray,
    in_graph: np.ndarray,
    roles: np.ndarray,
    targets: np.ndarray,
    names: list[bytes],
    attributes: tuple[np.ndarray, memoryview, memoryview],
    counts: np.ndarray,
    neighbours: np.ndarray,
    of_edges: Sequence[memoryview] = (),
) -> Iterator[bytes]:
    """The records of some nodes from what they hold; `neighbours` are the numbers of their lists, one after the other.

    `attributes` are those that are not 0, as `nonzero_attributes` gives them. `of_edges` are further arrays in the
    order of `neighbours`, as bytes of 8 each.
    """
    listed = neighbours.astype("<i8").view(np.uint8).data
    widths, columns, values = attributes
    head = _heads(numbers, in_graph, roles, [len(name) for name in names], widths, counts, targets)
    size = head.shape[1]
    heads = head.reshape(-1).data
    ends, attribute_ends = np.cumsum(8 * counts).tolist(), np.cumsum(widths).tolist()
    start = first = 0
    for row, (name, end, last) in enumerate(zip(names, ends, attribute_ends, strict=True)):
        yield b"".join(
            (
                heads[row * size : (row + 1) * size],
                name,
                columns[4 * first : 4 * last],
                values[8 * first : 8 * last],
                listed[start:end],
                *(array[start:end] for array in of_edges),
            )
        )
        start, first = end, last


def header(graph: Graph) -> bytes:
    """What a graph holds beside its nodes, as bytes: what the columns of the records mean."""
    return encoded_header(
        columns=graph.num_columns,
        classes=graph.num_classes,
        directed=graph.directed,
        column_names=graph.column_names,
        class_names=graph.class_names,
        digit_ids=graph.digit_ids,
        subject_ids=graph.subject_ids is not None,
        targets=graph.target_kind,
        collection=graph.graph_numbers is not None,
        graph_ids=graph.graph_ids,
        **_edge_settings(graph),
    )


def _edge_settings(graph: Graph) -> dict[str, Any]:
    """Which arrays of edges there are. A graph without any has no such field, as in earlier versions."""
    named = {} if graph.relation_names is None else {"relation_names": graph.relation_names}
    return {"edge_arrays": sorted(edge_arrays(graph)), **named} if edge_arrays(graph) else {}


def _of_edges(graph: Graph, rows: np.ndarray) -> list[memoryview]:
    """The arrays of the edges to these rows, as bytes."""
    arrays = edge_arrays(graph)
    if not arrays:
        return []
    starts = graph.adjacency.indptr
    places = ranges(starts[rows], starts[rows + 1] - starts[rows])
    kinds = {WEIGHT: "<f8", RELATIONS: "<i8"}
    return [array.numpy()[places].astype(kinds[name]).view(np.uint8).data for name, array in sorted(arrays.items())]


def encoded_header(**content: object) -> bytes:
    """The bytes of a header from its fields."""
    return json.dumps(content, sort_keys=True).encode()


def in_neighbours(graph: Graph, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many nodes send messages to each of these rows, and the rows of these nodes, ascending for each row."""
    overlay = graph.overlay
    if overlay is None:
        return graph.adjacency.lists(rows)
    counts, senders = overlay.adjacency.lists(overlay.slots_of(rows))
    return counts, overlay.rows_of(senders)


def _heads(
    numbers: np.ndarray,
    in_graph: np.ndarray,
    roles: np.ndarray,
    name_lengths: list[int],
    widths: np.ndarray,
    counts: np.ndarray,
    targets: np.ndarray,
) -> np.ndarray:
    """The parts of one length a node, as k rows of bytes."""
    targets = targets.reshape(len(numbers), -1)
    if targets.dtype.kind == "f":
        targets = np.where(np.isnan(targets), np.nan, targets).astype("<f8").view("<i8")  # there are several NaNs
    fixed = np.column_stack([numbers, in_graph, roles, name_lengths, widths, counts, targets])
    return np.ascontiguousarray(fixed.astype("<i8")).view(np.uint8)


def _names(graph: Graph, rows: np.ndarray) -> list[bytes]:
    if graph.subject_ids is None:
        return [b""] * len(rows)
    return [graph.subject_ids[row].encode() for row in rows.tolist()]


def _attributes(graph: Graph, rows: np.ndarray) -> tuple[np.ndarray, memoryview, memoryview]:
    """How many attributes of each row are not 0, and their columns and values, as bytes of int32 and float64."""
    if graph.has_sparse_attributes:
        pointers = graph.x.crow_indices().numpy()
        counts = pointers[rows + 1] - pointers[rows]
        places = ranges(pointers[rows], counts)
        columns, values = graph.x.col_indices().numpy()[places], graph.x.values().numpy()[places]
        nonzero = values != 0
        if not nonzero.all():
            ends = np.concatenate([[0], np.cumsum(nonzero)])[np.cumsum(counts)]
            counts = np.diff(ends, prepend=0)
            columns, values = columns[nonzero], values[nonzero]
    else:
        overlay = graph.overlay
        block = graph.x.numpy()[rows] if overlay is None else overlay.attributes(overlay.slots_of(rows))
        return nonzero_attributes(block)
    return counts, *_as_bytes(columns, values)


def nonzero_attributes(block: np.ndarray) -> tuple[np.ndarray, memoryview, memoryview]:
    """How many numbers of each row are not 0, and their columns and values, as bytes of int32 and float64."""
    nonzero = block != 0
    counts = np.count_nonzero(nonzero, axis=1)
    if counts.sum() == block.size:
        columns, values = np.tile(np.arange(block.shape[1], dtype="<i4"), len(block)), block.reshape(-1)
    else:
        columns, values = np.nonzero(nonzero)[1], block[nonzero]
    return counts, *_as_bytes(columns, values)


def _as_bytes(columns: np.ndarray, values: np.ndarray) -> tuple[memoryview, memoryview]:
    columns, values = columns.astype("<i4", order="C"), values.astype("<f8", order="C")
    return columns.view(np.uint8).data, values.view(np.uint8).data
