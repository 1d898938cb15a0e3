"""The figures of a report, as SVG elements for one HTML page.

They are drawn without pyplot. Text stays text, the same input gives the same bytes, and ids are unique in a page.
Colours are those of Okabe and Ito, and no information is in the colour alone.
"""

from __future__ import annotations

import hashlib
import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Literal, get_args
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from graphforget.plot_style import BLUE, GREEN, GREY, INK, ORANGE, STYLE, VERMILLION

Role = Literal["removed", "changed", "affected", "untouched"]

ROLES: tuple[Role, ...] = get_args(Role)  # in the order of the legend; drawn in reverse order, so that none is hidden

_LOOK: dict[Role, tuple[str, str, float]] = {  # colour, marker, size in square points
    "removed": (VERMILLION, "X", 60.0),
    "changed": (ORANGE, "D", 30.0),
    "affected": (BLUE, "o", 18.0),
    "untouched": (GREY, "o", 14.0),
}
_RASTERISED_FROM = 6000  # edges and nodes; as single shapes they would make a page too heavy to open
_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
_POINTERS = {f"{_XLINK}href", "clip-path"}


def footprint_figure(
    positions: np.ndarray, edges: np.ndarray, roles: Sequence[Role], labels: Mapping[Role, str]
) -> Markup:
    """A graph with its nodes at `positions` (n x 2) and its `edges` (2 x E); the role of a node decides its marker.

    `labels` is the legend. It also shows roles without nodes, and does not show roles without a label.
    """
    return as_svg(draw_footprint(positions, edges, roles, labels))


@style.context(STYLE, after_reset=True)
def draw_footprint(
    positions: np.ndarray, edges: np.ndarray, roles: Sequence[Role], labels: Mapping[Role, str]
) -> Figure:
    """The figure of `footprint_figure`, for other formats."""
    figure = Figure(figsize=(6.6, 3.7), dpi=200)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    pairs = np.unique(np.sort(edges, axis=0), axis=1).T
    heavy = len(pairs) + len(positions) > _RASTERISED_FROM
    alpha = min(0.09, max(0.012, 200 / max(len(pairs), 1)))
    lines = LineCollection(
        list(positions[pairs]), colors="black", alpha=alpha, linewidths=0.5, rasterized=heavy, zorder=0
    )
    axes.add_collection(lines, autolim=False)
    role_of = np.array(roles, dtype=object)
    for role in reversed(ROLES):
        colour, marker, size = _LOOK[role]
        x, y = positions[role_of == role].T
        size /= min(5.0, max(1.0, len(x) / 1000))  # smaller if there are many
        axes.scatter(x, y, s=size, c=colour, marker=marker, edgecolors="white", linewidths=0.3, rasterized=heavy)
    _legend_below(axes, labels)
    return figure


@style.context(STYLE, after_reset=True)
def residual_figure(residuals: Sequence[float], tolerance: float) -> Markup:
    """The bound on the distance to the retrained optimum after each Newton step; the first is from before any step.

    At least one is needed. On the logarithmic scale zeros are drawn at the lower end; labels show the given numbers.
    """
    figure, axes = _figure(height=2.7)
    shown, line = _for_log_scale(residuals, tolerance)
    steps = np.arange(len(shown))
    last = len(shown) - 1
    reached = residuals[-1] <= tolerance
    axes.set_yscale("log")
    axes.plot(steps, shown, color=BLUE, marker="o", markersize=4, linewidth=1.3)
    axes.axhline(line, color=INK, linestyle=(0, (5, 3)), linewidth=0.9, zorder=1)
    axes.plot([last], [shown[-1]], color=GREEN if reached else VERMILLION, marker="D" if reached else "X", markersize=8)
    label = f"{residuals[-1]:.3g}, {'within' if reached else 'above'} tolerance"
    boxed = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.annotate(label, (last, shown[-1]), (9, 0), textcoords="offset points", va="center", bbox=boxed)
    axes.text(1.01, line, f"tolerance {tolerance:.3g}", transform=axes.get_yaxis_transform(), va="center", ha="left")
    axes.set_xlim(-0.04 * max(last, 1), 1.7 * max(last, 1))  # room for the words beside the last point
    axes.xaxis.set_major_locator(FixedLocator(_integer_ticks(last)))
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(min(*shown, line) / 4, max(*shown, line) * 4)
    axes.set_xlabel("Newton step (0: before the first)")
    axes.set_ylabel("distance to the\nretrained optimum, at most")
    return as_svg(figure)


