"""The plan of a request: its footprint, the expected level and the expected time. Changes nothing."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.conditions import sentence
from graphforget.certificates.levels import MEANING, NOT_COVERED, Level
from graphforget.errors import Refused
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.models.items import NODE, item_footprint
from graphforget.models.registry import MODELS
from graphforget.request.batch import as_requests
from graphforget.request.kinds import Kind
from graphforget.request.request import Request
from graphforget.training.boosting import with_network
from graphforget.training.encoders import touched_parts, with_encoders
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.forecast import Forecast, forecast_of
from graphforget.unlearning.registry import named_choice
from graphforget.unlearning.selection import RETRAIN, Choice, LevelPolicy, Otherwise, choose, expected_choice
from graphforget.unlearning.task import Task

MEASURED = 3  # epochs, to estimate the time of a training


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What plans of requests and of updates share."""

    method: str
    level: Level | None  # the best in reach; None if it would be refused
    meaning: str
    affected: int  # training items of before and after whose loss may change
    untouched: int  # training items whose loss stays the same
    added: int = 0  # training items that are there only afterwards
    item: str = NODE  # what the model answers for
    seconds: float | None  # estimate; None if nothing is known of the time of training
    retrain_seconds: float | None  # the time of training, if it is known
    releases_left: int | None  # before this one; None if releases are not counted
    encoders: int | None = None  # of a stacked model
    renewed_encoders: int | None = None  # of these, the ones that are trained again
    not_covered: tuple[str, ...] = NOT_COVERED
    conditions: tuple[str, ...] = ()  # of the claim, in words, if they are known before the request
    advice: tuple[str, ...] = ()  # how the caller can reach other levels

    def to_dict(self) -> dict[str, Any]:
        return {"audience": "private", **dataclasses.asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Plan(Expected):
    """What `unlearn` would do. A plan is private, because it depends on the data to delete."""

    nodes: int  # to delete
    training_nodes: int  # training items that go: deleted ones, and nodes that lose their label
    edges: int  # to delete, with the edges of deleted nodes
    attribute_nodes: int  # that lose some or all attributes
    values: int  # attribute values that change
    labels: int  # nodes that lose their label, of which some had none before
    edge_weights: int  # edges that lose their weight, of which some had 1 before
    affected_by: dict[Kind, int]  # training losses that each kind of request alone may change
    forecast: Forecast | None = None  # of the score on retained items; None if it cannot be computed cheaply

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"warnings": list(self.warnings)}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the caller: that the request is expected to ruin the model."""
        return () if self.forecast is None or not self.forecast.collapse else (self.forecast.sentence,)


# Longer than 50 lines because of its signature and its documentation.
def plan(
    trained: Trained,
    graph: Graph,
    request: Request | Sequence[Request],
    *,
    method: str = AUTO,
    level: Level | None = None,
    otherwise: Otherwise = "retrain",
    device: str = "cpu",
    forecast: bool = True,
    **options: Any,
) -> Plan:
    """Says what `unlearn` would do with the same arguments: the footprint, the expected level, the expected time.

    It changes nothing. The time is that of one gradient, measured now, times the number that the method usually needs.

    Args:
        trained: The model.
        graph: The graph that the model was trained on, or the retained graph of the last request.
        request: The data to forget; a list of requests is planned as one release.
        method: The name of a method, or "auto".
        level: The lowest acceptable level.
        otherwise: "retrain" or "refuse", if the level cannot be reached.
        device: The torch device to compute on.
        forecast: Whether to forecast the score, which costs a Newton step.
        **options: Options of the method.

    Returns:
        The plan. It is private, because it depends on the data to delete.

    Raises:
        InputError: The arguments do not fit together, or the request names something that is not in the graph.

    Example:
        >>> import graphforget as gf
        >>> graph = gf.load("patients")
        >>> plan = gf.plan(gf.train(graph, "sgc"), graph, gf.Request(nodes=["patient-0017"]))
        >>> plan.method, plan.level, plan.nodes
        ('newton', 'certified', 1)
    """
    policy = LevelPolicy(level, otherwise)
    named = named_choice(method, options)
    merged = (named.method if named else RETRAIN).checked_request(trained, graph, as_requests(request))
    task = Task.of(trained, graph, merged, device=device)
    return Plan(
        **expected(task, policy, named, options), **_counts(task), forecast=forecast_of(task) if forecast else None
    )


def expected(task: Task, policy: LevelPolicy, named: Choice | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The method, level and time that a task is expected to need: what plans of requests and of updates share."""
    trained = task.trained
    choice: Choice | None = None
    claim: Claim | None = None
    try:
        chosen = choose(task, policy=policy, options=options, named=named)
        choice = expected_choice(task, policy=policy, named=chosen) if chosen is named else chosen
        claim = choice.method.planned_claim(trained)
        meaning = claim.definition if claim else MEANING[choice.level] if choice.level else ""
    except Refused as refusal:
        meaning = f"would be refused: {refusal}"
    unchanged = choice is not None and (choice.method.leaves_weights_unchanged(task) or task.training_unchanged)
    parts = _renewed_parts(task, choice)
    touched = task.touched
    return {
        "method": choice.method.name if choice else named.method.name if named else AUTO,
        "level": choice.level if choice else None,
        "meaning": meaning,
        "seconds": 0.0 if choice is None or unchanged else _seconds(task, choice, parts),
        "retrain_seconds": _training_seconds(trained),
        "releases_left": trained.releases_left,
        "affected": touched.num_affected,
        "untouched": trained.items(task.graph).num_training - touched.num_removed - touched.num_affected,
        "added": touched.added.numel(),
        "item": task.after_items.word,
        "encoders": trained.stacked.num_parts if trained.is_stacked else None,
        "renewed_encoders": len(parts) if trained.is_stacked else None,
        "conditions": tuple(map(sentence, getattr(claim, "conditions", ()))),
        "advice": _advice(trained),
    }


