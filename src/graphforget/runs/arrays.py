"""A large graph as files of raw arrays in a run directory, which are mapped and not read.

Every array has one entry or row a slot: the nodes as they were when the files were written. A node that was deleted
since then has number -1, no neighbours, attributes of 0 and a hash of 0. A list of neighbours that became shorter
ends with -1 at the places that it left.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from scipy.sparse import csr_matrix

from graphforget.errors import InputError
from graphforget.files import open_regular
from graphforget.graph.adjacency import Adjacency
from graphforget.graph.digest import digest_tree, remember
from graphforget.graph.graph import Graph
from graphforget.graph.overlay import Overlay
from graphforget.graph.record_tree import HASH, RecordTree
from graphforget.graph.records import record_hashes
from graphforget.graph.targets import checked_targets, target_kind
from graphforget.graph.validation import checked_classes, checked_names, checked_numbers, checked_split
from graphforget.runs.layout import ARRAYS, ATTRIBUTES, LARGEST_ARRAY, WIDEST
from graphforget.runs.mapped_files import Identity, identity_of, map_array
from graphforget.runs.run_file import GraphFile

LARGE = 2**26  # bytes of attributes and neighbours, from which on a graph is stored so
LARGEST_NUMBER = 2**62
BLOCK = 2**15  # slots that are written or looked at together
TYPES = {  # of the arrays, and how many numbers a slot has; None: as many as the header says
    ATTRIBUTES: (("<f4", "<f8"), None),
    "targets.bin": (("<i8", "|i1", "<f8"), None),
    "roles.bin": (("|u1",), ()),
    "numbers.bin": (("<i8",), ()),
    "counts.bin": (("<i4",), ()),
    "leaves.bin": (("|u1",), (HASH,)),
    "subject_ends.bin": (("<i8",), ()),
}
LISTS = ("indptr.bin", "counts.bin", "indices.bin")  # of neighbours
SUBJECTS = ("subjects.bin", "subject_ends.bin")  # their bytes, and where each ends
ROLES = ("train_mask", "val_mask", "test_mask")  # bits of a role, from the lowest


@dataclass(frozen=True, eq=False)
class StoredArrays:
    """The state of the files that a graph was read from."""

    identity: Identity | None  # of the file with the attributes
    adjacency: Adjacency
    slots: np.ndarray  # that are not empty
    digest: str


def is_large(graph: Graph) -> bool:
    """Whether a graph is stored as arrays: it is large, undirected and dense, and no collection."""
    overlay = graph.overlay
    return overlay is not None and overlay.base.nbytes + overlay.adjacency.indices.nbytes >= LARGE


# -- writing ---------------------------------------------------------------------------------------------------------


def write_arrays(folder: Path, graph: Graph) -> None:
    """Writes the arrays of a graph, one slot a node, and their header."""
    overlay = graph.overlay
    assert overlay is not None
    header = write_small(
        folder,
        {
            "targets.bin": stored_targets(graph, slice(None)),
            "roles.bin": _roles(graph),
            "numbers.bin": graph.numbers.numpy().astype("<i8"),
            "leaves.bin": digest_tree(graph).tree.leaves(graph.numbers.numpy()),
            **_subject_arrays(graph),
        },
    )
    header |= write_lists(folder, overlay, rows=np.arange(graph.num_nodes))
    dtype = overlay.base.dtype.newbyteorder("<")
    header[ATTRIBUTES] = {"dtype": dtype.str, "shape": (graph.num_nodes, graph.num_columns)}
    with _new_file(folder / ATTRIBUTES) as file:
        for slots in _blocks(overlay, graph.num_nodes):
            overlay.attributes(slots).astype(dtype, copy=False).tofile(file)
    write_header(folder, header)


def write_lists(folder: Path, overlay: Overlay, *, rows: np.ndarray | None = None) -> dict[str, Any]:
    """Writes the lists of neighbours of these rows of the graph, one after the other without a gap.

    By default those of all slots, in which the neighbours are slots too.

    Returns:
        The entries of the header.
    """
    adjacency = overlay.adjacency
    listed = np.arange(overlay.num_slots) if rows is None else overlay.slots_of(rows)
    counts, indices = adjacency.count(listed), np.dtype("<i4")
    indptr = np.zeros(listed.size + 1, dtype="<i8")
    np.cumsum(counts, out=indptr[1:])
    with _new_file(folder / "indices.bin") as file:
        for first in range(0, listed.size, BLOCK):
            senders = adjacency.lists(listed[first : first + BLOCK])[1]
            (senders if rows is None else overlay.rows_of(senders)).astype(indices, copy=False).tofile(file)
    header = write_small(folder, {"indptr.bin": indptr, "counts.bin": counts.astype("<i4")})
    return header | {"indices.bin": {"dtype": indices.str, "shape": (int(indptr[-1]),)}}


def write_small(folder: Path, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Writes arrays that are in memory, and gives their entries of the header."""
    for name, array in arrays.items():
        with _new_file(folder / name) as file:
            array.tofile(file)
    return {name: {"dtype": array.dtype.str, "shape": array.shape} for name, array in arrays.items()}


