"""One-node requests with SGC against retraining, everything counted, as ratios in one run.

    python benchmarks/one_node.py
    python benchmarks/one_node.py --data cora --requests 20

`newton` is `gf.unlearn` as a caller sees it: graph surgery, footprint, propagation, solve, residual with its rounding
allowance, noise, digests and certificate. `cold` is the same call with method='retrain': Newton-CG from 0 to the
training tolerance, with its surgery, noise and certificate; `cold, as loose` stops at the tolerance that `newton` has
to reach. `adam` is the paper's recipe on the retained graph, 300 epochs of full-batch Adam on the same model in
float32; its surgery and propagation are counted too. Requests are random training nodes, each timed REPEATS times and
the fastest kept (`adam` once for every fifth request, because the machine's speed drifts); the ratios are medians over
the requests.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import graphforget as gf
from graphforget.experiments.timing import adam_seconds
from graphforget.privacy.gaussian import tolerance

REPEATS = 5


def fastest(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def answered(trained: gf.Trained, graph: gf.Graph, node: int, **options: Any) -> None:
    """A new request each time, so that nothing that was looked up for it before is at hand."""
    gf.unlearn(trained, graph, gf.Request(nodes=[node]), **options)


def compare(data: str, count: int) -> None:
    graph = gf.load(data)
    trained = gf.train(graph, "sgc")
    nodes = random.Random(0).sample(graph.train_rows.tolist(), count)
    answered(trained, graph, nodes[0])  # warm up
    recipe = trained.recipe
    allowed = tolerance(sigma=recipe.sigma, epsilon=recipe.epsilon, delta=recipe.delta, releases=recipe.releases)
    loosely = dataclasses.replace(trained, recipe=dataclasses.replace(recipe, tolerance=allowed))
    newton, cold, loose, paper, products, levels = [], [], [], [], [], set()
    for place, node in enumerate(nodes):
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[node]))
        products.append(outcome.details["products"])
        levels.add(outcome.level)
        newton.append(fastest(functools.partial(answered, trained, graph, node), REPEATS))
        cold.append(fastest(functools.partial(answered, trained, graph, node, method="retrain"), REPEATS))
        loose.append(fastest(functools.partial(answered, loosely, graph, node, method="retrain"), REPEATS))
        if place % 5 == 0:
            paper.append(min(adam_seconds(trained, graph, gf.Request(nodes=[node])) for _ in range(REPEATS)))
    print(
        f"{data}: newton {1000 * statistics.median(newton):.0f} ms ({statistics.median(products):g} products, level "
        f"{', '.join(levels)}), cold {1000 * statistics.median(cold):.0f} ms, adam "
        f"{statistics.median(paper):.2f} s; "
        f"newton/cold {ratio(newton, cold)} (wanted 1/3), newton/cold, as loose {ratio(newton, loose)}, newton/adam "
        f"1/{statistics.median(paper) / statistics.median(newton):.1f} (wanted 1/20)",
        flush=True,
    )


def ratio(some: list[float], others: list[float]) -> str:
    ratios = [a / b for a, b in zip(some, others, strict=True)]
    return f"1/{1 / statistics.median(ratios):.2f}, worst 1/{1 / max(ratios):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cora", "pubmed", "physics"])
    parser.add_argument("--requests", type=int, default=15)
    args = parser.parse_args()
    for data in args.data:
        compare(data, args.requests)


if __name__ == "__main__":
    main()
