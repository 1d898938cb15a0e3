"""CGU, certified graph unlearning for linear models: a Newton step under a budget, with noise in the objective."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, get_args

from torch import Tensor

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.objective_noise import gradient_residual_bound, linear_one_vs_rest
from graphforget.certificates.conditions import sentence
from graphforget.errors import InputError, Refused
from graphforget.linalg.cg import conjugate_gradient
from graphforget.linalg.lanczos import extreme_eigenvalues
from graphforget.models.fixed import FixedPropagation
from graphforget.privacy.gaussian import mu_gdp
from graphforget.training.objective import Objective
from graphforget.training.retraining import trained_anew
from graphforget.training.rounding import rounding_allowance
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import CGU
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.perturbation import claim_of
from graphforget.unlearning.task import Task

Budget = Literal["joint", "published"]

SOLVED = 1e-8  # relative residual of the step's equation; the residual is counted
THIRD_DERIVATIVE = 1 / 4  # of the logistic loss, as published; its true maximum is 1 / (6 sqrt 3)


@dataclass(frozen=True)
class CguOptions:
    """How the budget is counted: for all classes together ("joint"), or as the sum over the classes ("published").

    In the published count the classes spend `C` budgets of `noise epsilon / sqrt(2 ln(1.5 / delta))` together. In both
    cases the epsilon of the claim is that of all classes together.
    """

    budget: Budget = "joint"

    def __post_init__(self) -> None:
        if self.budget not in get_args(Budget):
            raise InputError(f"the budget is {self.budget!r}, it must be one of {', '.join(get_args(Budget))}")


class Budgeted(Protocol):
    """Options that say how the budget is counted."""

    @property
    def budget(self) -> Budget: ...


Options = TypeVar("Options", bound=Budgeted)


class BudgetedNewton(Method[Options]):
    """`theta + H'^-1 (grad m F - grad m' F')` with `H'` the Hessian of `m' F'` (docs/maths.md, section 10).

    The gradient after the step is at most `(1/4) max_i ||z_i|| ||Z|| ||s_k|| ||Z s_k||` for class k, with
    `s_k` its part of the step and `z_i` the propagated rows. These bounds add up over requests; when they exceed
    the budget `noise mu_gdp(epsilon, delta)`, the model is trained again with fresh noise.
    """

    refuses_no_op = False  # a step may be 0; the remaining gradient is measured

    def unsupported(self, trained: Trained) -> str | None:
        if not linear_one_vs_rest(trained):
            needed = "fixed propagation, the loss one_vs_rest and noise in the objective"
            return f"it needs {needed}, as the model {self.models!r} has"
        return None

    def gradients(self, trained: Trained) -> int:
        return 30

    def change(self, task: Task, options: Options) -> MethodResult:
        trained, theta = task.trained, task.theta
        before, after = self.objectives(task, options)
        task.progress("gradients", 0, 0)
        there = after.gradient(theta)
        change = before.m * before.gradient(theta) - after.m * there
        task.progress("step", 0, 0)
        product = after.hessian(theta)
        solved = conjugate_gradient(product, change / after.m, tolerance=SOLVED)
        unsolved = float((change - after.m * product(solved.x)).norm())
        unsolved += after.m * rounding_allowance(after, theta, gradient_norm=float(there.norm()))
        unsolved += self.feature_error(task, options, theta + solved.x)
        by_class = step_bounds(after, solved.x)
        joint = float(by_class.norm()) + unsolved
        added = float(by_class.sum()) + math.sqrt(by_class.numel()) * unsolved
        entry = task.history_entry(self.name, theta + solved.x)
        started = time.perf_counter()
        updated = trained.with_update(theta + solved.x, task.after, entry).amend_last_entry(
            gradient_residual_bound=joint, gradient_residual_bound_by_class=self.counted_by_class(by_class, added)
        )
        uncounted = 0.0 if after is task.after else time.perf_counter() - started
        spent, allowed = self.spending(updated, task, options)
        details: dict[str, Any] = {
            "iterations": solved.iterations,
            "bound": joint,
            "bound_by_class": added,
            "spent": spent,
            "budget": allowed,
            "retrained": False,
        }
        claim, measurements = self.claim(task, updated, options)
        if spent > allowed:
            return self._trained_anew(task, options, details, f"the budget is spent ({spent:.3g} of {allowed:.3g})")
        if claim.void:
            return self._trained_anew(task, options, details, _why_void(measurements))
        return MethodResult(updated, claim, measurements, details, uncounted=uncounted)

    def objectives(self, task: Task, options: Options) -> tuple[Objective, Objective]:
        """The objectives before and after the request that the step is computed with."""
        return task.before, task.after

    def feature_error(self, task: Task, options: Options, theta: Tensor) -> float:
        """A bound on what errors of the features add to the gradient, before the step and at `theta` after it."""
        return 0.0

    def counted_by_class(self, by_class: Tensor, added: float) -> float:
        """The part of the published budget that the step takes."""
        return added

    def spending(self, updated: Trained, task: Task, options: Options) -> tuple[float, float]:
        """The spent budget including this step, and the budget, both as norms of a gradient."""
        if options.budget == "joint":
            m, noise = task.after.m, updated.recipe.objective_noise
            return gradient_residual_bound(updated, m=m), noise * mu_gdp(
                epsilon=task.target.epsilon, delta=task.target.delta
            )
        return math.fsum(entry.gradient_residual_bound_by_class for entry in updated.history), published_budget(
            updated, task
        )

    def _trained_anew(self, task: Task, options: Options, details: dict[str, Any], reason: str) -> MethodResult:
        """Trains again with fresh noise if a step has no guarantee. The claim is worded as after a step."""
        if not task.may_retrain:
            raise Refused(f"{reason}, and retraining was ruled out")
        recipe = task.trained.recipe
        given: Any = {"noise_seed": task.noise_seed, "device": task.device, "progress": task.progress}
        seed = recipe.seed if task.seed is None else task.seed
        fitted = trained_anew(task.trained, task.retained, seed=seed, **given)
        claim, measurements = self.claim(task, fitted, options)
        note = f"{reason}, so the model was trained again"
        return MethodResult(fitted, claim, measurements, details | {"retrained": True}, (note,))

    def _untouched(self, task: Task, options: Options) -> MethodResult:
        change = super()._untouched(task, options)
        if not change.claim.void:
            return change
        return self._trained_anew(task, options, {"untouched": True}, _why_void(change.measurements))

    def claim(self, task: Task, trained: Trained, options: Options) -> tuple[Claim, dict[str, Any]]:
        budget = None if options.budget == "joint" else published_budget(trained, task)
        return claim_of(trained, task, budget=budget)


class Cgu(BudgetedNewton[CguOptions], info=CGU):
    """The step with the features of the graph, which are propagated anew for every request."""

    options = CguOptions


def step_bounds(objective: Objective, step: Tensor) -> Tensor:
    """For each class a bound on the gradient of the summed objective after the Newton step `s_k`.

    `||sum_i (l''(z_i . w') - l''(z_i . w)) (z_i . s) z_i|| <= (1/4) max ||z_i|| ||s|| ||Z|| ||Z s||`, with the largest
    row norm and the spectral norm of `Z`. The spectral norm is estimated by Lanczos, raised by 1 % and capped by the
    Frobenius norm. The factor 1/4 covers the error of this estimate: the proof needs only a fifth of it.
    """
    data, module = objective.data, objective.data.module
    assert isinstance(module, FixedPropagation)
    jacobian = data.jacobian(step)
    rows = module.feature_norms(*data.inputs)[data.rows]
    largest = extreme_eigenvalues(lambda v: jacobian.adjoint(jacobian.apply(v)), step, steps=30).largest
    norm = min(1.01 * math.sqrt(largest), float(rows.norm()))
    weight, bias = module.parts(step)
    squares = weight.square().sum(dim=(0, 1)) + (0 if bias is None else bias.square())
    return THIRD_DERIVATIVE * rows.max() * norm * squares.sqrt() * jacobian.apply(step).norm(dim=0)


def _why_void(measurements: dict[str, Any]) -> str:
    """The reason why nothing can be claimed for the updated weights."""
    if measurements.get("obstacles"):
        return f"nothing can be claimed ({measurements['obstacles'][0]})"
    refuted = measurements.get("refuted")
    return f"a condition does not hold ({sentence(refuted[0])})" if refuted else "the budget is spent"


def published_budget(trained: Trained, task: Task) -> float:
    """The budget of all classes together; each class has the same share."""
    noise, target = trained.recipe.objective_noise, task.target
    return task.graph.num_classes * noise * target.epsilon / math.sqrt(2 * math.log(1.5 / target.delta))