def write_header(folder: Path, header: dict[str, Any]) -> None:
    """Writes the types and shapes of all arrays."""
    with _new_file(folder / ARRAYS) as file:
        file.write((json.dumps(header, indent=2) + "\n").encode())


def _blocks(overlay: Overlay, nodes: int) -> Iterator[slice | np.ndarray]:
    for first in range(0, nodes, BLOCK):
        last = min(first + BLOCK, nodes)
        yield slice(first, last) if overlay.slots is None else overlay.slots[first:last]


def _new_file(path: Path) -> BinaryIO:
    path.touch(mode=0o600)
    return path.open("wb")


def stored_targets(graph: Graph, rows: slice | np.ndarray) -> np.ndarray:
    """The targets of these rows, in the type of the file."""
    y: np.ndarray = graph.y.numpy()[rows]
    return y.astype(y.dtype.newbyteorder("<"), order="C", copy=False)


def _roles(graph: Graph) -> np.ndarray:
    masks = (getattr(graph, name).numpy().astype(np.uint8) << bit for bit, name in enumerate(ROLES))
    roles: np.ndarray = np.bitwise_or.reduce(list(masks))
    return roles


def _subject_arrays(graph: Graph) -> dict[str, np.ndarray]:
    if graph.subject_ids is None:
        return {}
    names = [subject.encode() for subject in graph.subject_ids]
    ends = np.cumsum([len(name) for name in names]).astype("<i8")
    return {"subjects.bin": np.frombuffer(b"".join(names), dtype="|u1"), "subject_ends.bin": ends}


# -- reading ---------------------------------------------------------------------------------------------------------


def read_arrays(folder: Path, header: Any, names: GraphFile, *, digest: str) -> Graph:
    """The graph in a folder. Attributes and neighbours are mapped, and its digest is that of the stored hashes.

    Only what keeps memory safe is checked, and not that the records are those of the hashes. `check_records` does that.

    Args:
        folder: The run directory.
        header: The content of the arrays' header.
        names: The content of graph.json.
        digest: The digest of the graph as run.json has it. The caller compares it with that of the graph.

    Returns:
        The graph.

    Raises:
        InputError: The files do not fit the header, or each other.
    """
    shapes = _checked_header(folder, header, names)
    small = {name: _array(folder, name, *shapes[name]) for name in shapes if name not in (ATTRIBUTES, "indices.bin")}
    large = {
        name: map_array(folder / name, *shapes[name], lock=folder / ATTRIBUTES) for name in (ATTRIBUTES, "indices.bin")
    }
    slots = np.flatnonzero(small["numbers.bin"] >= 0)
    if not slots.size:
        raise InputError("the graph has no node")
    adjacency = _adjacency(small, large["indices.bin"], slots)
    leaves, is_whole = small["leaves.bin"], slots.size == small["numbers.bin"].size
    origin = StoredArrays(identity_of(folder / ATTRIBUTES), adjacency, slots, digest)
    overlay = Overlay(large[ATTRIBUTES], adjacency, None if is_whole else slots, origin=origin)
    by_slot = ("targets.bin", "roles.bin", "numbers.bin")
    graph = _graph(overlay, {name: small[name] if is_whole else small[name][slots] for name in by_slot}, names)
    if "subjects.bin" in small:
        vars(graph)["subject_ids"] = _subjects(small, slots)
    remember(graph, leaves if is_whole else leaves[slots])
    return graph


