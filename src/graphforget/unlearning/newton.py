"""Newton steps on the retained graph, until the weights are measurably near enough to the retrained ones."""

from __future__ import annotations

from dataclasses import dataclass

from graphforget.certificates.claim import certified, empirical, rounded_up, tolerance
from graphforget.certificates.residual import residual, rounding_allowance
from graphforget.checks import whole_number
from graphforget.errors import InputError, Refused
from graphforget.footprint import Footprint
from graphforget.linalg.newton import newton_cg
from graphforget.models.registry import reach_is_proven
from graphforget.trained import Trained
from graphforget.unlearning.base import Method, Task
from graphforget.unlearning.outcome import Asked, Change


@dataclass(frozen=True)
class NewtonOptions:
    """At most so many steps; few are ever needed."""

    steps: int = 50

    def __post_init__(self) -> None:
        if whole_number(self.steps, "steps") == 0:
            raise InputError("steps is 0, at least 1 is needed")


def check_noise(trained: Trained, asked: Asked) -> None:
    """A model's noise is its own: another one for one request would tell of it, and nothing would be fixed."""
    own = trained.recipe.sigma
    if own and asked.sigma not in (None, own):
        raise InputError(f"sigma is {asked.sigma:g}, but this model's was fixed at {own:g} when it was trained")


class Newton(Method[NewtonOptions]):
    """`theta - H^-1 grad F` on `G'`, repeated until `||grad F|| / (2 mu) <= sigma mu_gdp(epsilon, delta)`.

    For strongly convex objectives (docs/maths.md, section 9). The bound is measured on the graph as it is now, over
    every training node: no constant is assumed, no history adds up, and no reach has to be right. `sigma` is the
    model's own, and what is released lies around the middle of where the optimum can be, `theta - grad F / (2 mu)`.
    """

    options = NewtonOptions
    name = "newton"
    title = "Newton steps on the retained graph, to a measured distance"
    reference = "-"
    level = "certified"
    models = "sgc, sign, linearised"

    def unsupported(self, trained: Trained) -> str | None:
        if not trained.strongly_convex:
            return "the objective is not strongly convex by construction, as that of sgc, sign and linearised models is"
        if trained.tilt is not None:
            return "the model was trained with noise in its objective, which only 'cgu' and 'ceu' account for"
        if not trained.recipe.sigma:
            return "the model was trained with sigma = 0, and without noise no distance is near enough"
        return None

    def gradients(self, trained: Trained) -> int:
        return 25  # about ten curvature products of two passes each, and what is measured

    def rests(self, trained: Trained, touched: Footprint) -> bool:
        """Only weights that training itself made, and only if the footprint is beyond doubt: else a step shows it."""
        return super().rests(trained, touched) and not trained.history and reach_is_proven(trained.module)

    def change(self, task: Task, options: NewtonOptions) -> Change:
        trained, asked = task.trained, task.asked
        sigma, mu = trained.recipe.sigma, trained.recipe.mu
        check_noise(trained, asked)
        allowed = tolerance(sigma=sigma, epsilon=asked.epsilon, delta=asked.delta)
        objective, theta = task.after, task.theta
        norms: list[float] = []

        def report(step: int, norm: float) -> None:
            norms.append(norm)
            task.progress(f"Newton, distance at most {norm / (2 * mu):.1e}, wanted {allowed:.1e}", step, 0)

        slack = rounding_allowance(objective, theta, gradient_norm=trained.gradient_norm)
        wanted = 2 * (allowed * mu - 1.25 * slack)  # it follows the norm of the weights, which a step changes a little
        if not wanted > 0:
            raise Refused(
                f"the tolerance {allowed:.1e} drowns in rounding, {slack / mu:.1e}; train with a larger sigma"
            )
        found = newton_cg(
            objective, theta, gradient_tolerance=wanted, min_steps=1, max_steps=options.steps, on_step=report
        )
        reached = residual(objective, found.theta, gradient=found.gradient)
        if not reached.radius <= allowed:
            raise Refused(
                f"after {found.steps} Newton step{'s' * (found.steps != 1)} ({found.status}) the distance may be "
                f"{reached.radius:.2e}, over the tolerance {allowed:.2e}; retrain instead (method 'retrain')"
            )
        distances = [rounded_up(norm / (2 * mu)) for norm in norms]
        details = {
            "steps": found.steps,
            "products": found.products,
            "distances": [*distances[:-1], min(distances[-1], allowed)],
            "tolerance": allowed,
            "rounding": rounded_up(reached.rounding / mu),
        }
        entry = task.forgotten(self.name, found.theta)
        moved = trained.moved(found.theta, objective, entry, found=(found.value, found.gradient_norm))
        if trained.obstacles:
            return Change(
                moved, empirical(f"nothing is guaranteed, because of the model: {trained.obstacles[0]}"), details
            )
        claim = certified(distance=reached.radius, epsilon=asked.epsilon, delta=asked.delta, sigma=sigma)
        return Change(moved, claim, details, centre=reached.centre.cpu())
