"""A forecast of the utility after a request, for `plan`: one Newton step, scored on retained items.

An attacker can add crafted nodes before training and ask for their deletion later, to ruin the model by a valid
request. The forecast warns the operator. It is private, because it depends on the data to delete, and it decides
nothing: whether, when and how a request is answered may not depend on deleted data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.linalg.newton import newton_cg
from graphforget.linalg.solution import Product
from graphforget.models.items import Items
from graphforget.training.objective import Objective
from graphforget.training.trained import Trained
from graphforget.unlearning.task import Task

MOST_PRODUCTS = 10  # curvature products of the step: enough to see a collapse, and cheaper than the request
COLLAPSE = 0.1  # of the score, from 0 to 1


@dataclass(frozen=True)
class Forecast:
    """The score on retained items with the present weights and graph, and its forecast after the request."""

    score: str  # its name
    items: str  # "validation" or "training": the retained items that were scored
    present: float
    expected: float

    @property
    def collapse(self) -> bool:
        """Whether the score is expected to fall by more than 0.1."""
        return self.present - self.expected > COLLAPSE

    @property
    def text(self) -> str:
        return f"{self.score} on retained {self.items} items {self.present:.3f} now, about {self.expected:.3f} after"

    @property
    def sentence(self) -> str:
        return (
            f"A collapse is expected: {self.score} on the retained {self.items} items falls from {self.present:.3f} "
            f"to about {self.expected:.3f}. If one person made this request, it may be an attack (docs/audits.md)."
        )


def forecast_of(task: Task) -> Forecast | None:
    """The forecast of a request; None for ensembles, graphs in parts, values to predict, and items without scores.

    The step is that of Newton's method, with the Gauss-Newton matrix for a model that is not convex, and with the
    encoders of a stacked model as they are. It is halved until it lowers the objective on the retained graph.
    """
    trained = task.trained
    if trained.is_ensemble or isinstance(task.graph, DistributedGraph) or trained.noise:
        return None
    if trained.score_kind(task.retained) == "values":
        return None
    after = trained.items(task.retained)
    named = {"validation": after.val_mask, "training": after.train_mask}
    usable = [name for name, mask in named.items() if trained.can_score(task.retained, mask)]
    if not usable:
        return None
    old, new = _common_masks(trained.items(task.graph), after, named[usable[0]])
    try:
        ((name, present), *_) = trained.scores(task.graph, old).items()
        stepped = trained.with_weights(_one_step(trained, task))
        return Forecast(name, usable[0], present, stepped.scores(task.retained, new)[name])
    except InputError:  # the items that are left have no score
        return None


def _common_masks(before: Items, after: Items, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The items of `mask` that are also there before the request, as masks of both lists of items."""
    rows = mask.nonzero().flatten()
    places = before.rows_of(after.keys[rows]).clamp(max=len(before) - 1)
    same = (before.keys[places] == after.keys[rows]).reshape(len(rows), -1).all(dim=1)
    old, new = torch.zeros_like(before.train_mask), torch.zeros_like(mask)
    old[places[same]], new[rows[same]] = True, True
    return old, new


def _one_step(trained: Trained, task: Task) -> Tensor:
    objective = trained.objective(task.retained, device=task.device)
    function = objective if trained.strongly_convex else _GaussNewton(objective)
    limits = {"gradient_tolerance": 0.0, "max_steps": 1, "max_products": MOST_PRODUCTS}
    minimum = newton_cg(function, task.theta, **limits)  # type: ignore[arg-type]
    return minimum.theta


class _GaussNewton:
    """The objective of a network, with curvature products that are positive definite."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def value_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        return self.objective.value_and_gradient(theta)

    def hessian(self, theta: Tensor) -> Product:
        return self.objective.gauss_newton(theta)
