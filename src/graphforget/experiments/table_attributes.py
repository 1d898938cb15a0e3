"""Tables 3 and 8: the loss of nodes whose attributes were to be forgotten, SGC on Cora and GCN on CiteSeer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch

import graphforget as gf
from graphforget.audits.attributes import blanked_loss
from graphforget.experiments.bases import base
from graphforget.experiments.cells import Cell, Key, Row
from graphforget.experiments.contestants import CERTIFIED_METHODS, after_each, methods_of
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.paper import published
from graphforget.experiments.settings import (
    CERTIFIED,
    CERTIFIED_PART,
    PARTITIONS,
    QUICK_EPOCHS,
    TITLES,
    eraser_cost,
    percent,
    step_cost,
    train_cost,
)
from graphforget.experiments.table import Spread, Table, TableEntry

NAME = "table-attributes"
NODES = 0.05
SHARES = (0.2, 0.5, 0.8)
MODELS = {"cora": "sgc", "citeseer": "gcn"}
ALONE = {data: tuple(each for each in CERTIFIED if each != model) for data, model in MODELS.items()}  # without peers
LOSSES = {"true": "true loss", "published": "double softmax"}

NOTES = (
    "The table shows the mean cross-entropy of the 5 % of training nodes that lose 20, 50 or 80 % of their "
    "attributes. It is measured on the graph where these attributes are 0 (before the request: where they are not "
    "0). The numbers are mean ± deviation over seeds. The paper's numbers are in brackets.",
    "The paper reads a lower loss as better forgetting. This is wrong: the labels stay known, so a low loss is "
    "accuracy on training nodes. The target is the loss of the row re-training, whatever it is. 'no_op (old "
    "weights)' is the old weights, which have forgotten nothing. The paper's GraphEraser has no SGC: the model that "
    "it calls SGC is its GCN.",
    "For IDEA and CGU, the paper's code gives probabilities to a function that takes logits. The result is a softmax "
    "of a softmax (no loss can be below 1.17 on Cora and 1.04 on CiteSeer). For GraphEraser the code does not do "
    "this, so the paper's rows cannot be compared with each other. For this reason the paper's number is beside the "
    "double softmax for IDEA and CGU, and beside the true loss for GraphEraser.",
    "Here every method forgets the same values. In the paper, CGU forgets all attributes and GraphEraser forgets "
    "whole nodes. The paper draws columns with repetition, so 20, 50 and 80 % are 18, 39 and 55 %. CGU has one "
    "logistic regression for each class. Its answers are not a softmax, but they are treated as one, as in the "
    "paper. A request of this size spends the budget of CGU, so CGU is trained anew. The certified model is queried "
    "as it is released, with its noise. IDEA is queried by its private weights. In the paper it is queried with "
    "noise.",
    "The paper has no rows of the other certified models. They are released with their noise at epsilon = 1, "
    "delta = 1e-5. A stacked GCN trains encoders anew that saw the attributes.",
)


def cells(*, quick: bool, seeds: int) -> list[Cell]:
    if quick:
        return [*(_cell("cora", share, 0, epochs=QUICK_EPOCHS) for share in SHARES), _alone("sign", "cora", 0.5, 0)]
    places = [(data, share, seed) for data in MODELS for share in SHARES for seed in range(seeds)]
    certified = [_alone(model, *place) for place in places for model in ALONE[place[0]]]
    return [*(_cell(*place) for place in places), *certified]


def _cell(data: str, share: float, seed: int, **short: int) -> Cell:
    cost = 1.5 * train_cost(MODELS[data], data) + 6 * eraser_cost(MODELS[data], data) + 2
    return Cell({"data": data, "share": share, "seed": seed, **short}, cost, measured)


def _alone(model: str, data: str, share: float, seed: int) -> Cell:
    key: Key = {"part": CERTIFIED_PART, "model": model, "data": data, "share": share, "seed": seed}
    return Cell(key, 3 * train_cost(model, data) + step_cost(model, data), certified)


def measured(*, store: Path, data: str, share: float, seed: int, epochs: int | None = None) -> Row:
    model = MODELS[data]
    return _losses(store, data, model, share, seed, methods_of(model), epochs)


def certified(*, store: Path, part: str, model: str, data: str, share: float, seed: int) -> Row:
    """A certified model that stands beside those of the paper."""
    return _losses(store, data, model, share, seed, CERTIFIED_METHODS)


def _losses(
    store: Path, data: str, model: str, share: float, seed: int, methods: Sequence[str], epochs: int | None = None
) -> Row:
    trained, graph = base(store, data, model, seed, epochs=epochs)
    request, rows = _request(graph, share, seed=seed)
    models = {"before": trained} | after_each(trained, graph, request, methods, data=data, epochs=epochs)
    blanked = graph.without(request)
    values: Row = {}
    for name, queried in models.items():
        logits = queried.logits(graph if name == "before" else blanked)[rows]
        loss = blanked_loss(logits, graph.y[rows])
        values |= {f"true {name}": loss.true, f"published {name}": loss.as_published}
    return values


def _request(graph: gf.Graph, share: float, *, seed: int) -> tuple[gf.Request, torch.Tensor]:
    """Some columns of some training nodes, the same columns for all of them, and the nodes' rows."""
    rng = random.Random(f"attributes {seed}")
    rows = rng.sample(graph.train_rows.tolist(), int(NODES * graph.train_rows.numel()))
    columns = rng.sample(range(graph.num_columns), int(share * graph.num_columns))
    return gf.Request(attributes={graph.name_of(row): columns for row in rows}), torch.tensor(rows)


def table(rows: Sequence[Row]) -> Table:
    lines: list[tuple[str | TableEntry, ...]] = []
    for data, own in MODELS.items():
        if rows and not any(row["data"] == data for row in rows):
            continue
        lines += _lines(rows, data, own, methods_of(own))
        for model in ALONE[data]:
            lines += _lines(rows, data, model, CERTIFIED_METHODS)
    columns = ("data", "method", "loss", *(f"{percent(share)} %" for share in SHARES))
    return Table("Tables 3 and 8: loss of nodes after attribute unlearning", columns, tuple(lines), NOTES)


def _lines(rows: Sequence[Row], data: str, model: str, methods: Sequence[str]) -> list[tuple[str | TableEntry, ...]]:
    """The rows of one model; the paper's numbers are those of its own model of the dataset."""
    lines: list[tuple[str | TableEntry, ...]] = []
    for method in ("before", *methods):
        in_paper = "true" if method in PARTITIONS else "published"
        for loss, title in LOSSES.items():
            entries = []
            for share in SHARES:
                place = (data, model, share)
                selected = [row for row in rows if (row["data"], _model_of(row), row["share"]) == place]
                in_brackets = model == MODELS[data] and loss == in_paper
                paper = published(NAME, data, method, percent(share)) if in_brackets else None
                spread = Spread.of(row.get(f"{loss} {method}") for row in selected)
                entries.append(TableEntry(spread, paper, ".2f"))
            lines.append((f"{TITLES[data]}, {TITLES[model]}", TITLES[method], title, *entries))
    return lines


def _model_of(row: Row) -> str:
    return str(row.get("model", MODELS[row["data"]]))


EXPERIMENT = Experiment(NAME, "loss of nodes after attribute requests", cells, table)
