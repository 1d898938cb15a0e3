"""Chooses training defaults on validation nodes taken from the training nodes; test nodes are never looked at.

    python benchmarks/tune.py --models gcn gin --data cora citeseer --grid '{"mu": [1e-4, 5e-4, 1e-3]}'
    python benchmarks/tune.py --models sage --data tolokers --split public --grid '{"scale_rows": [true, false]}'

The score is micro-F1 in %. On a public split it is measured on the validation nodes of the split, and for two classes
it is the area under the ROC curve in %. Every line of the output file is one run; runs that are there already are
skipped, so it can be stopped and resumed. At the end a table shows the means over the seeds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

from sklearn.metrics import roc_auc_score

import graphforget as gf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["gcn", "gat", "gin", "sage"])
    parser.add_argument("--data", nargs="+", default=["cora", "citeseer", "pubmed"])
    parser.add_argument("--split", choices=["random", "public"], default="random")
    parser.add_argument("--grid", type=json.loads, default={"mu": [1e-4, 5e-4, 1e-3]})
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/tune.jsonl"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    rows = {_key(row["run"]): row for row in map(json.loads, lines)}
    points = [dict(zip(args.grid, values, strict=True)) for values in itertools.product(*args.grid.values())]
    for model in args.models:
        gf.train(gf.load("patients"), model, epochs=1)  # a warm-up, so that the first run takes no longer
    table = []
    for data, model, point in itertools.product(args.data, args.models, points):
        measured = []
        for seed in range(args.seeds):
            run = {"data": data, "split": args.split, "model": model, "seed": seed, "settings": point}
            if _key(run) not in rows:
                rows[_key(run)] = row = {"run": run} | measure(**run)
                with args.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)
            measured.append(rows[_key(run)])
        means = [statistics.fmean(row[name] for row in measured) for name in ("score", "seconds")]
        table.append(f"| {data} | {model} | {json.dumps(point)} | {means[0]:.2f} | {means[1]:.1f} |")
    print("| data | model | settings | validation score | processor seconds |\n|---|---|---|---|---|")
    print("\n".join(table))


def measure(*, data: str, split: str, model: str, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """The score on validation nodes after training with these settings, and the processor seconds of the training."""
    graph = gf.load(data, seed=seed, split=split)
    if split == "random":
        graph = graph.hold_out(seed=seed)
    started = time.process_time()  # which other processes do not change
    trained = gf.train(graph, model, seed=seed, **settings)
    seconds = time.process_time() - started
    if split == "public" and graph.num_classes == 2:
        logits, labels = (values[graph.val_mask] for values in (trained.logits(graph), graph.y))
        score = float(roc_auc_score(labels, logits[:, 1] - logits[:, 0]))
    else:
        score = trained.micro_f1(graph, graph.val_mask)
    return {"score": round(100 * score, 3), "residual": trained.residual, "seconds": round(seconds, 2)}


def _key(run: dict[str, Any]) -> str:
    return json.dumps(run, sort_keys=True)


if __name__ == "__main__":
    main()
