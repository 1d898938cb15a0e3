"""The time to follow a growth of 1 % against training anew on the grown graph, as ratios in one run.

    OMP_NUM_THREADS=1 python benchmarks/growth.py            SGC and SIGN on PubMed and CS
    OMP_NUM_THREADS=1 python benchmarks/growth.py --data cora

The last percent of the nodes, drawn by a seed, arrives in one update with its edges and labels. `update` is timed as a
caller sees it: matching of nodes, footprint, propagation, Newton steps, noise, digests and the certificate. Training
anew is `train` on the same graph, to its own tolerance. Both start from a graph of which nothing is prepared.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time

import numpy as np

import graphforget as gf
from graphforget.models.prepared import clear

SHARE = 0.01
WANTED = 1 / 3


def fresh(graph: gf.Graph) -> gf.Graph:
    """The same graph, of which nothing is computed yet."""
    clear()
    return dataclasses.replace(graph)


def growth(data: str, model: str, *, repeats: int) -> None:
    whole = gf.load(data)
    whole = dataclasses.replace(whole, subject_ids=tuple(f"node-{number}" for number in whole.numbers.tolist()))
    rng = np.random.default_rng(0)
    rows = rng.choice(whole.num_nodes, size=round(SHARE * whole.num_nodes), replace=False)
    before = whole.without(gf.Request(nodes=[whole.name_of(int(row)) for row in rows]))
    trained = gf.train(before, model)
    times: dict[str, list[float]] = {"update": [], "train": []}
    for _ in range(repeats):
        graph = fresh(whole)
        started = time.process_time()
        outcome = gf.update(trained, before, graph)
        times["update"].append(time.process_time() - started)
        graph = fresh(outcome.graph)
        started = time.process_time()
        anew = gf.train(graph, model)
        times["train"].append(time.process_time() - started)
        assert outcome.level == "certified"
    update, train = (statistics.median(times[name]) for name in ("update", "train"))
    steps, distance = outcome.details["steps"], float((outcome.centre - anew.theta).norm())
    print(
        f"{model} on {data}, {rows.size} new nodes: update {update:.3f} s ({steps} steps), "
        f"training anew {train:.3f} s: {update / train:.2f} of it (wanted: at most {WANTED:.2f}); "
        f"distance {distance:.1e}, allowed {outcome.certificate.tolerance:.1e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=["pubmed", "cs"])
    parser.add_argument("--model", nargs="*", default=["sgc", "sign"])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for data in given.data:
        for model in given.model:
            growth(data, model, repeats=given.repeats)


if __name__ == "__main__":
    main()
