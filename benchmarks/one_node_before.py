"""One-node requests of this checkout against those of another one, as a ratio in one run.

    git worktree add ../before COMMIT
    OMP_NUM_THREADS=1 python benchmarks/one_node_before.py ../before
    OMP_NUM_THREADS=1 python benchmarks/one_node_before.py ../before --model sign --data dense --requests 8

`dense` is a synthetic graph with 7,650 nodes, 119,000 edges, 745 dense columns and 8 classes. Each checkout has a
process of its own. They take turns, request by request, on the same nodes, so that whatever else slows the machine
slows both. `releases=1` promises what the other checkout promises; the default promises more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WARM_UP = 3


DENSE: dict[str, Any] = {"nodes": 7_650, "edges": 119_000, "columns": 745, "classes": 8}


def write_dense(folder: Path) -> Path:
    """A file with the arrays of the synthetic graph: older checkouts cannot make it themselves."""
    import numpy as np

    import graphforget as gf

    graph = gf.synthetic(**DENSE, seed=0)
    path = folder / "dense.npz"
    arrays: dict[str, Any] = {"x": graph.x, "edges": graph.edge_index, "y": graph.y, "train_mask": graph.train_mask}
    named: dict[str, Any] = {name: array.numpy() for name, array in arrays.items()}
    np.savez(path, **named)
    return path


def work(data: str, model: str, releases: int) -> None:
    """Answers a request for every node number on standard input with its CPU seconds."""
    import numpy as np
    import torch

    import graphforget as gf

    if data.endswith(".npz"):
        arrays: dict[str, Any] = {name: torch.from_numpy(array) for name, array in np.load(data).items()}
        graph = gf.Graph.create(**arrays, test_mask=~arrays["train_mask"])
    else:
        graph = gf.load(data)
    more: dict[str, Any] = {"releases": releases} if releases else {}
    trained = gf.train(graph, model, **more)
    print(graph.num_nodes, flush=True)
    for line in sys.stdin:
        request = gf.Request(nodes=[int(line)])
        started = time.process_time()
        outcome = gf.unlearn(trained, graph, request)
        print(time.process_time() - started, outcome.details["products"], flush=True)


class Worker:
    """A process that answers requests with the package of one checkout."""

    def __init__(self, checkout: Path, data: str, model: str, releases: int) -> None:
        command = [sys.executable, __file__, "--work", data, "--model", model, "--releases", str(releases)]
        environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        self.nodes = int(self._line())

    def seconds(self, node: int) -> tuple[float, int]:
        assert self.process.stdin is not None
        print(node, file=self.process.stdin, flush=True)
        seconds, products = self._line().split()
        return float(seconds), int(products)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", type=Path, help="the other checkout")
    parser.add_argument("--data", nargs="+", default=["cora", "pubmed"])
    parser.add_argument("--model", default="sgc", choices=["sgc", "sign"])
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--releases", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.model, arguments.releases)
        return
    here = Path(__file__).resolve().parents[1]
    print("| data | before | releases=1 | ratio | default | ratio | products |")
    print("|---|---|---|---|---|---|---|")
    for data in arguments.data:
        sides = ((arguments.before.resolve(), 0), (here, 1), (here, 0))
        with tempfile.TemporaryDirectory() as folder:
            given = str(write_dense(Path(folder))) if data == "dense" else data
            workers = [Worker(checkout, given, arguments.model, releases) for checkout, releases in sides]
        step = max(1, workers[0].nodes // (arguments.requests + WARM_UP))
        rows = [[worker.seconds(number * step) for worker in workers] for number in range(arguments.requests + WARM_UP)]
        timed = rows[WARM_UP:]
        before, one, default = (statistics.median(row[which][0] for row in timed) for which in range(3))
        products = " / ".join(f"{statistics.mean(row[which][1] for row in timed):.1f}" for which in range(3))
        print(
            f"| {data} | {1000 * before:.1f} ms | {1000 * one:.1f} ms | {one / before:.2f} | {1000 * default:.1f} ms "
            f"| {default / before:.2f} | {products} |"
        )


if __name__ == "__main__":
    main()
