"""Requests on large graphs: processor time and peak memory, each size in a process of its own.

    OMP_NUM_THREADS=1 python benchmarks/large.py
    OMP_NUM_THREADS=1 python benchmarks/large.py --sizes 10k 42k --requests 5
    OMP_NUM_THREADS=1 python benchmarks/large.py --sizes products --model sign --requests 3

The graphs are `gf.synthetic`: power-law degrees, communities, dense attributes. `products` is as large as
ogbn-products (62 million undirected edges, 8 % of the nodes train). The others have a mean degree of 14. The time is
processor time of `gf.unlearn` as a caller sees it: surgery, footprint, features, Newton steps, noise, digests,
certificate. It is the median over random training nodes, or edges. "Other work" is that time without the passes over
the features of the training nodes. `verify` starts without anything that earlier work has left in memory. ScaleGUN
(ICLR 2025) publishes 11.7 s of wall time for 1,000 edges of ogbn-products with 40 threads and 1 TB of memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import graphforget as gf
from graphforget.linalg.blocked import BlockedFeatures
from graphforget.models import prepared

SIZES: dict[str, dict[str, Any]] = {
    "10k": {"nodes": 10_000, "edges": 70_000, "columns": 128, "classes": 40, "train": 0.54, "signal": 1.2},
    "42k": {"nodes": 42_000, "edges": 294_000, "columns": 128, "classes": 40, "train": 0.54, "signal": 1.2},
    "169k": {"nodes": 169_343, "edges": 1_166_243, "columns": 128, "classes": 40, "train": 0.54, "signal": 1.2},
    "2450k": {"nodes": 2_450_000, "edges": 17_150_000, "columns": 100, "classes": 47, "train": 0.08, "signal": 1.0},
    "products": {"nodes": 2_450_000, "edges": 62_000_000, "columns": 100, "classes": 47, "train": 0.08, "signal": 0.7},
}
RELEASES = (1, 64)
MANY = 1000  # edges of one request


class PassTimer:
    """Adds up the processor time of the passes over the features of the training nodes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for name in ("apply", "adjoint", "through"):
            setattr(BlockedFeatures, name, self._timed(getattr(BlockedFeatures, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            started = time.process_time()
            try:
                return method(*args)
            finally:
                self.seconds += time.process_time() - started

        return timed


def took(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def random_edges(graph: gf.Graph, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Different undirected edges, drawn uniformly."""
    places = rng.choice(graph.adjacency.indices.size, size=2 * count + 8, replace=False)
    receivers = np.searchsorted(graph.adjacency.indptr, places, side="right") - 1
    pairs = {tuple(sorted(p)) for p in zip(receivers.tolist(), graph.adjacency.indices[places].tolist(), strict=True)}
    return sorted(pairs)[:count]


def requests_of(graph: gf.Graph, count: int) -> dict[str, list[gf.Request]]:
    rng = np.random.default_rng(0)
    nodes = rng.choice(graph.train_rows.numpy(), size=count, replace=False).tolist()
    return {
        "one node": [gf.Request(nodes=[node]) for node in nodes],
        "one edge": [gf.Request(edges=[edge]) for edge in random_edges(graph, count, rng)],
        "attributes": [gf.Request(attributes={node: "all"}) for node in nodes],
        "1,000 edges": [
            gf.Request(edges=random_edges(graph, min(MANY, graph.num_edges // 2), rng)) for _ in range(min(count, 3))
        ],
    }


def measure(size: str, model: str, count: int) -> dict[str, Any]:
    timer = PassTimer()
    row: dict[str, Any] = {"size": size, "model": model}
    row["generate"], graph = took(lambda: gf.synthetic(seed=0, **SIZES[size]))
    requests = requests_of(graph, count)
    for releases in RELEASES:
        prepared.clear()
        row[f"train, {releases}"], trained = took(partial(gf.train, graph, model, releases=releases))
        for kind, listed in requests.items():
            if len(listed) > 1:
                gf.unlearn(trained, graph, listed[0])  # warm up
            times, passes = [], []
            for request in listed:
                timer.seconds = 0.0
                seconds, outcome = took(partial(gf.unlearn, trained, graph, request))
                assert outcome.level == "certified"
                times.append(seconds)
                passes.append(timer.seconds)
            row[f"{kind}, {releases}"] = statistics.median(times)
            row[f"other work, {kind}, {releases}"] = statistics.median(
                a - b for a, b in zip(times, passes, strict=True)
            )
    row["peak GiB"] = peak_gib()
    row["accuracy"] = trained.micro_f1(graph)
    row |= stored(trained, graph, requests["one edge"][0])
    return row


def stored(trained: gf.Trained, graph: gf.Graph, request: gf.Request) -> dict[str, Any]:
    """The time of saving, loading and verifying a run."""
    row: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        try:
            row["save"], _ = took(lambda: gf.save_run(run, trained, graph))
            row["load"], (trained, graph) = took(lambda: gf.load_run(run))
        except gf.InputError as error:
            row["save"] = row["load"] = str(error)
        outcome = gf.unlearn(trained, graph, request)
        prepared.clear()
        outcome.graph.__dict__.pop("digest_tree", None)
        outcome.graph.__dict__.pop("digest", None)
        row["verify"], _ = took(lambda: gf.verify(outcome.certificate, outcome.trained, outcome.graph))
    row["peak with verify, GiB"] = peak_gib()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--model", default="sgc", choices=["sgc", "sign"])
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--here", action="store_true", help="measure one size in this process and print JSON")
    args = parser.parse_args()
    if args.here:
        print(json.dumps(measure(args.sizes[0], args.model, args.requests)), flush=True)
        return
    for size in args.sizes:
        options = ["--here", "--sizes", size, "--model", args.model, "--requests", str(args.requests)]
        answer = subprocess.run([sys.executable, __file__, *options], check=True, capture_output=True, text=True)
        row = json.loads(answer.stdout.splitlines()[-1])
        print(f"\n{size}, {args.model}", flush=True)
        for name, value in row.items():
            print(f"  {name}: {value:.3f}" if isinstance(value, float) else f"  {name}: {value}", flush=True)


if __name__ == "__main__":
    main()
