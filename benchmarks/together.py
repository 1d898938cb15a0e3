"""Requests answered by one release against the same requests answered one after the other.

    OMP_NUM_THREADS=1 python benchmarks/together.py
    OMP_NUM_THREADS=1 python benchmarks/together.py --data pubmed --requests 10

The requests name one training node each. Times are those of run directories, with everything that is written to them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import graphforget as gf


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cora")
    parser.add_argument("--model", default="sgc")
    parser.add_argument("--requests", type=int, default=100)
    args = parser.parse_args()
    graph = gf.load(args.data)
    trained = gf.train(graph, args.model, releases=args.requests)
    nodes = [graph.name_of(row) for row in graph.train_rows[: args.requests].tolist()]
    requests = [gf.Request(nodes=[node]) for node in nodes]
    gf.unlearn(trained, graph, requests[0])  # the first one also prepares the graph
    with tempfile.TemporaryDirectory() as folder:
        runs = [gf.save_run(Path(folder) / name, trained, graph) for name in ("together", "in a row")]
        seconds = [
            timed(lambda: gf.answer(runs[0], requests)),
            timed(lambda: [gf.answer(runs[1], request) for request in requests]),
        ]
        checks = [timed(lambda run=run: gf.verify_run(run)) for run in runs]  # type: ignore[misc]
        ends = [gf.load_run(run) for run in runs]
    assert ends[0][1].digest == ends[1][1].digest
    for place, name in enumerate(("together", "in a row")):
        left = ends[place][0].releases_left
        print(f"{name}: {seconds[place]:.2f} s, verified in {checks[place]:.2f} s, {left} releases left")
    print(f"ratio: 1/{seconds[1] / seconds[0]:.0f}")


if __name__ == "__main__":
    main()
