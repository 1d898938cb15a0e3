"""Newton steps on the retained graph, until the measured distance to the optimum is small enough."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.combined import Combined
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.certificates.levels import Level
from graphforget.certificates.residual import feature_rounding_share, residual
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.privacy.gaussian import LARGEST_DELTA, tolerance
from graphforget.privacy.rounding import rounded_up
from graphforget.training.losses import is_convex
from graphforget.training.objective import Objective, minimise
from graphforget.training.recipe import ROUNDING_FLOOR
from graphforget.training.retraining import trained_anew
from graphforget.training.rounding import rounding_allowance
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import NEWTON
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult, PrivacyTarget
from graphforget.unlearning.task import Task
from graphforget.validation import whole_number

MOST_FEATURE_ROUNDING = 0.01  # of the tolerance; features that carry more are propagated anew
CLOSELY = 16  # retraining is repeated with a tolerance smaller by this factor if rounding takes most of it


@dataclass(frozen=True)
class NewtonOptions:
    """The largest number of steps; a few are usually enough."""

    steps: int = 50

    def __post_init__(self) -> None:
        if whole_number(self.steps, "steps") == 0:
            raise InputError("steps is 0, at least 1 is needed")


def check_noise(trained: Trained, target: PrivacyTarget) -> None:
    """Raises `InputError` if the noise differs from that of the model: it would reveal something about the request."""
    own = trained.recipe.sigma
    if own and target.sigma not in (None, own):
        raise InputError(f"sigma is {target.sigma:g}, but this model's was fixed at {own:g} when it was trained")


class Newton(Method[NewtonOptions], info=NEWTON):
    """`theta - H^-1 grad F` on `G'`, repeated until `||grad F|| / (2 mu)` is at most the tolerance of a release.

    For strongly convex objectives (docs/maths.md, section 9). The bound is measured on `G'`, over every
    training node. It assumes no constant, it does not add up over requests, and it does not depend on the reach. If the
    steps do not reach the tolerance, the model is trained from 0 on `G'` with the same test. The published claim is the
    same on every path.
    """

    options = NewtonOptions
    keeps_untouched = False  # `change` decides whether a step is needed
    refuses_no_op = False
    takes_composites = True
    takes_items = True

    def unsupported(self, trained: Trained) -> str | None:
        if not trained.strongly_convex:
            return "the objective is not strongly convex by construction, as that of sgc, sign or a stacked model is"
        if trained.objective_noise_vector is not None:
            return "the model was trained with noise in its objective, which only 'cgu' and 'ceu' support"
        if not trained.recipe.sigma:
            return "the model was trained with sigma = 0, and without noise no distance to the optimum is small enough"
        return None

    def gradients(self, trained: Trained) -> int:
        return 25  # about ten curvature products of two passes each, and the measurements

    def best_level(self, trained: Trained, graph: Graph, options: NewtonOptions) -> Level:
        return certified_level(trained)

    def change(self, task: Task, options: NewtonOptions) -> MethodResult:
        trained, target = task.renewed, task.target
        check_noise(trained, target)
        allowed, mu = release_tolerance(trained, target), trained.recipe.mu
        objective, theta = task.after, task.theta
        norms: list[float] = []

        def report(step: int, norm: float) -> None:
            norms.append(norm)
            task.progress(f"Newton, distance at most {norm / (2 * mu):.1e}, allowed {allowed:.1e}", step, 0)

        if feature_rounding_share(objective, theta, allowed * mu) > MOST_FEATURE_ROUNDING:
            objective = objective.with_fresh_features()
        slack = rounding_allowance(objective, theta, gradient_norm=trained.gradient_norm)
        # The rounding allowance depends on the norm of the weights, which a step changes a little.
        largest_norm = 2 * (allowed * mu - 1.25 * slack)
        if not largest_norm > 0:  # rounding hides the effect of a step, so the model is retrained
            return _retrained(
                task, {"steps": 0, "products": 0, "distances": []}, why=tolerance_below_rounding(allowed, slack / mu)
            )
        steps: Any = {"min_steps": 0 if task.training_unchanged else 1, "max_steps": options.steps}
        steps |= {"on_step": report, "known": trained.preconditioner}
        minimum = minimise(objective, theta, gradient_tolerance=largest_norm, **steps)
        details: dict[str, Any] = {
            "steps": minimum.steps,
            "products": minimum.products,
            "distances": [rounded_up(norm / (2 * mu)) for norm in norms],
            "retrained": False,
        } | ({"encoders": trained.stacked.num_parts, "renewed": len(task.renewed_parts)} if trained.is_stacked else {})
        updated = trained.with_update(
            minimum.theta,
            objective,
            task.history_entry(self.name, minimum.theta),
            measured=(minimum.value, minimum.gradient_norm),
        )
        updated = dataclasses.replace(updated, preconditioner=minimum.preconditioner)
        if task.training_unchanged and minimum.steps == 0:
            updated = dataclasses.replace(updated, history=())  # training on the retained graph gives the same weights
        return released_around_centre(task, updated, details, objective=objective, gradient=minimum.gradient)


def release_tolerance(trained: Trained, target: PrivacyTarget) -> float:
    recipe = trained.recipe
    return tolerance(sigma=recipe.sigma, epsilon=target.epsilon, delta=target.delta, releases=recipe.releases)


def certified_level(trained: Trained) -> Level:
    """The level of a release whose noise is added to the centre of the ball that contains the optimum."""
    if trained.certification_blockers:
        return "empirical"
    return "certified" if is_convex(trained.loss) else "conditional"


def released_around_centre(
    task: Task,
    trained: Trained,
    details: dict[str, Any],
    *,
    objective: Objective | None = None,
    gradient: Tensor | None = None,
) -> MethodResult:
    """Every path of a strongly convex model with noise ends here: the test of the radius, and one claim.

    If the weights do not pass the test, the model is trained from 0 on the retained graph.

    Raises:
        Refused: The retrained weights do not pass either, or the caller ruled retraining out.
    """
    target, allowed = task.target, release_tolerance(trained, task.target)
    if target.delta > LARGEST_DELTA:
        raise Refused(f"delta is {target.delta:g}, and over {LARGEST_DELTA:g} nothing is certified")
    objective = objective or trained.objective(task.retained, device=task.device)
    measured = residual(objective, trained.theta.to(objective.like), gradient=gradient)
    if not measured.radius <= allowed:
        reason = f"the optimum may be {measured.radius:.2e} away, over the tolerance {allowed:.2e}"
        rounding = measured.rounding / measured.mu
        return _retrained(
            task, details, why=reason if rounding < allowed else tolerance_below_rounding(allowed, rounding)
        )
    centre = measured.centre.cpu()
    if trained.certification_blockers:
        claim: Claim = Empirical(
            "the model may carry data past its weights", sigma=trained.recipe.sigma, around_centre=True, refuted=True
        )
        return MethodResult(trained, claim, {"obstacles": list(trained.certification_blockers)}, details, centre=centre)
    ball = ResidualBall.issue(measured, trained, epsilon=target.epsilon, delta=target.delta)
    composite = trained.composite
    claim = ball if composite is None else Combined.of(ball, composite.claim_parts, exact=composite.replayed_part)
    return MethodResult(trained, claim, ball.measurements(measured), details, centre=centre)


def tolerance_below_rounding(allowed: float, rounding: float) -> str:
    return f"the tolerance {allowed:.1e} of this sigma is below the rounding error {rounding:.1e}"


def _retrained(task: Task, details: dict[str, Any], *, why: str) -> MethodResult:
    """Trains from 0 on the retained graph. Whether this is refused depends on the retained graph alone."""
    if not task.may_retrain or details.get("closely"):
        raise Refused(f"{why}, and retraining {'was ruled out' if not task.may_retrain else 'ended there'}")
    allowed, again = release_tolerance(task.trained, task.target), bool(details.get("retrained"))
    trained = train_to_distance(task, allowed / CLOSELY if again else allowed)
    return released_around_centre(task, trained, details | {"retrained": True, "closely": again, "reason": why})


def train_to_distance(task: Task, distance: float, *, seed: int | None = None, model: Any = None) -> Trained:
    """The model trained from 0 on the retained graph by its recipe, to at most this distance from the optimum."""
    old, recipe = task.to_train_anew, task.trained.recipe
    near = min(recipe.tolerance, max(distance, ROUNDING_FLOOR / recipe.mu))
    closer = dataclasses.replace(old, recipe=dataclasses.replace(recipe, tolerance=near))
    given: Any = {"model": model, "device": task.device, "progress": task.progress}
    fitted = trained_anew(closer, task.retained, seed=recipe.seed if seed is None else seed, **given)
    return dataclasses.replace(fitted, recipe=dataclasses.replace(fitted.recipe, tolerance=recipe.tolerance))
