"""The plot of an audit: for each attack how well it does on each model, with confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure

from graphforget.audits.rows import BEFORE, METHOD, NO_OP, RETRAINED
from graphforget.plot_style import BLUE, GREEN, GREY, ORANGE, STYLE, VERMILLION

_LOOK = {  # colour, marker and words, in the order of the legend
    BEFORE: (GREY, "o", "before the deletion"),
    NO_OP: (VERMILLION, "X", "no_op: the old weights"),
    RETRAINED: (BLUE, "s", "retrained"),
    METHOD: (GREEN, "D", "the method"),
}
_APART = 0.18


@style.context(STYLE, after_reset=True)
def audit_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """The rows of `Audit.to_dict()` as a plot. A deletion that worked shows the method where retrained models are."""
    attacks = list(dict.fromkeys(row["attack"] for row in rows))
    figure = Figure(figsize=(6.2, 0.6 + 0.62 * len(attacks)))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.axvline(0.5, color=ORANGE, linewidth=0.9, linestyle=(0, (5, 3)), zorder=0)
    for position, (model, (colour, marker, words)) in enumerate(_LOOK.items()):
        points = [row for row in rows if row["model"] == model]
        heights = [attacks.index(row["attack"]) + _APART * (position - 1.5) for row in points]
        values = [row["auc"]["value"] for row in points]
        spans = [[max(0.0, row["auc"]["value"] - row["auc"]["low"]) for row in points]]
        spans.append([max(0.0, row["auc"]["high"] - row["auc"]["value"]) for row in points])
        axes.errorbar(
            values, heights, xerr=spans, color=colour, marker=marker, markersize=5, linestyle="none", label=words
        )
    axes.set_yticks(range(len(attacks)), attacks)
    axes.set_ylim(len(attacks) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.set_xlabel("area under the ROC curve, with its 95 % interval (dashed: a coin)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35 / len(attacks) - 0.06), ncols=2, frameon=False)
    return figure
