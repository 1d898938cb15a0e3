"""The predictions of the released model of a run directory, for its nodes or graphs, or for links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.schema import ANY, rows_of_type
from graphforget.models.constructions import OwnModel
from graphforget.models.items import GRAPH, LINK
from graphforget.models.relational import RelationalSIGN
from graphforget.runs.released import certified_release
from graphforget.training.losses import Loss, LossFunction


@dataclass(frozen=True)
class Predictions:
    """What a released model answers. It names nodes, so it is private; nothing in it depends on deleted data."""

    certificate: str  # the id of the certificate of the weights
    item: str  # "node", "graph" or "link"
    columns: tuple[str, ...]
    rows: tuple[tuple[int | str | float, ...], ...]  # names, what is predicted, and numbers

    def to_dict(self) -> dict[str, Any]:
        """The object of `predict --json`."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"audience": "private", "certificate": self.certificate, "item": self.item, "predictions": rows}


def predict_run(
    run: str | Path,
    nodes: Sequence[int | str] | None = None,
    *,
    pairs: Sequence[tuple[int | str, int | str]] | None = None,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
) -> Predictions:
    """The predictions of a released model: classes with probabilities, labels, values, or the logits of links.

    Args:
        run: The run directory. It has answered a request.
        nodes: The nodes, named as in a request; by default all, of a heterogeneous graph all of the type that is
            predicted. Of a collection, the graphs.
        pairs: For a model of links, the pairs of nodes.
        model: An instance of the user's own module, or the result of `stacked` or `boosted`, if the run has one.
        loss: The user's own loss, if the run has one.

    Returns:
        The predictions, in the order of `nodes` or `pairs`.

    Raises:
        InputError: The run has released nothing, or a node is not in its graph, or the model answers for other things.
    """
    released, graph, document = certified_release(run, model=model, loss=loss)
    certificate = document.id
    items = released.items(graph)
    if (items.word == LINK) != (pairs is not None) or (pairs is not None and nodes is not None):
        needed = "pairs of nodes are needed (--pairs)" if items.word == LINK else "it takes no pairs"
        raise InputError(f"the model answers for {items.word}s, so {needed}")
    if pairs is not None:
        logits = released.link_logits(graph, pairs).tolist()
        links = tuple((u, v, one) for (u, v), one in zip(pairs, logits, strict=True))
        return Predictions(certificate, items.word, ("source", "target", "logit"), links)
    if items.word == GRAPH:
        numbers = graph.numbers_of_graphs.tolist() if nodes is None else graph.numbers_by_name(nodes)
        rows, names = items.rows_of(torch.tensor(numbers)), [graph.name_of_graph(number) for number in numbers]
    else:
        listed = _rows(released.module, graph, nodes)
        rows, names = torch.tensor(listed, dtype=torch.int64), [graph.name_of(row) for row in listed]
    columns, values = _answers(released.logits(graph, rows), graph, released.score_kind(graph))
    listed_rows = tuple((name, *row) for name, row in zip(names, values, strict=True))
    return Predictions(certificate, items.word, (items.word, *columns), listed_rows)


def _rows(module: nn.Module, graph: Graph, nodes: Sequence[int | str] | None) -> list[int]:
    """The rows of these nodes; by default of all nodes that the model answers for, which are of one type."""
    if not isinstance(module, RelationalSIGN) or module.target == ANY:
        return list(range(graph.num_nodes)) if nodes is None else [graph.row(node) for node in nodes]
    answered = rows_of_type(graph, module.target).tolist()
    rows = answered if nodes is None else [graph.row(node) for node in nodes]
    others = set(rows) - set(answered)
    if others:
        raise InputError(f"node {graph.name_of(min(others))!r} is not of type {module.target!r}, which is predicted")
    return rows


def _answers(logits: Tensor, graph: Graph, kind: str) -> tuple[list[str], list[list[int | str | float]]]:
    """The columns and the rows of what is predicted."""
    names = list(graph.class_names or map(str, range(logits.shape[1])))
    if kind == "values":
        return [f"value {name}" for name in names], logits.tolist()
    if kind == "labels":
        return [f"probability {name}" for name in names], logits.sigmoid().tolist()
    chosen = [names[place] for place in logits.argmax(dim=1).tolist()]
    probabilities = logits.softmax(dim=1).tolist()
    rows = [[name, *row] for name, row in zip(chosen, probabilities, strict=True)]
    return ["prediction", *(f"probability {name}" for name in names)], rows
