"""Where the things that a request names lie in a graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphforget.errors import InputError

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph
    from graphforget.request.request import Name


def edge_columns(graph: Graph, edges: tuple[tuple[Name, Name], ...], label: str) -> Tensor:
    """The columns of `edge_index` that are named, an undirected edge in both directions, in their order."""
    if not edges:
        return torch.zeros(2, 0, dtype=torch.int64)
    ends = torch.tensor([[graph.row(u), graph.row(v)] for u, v in edges], dtype=torch.int64).T
    n = int(ends.max()) + 1
    missing = ~graph.has_edges(ends)
    if missing.any():
        raise InputError(f"edge {edges[int(missing.nonzero()[0])]!r} is not in the graph")
    keys = ends[1] * n + ends[0]
    mirrored = ends[0] * n + ends[1]
    canonical_keys = keys if graph.directed else torch.minimum(keys, mirrored)
    unique_rows(zip(edges, canonical_keys.tolist(), strict=True), label)
    keys = (keys if graph.directed else torch.cat([keys, mirrored])).unique()
    return torch.stack([keys % n, keys // n])


def unique_rows(named: Iterable[tuple[Any, int]], label: str) -> list[int]:
    """The rows, refusing two names for one row (a number and a subject id, an edge and its reverse)."""
    rows: dict[int, Any] = {}
    for name, row in named:
        if row in rows:
            raise InputError(f"{label} {name!r} appears twice in the request")
        rows[row] = name
    return list(rows)
