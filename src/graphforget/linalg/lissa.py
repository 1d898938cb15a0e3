"""LiSSA, the paper's stochastic estimation of `A^-1 b`, with `A` given by products that may be sampled."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from graphforget.linalg.solution import Product, Solution, Status

RUNAWAY = 10.0  # how many times ||b|| an increment may reach


def lissa(
    draw: Callable[[], Product],
    b: Tensor,
    *,
    iterations: int,
    scale: float,
    damping: float = 0.0,
    tolerance: float = 0.0,
    exact: Product | None = None,
    on_iteration: Callable[[int, float], None] | None = None,
) -> Solution:
    """`h <- b + (1 - damping) h - A h / scale`, from `h = b`; the estimate of `A^-1 b` is `h / scale`.

    `draw` gives the product for one iteration: always the same one, or that of a fresh mini-batch. The iteration
    contracts where the eigenvalues of `damping + A / scale` lie between 0 and 2, and then no increment, which is the
    residual of the damped system, exceeds `b`; one that does so by far ends it as diverged. What is returned is judged
    by the true residual of `A x = b`, with `exact` in place of the samples where it is given.
    """
    size = float(b.norm())
    if size == 0.0:
        return Solution(b.clone(), "converged", 0, 0.0)
    h = b.clone()
    status: Status = "iterations spent"
    done = 0
    for done in range(1, iterations + 1):
        increment = b - damping * h - draw()(h) / scale
        grown = float(increment.norm()) / size
        if not math.isfinite(grown) or grown > RUNAWAY:
            status = "diverged" if math.isfinite(grown) else "not finite"
            break
        h = h + increment
        if on_iteration is not None:
            on_iteration(done, grown)
        if grown <= tolerance:
            break
    x = h / scale
    residual = float((b - (exact or draw())(x)).norm()) / size
    if status == "iterations spent":
        status = _status_of(residual, tolerance)
    return Solution(x, status, done, residual)


def _status_of(residual: float, tolerance: float) -> Status:
    """The status by the final residual; a residual above 1 is worse than no step, so it counts as divergence."""
    if not math.isfinite(residual):
        return "not finite"
    if residual <= 2 * tolerance:
        return "converged"
    return "diverged" if residual > 1.0 else "iterations spent"
