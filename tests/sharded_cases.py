"""Small ensembles on shards, for several test files."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from torch import nn

import graphforget as gf
from cases import CLASSES, COLUMNS, random_graph
from graphforget.models.inspection import Inspection
from graphforget.models.registry import build
from graphforget.models.sharded import Sharded
from graphforget.training.fit import fit_one

SHORT: dict[str, Any] = {"hidden": 3, "epochs": 4, "shards": 3}


def short(model: str) -> dict[str, Any]:
    options = dict(SHORT)
    if model == "sharded-sgc":
        del options["hidden"]
    return options | ({"heads": 2} if model == "sharded-gat" else {})


@functools.cache
def small() -> gf.Graph:
    return random_graph(3, nodes=40, edges=60)


@functools.cache
def trained_on(model: str = "sharded-gcn", partition: str = "random", aggregation: str = "mean") -> gf.Trained:
    return gf.train(small(), model, partition=partition, aggregation=aggregation, seed=2, **short(model))


def ensemble(trained: gf.Trained) -> Sharded:
    assert isinstance(trained.module, Sharded)
    return trained.module


def same(first: nn.Module, second: nn.Module) -> bool:
    """Bit for bit."""
    old, new = first.state_dict(), second.state_dict()
    return old.keys() == new.keys() and all(torch.equal(value, new[name]) for name, value in old.items())


def alone(trained: gf.Trained, graph: gf.Graph, shard: int, *, seed: int) -> nn.Module:
    """The model of a shard, trained on that shard's part of the graph without any other in sight."""
    recipe = dataclasses.replace(trained.recipe, seed=1_000_003 * seed + shard)
    base = trained.recipe.model.removeprefix("sharded-")
    options = {k: v for k, v in recipe.options.items() if k not in ("shards", "partition", "aggregation")}
    module = build(base, columns=COLUMNS, classes=CLASSES, seed=recipe.seed, **options)
    keep = torch.tensor(
        [int(s) == shard or not train for s, train in zip(ensemble(trained).shard_of, graph.train_mask, strict=True)]
    )
    return fit_one(module, graph.induced(keep), recipe, trained.loss, Inspection(trained.reach, ())).module
