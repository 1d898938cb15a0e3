"""`conditional`, by noise in the objective that hides the gradient residual of the steps (docs/maths.md, 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from graphforget.certificates.claims.base import Subject, checked_ids, checked_number
from graphforget.certificates.claims.conditional import ConditionalClaim, condition_measurements
from graphforget.certificates.conditions import CONVEX, OPTIMUM, ConditionCheck, refuted_by, unproven_reach
from graphforget.errors import InputError, Mismatch
from graphforget.privacy.gaussian import epsilon_of, mu_gdp
from graphforget.privacy.paper_bounds import Constants
from graphforget.privacy.rounding import rounded_up

if TYPE_CHECKING:
    from graphforget.training.trained import Trained

SECRET = "secret noise"
FIXED = "leftover independent of the noise"
WITHIN = "leftover within its bound"
BOUNDED_STEPS = "bounded steps"

UNBOUNDED = "an earlier request was answered by a method that does not bound its gradient residual"

# What CEU's bound assumes, and the constant that says it.
CEU_CONDITIONS = (
    (CONVEX, "strong_convexity"),
    ("bounded gradients", "gradient_bound"),
    ("Lipschitz gradients", "gradient_lipschitz"),
    ("Lipschitz Hessian", "hessian_lipschitz"),
)


@dataclass(frozen=True)
class ObjectiveNoise(ConditionalClaim):
    """Weights trained with `N(0, noise^2)` in the objective, whose summed gradient is at most `budget`.

    They are those of training with noise that lies `budget` away, so as indistinguishable as two Gaussians whose means
    are `budget / noise` sigmas apart (Guo et al. 2020, whose own formula for epsilon is proven for small ones only).
    The true residual stays private. It is bounded as in CEU with `constants`, and as in CGU without.
    """

    kind = "objective-noise/1"

    epsilon: float | None  # None: no guarantee
    delta: float
    noise: float
    budget: float
    conditions: tuple[str, ...]
    constants: Constants | None = None
    sigma: float = 0.0  # noise in the release, beside that in the objective

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", checked_number(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", checked_number(self.delta, "delta", above=0, below=1))
        for name in ("noise", "budget", "sigma"):
            object.__setattr__(self, name, checked_number(getattr(self, name), name))
        object.__setattr__(self, "conditions", checked_ids(self.conditions, "conditions"))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        constants = content.get("constants")
        if not isinstance(constants, Mapping | None):
            raise InputError("the claim's constants are neither an object nor null")
        return super().from_dict(content if constants is None else {**content, "constants": Constants.of(constants)})

    @classmethod
    def issue(
        cls,
        trained: Trained,
        *,
        m: int,
        epsilon: float,
        delta: float,
        budget: float | None = None,
        constants: Constants | None = None,
        more: tuple[ConditionCheck, ...] = (),
        refuted_before: tuple[str, ...] = (),
    ) -> tuple[ObjectiveNoise, dict[str, Any]]:
        """The claim for weights on a graph of `m` training nodes, and what was measured for it.

        The default `budget` is what epsilon and delta allow. With another one, the claim states the epsilon it implies.
        """
        noise = trained.recipe.objective_noise
        allowed = noise * mu_gdp(epsilon=epsilon, delta=delta)
        stated = epsilon if budget is None else epsilon_of(ratio=budget / noise, delta=delta)
        budget = allowed if budget is None else budget
        checks = (*conditions_of(trained, m=m, measured=m * trained.gradient_norm), *more)
        refuted = refuted_by(checks, refuted_before)
        spent = gradient_residual_bound(trained, m=m)
        implied = epsilon_of(ratio=spent / noise, delta=delta)
        claim = cls(
            epsilon=None if refuted or spent > budget * (1 + 1e-9) else stated,
            delta=delta,
            noise=noise,
            budget=budget,
            conditions=tuple(check.name for check in checks),
            constants=constants,
        )
        scale = strong_convexity(trained, constants) * m
        measurements = {
            "distance": rounded_up(spent / scale),
            "tolerance": budget / scale,
        }
        return claim, measurements | condition_measurements(checks, refuted, implied_epsilon=implied)

    @property
    def statement(self) -> str:
        if self.epsilon is None:
            return "no guarantee: at least one condition of the claim fails"
        return (
            f"if every condition listed holds, the weights are ({self.epsilon:.4g}, {self.delta:g})-indistinguishable "
            "from the optimum on the retained graph, to which training from scratch leads, with fresh noise of "
            f"standard deviation {self.noise:g} in the objective"
        )

    def recheck(self, subject: Subject) -> str:
        if self.epsilon is None:
            return "nothing is claimed"
        trained, recipe = subject.trained, subject.trained.recipe
        if trained.certification_blockers:
            raise Mismatch(f"the level is too high for this model: {trained.certification_blockers[0]}")
        if not self.noise or self.noise != recipe.objective_noise or trained.objective_noise_vector is None:
            raise Mismatch(f"the noise in the objective is {self.noise:g}, the model has {recipe.objective_noise:g}")
        if self.constants is None and not linear_one_vs_rest(trained):
            raise Mismatch("the claim is CGU's, and the model is not one that CGU takes")
        if not bounds_its_steps(trained):
            raise Mismatch(f"the level is too high: {UNBOUNDED}")
        stated = epsilon_of(ratio=self.budget / self.noise, delta=self.delta)
        if not math.isclose(self.epsilon, stated, rel_tol=1e-6, abs_tol=1e-6):
            raise Mismatch(f"epsilon is {self.epsilon:g}, the budget implies {stated:.4g}")
        m = subject.graph.train_rows.numel()
        measured = m * float(trained.objective(subject.graph).gradient(trained.theta).norm())
        checks = conditions_of(trained, m=m, measured=measured)
        needed = [check.name for check in checks]
        if self.constants is not None:
            needed += [name for name, _ in CEU_CONDITIONS]
        missing = [name for name in needed if name not in self.conditions]
        if missing:
            raise Mismatch(f"the claim does not list a condition that it needs: {missing[0]}")
        refuted = refuted_by(checks, trained.refuted)
        if refuted:
            raise Mismatch(f"the level is too high: a condition does not hold, {refuted[0]}")
        if gradient_residual_bound(trained, m=m) > self.budget * (1 + 1e-9):
            raise Mismatch("what the steps left of the gradient is over the budget")
        return "what the steps left of the gradient is within the budget"

    def unchecked(self, subject: Subject) -> tuple[str, ...]:
        if self.epsilon is None:
            return ()
        drawn = "that the noise in the objective was drawn before training: the signer vouches for it"
        measured = "what was measured of CEU's conditions, since what it was measured on is deleted"
        return (drawn,) if self.constants is None else (drawn, measured)


def linear_one_vs_rest(trained: Trained) -> bool:
    """Whether CGU's theorem covers this model: fixed propagation, one logistic regression per class, noise."""
    from graphforget.models.registry import is_affine
    from graphforget.training.losses import OneVsRest

    linear = is_affine(trained.module) and trained.module.has_fixed_features and type(trained.loss) is OneVsRest
    return trained.strongly_convex and linear and bool(trained.recipe.objective_noise)


