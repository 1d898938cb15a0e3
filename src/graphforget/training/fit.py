"""Minimises one objective: by Newton's method if it is convex, otherwise by Adam followed by L-BFGS."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.graph.targets import as_numbers
from graphforget.linalg.newton import Minimum
from graphforget.linalg.pattern import Pattern
from graphforget.models.built_in import as_stacked, is_built_in
from graphforget.models.dropout import KeyedDropout
from graphforget.models.inputs import fresh_inputs, model_inputs
from graphforget.models.inspection import Inspection, attribute_state, changed_attributes, data_carriers
from graphforget.models.item_networks import NetworkInputs
from graphforget.models.items import items_of, view_of
from graphforget.models.parameters import adam_for, assign, backward_with_l2, flatten, trainable
from graphforget.models.registry import is_affine
from graphforget.privacy.noise import noise
from graphforget.progress import Progress
from graphforget.training.distributed_objective import objective_on
from graphforget.training.losses import Loss, assumed_convex, captured_by_loss
from graphforget.training.objective import Objective, minimise
from graphforget.training.recipe import Recipe
from graphforget.training.trained import Trained
from graphforget.training.training_input import input_of_view

NOT_REPLAYABLE = "the module draws random numbers that are not keyed by node number, so its training cannot be replayed"


@contextmanager
def deterministic() -> Iterator[None]:
    """Torch's deterministic algorithms, with a warning for an operation that has none.

    Without them threads add up in any order. The caller's settings are restored afterwards. New memory is not filled,
    which would only take time.
    """
    mode = torch.get_deterministic_debug_mode()
    settings: Any = torch.utils.deterministic
    filled = settings.fill_uninitialized_memory
    torch.set_deterministic_debug_mode(max(mode, 1))  # 1: warn; `use_deterministic_algorithms` would load the compiler
    settings.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        settings.fill_uninitialized_memory = filled


@deterministic()
def fit_one(
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
    objective_noise_vector: Tensor | None = None,
) -> Trained:
    """Trains `module` by `recipe`, from the weights that it has; `module` is changed.

    Training reads the graph's training input and nothing else of the graph. A strongly convex objective has one
    minimum, and Newton's method starts at 0 unless `warm`. A loss that is declared convex counts as convex.
    `objective_noise_vector` is the noise in the objective, if it has been drawn already.
    """
    started = time.perf_counter() if started is None else started
    convex = is_affine(module) and assumed_convex(loss)
    before = None if is_built_in(module) else attribute_state(module)
    noise_vector = _objective_noise(module, recipe) if objective_noise_vector is None else objective_noise_vector
    part, inputs = _training_data(module, graph, inspection, convex=convex, device=device)
    adam: Any = {"linear_term": noise_vector, "device": device, "progress": progress}
    unkeyed = False if convex else train_by_adam(module, part, recipe, loss, **adam)
    given: Any = {"objective_noise_vector": noise_vector, "device": device, "inputs": inputs}
    objective = objective_on(module, part, mu=recipe.mu, loss=loss, **given)
    start = flatten(module).to(objective.like)
    start = torch.zeros_like(start) if convex and not warm else start
    minimum = (_newton if convex else _polish)(objective, start, recipe, progress)
    module = module.double().eval().cpu()
    assign(module, minimum.theta)
    return Trained(
        module=module,
        theta=minimum.theta.cpu(),
        recipe=recipe,
        reach=inspection.reach,
        certification_blockers=blockers_after_training(inspection, before, module, loss, unkeyed=unkeyed),
        strongly_convex=convex,
        converged=minimum.status == "converged",
        objective_value=minimum.value,
        gradient_norm=minimum.gradient_norm,
        graph_digest=graph.digest,
        seconds=time.perf_counter() - started,
        loss=loss,
        objective_noise_vector=noise_vector,
        preconditioner=minimum.preconditioner,
    )


def _training_data(
    module: nn.Module, graph: Graph, inspection: Inspection, *, convex: bool, device: str
) -> tuple[Graph, tuple[Any, Any] | None]:
    """The part of the graph that training reads, and the inputs of the model if they are there already.

    The embeddings of a stacked model are computed once, for training and for everything after it. So are features that
    follow deletions, and each row of them depends on the training input alone, to the last bit. That is true of
    Newton's method, which reads the rows of training nodes and no others.
    """
    if isinstance(graph, DistributedGraph):
        return graph, None
    inputs = fresh_inputs(module, graph, device=device) if convex else None
    if as_stacked(module) is not None or inputs is not None:
        return graph, inputs
    return input_of_view(graph, inspection.reach, view_of(module)), None


def _objective_noise(module: nn.Module, recipe: Recipe) -> Tensor | None:
    """The vector `b` of objective perturbation, drawn by the recipe's noise seed; None without such noise."""
    if not recipe.objective_noise:
        return None
    return noise(size=flatten(module).numel(), sigma=recipe.objective_noise, seed=recipe.noise_seed)


