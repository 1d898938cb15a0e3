"""How all figures look. Colours are those of Okabe and Ito, and nothing is shown by colour alone."""

from __future__ import annotations

BLUE, GREEN, ORANGE, VERMILLION = "#0072b2", "#009e73", "#e69f00", "#d55e00"
GREY, INK = "#b8b8b8", "#333333"
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so text has the same room everywhere
    "font.size": 9,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "graphforget",
}
