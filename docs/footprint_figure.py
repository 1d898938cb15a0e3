"""Draws `docs/footprint.png`: what one request touches on the patients graph.

python docs/footprint_figure.py
"""

from __future__ import annotations

from pathlib import Path

import graphforget as gf
from graphforget.report.content import footprint_scene
from graphforget.report.figures import draw_footprint

REQUEST = gf.Request(
    nodes=["patient-0017"],
    edges=[("patient-0080", "patient-0142")],
    attributes={"patient-0400": ["mean radius", "mean texture"]},
)


def main() -> None:
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc")
    figure = draw_footprint(*footprint_scene(graph, REQUEST, gf.footprint(graph, REQUEST, trained.reach)))
    figure.savefig(Path(__file__).with_name("footprint.png"), dpi=125, bbox_inches="tight", pad_inches=0.05)


if __name__ == "__main__":
    main()
