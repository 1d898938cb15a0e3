"""The claim of CGU and CEU for weights that were trained with noise in the objective and updated afterwards."""

from __future__ import annotations

from typing import Any

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.objective_noise import BOUNDED_STEPS, UNBOUNDED, ObjectiveNoise, bounds_its_steps
from graphforget.certificates.conditions import ConditionCheck
from graphforget.privacy.paper_bounds import Constants
from graphforget.training.trained import Trained
from graphforget.unlearning.task import Task


def claim_of(
    trained: Trained,
    task: Task,
    *,
    budget: float | None = None,
    constants: Constants | None = None,
    more: tuple[ConditionCheck, ...] = (),
) -> tuple[Claim, dict[str, Any]]:
    """The claim for weights whose history bounds the gradient on the retained graph."""
    if trained.certification_blockers:
        claim = Empirical("the model may carry data past its weights", refuted=True)
        return claim, {"obstacles": list(trained.certification_blockers)}
    if not trained.recipe.objective_noise:
        return Empirical(
            "the model was trained without noise in the objective, so nothing hides the remaining gradient"
        ), {}
    if not bounds_its_steps(trained):
        return Empirical(UNBOUNDED, refuted=True), {"refuted": [BOUNDED_STEPS]}
    return ObjectiveNoise.issue(
        trained,
        m=task.retained.train_rows.numel(),
        epsilon=task.target.epsilon,
        delta=task.target.delta,
        budget=budget,
        constants=constants,
        more=more,
        refuted_before=trained.refuted,
    )
