"""Keyed hashes of what requests name: they name nobody, and know a thing again when it comes back.

Three lists are of this kind: what requests deleted, which no update brings back by itself, what was asked for while it
was absent, and what was readmitted.
Names are hashed in one spelling, so a thing is known again in other letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from graphforget.errors import InputError
from graphforget.privacy.salt import new_salt
from graphforget.request.spelling import canonical_name
from graphforget.validation import read_fields

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from graphforget.graph.differences import Gained
    from graphforget.graph.graph import Graph
    from graphforget.request.request import Columns, Name, Request

HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class HashedItems:
    """Hashes by kind. `values` are single attributes, and `holders` the nodes that have one of them."""

    key: bytes = field(default_factory=new_salt, repr=False)
    nodes: frozenset[str] = frozenset()
    edges: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    holders: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()  # of edges

    @classmethod
    def of(cls, graph: Graph, request: Request, key: bytes | None = None) -> HashedItems:
        """The hashes of everything that a request names in a graph, of graphs of a collection their nodes."""
        resolved = request.resolve(graph)
        empty = cls(new_salt() if key is None else key)
        pairs, weighted = (
            [(u, v) for u, v in edges.T.tolist() if graph.directed or u <= v]
            for edges in (resolved.edges, resolved.weight_edges)
        )
        partial = list(zip(resolved.partial_rows.tolist(), resolved.partial_columns.tolist(), strict=True))
        made = {
            "nodes": empty._of_rows("node", graph, resolved.node_rows.tolist()),
            "edges": (empty._hash("edge", *_ends(graph, u, v)) for u, v in pairs),
            "attributes": empty._of_rows("attributes", graph, resolved.full_rows.tolist()),
            "values": (empty._hash("value", _name(graph, row), str(column)) for row, column in partial),
            "holders": empty._of_rows("holder", graph, {row for row, _ in partial}),
            "labels": empty._of_rows("label", graph, resolved.label_rows.tolist()),
            "weights": (empty._hash("weight", *_ends(graph, u, v)) for u, v in weighted),
        }
        return cls(empty.key, **{name: frozenset(hashes) for name, hashes in made.items()})

    @classmethod
    def of_absent(
        cls,
        key: bytes,
        *,
        nodes: Iterable[str] = (),
        edges: Iterable[tuple[str, str]] = (),
        attributes: Iterable[str] = (),
        values: Iterable[tuple[str, int]] = (),
    ) -> HashedItems:
        """The hashes of things that no graph holds, by names: a relation is one in both directions."""
        empty = cls(key)
        values = list(values)
        ends = [tuple(map(canonical_name, pair)) for pair in edges]
        made = {
            "nodes": (empty._hash("node", canonical_name(name)) for name in nodes),
            "edges": (empty._hash("edge", *pair) for u, v in ends for pair in ((u, v), (v, u))),
            "attributes": (empty._hash("attributes", canonical_name(name)) for name in attributes),
            "values": (empty._hash("value", canonical_name(name), str(column)) for name, column in values),
            "holders": (empty._hash("holder", canonical_name(name)) for name, _ in values),
        }
        return cls(key, **{name: frozenset(hashes) for name, hashes in made.items()})

    def joined(self, other: HashedItems) -> HashedItems:
        """The hashes of both lists, which have the same key."""
        return HashedItems(self.key, **{name: getattr(self, name) | getattr(other, name) for name in _KINDS})

    @property
    def empty(self) -> bool:
        return self.size == 0

    @property
    def size(self) -> int:
        """How many hashes there are."""
        return sum(len(getattr(self, name)) for name in _KINDS)

    def with_request(self, graph: Graph, request: Request) -> HashedItems:
        """The hashes with those of everything that a request names."""
        return self.joined(self.of(graph, request, self.key))

    def without(self, graph: Graph, request: Request) -> HashedItems:
        """The hashes without those of everything that a request names."""
        gone = self.of(graph, request, self.key)
        left = {name: getattr(self, name) - getattr(gone, name) for name in _KINDS}
        return HashedItems(self.key, **left | {"holders": self.holders})  # a node may hold other values of the list

    def covers(self, other: HashedItems) -> bool:
        """Whether all hashes of `other`, which has the same key, are among these."""
        return all(getattr(other, name) <= getattr(self, name) for name in _KINDS)

    def found_in(self, graph: Graph, where: Gained | None = None) -> Request | None:
        """What is in `graph` of the things that were hashed, as a request that names it; None if nothing is.

        With `where`, only the nodes and edges there are searched.
        """
        from graphforget.graph.targets import has_target
        from graphforget.request.request import Request

        among = (None, None, None) if where is None else (where.nodes, where.targets, where.attributes)
        some_nodes, some_targets, some_rows = among
        edge_columns: Any = slice(None) if where is None else where.edges
        nodes = [row for row, _ in self._rows("node", self.nodes, graph, some_nodes)]
        labelled = has_target(graph.y).tolist()
        labels = [row for row, _ in self._rows("label", self.labels, graph, some_targets) if labelled[row]]
        attributes: dict[Name, Columns] = {}
        for row, name in self._rows("holder", self.holders, graph, some_rows):
            columns = [c for c in _nonzero(graph, row) if self._hash("value", name, str(c)) in self.values]
            attributes |= {graph.name_of(row): tuple(columns)} if columns else {}
        for row, _ in self._rows("attributes", self.attributes, graph, some_rows):
            attributes |= {graph.name_of(row): "all"} if _nonzero(graph, row) else {}
        edges = list(self._edges("edge", self.edges, graph, graph.edge_index[:, edge_columns]))
        weights = list(self._edges("weight", self.weights, graph, _weighted_edges(graph, edge_columns)))
        if not (nodes or edges or attributes or labels or weights):
            return None
        named = ([graph.name_of(row) for row in rows] for rows in (nodes, labels))
        return Request(next(named), edges, attributes, labels=next(named), edge_weights=weights)

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key.hex()} | {name: sorted(getattr(self, name)) for name in _KINDS}

    @classmethod
    def from_dict(cls, content: Any) -> HashedItems:
        """Reads the result of `to_dict`. Raises `InputError` for anything else."""
        given = read_fields(_HashedItemsFile, content, "a list of hashed items")
        lists: dict[str, Any] = {name: frozenset(getattr(given, name)) for name in _KINDS}
        if not HASH.fullmatch(given.key) or not all(HASH.fullmatch(one) for hashes in lists.values() for one in hashes):
            raise InputError("its key and its hashes must have 64 hexadecimal digits")
        return cls(bytes.fromhex(given.key), **lists)

    def _hash(self, kind: str, *parts: str) -> str:
        sha = blake2b(key=self.key, digest_size=32, person=kind.encode())
        for part in parts:
            content = part.encode()
            sha.update(len(content).to_bytes(8, "little") + content)
        return sha.hexdigest()

    def _of_rows(self, kind: str, graph: Graph, rows: Iterable[int]) -> Iterator[str]:
        return (self._hash(kind, _name(graph, row)) for row in rows)

    def _rows(
        self, kind: str, hashes: frozenset[str], graph: Graph, among: np.ndarray | None
    ) -> Iterator[tuple[int, str]]:
        """The rows and names of the nodes that are among the hashed ones, of these rows or of all."""
        rows: Iterable[int] = range(graph.num_nodes) if among is None else among.tolist()
        names = ((row, _name(graph, row)) for row in (rows if hashes else ()))
        return ((row, name) for row, name in names if self._hash(kind, name) in hashes)

    def _edges(self, kind: str, hashes: frozenset[str], graph: Graph, edges: Tensor) -> Iterator[tuple[Name, Name]]:
        """The names of the ends of those edges that are among the hashed ones."""
        for u, v in edges.T.tolist() if hashes else ():
            if (graph.directed or u <= v) and self._hash(kind, *_ends(graph, u, v)) in hashes:
                yield graph.name_of(u), graph.name_of(v)


_KINDS = tuple(one.name for one in fields(HashedItems) if one.name != "key")


@dataclass(frozen=True)
class _HashedItemsFile:
    """Hashed items as they stand in a file."""

    key: str
    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    attributes: tuple[str, ...]
    values: tuple[str, ...]
    holders: tuple[str, ...]
    labels: tuple[str, ...]
    weights: tuple[str, ...] = ()  # missing in lists of earlier versions


def count_items(request: Request) -> dict[str, int]:
    """How many things of each kind a request names."""
    values = sum(len(columns) for columns in request.attributes.values() if columns != "all")
    rows = sum(columns == "all" for columns in request.attributes.values())
    counts = {"node": len(request.nodes), "edge": len(request.edges), "attribute row": rows, "value": values}
    counts |= {"label": len(request.labels), "edge weight": len(request.edge_weights)}
    return {kind: count for kind, count in counts.items() if count}


def beyond(found: Request, there: Request) -> Request | None:
    """What a request names and another one does not; None if that is nothing."""
    from graphforget.request.request import Request

    attributes: dict[Name, Columns] = {}
    for name, columns in found.attributes.items():
        other = there.attributes.get(name, ())
        left: Columns = (
            "all" if columns == "all" != other else tuple(c for c in columns if other != "all" and c not in other)
        )
        attributes |= {name: left} if left else {}
    names = ("nodes", "edges", "labels", "edge_weights")
    others = {name: frozenset(getattr(there, name)) for name in names}
    lists: dict[str, Any] = {name: [one for one in getattr(found, name) if one not in others[name]] for name in names}
    return Request(attributes=attributes, **lists) if attributes or any(lists.values()) else None


def _ends(graph: Graph, u: int, v: int) -> tuple[str, str]:
    """The names of both ends of an edge; those of an undirected one in alphabetical order."""
    first, second = _name(graph, u), _name(graph, v)
    return (first, second) if graph.directed or first <= second else (second, first)


def _weighted_edges(graph: Graph, columns: Any) -> Tensor:
    """The edges in these columns that weigh something else than 1."""
    if graph.edge_weight is None:
        return graph.edge_index[:, :0]
    from graphforget.graph.edge_arrays import FORGOTTEN_WEIGHT  # with torch, which the ledger does without

    return graph.edge_index[:, columns][:, graph.edge_weight[columns] != FORGOTTEN_WEIGHT]


def _name(graph: Graph, row: int) -> str:
    """The name of a node in one spelling."""
    return canonical_name(str(graph.name_of(row)))


def _nonzero(graph: Graph, row: int) -> list[int]:
    """The columns in which a node has attributes that are not 0."""
    if not graph.has_sparse_attributes:
        return graph.x[row].nonzero().flatten().tolist()
    first, last = graph.x.crow_indices()[row : row + 2].tolist()
    columns, values = graph.x.col_indices()[first:last], graph.x.values()[first:last]
    return columns[values != 0].tolist()
