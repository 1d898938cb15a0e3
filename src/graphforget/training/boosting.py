"""Trains a boosted model: the convex start to its optimum, then a network from the weights that are released of it."""

from __future__ import annotations

import copy
import dataclasses
import time

import torch
from torch import Tensor

from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.models.boosted import Boosted, Network, Residual
from graphforget.models.composite import made_by_seed
from graphforget.models.inputs import model_inputs
from graphforget.models.inspection import Inspection, attribute_state, changed_attributes, data_carriers
from graphforget.models.parameters import flatten
from graphforget.progress import Progress
from graphforget.training.environment import environment
from graphforget.training.fit import NOT_REPLAYABLE, deterministic, fit_one, train_by_adam
from graphforget.training.losses import Loss
from graphforget.training.recipe import Recipe, derived_seed
from graphforget.training.trained import Trained
from graphforget.training.training_input import training_input


def fit_boosted(
    module: Boosted,
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
    """Trains the start to its optimum and a network from it. `module` is changed."""
    started = time.perf_counter() if started is None else started
    if warm:
        raise InputError("the training of a boosted model cannot be continued, its network is trained anew every time")
    if recipe.objective_noise:
        raise InputError("a boosted model takes no noise in its objective")
    trained = fit_one(module, graph, recipe, loss, inspection, device=device, progress=progress, started=started)
    trained, findings = _trained_network(trained, trained.theta, graph, device=device, progress=progress)
    blockers = tuple(dict.fromkeys([*trained.certification_blockers, *findings]))
    return dataclasses.replace(trained, certification_blockers=blockers, seconds=time.perf_counter() - started)


def with_network(
    trained: Trained, theta: Tensor, graph: Graph, *, device: str = "cpu", progress: Progress | None = None
) -> Trained:
    """The model with a network that is trained from the released weights `theta` on `graph`, from fresh weights.

    The network depends on both, the recipe and nothing else. A model that is not boosted is returned as it is.

    Raises:
        Refused: Training on this graph found something in the network that rules out the certificate of the model.
    """
    if not trained.is_boosted:
        return trained
    trained, findings = _trained_network(trained, theta, graph, device=device, progress=progress)
    new = [finding for finding in findings if finding not in trained.certification_blockers]
    if new:
        raise Refused(f"the network cannot be released: {new[0]}")
    return trained


def without_network(trained: Trained) -> Trained:
    """The start of a boosted model alone."""
    module = copy.deepcopy(trained.boosted)
    module.network = None
    return dataclasses.replace(trained, module=module)


@deterministic()
def _trained_network(
    trained: Trained, theta: Tensor, graph: Graph, *, device: str, progress: Progress | None
) -> tuple[Trained, list[str]]:
    trained = without_network(trained)
    module, recipe = trained.boosted, trained.recipe
    own = dataclasses.replace(recipe, seed=derived_seed(recipe.seed, 0), mu=module.network_mu)
    part = training_input(graph, module.network_reach if module.built_in_modules else Reach(None))
    logits = module.start_logits(theta, *model_inputs(module, graph, dtype=torch.float64))
    network = made_by_seed(module.make, own.seed)
    before = attribute_state(network)
    inputs = model_inputs(network.float(), part, dtype=torch.float32, device=device)
    residual = Residual(network, logits[torch.searchsorted(graph.numbers, part.numbers)].float())
    unkeyed = train_by_adam(residual, part, own, trained.loss, inputs=inputs, device=device, progress=progress)
    network = network.double().eval().cpu()
    if not torch.isfinite(flatten(network)).all():
        raise InputError(f"training diverged, lower the learning rate {recipe.learning_rate}")
    module.network = Network(network, float(residual.gate.detach().double()))
    findings = [*([NOT_REPLAYABLE] if unkeyed else []), *changed_attributes(before, network)]
    trained = dataclasses.replace(trained, recipe=dataclasses.replace(recipe, environment=environment(device=device)))
    return trained, [*findings, *data_carriers(network, fits_statistics=not module.built_in_modules)]
