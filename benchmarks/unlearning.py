"""IDEA against retraining: every model, request and dataset of the paper, 5 % each.

    python benchmarks/unlearning.py                              all 80 cells, about two hours on one core
    python benchmarks/unlearning.py --data cora --seeds 0 1 2    means over three splits

For each cell: test micro-F1 on the retained graph of the old weights, of `idea` and of retraining from scratch, and the
time of both. Networks are trained by the paper's recipe. What is in the output file already is not repeated; the table
is made from it.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphforget as gf
from graphforget.request.kinds import KINDS, Kind
from graphforget.request.sampling import Drawing, draw_request
from results import Results, Row

DATA = ("cora", "citeseer", "pubmed", "cs", "physics")
MODELS = ("sgc", "gcn", "gin", "gat")
METHODS = ("idea", "retrain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("runs/unlearning.jsonl"))
    args = parser.parse_args()
    results = Results(args.out)
    for data in args.data:
        for model in args.models:
            for seed in args.seeds:
                start = functools.cache(functools.partial(_start, args.out.with_suffix(""), data, model, seed))
                cell = functools.partial(_cell, start, share=args.share, seed=seed)
                for kind in KINDS:
                    for method in args.methods:
                        key = {"data": data, "model": model, "seed": seed, "kind": kind, "method": method}
                        results.get(functools.partial(cell, kind=kind, method=method), **key)
    _table(results, args)


def _start(folder: Path, data: str, model: str, seed: int) -> tuple[gf.Trained, gf.Graph]:
    """The model before the requests, and its graph: trained once, then read from its run directory."""
    run = folder / f"{data}-{model}-{seed}"
    if not run.exists():
        graph = gf.load(data, seed=seed)
        gf.save_run(run, gf.train(graph, model, seed=seed, recipe="paper"), graph)
    return gf.load_run(run)


def _cell(start: Callable[[], tuple[gf.Trained, gf.Graph]], *, kind: Kind, method: str, share: float, seed: int) -> Row:
    trained, graph = start()
    options: dict[str, Any] = {"level": "empirical", "audit": False} if method == "idea" else {}
    outcome = gf.unlearn(
        trained, graph, draw_request(graph, Drawing(kind, share=share), seed=seed), method=method, **options
    )
    row: Row = {
        "old": round(100 * trained.micro_f1(outcome.graph), 2),
        "f1": round(100 * outcome.trained.micro_f1(outcome.graph), 2),
        "seconds": round(outcome.seconds, 3),
    }
    if method == "idea":
        step = outcome.details["steps"][0]
        row |= {"length": step["length"], "iterations": step["iterations"], "solver": step["status"]}
        row |= {"curvature": step["curvature"], "notes": list(outcome.notes)}
    return row


def _table(results: Results, args: argparse.Namespace) -> None:
    args.seeds = sorted({row["seed"] for row in results.rows})  # all that there are
    print(f"\n| model | request | {' | '.join(args.data)} |\n|---|---|{'---|' * len(args.data)}")
    losses = {}
    for model in args.models:
        for kind in KINDS:
            cells = []
            for data in args.data:
                pairs = [
                    [results.find(data=data, model=model, kind=kind, method=method, seed=seed) for method in METHODS]
                    for seed in args.seeds
                ]
                both = [[row["f1"] for (row,) in pair] for pair in pairs if all(pair)]
                if not both:
                    cells.append("-")
                    continue
                idea, retrained = (statistics.mean(scores) for scores in zip(*both, strict=True))
                losses[f"{model}, {kind}, {data}"] = retrained - idea
                cells.append(f"{idea:.1f} ({retrained:.1f})")
            print(f"| `{model}` | {kind} | {' | '.join(cells)} |")
    where = max(losses, key=losses.__getitem__, default=None)
    if where is not None:
        print(f"\nMean over seeds, in brackets: retrained. Largest loss: {losses[where]:.2f} points ({where}).")


if __name__ == "__main__":
    main()
