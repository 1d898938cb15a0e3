"""The figures of a report, as SVG that can stand in a page beside others.

Drawn without pyplot. Text stays text, the same input gives the same bytes, and no id clashes with another
figure's. Colours are Okabe and Ito's, and nothing is told by colour alone.
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

Role = Literal["removed", "asked", "affected", "untouched"]

ROLES: tuple[Role, ...] = get_args(Role)  # as in the legend; drawn the other way round, so that none is hidden

_LOOK: dict[Role, tuple[str, str, float]] = {  # colour, marker, size in square points
    "removed": (VERMILLION, "X", 60.0),
    "asked": (ORANGE, "D", 30.0),
    "affected": (BLUE, "o", 18.0),
    "untouched": (GREY, "o", 14.0),
}
_RASTERISED_FROM = 6000  # edges and nodes; as single shapes they would make a page too heavy to open
_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
_POINTERS = {f"{_XLINK}href", "clip-path"}


def footprint_figure(place: np.ndarray, edges: np.ndarray, roles: Sequence[Role], labels: Mapping[Role, str]) -> Markup:
    """A graph with its nodes at `place` (n x 2), joined by `edges` (2 x E), each drawn as its role.

    `labels` is the legend: a role without one is drawn and not explained, one without nodes is shown all the same.
    """
    return as_svg(draw_footprint(place, edges, roles, labels))


@style.context(STYLE, after_reset=True)
def draw_footprint(place: np.ndarray, edges: np.ndarray, roles: Sequence[Role], labels: Mapping[Role, str]) -> Figure:
    """What `footprint_figure` shows, for other formats."""
    figure = Figure(figsize=(6.6, 3.7), dpi=200)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    pairs = np.unique(np.sort(edges, axis=0), axis=1).T
    heavy = len(pairs) + len(place) > _RASTERISED_FROM
    alpha = min(0.09, max(0.012, 200 / max(len(pairs), 1)))
    lines = LineCollection(list(place[pairs]), colors="black", alpha=alpha, linewidths=0.5, rasterized=heavy, zorder=0)
    axes.add_collection(lines, autolim=False)
    role_of = np.array(roles, dtype=object)
    for role in reversed(ROLES):
        colour, marker, size = _LOOK[role]
        x, y = place[role_of == role].T
        size /= min(5.0, max(1.0, len(x) / 1000))  # in a crowd
        axes.scatter(x, y, s=size, c=colour, marker=marker, edgecolors="white", linewidths=0.3, rasterized=heavy)
    _legend_below(axes, labels)
    return figure


@style.context(STYLE, after_reset=True)
def residual_figure(residuals: Sequence[float], tolerance: float) -> Markup:
    """The bound on the distance to the retrained optimum after each Newton step; the first is from before any step.

    Needs at least one. The scale is logarithmic, so zeros are drawn at its lower end; the numbers written are as given.
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
    told = f"{residuals[-1]:.3g}, {'within' if reached else 'above'} tolerance"
    boxed = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.annotate(told, (last, shown[-1]), (9, 0), textcoords="offset points", va="center", bbox=boxed)
    axes.text(1.01, line, f"tolerance {tolerance:.3g}", transform=axes.get_yaxis_transform(), va="center", ha="left")
    axes.set_xlim(-0.04 * max(last, 1), 1.7 * max(last, 1))  # room for the words beside the last point
    axes.xaxis.set_major_locator(FixedLocator(_whole_steps(last)))
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(min(*shown, line) / 4, max(*shown, line) * 4)
    axes.set_xlabel("Newton step (0: before the first)")
    axes.set_ylabel("distance to the\nretrained optimum, at most")
    return as_svg(figure)


@style.context(STYLE, after_reset=True)
def accuracy_figure(scores: Mapping[str, float]) -> Markup:
    """Shares between 0 and 1 as bars from 0 to 100 %, in the order given, each with its number."""
    figure, axes = _figure(height=0.55 + 0.36 * len(scores))
    rows = np.arange(len(scores))
    values = 100 * np.array(list(scores.values()))
    axes.barh(rows, values, height=0.6, color=BLUE)
    for row, value in zip(rows, values, strict=True):
        axes.annotate(f"{value:.1f} %", (value, row), (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(rows, [textwrap.fill(name, 34) for name in scores])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(scores) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("%")
    return as_svg(figure)


def _figure(*, height: float) -> tuple[Figure, Axes]:
    """A figure whose axes are `height` inches high; what stands around them makes it larger, and nothing is cut off."""
    figure = Figure(figsize=(4.6, height))
    return figure, figure.add_axes((0.0, 0.0, 1.0, 1.0))


def _legend_below(axes: Axes, labels: Mapping[Role, str]) -> None:
    told = [role for role in ROLES if role in labels]
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=size**0.5)
        for colour, marker, size in (_LOOK[role] for role in told)
    ]
    texts = [textwrap.fill(labels[role], 52) for role in told]
    axes.legend(
        handles, texts, loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=2, frameon=False, handletextpad=0.3
    )


def _for_log_scale(residuals: Sequence[float], tolerance: float) -> tuple[np.ndarray, float]:
    """The numbers with a positive floor under them, a decade below the smallest that is not 0."""
    values = np.array([*residuals, tolerance], dtype=np.float64)
    floor = values[values > 0].min(initial=1.0) / 10
    values = np.maximum(values, floor)
    return values[:-1], float(values[-1])


def _whole_steps(last: int) -> list[float]:
    return [tick for tick in MaxNLocator(6, integer=True).tick_values(0, last) if 0 <= tick <= last]


@style.context(STYLE, after_reset=True)
def as_svg(figure: Figure) -> Markup:
    """The figure as an `<svg>` element, without what matplotlib writes for files that stand alone."""
    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=nothing, bbox_inches="tight", pad_inches=0.05, transparent=True)
    root = ElementTree.fromstring(file.getvalue())
    _drop_document_style(root)
    _rename_ids(root, "f" + hashlib.sha256(file.getvalue().encode()).hexdigest()[:10])
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        if f"{_XLINK}href" in element.attrib:  # HTML knows the prefix by this name only
            element.set("xlink:href", element.attrib.pop(f"{_XLINK}href"))
    root.set("xmlns", _SVG[1:-1])
    root.set("xmlns:xlink", _XLINK[1:-1])
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _drop_document_style(root: ElementTree.Element) -> None:
    """Moves the one rule of matplotlib's `<style>` to the figure: in a page it would hold for everything."""
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
            found = re.fullmatch(r"(#|url\(#)(.+?)(\)?)", element.attrib[name])
            if found:
                used.add(found[2])
                element.set(name, f"{found[1]}{prefix}-{found[2]}{found[3] or ''}")
    for element in root.iter():
        own = element.attrib.pop("id", None)
        if own in used:
            element.set("id", f"{prefix}-{own}")
