"""Gradient ascent on the data to delete, a common baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.errors import InputError, Refused
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import ASCENT
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.task import Task
from graphforget.validation import positive_number, whole_number


@dataclass(frozen=True)
class AscentOptions:
    """The number of steps, and the learning rate."""

    steps: int = 10
    learning_rate: float = 0.01

    def __post_init__(self) -> None:
        if whole_number(self.steps, "steps") == 0:
            raise InputError("steps is 0, at least 1 is needed")
        positive_number(self.learning_rate, "learning_rate")


class Ascent(Method[AscentOptions], info=ASCENT):
    """`theta + eta grad (1/|U|) sum_U l_i(theta; G)`, a few times.

    `U` are the training nodes that the request names: deleted nodes, the ends of deleted edges, nodes that lose
    attributes. If it names no training node, `U` are those whose loss it changes. The model gets worse on `U`, but that
    does not mean that it has forgotten them: the weights do not approach those of retraining.
    """

    options = AscentOptions
    needs_classes = True

    def gradients(self, trained: Trained) -> int:
        return 10

    def change(self, task: Task, options: AscentOptions) -> MethodResult:
        rows = named_rows(task)
        losses = task.before.on(rows, reach=task.trained.reach)
        theta = task.theta
        start = losses.value(theta) / rows.numel()
        for done in range(options.steps):
            task.progress("ascent", done, options.steps)
            theta = theta + options.learning_rate * losses.gradient(theta) / rows.numel()
        if not math.isfinite(float(theta.norm())):
            raise Refused("the ascent diverged; take fewer steps or lower the learning rate, or retrain")
        updated = task.trained.with_update(theta, task.after, task.history_entry(self.name, theta))
        claim, _ = self.claim(task, updated, options)
        details = {"nodes": rows.numel(), "loss_before": start, "loss_after": losses.value(theta) / rows.numel()}
        return MethodResult(updated, claim, details=details)

    def claim(self, task: Task, trained: Trained, options: AscentOptions) -> tuple[Claim, dict[str, Any]]:
        return Empirical("the loss on the removed data was raised, which guarantees nothing"), {}


def named_rows(task: Task) -> Tensor:
    """The training nodes that the request names, or else those in its footprint, as rows of the graph before it."""
    resolved, graph = task.request.resolve(task.graph), task.graph
    kinds = (resolved.node_rows, resolved.edge_ends, resolved.full_rows, resolved.partial_rows, resolved.label_rows)
    named = torch.cat(kinds).unique()
    named = named[graph.train_mask[named]]
    return named if named.numel() else torch.cat([task.touched.affected, task.touched.removed]).sort().values
