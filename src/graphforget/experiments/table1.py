"""Table 1: F1 after 1 % of the training nodes are removed, four GNNs on five datasets, and our certified models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure

import graphforget as gf
from graphforget.experiments.bases import (
    base,
    draw_request,
    f1_percent,
    f1_percent_with_noise,
    idea_bound,
    load_graph,
    trained_shards,
    untrained_shards,
)
from graphforget.experiments.cells import Cell, Row
from graphforget.experiments.experiment import Experiment
from graphforget.experiments.paper import published
from graphforget.experiments.settings import (
    CERTIFIED,
    DATA,
    DELTA,
    EPSILON,
    FEWER_EPOCHS,
    GNNS,
    PARTITIONS,
    QUICK_EPOCHS,
    TITLES,
    eraser_cost,
    hand_picked_sigma,
    shown,
    step_cost,
    titles_of,
    train_cost,
    training_part,
)
from graphforget.experiments.table import Bar, IdeaScores, Spread, Table, TableEntry, idea_bars
from graphforget.privacy.gaussian import epsilon_of
from graphforget.report.charts import Dots, Groups, dot_chart

NAME = "table1"
SHARE = 0.01  # that of the released script; the paper's text says 5 %
NOISED = "IDEA, with the paper's noise"
CERTIFIED_HERE = (*CERTIFIED, "linearised-gcn")
CERTIFIED_ROWS = {
    "certified, released": "f1",
    "re-training, same noise": "retrain",
    "re-training, no noise": "retrain_private",
}
SMALL = ("cora", "citeseer")  # where GraphEraser is also run with the faults of the released code
AS_RELEASED = {"random": "GraphEraser, random or BEKM, as released", "blpa": "GraphEraser, BLPA, as released"}
NETWORKS = ("gcn", "gin", "gat")
MANY_SHARDS = ("pubmed", "cs", "physics")  # 30 or 100 of them, for which networks have fewer epochs
MOST_SHARDS = "physics"  # 100 of them, for which networks have one seed

NOTES = (
    "The table shows test micro-F1 in %, as mean ± deviation over seeds. The paper's numbers are in brackets. Here "
    "the split, the initial weights, the request and the dropout all vary with the seed. The paper has one split and "
    "one request, so its deviation is smaller. 1 % of the training nodes are removed, which is the ratio of the "
    "paper's released script. The paper's text says 5 %.",
    "Here re-training starts from fresh weights. The paper's re-training continues from the old weights at a "
    "hundredth of the learning rate, and its code deletes the wrong edges with a node (with two nodes of Cora it "
    "deletes 2,698 of 10,544 edges). With the right edges, the paper's own code gives 84 instead of 76.9 for "
    "re-training a GCN on Cora, and 80 instead of 72.1 for IDEA. The noise of IDEA costs the rest. The models differ "
    "too. The paper's GCN and SGC have 16 hidden units, no self-loops and no biases, and its GIN has BatchNorm. Our "
    "GCN has 64 hidden units, and our SGC is one matrix.",
    "The row IDEA is the private, unlearned model. Its step is solved by conjugate gradient with dropout off (for "
    "networks with the Gauss-Newton matrix, and shortened where it overshoots). The paper's step is a fixed number "
    "of rounds of LiSSA with dropout on. The paper's numbers are with noise, so they are beside our row with noise. "
    "That row adds the sigma of the paper's code (0.6 and 0.1 for GCN and SGC, 0.005 and 0.001 for GAT and GIN), and "
    "is a mean over 20 draws. No epsilon was requested for it. The row below has the epsilon that the paper's own "
    "bound implies at delta = 1e-5, by exact Gaussian accounting. Where our row with noise is far below the paper's, "
    "the reason is the size of the weights. The paper's GCN on Cora has 23,000 weights of norm 61. Ours has 92,000 "
    "weights of norm 27, so the same sigma is too large for them.",
    "GraphEraser has learned weights of the shards, and 10, 10, 30, 30 and 100 shards. All shards are trained on the "
    "retained graph, with the partition that was made before the request. This gives what GraphEraser ends with when "
    "it trains the touched shards anew, and it takes half the work. On PubMed, CS and Physics there are so many "
    "shards that networks have 50 epochs for each shard instead of 200, and one seed on Physics. The paper's "
    "GraphEraser has no SGC: the model that it calls SGC is its GCN. BEKM is worse than random because it works "
    "here: it sorts nodes by class, so each shard sees few classes. The paper's code mixes up positions and node "
    "numbers. This makes its partition random and puts nine tenths of the test labels into training.",
    "The rows 'as released' repeat what the paper's code does to GraphEraser: rows are scaled to sum 1, there are "
    "100 epochs and no self-loops, dropout is off, every model answers on its own shard, the weights of the shards "
    "are driven to 0, and the BEKM partition is random. The test labels that the mix-up in the paper's code puts "
    "into training are left out here, so the paper's own numbers can be higher.",
    "The paper's SGC is a product of two matrices and is not convex. Our SGC is a single matrix. Certified models "
    "are scored with the noise of their certificate at epsilon = 1, delta = 1e-5 (sigma is 0.1 for SGC and 0.05 for "
    "the others), as a mean over 20 draws. Their re-training is scored with the same draws, so the two differ by the "
    "weights alone.",
    "'no_op (old weights)' is the old weights on the retained graph. These weights have forgotten nothing: accuracy "
    "does not distinguish unlearning from no unlearning. Audits are made for this (docs/audits.md). They show that "
    "IDEA's step on a GCN leaves most of what had to be forgotten.",
    "In the paper's code, the test labels of affected nodes enter the update. Here they do not.",
    "The linearised GCN is run on Cora and CiteSeer only. This keeps the whole experiment within hours on two cores.",
)


def cells(*, quick: bool, seeds: int) -> list[Cell]:
    if quick:
        short = {"epochs": QUICK_EPOCHS}
        result = [_backbone("cora", model, 0, **short) for model in GNNS]
        result += [
            _eraser("cora", model, partition, 0, **short) for model in ("sgc", "gcn") for partition in PARTITIONS
        ]
        return result + [_certified(data, "sgc", 0) for data in ("patients", "cora")] + [_certified("cora", "sign", 0)]
    result = []
    for data in DATA:
        for seed in range(seeds):
            for model in GNNS:
                many = model in NETWORKS and data in MANY_SHARDS
                result.append(_backbone(data, model, seed))
                if seed == 0 or model not in NETWORKS or data != MOST_SHARDS:
                    short = {"epochs": FEWER_EPOCHS} if many else {}
                    result += [_eraser(data, model, partition, seed, **short) for partition in PARTITIONS]
            if data in SMALL:
                result += [_eraser(data, "gcn", f"released {partition}", seed) for partition in AS_RELEASED]
            result += [_certified(data, model, seed) for model in (CERTIFIED_HERE if data in SMALL else CERTIFIED)]
    return result


def _backbone(data: str, model: str, seed: int, **short: int) -> Cell:
    cost = 2 * training_part(short.get("epochs")) * train_cost(model, data) + step_cost(model, data)
    return Cell({"part": "idea", "data": data, "model": model, "seed": seed, **short}, cost, unlearned)


def _eraser(data: str, model: str, partition: str, seed: int, **short: int) -> Cell:
    cost = eraser_cost(model, data) * 1.1 * short.get("epochs", 200) / 200 + 2
    return Cell({"part": partition, "data": data, "model": model, "seed": seed, **short}, cost, erased)


def _certified(data: str, model: str, seed: int) -> Cell:
    cost = 2 * train_cost(model, data) + step_cost(model, data) / 2
    return Cell({"part": "newton", "data": data, "model": model, "seed": seed}, cost, certified)


def unlearned(*, store: Path, part: str, data: str, model: str, seed: int, epochs: int | None = None) -> Row:
    """IDEA's step and re-training, and the old weights on the retained graph."""
    trained, graph = base(store, data, model, seed, epochs=epochs)
    request = draw_request(graph, "nodes", SHARE, seed=seed)
    idea = gf.unlearn(trained, graph, request, method="idea", level="empirical", audit=False)
    retrained = gf.unlearn(trained, graph, request, method="retrain")
    sigma = hand_picked_sigma(model, data)
    bound = idea_bound(idea)
    return {
        "before": f1_percent(trained, graph),
        "nothing": f1_percent(trained, idea.graph),
        "idea": f1_percent(idea.trained, idea.graph),
        "idea_noised": f1_percent_with_noise(idea.trained, idea.trained.theta, idea.graph, sigma=sigma),
        "sigma": sigma,
        "bound": bound,
        "epsilon_implied": epsilon_of(ratio=bound / sigma, delta=DELTA),
        "retrain": f1_percent(retrained.trained, retrained.graph),
        "idea_seconds": idea.seconds,
        "retrain_seconds": retrained.seconds,
    }


