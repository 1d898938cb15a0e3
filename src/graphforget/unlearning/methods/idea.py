"""IDEA, the paper's method: one influence step for any model, objective and mixture of requests."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from typing import Any

from graphforget.certificates.assumptions import convexity, measure_conditions
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.paper_bound import PaperBound
from graphforget.certificates.conditions import unmeasured_conditions, unproven_reach
from graphforget.certificates.levels import Level
from graphforget.errors import InputError
from graphforget.models.registry import reach_is_proven
from graphforget.privacy.paper_bounds import Constants
from graphforget.request.footprint import footprint
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import IDEA
from graphforget.unlearning.curvature_solve import SolverOptions
from graphforget.unlearning.influence import influence_step
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.serial_parts import serial_parts
from graphforget.unlearning.task import Task


@dataclass(frozen=True)
class IdeaOptions(SolverOptions):
    """How the step is computed, and the constants of the claim.

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


class Idea(Method[IdeaOptions], info=IDEA):
    """`theta_bar = theta* - (1/m) H^-1 (grad L_add - grad L_sub)` (docs/maths.md, section 6).

    `H` is the Hessian of `F` on `G` where that is positive definite by construction, the Gauss-Newton matrix elsewhere.
    The claim is the paper's bound under declared `constants`, with an audit of its assumptions.
    """

    options = IdeaOptions
    takes_sigma = True

    def unsupported(self, trained: Trained) -> str | None:
        if trained.was_updated:
            return "the graph was updated since training, which the paper's bound does not cover"
        return super().unsupported(trained)

    def gradients(self, trained: Trained) -> int:
        return 60  # about 25 curvature products of two passes each, the footprint, the length of the step

    def expected_level(self, task: Task, options: IdeaOptions) -> Level:
        level = super().expected_level(task, options)
        return "empirical" if level == "conditional" and _is_refuted_before_the_step(task, options) else level

    def change(self, task: Task, options: IdeaOptions) -> MethodResult:
        trained = task.trained
        notes: list[str] = []
        steps: list[dict[str, Any]] = []
        for part in (_serially(task) if options.serial else []) or [task]:
            part = part if not steps else dataclasses.replace(part, trained=trained)
            step = influence_step(part, options.curvature_solver(), method=self.name)
            trained = step.trained
            notes += step.notes
            steps.append(step.summary())
        started = time.perf_counter()
        claim, measurements = self.claim(task, trained, options)
        trained = trained.amend_last_entry(refuted=tuple(measurements.get("refuted", ())))
        if task.target.sigma is None and not trained.recipe.sigma and claim.number("sigma"):
            notes.append(
                "the size of the noise depends on this request and reveals something about it; a fixed sigma would not"
            )
        if options.audit and len(trained.history) > len(steps):
            notes.append(
                "the audit measured this request; the bound assumes the same conditions for the requests before it"
            )
        details = {"steps": steps, "objective_after": trained.objective_value, "audited": options.audit}
        uncounted = time.perf_counter() - started
        return MethodResult(trained, claim, measurements, details, tuple(notes), uncounted=uncounted)

    def claim(self, task: Task, trained: Trained, options: IdeaOptions) -> tuple[Claim, dict[str, Any]]:
        """The paper's claim for `trained`, with the audit unless it was left out."""
        if trained.certification_blockers:
            claim = Empirical("the model may carry data past its weights", refuted=True)
            return claim, {"obstacles": list(trained.certification_blockers)}
        recipe, constants = trained.recipe, options.constants
        training: dict[str, Any] = {
            "constants": constants,
            "training_gradient": trained.history[0].gradient_norm,
            "training_tolerance": recipe.tolerance * recipe.mu,
        }
        if options.audit:
            findings = measure_conditions(
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
            findings = unmeasured_conditions(**training)
        if not reach_is_proven(trained.module):
            findings = (*findings, unproven_reach())
        return PaperBound.issue(
            trained,
            epsilon=task.target.epsilon,
            delta=task.target.delta,
            sigma=task.target.sigma if task.target.sigma is not None else recipe.sigma or None,
            constants=constants,
            findings=findings,
        )


def _is_refuted_before_the_step(task: Task, options: IdeaOptions) -> bool:
    """Whether a condition fails for the present model already, before the step is computed."""
    trained, recipe = task.trained, task.trained.recipe
    gradient_norm = trained.history[0].gradient_norm if trained.history else trained.gradient_norm
    if trained.refuted or gradient_norm > recipe.tolerance * recipe.mu:
        return True
    convex = trained.strongly_convex
    return options.audit and convexity(task.before, task.theta, options.constants, strongly_convex=convex).fails


def _serially(task: Task) -> list[Task]:
    """A task for each part of the request, each on the retained graph of the part before."""
    tasks: list[Task] = []
    graph, reach = task.graph, task.trained.reach
    for part in serial_parts(graph, task.request, reach):
        touched = footprint(graph, part, reach)
        retained = graph.without(part)
        if not touched.empty:
            tasks.append(dataclasses.replace(task, graph=graph, asked=part, retained=retained, touched=touched))
        graph = retained
    return tasks
