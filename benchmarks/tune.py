"""Chooses training defaults on validation nodes taken from the training nodes; test nodes are never looked at.

    python benchmarks/tune.py --models gcn gin --data cora citeseer --grid '{"mu": [1e-4, 5e-4, 1e-3]}'

Every line of the output file is one run; runs that are there already are skipped, so it can be stopped and resumed.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import graphforget as gf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["gcn", "gat", "gin"])
    parser.add_argument("--data", nargs="+", default=["cora", "citeseer", "pubmed"])
    parser.add_argument("--grid", type=json.loads, default={"mu": [1e-4, 5e-4, 1e-3]})
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/tune.jsonl"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = {line.split("|")[0] for line in args.out.read_text().splitlines()} if args.out.exists() else set()
    points = [dict(zip(args.grid, values, strict=True)) for values in itertools.product(*args.grid.values())]
    for data, model, point, seed in itertools.product(args.data, args.models, points, range(args.seeds)):
        key = json.dumps([data, model, point, seed])
        if key in done:
            continue
        graph = gf.load(data, seed=seed).hold_out(seed=seed)
        trained = gf.train(graph, model, seed=seed, **point)
        validation = 100 * trained.micro_f1(graph, graph.val_mask)
        line = f"{key}|validation {validation:.2f}|residual {trained.residual:.1e}|{trained.seconds:.1f} s"
        with args.out.open("a") as out:
            out.write(line + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