def blockers_after_training(
    inspection: Inspection,
    before: dict[tuple[str, str], str] | None,
    module: nn.Module,
    loss: Loss,
    *,
    unkeyed: bool,
) -> tuple[str, ...]:
    """Everything that rules out a certificate, once the module is trained.

    These are the findings of the inspection before training, random numbers that cannot be replayed, data that the
    module or the loss holds now, and attributes that training changed. `before` is `attribute_state` before training;
    it is None for a model of this package, which has no such attributes.
    """
    findings = [*inspection.certification_blockers, *([NOT_REPLAYABLE] if unkeyed else [])]
    findings += data_carriers(module, fits_statistics=inspection.fits_statistics)
    if before is not None:
        findings += changed_attributes(before, module)
    return tuple(dict.fromkeys([*findings, *captured_by_loss(loss)]))


def _newton(objective: Objective, start: Tensor, recipe: Recipe, progress: Progress | None) -> Minimum:
    def report(step: int, norm: float) -> None:
        if progress is not None:
            progress(f"Newton, ||grad F||/mu = {norm / recipe.mu:.1e}", step, 0)

    tolerance = recipe.tolerance * recipe.mu
    return minimise(objective, start, gradient_tolerance=tolerance, on_step=report, learn_ritz=True)


def train_by_adam(
    module: nn.Module,
    graph: Graph,
    recipe: Recipe,
    loss: Loss,
    *,
    inputs: tuple[Any, Any] | None = None,
    linear_term: Tensor | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> bool:
    """Full-batch Adam on `F` with dropout on, from the module's own weights, which it changes.

    `inputs` are those of the module on `graph`, if they are not to be made here; `linear_term` is the noise in the
    objective. Dropout is keyed by node number. Returns whether the module drew any other random number.
    """
    module.to(device=device, dtype=torch.float32).train()
    inputs = model_inputs(module, graph, dtype=torch.float32, device=device) if inputs is None else inputs
    items = items_of(module, graph)
    parameters = [p for _, p in trainable(module)]
    rows, labels = items.train_rows.to(device), as_numbers(items.y[items.train_rows], parameters[0])
    linear_term = None if linear_term is None else linear_term.to(parameters[0]) / rows.numel()
    optimiser = adam_for(parameters, recipe.learning_rate)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        dropout = KeyedDropout(graph.numbers, _dropped_edges(inputs[1], graph, device), seed=recipe.seed, device=device)
        for epoch in range(recipe.epochs):
            optimiser.zero_grad()
            with dropout.at(epoch):
                logits = module(*inputs)
            value = loss(logits.index_select(0, rows), labels).mean()
            if linear_term is not None:
                value = value + linear_term @ torch.cat([p.reshape(-1) for p in parameters])
            backward_with_l2(value, parameters, recipe.mu)
            optimiser.step()
            if progress is not None:
                progress("Adam", epoch + 1, recipe.epochs)
    if not torch.isfinite(flatten(module)).all():
        raise InputError(f"training diverged, lower the learning rate {recipe.learning_rate}")
    return dropout.unkeyed


def _dropped_edges(edges: Any, graph: Graph, device: str) -> Tensor | Pattern:
    """The edges by which dropout on messages is keyed, in the order in which the module has them."""
    if isinstance(edges, NetworkInputs):
        return edges.edges
    return edges if isinstance(edges, Pattern) else graph.edge_index.to(device)


def _polish(objective: Objective, start: Tensor, recipe: Recipe, progress: Progress | None) -> Minimum:
    theta = lbfgs(objective, start, recipe, progress)
    value, gradient = objective.value_and_gradient(theta)
    return Minimum(theta, "steps spent", recipe.polish_steps, 0, value, gradient)  # nothing is known of the optimum


def lbfgs(objective: Objective, start: Tensor, recipe: Recipe, progress: Progress | None) -> Tensor:
    """L-BFGS on `F` with dropout off, in float64: reduces the gradient close to the weights that Adam found."""
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
