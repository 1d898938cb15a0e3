"""Deletion requests: nodes, edges, all or single attributes of a node, labels, graphs, weights, in any mixture."""

from __future__ import annotations

import csv
import io
import weakref
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.files import comma_separated, read_bytes
from graphforget.graph.collection import rows_of_graphs
from graphforget.graph.resolved import Resolved
from graphforget.json_files import parse_json
from graphforget.request.kinds import KINDS, Kind
from graphforget.request.merging import merged_names
from graphforget.request.places import edge_columns, unique_rows
from graphforget.validation import as_whole_number

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph

Name = int | str
Columns = Literal["all"] | tuple[Name, ...]
CSV_HEADER = ("kind", "node", "target", "column")
LISTS = ("nodes", "edges", "graphs", "labels", "edge_weights")  # fields that are lists
LARGEST = 2**28  # bytes of a request's file


@dataclass(frozen=True, init=False)
class Request:
    """A deletion request. Nodes are named by number or by subject id, columns by position or by name.

    Of a collection, `graphs` names whole graphs by number, or by id if they have ids: it means all their nodes.
    `labels` names nodes whose label is forgotten: they stay, and are on no side of the split any more. `edge_weights`
    names edges whose weight is forgotten: they stay, and weigh 1.

    Example:
        >>> Request(nodes=[17], edges=[(3, 9)], attributes={42: "all", 43: [0, 5]})
        Request(1 node, 1 edge, all attributes of 1 node, 2 single attributes)
    """

    nodes: tuple[Name, ...] = ()
    edges: tuple[tuple[Name, Name], ...] = ()
    attributes: Mapping[Name, Columns] = field(default_factory=dict)
    graphs: tuple[Name, ...] = ()
    labels: tuple[Name, ...] = ()
    edge_weights: tuple[tuple[Name, Name], ...] = ()

    def __init__(
        self,
        nodes: Iterable[Name] = (),
        edges: Iterable[tuple[Name, Name]] = (),
        attributes: Mapping[Name, Literal["all"] | Iterable[Name]] | None = None,
        graphs: Iterable[Name] = (),
        labels: Iterable[Name] = (),
        edge_weights: Iterable[tuple[Name, Name]] = (),
    ) -> None:
        """Raises `InputError` on names that no graph could have, duplicates, and an empty request."""
        if not isinstance(attributes, Mapping | None):
            raise InputError(f"'attributes' is {attributes!r}, a dictionary of nodes and their columns is needed")
        listed = [(_name(node, "node"), columns) for node, columns in (attributes or {}).items()]
        _refuse_twice(tuple(node for node, _ in listed), "attributes of node")
        checked: dict[int, Columns] = {}  # nodes that share one list of columns have it checked once
        named: dict[Name, Columns] = {}
        for node, columns in listed:
            if id(columns) not in checked:
                checked[id(columns)] = _columns(node, columns)
            named[node] = checked[id(columns)]
        object.__setattr__(self, "nodes", tuple(_name(node, "node") for node in _listed(nodes, "nodes")))
        object.__setattr__(self, "edges", tuple(_edge(edge) for edge in _listed(edges, "edges")))
        object.__setattr__(self, "attributes", MappingProxyType(named))
        object.__setattr__(self, "graphs", tuple(_name(graph, "graph") for graph in _listed(graphs, "graphs")))
        object.__setattr__(self, "labels", tuple(_name(node, "node") for node in _listed(labels, "labels")))
        weights = _listed(edge_weights, "edge_weights")
        object.__setattr__(self, "edge_weights", tuple(_edge(edge) for edge in weights))
        _refuse_twice(self.nodes, "node")
        _refuse_twice(self.edges, "edge")
        _refuse_twice(self.graphs, "graph")
        _refuse_twice(self.labels, "label of node")
        _refuse_twice(self.edge_weights, "weight of edge")
        if not self.kinds:
            raise InputError("the request is empty: it names no node, edge, attribute, label, edge weight or graph")

    def __repr__(self) -> str:
        full = sum(columns == "all" for columns in self.attributes.values())
        single = sum(len(columns) for columns in self.attributes.values() if columns != "all")
        parts = [_count(len(self.nodes), "node"), _count(len(self.edges), "edge")]
        parts += [
            f"all attributes of {_count(full, 'node')}" if full else "",
            _count(single, "single attribute"),
            _count(len(self.graphs), "graph"),
            _count(len(self.labels), "label"),
            _count(len(self.edge_weights), "edge weight"),
        ]
        return f"Request({', '.join(part for part in parts if part)})"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of things that it names, in the order of `KINDS`."""
        columns = self.attributes.values()
        single = any(c != "all" for c in columns)
        named = (self.nodes, self.edges, "all" in columns, single, self.graphs, self.labels, self.edge_weights)
        return tuple(kind for kind, some in zip(KINDS, named, strict=True) if some)

    def only(self, *kinds: Kind) -> Request:
        """The part of it that is of these kinds."""
        full, partial = "attributes" in kinds, "partial attributes" in kinds
        return Request(
            self.nodes if "nodes" in kinds else (),
            self.edges if "edges" in kinds else (),
            {node: columns for node, columns in self.attributes.items() if (full if columns == "all" else partial)},
            self.graphs if "graphs" in kinds else (),
            self.labels if "labels" in kinds else (),
            self.edge_weights if "edge weights" in kinds else (),
        )

    @classmethod
    def merge(cls, requests: Iterable[Request], graph: Graph) -> Self:
        """One request for everything that these requests name in `graph`.

        Several of them may name the same thing, also in different spellings. "all" attributes include single columns.
        Raises `InputError` if a name is not in the graph.
        """
        return cls(**merged_names(requests, graph))

    def __hash__(self) -> int:
        return hash((frozenset(self.attributes.items()), *(getattr(self, name) for name in LISTS)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.nodes, self.edges, dict(self.attributes), self.graphs, self.labels, self.edge_weights)

    # -- reading and writing -------------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """From a request.json: `{"nodes": [..], "edges": [[u, v], ..], "attributes": [{"node": u}, ..]}`.

        Also `"labels": [u, ..]`, `"edge_weights": [[u, v], ..]` and, of a collection, `"graphs": [..]`.
        """
        if not isinstance(content, dict):
            fields = "'nodes', 'edges', 'attributes', 'labels', 'edge_weights' or 'graphs'"
            raise InputError(f"a request is an object with {fields}")
        known = ("nodes", "edges", "attributes", "graphs", "labels", "edge_weights")
        unknown = sorted(map(str, set(content) - set(known)))
        if unknown:
            raise InputError(f"a request has no field {unknown[0]!r}, only {', '.join(map(repr, known))}")
        attributes: dict[Any, Any] = {}
        for entry in _listed(content.get("attributes", ()), "attributes"):
            if not isinstance(entry, dict) or "node" not in entry or set(entry) - {"node", "columns"}:
                raise InputError(f'{entry!r} is no attribute entry, {{"node": u, "columns": [..]}} is needed')
            node = _name(entry["node"], "node")
            if node in attributes:
                raise InputError(f"node {node!r} appears twice among the attributes")
            attributes[node] = entry.get("columns", "all")
        lists = {name: content.get(name, ()) for name in known if name != "attributes"}
        return cls(attributes=attributes, **lists)

    @classmethod
    def from_json(cls, path: str | Path) -> Self:
        """From a `request.json` file."""
        return cls.from_dict(parse_json(_text(path), name=str(path)))

    @classmethod
    def from_csv(cls, path: str | Path) -> Self:
        """From a CSV file with the header `kind,node,target,column`.

        The kind is node, edge, attribute, label, graph or weight. An attribute line without a column means all of
        that node's attributes. A graph is named in the column `node`, and a weight by its edge in `node` and `target`.
        """
        text = comma_separated(io.StringIO(_text(path), newline=""), path, columns=CSV_HEADER)
        lines = _rows(csv.reader(text, strict=True), path)
        header = tuple(cell.strip() for cell in next(lines, []))
        if header != CSV_HEADER:
            raise InputError(f"{path} starts with {','.join(header)!r}, the header {','.join(CSV_HEADER)!r} is needed")
        nodes: list[Name] = []
        graphs: list[Name] = []
        labels: list[Name] = []
        edges: list[tuple[Name, Name]] = []
        weights: list[tuple[Name, Name]] = []
        attributes: dict[Name, Any] = {}
        for number, line in enumerate(lines, start=2):
            cells = [cell.strip() for cell in line]
            if not any(cells):
                continue
            match cells:
                case ["node", node, "", ""] if node:
                    nodes.append(node)
                case ["graph", graph, "", ""] if graph:
                    graphs.append(graph)
                case ["label", node, "", ""] if node:
                    labels.append(node)
                case ["edge", node, target, ""] if node and target:
                    edges.append((node, target))
                case ["weight", node, target, ""] if node and target:
                    weights.append((node, target))
                case ["attribute", node, "", ""] if node and node not in attributes:
                    attributes[node] = "all"
                case ["attribute", node, "", column] if node and column and attributes.get(node) != "all":
                    attributes.setdefault(node, []).append(column)
                case ["attribute", node, "", _] if node:
                    raise InputError(f"line {number} of {path}: node {node!r} appears twice among the attributes")
                case _:
                    message = "which is no node, edge, attribute, label, graph or weight"
                    raise InputError(f"line {number} of {path} is {','.join(line)!r}, {message}")
        return cls(nodes, edges, attributes, graphs, labels, weights)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """From a .json or .csv file."""
        readers = {".json": cls.from_json, ".csv": cls.from_csv}
        reader = readers.get(Path(path).suffix.lower())
        if reader is None:
            raise InputError(f"{path} is neither a .json nor a .csv file")
        return reader(path)

    def to_dict(self) -> dict[str, Any]:
        """The object of a `request.json`; `from_dict` reads it back."""
        attributes = [
            {"node": node} if columns == "all" else {"node": node, "columns": list(columns)}
            for node, columns in self.attributes.items()
        ]
        content: dict[str, Any] = {
            "nodes": list(self.nodes),
            "edges": [list(edge) for edge in self.edges],
            "attributes": attributes,
        }
        if self.edge_weights:
            content["edge_weights"] = [list(edge) for edge in self.edge_weights]
        return content | {name: list(getattr(self, name)) for name in ("graphs", "labels") if getattr(self, name)}

    # -- against a graph -----------------------------------------------------------------------------------------

    def resolve(self, graph: Graph) -> Resolved:
        """The request in terms of `graph`'s rows.

        Footprint, surgery and annex all need it, so the last result is cached while its graph exists.

        Raises:
            InputError: Something that the request names is not in `graph`.
        """
        cached = self.__dict__.get("_resolved")
        if cached is None or cached[0]() is not graph:
            cached = (weakref.ref(graph), self._resolve(graph))
            object.__setattr__(self, "_resolved", cached)
        resolved: Resolved = cached[1]
        return resolved

    def _resolve(self, graph: Graph) -> Resolved:
        node_rows = unique_rows(((node, graph.row(node)) for node in self.nodes), "node")
        if self.graphs:
            node_rows = sorted({*node_rows, *rows_of_graphs(graph, self.graphs).tolist()})
        full: list[int] = []
        partial: list[tuple[int, Tensor]] = []
        known: dict[Columns, Tensor] = {}  # many nodes of a request often share one list of columns
        attribute_rows = unique_rows(((node, graph.row(node)) for node in self.attributes), "attributes of node")
        for row, (node, columns) in zip(attribute_rows, self.attributes.items(), strict=True):
            if columns == "all":
                full.append(row)
                continue
            if columns not in known:
                places = unique_rows(((c, graph.column(c)) for c in columns), f"node {node!r}, column")
                known[columns] = torch.tensor(places, dtype=torch.int64)
            partial.append((row, known[columns]))
        none = torch.empty(0, dtype=torch.int64)
        return Resolved(
            node_rows=torch.tensor(node_rows, dtype=torch.int64),
            edges=edge_columns(graph, self.edges, "edge"),
            full_rows=torch.tensor(full, dtype=torch.int64),
            partial_rows=torch.cat([none, *(torch.full_like(places, row) for row, places in partial)]),
            partial_columns=torch.cat([none, *(places for _, places in partial)]),
            label_rows=self._label_rows(graph),
            weight_edges=self._weight_edges(graph),
        )

    def _label_rows(self, graph: Graph) -> Tensor:
        if self.labels and graph.graph_numbers is not None:
            raise InputError("in a collection a label belongs to a graph and cannot be forgotten alone: name the graph")
        rows = unique_rows(((node, graph.row(node)) for node in self.labels), "label of node")
        return torch.tensor(rows, dtype=torch.int64)

    def _weight_edges(self, graph: Graph) -> Tensor:
        if self.edge_weights and graph.edge_weight is None:
            raise InputError("the request names edge weights, and the graph has none")
        return edge_columns(graph, self.edge_weights, "weight of edge")


def _refuse_twice(names: tuple[Any, ...], label: str) -> None:
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{label} {name!r} appears twice in the request")
        seen.add(name)


def _listed(values: Any, label: str) -> Iterable[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise InputError(f"'{label}' is {values!r}, a list is needed")
    return values


def _rows(lines: Iterator[list[str]], path: str | Path) -> Iterator[list[str]]:
    try:
        yield from lines
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from error


def _name(value: Any, label: str) -> Name:
    name = (value if value.strip() else None) if isinstance(value, str) else as_whole_number(value)
    if name is None:
        raise InputError(f"{label} {value!r} is neither a whole number from 0 nor a name")
    return name


def _edge(edge: Any) -> tuple[Name, Name]:
    ends = tuple(edge) if isinstance(edge, Iterable) and not isinstance(edge, str | bytes | Mapping | Set) else ()
    if len(ends) != 2:
        raise InputError(f"edge {edge!r} is not a pair of nodes")
    return _name(ends[0], "node"), _name(ends[1], "node")


def _columns(node: Name, columns: Any) -> Columns:
    if isinstance(columns, str) and columns == "all":
        return "all"
    listed = tuple(_name(column, "column") for column in _listed(columns, "columns"))
    if not listed:
        raise InputError(f"the columns of node {node!r} are an empty list, leave them out to mean all")
    _refuse_twice(listed, f"node {node!r}, column")
    return listed


def _text(path: str | Path) -> str:
    try:
        return read_bytes(Path(path), largest=LARGEST, links=True).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _count(number: int, label: str) -> str:
    return f"{number} {label}{'s' * (number != 1)}" if number else ""