def _renewed_parts(task: Task, choice: Choice | None) -> list[int]:
    """The parts of a stacked model whose encoders are trained again; retraining trains all of them."""
    if choice is None or not task.trained.is_stacked:
        return []
    if choice.method is RETRAIN:
        return list(range(task.trained.stacked.num_parts))
    return touched_parts(task.trained, task.graph, task.retained, task.asked, device=task.device)


def _renewal_seconds(task: Task, parts: list[int]) -> float:
    """The time to train these encoders, or the network of a boosted model: that of a few epochs, measured now."""
    trained, epochs = task.trained, task.trained.recipe.epochs
    if not (parts or trained.is_boosted) or not epochs:
        return 0.0
    _time_epochs(task, 1, parts[:1])  # the first training of a process takes longer
    seconds = _time_epochs(task, min(MEASURED, epochs), parts[:1])
    return seconds * max(len(parts), 1) * epochs / min(MEASURED, epochs)


def _time_epochs(task: Task, epochs: int, parts: list[int]) -> float:
    """The time to train the encoders of these parts, or the network of a boosted model, for so many epochs."""
    trained, recipe = task.trained, dataclasses.replace(task.trained.recipe, epochs=epochs)
    started = time.perf_counter()
    if trained.is_boosted:
        short = dataclasses.replace(trained, recipe=recipe)
        with_network(short, trained.theta, task.graph, device=task.device)
    else:
        there = task.retained if isinstance(task.graph, DistributedGraph) else task.graph
        with_encoders(trained.stacked, there, recipe, trained.loss, parts, device=task.device)
    return time.perf_counter() - started


def _counts(task: Task) -> dict[str, Any]:
    """How much the request removes and changes."""
    graph, request, touched = task.graph, task.request, task.touched
    resolved = request.resolve(graph)
    return {
        "nodes": resolved.node_rows.numel(),
        "training_nodes": touched.num_removed,
        "edges": graph.num_edges - task.retained.num_edges,
        "attribute_nodes": len(request.attributes),
        "values": graph.count_named_values(resolved),
        "labels": resolved.label_rows.numel(),
        "edge_weights": len(request.edge_weights),
        "affected_by": _affected_by_kind(task),
    }


def _affected_by_kind(task: Task) -> dict[Kind, int]:
    """How many training losses each kind alone may change. Ranks count a request as a whole, not by kinds."""
    kinds = task.request.kinds
    if isinstance(task.graph, DistributedGraph) and len(kinds) > 1:
        return {}
    return {kind: _affected(task, task.request.only(kind)) for kind in kinds}


def _affected(task: Task, request: Request) -> int:
    """How many training losses one part of the request may change."""
    if request.kinds == task.request.kinds:  # all of it
        return task.touched.num_affected
    graph, trained = task.graph, task.trained
    retained = task.retained if trained.items(graph).word == NODE else graph.without(request)  # nodes need no other
    return item_footprint(trained.module, graph, retained, request, trained.reach).affected.numel()


def _advice(trained: Trained) -> tuple[str, ...]:
    """How to reach other levels, in words: an adopted model, a network, a module that may carry data."""
    built_in = f"stacked-{trained.recipe.model}"
    name = type(trained.module).__qualname__
    stacked = f'"{built_in}"' if built_in in MODELS else f"gf.stacked({name})"
    if not trained.recipe.adopted:
        network = not trained.strongly_convex and not trained.is_ensemble
        changes = [f"with a guarantee, if this is changed: {one}" for one in trained.certification_blockers]
        ways = [f"certified, without retraining the whole network: gf.train(graph, {stacked})"] if network else []
        return (*changes, *ways)
    own = "exact: give the function that trains the model, gf.adopt(..., retrain=...) or --retrain"
    return (
        *([] if trained.retrain is not None else [own]),
        "empirical, without a guarantee: method 'idea' or 'gif' with level 'empirical'",
        f"certified: train the same class as gf.train(graph, gf.stacked({name}))",
    )


def _seconds(task: Task, choice: Choice, parts: list[int]) -> float | None:
    """The expected time of a method, with the training of the encoders of these parts."""
    if task.trained.recipe.adopted and choice.method is RETRAIN:
        return _training_seconds(task.trained)
    gradients = choice.method.gradients(task.trained)
    return (_gradient_seconds(task) * gradients if gradients else 0.0) + _renewal_seconds(task, parts)


def _training_seconds(trained: Trained) -> float | None:
    """The time of the last training; None if it was not here."""
    return None if trained.recipe.adopted and not trained.recipe.environment else trained.seconds


def _gradient_seconds(task: Task) -> float:
    """The time of one gradient of the objective, measured now."""
    on_ranks = isinstance(task.graph, DistributedGraph)
    theta = task.theta
    objective = task.trained.objective(task.retained) if on_ranks else task.before
    objective.gradient(theta)  # the first one also prepares the graph
    started = time.perf_counter()
    objective.gradient(theta)
    return time.perf_counter() - started
