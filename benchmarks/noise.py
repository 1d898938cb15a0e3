"""What noise in the weights costs, on validation nodes taken from the training nodes: how `sigma` was chosen.

    python benchmarks/noise.py

Each number is validation micro-F1 without noise minus with it, in points, a mean over DRAWS draws. The default of a
model was the largest sigma of the row that costs at most 0.15 points on every dataset, on the splits of its time.
"""

from __future__ import annotations

import argparse
import statistics

import graphforget as gf
from graphforget.privacy.noise import noise

SIGMAS = (0.01, 0.03, 0.05, 0.1, 0.2)
DRAWS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cora", "citeseer", "pubmed", "cs", "physics"])
    parser.add_argument("--models", nargs="+", default=["sgc", "sign", "linearised-gcn"])
    args = parser.parse_args()
    print("| model | data | validation F1 | " + " | ".join(map(str, SIGMAS)) + " |")
    print("|---|---|---|" + len(SIGMAS) * "---|")
    for model in args.models:
        for data in args.data if not model.startswith("linearised") else ["cora"]:
            graph = gf.load(data, seed=0).hold_out(seed=0)
            trained = gf.train(graph, model)
            base = 100 * trained.micro_f1(graph, graph.val_mask)
            lost = []
            for sigma in SIGMAS:
                noised = (
                    trained.with_weights(trained.theta + noise(size=trained.theta.numel(), sigma=sigma, seed=seed))
                    for seed in range(DRAWS)
                )
                lost.append(base - 100 * statistics.fmean(n.micro_f1(graph, graph.val_mask) for n in noised))
            print(f"| `{model}` | {data} | {base:.2f} | " + " | ".join(f"{x:.2f}" for x in lost) + " |", flush=True)


if __name__ == "__main__":
    main()
