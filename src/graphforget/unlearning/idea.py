"""IDEA, the paper's method: one influence step for any model, objective and mixture of requests."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from typing import Any

from graphforget.certificates.assumptions import audit, unaudited, unproven_reach
from graphforget.certificates.claim import Claim, conditional, empirical
from graphforget.certificates.paper_bounds import Constants, sequential_bound
from graphforget.errors import InputError
from graphforget.footprint import footprint
from graphforget.losses import is_convex
from graphforget.models.registry import reach_is_proven
from graphforget.trained import Trained
from graphforget.unlearning.base import Method, Task
from graphforget.unlearning.influence import influence_step
from graphforget.unlearning.outcome import Change
from graphforget.unlearning.serial import serial_parts
from graphforget.unlearning.solve import SolverOptions


@dataclass(frozen=True)
class IdeaOptions(SolverOptions):
    """How the step is solved for, and what is claimed of it.

    `serial` unlearns overlapping kinds of request one after the other, as the paper does. `audit=False` leaves out the
    measurement of the assumptions, which takes longer than the step.
    """

    serial: bool = False
    constants: Constants = field(default_factory=Constants)
    audit: bool = True

    def __post_init__(self) -> None:
        for name, value in (("serial", self.serial), ("audit", self.audit)):
            if not isinstance(value, bool):
                raise InputError(f"{name} is {value!r}, true or false is needed")
        object.__setattr__(self, "constants", Constants.of(self.constants))
        super().__post_init__()


class Idea(Method[IdeaOptions]):
    """`theta_bar = theta* - (1/m) H^-1 (grad L_add - grad L_sub)` (docs/maths.md, section 6).

    `H` is the Hessian of `F` on `G` where that is positive definite by construction, the Gauss-Newton matrix elsewhere.
    The claim is the paper's bound under declared `constants`, with an audit of what it assumes.
    """

    options = IdeaOptions
    name = "idea"
    title = "IDEA, one influence step with the paper's bound"
    reference = "Dong et al., KDD 2024"
    level = "conditional"
    sequential = "bounds add up"

    def gradients(self, trained: Trained) -> int:
        return 60  # about 25 curvature products of two passes each, the footprint, the length of the step

    def change(self, task: Task, options: IdeaOptions) -> Change:
        trained = task.trained
        notes: list[str] = []
        steps: list[dict[str, Any]] = []
        for part in (_serially(task) if options.serial else []) or [task]:
            part = part if not steps else dataclasses.replace(part, trained=trained)
            step = influence_step(part, options.way(), method=self.name)
            trained = step.trained
            notes += step.notes
            steps.append(step.summary())
        started = time.perf_counter()
        claim = _claim(task, trained, options)
        trained = trained.with_last(refuted=claim.refuted)
        if task.asked.sigma is None and not trained.recipe.sigma and claim.sigma:
            notes.append("the noise was sized for this request, and its size tells of it; a fixed sigma would not")
        if options.audit and len(trained.history) > len(steps):
            notes.append("the audit looked at this request; the bound assumes the same of those before it")
        details = {"steps": steps, "objective_after": trained.objective_value, "audited": options.audit}
        return Change(trained, claim, details, tuple(notes), uncounted=time.perf_counter() - started)

    def standing(self, task: Task, options: IdeaOptions) -> Claim:
        return _claim(task, task.trained, options)


def _claim(task: Task, trained: Trained, options: IdeaOptions) -> Claim:
    """The paper's claim for `trained`, with the audit unless it was left out."""
    if trained.obstacles:
        return empirical(f"nothing is guaranteed, because of the model: {trained.obstacles[0]}")
    recipe, constants = trained.recipe, options.constants
    training: dict[str, Any] = {
        "constants": constants,
        "training_gradient": trained.history[0].gradient_norm,
        "training_tolerance": recipe.tolerance * recipe.mu,
    }
    if options.audit:
        conditions = audit(
            task.before,
            task.after,
            start=task.theta,
            end=trained.theta.to(task.theta),
            removed=task.touched.removed,
            removed_before=any(entry.removed for entry in task.trained.history),
            strongly_convex=trained.strongly_convex,
            on_part=task.progress,
            **training,
        )
    else:
        conditions = unaudited(**training)
    if not reach_is_proven(trained.module):
        conditions = (*conditions, unproven_reach())
    return conditional(
        distance=distance_bound(trained, constants),
        epsilon=task.asked.epsilon,
        delta=task.asked.delta,
        sigma=task.asked.sigma if task.asked.sigma is not None else recipe.sigma or None,
        constants=constants,
        conditions=conditions,
        refuted_before=trained.refuted,
    )


def distance_bound(trained: Trained, constants: Constants) -> float:
    """The paper's sequential bound over the model's history, and what its training left undone over lambda."""
    history = trained.history
    return (
        sequential_bound(
            m=history[0].m,
            removed=[entry.removed for entry in history],
            affected=[entry.affected for entry in history],
            step_norms=[entry.step_norm for entry in history],
            constants=constants,
            nonnegative_losses=is_convex(trained.loss),
        )
        + history[0].gradient_norm / constants.strong_convexity
    )


def _serially(task: Task) -> list[Task]:
    """A task for each part of the request, each on the graph that the one before leaves."""
    tasks: list[Task] = []
    graph, reach = task.graph, task.trained.reach
    for part in serial_parts(graph, task.request, reach):
        touched = footprint(graph, part, reach)
        retained = graph.without(part)
        if not touched.empty:
            tasks.append(dataclasses.replace(task, graph=graph, request=part, retained=retained, touched=touched))
        graph = retained
    return tasks
