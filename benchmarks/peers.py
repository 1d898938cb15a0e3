"""Every method on every model and every kind of request that it takes, on all five datasets: does it run, and in what?

    python benchmarks/peers.py
    python benchmarks/peers.py --data cora --models gcn --share 0.05

One process for each dataset and model, so that its peak memory is its own; one line for each outcome, written as it
comes, so that a run that was stopped goes on where it was. Training is short (EPOCHS epochs, no polish to speak of),
the audit of assumptions is left out and GIF gets 3 rounds of LiSSA: this shows that everything runs, not how well
(`graphforget compare` and `benchmarks/grapheraser.py` do).
"""

from __future__ import annotations

import argparse
import functools
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import graphforget as gf
from graphforget.ensembles.partition import PARTITIONS
from graphforget.experiments.settings import DATA, SHARDS
from graphforget.request.kinds import KINDS, Kind
from graphforget.request.sampling import Drawing, draw_request
from results import Results, Row

EPOCHS = 2
# What only takes time here is left out, and what has no guarantee for a model is run all the same.
OPTIONS: dict[str, dict[str, Any]] = {
    "idea": {"audit": False, "level": "empirical"},
    "ceu": {"level": "empirical"},
    "gif": {"iterations": 3},
}
MODELS = ("sgc", "sign", "cgu", "gcn", "gin", "gat", "sharded-sgc", "sharded-gcn", "sharded-gin", "sharded-gat")


def one(data: str, model: str, share: float, partitions: list[str], results: Results) -> None:
    """All that can be done with one model on one dataset."""
    graph = gf.load(data)
    for partition in partitions if model.startswith("sharded") else ("",):
        options: dict[str, Any] = {"partition": partition, "shards": SHARDS[data]} if partition else {}
        short: dict[str, Any] = {} if gf.MODELS[model].affine else {"epochs": EPOCHS, "polish_steps": 1}
        trained = gf.train(graph, model, **short, **options)
        for name, method in gf.METHODS.items():
            if method.unsupported(trained) is not None:
                continue
            for kind in (kind for kind in KINDS if kind in method.kinds):
                key = {"data": data, "model": model, "partition": partition, "method": name, "kind": kind}
                results.get(functools.partial(outcome, trained, graph, name, kind, share), **key)


def outcome(trained: gf.Trained, graph: gf.Graph, method: str, kind: Kind, share: float) -> Row:
    options = OPTIONS.get(method, {})
    try:
        result = gf.unlearn(
            trained, graph, draw_request(graph, Drawing(kind, share=share), seed=0), method=method, **options
        )
        row: Row = {"level": result.level, "seconds": result.seconds, "f1": result.trained.micro_f1(result.graph)}
    except gf.Refused as refusal:  # an answer, and no release
        row = {"level": "refused", "why": str(refusal)}
    return row | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--partitions", nargs="+", default=list(PARTITIONS), choices=PARTITIONS)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--out", type=Path, default=Path("runs/peers.jsonl"))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        one(args.data[0], args.models[0], args.share, args.partitions, Results(args.out))
        return
    for data in args.data:
        for model in args.models:
            print(data, model, flush=True)
            same = ["--share", str(args.share), "--out", str(args.out), "--partitions", *args.partitions, "--here"]
            subprocess.run([sys.executable, __file__, "--data", data, "--models", model, *same], check=True)
    summary(Results(args.out).rows)


def summary(rows: list[Row]) -> None:
    """For each dataset and model: outcomes, the slowest, the memory."""
    for data, model in dict.fromkeys((row["data"], row["model"]) for row in rows):
        own = [row for row in rows if (row["data"], row["model"]) == (data, model)]
        levels = {level: sum(row["level"] == level for row in own) for level in sorted({row["level"] for row in own})}
        slowest = max(own, key=lambda row: row.get("seconds", 0))
        print(
            f"{data:9s} {model:12s} {len(own):3d} outcomes {levels}, slowest {slowest['method']} ({slowest['kind']}) "
            f"{slowest.get('seconds', 0):.1f} s, peak {max(row['peak_mib'] for row in own)} MiB"
        )


if __name__ == "__main__":
    main()
