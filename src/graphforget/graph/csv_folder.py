"""A graph from a folder with nodes.csv and edges.csv."""

from __future__ import annotations

import csv
import io
import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.files import comma_separated, open_regular
from graphforget.graph.csv_relations import column_types, relation_arguments
from graphforget.graph.csv_targets import NEEDED, CsvTargets
from graphforget.graph.schema import MARK, type_of_name

SPARSE_BELOW = 0.1  # share of non-zero attributes under which they are kept sparse
PARTS = ("train", "val", "test")
ENDS, WEIGHT, RELATION = ["source", "target"], "weight", "relation"  # columns of edges.csv; the last two may be missing
SPECIAL = ("id", "label", "split", "graph")  # columns of nodes.csv that are no attributes
LARGEST = 2**34  # bytes of one file
LONGEST_LINE = 2**26  # characters

_ZEROS = frozenset({"0", "0.0"})  # the usual spellings; any other zero is found after parsing
_MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", "?", "-", "."})  # in lower case
_DECIMAL_COMMA = re.compile(r"[+-]?[\d.]*,\d+")


def read_csv_folder(folder: Path, *, directed: bool = False, class_names: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments of `Graph.create` for the graph in the files nodes.csv and edges.csv of `folder`.

    Ids become subject ids, and the header names the columns.

    nodes.csv has the columns `id`, `label` and one or more attributes (finite numbers). Labels are any words
    or numbers; an empty one means unlabelled. Instead of `label` there may be columns `label:NAME` that are 0 or 1,
    or `target` or `target:NAME` with numbers (`csv_targets.py`). A column `split` may say train, val, test or
    nothing; without it every labelled node trains. edges.csv has the columns `source` and `target`, which hold ids,
    and may have a column `weight` with numbers over 0 and a column `relation` with names; repeated edges count once,
    and a note of the graph counts them. If all columns are named as `author:age`, nodes have types (`author:17`), and a
    cell in a column of another type may be empty.
    Attributes are sparse if fewer than 10 % of them are non-zero. A column `graph` makes it a collection: it holds the
    id of the graph that the node is in, and then there need be no attribute (one column of ones stands for
    them). `class_names` are classes that may have no node. Error messages name the file and the line.
    """
    nodes = _read_nodes(folder / "nodes.csv")
    edges, weights, relations = _read_edges(folder / "edges.csv", nodes.row_of)
    named: Any = {"ids": list(nodes.row_of), "columns": nodes.columns, "directed": directed}
    if nodes.has_blanks and relations is None:
        raise InputError(f"{folder / 'nodes.csv'} has empty cells, which needs a column 'relation' in edges.csv")
    x = nodes.attributes()
    sparse = nodes.columns and x.nnz < SPARSE_BELOW * math.prod(x.shape)
    number_of = {name: place for place, name in enumerate(dict.fromkeys(nodes.graphs or ()))}
    return {
        "x": x if sparse else torch.from_numpy(x.toarray()) if nodes.columns else torch.ones(x.shape[0], 1),
        "edges": edges,
        "edge_weight": weights,
        "train_mask": nodes.mask("train"),
        "val_mask": nodes.mask("val"),
        "test_mask": nodes.mask("test"),
        "subject_ids": list(nodes.row_of),
        "column_names": nodes.columns or None,
        "name": folder.resolve().name,
        "graph_numbers": None if nodes.graphs is None else torch.tensor([number_of[name] for name in nodes.graphs]),
        "graph_ids": None if nodes.graphs is None else list(number_of),
        "notes": _note_of_collection(nodes.graphs),
        **nodes.targets.arguments(class_names),
        **({} if relations is None else relation_arguments(relations, edges, **named)),
    }


def _note_of_collection(graphs: Sequence[str] | None) -> list[str]:
    """The note for those whose column `graph` was meant as an attribute."""
    if graphs is None:
        return []
    return [f"the column 'graph' of nodes.csv makes it a collection ({len(set(graphs)):,} graphs), and is no attribute"]


# -- nodes.csv ----------------------------------------------------------------------------------------------


@dataclass
class _Nodes:
    """nodes.csv as it is read, the attributes as the growing parts of a CSR matrix."""

    columns: list[str]
    targets: CsvTargets
    parts: list[str] | None  # None: the file has no column `split`
    graphs: list[str] | None  # None: the file has no column `graph`
    has_blanks: bool = False  # cells of other types are empty, which only a graph with relations may have
    row_of: dict[str, int] = field(default_factory=dict)
    values: array[float] = field(default_factory=lambda: array("d"))
    indices: array[int] = field(default_factory=lambda: array("q"))
    starts: array[int] = field(default_factory=lambda: array("q", [0]))

    @cached_property
    def types(self) -> list[str]:
        """The types of the columns; "" if they have none."""
        return column_types(self.columns)

    def mask(self, part: str) -> Tensor | None:
        return None if self.parts is None else torch.tensor([p == part for p in self.parts])

    def attributes(self) -> sp.csr_matrix:
        parts = (np.array(self.values), np.array(self.indices), np.array(self.starts))
        matrix = sp.csr_matrix(parts, shape=(len(self.row_of), len(self.columns)))
        matrix.eliminate_zeros()
        return matrix


def _read_nodes(path: Path) -> _Nodes:
    lines = _lines(path, columns=("id",))
    line, header = next(lines, (1, []))
    header = [cell.strip() for cell in header]
    targets = _checked_header(path, line, header)
    special = [(name, header.index(name)) for name in ("id", *targets.columns, "split", "graph") if name in header]
    special.sort(key=lambda entry: -entry[1])  # from the right, so that taking one out moves no other
    attributes = [name for name in header if name not in dict(special)]
    nodes = _Nodes(attributes, targets, [] if "split" in header else None, [] if "graph" in header else None)
    line_of: dict[str, int] = {}
    for line, cells in lines:
        if len(cells) != len(header):
            advice = "; a decimal comma counts as a separator, write 0.5 and not 0,5" * (len(cells) > len(header))
            _refuse(path, line, f"there are {len(cells)} cells, the header has {len(header)}{advice}")
        taken = {name: cells.pop(place).strip() for name, place in special}
        subject, part = taken["id"], taken.get("split", "")
        if not subject:
            _refuse(path, line, "the id is empty, every node needs one")
        if subject in line_of:
            _refuse(path, line, f"id {subject!r} stands on line {line_of[subject]} already, ids are unique")
        if part and part not in PARTS:
            _refuse(path, line, f"split is {part!r}, it must be train, val, test or empty")
        try:
            has_target = targets.add([taken[name] for name in targets.columns])
        except InputError as error:
            _refuse(path, line, str(error))
        if part and not has_target:
            name = "target" if targets.kind == "values" else "label"
            _refuse(path, line, f"node {subject!r} is a {part} node without a {name}, leave its split empty")
        if nodes.graphs is not None:
            if not taken["graph"]:
                _refuse(path, line, f"the graph of node {subject!r} is empty, every node needs one")
            nodes.graphs.append(taken["graph"])
        line_of[subject] = line
        nodes.row_of[subject] = len(nodes.row_of)
        if nodes.parts is not None:
            nodes.parts.append(part)
        _add_attributes(nodes, _without_foreign(nodes, subject, cells), path, line)
    if not nodes.row_of:
        raise InputError(f"{path} holds no node")
    return nodes


def _checked_header(path: Path, line: int, header: Sequence[str]) -> CsvTargets:
    """The targets that the header names."""
    if "id" not in header:
        _refuse(path, line, f"the header has no column 'id', {NEEDED}")
    try:
        targets = CsvTargets.of_header(header)
    except InputError as error:
        _refuse(path, line, str(error))
    seen: set[str] = set()
    for place, name in enumerate(header):
        if not name:
            _refuse(path, line, f"column {place + 1} of the header has no name")
        if name in seen:
            _refuse(path, line, f"column {name!r} appears twice in the header")
        seen.add(name)
    if not seen - {"id", "split", *targets.columns} and "graph" not in seen:
        _refuse(path, line, f"the header names no attribute, {NEEDED}")
    return targets


def _without_foreign(nodes: _Nodes, subject: str, cells: list[str]) -> list[str]:
    """The cells of a node with a type, with 0 for those that are empty in columns of other types."""
    own = type_of_name(subject)
    if not own or own not in nodes.types:
        return cells
    blank = [not cell.strip() and kind != own for cell, kind in zip(cells, nodes.types, strict=True)]
    nodes.has_blanks |= any(blank)
    return ["0" if empty else cell for cell, empty in zip(cells, blank, strict=True)]


def _add_attributes(nodes: _Nodes, cells: Sequence[str], path: Path, line: int) -> None:
    filled = [column for column, cell in enumerate(cells) if cell not in _ZEROS]
    for column in filled:
        try:
            value = float(cells[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            _refuse(path, line, f"{nodes.columns[column]!r} is {cells[column]!r}, {_advice(cells[column].strip())}")
        nodes.values.append(value)
    nodes.indices.extend(filled)
    nodes.starts.append(len(nodes.values))


def _advice(cell: str) -> str:
    """What is wrong with a cell that is no finite number, and what to do."""
    if cell.lower() in _MISSING:
        return (
            "a missing value: fill it in, or remove the row or the column (graphforget fills in nothing itself, "
            "because a value that is computed from other rows carries their data)"
        )
    if _DECIMAL_COMMA.fullmatch(cell):
        return f"a decimal comma: write {cell.replace('.', '').replace(',', '.')}"
    return "it must be a finite number"


# -- edges.csv ----------------------------------------------------------------------------------------------


def _read_edges(path: Path, row_of: Mapping[str, int]) -> tuple[Tensor, Tensor | None, list[str] | None]:
    """The ends of the edges, 2 x E, and their weights and relations if there are columns of them."""
    lines = _lines(path, columns=("source", "target"))
    line, header = next(lines, (1, []))
    names = [cell.strip() for cell in header]
    if names[:2] != ENDS or sorted(names[2:]) not in ([], [WEIGHT], [RELATION], [RELATION, WEIGHT]):
        needed = "source,target and, if there are any, weight and relation"
        _refuse(path, line, f"the header is {','.join(header)!r}, {needed} are needed")
    ends, weights, relations = array("q"), array("d"), []
    for line, cells in lines:
        if len(cells) != len(names):
            _refuse(path, line, f"there are {len(cells)} cells, {','.join(names)} is needed")
        for cell in cells[:2]:
            row = row_of.get(cell.strip())
            if row is None:
                _refuse(path, line, f"node {cell.strip()!r} is not in nodes.csv")
            ends.append(row)
        more = dict(zip(names[2:], cells[2:], strict=True))
        if WEIGHT in more:
            weights.append(_weight(more[WEIGHT], path, line))
        if RELATION in more:
            relations.append(more[RELATION].strip())
            if not relations[-1] or MARK in relations[-1]:
                _refuse(path, line, f"the relation is {relations[-1]!r}, a name without {MARK!r} is needed")
    pairs = torch.from_numpy(np.array(ends, dtype=np.int64).reshape(-1, 2).T)
    numbers = torch.from_numpy(np.array(weights, dtype=np.float64)) if WEIGHT in names else None
    return pairs, numbers, relations if RELATION in names else None


def _weight(cell: str, path: Path, line: int) -> float:
    try:
        return float(cell)
    except ValueError:
        _refuse(path, line, f"the weight is {cell.strip()!r}, a number over 0 is needed")


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs of a CSV file with the columns source and target, as names. Raises `InputError` for anything else."""
    if not path.exists():
        raise InputError(f"{path} does not exist, a CSV file with the columns source,target is needed")
    return [(source, target) for _, (source, target) in _pairs(path)]


def _pairs(path: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """The number of each line of an edge list, and its two names."""
    lines = _lines(path, columns=("source", "target"))
    line, header = next(lines, (1, []))
    if [cell.strip() for cell in header] != ["source", "target"]:
        _refuse(path, line, f"the header is {','.join(header)!r}, source,target is needed")
    for line, cells in lines:
        if len(cells) != 2:
            _refuse(path, line, f"there are {len(cells)} cells, source,target is needed")
        yield line, (cells[0].strip(), cells[1].strip())


# -- both ---------------------------------------------------------------------------------------------------


def _lines(path: Path, *, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Every line that is not blank, as its number and its cells; the header, which has these columns, comes first."""
    try:
        with (
            open_regular(path, largest=LARGEST, links=True) as content,
            io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as file,
        ):
            reader = csv.reader(comma_separated(_short_lines(file), path, columns=columns), strict=True)
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist, a folder with nodes.csv and edges.csv is needed") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error}") from error
    except csv.Error as error:
        raise InputError(f"line {reader.line_num} of {path} is not CSV: {error}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _short_lines(file: io.TextIOWrapper) -> Iterator[str]:
    for line in iter(lambda: file.readline(LONGEST_LINE), ""):
        if len(line) == LONGEST_LINE:
            raise csv.Error(f"a line has {LONGEST_LINE:,} characters or more")
        yield line


def _refuse(path: Path, line: int, message: str) -> NoReturn:
    raise InputError(f"line {line} of {path}: {message}")
