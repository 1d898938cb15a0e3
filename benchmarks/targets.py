"""Labels and values: certified releases against retraining, after a deletion.

    python benchmarks/targets.py
    python benchmarks/targets.py --data "labels of cs" --seeds 1

Words that stand in about a fifth of all rows are taken out of the attributes, and are what is to be predicted: ten of
them as labels (is the word there?), or three as values (its weight, times a fixed number). `patients` has measurements
instead of words. The rows `rule` are a synthetic graph whose targets are a fixed function of averages over neighbours,
with noise. For each dataset and seed, 5 % of the training nodes are forgotten. Scores are on test nodes, of a GCN that
is retrained, and of SIGN and stacked GCNs as they are released, with their noise (epsilon = 1, delta = 1e-5); the score
without noise stands in brackets. Labels: micro-F1 in %. Values: R2. Times are processor time of SIGN: of the request,
and of training on the retained graph. All settings are defaults. Each run is a line of the output file and is not
repeated.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from pathlib import Path

import numpy as np
import torch

import graphforget as gf
from graphforget.linalg.sparse import to_scipy
from graphforget.request.sampling import Drawing, draw_request
from results import Results, Row

SCALE = {"pubmed": 20.0, "patients": 4.0}  # brings the values to order 1; fixed numbers, not fitted to the data
DATA = [f"labels of {name}" for name in ("cora", "cs", "rule")]
DATA += [f"values of {name}" for name in ("patients", "pubmed", "rule")]
MODELS = ("gcn", "sign", "stacked-gcn")
NODES, NEIGHBOURS, COLUMNS = 4_000, 8, 32


def load(data: str, seed: int) -> gf.Graph:
    kind, _, name = data.partition(" of ")
    if name == "rule":
        return rule(kind, seed)
    graph = gf.load(name, seed=seed)
    x = to_scipy(graph.x).tocsc()
    share = x.getnnz(axis=0) / x.shape[0]
    held = np.argsort(np.abs(share - 0.2), kind="stable")[: 10 if kind == "labels" else 3]
    words = torch.from_numpy(x[:, held].toarray())
    y = words != 0 if kind == "labels" else SCALE[name] * (words.double() - (name == "patients") * 0.3)
    rest = x[:, np.setdiff1d(np.arange(x.shape[1]), held)].tocsr()
    return gf.Graph.create(x=rest, edges=graph.edge_index, y=y, name=data).split(seed=seed)


def rule(kind: str, seed: int) -> gf.Graph:
    """Three targets: products and sines of two-hop averages in hidden directions, and noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(NODES, COLUMNS))
    edges = rng.integers(0, NODES, size=(2, NODES * NEIGHBOURS // 2))
    near = np.zeros_like(x)
    np.add.at(near, edges[0], x[edges[1]])
    np.add.at(near, edges[1], x[edges[0]])
    near = (x + near) / np.sqrt(NEIGHBOURS + 1)
    hidden = near @ np.linalg.qr(rng.normal(size=(COLUMNS, 3)))[0]
    z = hidden + 0.5 * np.sin(2 * hidden[:, [1, 2, 0]]) + 0.3 * rng.normal(size=hidden.shape)
    y = torch.from_numpy(z > 0 if kind == "labels" else z)
    graph = gf.Graph.create(x=torch.from_numpy(x).float(), edges=torch.from_numpy(edges), y=y, name=f"{kind} of rule")
    return graph.split(seed=seed)


def measured(data: str, seed: int) -> Row:
    graph = load(data, seed)
    request = draw_request(graph, Drawing.parse("node:5%"), seed=seed)
    row: Row = {}
    for model in MODELS:
        trained = gf.train(graph, model, seed=seed)
        started = time.process_time()
        outcome = gf.unlearn(trained, graph, request)
        row |= {f"{model} level": outcome.level, f"{model} seconds": time.process_time() - started}
        row[model] = outcome.released.utility(outcome.graph)
        row[f"{model} private"] = outcome.trained.utility(outcome.graph)
        started = time.process_time()
        gf.train(outcome.graph, model, seed=seed)
        row[f"{model} training"] = time.process_time() - started
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=DATA, choices=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/targets.jsonl"))
    args = parser.parse_args()
    results = Results(args.out)
    for data in args.data:
        for seed in range(args.seeds):
            results.get(functools.partial(measured, data, seed), data=data, seed=seed)
    print("\n| | GCN, retrained | SIGN, certified | stacked, certified | request, s | training, s |")
    print("|---|---|---|---|---|---|")
    for data in args.data:
        rows = [row for row in results.find(data=data) if row["seed"] < args.seeds]
        mean = {name: statistics.fmean(row[name] for row in rows) for name in rows[0] if type(rows[0][name]) is float}
        factor, digits = (100, 1) if data.startswith("labels") else (1, 3)
        cells = [f"{factor * mean['gcn']:.{digits}f}"]
        cells += [f"{factor * mean[m]:.{digits}f} ({factor * mean[m + ' private']:.{digits}f})" for m in MODELS[1:]]
        cells += [f"{mean['sign seconds']:.2f}", f"{mean['sign training']:.2f}"]
        print(f"| {data} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
