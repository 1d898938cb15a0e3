"""The models that attacks are tried on: before a request, and after every method has answered it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphforget as gf
from graphforget.experiments.bases import sharded
from graphforget.experiments.settings import DELTA, EPSILON, PARTITIONS

NOTHING = "nothing"  # the old weights, asked as the others are


def methods_for(model: str) -> list[str]:
    """What is tried on a model, in the tables' order: CGU and Newton's steps serve linear ones alone."""
    linear = model == "sgc"
    return [NOTHING, "retrain", *PARTITIONS, *(["cgu"] if linear else []), "idea", *(["newton"] if linear else [])]


def after_each(
    trained: gf.Trained,
    graph: gf.Graph,
    request: gf.Request,
    methods: Sequence[str],
    *,
    data: str,
    epochs: int | None = None,
) -> dict[str, gf.Trained]:
    """What each method leaves, by name: private weights, but of `newton` those that are released, with their noise.

    `random`, `bekm` and `blpa` are GraphEraser on a model like this one, `cgu` its own kind of SGC.
    """
    model, seed = trained.recipe.model, trained.recipe.seed
    found: dict[str, gf.Trained] = {}
    asked: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
    for method in methods:
        if method == NOTHING:
            found[method] = trained
        elif method in PARTITIONS:
            shards = sharded(graph, model, method, seed, data=data, epochs=epochs)
            found[method] = gf.unlearn(shards, graph, request, method="grapheraser").trained
        elif method == "cgu":
            found[method] = gf.unlearn(
                gf.train(graph, "cgu", seed=seed), graph, request, method="cgu", **asked
            ).released
        elif method == "newton":
            found[method] = gf.unlearn(trained, graph, request, method="newton", **asked).released
        else:
            options: dict[str, Any] = {"level": "empirical", "audit": False} if method == "idea" else {}
            found[method] = gf.unlearn(trained, graph, request, method=method, **options).trained
    return found