def erased(*, store: Path, part: str, data: str, model: str, seed: int, epochs: int | None = None) -> Row:
    """GraphEraser's ensemble after the request, every shard trained on what is retained of it."""
    graph = load_graph(data, seed)
    partition = part.removeprefix("released ")
    base_model = model if part == partition else "released"
    module, shard_of, recipe = untrained_shards(graph, base_model, partition, seed, data=data, epochs=epochs)
    retained = graph.without(draw_request(graph, "nodes", SHARE, seed=seed))
    stays = torch.searchsorted(graph.numbers, retained.numbers)
    after = trained_shards(module, shard_of[stays], retained, recipe, range(module.shards))
    return {"f1": f1_percent(after, retained), "shards": module.shards}


def certified(*, store: Path, part: str, data: str, model: str, seed: int) -> Row:
    """The released weights of Newton's steps, and those of re-training with the same noise."""
    trained, graph = base(store, data, model, seed)
    request = draw_request(graph, "nodes", SHARE, seed=seed)
    outcome = gf.unlearn(trained, graph, request, method="newton", epsilon=EPSILON, delta=DELTA)
    retrained = gf.unlearn(trained, graph, request, method="retrain", epsilon=EPSILON, delta=DELTA, seed=seed)
    sigma = trained.recipe.sigma
    noised = [
        f1_percent_with_noise(made.trained, made.centre, outcome.graph, sigma=sigma) for made in (outcome, retrained)
    ]
    return {
        "level": outcome.level,
        "sigma": sigma,
        "f1": noised[0],
        "retrain": noised[1],
        "f1_private": f1_percent(outcome.trained, outcome.graph),
        "retrain_private": f1_percent(retrained.trained, retrained.graph),
        "seconds": outcome.seconds,
        "retrain_seconds": retrained.seconds,
    }


