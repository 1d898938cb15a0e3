"""Draws `docs/guarantees.svg`: the four levels of guarantees as one ladder.

python docs/site/guarantees_figure.py
"""

from __future__ import annotations

from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from graphforget.certificates.levels import LEVELS, Level
from graphforget.plot_style import BLUE, GREEN, INK, ORANGE, STYLE, VERMILLION

PLACE = Path(__file__).resolve().parents[1] / "guarantees.svg"
ROWS: dict[Level, tuple[str, str, str]] = {  # colour, what is guaranteed, how to get it
    "exact": (BLUE, "the weights are those of training without the data, bit for bit", "retraining, random shards"),
    "certified": (
        GREEN,
        "no test distinguishes the weights from retrained ones with the\nsame noise much better than guessing; proven",
        "stacked GNNs, SGC, SIGN, boosted, linearised",
    ),
    "conditional": (ORANGE, "the same, if every listed condition holds", "the bound of IDEA, CGU, CEU"),
    "empirical": (VERMILLION, "nothing is guaranteed; only attacks were tried", "GIF, gradient ascent, IDEA on a GCN"),
}


@style.context(STYLE, after_reset=True)
def guarantees_figure() -> Figure:
    """One step for each level, the best on top."""
    figure = Figure(figsize=(7.2, 3.4))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, 7.2)
    axes.set_ylim(0, 3.4)
    axes.set_axis_off()
    for index, level in enumerate(LEVELS):
        colour, guaranteed, method = ROWS[level]
        bottom, left = 2.58 - 0.82 * index, 0.1 + 0.12 * index
        box = FancyBboxPatch((left, bottom), 7.0 - left, 0.68, boxstyle="round,pad=0,rounding_size=0.06")
        box.set(facecolor="white", edgecolor=colour, linewidth=1.6)
        axes.add_patch(box)
        axes.text(left + 0.12, bottom + 0.34, level, color=colour, fontsize=12, fontweight="bold", va="center")
        axes.text(left + 1.35, bottom + 0.44, guaranteed, color=INK, fontsize=8.5, va="center")
        axes.text(left + 1.35, bottom + 0.12, method, color="#777777", fontsize=7.5, va="center")
    return figure


if __name__ == "__main__":
    guarantees_figure().savefig(PLACE, metadata={"Date": None})
