"""ScaleGUN beside Newton steps and retraining: time, noise and accuracy for requests in a row, in one run.

python benchmarks/scalegun.py
python benchmarks/scalegun.py --data pubmed --requests 10 --noise 1 5
python benchmarks/scalegun.py --synthetic 100000

Seconds are CPU seconds of one thread, without the measurement of conditions. The first request of ScaleGUN also
computes the features, so it has its own column. Ratios are to `newton` in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

import graphforget as gf
from graphforget.request.sampling import Drawing, draw_request

HEAD = f"{'':28} {'noise':>6} {'trained':>8} {'F1 first':>8} {'F1 last':>8} {'first s':>8} {'each s':>8} {'ratio':>6}"


def answered(graph: gf.Graph, model: str, requests: int, kind: str, options: dict[str, Any]) -> Iterator[Any]:
    """For each request of a row: the outcome, and its CPU seconds."""
    trained = options.pop("trained")
    for number in range(requests):
        request = draw_request(graph, Drawing.parse(f"{kind}:1"), seed=number)
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = gf.unlearn(trained, graph, request, **options)
        busy = (time.process_time() - cpu) / (time.perf_counter() - wall)
        yield outcome, outcome.seconds * busy
        trained, graph = outcome.trained, outcome.graph


def row(label: str, noise: float, graph: gf.Graph, model: str, args: Any, base: float | None, **options: Any) -> float:
    """Prints a row; returns the median seconds of a request."""
    training = options.pop("training")
    trained = gf.train(graph, model, seed=0, epsilon=args.epsilon, delta=args.delta, **training)
    results = list(answered(graph, model, args.requests, args.kind, options | {"trained": trained}))
    first, *later = [seconds for _, seconds in results]
    each = statistics.median(later)
    again = sum(bool(outcome.details.get("retrained")) for outcome, _ in results)
    scores = [100 * outcome.released.micro_f1(outcome.graph) for outcome, _ in (results[0], results[-1])]
    ratio = "" if base is None else f"{each / base:6.2f}"
    numbers = f"{scores[0]:8.2f} {scores[1]:8.2f} {first:8.3f} {each:8.3f} {ratio:>6}"
    print(f"{label:28} {noise:6g} {again:>5}/{len(results)} {numbers}", flush=True)
    return each


def compare(graph: gf.Graph, args: Any) -> None:
    print(f"{graph.name}: {graph.num_nodes:,} nodes, {args.requests} requests of one {args.kind} each\n{HEAD}")
    sigma = gf.MODELS["sgc"].sigma
    base = row("newton, certified", sigma, graph, "sgc", args, None, method="newton", training={})
    row("retrain, certified", sigma, graph, "sgc", args, base, method="retrain", training={})
    for certificate in ("corrected", "published"):
        for noise in args.noise:
            given: Any = {"method": "scalegun", "certificate": certificate, "rmax": args.rmax}
            training = {"objective_noise": noise, "mu": args.mu}
            row(f"scalegun, {certificate}", noise, graph, "scalegun", args, base, training=training, **given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cora", "pubmed"])
    parser.add_argument("--synthetic", type=int, help="a generated graph of so many nodes, in place of --data")
    parser.add_argument("--kind", default="edge", choices=("node", "edge", "attribute"))
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--mu", type=float, default=gf.MODELS["scalegun"].mu)
    parser.add_argument("--rmax", type=float, default=1e-9)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.synthetic:
        compare(gf.synthetic(nodes=args.synthetic, edges=10 * args.synthetic, columns=64, classes=10), args)
        return
    for data in args.data:
        compare(gf.load(data), args)


if __name__ == "__main__":
    main()
