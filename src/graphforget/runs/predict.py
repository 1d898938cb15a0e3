"""The predictions of the released model of a run directory, for its nodes or graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphforget.certificates.document import Certificate
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.models.constructions import OwnModel
from graphforget.models.items import GRAPH, LINK
from graphforget.runs.layout import CERTIFICATE, open_run
from graphforget.runs.released import load_released
from graphforget.training.losses import Loss, LossFunction


@dataclass(frozen=True)
class Predictions:
    """What a released model answers. It names nodes, so it is private; nothing in it depends on deleted data."""

    certificate: str  # the id of the certificate of the weights
    item: str  # "node" or "graph"
    columns: tuple[str, ...]
    rows: tuple[tuple[int | str | float, ...], ...]  # a name, what is predicted, and numbers

    def to_dict(self) -> dict[str, Any]:
        """The object of `predict --json`."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"audience": "private", "certificate": self.certificate, "item": self.item, "predictions": rows}


def predict_run(
    run: str | Path,
    nodes: Sequence[int | str] | None = None,
    *,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
) -> Predictions:
    """The predictions of the released model of a run directory: classes with probabilities, labels, or values.

    Args:
        run: The run directory. It has answered a request.
        nodes: The nodes, named as in a request; all by default. Of a collection, the graphs.
        model: An instance of the user's own module, or the result of `stacked` or `boosted`, if the run has one.
        loss: The user's own loss, if the run has one.

    Returns:
        The predictions, in the order of `nodes`.

    Raises:
        InputError: The run has released nothing, or a node is not in its graph, or the model answers for links.
    """
    released, graph = load_released(run, model=model, loss=loss)
    with open_run(run) as place:
        certificate = Certificate.read(place / CERTIFICATE).id
    items = released.items(graph)
    if items.word == LINK:
        raise InputError(
            "the model answers for links: give pairs of nodes to link_logits of the released model instead"
        )
    if items.word == GRAPH:
        numbers = graph.numbers_of_graphs.tolist() if nodes is None else graph.numbers_by_name(nodes)
        rows, names = items.rows_of(torch.tensor(numbers)), [graph.name_of_graph(number) for number in numbers]
    else:
        listed = list(range(graph.num_nodes)) if nodes is None else [graph.row(node) for node in nodes]
        rows, names = torch.tensor(listed, dtype=torch.int64), [graph.name_of(row) for row in listed]
    columns, values = _answers(released.logits(graph, rows), graph, released.score_kind(graph))
    listed_rows = tuple((name, *row) for name, row in zip(names, values, strict=True))
    return Predictions(certificate, items.word, (items.word, *columns), listed_rows)


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
