"""What follows from noise in the objective for weights that were moved afterwards: common to CGU and CEU."""

from __future__ import annotations

import math

from graphforget.certificates.assumptions import OPTIMUM, Finding, unproven_reach
from graphforget.certificates.claim import Claim, empirical, perturbed, rounded_up
from graphforget.certificates.paper_bounds import Constants
from graphforget.models.registry import reach_is_proven
from graphforget.trained import Trained
from graphforget.unlearning.base import Task

BOUNDING = ("cgu", "ceu")  # the methods that bound what their steps leave
SECRET = "nobody knows the noise in the objective"
FIXED = "what the steps leave does not depend on the noise"
BOUNDED = "the gradient that is left is at most the bound"


def leftover(trained: Trained) -> float:
    """At most `||grad (m F)||` now: what training left of it, and what each step since added."""
    first, *_ = trained.history
    return first.m * first.gradient_norm + math.fsum(entry.leftover for entry in trained.history)


def strong_convexity(trained: Trained, constants: Constants | None) -> float:
    """Of the mean objective: mu where that is proven, else the constant that is declared."""
    return trained.recipe.mu if trained.strongly_convex or constants is None else constants.strong_convexity


def claim_of(
    trained: Trained, task: Task, *, constants: Constants | None = None, more: tuple[Finding, ...] = ()
) -> Claim:
    """The claim for weights whose history tells what they may leave of the gradient on the retained graph."""
    if trained.obstacles:
        return empirical(f"nothing is guaranteed, because of the model: {trained.obstacles[0]}")
    if not trained.recipe.objective_noise:
        return empirical("the model was trained without noise in the objective, so nothing hides what a step leaves")
    others = [entry.method for entry in trained.history if entry.method not in BOUNDING]
    if others:
        return empirical(f"a request before was answered by {others[0]!r}, which says nothing of what it left")
    m = task.retained.train_rows.numel()
    return perturbed(
        leftover=leftover(trained),
        noise=trained.recipe.objective_noise,
        scale=strong_convexity(trained, constants) * m,
        epsilon=task.asked.epsilon,
        delta=task.asked.delta,
        constants=constants,
        conditions=(*found_conditions(trained, m=m, measured=m * trained.gradient_norm), *more),
        refuted_before=task.trained.refuted,
    )


def found_conditions(trained: Trained, *, m: int, measured: float) -> tuple[Finding, ...]:
    """What can be said of the claim's conditions; `measured` is `||grad (m F)||` on the retained graph."""
    first, *_ = trained.history
    recipe, bound = trained.recipe, leftover(trained)
    allowed = first.m * recipe.tolerance * recipe.mu
    drawn = recipe.noise_seed is None
    conditions = (
        Finding(
            SECRET,
            None,
            None,
            "holds" if drawn else "fails",
            "it came from the operating system and is kept with the weights" if drawn else "it is from a seed",
        ),
        Finding(
            FIXED,
            None,
            None,
            "not checkable",
            "the theorem shifts the noise by a vector that it takes as given, but what a step leaves, and whether a "
            "budget is spent, follow from the weights, and they from the noise",
        ),
        Finding(
            BOUNDED,
            rounded_up(measured),
            rounded_up(bound),
            "holds" if measured <= bound * (1 + 1e-9) else "fails",
            "||grad (m F)|| on the retained graph, measured now, against what the method says",
        ),
        Finding(
            OPTIMUM,
            rounded_up(first.m * first.gradient_norm),
            rounded_up(allowed),
            "holds" if first.m * first.gradient_norm <= allowed else "fails",
            "||grad (m F)|| where training ended, which the theorem takes to be 0; here it is added to the bound",
        ),
    )
    return conditions if reach_is_proven(trained.module) else (*conditions, unproven_reach())
