"""CEU, certified edge unlearning: an influence step whose bound is covered by noise in the objective."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from graphforget.certificates.assumptions import convexity
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.objective_noise import CEU_CONDITIONS, bounds_its_steps
from graphforget.certificates.conditions import CONVEX, ConditionCheck
from graphforget.certificates.levels import Level
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.privacy.paper_bounds import Constants, ceu_data_dependent_residual, ceu_worst_residual
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import CEU
from graphforget.unlearning.curvature_solve import Curvature, Solver
from graphforget.unlearning.influence import influence_step
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.perturbation import claim_of
from graphforget.unlearning.task import Task

Bound = Literal["data-dependent", "worst"]


@dataclass(frozen=True)
class CeuOptions:
    """The bound of the claim, its constants, and how the step is computed."""

    bound: Bound = "data-dependent"
    constants: Constants = field(default_factory=Constants)
    curvature: Curvature | None = None
    tolerance: float | None = None
    iterations: int | None = None
    damping: float = 0.0

    def __post_init__(self) -> None:
        if self.bound not in get_args(Bound):
            raise InputError(f"the bound is {self.bound!r}, it must be one of {', '.join(get_args(Bound))}")
        object.__setattr__(self, "constants", Constants.of(self.constants))
        self.curvature_solver()  # checks its own

    def curvature_solver(self) -> Solver:
        return Solver(
            curvature=self.curvature, tolerance=self.tolerance, iterations=self.iterations, damping=self.damping
        )


class Ceu(Method[CeuOptions], info=CEU):
    """IDEA's step for edges alone, with CEU's bounds on the gradient that it leaves (docs/maths.md, section 10).

    `gamma1 ||step||^2` (data-dependent) or `gamma1 gamma2^2 c1^2 (2 |dE|)^2 / (lambda^4 m)` (worst), both of the mean
    objective. Its proof uses the Hessian on the retained graph, but the step uses the Hessian on the graph before the
    request. Therefore it is measured whether the gradient is within the bound. Without noise in the objective nothing
    is claimed.
    """

    options = CeuOptions
    needs_classes = True

    def gradients(self, trained: Trained) -> int:
        return 60

    def best_level(self, trained: Trained, graph: Graph, options: CeuOptions) -> Level:
        return "empirical" if trained.certification_blockers or not trained.recipe.objective_noise else self.level

    def expected_level(self, task: Task, options: CeuOptions) -> Level:
        level = super().expected_level(task, options)
        trained = task.trained
        if (
            level == "empirical"
            or trained.refuted
            or not bounds_its_steps(trained)
            or trained.recipe.noise_seed is not None
        ):
            return "empirical"
        finding = convexity(task.before, task.theta, options.constants, strongly_convex=trained.strongly_convex)
        return "empirical" if finding.fails else level

    def change(self, task: Task, options: CeuOptions) -> MethodResult:
        step = influence_step(task, options.curvature_solver(), method=self.name)
        m = task.after.m
        length = step.trained.history[-1].step_norm
        removed = task.request.resolve(task.graph).edges.shape[1]
        touched = removed if not task.graph.directed else 2 * removed  # both ends of every edge
        bounds = {
            "data-dependent": ceu_data_dependent_residual(step_norm=length, constants=options.constants),
            "worst": ceu_worst_residual(m=m, touched=touched, constants=options.constants),
        }
        left = m * bounds[options.bound]
        trained = step.trained.amend_last_entry(gradient_residual_bound=left, gradient_residual_bound_by_class=left)
        started = time.perf_counter()
        claim, measurements = self.claim(task, trained, options)
        uncounted = time.perf_counter() - started
        details = {
            "step": step.summary(),
            "bounds": bounds,
            "gradient_left": trained.gradient_norm,
            "objective_after": trained.objective_value,
        }
        trained = trained.amend_last_entry(refuted=tuple(measurements.get("refuted", ())))
        return MethodResult(trained, claim, measurements, details, tuple(step.notes), uncounted=uncounted)

    def claim(self, task: Task, trained: Trained, options: CeuOptions) -> tuple[Claim, dict[str, Any]]:
        constants, convex = options.constants, trained.strongly_convex
        assumed = [
            ConditionCheck(name, None, getattr(constants, constant), "not checkable", "a constant that CEU declares")
            for name, constant in CEU_CONDITIONS
            if name != CONVEX
        ]
        if trained.recipe.objective_noise and not trained.certification_blockers:
            assumed.append(convexity(task.before, task.theta, constants, strongly_convex=convex))
        return claim_of(trained, task, constants=constants, more=tuple(assumed))
