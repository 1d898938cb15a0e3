"""Writes a certificate: a claim, with the model, the objective and the settings that it is about."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.document import Certificate, not_covered
from graphforget.certificates.levels import MEANING
from graphforget.certificates.residual import is_bounded
from graphforget.graph.digest import DIGEST
from graphforget.models.registry import is_affine
from graphforget.training.environment import versions
from graphforget.training.losses import assumed_convex
from graphforget.training.trained import Trained

ALGORITHMS = {
    "graph": f"HMAC-SHA256 of {DIGEST}",
    "released": "SHA-256 of graphforget-weights-1",
    **dict.fromkeys(("request", "annex", "state", "weights"), "salted SHA-256"),
}
SETTINGS = ("epsilon", "delta", "sigma", "releases", "floor", "mu", "objective_noise")


def subject(trained: Trained, *, strongly_convex: bool) -> dict[str, dict[str, Any]]:
    """The model, the objective and the settings that a certificate speaks of."""
    recipe = trained.recipe
    objective = {"loss": recipe.loss, "mu": recipe.mu, "strongly_convex": strongly_convex}
    if recipe.objective_noise:
        objective["noise"] = recipe.objective_noise
    if is_affine(trained.module) and assumed_convex(trained.loss):
        objective["rounding"] = "bounded" if is_bounded(trained.module, trained.loss) else "estimated"
    model = {"name": recipe.model, "options": recipe.options, "parameters": trained.theta.numel()}
    return {"model": model, "objective": objective, "settings": {name: getattr(recipe, name) for name in SETTINGS}}


def written(claim: Claim, **about: Any) -> Certificate:
    """A certificate for `claim`, dated now."""
    words = {
        "statement": claim.statement,
        "definition": MEANING[claim.level],
        "not_covered": list(not_covered(about["objective"])),
    }
    return Certificate(
        claim=claim,
        id=str(uuid.uuid4()),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        words=words,
        algorithms=ALGORITHMS,
        environment=versions(),
        **about,
    )
