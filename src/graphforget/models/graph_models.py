"""Models for the graphs of a collection: a linear head on fixed features, strongly convex by construction."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import BoundedMatrix, SparseMatrix
from graphforget.models.graph_features import sign_features, wl_features
from graphforget.models.graph_items import GraphView
from graphforget.models.item_features import LinearOnItems
from graphforget.validation import whole_number

MOST_BUCKETS = 2**24


class GraphWL(LinearOnItems):
    """`Phi W + b`, where `Phi` counts the Weisfeiler-Lehman colours of each graph's nodes; see `wl_features`."""

    def __init__(
        self,
        columns: int,
        classes: int,
        *,
        rounds: int = 4,
        buckets: int = 2**14,
        attributes: bool = True,
        degrees: bool = True,
    ) -> None:
        """`buckets` is the number of columns of each round, in which colours fall by their hash."""
        hops = Reach(rounds).hops or 0
        if not 1 <= whole_number(buckets, "buckets") <= MOST_BUCKETS:
            raise InputError(f"buckets is {buckets}, 1 to {MOST_BUCKETS:,} are possible")
        for name, value in (("attributes", attributes), ("degrees", degrees)):
            if not isinstance(value, bool):
                raise InputError(f"{name} is {value!r}, true or false is needed")
        super().__init__(GraphView(), (hops + 1) * buckets, classes, columns=columns)
        self.rounds, self.buckets, self.attributes, self.degrees = hops, int(buckets), attributes, degrees
        self.reach = Reach(hops)

    @property
    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("rounds", "buckets", "attributes", "degrees")}

    @property
    def preparation(self) -> Hashable:
        return type(self), *self.settings.values()

    def features(self, graph: Graph, *, dtype: torch.dtype) -> SparseMatrix:
        return wl_features(graph, dtype=dtype, **self.settings)


class GraphSIGN(LinearOnItems):
    """`Phi W + b`, where `Phi` pools the propagated attributes of each graph's nodes; see `sign_features`."""

    def __init__(self, columns: int, classes: int, *, hops: int = 2) -> None:
        reach = Reach(hops)
        super().__init__(GraphView(), 2 * ((columns + 1) * ((reach.hops or 0) + 1) + 1), classes, columns=columns)
        self.hops, self.reach = reach.hops or 0, reach

    @property
    def settings(self) -> dict[str, Any]:
        return {"hops": self.hops}

    @property
    def preparation(self) -> Hashable:
        return type(self), self.hops

    def features(self, graph: Graph, *, dtype: torch.dtype) -> BoundedMatrix:
        return sign_features(graph, hops=self.hops, dtype=dtype)