def _checked_header(folder: Path, header: Any, names: GraphFile) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The types and shapes of the arrays, after a check of the sizes of their files."""
    wanted = {*TYPES, "indptr.bin", "indices.bin", "subjects.bin"}
    without_subjects = wanted - {"subjects.bin", "subject_ends.bin"}
    if not isinstance(header, dict) or header.keys() not in (wanted, without_subjects):
        raise InputError(f"{ARRAYS} does not name the arrays of a graph")
    shapes = {}
    for name, entry in header.items():
        dtype, shape = (entry.get(key) for key in ("dtype", "shape")) if isinstance(entry, dict) else (None, None)
        if not isinstance(dtype, str) or not isinstance(shape, list) or not _is_shape(shape):
            raise InputError(f"{ARRAYS} has no type and shape of {name}")
        shapes[name] = dtype, tuple(shape)
    n = shapes["numbers.bin"][1][0]
    flat = {"indptr.bin": ("<i8", (n + 1,)), "indices.bin": ("<i4", shapes["indices.bin"][1][:1])}
    if "subjects.bin" in shapes:
        flat["subjects.bin"] = ("|u1", shapes["subjects.bin"][1][:1])
    for name, (dtype, shape) in shapes.items():
        kinds, width = TYPES.get(name, ((flat.get(name, ("", ()))[0],), None))
        fits = shape == flat[name][1] if name in flat else shape[0] == n and width in (None, shape[1:])
        if not fits or dtype not in kinds:
            raise InputError(f"{ARRAYS} has {name} in another type or shape")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if os.stat(folder / name, follow_symlinks=False).st_size != size:
            raise InputError(f"{name} has not the size that {ARRAYS} says")
    if shapes[ATTRIBUTES][1][1:] != (names.num_columns,) or not 0 < names.num_columns <= WIDEST:
        raise InputError(f"{ARRAYS} has other attributes than graph.json")
    if not 0 < names.num_classes <= WIDEST:
        raise InputError(f"the graph has {names.num_classes} classes")
    return shapes


def _is_shape(shape: list[Any]) -> bool:
    return 0 < len(shape) <= 2 and all(type(one) is int and one >= 0 for one in shape)


def _array(folder: Path, name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    with open_regular(folder / name, largest=LARGEST_ARRAY) as file:
        content: np.ndarray = np.fromfile(file, dtype=dtype, count=math.prod(shape))
    return content.reshape(shape)


def _adjacency(small: dict[str, np.ndarray], indices: np.ndarray, slots: np.ndarray) -> Adjacency:
    """The lists of neighbours; those that became shorter are copied."""
    indptr, counts = small["indptr.bin"], small["counts.bin"].astype(np.int64)
    widths, n = np.diff(indptr), counts.size
    if indptr[0] != 0 or indptr[-1] != indices.size or (counts < 0).any() or (counts > widths).any():
        raise InputError("the lists of neighbours do not fit their lengths")
    shorter = np.flatnonzero(counts < widths)
    lists = [indices[start : start + count] for start, count in zip(indptr[shorter], counts[shorter], strict=True)]
    content = np.concatenate([*lists, np.zeros(0, dtype=np.int32)]).astype(np.int32, copy=False)
    blanks, within = 0, True
    for first in range(0, indices.size, 2**22):
        block = indices[first : first + 2**22]
        lowest, highest = int(block.min()), int(block.max())
        within &= lowest >= -1 and highest < n
        blanks += int(np.count_nonzero(block < 0)) if lowest < 0 else 0
    # As many blanks as places that were left, and none in the shorter lists: so there are none elsewhere.
    if not within or blanks != int((widths - counts).sum()) or (content.size and int(content.min()) < 0):
        raise InputError("a list of neighbours names a node that cannot be")
    if counts.sum() != counts[slots].sum():
        raise InputError("a deleted node has neighbours")
    new_indptr = np.concatenate([[0], counts[shorter].cumsum()]).astype(np.int64)
    return Adjacency(indptr, indices, shorter, new_indptr, content) if shorter.size else Adjacency(indptr, indices)


def _graph(overlay: Overlay, rows: dict[str, np.ndarray], names: GraphFile) -> Graph:
    """The graph without its subject ids, every array with one value a node checked as a user's own."""
    y = torch.from_numpy(rows["targets.bin"])
    n = y.shape[0]
    y = checked_targets(y, n, kind=target_kind(y))
    masks = [torch.from_numpy(rows["roles.bin"] >> bit & 1 == 1) for bit in range(len(ROLES))]
    special = names.directed or names.graph_ids is not None or names.relation_names is not None
    if special or rows["roles.bin"].max() >= 1 << len(ROLES):
        raise InputError(
            "a graph of arrays is undirected and no collection, without relations, and a node has one of three roles"
        )
    classes = checked_classes(y, names.num_classes, names.class_names)
    train, val, test = checked_split(y, *masks)
    return Graph.lazy(
        {"x": lambda: torch.from_numpy(overlay.base) if overlay.slots is None else overlay.x()}
        | {"edge_index": overlay.edge_index},
        overlay=overlay,
        num_columns=names.num_columns,
        has_sparse_attributes=False,
        is_symmetric=True,
        y=y,
        train_mask=train,
        val_mask=val,
        test_mask=test,
        num_classes=classes,
        directed=False,
        numbers=checked_numbers(torch.from_numpy(rows["numbers.bin"]), n),
        subject_ids=None,
        column_names=checked_names(names.column_names, names.num_columns, "column names"),
        class_names=checked_names(names.class_names, classes, "class names"),
        name=names.name,
        digit_ids=names.digit_ids,
        notes=(),
        graph_numbers=None,
        graph_ids=None,
        next_number=checked_next_number(names.next_number),
        edge_weight=None,
        edge_relations=None,
        relation_names=None,
    )


