"""`curvature^-1 b` at trained weights, whatever the model: which matrix, which solver, and what to do when it fails."""

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
from graphforget.training.objective import LossSum, Objective
from graphforget.validation import whole_number

Name = Literal["cg", "lissa", "dense"]
Curvature = Literal["hessian", "gauss-newton"]

MOST_RETRIES = 12
MOST_LEFT = 0.9  # of the right-hand side: a step that leaves more of it unsolved does next to nothing
SINGLE_ENOUGH = 1e-3  # from this relative residual on float32 will do


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
        for name, value, above, below, wanted in (
            ("tolerance", self.tolerance, 0, MOST_LEFT, f"a number between 0 and {MOST_LEFT}"),
            ("scale", self.scale, 0, float("inf"), "a positive number"),
            ("damping", self.damping, -1e-300, float("inf"), "a finite number from 0"),
        ):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and above < value < below):
                raise InputError(f"the solver's {name} is {value!r}, {wanted} is needed")
        for name, count in (("iterations", self.iterations), ("batch", self.batch)):
            if count is not None and whole_number(count, f"the solver's {name}") == 0:
                raise InputError(f"the solver's {name} is 0, at least 1 is needed")
        for name, given in (("scale", self.scale), ("batch", self.batch)):
            if given is not None and self.name != "lissa":
                raise InputError(f"{name} belongs to the solver 'lissa', not to {self.name!r}")


@dataclass(frozen=True)
class SolverOptions:
    """What a caller may set of a `Solver`: the options that methods with an influence step share."""

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
class Solved:
    """The solution, the way it was got in the end, and each fall-back in a sentence."""

    solution: Solution
    left: float  # ||b - A x|| / ||b|| without damping
    solver: Solver
    notes: tuple[str, ...]
    seconds: float

    def summary(self) -> dict[str, object]:
        used = {k: v for k, v in dataclasses.asdict(self.solver).items() if v is not None}
        found = {"status": self.solution.status, "residual": self.left}
        return used | found | {"iterations": self.solution.iterations, "seconds": self.seconds}


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
) -> Solved:
    """Solves for `x`, falling back until the matrix is positive definite and the iteration contracts.

    A Hessian that is not positive definite gives way to the Gauss-Newton matrix; a Gauss-Newton matrix that is not
    (the loss is not convex) is damped ever more; a LiSSA that diverges gets a larger scale. Every one is noted.
    """
    started = time.perf_counter()
    solver = _filled_in(solver, strongly_convex)
    notes: list[str] = []
    damping, length = solver.damping, float(b.norm()) or 1.0
    double = objective
    if not strongly_convex and (solver.tolerance or 0) >= SINGLE_ENOUGH and solver.name != "dense":
        objective = objective.in_single_precision()
    for _ in range(MOST_RETRIES):
        solution, left, solver = _attempt(objective, theta, b / length, solver, reach, seed, progress)
        if solution.status != "converged" and objective is not double:  # the digits may be what is missing
            objective = double
            continue
        if solution.status not in ("negative curvature", "diverged", "not finite"):
            if solution.status != "converged":
                notes.append(
                    f"the solver did not converge ({solution.status}): relative residual {solution.residual:.1e} "
                    f"after {solution.iterations} iterations"
                )
            raised = solver.damping > damping  # then what is asked for has no solution without it
            if (solution.residual if raised else left) >= MOST_LEFT:
                raise Refused(
                    f"the step leaves {100 * left:.0f} % of its equation unsolved, which is next to no unlearning: "
                    "lower the damping or the scale, or allow more iterations"
                )
            solution = dataclasses.replace(solution, x=length * solution.x)
            return Solved(solution, left, solver, tuple(notes), time.perf_counter() - started)
        solver, told = _fallback(solver, solution, mu=objective.mu, strongly_convex=strongly_convex)
        notes.append(told)
    raise Refused(f"no solver found a step, last: {solution.status}; retrain instead (method 'retrain')")


def _filled_in(solver: Solver, strongly_convex: bool) -> Solver:
    convex_tolerance = 1e-6 if solver.name != "lissa" else 1e-3
    return dataclasses.replace(
        solver,
        curvature=solver.curvature or ("hessian" if strongly_convex else "gauss-newton"),
        tolerance=solver.tolerance or (convex_tolerance if strongly_convex else 0.03),
        iterations=solver.iterations or (1000 if solver.name == "lissa" else 500),
    )


def _attempt(
    objective: Objective, theta: Tensor, b: Tensor, solver: Solver, reach: Reach, seed: int, progress: Progress
) -> tuple[Solution, float, Solver]:
    """A solution, what it leaves of `b` without the damping, and the solver with its scale filled in."""
    product = _product(objective, theta, solver)
    damping = solver.damping
    full = product if damping == 0 else lambda v: product(v) + damping * v

    if solver.name == "lissa" and solver.scale is None:
        largest = extreme_eigenvalues(full, b, steps=10).largest
        if not largest > 0:
            return Solution(b.clone(), "not finite", 0, float("inf")), float("inf"), solver
        solver = dataclasses.replace(solver, scale=1.1 * largest)

    def report(done: int, residual: float) -> None:
        progress(f"{solver.name}, residual {residual:.1e}", done, 0)

    limits: Any = {"tolerance": solver.tolerance, "on_iteration": report}
    if solver.name == "dense":
        found = dense_solve(full, b)
    elif solver.name == "cg":
        found = conjugate_gradient(full, b, max_iterations=solver.iterations or 0, **limits)
    else:
        draw = (lambda: product) if solver.batch is None else _Batches(objective, theta, solver, reach, seed).draw
        scale = solver.scale or 1.0
        limits |= {"scale": scale, "damping": damping / scale, "exact": full}
        found = lissa(draw, b, iterations=solver.iterations or 0, **limits)
    exact = damping == 0 and objective.like.dtype == theta.dtype  # float32 parts the recurrence from the truth
    left = found.residual if exact else float((b - product(found.x)).norm() / b.norm())
    return found, left, solver


def _product(part: Objective | LossSum, theta: Tensor, solver: Solver) -> Product:
    """Taken in the objective's precision, handed on in that of theta: a solver's own sums need the digits."""
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
        rows = self._objective.graph.train_rows
        size = min(self._solver.batch or rows.numel(), rows.numel())
        chosen = rows[torch.randperm(rows.numel(), generator=self._generator)[:size]].sort().values
        part = self._objective.on(chosen, reach=self._reach)
        product = _product(part, self._theta, self._solver)
        return lambda v: product(v) / size + self._objective.mu * v


def _fallback(solver: Solver, solution: Solution, *, mu: float, strongly_convex: bool) -> tuple[Solver, str]:
    """Another way to try, and why."""
    if solver.curvature == "hessian" and not strongly_convex:
        told = f"the Hessian is not positive definite ({solver.name}: {solution.status}), so Gauss-Newton was used"
        return dataclasses.replace(solver, curvature="gauss-newton", scale=None), told
    if solution.status == "not finite":
        raise Refused("the curvature at these weights is not finite, so there is no step; retrain (method 'retrain')")
    if solver.name == "lissa":
        assert solver.scale is not None
        scale = 10 * solver.scale
        return dataclasses.replace(solver, scale=scale), f"LiSSA diverged, so its scale was raised to {scale:.3g}"
    damping = 10 * solver.damping or mu
    told = f"the Gauss-Newton matrix is not positive definite (is the loss convex?), so damping rose to {damping:.3g}"
    return dataclasses.replace(solver, damping=damping), told
