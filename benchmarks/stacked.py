"""Stacked models against SIGN, their encoders alone and a network trained on everything, after a deletion.

    python benchmarks/stacked.py
    python benchmarks/stacked.py --data cora minesweeper --seeds 1

For each dataset and seed, 5 % of the training nodes are forgotten. `network` is the GNN, retrained on the rest; the
others are scored as released, with their noise (epsilon = 1, delta = 1e-5): as a mean over 20 draws of it, and one draw
for `boosted`, whose network is trained from it. `encoders` is a linear head on the
embeddings of the stacked model's encoders alone. Scores are on test nodes: micro-F1, and the area under the ROC curve
for tolokers and minesweeper, whose encoders are GraphSAGE. All settings are defaults, which were chosen on validation
nodes (docs/models.md). Each run is a line of the output file and is not repeated when it is there already.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics
from pathlib import Path
from typing import Any

import torch
from sklearn.metrics import roc_auc_score

import graphforget as gf
import synthetic
from graphforget.models.inputs import model_inputs
from graphforget.privacy.noise import with_noise
from graphforget.request.sampling import Drawing, draw_request
from results import Results, Row

BY_AREA = ("tolokers", "minesweeper")
DATA = ("cora", "citeseer", "pubmed", "cs", "physics", *BY_AREA, "cora, public split", "nonlinear")
DRAWS = 20
ROWS = ("network", "sign", "encoders", "stacked", "boosted")


def load(data: str, seed: int) -> gf.Graph:
    if data == "nonlinear":
        return synthetic.nonlinear(seed=seed)
    name, _, public = data.partition(", ")
    return gf.load(name, seed=seed, split="public" if public or data in BY_AREA else None)


def score(model: gf.Trained, graph: gf.Graph, *, by_area: bool) -> float:
    if not by_area:
        return 100 * model.micro_f1(graph)
    logits, test = model.logits(graph), graph.test_mask
    return 100 * float(roc_auc_score(graph.y[test].numpy(), (logits[:, 1] - logits[:, 0])[test].numpy()))


def score_of_release(outcome: gf.Outcome, *, by_area: bool) -> float:
    """The mean score over draws of the noise. What is trained from a draw, or has none, is scored as it is released."""
    trained, graph, centre = outcome.trained, outcome.graph, outcome.centre
    if centre is None or not trained.recipe.sigma or trained.recipe.model.startswith("boosted"):
        return score(outcome.released, graph, by_area=by_area)
    draws = (with_noise(centre, sigma=trained.recipe.sigma, seed=draw) for draw in range(DRAWS))
    return statistics.fmean(score(trained.with_weights(noised), graph, by_area=by_area) for noised in draws)


def measured(data: str, seed: int) -> Row:
    graph = load(data, seed)
    name = "sage" if data in BY_AREA else "gcn"
    request = draw_request(graph, Drawing.parse("node:5%"), seed=seed)
    row: Row = {}
    models = {"network": name, "sign": "sign", "stacked": f"stacked-{name}", "boosted": f"boosted-{name}"}
    for label, model in models.items():
        outcome = gf.unlearn(gf.train(graph, model, seed=seed), graph, request)
        row[label] = score_of_release(outcome, by_area=data in BY_AREA)
        row[f"{label} level"] = outcome.level
        if label == "stacked":
            row["encoders"] = score_of_encoders(outcome, by_area=data in BY_AREA)
    return row


def score_of_encoders(outcome: gf.Outcome, *, by_area: bool) -> float:
    """A linear head, trained with the same settings on the embeddings alone, with the same noise."""
    trained, graph = outcome.trained, outcome.graph
    embeddings = model_inputs(trained.stacked, graph, dtype=torch.float64)[1].embeddings
    alone = dataclasses.replace(graph, x=embeddings)
    settings: Any = {"mu": trained.recipe.mu, "sigma": trained.recipe.sigma, "scale_rows": False, "hops": 0}
    head = gf.train(alone, "sgc", **settings)
    few = gf.Request(attributes={alone.name_of(int(alone.train_rows[0])): [0]})  # any request gives a release
    return score_of_release(gf.unlearn(head, alone, few), by_area=by_area)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/stacked.jsonl"))
    args = parser.parse_args()
    results = Results(args.out)
    for data in args.data:
        for seed in range(args.seeds):
            results.get(functools.partial(measured, data, seed), data=data, seed=seed)
    print(f"\n| | {' | '.join(ROWS)} |\n|---|{'---|' * len(ROWS)}")
    for data in args.data:
        rows = [row for row in results.find(data=data) if row["seed"] < args.seeds]
        means = (statistics.fmean(row[label] for row in rows) for label in ROWS)
        print(f"| {data} | {' | '.join(f'{mean:.2f}' for mean in means)} |")


if __name__ == "__main__":
    main()
