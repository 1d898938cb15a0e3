"""Physics, the largest dataset: memory of loading and training SGC, and a GCN training step against PyG's stock GCN.

    python benchmarks/physics.py

Memory is the peak of a process of its own. Steps are timed in one run on the same machine, in turns: ours on sparse
attributes, PyG's `GCN` on dense ones, as it comes and with its adjacency cached (ours is
prepared once as well). Same width, same loss, Adam, dropout on.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import graphforget as gf

STEPS = 5


def sgc_memory() -> None:
    graph = gf.load("physics")
    trained = gf.train(graph, "sgc")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"SGC on Physics: {trained.seconds:.2f} s, test micro-F1 {100 * trained.micro_f1(graph):.2f}, ",
        end="",
    )
    print(f"||grad F||/mu = {trained.residual:.1e}, peak {peak:.0f} MiB (limit 1024)", flush=True)


def step(module: nn.Module, inputs: tuple, rows: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01)

    def one() -> None:
        optimiser.zero_grad()
        functional.cross_entropy(module(*inputs)[rows], labels).backward()
        optimiser.step()

    return one


def gcn_steps() -> None:
    from torch_geometric.nn.models import GCN

    from graphforget.models.registry import build

    graph = gf.load("physics")
    rows, labels = graph.train_rows, graph.y[graph.train_rows]
    ours: Any = build("gcn", columns=graph.num_columns, classes=graph.num_classes)
    prepared = ours.prepare(graph.x.float(), graph.edge_index)
    shape = {"num_layers": 2, "out_channels": graph.num_classes, "dropout": 0.5}
    dense = (graph.x.float().to_dense(), graph.edge_index)
    candidates = {"ours": step(ours, prepared, rows, labels)}
    for name, cached in (("PyG", False), ("PyG cached", True)):
        stock = GCN(graph.num_columns, 64, cached=cached, **shape)
        candidates[name] = step(stock, dense, rows, labels)
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for repetition in range(STEPS + 1):
        for name, one in candidates.items():
            started = time.perf_counter()
            one()
            if repetition:  # the first is a warm-up
                times[name].append(time.perf_counter() - started)
    median = {name: statistics.median(values) for name, values in times.items()}
    print(f"GCN training step on Physics, median of {STEPS}: ours {1000 * median['ours']:.0f} ms", flush=True)
    for name in ("PyG", "PyG cached"):
        ratio = median[name] / median["ours"]
        print(f"  {name}: {1000 * median[name]:.0f} ms, ours is {ratio:.1f} times faster (wanted: 5)", flush=True)


if __name__ == "__main__":
    for part in (sgc_memory, gcn_steps):
        process = multiprocessing.get_context("spawn").Process(target=part)
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)
