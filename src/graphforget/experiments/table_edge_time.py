"""Table 5 (appendix): how long edge requests take, GCN on CS."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import graphforget as gf
from graphforget.experiments.bases import base, draw_request, load_graph, trained_shards, untrained_shards
from graphforget.experiments.cells import Cell, Key, Row
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.paper import published
from graphforget.experiments.settings import (
    CERTIFIED,
    CERTIFIED_PART,
    PARTITIONS,
    QUICK_EPOCHS,
    SHARES,
    TITLES,
    eraser_cost,
    percent,
    step_cost,
    train_cost,
    training_part,
)
from graphforget.experiments.table import Spread, Table, TableEntry
from graphforget.experiments.timing import answer, load_note

NAME = "table-edge-time"
DATA = "cs"
OTHERS = tuple(model for model in CERTIFIED if model != "sgc")
METHODS = {
    "retrain": "re-training",
    **{partition_method: TITLES[partition_method] for partition_method in PARTITIONS},
    "idea": "IDEA",
    "solver": "IDEA, solver alone",
    "newton": "certified SGC (Newton)",
    **{model: f"certified {TITLES[model]} (Newton)" for model in OTHERS},
}

NOTES = (
    "The table shows the seconds from the request to the weights to release, as mean ± deviation over seeds, on one "
    "core without a GPU. No other cell of this folder was running. The paper's numbers are in brackets. They are "
    "from an A6000.",
    "Re-training is 300 epochs and a polish from fresh weights, timed for one seed. The paper's row is the 3,000 "
    "epochs of the training before the request. The accuracy that the paper reports for re-training is that of 300 "
    "further epochs.",
    "The time of IDEA includes surgery on the graph, footprint, gradients, solve, step length and certificate, but "
    "no audit of assumptions. The paper's clock runs for the solver alone. The row below shows this time (conjugate "
    "gradient here, 1,000 rounds of LiSSA in the paper).",
    "The certified models are SGC, SIGN and a stacked GCN, not the GCN of the other rows. They are in this table for "
    "their level. The experiment table-seconds compares each with its own re-training.",
    "GraphEraser has 30 shards with learned weights. It has one seed, because training 30 shards takes minutes here. "
    "Only shards in which a training loss depends on a removed edge are trained anew. Edges between two shards are "
    "in no shard. The paper's code makes the partition anew, trains every shard, and counts the shards that have an "
    "end of an edge.",
)


def cells(*, quick: bool, seeds: int) -> list[Cell]:
    data = "cora" if quick else DATA
    short: Key = {"epochs": QUICK_EPOCHS} if quick else {}
    shares = (0.01, 0.1) if quick else SHARES
    part = training_part(QUICK_EPOCHS if quick else None)
    result: list[Cell] = []
    for seed in range(1 if quick else seeds):
        for share in shares:
            key: Key = {"data": data, "share": share, "seed": seed}
            cost = part * train_cost("gcn", data)
            result += [
                Cell({"method": "newton", **key}, 4 * step_cost("sgc", data), measured),
                Cell({"method": "idea", **key, **short}, 4 * step_cost("gcn", data) + cost / 8, measured),
                *(_other(model, key) for model in (OTHERS[:1] if quick else OTHERS)),
            ]
            if seed == 0:
                result.append(Cell({"method": "retrain", **key, **short}, cost * 1.1, measured))
    for partition in PARTITIONS:
        result.append(
            Cell(
                {"method": partition, "data": data, "seed": 0, **short},
                part * eraser_cost("gcn", data) * len(shares) + 10,
                erased,
            )
        )
    return result


def _other(model: str, place: Key) -> Cell:
    data = str(place["data"])
    key: Key = {"part": CERTIFIED_PART, "model": model, **place}
    return Cell(key, train_cost(model, data) + 4 * step_cost(model, data), certified)


def measured(*, store: Path, method: str, data: str, share: float, seed: int, epochs: int | None = None) -> Row:
    trained, graph = base(store, data, "sgc" if method == "newton" else "gcn", seed, epochs=epochs)
    return answer(trained, graph, draw_request(graph, "edges", share, seed=seed), method, warm_up=method != "retrain")


def certified(*, store: Path, part: str, model: str, data: str, share: float, seed: int) -> Row:
    trained, graph = base(store, data, model, seed)
    return answer(trained, graph, draw_request(graph, "edges", share, seed=seed), "newton", warm_up=True)


def erased(*, store: Path, method: str, data: str, seed: int, epochs: int | None = None) -> Row:
    """One ensemble, every share of edges in turn."""
    graph = load_graph(data, seed)
    module, shard_of, recipe = untrained_shards(graph, "gcn", method, seed, data=data, epochs=epochs)
    trained = trained_shards(module, shard_of, graph, recipe, ())  # what they were before does not matter
    values: Row = {}
    for share in SHARES:
        request = draw_request(graph, "edges", share, seed=seed)
        outcome = gf.unlearn(trained, graph, request, method="grapheraser")
        values |= {
            f"seconds {percent(share)}": outcome.seconds,
            f"shards {percent(share)}": outcome.details["retrained"],
        }
    return values


def table(rows: Sequence[Row]) -> Table:
    data = rows[0]["data"] if rows else DATA
    lines: list[tuple[str | TableEntry, ...]] = []
    for method, title in METHODS.items():
        papers = [published(NAME, method, percent(share)) if data == DATA else None for share in SHARES]
        entries = [TableEntry(_spread(rows, method, s), paper, ".3g") for s, paper in zip(SHARES, papers, strict=True)]
        lines.append((title, *entries))
    columns = ("method", *(f"{percent(share)} %" for share in SHARES))
    return Table(
        f"Table 5: seconds for edge unlearning, GCN on {TITLES[data]}",
        columns,
        tuple(lines),
        (*NOTES, *load_note(rows)),
    )


def _spread(rows: Sequence[Row], method: str, share: float) -> Spread | None:
    if method in PARTITIONS:
        return Spread.of(row[f"seconds {percent(share)}"] for row in rows if row.get("method") == method)
    name, field = ("idea", "solver_seconds") if method == "solver" else (method, "seconds")
    return Spread.of(
        row[field] for row in rows if (row.get("method", row.get("model")), row.get("share")) == (name, share)
    )


EXPERIMENT = Experiment(NAME, "seconds for edge requests, GCN on CS", cells, table, alone=True)
