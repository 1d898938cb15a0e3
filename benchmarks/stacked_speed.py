"""Requests with stacked and boosted GCNs against retraining a GCN, everything counted, as ratios in one run.

    OMP_NUM_THREADS=1 python benchmarks/stacked_speed.py
    OMP_NUM_THREADS=1 python benchmarks/stacked_speed.py --data pubmed --requests 5

The time is processor time of `gf.unlearn` as a caller sees it: surgery, encoders, embeddings, Newton steps, noise,
digests, certificate. It is compared with `gf.unlearn` of a GCN by retraining with the quick recipe, the default. The
requests are random training nodes, and 5 % of the training nodes at once. `shop` is a synthetic graph with 36
neighbours a node (`benchmarks/synthetic.py`). Ratios are medians over the requests.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import graphforget as gf
import synthetic
from graphforget.request.sampling import Drawing, draw_request

DATA = ("cora", "pubmed", "cs", "shop")


def seconds(trained: gf.Trained, graph: gf.Graph, request: gf.Request) -> float:
    started = time.process_time()
    gf.unlearn(trained, graph, request)
    return time.process_time() - started


def compare(data: str, models: list[str], count: int) -> None:
    graph = synthetic.shop() if data == "shop" else gf.load(data)
    nodes = random.Random(0).sample(graph.numbers[graph.train_rows].tolist(), count)
    few = [gf.Request(nodes=[node]) for node in nodes]
    many = draw_request(graph, Drawing.parse("node:5%"), seed=0)
    times: dict[str, tuple[float, float]] = {}
    for model in ("gcn", *models):
        trained = gf.train(graph, model)
        seconds(trained, graph, few[0])  # warm up
        one = statistics.median(seconds(trained, graph, request) for request in few)
        times[model] = one, statistics.median(seconds(trained, graph, many) for _ in range(3))
    for model in models:
        one, five = (own / full for own, full in zip(times[model], times["gcn"], strict=True))
        took = f"{times[model][0]:.2f} s and {times[model][1]:.2f} s, GCN {times['gcn'][0]:.2f} s"
        print(f"| {data} | {model} | {one:.3f} | {five:.2f} | {took} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--models", nargs="+", default=["stacked-gcn", "boosted-gcn"])
    parser.add_argument("--requests", type=int, default=9)
    args = parser.parse_args()
    print("| data | model | one node | 5 % of the nodes | processor time |\n|---|---|---|---|---|")
    for data in args.data:
        compare(data, args.models, args.requests)


if __name__ == "__main__":
    main()
