"""Inject, then delete: an attacker adds crafted nodes before training and asks for their deletion later.

The deletion is a valid request. Retraining is immune: it ends where training without the nodes would have ended. A
method that only approximates may be thrown off by such a request, and then its accuracy falls.

This is a simple form of the published attack. Instead of a search over attributes and edges, every injected node
copies a training node, carries a wrong label and is linked to the training nodes of the highest degree. Or the copied
nodes are those with the largest loss gradient of a surrogate, which is approximated by their loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.canaries import with_nodes
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.targets import has_target
from graphforget.request.request import Request
from graphforget.training.trained import Trained
from graphforget.validation import whole_number

Choice = Literal["random", "loss"]


@dataclass(frozen=True)
class Injection:
    """A graph with injected nodes, and the request that deletes them."""

    planted: Graph
    request: Request
    clean: Graph


@dataclass(frozen=True)
class Robustness:
    """Test scores around an injection: of the clean model, before and after the deletion."""

    clean: float  # trained without the injected nodes
    before: float  # trained with them
    after: float  # after the deletion

    @property
    def drop(self) -> float:
        """By how much the deletion leaves the score below that of the clean model."""
        return self.clean - self.after


def inject(
    graph: Graph,
    *,
    count: int,
    seed: int,
    links: int = 10,
    choice: Choice = "random",
    surrogate: Trained | None = None,
) -> Injection:
    """Adds `count` training nodes with wrong labels, each linked to `links` of the training nodes of highest degree.

    With `choice="loss"` they copy the training nodes on which the model `surrogate` of the attacker has the largest
    loss, else random ones.

    Raises:
        InputError: There are fewer than two classes, or a number is out of range.
    """
    rng = np.random.default_rng(whole_number(seed, "the seed"))
    rows = (graph.train_mask & has_target(graph.y)).nonzero().flatten()
    classes = graph.y[rows].unique().numpy()
    if len(classes) < 2:
        raise InputError("an injection needs training nodes of two classes at least")
    if not whole_number(count, "the number of injected nodes") >= 1 or not whole_number(links, "links") >= 1:
        raise InputError("at least 1 injected node and 1 link are needed")
    templates = _templates(graph, rows, count, choice, surrogate, rng)
    labels = graph.y.numpy()[templates]
    wrong = np.array([rng.choice(classes[classes != label]) for label in labels], dtype=np.int64)
    degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes)[rows]
    hubs = rows[degrees.argsort(descending=True, stable=True)].numpy()[: max(links, min(len(rows), 5 * links))]
    ends = np.concatenate([rng.choice(hubs, min(links, len(hubs)), replace=False) for _ in range(count)])
    new = np.repeat(np.arange(graph.num_nodes, graph.num_nodes + count), min(links, len(hubs)))
    planted = with_nodes(graph, templates, wrong, np.stack([ends, new]))
    names = [planted.name_of(row) for row in range(graph.num_nodes, graph.num_nodes + count)]
    return Injection(planted, Request(nodes=names), graph)


def _templates(
    graph: Graph, rows: Tensor, count: int, choice: Choice, surrogate: Trained | None, rng: np.random.Generator
) -> np.ndarray:
    if choice == "random":
        return rng.choice(rows.numpy(), count, replace=len(rows) < count)
    if surrogate is None:
        raise InputError("the choice by loss needs a surrogate model of the attacker")
    log_probabilities = surrogate.logits(graph).log_softmax(dim=1)[rows, graph.y[rows]]
    hardest: np.ndarray = rows[log_probabilities.argsort(stable=True)].numpy()
    return np.resize(hardest, count) if len(hardest) < count else hardest[:count]


def robustness(clean: Trained, before: Trained, after: Trained, injection: Injection) -> Robustness:
    """The test scores of the three models, all on the graph without the injected nodes."""
    models = (clean, before, after)
    return Robustness(*(model.utility(injection.clean) for model in models))
