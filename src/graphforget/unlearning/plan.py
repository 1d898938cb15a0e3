"""What a request would touch, what can be guaranteed and about how long it takes. Changes nothing."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

from graphforget.certificates.levels import MEANING, NOT_COVERED, Level
from graphforget.errors import Refused
from graphforget.graph.graph import Graph
from graphforget.request.footprint import footprint
from graphforget.request.kinds import Kind
from graphforget.request.request import Request
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.method import Task
from graphforget.unlearning.registry import find, model_option
from graphforget.unlearning.selection import RETRAIN, Choice, LevelPolicy, Otherwise, choose, retraining


@dataclass(frozen=True)
class Plan:
    """What `unlearn` would do. It is private: it depends on what is to go."""

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
    affected_by: dict[Kind, int]  # the same by kind of request, each taken alone
    seconds: float  # about
    retrain_seconds: float  # what training took
    releases_left: int | None  # before this one; None where none are counted
    not_covered: tuple[str, ...] = NOT_COVERED

    def to_dict(self) -> dict[str, Any]:
        return {"audience": "private", **dataclasses.asdict(self)}


def plan(
    trained: Trained,
    graph: Graph,
    request: Request,
    *,
    method: str = AUTO,
    level: Level | None = None,
    otherwise: Otherwise = "retrain",
    **options: Any,
) -> Plan:
    """Looks before anything is changed: the footprint, the level in reach, the expected time.

    The time is that of one gradient, measured now, times what the method is likely to need. `method`, `level`,
    `otherwise` and `options` are as for `unlearn`.

    Example:
        >>> import graphforget as gf
        >>> graph = gf.load("patients")
        >>> plan = gf.plan(gf.train(graph, "sgc"), graph, gf.Request(nodes=["patient-0017"]))
        >>> plan.method, plan.level, plan.nodes
        ('newton', 'certified', 1)
    """
    policy = LevelPolicy(level, otherwise)
    named = None if str(method).lower() == AUTO else find(method)
    if named is not None:
        named.parse_options(options)
    (named or RETRAIN).check(trained, graph, request)
    what = request.resolve(graph)
    task = Task.of(trained, graph, request)
    retained, touched = task.retained, task.touched
    choice: Choice | None = None
    try:
        choice = choose(task, policy=policy, options=options, named=named)
        if trained.releases_left == 0 and choice.method.level == "certified":
            why = f"the {trained.recipe.releases} releases that were promised leave no room for one more"
            choice = retraining(trained, retained, policy=policy, options=model_option(options), why=why)
        meaning = MEANING[choice.level]
    except Refused as refusal:
        choice = None
        meaning = f"would be refused: {refusal}"
    unchanged = choice is not None and (choice.method.leaves_weights_unchanged(task) or task.training_unchanged)
    work = 0 if choice is None or unchanged else choice.method.gradients(trained)
    m = graph.train_rows.numel()
    return Plan(
        method=choice.method.name if choice else str(method),
        level=choice.level if choice else None,
        meaning=meaning,
        nodes=what.node_rows.numel(),
        training_nodes=touched.removed.numel(),
        edges=graph.num_edges - retained.num_edges,
        attribute_nodes=len(request.attributes),
        values=graph.count_named_values(what),
        affected=touched.affected.numel(),
        untouched=m - touched.removed.numel() - touched.affected.numel(),
        affected_by={k: footprint(graph, request.only(k), trained.reach).affected.numel() for k in request.kinds},
        seconds=_gradient_seconds(trained, graph) * work if work else 0.0,
        retrain_seconds=trained.seconds,
        releases_left=trained.releases_left,
    )


def _gradient_seconds(trained: Trained, graph: Graph) -> float:
    objective = trained.objective(graph)
    objective.gradient(trained.theta)  # what is prepared once
    started = time.perf_counter()
    objective.gradient(trained.theta)
    return time.perf_counter() - started
