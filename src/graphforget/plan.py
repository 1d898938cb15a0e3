"""What a request would touch, what can be guaranteed and about how long it takes. Changes nothing."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

from graphforget.certificates.claim import NOT_COVERED
from graphforget.certificates.levels import MEANING, Level
from graphforget.errors import Refused
from graphforget.footprint import footprint
from graphforget.graph import Graph
from graphforget.request import Request
from graphforget.trained import Trained
from graphforget.unlearning.registry import find


@dataclass(frozen=True)
class Plan:
    """What `unlearn` would do."""

    method: str
    level: Level | None  # the best in reach; None if it would be refused
    meaning: str
    nodes: int  # that go
    training_nodes: int  # of them, those that train
    edges: int  # that go, those at the nodes that go included
    attribute_nodes: int  # that lose some or all attributes
    values: int  # attribute values that really change
    affected: int  # training nodes that stay and whose loss may change
    untouched: int  # training nodes whose loss stays the same
    seconds: float  # about
    retrain_seconds: float  # what training took
    not_covered: tuple[str, ...] = NOT_COVERED

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def plan(trained: Trained, graph: Graph, request: Request, *, method: str = "idea", **options: Any) -> Plan:
    """Looks before anything is changed: the footprint, the level in reach, the expected time.

    The time is that of one gradient, measured now, times what the method is likely to need. `options` are those of the
    method, as for `unlearn`.
    """
    chosen = find(method)
    set_to = chosen.chosen(options)
    chosen.check(trained, graph, request)
    what = request.resolve(graph)
    retained = graph.without(request)
    touched = footprint(graph, request, trained.reach)
    m = graph.train_rows.numel()
    try:
        best = chosen.foreseen(trained, retained, touched, set_to)
        level: Level | None = best
        meaning = MEANING[best]
    except Refused as refusal:
        level, meaning = None, f"would be refused: {refusal}"
    nothing_to_do = level is None or (touched.empty and chosen.keeps_untouched)
    return Plan(
        method=chosen.name,
        level=level,
        meaning=meaning,
        nodes=what.node_rows.numel(),
        training_nodes=touched.removed.numel(),
        edges=graph.num_edges - retained.num_edges,
        attribute_nodes=len(request.attributes),
        values=graph.count_named_values(what),
        affected=touched.affected.numel(),
        untouched=m - touched.removed.numel() - touched.affected.numel(),
        seconds=0.0 if nothing_to_do else _gradient_seconds(trained, graph) * chosen.gradients(trained),
        retrain_seconds=trained.seconds,
    )


def _gradient_seconds(trained: Trained, graph: Graph) -> float:
    objective = trained.objective(graph)
    objective.gradient(trained.theta)  # what is prepared once
    started = time.perf_counter()
    objective.gradient(trained.theta)
    return time.perf_counter() - started
