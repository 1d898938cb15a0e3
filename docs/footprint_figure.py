"""Draws `docs/footprint.png`: what one request touches on the patients graph. Needs matplotlib.

python docs/footprint_figure.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.collections import LineCollection
from sklearn.decomposition import PCA

import graphforget as gf

REQUEST = gf.Request(
    nodes=["patient-0017"],
    edges=[("patient-0080", "patient-0142")],
    attributes={"patient-0400": ["mean radius", "mean texture"]},
)


def main() -> None:
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc")
    touched = gf.footprint(graph, REQUEST, trained.reach)
    place = PCA(2, random_state=0).fit_transform(graph.x.numpy())
    what = REQUEST.resolve(graph)
    colour = ["#d9d9d9"] * graph.num_nodes
    for row in touched.reached.tolist():
        colour[row] = "#4c92c3"
    for row in torch.cat([what.partial_rows, graph.edge_index[:, what.edge_mask].flatten()]).tolist():
        colour[row] = "#ff9f40"
    for row in what.node_rows.tolist():
        colour[row] = "#d62728"
    order = sorted(range(graph.num_nodes), key=lambda row: colour[row] != "#d9d9d9")
    figure, axes = plt.subplots(figsize=(8, 4.2))
    lines = [place[[u, v]] for u, v in graph.edge_index.T.tolist() if u < v]
    axes.add_collection(LineCollection(lines, colors="#00000012", linewidths=0.5))
    axes.scatter(place[order, 0], place[order, 1], c=[colour[row] for row in order], s=14, edgecolors="white", lw=0.3)
    affected, removed = touched.affected.numel(), touched.removed.numel()
    rest = graph.train_rows.numel() - affected - removed
    for name, shade in (
        ("patient who withdraws", "#d62728"),
        ("relation or columns withdrawn", "#ff9f40"),
        (f"loss may change ({affected} training nodes)", "#4c92c3"),
        (f"loss stays exactly the same ({rest} training nodes)", "#d9d9d9"),
    ):
        axes.scatter([], [], c=shade, s=24, label=name)
    figure.legend(frameon=False, fontsize=8, loc="lower center", ncols=2)
    axes.set_axis_off()
    figure.savefig(Path(__file__).with_name("footprint.png"), dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
