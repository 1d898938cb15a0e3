"""What a model holds of a person: a request in the service as a deletion request against one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.schema import MARK, is_typed, schema_of
from graphforget.request.hashed_items import HashedItems
from graphforget.request.request import Request
from graphforget.service.identities import SubjectNames

NEAR = (
    "a name of the request differs from one in the model only by case, spaces, the form of its characters or the type "
    "before it, so a person has to check it and submit the name as the model has it"
)


def held_request(
    graph: Graph,
    names: SubjectNames,
    identities: Sequence[Mapping[str, str]],
    scope: Mapping[str, Any],
    identity_type: str,
) -> Request | None:
    """What the graph holds of what the request asks to erase; None if it holds nothing of it.

    Without relations, attributes or columns in its scope, a request means the whole person.

    Raises:
        InputError: A name is almost one of the graph: a person has to say who is meant.
    """
    others, columns = scope.get("edges") or (), scope.get("columns") or ()
    named = [{"identity_type": identity_type, "identity_value": other, "identity_format": "raw"} for other in others]
    if names.has_near([*identities, *named], identity_type):
        raise InputError(NEAR)
    subjects = names.matching(identities, identity_type)
    if not subjects:
        return None
    if not (others or columns or scope.get("attributes")):
        return Request(nodes=subjects)
    attributes: dict[Any, Any] = {}
    if scope.get("attributes"):
        attributes = dict.fromkeys(subjects, "all")
    elif known := _columns(graph, columns):
        attributes = dict.fromkeys(subjects, known)
    edges = _edges(graph, names, subjects, others)
    return Request(edges=edges, attributes=attributes) if edges or attributes else None


def absent_items(
    key: bytes, graph: Graph, identities: Sequence[Mapping[str, str]], scope: Mapping[str, Any], identity_type: str
) -> HashedItems:
    """Keyed hashes of what a request asks to erase and a graph does not hold, so that it does not come later.

    Of a hashed identity nobody knows the name, so nothing can be kept out.
    """
    raw = [one for one in identities if one["identity_type"] == identity_type and one["identity_format"] == "raw"]
    names = _with_types(graph, [one["identity_value"] for one in raw])
    others, columns = _with_types(graph, scope.get("edges") or ()), scope.get("columns") or ()
    if not (others or columns or scope.get("attributes")):
        return HashedItems.of_absent(key, nodes=names)
    return HashedItems.of_absent(
        key,
        edges=[(name, other) for name in names for other in others],
        attributes=names if scope.get("attributes") else (),
        values=[(name, graph.column(column)) for name in names for column in _columns(graph, columns)],
    )


def _with_types(graph: Graph, names: Sequence[str]) -> list[str]:
    """The names, and in a heterogeneous graph also those with each type before them: they could come with any."""
    types = schema_of(graph).types if is_typed(graph) else ()
    return [*names, *(f"{kind}{MARK}{name}" for kind in types for name in names)]


def has_column(graph: Graph, column: Any) -> bool:
    return bool(_columns(graph, [column]))


def _columns(graph: Graph, columns: Sequence[Any]) -> list[Any]:
    """The columns that the graph has, each once."""
    known: dict[int, Any] = {}
    for column in columns:
        try:
            known.setdefault(graph.column(column), column)
        except InputError:
            continue
    return list(known.values())


def _edges(graph: Graph, names: SubjectNames, subjects: Sequence[str], others: Sequence[str]) -> list[tuple[str, str]]:
    """The relations between the person and the others, in the directions that the graph has."""
    pairs = [(subject, other) for subject in subjects for other in others if other in names.names]
    if graph.directed:
        pairs += [(other, subject) for subject, other in pairs]
    if not pairs:
        return []
    ends = torch.tensor([[graph.row(u), graph.row(v)] for u, v in pairs], dtype=torch.int64).T
    present = graph.has_edges(ends).tolist()
    kept: dict[tuple[int, int], tuple[str, str]] = {}
    for pair, (u, v), there in zip(pairs, ends.T.tolist(), present, strict=True):
        if there:
            kept.setdefault((u, v) if graph.directed else (min(u, v), max(u, v)), pair)
    return list(kept.values())
