"""The models that are attacked: the old one, and one for every method after it has answered the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphforget as gf
from graphforget.experiments.bases import sharded
from graphforget.experiments.fingerprint import RECIPE
from graphforget.experiments.settings import DELTA, EPSILON, PARTITIONS

NO_OP = "nothing"  # the old weights, queried like the others; the key in stored cells
CERTIFIED_METHODS = (NO_OP, "retrain", "newton")  # those that are run on certified models without a column of peers


def methods_of(model: str) -> list[str]:
    """The methods that are run on a model, in the order of the tables; CGU and Newton need a linear one."""
    linear = model == "sgc"
    return [NO_OP, "retrain", *PARTITIONS, *(["cgu"] if linear else []), "idea", *(["newton"] if linear else [])]


def after_each(
    trained: gf.Trained,
    graph: gf.Graph,
    request: gf.Request,
    methods: Sequence[str],
    *,
    data: str,
    epochs: int | None = None,
) -> dict[str, gf.Trained]:
    """The model after each method, by name: private weights, but released ones with noise for `newton` and `cgu`.

    `random`, `bekm` and `blpa` are GraphEraser on a model of the same type, `cgu` has its own type of SGC.
    """
    model, seed = trained.recipe.model, trained.recipe.seed
    models: dict[str, gf.Trained] = {}
    privacy: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
    for method in methods:
        if method == NO_OP:
            models[method] = trained
        elif method in PARTITIONS:
            shards = sharded(graph, model, method, seed, data=data, epochs=epochs)
            models[method] = gf.unlearn(shards, graph, request, method="grapheraser").trained
        elif method == "cgu":
            models[method] = gf.unlearn(
                gf.train(graph, "cgu", seed=seed, recipe=RECIPE), graph, request, method="cgu", **privacy
            ).released
        elif method == "newton":
            models[method] = gf.unlearn(trained, graph, request, method="newton", **privacy).released
        else:
            options: dict[str, Any] = {"level": "empirical", "audit": False} if method == "idea" else {}
            models[method] = gf.unlearn(trained, graph, request, method=method, **options).trained
    return models
