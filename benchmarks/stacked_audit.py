"""Does a stacked model forget? Wrongly labelled nodes are planted in Cora, learned and forgotten, by many models.

    python benchmarks/stacked_audit.py
    python benchmarks/stacked_audit.py --models 64 --model boosted-gcn

Each planted node has the attributes of one class and the label of another, so only training can reveal it. The
per-example test compares models that learned and forgot the planted nodes with models that never saw them: the kept
weights, the released ones, and a deletion that does nothing. It is AUC 0.5 if they cannot be told apart.
"""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path

import graphforget as gf
from graphforget.audits.canaries import plant
from graphforget.request.kinds import Kind
from results import Results, Row


def measured(model: str, *, models: int, jobs: int, folder: Path) -> Row:
    kinds: tuple[Kind, ...] = ("nodes",)
    planted = plant(gf.load("cora"), seed=0, kinds=kinds)
    trained = gf.train(planted.planted, model)
    audit = gf.audit(
        trained,
        planted.planted,
        planted.request,
        models=models,
        jobs=jobs,
        folder=folder / f"{model}-{models}",
        progress=lambda stage, done, total: print(f"{stage} {done}/{total}", flush=True),
    )
    return audit.to_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="stacked-gcn")
    parser.add_argument("--models", type=int, default=32)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/stacked_audit.jsonl"))
    args = parser.parse_args()
    compute = functools.partial(
        measured, args.model, models=args.models, jobs=args.jobs, folder=args.out.with_suffix("")
    )
    row = Results(args.out).get(compute, model=args.model, models=args.models)
    print(json.dumps(row, indent=2))


if __name__ == "__main__":
    main()
