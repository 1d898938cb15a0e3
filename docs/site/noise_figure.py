"""Measures and draws `docs/noise.png`: the accuracy of the released weights under noise of several sizes.

OMP_NUM_THREADS=1 python docs/site/noise_figure.py

For each dataset an SGC is trained and one node is deleted, for several seeds. Cora has to be in GRAPHFORGET_DATA, or is
downloaded. The noise is drawn from fixed seeds, so the numbers can be computed again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

import graphforget as gf
from graphforget.plot_style import BLUE, GREEN, ORANGE, STYLE

PLACE = Path(__file__).resolve().parents[1] / "noise.png"
SIGMAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SEEDS = range(5)
DATASETS = {"patients": (BLUE, "o"), "cora": (GREEN, "s")}


def accuracies(name: str, sigma: float) -> list[float]:
    """The micro-F1 on test nodes of the released weights, for each seed."""
    scores = []
    for seed in SEEDS:
        graph = gf.load(name).split(seed=seed)
        trained = gf.train(graph, "sgc", seed=seed, sigma=sigma)
        request = gf.Request(nodes=[graph.name_of(int(graph.train_rows[0]))])
        outcome = gf.unlearn(trained, graph, request, noise_seed=seed)
        scores.append(outcome.released.micro_f1(outcome.graph))
    return scores


@style.context(STYLE, after_reset=True)
def noise_figure(measured: dict[str, list[list[float]]]) -> Figure:
    """Mean and range over seeds, for each dataset and each sigma."""
    figure = Figure(figsize=(6.2, 3.0), layout="constrained")
    axes = figure.add_subplot()
    for name, rows in measured.items():
        colour, marker = DATASETS[name]
        values = 100 * np.array(rows)
        axes.fill_between(SIGMAS, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.15, linewidth=0)
        axes.plot(SIGMAS, values.mean(axis=1), color=colour, marker=marker, label=name)
    axes.axvline(gf.MODELS["sgc"].sigma, color=ORANGE, linestyle="--", label="the default of SGC")
    axes.set_xscale("log")
    axes.set_ylim(0, 102)
    axes.set_xlabel("sigma, the standard deviation of the noise in each weight")
    axes.set_ylabel("accuracy on test nodes, %")
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    results = {name: [accuracies(name, sigma) for sigma in SIGMAS] for name in DATASETS}
    for name, rows in results.items():
        print(name, {sigma: round(float(np.mean(row)), 3) for sigma, row in zip(SIGMAS, rows, strict=True)})
    noise_figure(results).savefig(PLACE, dpi=110, metadata={"Software": None})
