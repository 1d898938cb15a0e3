"""Trains an ensemble on shards: partitions the training nodes, trains one model per shard, fits their weights."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from graphforget.ensembles.aggregation import uniform_weights
from graphforget.ensembles.partition import kmeans_partition, label_propagation_partition, random_partition
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.models.inputs import model_inputs
from graphforget.models.inspection import Inspection
from graphforget.models.parameters import flatten
from graphforget.models.registry import build
from graphforget.models.sage import SAGE
from graphforget.models.sharded import Sharded
from graphforget.progress import Progress
from graphforget.training.fit import deterministic, fit_one
from graphforget.training.losses import CrossEntropy, Loss, captured_by_loss
from graphforget.training.recipe import Recipe, derived_seed
from graphforget.training.sharded_objective import ShardedObjective, shard_part
from graphforget.training.trained import Trained
from graphforget.training.training_input import training_input

EMBEDDING_EPOCHS = 30
EMBEDDING_HIDDEN = 32


def fit_shards(
    module: Sharded,
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
    """Splits the training nodes and trains every shard's model from fresh weights. There is no warm start."""
    started = time.perf_counter() if started is None else started
    if warm:
        raise InputError("an ensemble on shards cannot be continued, only its shards can be trained again")
    if recipe.objective_noise:
        raise InputError("an ensemble on shards takes no noise in its objective")
    report = progress or (lambda stage, done, total: None)
    report("partition", 0, 0)
    shard_of = partition(graph, module, seed=recipe.seed, progress=report)
    options: Any = {"device": device, "progress": report, "started": started}
    return train_shards(module, shard_of, graph, recipe, loss, inspection, range(module.shards), **options)


@deterministic()
def train_shards(
    module: Sharded,
    shard_of: Tensor,
    graph: Graph,
    recipe: Recipe,
    loss: Loss,
    inspection: Inspection,
    shards: Iterable[int],
    *,
    device: str,
    progress: Progress,
    started: float,
) -> Trained:
    """Trains the models of some shards from fresh weights, leaves the others, and fits the weights of all models.

    `shard_of` is the shard of each of the graph's training nodes. `module` is copied, not changed.
    """
    module, numbers = copy.deepcopy(module), list(shards)
    module.shard_of = shard_of
    for done, number in enumerate(numbers):
        progress("shards", done, len(numbers))
        part = shard_part(graph, module, number)
        fresh = _fresh(recipe, graph, number)
        if part.train_mask.any():
            own = dataclasses.replace(recipe, seed=derived_seed(recipe.seed, number))
            fresh = fit_one(fresh, part, own, loss, inspection, device=device).module
        module.models[number] = fresh.double().eval()
    module = module.double().eval()
    progress("weights of the shards", 0, 0)
    weights = shard_weights(module, graph, seed=recipe.seed)
    with torch.no_grad():
        module.weights.copy_(weights)
    objective = ShardedObjective(module, graph, mu=recipe.mu, loss=loss, device=device)
    theta = flatten(module)
    value, gradient = objective.value_and_gradient(theta.to(objective.like))
    return Trained(
        module=module,
        theta=theta,
        recipe=recipe,
        reach=inspection.reach,
        certification_blockers=tuple(dict.fromkeys([*inspection.certification_blockers, *captured_by_loss(loss)])),
        strongly_convex=False,
        converged=False,
        objective_value=value,
        gradient_norm=float(gradient.norm()),
        graph_digest=graph.digest,
        seconds=time.perf_counter() - started,
        loss=loss,
    )


def partition(graph: Graph, module: Sharded, *, seed: int, progress: Progress) -> Tensor:
    """The shard of every training node, -1 for the others; from the training nodes and the edges among them alone."""
    rows = graph.train_rows
    if module.shards > rows.numel():
        raise InputError(f"there are {module.shards} shards and only {rows.numel()} training nodes")
    if module.has_random_shards:
        inside = random_partition(graph.numbers[rows], shards=module.shards, seed=seed)
    else:
        part = graph.induced(graph.train_mask)
        if module.partition == "blpa":
            inside = label_propagation_partition(part.edge_index, nodes=part.num_nodes, shards=module.shards, seed=seed)
        else:
            points = _embedding(part, seed=seed, progress=progress)
            inside = kmeans_partition(points, shards=module.shards, seed=seed)
    shard_of = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
    shard_of[rows] = inside
    return shard_of


def shard_weights(module: Sharded, graph: Graph, *, seed: int) -> Tensor:
    """The weights of the models: equal for all that have a training node, or fitted on the training nodes."""
    alive = torch.bincount(module.shard_of[graph.train_rows], minlength=module.shards) > 0
    if module.aggregation != "learned":
        return uniform_weights(alive, module.shards)
    part = training_input(module.weights_graph(graph, seed=seed), module.reach)
    with torch.no_grad():
        answers = module.answers(*model_inputs(module, part, dtype=torch.float64))[:, part.train_rows]
    return module.learned_weights(answers, part.y[part.train_rows], alive=alive, seed=seed)


def _embedding(part: Graph, *, seed: int, progress: Progress) -> Tensor:
    """The logits of a GraphSAGE that is trained on the training nodes and the edges among them."""
    recipe = Recipe(
        model="sage",
        options={},
        seed=seed,
        mu=5e-4,
        loss=CrossEntropy().name,
        epochs=EMBEDDING_EPOCHS,
        learning_rate=0.01,
        polish_steps=0,
        tolerance=1e-3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = SAGE(part.num_columns, part.num_classes, hidden=EMBEDDING_HIDDEN, include_self=True)
    inspection = Inspection(SAGE.reach, ())
    return fit_one(module, part, recipe, CrossEntropy(), inspection, progress=progress).logits(part)


def _fresh(recipe: Recipe, graph: Graph, number: int) -> torch.nn.Module:
    """A model of the ensemble's architecture with fresh weights."""
    one = dict(recipe.options) | {"shards": 1}
    shape = {"columns": graph.num_columns, "classes": graph.num_classes, "seed": derived_seed(recipe.seed, number)}
    made = build(recipe.model, **shape, **one)
    assert isinstance(made, Sharded)
    return made.models[0]
