"""What several experiments start from: graphs by split, and models that are trained once and kept."""

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
from graphforget.experiments.fingerprint import fingerprint
from graphforget.experiments.settings import SHARDS, percent
from graphforget.models.inspection import Inspection
from graphforget.models.registry import build
from graphforget.models.sharded import Sharded
from graphforget.privacy import paper_bounds
from graphforget.privacy.noise import with_noise
from graphforget.request.kinds import Kind
from graphforget.request.sampling import Drawing, draw_request
from graphforget.runs.locks import run_lock
from graphforget.training.environment import environment
from graphforget.training.losses import as_loss
from graphforget.training.recipe import Recipe
from graphforget.training.shards import partition, train_shards
from graphforget.unlearning.outcome import Outcome

NOISE_DRAWS = 20


@lru_cache(maxsize=2)
def graph_of(data: str, seed: int) -> gf.Graph:
    """Split 90/10 by the seed, as in the paper."""
    return gf.load(data, seed=seed)


def base(store: Path, data: str, model: str, seed: int, *, epochs: int | None = None) -> tuple[gf.Trained, gf.Graph]:
    """A model with its defaults (but `epochs` of Adam, where there are any) on a split, and its graph.

    It is trained by whoever asks first and kept in `store`; others who ask meanwhile wait for it. If what is kept there
    cannot be read, or is something else, it is trained anew.
    """
    graph = graph_of(data, seed)
    own: dict[str, Any] = {} if epochs is None or gf.MODELS[model].affine else {"epochs": epochs}
    name = "-".join([data, model, str(seed), *(str(value) for value in own.values())])
    return _once(store, name, model, seed, graph, lambda: gf.train(graph, model, seed=seed, **own))


def retrained_without_edges(
    store: Path, data: str, model: str, seed: int, share: float, *, epochs: int | None = None
) -> tuple[gf.Trained, gf.Graph]:
    """The model of `base` trained anew without a share of the edges, and what is left of the graph; kept as that is."""
    trained, graph = base(store, data, model, seed, epochs=epochs)
    request = request_of(graph, "edges", share, seed=seed)
    name = "-".join([data, model, str(seed), *([] if epochs is None else [str(epochs)]), "without", percent(share)])
    return _once(
        store,
        name,
        model,
        seed,
        graph.without(request),
        lambda: gf.unlearn(trained, graph, request, method="retrain").trained,
    )


def _once(
    store: Path, name: str, model: str, seed: int, graph: gf.Graph, make: Callable[[], gf.Trained]
) -> tuple[gf.Trained, gf.Graph]:
    """The model that is kept under this name, if it is this one on this graph; else it is made and kept."""
    name = f"{name}-{fingerprint()}"
    run, lock = store / name, store / f".{name}.lock"
    lock.mkdir(parents=True, exist_ok=True)
    with run_lock(lock):
        try:
            return _kept(run, model, seed, graph.digest)
        except InputError:
            _remove(run)
            gf.save_run(run, make(), graph)
        return _kept(run, model, seed, graph.digest)


@lru_cache(maxsize=2)
def _kept(run: Path, model: str, seed: int, digest: str) -> tuple[gf.Trained, gf.Graph]:
    trained, graph = gf.load_run(run)
    if (trained.recipe.model, trained.recipe.seed, graph.digest) != (model, seed, digest):
        raise InputError(f"{run} holds another model")
    return trained, graph


def _remove(run: Path) -> None:
    if run.is_dir() and not run.is_symlink():
        shutil.rmtree(run)
    else:
        run.unlink(missing_ok=True)


def sharded(graph: gf.Graph, model: str, way: str, seed: int, *, data: str, epochs: int | None = None) -> gf.Trained:
    """GraphEraser's ensemble of a model, partitioned this way, with learned weights of its shards; it is not kept."""
    return gf.train(graph, f"sharded-{model}", seed=seed, epochs=epochs, **_shards(way, data))


def untrained_shards(
    graph: gf.Graph, model: str, way: str, seed: int, *, data: str, epochs: int | None = None
) -> tuple[Sharded, Tensor, Recipe]:
    """Its models with fresh weights, the shard of every training node, and how `sharded` would train them."""
    entry, options = gf.MODELS[f"sharded-{model}"], _shards(way, data)
    module = build(entry.name, columns=graph.num_columns, classes=graph.num_classes, seed=seed, **options)
    assert isinstance(module, Sharded)
    recipe = Recipe(
        model=entry.name,
        options=options,
        seed=seed,
        mu=entry.mu,
        loss=entry.loss,
        epochs=entry.epochs if epochs is None else epochs,
        learning_rate=entry.learning_rate,
        polish_steps=entry.polish_steps,
        tolerance=1e-3,
        environment=environment(),
    )
    return module, partition(graph, module, seed=seed, progress=_quietly), recipe


def trained_shards(
    module: Sharded, shard_of: Tensor, graph: gf.Graph, recipe: Recipe, shards: Iterable[int]
) -> gf.Trained:
    """The ensemble with these shards trained on `graph`, and the weights of all learned."""
    inspection, loss = Inspection(module.reach, ()), as_loss(recipe.loss)
    given: dict[str, Any] = {"device": "cpu", "progress": _quietly, "started": time.perf_counter()}
    return train_shards(module, shard_of, graph, recipe, loss, inspection, shards, **given)


def _shards(way: str, data: str) -> dict[str, Any]:
    return {"shards": SHARDS[data], "partition": way, "aggregation": "learned"}


def _quietly(stage: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def request_of(graph: gf.Graph, kind: Kind, share: float, *, seed: int) -> gf.Request:
    return draw_request(graph, Drawing(kind, share=share), seed=seed)


def idea_bound(outcome: Outcome) -> float:
    """The paper's bound for IDEA's step, under the paper's constants."""
    step = outcome.trained.history[-1]
    return paper_bounds.idea_bound(
        m=step.m, removed=step.removed, affected=step.affected, step_norm=step.step_norm, constants=gf.Constants()
    )


def percent_right(model: gf.Trained, graph: gf.Graph) -> float:
    """Test micro-F1 in %."""
    return 100 * model.micro_f1(graph)


def percent_right_with_noise(model: gf.Trained, theta: Tensor, graph: gf.Graph, *, sigma: float) -> float:
    """Test micro-F1 in % of `theta` with fresh noise, a mean over draws that are the same for all models of a seed."""
    first = NOISE_DRAWS * model.recipe.seed
    draws = (with_noise(theta, sigma=sigma, seed=first + draw) for draw in range(NOISE_DRAWS))
    return statistics.fmean(percent_right(model.with_weights(noised), graph) for noised in draws)
