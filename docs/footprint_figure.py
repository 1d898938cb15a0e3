"""Draws `docs/footprint.png`: what one request touches on the patients graph. Needs matplotlib.

python docs/footprint_figure.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.decomposition import PCA

import graphforget as gf
from graphforget.report.figures import Role, draw_footprint

REQUEST = gf.Request(
    nodes=["patient-0017"],
    edges=[("patient-0080", "patient-0142")],
    attributes={"patient-0400": ["mean radius", "mean texture"]},
)


def main() -> None:
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc")
    touched = gf.footprint(graph, REQUEST, trained.reach)
    what = REQUEST.resolve(graph)
    roles: list[Role] = ["untouched"] * graph.num_nodes
    for row in touched.reached.tolist():
        roles[row] = "affected"
    for row in torch.cat([what.partial_rows, graph.edge_index[:, what.edge_mask].flatten()]).tolist():
        roles[row] = "asked"
    for row in what.node_rows.tolist():
        roles[row] = "removed"
    affected, removed = touched.affected.numel(), touched.removed.numel()
    rest = graph.train_rows.numel() - affected - removed
    labels: dict[Role, str] = {
        "removed": "patient who withdraws",
        "asked": "relation or columns withdrawn",
        "affected": f"loss may change ({affected} training nodes)",
        "untouched": f"loss stays exactly the same ({rest} training nodes)",
    }
    place = PCA(2, random_state=0).fit_transform(graph.x.numpy())
    figure = draw_footprint(place, graph.edge_index.numpy(), roles, labels)
    figure.savefig(Path(__file__).with_name("footprint.png"), dpi=125, bbox_inches="tight", pad_inches=0.05)


if __name__ == "__main__":
    main()
