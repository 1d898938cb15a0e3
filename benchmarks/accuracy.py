"""Test micro-F1 of the four GNNs on the five datasets against the paper's re-training row (its Table 1).

    python benchmarks/accuracy.py                      all 20 cells, and the certifiable models beside them
    python benchmarks/accuracy.py --data cora --models gcn sgc

90/10 split, mean of three seeds, the models' defaults and the paper's recipe. Each run is a line of the output file and
is not repeated when it is there already; the table is made from that file.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

import graphforget as gf
from results import Results, Row

DATA = ("cora", "citeseer", "pubmed", "cs", "physics")
PAPER = {
    "gcn": (76.88, 67.27, 76.20, 86.79, 92.30),
    "sgc": (76.14, 65.77, 75.90, 87.10, 92.01),
    "gin": (82.90, 74.27, 85.31, 90.28, 95.57),
    "gat": (83.76, 75.88, 85.02, 92.24, 95.28),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--models", nargs="+", default=["sgc", "gcn", "gin", "gat", "sign"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy.jsonl"))
    args = parser.parse_args()
    results = Results(args.out)
    for data in args.data:
        for model in args.models:
            for seed in range(args.seeds):
                run = functools.partial(_run, data, model, seed)
                results.get(run, data=data, model=model, seed=seed)
    _table(results, args)


def _run(data: str, model: str, seed: int) -> Row:
    graph = gf.load(data, seed=seed)
    trained = gf.train(graph, model, seed=seed, recipe="paper")
    return {
        "test_micro_f1": round(100 * trained.micro_f1(graph), 3),
        "gradient_norm_over_mu": trained.residual,
        "converged": trained.converged,
        "seconds": round(trained.seconds, 2),
    }


def _table(results: Results, args: argparse.Namespace) -> None:
    print(f"\n| model | {' | '.join(args.data)} |\n|---|{'---|' * len(args.data)}")
    for model in args.models:
        cells = []
        for data in args.data:
            rows = [r for r in results.find(data=data, model=model) if r["seed"] < args.seeds]
            mean = sum(r["test_micro_f1"] for r in rows) / len(rows)
            paper = PAPER.get(model)
            cells.append(f"{mean:.1f}" + (f" ({paper[DATA.index(data)]:.1f})" if paper else ""))
        print(f"| {model} | {' | '.join(cells)} |")
    print("\nIn brackets: the paper's re-trained model.")


if __name__ == "__main__":
    main()
