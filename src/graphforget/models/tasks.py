"""What a model is trained for: to answer for nodes, for links or for the graphs of a collection."""

from __future__ import annotations

from typing import Literal, get_args

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.models.items import GRAPH, LINK, NODE
from graphforget.models.registry import MODELS

Task = Literal["node", "link", "graph"]
TASKS: tuple[Task, ...] = get_args(Task)
DEFAULT_MODELS = {NODE: "sgc", LINK: "sign", GRAPH: "wl"}
RELATIONAL = "relational-sign"  # of nodes, if the graph has relations


def model_name(graph: Graph, model: str | None, task: str | None) -> str:
    """The name in the registry: models for links and graphs have their task before their own name.

    The task is by default "graph" for a collection of graphs and "node" for any other graph; a name that starts with a
    task needs none.

    Raises:
        InputError: There is no such task or model, or the graph is not of this kind.
    """
    if task is not None and task not in TASKS:
        raise InputError(f"there is no task {task!r}, only {', '.join(TASKS)}")
    own = "" if model is None else model.lower()
    named = next((word for word in (LINK, GRAPH) if own.startswith(f"{word}-")), None)
    if named is not None and task not in (None, named):
        raise InputError(f"model {model!r} answers for {named}s, and the task is {task!r}")
    chosen = task or named or (GRAPH if is_collection(graph) else NODE)
    if (chosen == GRAPH) != is_collection(graph):
        kind = "a collection of graphs" if is_collection(graph) else "one graph"
        raise InputError(f"the task is {chosen!r}, and the data is {kind}")
    default = RELATIONAL if chosen == NODE and graph.relation_names is not None else DEFAULT_MODELS[chosen]
    name = default if model is None else own.removeprefix(f"{chosen}-")
    full = name if chosen == NODE else f"{chosen}-{name}"
    other = next((word for word in (LINK, GRAPH) if full not in MODELS and f"{word}-{name}" in MODELS), None)
    if other is not None and chosen == NODE:
        raise InputError(f"there is no model {name!r} for {chosen}s, it is for {other}s (task {other!r})")
    if full not in MODELS and chosen != NODE:
        others = [entry.removeprefix(f"{chosen}-") for entry in MODELS if entry.startswith(f"{chosen}-")]
        raise InputError(f"there is no model {name!r} for {chosen}s, only {', '.join(others)}")
    return full


def is_collection(graph: Graph) -> bool:
    """Whether the graph is a collection of graphs, so that its items are graphs."""
    return graph.graph_numbers is not None