def table(rows: Sequence[Row]) -> Table:
    data = shown(rows)
    lines: list[tuple[str | TableEntry, ...]] = []
    for model in GNNS:
        for method, part, field, form in (
            ("nothing", "idea", "nothing", ".1f"),
            ("retrain", "idea", "retrain", ".1f"),
            *((partition, partition, "f1", ".1f") for partition in PARTITIONS),
            ("idea", "idea", "idea", ".1f"),
            (NOISED, "idea", "idea_noised", ".1f"),
            ("the epsilon of that noise", "idea", "epsilon_implied", ".3g"),
            *(
                (title, f"released {partition}", "f1", ".1f")
                for partition, title in AS_RELEASED.items()
                if model == "gcn"
            ),
        ):
            in_paper = "idea" if method == NOISED else method if method != "idea" else ""
            entries = [
                TableEntry(_spread(rows, part, name, model, field), published(NAME, model, in_paper, name), form)
                for name in data
            ]
            lines.append((TITLES[model], TITLES.get(method, method), *entries))
    for model in CERTIFIED_HERE:
        for title, field in CERTIFIED_ROWS.items():
            entries = [TableEntry(_spread(rows, "newton", name, model, field)) for name in data]
            lines.append((TITLES[model], title, *entries))
    title = "Table 1: F1 after node unlearning"
    return Table(title, ("model", "method", *titles_of(data)), tuple(lines), NOTES, _bars(rows, data))


def _spread(rows: Sequence[Row], part: str, data: str, model: str, field: str) -> Spread | None:
    return Spread.of(r[field] for r in rows if (r["part"], r["data"], r["model"]) == (part, data, model))


def _means(rows: Sequence[Row], part: str, data: str, models: Sequence[str], field: str) -> list[float | None]:
    spreads = (_spread(rows, part, data, model, field) for model in models)
    return [None if spread is None else spread.mean for spread in spreads]


def _bars(rows: Sequence[Row], data: Sequence[str]) -> tuple[Bar, ...]:
    fields = ("idea", "idea_noised", "retrain")
    scores = {
        f"{TITLES[model]} on {TITLES[name]}": IdeaScores(
            published(NAME, model, "idea", name), *(_spread(rows, "idea", name, model, field) for field in fields)
        )
        for model in GNNS
        for name in data
    }
    claim = "Certified SGC with its noise at epsilon = 1 is within 0.5 points of its re-training"
    return (
        *idea_bars("F1", scores),
        Bar.of(f"{claim} with the same noise", _points_lost(rows, data, "retrain"), most=0.5, unit="points below"),
        Bar.of(f"{claim} without noise", _points_lost(rows, data, "retrain_private"), most=0.5, unit="points below"),
    )


def _points_lost(rows: Sequence[Row], data: Sequence[str], against: str) -> dict[str, float]:
    """By how many points certified SGC is below this kind of re-training, by dataset."""
    lost: dict[str, float] = {}
    for name in data:
        ours, retrained = (_spread(rows, "newton", name, "sgc", field) for field in ("f1", against))
        if ours is not None and retrained is not None:
            lost[TITLES[name]] = retrained.mean - ours.mean
    return lost


def figure(rows: Sequence[Row]) -> Figure:
    """Re-training, IDEA and certified SGC by dataset, the paper's IDEA beside them."""
    panels = []
    for name in shown(rows):
        models = [model for model in GNNS if _spread(rows, "idea", name, model, "idea") is not None]
        if not models:
            continue
        numbers = [published(NAME, model, "idea", name) for model in models]
        series = [
            Dots("re-training", _means(rows, "idea", name, models, "retrain")),
            Dots("IDEA here, private", _means(rows, "idea", name, models, "idea")),
            Dots("GraphEraser, random", _means(rows, "random", name, models, "f1")),
            Dots("IDEA in the paper, with noise", [None if number is None else number.mean for number in numbers]),
            Dots("certified SGC, released with noise", _means(rows, "newton", name, models, "f1"), ours=True),
        ]
        panels.append(Groups(TITLES[name], [TITLES[model] for model in models], series))
    return dot_chart(panels, "test micro-F1, %")


EXPERIMENT = Experiment(
    NAME,
    "F1 after node unlearning, four GNNs and five datasets",
    cells,
    table,
    figure,
    "Test micro-F1 after 1 % of the training nodes are removed, mean over seeds. Axes do not start at 0.",
)
