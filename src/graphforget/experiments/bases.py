"""Graphs, models and requests that several experiments share. Each base model is trained once and stored."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import Tensor

import graphforget as gf
from graphforget.errors import InputError
from graphforget.experiments.fingerprint import RECIPE, fingerprint, further_settings
from graphforget.experiments.settings import SHARDS, percent
from graphforget.models.inspection import Inspection
from graphforget.models.registry import build
from graphforget.models.sharded import Sharded
from graphforget.privacy import paper_bounds
from graphforget.privacy.noise import with_noise
from graphforget.progress import no_progress
from graphforget.request import sampling
from graphforget.request.kinds import Kind
from graphforget.request.sampling import Drawing
from graphforget.runs.locks import run_lock
from graphforget.training.environment import environment
from graphforget.training.losses import as_loss
from graphforget.training.recipe import Recipe
from graphforget.training.shards import partition, train_shards
from graphforget.unlearning.outcome import Outcome

NOISE_DRAWS = 20


@lru_cache(maxsize=2)
def load_graph(data: str, seed: int) -> gf.Graph:
    """The graph with a 90/10 split by the seed, as in the paper."""
    return gf.load(data, seed=seed)


def base(store: Path, data: str, model: str, seed: int, *, epochs: int | None = None) -> tuple[gf.Trained, gf.Graph]:
    """A model by the paper's recipe (but `epochs` of Adam, if it uses Adam) on a split, and its graph.

    The first process that needs it trains it and stores it in `store`; others wait for it. A stored model that cannot
    be read, or that is another model, is trained again.
    """
    graph = load_graph(data, seed)
    options: dict[str, Any] = {} if epochs is None or gf.MODELS[model].affine else {"epochs": epochs}
    name = "-".join([data, model, str(seed), *(str(value) for value in options.values())])
    return _cached(store, name, model, seed, graph, lambda: gf.train(graph, model, seed=seed, recipe=RECIPE, **options))


def retrained_without_edges(
    store: Path, data: str, model: str, seed: int, share: float, *, epochs: int | None = None
) -> tuple[gf.Trained, gf.Graph]:
    """The model of `base` retrained without a share of the edges, and the retained graph. It is stored like `base`."""
    trained, graph = base(store, data, model, seed, epochs=epochs)
    request = draw_request(graph, "edges", share, seed=seed)
    name = "-".join([data, model, str(seed), *([] if epochs is None else [str(epochs)]), "without", percent(share)])
    return _cached(
        store,
        name,
        model,
        seed,
        graph.without(request),
        lambda: gf.unlearn(trained, graph, request, method="retrain").trained,
    )


def _cached(
    store: Path, name: str, model: str, seed: int, graph: gf.Graph, make: Callable[[], gf.Trained]
) -> tuple[gf.Trained, gf.Graph]:
    """The model that is stored under this name if it is this one on this graph; else it is made and stored."""
    own = further_settings(model, RECIPE)
    name = f"{name}-{fingerprint()}" + (f"-{own}" if own is not None else "")
    run, lock = store / name, store / f".{name}.lock"
    lock.mkdir(parents=True, exist_ok=True)
    with run_lock(lock):
        try:
            return _load_base(run, model, seed, graph.digest)
        except InputError:
            _remove(run)
            gf.save_run(run, make(), graph)
        return _load_base(run, model, seed, graph.digest)


@lru_cache(maxsize=2)
def _load_base(run: Path, model: str, seed: int, digest: str) -> tuple[gf.Trained, gf.Graph]:
    trained, graph = gf.load_run(run)
    if (trained.recipe.model, trained.recipe.seed, graph.digest) != (model, seed, digest):
        raise InputError(f"{run} holds another model")
    return trained, graph


def _remove(run: Path) -> None:
    if run.is_dir() and not run.is_symlink():
        shutil.rmtree(run)
    else:
        run.unlink(missing_ok=True)


def sharded(graph: gf.Graph, model: str, method: str, seed: int, *, data: str, epochs: int | None = None) -> gf.Trained:
    """GraphEraser's ensemble of a model with learned weights of its shards, partitioned by `method`; not stored."""
    return gf.train(graph, f"sharded-{model}", seed=seed, recipe=RECIPE, epochs=epochs, **_shards(method, data))


def untrained_shards(
    graph: gf.Graph, model: str, method: str, seed: int, *, data: str, epochs: int | None = None
) -> tuple[Sharded, Tensor, Recipe]:
    """Its models with fresh weights, the shard of every training node, and the recipe that `sharded` would use."""
    entry, options = gf.MODELS[f"sharded-{model}"], _shards(method, data)
    module = build(entry.name, columns=graph.num_columns, classes=graph.num_classes, seed=seed, **options)
    assert isinstance(module, Sharded)
    schedule = entry.schedule(RECIPE)
    recipe = Recipe(
        model=entry.name,
        options=options,
        seed=seed,
        mu=entry.mu,
        loss=entry.loss,
        epochs=schedule.epochs if epochs is None else epochs,
        learning_rate=schedule.learning_rate,
        polish_steps=schedule.polish_steps,
        tolerance=1e-3,
        environment=environment(),
    )
    return module, partition(graph, module, seed=seed, progress=no_progress), recipe


def trained_shards(
    module: Sharded, shard_of: Tensor, graph: gf.Graph, recipe: Recipe, shards: Iterable[int]
) -> gf.Trained:
    """The ensemble with these shards trained on `graph` and with the weights of all shards learned."""
    inspection, loss = Inspection(module.reach, ()), as_loss(recipe.loss)
    arguments: dict[str, Any] = {"device": "cpu", "progress": no_progress, "started": time.perf_counter()}
    return train_shards(module, shard_of, graph, recipe, loss, inspection, shards, **arguments)


def _shards(method: str, data: str) -> dict[str, Any]:
    return {"shards": SHARDS[data], "partition": method, "aggregation": "learned"}


def draw_request(graph: gf.Graph, kind: Kind, share: float, *, seed: int) -> gf.Request:
    return sampling.draw_request(graph, Drawing(kind, share=share), seed=seed)


def idea_bound(outcome: Outcome) -> float:
    """The paper's bound for IDEA's step, under the paper's constants."""
    step = outcome.trained.history[-1]
    return paper_bounds.idea_bound(
        m=step.m, removed=step.removed, affected=step.affected, step_norm=step.step_norm, constants=gf.Constants()
    )


def f1_percent(model: gf.Trained, graph: gf.Graph) -> float:
    """Test micro-F1 in %."""
    return 100 * model.micro_f1(graph)


def f1_percent_with_noise(model: gf.Trained, theta: Tensor, graph: gf.Graph, *, sigma: float) -> float:
    """Test micro-F1 in % of `theta` with fresh noise: a mean over draws that are the same for all models of a seed."""
    first = NOISE_DRAWS * model.recipe.seed
    draws = (with_noise(theta, sigma=sigma, seed=first + draw) for draw in range(NOISE_DRAWS))
    return statistics.fmean(f1_percent(model.with_weights(noised), graph) for noised in draws)
