"""How far one IDEA step ends from the retrained optimum, Cora, 5 % requests.

    python benchmarks/distance.py

SGC: the distance to the one optimum on the retained graph, of the old weights and after the step. GCN has many optima,
so it is judged by where training on would take it: the optimum reached from the old weights on the retained graph,
less the drift of going on with nothing removed. Each goes on by the recipe's own polish, 100 steps of L-BFGS with
dropout off; `--polish` changes that. (The longer, the more of what is measured is drift: the two ways part.) Medians
over the seeds; results are kept as they come and not repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

import graphforget as gf
from graphforget.linalg.newton import newton_cg
from graphforget.request.kinds import KINDS, Kind
from graphforget.request.sampling import Drawing, draw_request
from graphforget.training.fit import lbfgs
from results import Results, Row

Start = Callable[[], tuple[gf.Trained, gf.Graph]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--polish", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs/distance.jsonl"))
    args = parser.parse_args()
    results = Results(args.out)
    for model, measure in (("sgc", _to_optimum), ("gcn", _to_continued)):
        for seed in range(args.seeds):
            start = functools.cache(functools.partial(_trained, model, seed))
            for kind in KINDS:
                work = functools.partial(measure, start, kind, share=args.share, seed=seed, polish=args.polish)
                results.get(work, model=model, seed=seed, kind=kind, polish=args.polish)
    print("\n| model | request | distance after / before | cosine of the step |\n|---|---|---|---|")
    for model in ("sgc", "gcn"):
        for kind in KINDS:
            rows = results.find(model=model, kind=kind, polish=args.polish)
            ratios = [row["after"] / row["before"] for row in rows]
            cosine = statistics.median(row["cosine"] for row in rows)
            print(f"| `{model}` | {kind} | {statistics.median(ratios):.2f} (worst {max(ratios):.2f}) | {cosine:.2f} |")


def _trained(model: str, seed: int) -> tuple[gf.Trained, gf.Graph]:
    graph = gf.load("cora", seed=seed)
    return gf.train(graph, model, seed=seed, recipe="paper"), graph


def _to_optimum(start: Start, kind: Kind, *, share: float, seed: int, polish: int) -> Row:
    trained, graph = start()
    request = draw_request(graph, Drawing(kind, share=share), seed=seed)
    outcome = gf.unlearn(trained, graph, request, method="idea", level="empirical", audit=False)
    goal = newton_cg(trained.objective(outcome.graph), trained.theta, gradient_tolerance=1e-9).theta
    return _judged(goal - trained.theta, outcome.trained.theta - trained.theta)


@functools.cache
def _drift(start: Start, polish: int) -> Tensor:
    trained, graph = start()
    return _gone_on(trained, graph, polish) - trained.theta


def _gone_on(trained: gf.Trained, graph: gf.Graph, polish: int) -> Tensor:
    recipe = dataclasses.replace(trained.recipe, polish_steps=polish)
    return lbfgs(trained.objective(graph), trained.theta, recipe, None)


def _to_continued(start: Start, kind: Kind, *, share: float, seed: int, polish: int) -> Row:
    trained, graph = start()
    request = draw_request(graph, Drawing(kind, share=share), seed=seed)
    outcome = gf.unlearn(trained, graph, request, method="idea", level="empirical", audit=False)
    drift = _drift(start, polish)
    direction = _gone_on(trained, outcome.graph, polish) - trained.theta - drift
    return _judged(direction, outcome.trained.theta - trained.theta) | {"drift": float(drift.norm())}


def _judged(direction: Tensor, step: Tensor) -> Row:
    return {
        "before": float(direction.norm()),
        "after": float((direction - step).norm()),
        "cosine": float(direction @ step / (direction.norm() * step.norm())),
    }


if __name__ == "__main__":
    main()
