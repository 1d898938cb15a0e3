"""Retraining on the retained graph: the reference that every other method is measured against."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.claims.own_training import OwnTraining
from graphforget.certificates.levels import Level
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.models.deletion import DeletionModel
from graphforget.models.inspection import Inspection
from graphforget.progress import Progress
from graphforget.training.retraining import fresh_module, refuse_untrained, trained_anew
from graphforget.training.train import fit
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import RETRAIN
from graphforget.unlearning.method import Method
from graphforget.unlearning.methods.newton import (
    certified_level,
    release_tolerance,
    released_around_centre,
    train_to_distance,
)
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.task import Task

Start = Literal["fresh", "continued"]


@dataclass(frozen=True)
class RetrainOptions:
    """Where training starts; `model` makes a fresh custom module if it cannot be reset: `model=MyGNN`."""

    start: Start = "fresh"
    model: Callable[[], nn.Module] | None = None

    def __post_init__(self) -> None:
        if self.start not in get_args(Start):
            raise InputError(f"the start is {self.start!r}, it must be one of {', '.join(get_args(Start))}")
        if isinstance(self.model, nn.Module) or not (self.model is None or callable(self.model)):
            raise InputError("model is not a function that makes a fresh module, such as the module's class")
        if self.start == "continued" and self.model is not None:
            raise InputError("a fresh model does not go with start='continued'")


class Retrain(Method[RetrainOptions], info=RETRAIN):
    """Trains on `G'` by the same recipe, from fresh weights.

    Without another seed of the caller it uses that of the recipe, so the result is that of training on `G'`.
    `start="continued"` is the re-training of the paper: it continues from the old weights at a hundredth of the
    learning rate, and guarantees nothing for a model that is not convex.
    """

    options = RetrainOptions
    keeps_untouched = False
    refuses_no_op = False
    takes_shards = True
    takes_composites = True
    takes_items = True
    takes_operators = True

    def gradients(self, trained: Trained) -> int:
        recipe = trained.recipe
        return 100 if trained.strongly_convex else recipe.epochs + 2 * recipe.polish_steps

    def best_level(self, trained: Trained, graph: Graph, options: RetrainOptions) -> Level:
        _refuse_impossible(trained, options)
        if options.start == "continued":
            return "empirical"
        if trained.recipe.adopted:
            return "exact"
        fresh_module(trained, graph, trained.recipe, options.model)
        return certified_level(trained) if has_noised_optimum(trained) else super().best_level(trained, graph, options)

    def planned_claim(self, trained: Trained) -> Claim | None:
        return OwnTraining(sigma=trained.recipe.sigma) if trained.recipe.adopted else None

    def leaves_weights_unchanged(self, task: Task) -> bool:
        return False  # `change` decides

    def change(self, task: Task, options: RetrainOptions) -> MethodResult:
        _refuse_impossible(task.trained, options)
        trained, start = task.trained, options.start
        details: dict[str, Any] = {"start": start, "untouched": False, "retrained": True}
        given: Any = {"device": task.device, "progress": task.progress}
        if start == "continued":
            fitted = continue_training(trained, task.retained, **given)
            entry = task.history_entry(self.name, fitted.theta)
            fitted = dataclasses.replace(fitted, history=(*trained.history, entry))
            claim = Empirical("training continued from weights that were trained on the removed data")
            return MethodResult(fitted, claim, details=details)
        own: dict[str, Any] = {"model": options.model}
        seed = trained.recipe.seed if task.seed is None else task.seed
        if has_noised_optimum(trained):
            allowed, unchanged = release_tolerance(trained, task.target), task.training_unchanged
            fitted = (
                trained.measured_on(task.after) if unchanged else train_to_distance(task, allowed, seed=seed, **own)
            )
            details |= {"seed": seed, "retrained": not unchanged}
            change = released_around_centre(dataclasses.replace(task, may_retrain=True), fitted, details)
            return dataclasses.replace(change, restarts=True)
        if task.training_unchanged and seed == trained.recipe.seed and trained.objective_noise_vector is None:
            fitted = trained.measured_on(task.after)
            details |= {"untouched": True, "retrained": False}
        else:
            given |= {"noise_seed": task.noise_seed, **own}
            fitted = trained_anew(task.to_train_anew, task.retained, seed=seed, **given)
        notes = _same_weights_notes(task, fitted)
        return MethodResult(fitted, _claim(fitted), details=details | {"seed": seed}, notes=notes)


def has_noised_optimum(trained: Trained) -> bool:
    """Whether every release of this model is its optimum with noise. Then every path has the same claim."""
    return trained.releases_left is not None


def continue_training(old: Trained, graph: Graph, *, device: str = "cpu", progress: Progress | None = None) -> Trained:
    """Continues training from the old weights at a hundredth of the learning rate."""
    slower = dataclasses.replace(old.recipe, learning_rate=old.recipe.learning_rate / 100)
    module, inspection = copy.deepcopy(old.module), Inspection(old.reach, old.certification_blockers)
    fitted = fit(module, graph, slower, old.loss, inspection, warm=True, device=device, progress=progress)
    return dataclasses.replace(fitted, recipe=old.recipe)


def _refuse_impossible(trained: Trained, options: RetrainOptions) -> None:
    if options.start == "continued" and trained.is_ensemble:
        raise Refused("the training of an ensemble on shards cannot be continued, its shards can only be retrained")
    if options.start == "continued" and trained.composite is not None:
        raise Refused("the training of a stacked or boosted model cannot be continued, it can only be retrained")
    if options.start == "continued" and isinstance(trained.module, DeletionModel):
        raise Refused("the training of a model with operators of 'gnndelete' cannot be continued, only retrained")
    if trained.recipe.adopted and trained.retrain is None:
        refuse_untrained(trained)
    if options.start == "continued" and trained.recipe.adopted:
        raise Refused("the training of an adopted model cannot be continued, because it is not known here")


def _same_weights_notes(task: Task, fitted: Trained) -> tuple[str, ...]:
    """A private note if the function of an adopted model gave the old weights again.

    It was trained again, so this is no failure: a refusal would tell that what was deleted did not matter.
    """
    if not fitted.recipe.adopted or not torch.equal(fitted.theta, task.trained.theta):
        return ()
    return ("retrain gave the same weights as before: check that it trains, and does not read the old weights",)


def _claim(fitted: Trained) -> Claim:
    if fitted.recipe.adopted:
        return OwnTraining(sigma=fitted.recipe.sigma)
    if fitted.certification_blockers:
        return Empirical("the model was retrained, but it may carry data past its weights")
    return Exact(sigma=fitted.recipe.sigma)
