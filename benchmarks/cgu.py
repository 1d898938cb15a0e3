"""How long CGU's budget lasts: one-node requests in a row, and one of 5 % of the nodes.

python benchmarks/cgu.py
python benchmarks/cgu.py --data citeseer --epsilon 1 --delta 1e-4 --requests 20
"""

from __future__ import annotations

import argparse
import statistics

import graphforget as gf
from graphforget.request.sampling import Drawing, draw_request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cora")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-4)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    options = {"epsilon": args.epsilon, "delta": args.delta, "method": "cgu"}
    for seed in args.seeds:
        graph = gf.load(args.data, seed=seed)
        trained = gf.train(graph, "cgu", seed=seed)
        f1 = trained.micro_f1(graph)
        large = gf.unlearn(trained, graph, draw_request(graph, Drawing("nodes", share=0.05), seed=seed), **options)
        shares, retrained, seconds = [], 0, []
        for number in range(args.requests):
            outcome = gf.unlearn(
                trained, graph, draw_request(graph, Drawing("nodes", count=1), seed=100 * seed + number), **options
            )
            shares.append(outcome.details["bound"] / outcome.details["budget"])
            retrained += outcome.details["retrained"]
            seconds.append(outcome.seconds)
            trained, graph = outcome.trained, outcome.graph
        print(
            f"{args.data}, split {seed}: test micro-F1 {100 * f1:.1f}, after {args.requests} requests "
            f"{100 * trained.micro_f1(graph):.1f}; a one-node request spends {statistics.median(shares):.2f} of the "
            f"budget in the median, {retrained} of {args.requests} retrained, "
            f"{1000 * statistics.median(seconds):.0f} ms; 5 % of the nodes spend "
            f"{large.details['bound'] / large.details['budget']:.0f} budgets",
            flush=True,
        )


if __name__ == "__main__":
    main()
