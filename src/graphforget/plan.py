"""What a request would touch, what can be guaranteed and about how long it takes. Changes nothing."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

from graphforget.certificates.levels import MEANING, Level
from graphforget.footprint import footprint
from graphforget.graph import Graph
from graphforget.models.base import is_built_in
from graphforget.request import Request
from graphforget.trained import Trained
from graphforget.unlearning.registry import find

NOT_COVERED = (
    "models released before this request, and what can be learned by comparing them with the next one",
    "copies of the old weights and of the data: checkpoints, backups, run directories, caches, logs",
    "predictions and embeddings that were computed with the old weights",
    "what was fitted on all rows before it came here: scalers, PCA, similarity graphs, the choice of settings",
)


@dataclass(frozen=True)
class Plan:
    """What `unlearn` would do."""

    method: str
    level: Level  # the best in reach
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


def plan(trained: Trained, graph: Graph, request: Request, *, method: str = "idea") -> Plan:
    """Looks before anything is changed: the footprint, the level in reach, the expected time.

    The time is that of one gradient, measured now, times what the method is likely to need.
    """
    chosen = find(method)
    chosen.check(trained, graph, request)
    what = request.resolve(graph)
    retained = graph.without(request)
    touched = footprint(graph, request, trained.reach)
    m = graph.train_rows.numel()
    untouched = touched.empty and chosen.keeps_untouched and not trained.history and is_built_in(trained.module)
    level: Level = "exact" if untouched else chosen.reachable(trained)
    return Plan(
        method=chosen.name,
        level=level,
        meaning=MEANING[level],
        nodes=what.node_rows.numel(),
        training_nodes=touched.removed.numel(),
        edges=graph.num_edges - retained.num_edges,
        attribute_nodes=len(request.attributes),
        values=graph.count_named_values(what),
        affected=touched.affected.numel(),
        untouched=m - touched.removed.numel() - touched.affected.numel(),
        seconds=0.0 if untouched else _gradient_seconds(trained, graph) * chosen.gradients(trained),
        retrain_seconds=trained.seconds,
    )


def _gradient_seconds(trained: Trained, graph: Graph) -> float:
    objective = trained.objective(graph)
    objective.gradient(trained.theta)  # what is prepared once
    started = time.perf_counter()
    objective.gradient(trained.theta)
    return time.perf_counter() - started
