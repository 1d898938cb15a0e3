"""What several experiments start from: graphs by split, and models that are trained once and kept."""

from __future__ import annotations

import dataclasses
import shutil
import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import Tensor

import graphforget as gf
from graphforget.certificates import paper_bounds
from graphforget.certificates.gaussian import with_noise
from graphforget.draw import Drawing, drawn
from graphforget.errors import InputError
from graphforget.experiments.fingerprint import fingerprint
from graphforget.experiments.settings import SHARDS
from graphforget.locks import turn
from graphforget.request import Kind
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
    name = "-".join([data, model, str(seed), *(str(value) for value in own.values()), fingerprint()])
    run, lock = store / name, store / f".{name}.lock"
    lock.mkdir(parents=True, exist_ok=True)
    with turn(lock):
        try:
            return _kept(run, model, seed, graph.digest)
        except InputError:
            _remove(run)
            gf.save_run(run, gf.train(graph, model, seed=seed, **own), graph)
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
    options: dict[str, Any] = {"shards": SHARDS[data], "partition": way, "aggregation": "learned"}
    return gf.train(graph, f"sharded-{model}", seed=seed, epochs=epochs, **options)


def partitioned(
    graph: gf.Graph, model: str, way: str, seed: int, *, data: str, epochs: int | None = None
) -> gf.Trained:
    """The same with its partition made and its shards trained for one epoch, but a recipe that trains them for all:
    for what does not depend on the weights before a request."""
    start = sharded(graph, model, way, seed, data=data, epochs=1)
    whole = gf.MODELS[start.recipe.model].epochs if epochs is None else epochs
    return dataclasses.replace(start, recipe=dataclasses.replace(start.recipe, epochs=whole))


def request_of(graph: gf.Graph, kind: Kind, share: float, *, seed: int) -> gf.Request:
    return drawn(graph, Drawing(kind, share=share), seed=seed)


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
