"""Retraining on the retained graph: the reference that every other method is measured against."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from graphforget.certificates.claim import Certificate, empirical, exact
from graphforget.doctor import Inspection, inspect
from graphforget.errors import InputError, Refused
from graphforget.models.base import is_built_in
from graphforget.models.parameters import trainable
from graphforget.models.registry import MODELS, build
from graphforget.trained import Recipe, Trained
from graphforget.training import fit
from graphforget.unlearning.base import Change, Method, Task

Start = Literal["fresh", "continued"]


@dataclass(frozen=True)
class RetrainOptions:
    """Where to start from; `model` is a fresh instance of a module of one's own, where it cannot be reset."""

    start: Start = "fresh"
    model: nn.Module | None = None

    def __post_init__(self) -> None:
        if self.start not in get_args(Start):
            raise InputError(f"the start is {self.start!r}, it must be one of {', '.join(get_args(Start))}")
        if not isinstance(self.model, nn.Module | None):
            raise InputError(f"the fresh model is a {type(self.model).__name__}, a torch.nn.Module is needed")
        if self.start == "continued" and self.model is not None:
            raise InputError("a fresh model does not go with start='continued'")


class Retrain(Method[RetrainOptions]):
    """Training anew on `G'` by the same recipe, from weights that have seen nothing.

    `start="continued"` is what the paper calls re-training: it goes on from the old weights at a hundredth of the
    learning rate, and so guarantees nothing for a model that is not convex.
    """

    options = RetrainOptions
    name = "retrain"
    title = "Retraining from scratch on the retained graph"
    reference = "-"
    level = "exact"
    keeps_untouched = False

    def gradients(self, trained: Trained) -> int:
        recipe = trained.recipe
        return 100 if trained.strongly_convex else recipe.epochs + 2 * recipe.polish_steps

    def change(self, task: Task, options: RetrainOptions) -> Change:
        trained, start = task.trained, options.start
        recipe = trained.recipe
        inspection = Inspection(trained.reach, trained.obstacles)
        if start == "continued":
            recipe = dataclasses.replace(recipe, learning_rate=recipe.learning_rate / 100)
            module = copy.deepcopy(trained.module)
        else:
            recipe = dataclasses.replace(recipe, seed=recipe.seed + 1 if task.seed is None else task.seed)
            module, inspection = _fresh(task, recipe, options.model)
        fitted = fit(
            module,
            task.retained,
            recipe,
            trained.loss,
            inspection,
            warm=start == "continued",
            device=task.device,
            progress=task.progress,
        )
        if start == "continued":
            entry = task.forgotten(self.name, fitted.theta)
            fitted = dataclasses.replace(fitted, recipe=trained.recipe, history=(*trained.history, entry))
        return Change(fitted, _certificate(fitted, start), {"start": start, "seed": recipe.seed})


def _certificate(fitted: Trained, start: Start) -> Certificate:
    if start == "continued":
        return empirical("training went on from weights that had seen what was removed, so nothing is guaranteed")
    if fitted.obstacles:
        return empirical(f"retrained, but the model may carry data past it: {fitted.obstacles[0]}")
    return exact("the model was trained from fresh weights on the retained graph alone")


def _fresh(task: Task, recipe: Recipe, model: nn.Module | None) -> tuple[nn.Module, Inspection]:
    """The same architecture with weights that have seen nothing."""
    old, graph = task.trained, task.retained
    inspection = Inspection(old.reach, old.obstacles)
    if recipe.model in MODELS:
        if model is not None:
            raise InputError(f"{recipe.model} is a built-in model and is made anew by itself, leave model out")
        shape: dict[str, Any] = {"columns": graph.num_columns, "classes": graph.num_classes, "seed": recipe.seed}
        return build(recipe.model, **shape, **recipe.options), inspection
    if model is not None:
        return _handed_over(task, model)
    if is_built_in(old.module):  # a linearised module of one's own: its public weights stay, d starts at 0
        return copy.deepcopy(old.module), inspection
    module = copy.deepcopy(old.module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        for part in module.modules():
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()
    before = dict(trainable(old.module))
    kept = [name for name, p in trainable(module) if p.numel() and torch.equal(p, before[name]) and p.any()]
    if kept:
        raise Refused(
            f"parameter {kept[0]!r} has no reset_parameters() and would keep what it learned, so hand a fresh "
            "instance over as model=..."
        )
    return module, inspection


def _handed_over(task: Task, model: nn.Module) -> tuple[nn.Module, Inspection]:
    old, graph = task.trained, task.retained
    shapes = [(name, p.shape) for name, p in trainable(old.module)]
    if type(model) is not type(old.module) or [(name, p.shape) for name, p in trainable(model)] != shapes:
        raise InputError(f"the fresh model is not another {type(old.module).__name__} of the same shape")
    learned = dict(trainable(old.module))
    kept = [name for name, p in trainable(model) if torch.equal(p.double(), learned[name]) and p.any()]
    if kept:
        raise InputError(f"the fresh model's parameter {kept[0]!r} is the trained one, hand over one that saw no data")
    inspection = inspect(model, columns=graph.num_columns, classes=graph.num_classes)
    return copy.deepcopy(model), inspection
