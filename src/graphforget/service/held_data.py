"""What a model holds of a person: a request in the service as a deletion request against one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.request.request import Request
from graphforget.service.identities import SubjectNames


def held_request(
    graph: Graph,
    names: SubjectNames,
    identities: Sequence[Mapping[str, str]],
    scope: Mapping[str, Any],
    identity_type: str,
) -> Request | None:
    """What the graph holds of what the request asks to erase; None if it holds nothing of it.

    Without relations, attributes or columns in its scope, a request means the whole person.
    """
    subjects = names.matching(identities, identity_type)
    if not subjects:
        return None
    others, columns = scope.get("edges") or (), scope.get("columns") or ()
    if not (others or columns or scope.get("attributes")):
        return Request(nodes=subjects)
    attributes: dict[Any, Any] = {}
    if scope.get("attributes"):
        attributes = dict.fromkeys(subjects, "all")
    elif known := _columns(graph, columns):
        attributes = dict.fromkeys(subjects, known)
    edges = _edges(graph, names, subjects, others)
    return Request(edges=edges, attributes=attributes) if edges or attributes else None


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
