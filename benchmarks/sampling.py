"""Encoders trained on whole parts and in mini-batches, on a synthetic graph of the size of ogbn-arxiv.

    OMP_NUM_THREADS=1 python benchmarks/sampling.py
    OMP_NUM_THREADS=1 python benchmarks/sampling.py --rows "sign" "stacked-sage"
    OMP_NUM_THREADS=1 python benchmarks/sampling.py --epochs 2 5 10 20

169,343 nodes, 1,166,243 undirected edges, 128 columns, 40 classes; nine tenths of the nodes train. Each row is measured
in a process of its own. The memory is the peak of the resident set, with the graph and all libraries, of the training
and of the request. Processor time; the score is the accuracy on test nodes, of the weights without noise. `own` is
PyG's GraphSAGE with two layers and 32 hidden units. `--epochs` scores epochs of mini-batches on validation nodes of a
smaller graph, which are held out of its training nodes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from typing import Any

from torch import nn
from torch_geometric.nn import GraphSAGE

import graphforget as gf

NODES, EDGES, COLUMNS, CLASSES = 169_343, 1_166_243, 128, 40
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "sign": ("sign", {}),
    "stacked-sage": ("stacked-sage", {}),
    "stacked-sage, batches of 1,024": ("stacked-sage", {"batch_size": 1024}),
    "stacked-sage, one part": ("stacked-sage", {"parts": 1, "batch_size": 0}),
    "stacked-sage, one part, batches of 1,024": ("stacked-sage", {"parts": 1, "batch_size": 1024}),
    "own, one part": ("own", {"parts": 1, "batch_size": 0}),
    "own, one part, batches of 1,024": ("own", {"parts": 1, "batch_size": 1024}),
}


def own_module(columns: int, classes: int) -> nn.Module:
    return GraphSAGE(columns, 32, num_layers=2, out_channels=classes)


def measure(name: str) -> dict[str, Any]:
    """Trains one row and forgets one node."""
    model, options = ROWS[name]
    graph = gf.synthetic(nodes=NODES, edges=EDGES, columns=COLUMNS, classes=CLASSES)
    started = time.process_time()
    if model == "own":
        trained = gf.train(graph, gf.stacked(own_module, **options))
    else:
        trained = gf.train(graph, model, **options)
    row = {"row": name, "training": round(time.process_time() - started, 1), "training_gib": _peak()}
    row["accuracy"] = round(100 * trained.micro_f1(graph), 1)
    started = time.process_time()
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=graph.numbers[graph.train_rows[:1]].tolist()))
    request = round(time.process_time() - started, 1)
    return row | {"request": request, "request_gib": _peak(), "level": outcome.level}


def choose_epochs(candidates: list[int]) -> None:
    """Prints the accuracy on validation nodes, three graphs, one part, by the number of epochs."""
    for seed in range(3):
        graph = gf.synthetic(nodes=20_000, edges=140_000, columns=32, classes=10, signal=1.5, seed=seed)
        graph = graph.hold_out(seed=seed)
        for epochs in candidates:
            trained = gf.train(graph, "stacked-sage", parts=1, batch_size=1024, epochs=epochs, seed=seed)
            encoder = trained.scores(graph, graph.val_mask)["micro_f1"]
            print(f"| {seed} | {epochs} | {100 * encoder:.2f} |", flush=True)


def _peak() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--epochs", nargs="+", type=int, help="choose the epochs of mini-batches on validation nodes")
    args = parser.parse_args()
    if args.epochs:
        choose_epochs(args.epochs)
        return
    if not args.json:
        print("| | training, s | peak, GiB | accuracy, % | one node, s | peak, GiB | level |")
        print("|---|---|---|---|---|---|---|", flush=True)
    for name in args.rows:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(measure, (name,))
        print(json.dumps(row) if args.json else f"| {' | '.join(map(str, row.values()))} |", flush=True)


if __name__ == "__main__":
    main()
