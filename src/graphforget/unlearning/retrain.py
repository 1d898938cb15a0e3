"""Retraining on the retained graph: the reference that every other method is measured against."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from graphforget.certificates.claim import MADE, RETRAINED, Claim, empirical, exact
from graphforget.certificates.levels import Level
from graphforget.doctor import Inspection
from graphforget.errors import InputError, Refused
from graphforget.fitting import Progress
from graphforget.graph import Graph
from graphforget.models.parameters import trainable
from graphforget.models.registry import MODELS, build
from graphforget.models.sharded import Sharded
from graphforget.trained import Recipe, Trained
from graphforget.training import fit
from graphforget.unlearning.base import Method, Task
from graphforget.unlearning.outcome import Change

Start = Literal["fresh", "continued"]


@dataclass(frozen=True)
class RetrainOptions:
    """Where to start from; `model` makes a fresh module of one's own, where it cannot be reset: `model=MyGNN`."""

    start: Start = "fresh"
    model: Callable[[], nn.Module] | None = None

    def __post_init__(self) -> None:
        if self.start not in get_args(Start):
            raise InputError(f"the start is {self.start!r}, it must be one of {', '.join(get_args(Start))}")
        if isinstance(self.model, nn.Module) or not (self.model is None or callable(self.model)):
            raise InputError("model is not a function that makes a fresh module, such as the module's class")
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
    models = "any"
    keeps_untouched = False
    takes_shards = True

    def gradients(self, trained: Trained) -> int:
        recipe = trained.recipe
        return 100 if trained.strongly_convex else recipe.epochs + 2 * recipe.polish_steps

    def reachable(self, trained: Trained, graph: Graph, options: RetrainOptions) -> Level:
        _refuse_continued_shards(trained, options)
        if options.start == "fresh":
            _fresh(trained, graph, trained.recipe, options.model)
        return "empirical" if options.start == "continued" else super().reachable(trained, graph, options)

    def change(self, task: Task, options: RetrainOptions) -> Change:
        _refuse_continued_shards(task.trained, options)
        trained, start = task.trained, options.start
        seed = trained.recipe.seed
        given: Any = {"device": task.device, "progress": task.progress}
        if start == "continued":
            fitted = trained_on(trained, task.retained, **given)
            entry = task.forgotten(self.name, fitted.theta)
            fitted = dataclasses.replace(fitted, history=(*trained.history, entry))
        else:
            seed = seed + 1 if task.seed is None else task.seed
            given |= {"noise_seed": task.noise_seed, "model": options.model}
            fitted = trained_anew(trained, task.retained, seed=seed, **given)
        return Change(fitted, _claim(fitted, start, options), {"start": start, "seed": seed})


def trained_anew(
    old: Trained,
    graph: Graph,
    *,
    seed: int,
    noise_seed: int | None = None,
    model: Callable[[], nn.Module] | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Trained:
    """A model of the same kind, by the same recipe but for its seeds, from weights that have seen nothing."""
    recipe = dataclasses.replace(old.recipe, seed=seed, noise_seed=noise_seed)
    module = _fresh(old, graph, recipe, model)
    return fit(module, graph, recipe, old.loss, Inspection(old.reach, old.obstacles), device=device, progress=progress)


def trained_on(old: Trained, graph: Graph, *, device: str = "cpu", progress: Progress | None = None) -> Trained:
    """Training that goes on from the old weights at a hundredth of the learning rate."""
    slower = dataclasses.replace(old.recipe, learning_rate=old.recipe.learning_rate / 100)
    module, found = copy.deepcopy(old.module), Inspection(old.reach, old.obstacles)
    fitted = fit(module, graph, slower, old.loss, found, warm=True, device=device, progress=progress)
    return dataclasses.replace(fitted, recipe=old.recipe)


def _refuse_continued_shards(trained: Trained, options: RetrainOptions) -> None:
    if options.start == "continued" and isinstance(trained.module, Sharded):
        raise Refused("an ensemble on shards cannot be continued, only its shards be trained anew")


def _claim(fitted: Trained, start: Start, options: RetrainOptions) -> Claim:
    if start == "continued":
        return empirical("training went on from weights that had seen what was removed, so nothing is guaranteed")
    if fitted.obstacles:
        return empirical(f"retrained, but data may get past it: {fitted.obstacles[0]}")
    return exact(RETRAINED if options.model is None else MADE, sigma=fitted.recipe.sigma)


def _fresh(old: Trained, graph: Graph, recipe: Recipe, make: Callable[[], nn.Module] | None) -> nn.Module:
    """The same architecture with weights that have seen nothing."""
    if recipe.model in MODELS:
        if make is not None:
            raise InputError(f"{recipe.model} is a built-in model and is made anew by itself, leave model out")
        shape: dict[str, Any] = {"columns": graph.num_columns, "classes": graph.num_classes, "seed": recipe.seed}
        return build(recipe.model, **shape, **recipe.options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        if make is not None:
            return _made(old.module, make)
        if old.strongly_convex:  # trained from 0, whatever the weights are
            return copy.deepcopy(old.module)
        return _reset(old.module)


def _reset(old: nn.Module) -> nn.Module:
    """A copy whose parameters have all been drawn anew: blanked first, so that one that is not drawn shows."""
    module = copy.deepcopy(old)
    with torch.no_grad():
        for _, parameter in trainable(module):
            parameter.fill_(float("nan"))
    for part in module.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
    kept = [name for name, parameter in trainable(module) if not torch.isfinite(parameter).all()]
    if kept:
        raise Refused(
            f"parameter {kept[0]!r} is not drawn anew by any reset_parameters(), so hand a function over that makes a "
            "fresh module, model=..."
        )
    return module


def _made(old: nn.Module, make: Callable[[], nn.Module]) -> nn.Module:
    module = make()
    if not isinstance(module, nn.Module) or type(module) is not type(old):
        raise InputError(f"'model' made a {type(module).__name__}, a {type(old).__name__} is needed")
    learned = dict(trainable(old))
    shapes = {name: p.shape for name, p in trainable(module)}
    if shapes != {name: p.shape for name, p in learned.items()}:
        raise InputError(f"'model' made a {type(old).__name__} of another shape")
    for name, p in trainable(module):
        if ((p.double() - learned[name]).abs() <= 1e-6 * learned[name].abs()).logical_and(p != 0).float().mean() > 0.5:
            raise InputError(f"'model' made a module whose parameter {name!r} is the trained one, not a fresh one")
    return copy.deepcopy(module)
