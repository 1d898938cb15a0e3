"""Newton's method with conjugate gradient and a line search, for smooth functions of a flat vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from graphforget.linalg.cg import conjugate_gradient
from graphforget.linalg.ritz import krylov_solution
from graphforget.linalg.solution import Preconditioner, Product

Status = Literal["converged", "steps spent", "no descent"]

NEAR = 0.0012  # of the gradient's norm
REMEMBERED = 40  # residuals of a solve that later ones are made orthogonal to
LEARNED_FROM = 0.085  # the first solve to this relative residual: the curvature there is close to that of the minimum
RITZ_PRODUCTS = 40  # of that solve
EASY = 2  # iterations of a solve; a preconditioner with which it takes no more needs no better one
WORN_OUT = 30  # iterations of a solve with a preconditioner from before that is of no more use


class SmoothFunction(Protocol):
    """A function with a gradient and positive definite curvature products."""

    def value_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]: ...

    def hessian(self, theta: Tensor) -> Product: ...


@dataclass(frozen=True)
class Minimum:
    """The result of a minimisation: the last point, its status and the work done."""

    theta: Tensor
    status: Status
    steps: int
    products: int  # curvature products, the bulk of the work
    value: float
    gradient: Tensor
    preconditioner: Preconditioner | None = None  # for later minimisations of functions close to this one

    @property
    def gradient_norm(self) -> float:
        return float(self.gradient.norm())


# Longer than 50 lines because of its signature and its documentation.
def newton_cg(
    function: SmoothFunction,
    theta: Tensor,
    *,
    gradient_tolerance: float,
    min_steps: int = 0,
    max_steps: int = 100,
    max_products: int = 500,
    preconditioner: Callable[[Tensor], Preconditioner | None] | None = None,
    known: Preconditioner | None = None,
    learn_ritz: bool = False,
    solve_dtype: torch.dtype | None = None,
    on_step: Callable[[int, float], None] | None = None,
    on_point: Callable[[Tensor, int, int], None] | None = None,
    steps_before: int = 0,
    products_before: int = 0,
) -> Minimum:
    """Minimises `function` from `theta` until its gradient's norm is at most `gradient_tolerance`, after `min_steps`.

    Each step solves the Newton system only as far as the distance to the tolerance is worth (an inexact Newton
    method: relative residual at most `min(0.1, sqrt(||g||))`, and no smaller than what would meet the tolerance).
    If the tolerance is `NEAR`, one step is solved to the tolerance: a second step would cost more.
    A step that does not lower the value enough (Armijo) is halved. Close to the minimum differences of values are
    smaller than rounding errors; there a step that lowers the norm is accepted. `on_point` gets every point, with the
    number of steps and products so far. From such a point, with these as `steps_before` and `products_before`, the
    minimisation goes on to the same result, if there is no preconditioner.
    `preconditioner` makes one at the first point, which serves all steps; `known`, from an earlier minimisation, stands
    in its place. `learn_ritz` makes a better one from a solve on the way, unless solves are easy without it. The last
    one is part of the result; one from before that has become bad is not. `solve_dtype` is the precision of the vectors
    in a solve, by default that of `theta`.
    """
    turned, from_before = known, known is not None
    value, gradient = function.value_and_gradient(theta)
    norm, products = float(gradient.norm()), products_before
    for step in range(steps_before, max_steps):
        if on_step is not None:
            on_step(step, norm)
        if norm <= gradient_tolerance and step >= min_steps:
            return Minimum(theta, "converged", step, products, value, gradient, turned)
        enough = 0.9 * gradient_tolerance / max(norm, 1e-300)
        forcing = min(enough if enough >= NEAR else max(min(0.1, norm**0.5), enough), 0.9)
        if step == steps_before:
            if turned is None and preconditioner is not None:
                turned = preconditioner(theta)
            easy = turned is not None  # until a solve shows otherwise
        against, hessian = -gradient.to(solve_dtype or gradient.dtype), function.hessian(theta)
        if learn_ritz and not easy and forcing <= LEARNED_FROM:
            krylov = krylov_solution(hessian, against, products=RITZ_PRODUCTS)
            turned, from_before, learn_ritz = krylov.ritz or turned, krylov.ritz is not None, False
            solved, spent = krylov.x, krylov.products
        else:
            limits: Any = {"max_iterations": max_products, "remembered": REMEMBERED, "preconditioner": turned}
            solution = conjugate_gradient(hessian, against, tolerance=forcing, **limits)
            solved, spent = solution.x, solution.iterations
            easy = turned is not None and spent <= EASY
            if from_before and spent > WORN_OUT:
                turned = None
        products += spent
        direction = solved.to(gradient)
        slope = float(gradient @ direction)
        length = 1.0
        for _ in range(40):
            candidate = theta + length * direction
            new_value, new_gradient = function.value_and_gradient(candidate)
            new_norm = float(new_gradient.norm())
            same = abs(new_value - value) <= 1e-13 * max(abs(value), 1e-300)
            if new_value <= value + 1e-4 * length * slope or (same and new_norm < norm):
                break
            length /= 2
        else:
            return Minimum(theta, "no descent", step, products, value, gradient, turned)
        theta, value, gradient, norm = candidate, new_value, new_gradient, new_norm
        if on_point is not None:
            on_point(theta, step + 1, products)
    if on_step is not None:
        on_step(max_steps, norm)
    status: Status = "converged" if norm <= gradient_tolerance else "steps spent"
    return Minimum(theta, status, max_steps, products, value, gradient, turned)
