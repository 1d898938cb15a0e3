"""IDEA against retraining: every model, request and dataset of the paper, 5 % each.

    python benchmarks/unlearning.py                           all 80 cells, about two hours on one core
    python benchmarks/unlearning.py --data cora --models sgc

For each cell: test micro-F1 of the old weights on the retained graph, of `idea` and of retraining from scratch, and
the time of both. Each is a line of the output file and is not repeated when it is there already; the table is made
from that file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import graphforget as gf
from requests import KINDS, drawn

DATA = ("cora", "citeseer", "pubmed", "cs", "physics")
MODELS = ("sgc", "gcn", "gin", "gat")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("runs/unlearning.jsonl"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    runs = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    for data in args.data:
        for model in args.models:
            for seed in args.seeds:
                done = {r["kind"] for r in runs if (r["data"], r["model"], r["seed"]) == (data, model, seed)}
                if set(KINDS) <= done:
                    continue
                graph = gf.load(data, seed=seed)
                trained = gf.train(graph, model, seed=seed)
                for kind in (kind for kind in KINDS if kind not in done):
                    cell = _cell(trained, graph, kind, share=args.share, seed=seed)
                    runs.append({"data": data, "model": model, "seed": seed, "kind": kind} | cell)
                    with args.out.open("a") as out:
                        out.write(json.dumps(runs[-1]) + "\n")
                    print(json.dumps(runs[-1]), flush=True)
    _table(runs, args)


def _cell(trained: gf.Trained, graph: gf.Graph, kind: str, *, share: float, seed: int) -> dict:
    request = drawn(graph, kind, share=share, seed=seed)
    outcome = gf.unlearn(trained, graph, request, method="idea", audit=False)
    retrained = gf.unlearn(trained, graph, request, method="retrain")
    step = outcome.details["steps"][0]
    return {
        "old": round(100 * trained.micro_f1(outcome.graph), 2),
        "idea": round(100 * outcome.trained.micro_f1(outcome.graph), 2),
        "retrained": round(100 * retrained.trained.micro_f1(outcome.graph), 2),
        "idea_seconds": round(outcome.seconds, 3),
        "retrain_seconds": round(retrained.seconds, 3),
        "step_norm": outcome.trained.history[-1].step_norm,
        "length": step["length"],
        "solver": f"{step['name']}, {step['curvature']}: {step['status']} after {step['iterations']}",
        "notes": list(outcome.notes),
    }


def _table(runs: list[dict], args: argparse.Namespace) -> None:
    print(f"\n| model | request | {' | '.join(args.data)} |\n|---|---|{'---|' * len(args.data)}")
    losses = {}
    for model in args.models:
        for kind in KINDS:
            cells = []
            for data in args.data:
                found = [r for r in runs if (r["data"], r["model"], r["kind"]) == (data, model, kind)]
                idea, retrained = (sum(r[way] for r in found) / len(found) for way in ("idea", "retrained"))
                losses[f"{model}, {kind}, {data}"] = retrained - idea
                cells.append(f"{idea:.1f} ({retrained:.1f})")
            print(f"| {model} | {kind} | {' | '.join(cells)} |")
    where = max(losses, key=losses.__getitem__)
    print(f"\nMean over seeds, in brackets: retrained. Largest loss: {losses[where]:.2f} points ({where}).")


if __name__ == "__main__":
    main()
