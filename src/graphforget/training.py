"""Minimises an objective: Newton's method where it is convex, Adam and then a polish elsewhere."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.checks import checked_device, whole_number
from graphforget.doctor import Inspection, data_carriers, inspect, picked_up
from graphforget.errors import InputError
from graphforget.graph import Graph
from graphforget.linalg.newton import newton_cg
from graphforget.losses import Loss, LossFunction, as_loss, check_loss, held_by, is_convex
from graphforget.models.base import is_built_in
from graphforget.models.parameters import assign, flatten, trainable
from graphforget.models.reach import Reach
from graphforget.models.registry import LINEARISED_SIGMA, MODELS, ModelEntry, build, is_affine
from graphforget.objective import Objective, model_inputs
from graphforget.trained import Recipe, Trained

Progress = Callable[[str, int, int], None]  # stage, done, total

# Gradients are measured in float64; below this norm what is measured may be rounding.
ROUNDING_FLOOR = 1e-12

OWN_MODEL = ModelEntry("own", "a model of one's own", nn.Module, mu=5e-4, affine=False, sigma=LINEARISED_SIGMA)


def train(
    graph: Graph,
    model: str | nn.Module = "sgc",
    *,
    seed: int = 0,
    mu: float | None = None,
    loss: Loss | LossFunction | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    polish_steps: int | None = None,
    tolerance: float | None = None,
    sigma: float | None = None,
    reach: Reach | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    **options: Any,
) -> Trained:
    """Trains `model` on the graph's training nodes and returns it with what was reached.

    `model` is a name (`graphforget models` lists them) with its own `options` (`hidden=32`), or any `torch.nn.Module`
    called as `module(x, edge_index)`; it is copied, never changed. `reach` declares how far its messages travel.

    `sigma` is the noise that every release of this model will carry, whatever the request: a larger one is met by less
    work, a smaller one leaves the model more accurate. By default it is small where the objective is strongly convex,
    and 0 elsewhere.

    A strongly convex objective is minimised from 0 by Newton's method until `||grad F|| / mu <= tolerance`, in float64;
    by default 1e-3, or a fiftieth of sigma if that is less. Any other is trained by Adam in float32 with dropout on,
    then polished by L-BFGS in float64, dropout off.
    """
    started = time.perf_counter()
    if not isinstance(graph, Graph):
        raise InputError(f"the graph is a {type(graph).__name__}, a graphforget.Graph is needed")
    seed, device = whole_number(seed, "seed"), checked_device(device)
    name, module = _module(graph, model, seed, options)
    defaults = MODELS.get(name, OWN_MODEL)
    if sigma is None:  # 0 where no tolerance follows from it
        sigma = defaults.sigma if is_affine(module) and is_convex(as_loss(loss)) else 0.0
    sigma = float(sigma)
    if not 0 <= sigma < math.inf:
        raise InputError(f"sigma is {sigma}, a finite number from 0 is needed")
    recipe = Recipe(
        model=name,
        options=options,
        seed=seed,
        mu=defaults.mu if mu is None else float(mu),
        loss=as_loss(loss).name,
        epochs=defaults.epochs if epochs is None else whole_number(epochs, "epochs"),
        learning_rate=defaults.learning_rate if learning_rate is None else float(learning_rate),
        polish_steps=defaults.polish_steps if polish_steps is None else whole_number(polish_steps, "polish_steps"),
        tolerance=min(1e-3, sigma / 50 or 1e-3) if tolerance is None else float(tolerance),
        sigma=sigma,
    )
    _check(recipe)
    check_loss(as_loss(loss), classes=graph.num_classes)
    inspection = inspect(module, columns=graph.num_columns, classes=graph.num_classes, declared=reach)
    return fit(module, graph, recipe, as_loss(loss), inspection, device=device, progress=progress, started=started)


def fit(
    module: nn.Module,
    graph: Graph,
    recipe: Recipe,
    loss: Loss,
    inspection: Inspection,
    *,
    warm: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
    started: float | None = None,
) -> Trained:
    """Follows `recipe` from the weights that `module` comes with, which it changes.

    A strongly convex objective has one minimum, and Newton's method starts at 0 unless `warm`.
    """
    started = time.perf_counter() if started is None else started
    convex = is_affine(module) and is_convex(loss)
    untrained = copy.deepcopy(module)
    if not convex:
        _adam(module, graph, recipe, loss, device, progress)
    objective = Objective(module, graph, mu=recipe.mu, loss=loss, device=device)
    start = flatten(module).to(objective.data.like)
    if convex:
        start = start if warm else torch.zeros_like(start)
        theta, converged = _newton(objective, start, recipe, progress)
    else:
        theta, converged = _polish(objective, start, recipe, progress), False
    value, gradient = objective.value_and_gradient(theta)
    module = module.double().eval().cpu()
    assign(module, theta)
    return Trained(
        module=module,
        theta=theta.cpu(),
        recipe=recipe,
        reach=inspection.reach,
        obstacles=_obstacles(inspection, untrained, module, loss),
        strongly_convex=convex,
        converged=converged,
        objective_value=value,
        gradient_norm=float(gradient.norm()),
        graph_digest=graph.digest,
        seconds=time.perf_counter() - started,
        loss=loss,
    )


def _obstacles(inspection: Inspection, before: nn.Module, after: nn.Module, loss: Loss) -> tuple[str, ...]:
    """What was found before training, what the module has come to hold since, and what the loss holds."""
    found = list(inspection.obstacles)
    if not is_built_in(after):
        found += [*data_carriers(after), *picked_up(before, after)]
    return tuple(dict.fromkeys([*found, *held_by(loss)]))


def _check(recipe: Recipe) -> None:
    for name, value, good in (
        ("mu", recipe.mu, 0 < recipe.mu < math.inf),
        ("tolerance", recipe.tolerance, 0 < recipe.tolerance < math.inf),
        ("tolerance x mu", recipe.tolerance * recipe.mu, recipe.tolerance * recipe.mu >= ROUNDING_FLOOR),
        ("learning_rate", recipe.learning_rate, 0 < recipe.learning_rate < math.inf),
    ):
        if not good:
            raise InputError(f"{name} is {value}, it must be positive, finite and well above rounding")


def _module(graph: Graph, model: str | nn.Module, seed: int, options: dict[str, Any]) -> tuple[str, nn.Module]:
    if isinstance(model, str):
        return model.lower(), build(model, columns=graph.num_columns, classes=graph.num_classes, seed=seed, **options)
    if not isinstance(model, nn.Module):
        raise InputError(f"the model is a {type(model).__name__}, a name or a torch.nn.Module is needed")
    if options:
        raise InputError(f"option {next(iter(options))!r} belongs to built-in models, set it on your module instead")
    if not trainable(model):
        raise InputError("the model has no trainable parameter")
    return f"{type(model).__module__}.{type(model).__qualname__}", copy.deepcopy(model)


def _newton(objective: Objective, start: Tensor, recipe: Recipe, progress: Progress | None) -> tuple[Tensor, bool]:
    def report(step: int, norm: float) -> None:
        if progress is not None:
            progress(f"Newton, ||grad F||/mu = {norm / recipe.mu:.1e}", step, 0)

    minimum = newton_cg(objective, start, gradient_tolerance=recipe.tolerance * recipe.mu, on_step=report)
    return minimum.theta, minimum.status == "converged"


def _adam(module: nn.Module, graph: Graph, recipe: Recipe, loss: Loss, device: str, progress: Progress | None) -> None:
    """Full-batch Adam on `F` with dropout on, from the module's own weights, which it changes."""
    module.to(device=device, dtype=torch.float32).train()
    inputs = model_inputs(module, graph, dtype=torch.float32, device=device)
    rows, labels = graph.train_rows.to(device), graph.y[graph.train_rows].to(device)
    parameters = [p for _, p in trainable(module)]
    optimiser = torch.optim.Adam(parameters, lr=recipe.learning_rate)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        for epoch in range(recipe.epochs):
            optimiser.zero_grad()
            data = loss(module(*inputs)[rows], labels).mean()
            penalty = sum(p.square().sum() for p in parameters)
            value = data + 0.5 * recipe.mu * penalty
            value.backward()
            optimiser.step()
            if progress is not None:
                progress("Adam", epoch + 1, recipe.epochs)
    if not torch.isfinite(flatten(module)).all():
        raise InputError(f"training diverged, lower the learning rate {recipe.learning_rate}")


def _polish(objective: Objective, start: Tensor, recipe: Recipe, progress: Progress | None) -> Tensor:
    """L-BFGS on `F` itself, dropout off, in float64: brings the gradient down without going anywhere else."""
    theta = start.clone().requires_grad_()
    if recipe.polish_steps == 0:
        return theta.detach()
    optimiser = torch.optim.LBFGS(
        [theta],
        max_iter=recipe.polish_steps,
        history_size=20,
        tolerance_grad=recipe.tolerance * recipe.mu,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    evaluations = itertools.count(1)

    def closure() -> float:
        value, theta.grad = objective.value_and_gradient(theta.detach())
        if progress is not None:
            progress("polish", min(next(evaluations), recipe.polish_steps), recipe.polish_steps)
        return value

    optimiser.step(closure)
    return theta.detach()
