"""Time and memory of IDEA against retraining, as ratios in one run.

    python benchmarks/speed.py             GCN on CS, then memory of GCN on Physics
    python benchmarks/speed.py --model sgc

Retraining follows the paper's recipe (300 epochs of Adam and the polish). `idea` is timed as a caller sees it:
footprint, graph surgery, gradients, solve, step length, the measurements on the retained graph and its digest; the
assumption audit, which nobody has to wait for, is timed apart. The paper reports 1/60, with 3,000 epochs against the
time of the solver alone; that ratio is shown too, 3,000 epochs extrapolated from the time of an epoch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time

import graphforget as gf
from graphforget.request.sampling import Drawing, draw_request

SHARES = (0.001, 0.01, 0.05, 0.1)
REPEATS = 3


def ratios(data: str, model: str) -> None:
    graph = gf.load(data)
    trained = gf.train(graph, model, recipe="paper")
    epochs = _epoch_seconds(graph, trained)
    print(f"{model} on {data}: one epoch of Adam {1000 * epochs:.0f} ms", flush=True)
    for kind in ("nodes", "edges"):
        retrain = None
        for share in SHARES:
            request = draw_request(graph, Drawing(kind, share=share), seed=0)
            outcomes = [
                gf.unlearn(trained, graph, request, method="idea", level="empirical", audit=False)
                for _ in range(REPEATS)
            ]
            idea = statistics.median(outcome.seconds for outcome in outcomes)
            solver = statistics.median(outcome.details["steps"][0]["seconds"] for outcome in outcomes)
            if share == 0.05:
                retrain = gf.unlearn(trained, graph, request, method="retrain").seconds
            iterations = outcomes[0].details["steps"][0]["iterations"]
            print(f"  {kind} {100 * share:g} %: idea {idea:.2f} s ({iterations} products)", end="", flush=True)
            if share == 0.05 and retrain is not None:
                print(f", retraining {retrain:.1f} s: 1/{retrain / idea:.1f} of it (wanted: 1/10)", end="")
                print(f"; the paper's way to count: 1/{3000 * epochs / solver:.0f}", end="")
            print(flush=True)
        started = time.perf_counter()
        gf.unlearn(
            trained, graph, draw_request(graph, Drawing(kind, share=0.05), seed=0), method="idea", level="empirical"
        )
        print(f"  with its audit, {kind} 5 %: {time.perf_counter() - started:.2f} s", flush=True)


def _epoch_seconds(graph: gf.Graph, trained: gf.Trained) -> float:
    """Of the recipe's Adam, or of GCN's for a model that is trained by Newton's method."""
    model = trained.recipe.model if not trained.strongly_convex else "gcn"
    times = [gf.train(graph, model, epochs=epochs, polish_steps=0).seconds for epochs in (5, 25)]
    return (times[1] - times[0]) / 20


def memory(data: str, model: str) -> None:
    graph = gf.load(data)
    trained = gf.train(graph, model, epochs=5, polish_steps=1)
    outcome = gf.unlearn(
        trained, graph, draw_request(graph, Drawing("nodes", share=0.05), seed=0), method="idea", level="empirical"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{model} on {data}: 5 % of nodes in {outcome.seconds:.1f} s, peak {peak:.0f} MiB with audit (limit 3072)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cs")
    parser.add_argument("--model", default="gcn")
    args = parser.parse_args()
    for part, data in ((ratios, args.data), (memory, "physics")):  # memory is the peak of a process of its own
        process = multiprocessing.get_context("spawn").Process(target=part, args=(data, args.model))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
