"""Trains a model again by its recipe, from fresh weights. With the same seeds this is a replay."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.models.inspection import Inspection
from graphforget.models.parameters import trainable
from graphforget.models.registry import MODELS, build, is_affine
from graphforget.progress import Progress
from graphforget.training.losses import assumed_convex
from graphforget.training.own_training import retrained_by_own_function
from graphforget.training.recipe import Recipe
from graphforget.training.train import fit
from graphforget.training.trained import Trained


def replayed(
    trained: Trained,
    graph: Graph,
    *,
    objective_noise_vector: Tensor | None = None,
    model: Callable[[], nn.Module] | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Trained:
    """Trains by the recipe of `trained` on `graph`, with the same seeds and from fresh weights.

    An `exact` claim is right if the result has the same `theta` as `trained`, bit for bit, in the same environment
    (`training/environment.py`). Noise in the objective is drawn by the recipe's seed. If the recipe has no such seed,
    it is `objective_noise_vector`, by default the noise that `trained` holds. A user's module is reset, or made by
    `model`.

    Raises:
        Refused: The recipe cannot have made these weights, or a parameter of the module cannot be drawn again.
    """
    recipe = trained.recipe
    if objective_noise_vector is None and recipe.noise_seed is None:
        objective_noise_vector = trained.objective_noise_vector
    if recipe.objective_noise and recipe.noise_seed is None and objective_noise_vector is None:
        raise Refused("the noise in the objective has no seed and was not kept, so the training cannot be replayed")
    options: Any = {
        "model": model,
        "objective_noise_vector": objective_noise_vector,
        "device": device,
        "progress": progress,
    }
    return trained_anew(trained, graph, seed=recipe.seed, noise_seed=recipe.noise_seed, **options)


def trained_anew(
    old: Trained,
    graph: Graph,
    *,
    seed: int,
    noise_seed: int | None = None,
    model: Callable[[], nn.Module] | None = None,
    objective_noise_vector: Tensor | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Trained:
    """Trains a model of the same kind from fresh weights, by the same recipe with these seeds.

    An adopted model is trained by its own function. `objective_noise_vector` is the noise in the objective, if none is
    to be drawn.
    """
    if old.recipe.adopted:
        if model is not None:
            raise InputError("an adopted model is retrained by its own function, leave model out")
        return retrained_by_own_function(old, graph, seed=seed, device=device)
    recipe = dataclasses.replace(old.recipe, seed=seed, noise_seed=noise_seed)
    module = fresh_module(old, graph, recipe, model)
    options: Any = {"objective_noise_vector": objective_noise_vector, "device": device, "progress": progress}
    return fit(module, graph, recipe, old.loss, Inspection(old.reach, old.certification_blockers), **options)


def refuse_untrained(trained: Trained) -> None:
    """Raises `Refused` if training by the recipe cannot have made the weights, and so cannot make them again."""
    recipe = trained.recipe
    if recipe.adopted:
        raise Refused(
            "the model was trained elsewhere and has no function that trains it again, so no guarantee is possible: "
            "give that function (retrain=..., --retrain), ask for method 'idea' at level 'empirical', or train the "
            "class as a stacked model, which can be certified"
        )
    fitted = trained.ensemble.models[0] if trained.is_ensemble else trained.module
    if is_affine(fitted) and assumed_convex(trained.loss):
        return
    if recipe.epochs == 0 and (recipe.polish_steps == 0 or recipe.model not in MODELS):
        raise Refused(
            f"the recipe has {recipe.epochs} epochs and {recipe.polish_steps} polish steps, so it did not make these "
            "weights and cannot make them again; train the model on the retained graph as it was trained before"
        )


def fresh_module(old: Trained, graph: Graph, recipe: Recipe, make: Callable[[], nn.Module] | None = None) -> nn.Module:
    """The same architecture with fresh weights. Raises `Refused` if they cannot be drawn."""
    refuse_untrained(old)
    if old.composite is not None:  # with its given parts, which are not in the recipe
        if make is not None:
            raise InputError("a stacked or boosted model makes its modules by itself, leave model out")
        return old.composite.untrained()
    if recipe.model in MODELS:
        if make is not None:
            raise InputError(f"{recipe.model} is a built-in model and is made again by itself, leave model out")
        shape: dict[str, Any] = {"columns": graph.num_columns, "classes": graph.num_classes, "seed": recipe.seed}
        return build(recipe.model, **shape, **recipe.options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        if make is not None:
            made = _made(old.module, make)
            torch.manual_seed(recipe.seed + 1)
            _refuse_fixed(made, make())
            return made
        if old.strongly_convex:  # trained from 0, whatever the weights are
            return copy.deepcopy(old.module)
        return _reset(old.module)


def _reset(old: nn.Module) -> nn.Module:
    """A copy with fresh parameters. They are NaN first, so that a parameter that is not drawn is noticed."""
    module = copy.deepcopy(old)
    with torch.no_grad():
        for _, parameter in trainable(module):
            parameter.fill_(float("nan"))
    for part in module.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
    unset = [name for name, parameter in trainable(module) if not torch.isfinite(parameter).all()]
    if unset:
        raise Refused(
            f"parameter {unset[0]!r} is not drawn again by any reset_parameters(), so give a function that makes a "
            "fresh module, model=..."
        )
    return module


def _refuse_fixed(made: nn.Module, other: nn.Module) -> None:
    """Raises `InputError` if two modules, made by different seeds, have the same weights: these may be trained ones."""
    for (name, first), (_, second) in zip(trainable(made), trainable(other), strict=True):
        constant = bool((first == first.flatten()[0]).all()) if first.numel() else True
        if not constant and torch.equal(first, second):
            raise InputError(f"'model' makes the same parameter {name!r} whatever the seed, so it is not a fresh one")


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
