"""The plan of an update: what the new graph changes, the expected level and the expected time. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphforget.certificates.levels import Level
from graphforget.errors import Refused
from graphforget.graph.graph import Graph
from graphforget.request.change import count_changes
from graphforget.request.hashed_items import count_items
from graphforget.request.request import Request
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.plan import Expected, expected
from graphforget.unlearning.registry import named_choice
from graphforget.unlearning.selection import LevelPolicy, Otherwise
from graphforget.unlearning.task import Task
from graphforget.unlearning.update import deleted_again, next_state, returning_items


@dataclass(frozen=True, kw_only=True)
class UpdatePlan(Expected):
    """What `update` would do. A plan is private, because it depends on the data."""

    new_nodes: int
    lost_nodes: int
    new_edges: int
    lost_edges: int
    changed_edges: int  # edges of both graphs with another weight or other relations
    changed_attributes: int  # nodes of both graphs with other attributes
    changed_labels: int  # nodes of both graphs with another label, or with one in one of the graphs only
    removed: int  # training items that are there only before
    deleted_again: dict[str, int]  # what a request deleted and the new graph holds again, by its kind


# Longer than 50 lines because of its signature and its documentation.
def plan_update(
    trained: Trained,
    graph: Graph,
    new_graph: Graph,
    *,
    method: str = AUTO,
    level: Level | None = None,
    otherwise: Otherwise = "retrain",
    readmit: str | None = None,
    readmit_request: Request | None = None,
    trust_ids: bool = False,
    device: str = "cpu",
    **options: Any,
) -> UpdatePlan:
    """Says what `update` would do with the same arguments: the footprint, the expected level, the expected time.

    It changes nothing. If the new graph holds something that a request deleted, the plan counts it. Without a reason to
    readmit it, the plan says that the update would be refused.

    Args:
        trained: The model.
        graph: The graph that the model was trained on, or the graph of the last outcome.
        new_graph: Its next state, with its own split.
        method: "newton", "retrain" or "auto".
        level: The lowest acceptable level.
        otherwise: "retrain" or "refuse", if the level cannot be reached.
        readmit: Why data may come back that a request deleted.
        readmit_request: What may come back; the rest is refused. Without it, everything that the new graph holds may.
        trust_ids: Whether to go on if the ids of the new graph look like those of other people.
        device: The torch device to compute on.
        **options: Options of the method.

    Returns:
        The plan. It is private, because it depends on the data.

    Raises:
        InputError: The arguments do not fit together.

    Example:
        >>> import graphforget as gf
        >>> graph = gf.load("patients")
        >>> smaller = graph.without(gf.Request(nodes=["patient-0017", "patient-0018"]))
        >>> plan = gf.plan_update(gf.train(smaller, "sgc"), smaller, graph)
        >>> plan.method, plan.level, plan.new_nodes, plan.deleted_again
        ('newton', 'certified', 2, {})
    """
    policy, named = LevelPolicy(level, otherwise), named_choice(method, options)
    after = next_state(trained, graph, new_graph, named, trust_ids=trust_ids)
    task = Task.of(trained, graph, None, retained=after, device=device)
    fields = expected(task, policy, named, options)
    try:
        returning_items(trained, graph, after, readmit, readmit_request)
    except Refused as refusal:
        fields |= {"level": None, "meaning": f"would be refused: {refusal}", "seconds": 0.0}
    found = deleted_again(trained, graph, after)
    return UpdatePlan(
        **fields,
        **count_changes(graph, after),
        removed=task.touched.num_removed,
        deleted_again={} if found is None else count_items(found),
    )
