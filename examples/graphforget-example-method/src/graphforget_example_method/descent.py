"""Gradient descent on the retained graph, from the old weights."""

from __future__ import annotations

from dataclasses import dataclass

from graphforget.certificates.claims.empirical import Empirical
from graphforget.errors import InputError
from graphforget.training.trained import Trained
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.task import Task


@dataclass(frozen=True)
class DescentOptions:
    """The number of steps, and their length."""

    steps: int = 20
    learning_rate: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.steps, int) or self.steps < 1:
            raise InputError(f"steps is {self.steps!r}, at least 1 is needed")


class Descent(Method[DescentOptions]):
    """`theta - eta grad F'(theta)`, a few times, with `F'` the objective on the retained graph."""

    name = "descent"
    title = "Gradient descent on the retained graph"
    reference = "-"
    level = "empirical"
    options = DescentOptions

    def gradients(self, trained: Trained) -> int:
        return 20

    def change(self, task: Task, options: DescentOptions) -> MethodResult:
        theta = task.theta
        for done in range(options.steps):
            task.progress("descent", done, options.steps)
            theta = theta - options.learning_rate * task.after.gradient(theta)
        updated = task.trained.with_update(theta, task.after, task.history_entry(self.name, theta))
        return MethodResult(updated, Empirical("a few steps of gradient descent"), details={"steps": options.steps})