def bounds_its_steps(trained: Trained) -> bool:
    """Whether every step since training has a bound on its gradient residual."""
    return all(entry.gradient_residual_bound is not None or entry.step_norm == 0 for entry in trained.history)


def gradient_residual_bound(trained: Trained, *, m: int) -> float:
    """A bound on `||grad (m F)||` now: its norm after training, plus the bound of each step since."""
    if not trained.history:
        return m * trained.gradient_norm
    first, *_ = trained.history
    return first.m * first.gradient_norm + math.fsum(entry.gradient_residual_bound or 0.0 for entry in trained.history)


def strong_convexity(trained: Trained, constants: Constants | None) -> float:
    """The strong convexity of the mean objective: mu if that is proven, else the declared constant."""
    return trained.recipe.mu if trained.strongly_convex or constants is None else constants.strong_convexity


def conditions_of(trained: Trained, *, m: int, measured: float) -> tuple[ConditionCheck, ...]:
    """The checks of the claim's conditions; `measured` is `||grad (m F)||` on the retained graph."""
    rounding = 1e-12 * (1 + float(trained.theta.norm()))  # of a gradient that is summed in another order
    recipe, bound = trained.recipe, gradient_residual_bound(trained, m=m)
    at_start, gradient = (m, trained.gradient_norm) if not trained.history else _first(trained)
    allowed = at_start * recipe.tolerance * recipe.mu
    drawn = recipe.noise_seed is None
    checks = (
        ConditionCheck(
            SECRET,
            None,
            None,
            "holds" if drawn else "fails",
            "it came from the operating system and is kept with the weights" if drawn else "it is from a seed",
        ),
        ConditionCheck(
            FIXED,
            None,
            None,
            "not checkable",
            "the theorem shifts the noise by a vector that it takes as given, but what a step leaves, and whether a "
            "budget is spent, follow from the weights, and they from the noise",
        ),
        ConditionCheck(
            WITHIN,
            rounded_up(measured),
            rounded_up(bound),
            "holds" if measured <= bound * (1 + 1e-6) + m * rounding else "fails",
            "||grad (m F)|| on the retained graph, measured now, against what the method says",
        ),
        ConditionCheck(
            OPTIMUM,
            rounded_up(at_start * gradient),
            rounded_up(allowed),
            "holds" if at_start * gradient <= allowed else "fails",
            "||grad (m F)|| where training ended, which the theorem takes to be 0; here it is added to the bound",
        ),
    )
    return checks if trained.reach_is_proven else (*checks, unproven_reach())


def _first(trained: Trained) -> tuple[int, float]:
    return trained.history[0].m, trained.history[0].gradient_norm