@style.context(STYLE, after_reset=True)
def accuracy_figure(scores: Mapping[str, float], *, percent: bool = True) -> Markup:
    """Shares between 0 and 1 as bars from 0 to 100 %, in the order given, each with its number.

    Without `percent` they are numbers up to 1, which may be negative: such a bar has no length.
    """
    figure, axes = _figure(height=0.55 + 0.36 * len(scores))
    rows = np.arange(len(scores))
    values = (100 if percent else 1) * np.array(list(scores.values()))
    lengths = values.clip(min=0)
    axes.barh(rows, lengths, height=0.6, color=BLUE)
    for row, value, length in zip(rows, values, lengths, strict=True):
        text = f"{value:.1f} %" if percent else f"{value:.3f}"
        axes.annotate(text, (length, row), (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(rows, [textwrap.fill(name, 34) for name in scores])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(scores) - 0.5, -0.5)
    axes.set_xlim(0, 100 if percent else 1)
    axes.set_xlabel("%" if percent else "")
    return as_svg(figure)


def _figure(*, height: float) -> tuple[Figure, Axes]:
    """A figure whose axes are `height` inches high; labels around the axes make it larger."""
    figure = Figure(figsize=(4.6, height))
    return figure, figure.add_axes((0.0, 0.0, 1.0, 1.0))


def _legend_below(axes: Axes, labels: Mapping[Role, str]) -> None:
    roles = [role for role in ROLES if role in labels]
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=size**0.5)
        for colour, marker, size in (_LOOK[role] for role in roles)
    ]
    texts = [textwrap.fill(labels[role], 52) for role in roles]
    axes.legend(
        handles, texts, loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=2, frameon=False, handletextpad=0.3
    )


def _for_log_scale(residuals: Sequence[float], tolerance: float) -> tuple[np.ndarray, float]:
    """The numbers, but at least a tenth of the smallest one that is not 0."""
    values = np.array([*residuals, tolerance], dtype=np.float64)
    floor = values[values > 0].min(initial=1.0) / 10
    values = np.maximum(values, floor)
    return values[:-1], float(values[-1])


def _integer_ticks(last: int) -> list[float]:
    return [tick for tick in MaxNLocator(6, integer=True).tick_values(0, last) if 0 <= tick <= last]


@style.context(STYLE, after_reset=True)
def as_svg(figure: Figure) -> Markup:
    """The figure as an `<svg>` element, without what matplotlib writes for separate files."""
    file = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=no_metadata, bbox_inches="tight", pad_inches=0.05, transparent=True)
    root = ElementTree.fromstring(file.getvalue())
    _drop_document_style(root)
    _rename_ids(root, "f" + hashlib.sha256(file.getvalue().encode()).hexdigest()[:10])
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        if f"{_XLINK}href" in element.attrib:  # HTML accepts the prefix by this name only
            element.set("xlink:href", element.attrib.pop(f"{_XLINK}href"))
    root.set("xmlns", _SVG[1:-1])
    root.set("xmlns:xlink", _XLINK[1:-1])
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _drop_document_style(root: ElementTree.Element) -> None:
    """Moves the rule of matplotlib's `<style>` to the figure, because it would apply to the whole page."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{_SVG}style":
                parent.remove(child)
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")


def _rename_ids(root: ElementTree.Element, prefix: str) -> None:
    """Puts `prefix` before ids that something in the figure points to, and drops the others."""
    used = set()
    for element in root.iter():
        for name in _POINTERS & element.attrib.keys():
            match = re.fullmatch(r"(#|url\(#)(.+?)(\)?)", element.attrib[name])
            if match:
                used.add(match[2])
                element.set(name, f"{match[1]}{prefix}-{match[2]}{match[3] or ''}")
    for element in root.iter():
        old = element.attrib.pop("id", None)
        if old in used:
            element.set("id", f"{prefix}-{old}")
