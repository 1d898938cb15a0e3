"""`curvature^-1 b` at the trained weights of any model: the choice of the matrix and the solver, and the fallbacks."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from graphforget.errors import InputError, Refused
from graphforget.graph.reach import Reach
from graphforget.linalg.cg import conjugate_gradient
from graphforget.linalg.dense import dense_solve
from graphforget.linalg.lanczos import extreme_eigenvalues
from graphforget.linalg.lissa import lissa
from graphforget.linalg.solution import Product, Solution
from graphforget.progress import Progress
from graphforget.training.loss_sum import LossSum
from graphforget.training.objective import Objective
from graphforget.validation import whole_number

Name = Literal["cg", "lissa", "dense"]
Curvature = Literal["hessian", "gauss-newton"]

MAX_ATTEMPTS = 12
MAX_RESIDUAL = 0.9  # relative; a step with a larger residual has almost no effect
SINGLE_PRECISION_TOLERANCE = 1e-3  # float32 is precise enough for this relative residual and larger ones
FAILURES = ("negative curvature", "diverged", "not finite")  # another matrix, damping or scale may help


@dataclass(frozen=True)
class Solver:
    """How `(A + damping I) x = b` is solved. None: chosen for the model at hand."""

    name: Name = "cg"
    curvature: Curvature | None = None  # the Hessian where it is positive definite by construction, else Gauss-Newton
    tolerance: float | None = None  # relative residual
    iterations: int | None = None
    damping: float = 0.0
    scale: float | None = None  # LiSSA's; by default the largest eigenvalue
    batch: int | None = None  # LiSSA's training nodes an iteration; by default all

    def __post_init__(self) -> None:
        if self.name not in get_args(Name):
            raise InputError(f"there is no solver {self.name!r}, only {', '.join(get_args(Name))}")
        if self.curvature not in (None, *get_args(Curvature)):
            raise InputError(f"there is no curvature {self.curvature!r}, only {' and '.join(get_args(Curvature))}")
        for name, value, above, below, allowed in (
            ("tolerance", self.tolerance, 0, MAX_RESIDUAL, f"a number between 0 and {MAX_RESIDUAL}"),
            ("scale", self.scale, 0, float("inf"), "a positive number"),
            ("damping", self.damping, -1e-300, float("inf"), "a finite number from 0"),
        ):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and above < value < below):
                raise InputError(f"the solver's {name} is {value!r}, {allowed} is needed")
        for name, count in (("iterations", self.iterations), ("batch", self.batch)):
            if count is not None and whole_number(count, f"the solver's {name}") == 0:
                raise InputError(f"the solver's {name} is 0, at least 1 is needed")
        for name, given in (("scale", self.scale), ("batch", self.batch)):
            if given is not None and self.name != "lissa":
                raise InputError(f"{name} belongs to the solver 'lissa', not to {self.name!r}")


@dataclass(frozen=True)
class SolverOptions:
    """The settings of a `Solver` that a caller may choose: the options that methods with an influence step share."""

    solver: Name = "cg"
    curvature: Curvature | None = None
    tolerance: float | None = None
    iterations: int | None = None
    damping: float = 0.0
    scale: float | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        self.curvature_solver()  # checks its own

    def curvature_solver(self) -> Solver:
        return Solver(
            name=self.solver,
            curvature=self.curvature,
            tolerance=self.tolerance,
            iterations=self.iterations,
            damping=self.damping,
            scale=self.scale,
            batch=self.batch,
        )


@dataclass(frozen=True)
class CurvatureSolution:
    """The solution, the solver that gave it, and a sentence for each fallback."""

    solution: Solution
    residual: float  # ||b - A x|| / ||b|| without damping
    solver: Solver
    notes: tuple[str, ...]
    seconds: float

    def summary(self) -> dict[str, object]:
        used = {k: v for k, v in dataclasses.asdict(self.solver).items() if v is not None}
        result = {"status": self.solution.status, "residual": self.residual}
        return used | result | {"iterations": self.solution.iterations, "seconds": self.seconds}


def solve(
    objective: Objective,
    theta: Tensor,
    b: Tensor,
    *,
    solver: Solver,
    strongly_convex: bool,
    reach: Reach,
    seed: int,
    progress: Progress,
) -> CurvatureSolution:
    """Solves for `x`, and falls back until the matrix is positive definite and the iteration contracts.

    If the Hessian is not positive definite, the Gauss-Newton matrix replaces it. If that is not positive definite
    either (the loss is not convex), the damping is raised. If LiSSA diverges, its scale is raised. A note reports each
    fallback.
    """
    started = time.perf_counter()
    solver = _with_defaults(solver, strongly_convex)
    notes: list[str] = []
    requested_damping, norm = solver.damping, float(b.norm()) or 1.0
    double = objective
    if not strongly_convex and (solver.tolerance or 0) >= SINGLE_PRECISION_TOLERANCE and solver.name != "dense":
        objective = objective.in_single_precision()
    for _ in range(MAX_ATTEMPTS):
        solution, residual, solver = _attempt(objective, theta, b / norm, solver, reach, seed, progress)
        if solution.status != "converged" and objective is not double:  # perhaps for want of precision
            objective = double
            continue
        if solution.status not in FAILURES:
            notes += _not_converged(solution)
            raised = solver.damping > requested_damping  # then the undamped equation has no solution
            _refuse_unsolved(residual, checked=solution.residual if raised else residual)
            solution = dataclasses.replace(solution, x=norm * solution.x)
            return CurvatureSolution(solution, residual, solver, tuple(notes), time.perf_counter() - started)
        solver, note = _fallback(solver, solution, mu=objective.mu, strongly_convex=strongly_convex)
        notes.append(note)
    raise Refused(f"no solver gave a step, the last status is {solution.status!r}; retrain (method 'retrain')")


def _with_defaults(solver: Solver, strongly_convex: bool) -> Solver:
    convex_tolerance = 1e-6 if solver.name != "lissa" else 1e-3
    return dataclasses.replace(
        solver,
        curvature=solver.curvature or ("hessian" if strongly_convex else "gauss-newton"),
        tolerance=solver.tolerance or (convex_tolerance if strongly_convex else 0.03),
        iterations=solver.iterations or (1000 if solver.name == "lissa" else 500),
    )


def _not_converged(solution: Solution) -> list[str]:
    """A note if the iteration stopped before it converged."""
    if solution.status == "converged":
        return []
    reached = f"relative residual {solution.residual:.1e} after {solution.iterations} iterations"
    return [f"the solver did not converge ({solution.status}): {reached}"]


def _refuse_unsolved(residual: float, *, checked: float) -> None:
    if checked >= MAX_RESIDUAL:
        raise Refused(
            f"the step leaves {100 * residual:.0f} % of its equation unsolved and would forget almost nothing: "
            "lower the damping or the scale, or allow more iterations"
        )


def _attempt(
    objective: Objective, theta: Tensor, b: Tensor, solver: Solver, reach: Reach, seed: int, progress: Progress
) -> tuple[Solution, float, Solver]:
    """A solution, its relative residual without the damping, and the solver with its scale filled in."""
    product = _product(objective, theta, solver)
    damping = solver.damping
    damped = product if damping == 0 else lambda v: product(v) + damping * v
    if solver.name == "lissa" and solver.scale is None:
        largest = extreme_eigenvalues(damped, b, steps=10).largest
        if not largest > 0:
            return Solution(b.clone(), "not finite", 0, float("inf")), float("inf"), solver
        solver = dataclasses.replace(solver, scale=1.1 * largest)

    def report(done: int, residual: float) -> None:
        progress(f"{solver.name}, residual {residual:.1e}", done, 0)

    limits: Any = {"tolerance": solver.tolerance, "on_iteration": report}
    if solver.name == "dense":
        solution = dense_solve(damped, b)
    elif solver.name == "cg":
        solution = conjugate_gradient(damped, b, max_iterations=solver.iterations or 0, **limits)
    else:
        draw = (lambda: product) if solver.batch is None else _Batches(objective, theta, solver, reach, seed).draw
        scale = solver.scale or 1.0
        limits |= {"scale": scale, "damping": damping / scale, "exact": damped}
        solution = lissa(draw, b, iterations=solver.iterations or 0, **limits)
    # In float32 the residual of the recurrence differs from the true one.
    exact = damping == 0 and objective.like.dtype == theta.dtype
    residual = solution.residual if exact else float((b - product(solution.x)).norm() / b.norm())
    return solution, residual, solver


def _product(part: Objective | LossSum, theta: Tensor, solver: Solver) -> Product:
    """Computed in the precision of the objective, returned in that of theta, which the sums of a solver need."""
    like = (part.data if isinstance(part, Objective) else part).like
    at = theta.to(like)
    product = part.hessian(at) if solver.curvature == "hessian" else part.gauss_newton(at)
    return product if like.dtype == theta.dtype else lambda v: product(v.to(like)).to(theta)


class _Batches:
    """Curvature products on a fresh sample of training nodes each time, on their neighbourhood alone."""

    def __init__(self, objective: Objective, theta: Tensor, solver: Solver, reach: Reach, seed: int) -> None:
        self._objective, self._theta, self._solver, self._reach = objective, theta, solver, reach
        self._generator = torch.Generator().manual_seed(seed)

    def draw(self) -> Product:
        rows = self._objective.items.train_rows
        size = min(self._solver.batch or rows.numel(), rows.numel())
        chosen = rows[torch.randperm(rows.numel(), generator=self._generator)[:size]].sort().values
        part = self._objective.on(chosen, reach=self._reach)
        product = _product(part, self._theta, self._solver)
        return lambda v: product(v) / size + self._objective.mu * v


def _fallback(solver: Solver, solution: Solution, *, mu: float, strongly_convex: bool) -> tuple[Solver, str]:
    """The solver to try next, and a note with the reason."""
    if solver.curvature == "hessian" and not strongly_convex:
        note = f"the Hessian is not positive definite ({solver.name}: {solution.status}), so Gauss-Newton was used"
        return dataclasses.replace(solver, curvature="gauss-newton", scale=None), note
    if solution.status == "not finite":
        raise Refused("the curvature at these weights is not finite, so there is no step; retrain (method 'retrain')")
    if solver.name == "lissa":
        assert solver.scale is not None
        scale = 10 * solver.scale
        return dataclasses.replace(solver, scale=scale), f"LiSSA diverged, so its scale was raised to {scale:.3g}"
    damping = 10 * solver.damping or mu
    note = f"the Gauss-Newton matrix is not positive definite (is the loss convex?), so damping rose to {damping:.3g}"
    return dataclasses.replace(solver, damping=damping), note
