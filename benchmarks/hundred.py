"""A hundred requests in a row on Cora, of all kinds mixed: every one certified, and no drift from retraining.

    python benchmarks/hundred.py
    python benchmarks/hundred.py --model sign

Each request starts from the weights that the one before left. At the end the weights are held against the optimum on
what is left of the graph, and against retraining from scratch; on the way, what all releases together tell.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

import torch

import graphforget as gf
from graphforget.linalg.newton import newton_cg
from graphforget.privacy.gaussian import composed_ratio, epsilon_of, tolerance
from graphforget.training.state import same_tensors


def drawn(graph: gf.Graph, number: int) -> gf.Request:
    """One to five nodes, edges, or nodes that lose all or some attributes, or a mixture of all."""
    chance = random.Random(number)
    nodes = graph.numbers[graph.train_rows].tolist()
    edges = graph.numbers[graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]].T.tolist()
    count = chance.randint(1, 5)
    named = chance.sample(nodes, 3 * count)
    parts: dict[str, Any] = {
        "nodes": named[:count],
        "edges": [tuple(edge) for edge in chance.sample(edges, count)],
        "whole": dict.fromkeys(named[count : 2 * count], "all"),
        "some": {n: chance.sample(range(graph.num_columns), min(50, graph.num_columns)) for n in named[2 * count :]},
    }
    kind = number % 5
    only = [part if kind in (4, place) else None for place, part in enumerate(parts.values())]
    return gf.Request(only[0] or (), only[1] or (), (only[2] or {}) | (only[3] or {}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cora")
    parser.add_argument("--model", default="sgc")
    parser.add_argument("--requests", type=int, default=100)
    args = parser.parse_args()
    graph = gf.load(args.data)
    first = trained = gf.train(graph, args.model, releases=args.requests)
    levels: dict[str, int] = {}
    ratios, products, seconds = [], 0, 0.0
    for number in range(args.requests):
        outcome = gf.unlearn(trained, graph, drawn(graph, number))
        levels[outcome.level] = levels.get(outcome.level, 0) + 1
        ratios.append((outcome.measured["distance"] or 0.0) / first.recipe.sigma)
        products += outcome.details.get("products", 0)
        seconds += outcome.seconds
        trained, graph = outcome.trained, outcome.graph
    objective = trained.objective(graph)
    start = torch.zeros_like(trained.theta)
    optimum = newton_cg(objective, start, gradient_tolerance=1e-6 * trained.recipe.mu).theta
    retrained = gf.train(graph, args.model)
    away = float((outcome.centre - optimum).norm())
    together = epsilon_of(ratio=composed_ratio(ratios), delta=1e-5)
    promised = tolerance(sigma=1.0, epsilon=1.0, delta=1e-5, releases=args.requests)
    by_promise = epsilon_of(ratio=composed_ratio([promised] * args.requests), delta=1e-5)
    print(f"levels: {levels}; a request: ", end="")
    print(f"{products / args.requests:.1f} products and {1000 * seconds / args.requests:.0f} ms")
    print(f"left: {graph.num_nodes} nodes, {graph.num_edges} edges")
    print(f"distance to the optimum at the end {away:.1e}, claimed {outcome.measured['distance']:.1e}, ", end="")
    print(f"of the first weights {float((first.theta - optimum).norm()):.1f}")
    print(
        f"test micro-F1 {100 * trained.micro_f1(graph):.2f}, retrained {100 * retrained.micro_f1(graph):.2f}, ", end=""
    )
    same = (trained.logits(graph).argmax(1) == retrained.logits(graph).argmax(1)).double().mean()
    print(f"the same prediction for {100 * float(same):.2f} % of the nodes")
    if trained.is_stacked:
        equal = same_tensors(trained.released_state, retrained.released_state)
        print(f"encoders equal to those of training on the last graph, bit for bit: {equal}")
    print(f"epsilon of all {args.requests} releases together: {together:.3g} by the distances measured, ", end="")
    print(f"{by_promise:.3g} by what each is allowed, at delta = 1e-5")


if __name__ == "__main__":
    main()