def checked_next_number(number: int) -> int:
    if not 0 <= number < LARGEST_NUMBER:
        raise InputError(f"the next node number is {number}, which it cannot be")
    return number


def _subjects(small: dict[str, np.ndarray], slots: np.ndarray) -> tuple[str, ...] | None:
    content, ends = small["subjects.bin"].tobytes(), small["subject_ends.bin"].tolist()
    if ends[-1] != len(content) or any(last < first for first, last in pairwise([0, *ends])):
        raise InputError("the subject ids do not fit their lengths")
    starts = [0, *ends]
    try:
        subjects = [content[starts[slot] : ends[slot]].decode() for slot in slots.tolist()]
    except UnicodeDecodeError as error:
        raise InputError("a subject id is no text in Unicode") from error
    return checked_names(subjects, slots.size, "subject ids")


def check_records(graph: Graph) -> None:
    """Hashes every record of a graph that was read from arrays, and looks at every value and every list.

    Raises:
        InputError: The graph is not the one of its digest, or none that can be.
    """
    overlay = graph.overlay
    assert overlay is not None
    if RecordTree.of(graph.numbers.numpy(), record_hashes(graph)).root != digest_tree(graph).tree.root:
        raise InputError("its graph is not the one that the model was trained on")
    if not all(np.isfinite(overlay.attributes(slots)).all() for slots in _blocks(overlay, graph.num_nodes)):
        raise InputError("an attribute is no number")
    indptr, indices = overlay.adjacency.whole()
    ones = np.ones(indices.size, dtype=np.int8)
    lists = csr_matrix((ones, indices, indptr), shape=(overlay.num_slots, overlay.num_slots))
    ascending = np.diff(indices) > 0
    starts = indptr[1:-1]
    ascending[starts[(starts > 0) & (starts < indices.size)] - 1] = True
    columns = lists.tocsc()  # of an undirected graph, who sends to a node is who receives from it
    symmetric = np.array_equal(columns.indptr, indptr) and np.array_equal(columns.indices, indices)
    if not ascending.all() or not symmetric:
        raise InputError("the graph is undirected and has an edge that goes one way only, or twice")
