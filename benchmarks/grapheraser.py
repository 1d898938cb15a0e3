"""GraphEraser's accuracy by partition and aggregation, and how long the partitions take.

    python benchmarks/grapheraser.py                                 GCN on Cora, three splits
    python benchmarks/grapheraser.py --partition-only --data physics  the three partitions alone

Test micro-F1 before any deletion, mean and deviation over the splits; the settings were chosen on validation nodes.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from pathlib import Path
from typing import Any

import graphforget as gf
from graphforget.ensembles.aggregation import AGGREGATIONS
from graphforget.ensembles.partition import PARTITIONS
from graphforget.experiments.settings import DATA, SHARDS
from graphforget.models.registry import build
from graphforget.models.sharded import Sharded
from graphforget.training.shards import partition
from results import Results, Row


def accuracy(data: str, model: str, partition_method: str, aggregation: str, seed: int) -> Row:
    graph = gf.load(data, seed=seed)
    options: dict[str, Any] = {"partition": partition_method, "aggregation": aggregation, "shards": SHARDS[data]}
    trained = gf.train(graph, f"sharded-{model}", seed=seed, **options)
    return {"f1": trained.micro_f1(graph), "seconds": trained.seconds}


def partitions(data: str) -> None:
    graph = gf.load(data)
    for partition_method in PARTITIONS:
        shape = {"columns": graph.num_columns, "classes": graph.num_classes}
        ensemble = build("sharded-sgc", **shape, partition=partition_method, shards=SHARDS[data])
        assert isinstance(ensemble, Sharded)
        started = time.perf_counter()
        shard_of = partition(graph, ensemble, seed=0, progress=lambda *_: None)
        seconds = time.perf_counter() - started
        sizes = shard_of[graph.train_rows].bincount(minlength=SHARDS[data])
        source, target = shard_of[graph.edge_index]
        among = (source >= 0) & (target >= 0)
        cut = float((source != target)[among].double().mean())
        print(
            f"{data}, {SHARDS[data]} shards, {partition_method}: {seconds:.1f} s, "
            f"sizes {int(sizes.min())} to {int(sizes.max())}, "
            f"{100 * cut:.0f} % of the edges between training nodes cut",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cora"], choices=DATA)
    parser.add_argument("--models", nargs="+", default=["gcn"], choices=["sgc", "gcn", "gat", "gin"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--partition-only", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/grapheraser.jsonl"))
    args = parser.parse_args()
    if args.partition_only:
        for data in args.data:
            partitions(data)
        return
    results = Results(args.out)
    for data in args.data:
        for model in args.models:
            for partition_method in PARTITIONS:
                for aggregation in AGGREGATIONS:
                    for seed in args.seeds:
                        key = {
                            "data": data,
                            "model": model,
                            "partition": partition_method,
                            "aggregation": aggregation,
                            "seed": seed,
                        }
                        results.get(functools.partial(accuracy, *key.values()), **key)
                    same = {"data": data, "model": model, "partition": partition_method, "aggregation": aggregation}
                    f1 = [100 * row["f1"] for row in results.find(**same)]
                    mean_and_deviation = f"{statistics.mean(f1):.1f} +- {statistics.pstdev(f1):.1f}"
                    print(f"{data} {model} {partition_method:6s} {aggregation:8s} {mean_and_deviation}", flush=True)


if __name__ == "__main__":
    main()
