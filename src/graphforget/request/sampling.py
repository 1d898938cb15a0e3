"""Deletion requests drawn at random by a seed, for experiments: of one kind of things that can be named."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from graphforget.errors import InputError
from graphforget.graph.collection import name_of_graph, numbers_of_graphs
from graphforget.graph.graph import Graph
from graphforget.request.kinds import KINDS, Kind
from graphforget.request.request import Request

NAMES: dict[str, Kind] = {
    "node": "nodes",
    "edge": "edges",
    "attribute": "attributes",
    "partial": "partial attributes",
    "graph": "graphs",
    "label": "labels",
    "weight": "edge weights",
}


@dataclass(frozen=True)
class Drawing:
    """A random request to draw: its kind, and a share between 0 and 1 or a number.

    The share or number is that of training nodes, of training graphs or of edges.
    """

    kind: Kind
    share: float | None = None
    count: int | None = None

    @classmethod
    def parse(cls, text: str) -> Drawing:
        """`node:5%`, `edge:10`, `attribute:1%`, `partial:5%` (half of the columns), `label:1%`, `weight:1%` ..."""
        match = re.fullmatch(r"(\w+):(?:(\d+(?:\.\d+)?)%|(\d+))", text.strip(), flags=re.ASCII)
        if match is None or match[1] not in NAMES:
            raise InputError(f"the request {text!r} is neither a file nor of the form node:5%, edge:10, {_others()}")
        kind = NAMES[match[1]]
        return cls(kind, count=int(match[3])) if match[2] is None else cls(kind, share=float(match[2]) / 100)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"there is no kind of request {self.kind!r}, only {', '.join(KINDS)}")
        if (self.share is None) == (self.count is None):
            raise InputError("either a share or a number is to be drawn")
        if self.share is not None and not 0 < self.share < 1:
            raise InputError(f"a share of {100 * self.share:g}% cannot be drawn, it must be between 0 and 100")
        if self.count is not None and self.count < 1:
            raise InputError(f"{self.count} cannot be drawn, at least 1 is needed")

    def number(self, available: int) -> int:
        number = max(1, int((self.share or 0) * available)) if self.count is None else self.count
        if number > available:
            raise InputError(f"{number} are to be drawn and there are only {available}")
        return number


def draw_request(graph: Graph, drawing: Drawing, *, seed: int) -> Request:
    """A random request: training nodes or graphs to remove, nodes that lose attributes or label, edges."""
    generator = random.Random(f"{drawing.kind} {seed}")
    if drawing.kind in ("edges", "edge weights"):
        if drawing.kind == "edge weights" and graph.edge_weight is None:
            raise InputError("the graph has no edge weights to draw from")
        source, target = graph.edge_index
        once = graph.edge_index if graph.directed else graph.edge_index[:, source < target]
        edges = generator.sample(once.T.tolist(), drawing.number(once.shape[1]))
        named = [(graph.name_of(u), graph.name_of(v)) for u, v in edges]
        return Request(edges=named) if drawing.kind == "edges" else Request(edge_weights=named)
    if drawing.kind == "graphs":
        train = numbers_of_graphs(graph, graph.train_mask).tolist()
        return Request(graphs=[name_of_graph(graph, g) for g in generator.sample(train, drawing.number(len(train)))])
    rows = graph.train_rows.tolist()
    nodes = [graph.name_of(row) for row in generator.sample(rows, drawing.number(len(rows)))]
    if drawing.kind == "nodes":
        return Request(nodes=nodes)
    if drawing.kind == "labels":
        return Request(labels=nodes)
    if drawing.kind == "attributes":
        return Request(attributes=dict.fromkeys(nodes, "all"))
    places = generator.sample(range(graph.num_columns), max(1, graph.num_columns // 2))
    columns = places if graph.column_names is None else [graph.column_names[place] for place in places]
    return Request(attributes=dict.fromkeys(nodes, columns))


def _others() -> str:
    return ", ".join(f"{name}:5%" for name in NAMES if name not in ("node", "edge"))
