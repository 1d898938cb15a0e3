"""Collections of graphs: folders in the format of the TU datasets, and the ego networks of Deezer."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from graphforget.errors import InputError
from graphforget.files import error_reason, open_regular
from graphforget.graph.graph import Graph
from graphforget.graph.validation import note_of_dropped_loops

LARGEST = 2**32  # bytes of one file
LARGEST_MEMBER = 2**24  # bytes of one file in deezer_egos.zip; the largest that was published has 6 million
DENSE = 2**26  # up to so many numbers attributes are dense, however many of them are 0
SPARSE_BELOW = 0.1  # share of non-zero attributes under which more numbers are kept sparse
INDICATOR = "_graph_indicator.txt"


def tu_name(folder: Path) -> str | None:
    """The name in the files of a folder in TU format (`NAME_A.txt` ...), or None if it is no such folder."""
    names = sorted(path.name.removesuffix(INDICATOR) for path in folder.glob(f"*{INDICATOR}"))
    return names[0] if len(names) == 1 else None


def read_tu(folder: Path, *, name: str | None = None) -> Graph:
    """The collection in the files `NAME_A.txt`, `NAME_graph_indicator.txt` and `NAME_graph_labels.txt` of a folder.

    The columns are those of `NAME_node_attributes.txt`, if there is such a file, and then one column of zeros and ones
    for each label in `NAME_node_labels.txt`; without both files there is one column of ones. Labels and attributes of
    edges are not read. Graphs are numbered from 0 in their order; classes are the graph labels in ascending order.
    Self-loops are left out.
    """
    prefix = tu_name(folder)
    if prefix is None:
        raise InputError(f"{folder} holds not exactly one file *{INDICATOR}")

    def read(part: str) -> np.ndarray | None:
        path = folder / f"{prefix}_{part}.txt"
        return _numbers(path) if path.is_file() else None

    indicator, labels, edges = (read(part) for part in ("graph_indicator", "graph_labels", "A"))
    if indicator is None or labels is None or edges is None:
        raise InputError(f"{folder} lacks {prefix}_A.txt or {prefix}_graph_labels.txt")
    try:
        in_graph, of_graph = _whole(indicator).ravel() - 1, _whole(labels).ravel()
        ends = _whole(edges).reshape(-1, 2).T - 1
        columns, column_names = _columns(len(in_graph), read("node_attributes"), read("node_labels"))
        if in_graph.size == 0 or in_graph.min() < 0 or in_graph.max() >= len(of_graph):
            raise ValueError("a node is in a graph that has no label")
        classes, y = np.unique(of_graph, return_inverse=True)
        proper = ends[0] != ends[1]
    except (ValueError, IndexError) as error:
        raise InputError(f"the files {prefix}_*.txt in {folder} do not fit together: {error}") from error
    return Graph.create(
        x=columns if sp.issparse(columns) else torch.from_numpy(columns),
        edges=torch.from_numpy(ends[:, proper]),
        y=torch.from_numpy(y[in_graph]),
        graph_numbers=torch.from_numpy(in_graph),
        column_names=column_names,
        class_names=[str(label) for label in classes],
        name=name or prefix,
        notes=note_of_dropped_loops(len(np.unique(ends[0, ~proper]))),
    )


def _numbers(path: Path) -> np.ndarray:
    """The numbers of a file, one row a line; columns are separated by commas."""
    try:
        with open_regular(path, largest=LARGEST, links=True) as file:
            content = file.read()
        lines = content.splitlines()
        values = np.array(content.replace(b",", b" ").split(), dtype=np.float64)
        if len({line.count(b",") for line in lines}) > 1:
            raise ValueError("not every line has as many numbers")
        return values.reshape(len(lines), -1) if lines else values.reshape(0, 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} does not hold one row of numbers a line: {error}") from error


def _whole(values: np.ndarray) -> np.ndarray:
    whole = values.astype(np.int64)
    if not np.array_equal(whole, values):
        raise ValueError("a number that should be a whole one is not")
    return whole


def _columns(
    n: int, attributes: np.ndarray | None, labels: np.ndarray | None
) -> tuple[np.ndarray | sp.csr_matrix, list[str] | None]:
    """Attributes first, then one column a node label; a column of ones if there is neither."""
    parts: list[np.ndarray | sp.csr_matrix] = []
    names: list[str] = []
    if attributes is not None:
        parts.append(attributes.astype(np.float32))
        names += [f"attribute {place}" for place in range(attributes.shape[1])]
    if labels is not None:
        for place, column in enumerate(_whole(labels).T):
            values, rows = np.unique(column, return_inverse=True)
            entries = (np.ones(len(rows), dtype=np.float32), rows, np.arange(len(rows) + 1))
            parts.append(sp.csr_matrix(entries, shape=(len(rows), len(values))))
            which = "label" if labels.shape[1] == 1 else f"label {place}"
            names += [f"{which} = {value}" for value in values]
    if not parts:
        return np.ones((n, 1), dtype=np.float32), None
    if any(part.shape[0] != n for part in parts):
        raise ValueError(f"there are not as many rows of attributes or labels as the {n} nodes")
    numbers = n * len(names)
    filled = sum(int(np.count_nonzero(part)) if isinstance(part, np.ndarray) else part.nnz for part in parts)
    if numbers > DENSE and filled < SPARSE_BELOW * numbers:
        return sp.csr_matrix(sp.hstack(parts)), names
    return np.concatenate([part if isinstance(part, np.ndarray) else part.toarray() for part in parts], axis=1), names


def read_deezer_egos(path: Path, name: str) -> Graph:
    """The ego networks in deezer_egos.zip: edges as JSON and labels as CSV. They have no attributes, so ones stand."""
    try:
        with zipfile.ZipFile(path) as content:
            edges = json.loads(_member(content, "deezer_egos/deezer_edges.json"))
            lines = _member(content, "deezer_egos/deezer_target.csv").decode("ascii").split()[1:]
        labels = {int(graph): int(label) for graph, label in (line.split(",") for line in lines)}
        return _ego_networks({int(graph): pairs for graph, pairs in edges.items()}, labels, name)
    except InputError:
        raise
    except Exception as error:  # a damaged archive can raise any exception
        reason = error_reason(error) or type(error).__name__
        raise InputError(f"{path} is not the file that was published: {reason}") from error


def _member(content: zipfile.ZipFile, name: str) -> bytes:
    """A file in the archive, which may not unfold to far more than was published."""
    member = content.getinfo(name)
    if member.file_size > LARGEST_MEMBER:
        raise ValueError(f"{name} has {member.file_size:,} bytes, up to {LARGEST_MEMBER:,} are possible")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others unfold without a limit
        raise ValueError(f"{name} is compressed in another way")
    with content.open(member) as file:
        return file.read(member.file_size)  # without a number it would unfold all before it looks at the size


def _ego_networks(edges: Mapping[int, list[list[int]]], labels: Mapping[int, int], name: str) -> Graph:
    numbers = np.array(sorted(edges))
    pairs = [np.array(edges[number], dtype=np.int64).reshape(-1, 2) for number in numbers.tolist()]
    sizes = np.array([int(part.max()) + 1 for part in pairs])  # every node of an ego network has an edge
    if any(size > part.size for size, part in zip(sizes.tolist(), pairs, strict=True)):
        raise ValueError("a node has no edge")
    starts = sizes.cumsum() - sizes
    ends = np.concatenate([part + start for part, start in zip(pairs, starts, strict=True)]).T
    y = np.array([labels[number] for number in numbers.tolist()])
    return Graph.create(
        x=torch.ones(int(sizes.sum()), 1),
        edges=torch.from_numpy(np.ascontiguousarray(ends)),
        y=torch.from_numpy(y.repeat(sizes)),
        graph_numbers=torch.from_numpy(numbers.repeat(sizes)),
        name=name,
    )
