"""Charts of experiments: panels of lines over the size of a request, and dots by group.

They are readable in grey and by colour-blind people: the colours are those of Okabe and Ito, and every series has its
own marker and dash.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from graphforget.plot_style import STYLE
from graphforget.report.figures import as_svg

Look = tuple[str, str, Any]  # colour, marker, dash

_LOOKS: tuple[Look, ...] = (
    ("#0072b2", "o", "-"),
    ("#d55e00", "s", (0, (5, 2))),
    ("#009e73", "D", (0, (1, 1.2))),
    ("#cc79a7", "v", (0, (3, 1))),
    ("#e69f00", "P", (0, (7, 2))),
    ("#56b4e9", "X", (0, (2, 2))),
    ("#7f7f7f", "p", (0, (5, 1.5, 1, 1.5))),
)
_OURS: Look = ("#000000", "^", "-")
_ACROSS = 3  # panels side by side
_NEAREST = 0.05  # of the axis, between two ticks
_GRID: dict[str, Any] = {"color": "#e4e4e4", "linewidth": 0.6}


@dataclass(frozen=True)
class Line:
    """A named series, which looks the same in every panel. None stands for a missing value."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    ours: bool = False  # the main series of the chart, in black


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Dots:
    """A series with one value for each group. None stands for a missing value."""

    name: str
    values: Sequence[float | None]
    ours: bool = False


@dataclass(frozen=True)
class Groups:
    """A panel of dots, with one column for each name."""

    title: str
    names: Sequence[str]
    series: Sequence[Dots]


@style.context(STYLE, after_reset=True)
def line_chart(
    panels: Sequence[Panel], x_label: str, y_label: str, *, log_x: bool = False, log_y: bool = True
) -> Figure:
    """Panels of lines with one legend below them."""
    figure, axes, across = _panels(len(panels))
    looks = _looks([line for panel in panels for line in panel.lines])
    handles: dict[str, Any] = {}
    for index, (each, panel) in enumerate(zip(axes, panels, strict=True)):
        _draw_lines(each, panel, looks, handles)
        each.set_xscale("log" if log_x else "linear")
        if log_y:
            _log_scale(each, [y for line in panel.lines for y in line.y if y is not None])
        each.xaxis.set_minor_locator(NullLocator())
        ticks = sorted({x for line in panel.lines for x in line.x})
        ticks = ticks if log_x else _apart(ticks)
        each.set_xticks(ticks if len(ticks) <= 6 else ticks[1::2])
        each.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        each.set_xlabel(x_label if index + across >= len(panels) else "")
        each.set_ylabel(y_label if index % across == 0 else "")
    _legend(figure, handles)
    return figure


def _apart(ticks: Sequence[float]) -> list[float]:
    """The ticks whose labels do not overlap on a linear axis. The first and the last are always among them."""
    if not ticks:
        return []
    nearest = _NEAREST * (ticks[-1] - ticks[0])
    kept = [ticks[0]]
    for tick in ticks[1:-1]:
        kept += [tick] if tick - kept[-1] >= nearest and ticks[-1] - tick >= nearest else []
    return kept + list(ticks[1:][-1:])


def _log_scale(axes: Axes, values: Sequence[float]) -> None:
    """Ticks in plain digits: powers of ten, or 1, 2 and 5 times them if the range is small."""
    axes.set_yscale("log")
    narrow = bool(values) and max(values) < 300 * min(values)
    subs = (1.0, 2.0, 5.0) if narrow else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=9))
    if values:  # from tick to tick
        low, high = (10.0 ** math.floor(math.log10(end)) for end in (min(values), max(values)))
        axes.set_ylim(
            max(low * sub for sub in subs if low * sub <= min(values)) / 1.15,
            min(high * sub for sub in (*subs, 10.0) if high * sub >= max(values)) * 1.15,
        )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_lines(axes: Axes, panel: Panel, looks: dict[str, Look], handles: dict[str, Any]) -> None:
    axes.set_title(panel.title, fontsize=9)
    axes.grid(True, **_GRID)
    axes.set_axisbelow(True)
    for line in panel.lines:
        points = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        colour, marker, dash = looks[line.name]
        (drawn,) = axes.plot(x, y, color=colour, marker=marker, linestyle=dash, markersize=4, linewidth=1.2)
        handles.setdefault(line.name, drawn)


@style.context(STYLE, after_reset=True)
def dot_chart(panels: Sequence[Groups], y_label: str) -> Figure:
    """In each column one dot for each series, side by side so that none hides another."""
    figure, axes, across = _panels(len(panels))
    looks = _looks([one for panel in panels for one in panel.series])
    handles: dict[str, Any] = {}
    for index, (each, panel) in enumerate(zip(axes, panels, strict=True)):
        _draw_dots(each, panel, looks, handles)
        each.set_ylabel(y_label if index % across == 0 else "")
    _legend(figure, handles)
    return figure


def _draw_dots(axes: Axes, panel: Groups, looks: dict[str, Look], handles: dict[str, Any]) -> None:
    axes.set_title(panel.title, fontsize=9)
    axes.grid(True, axis="y", **_GRID)
    axes.set_axisbelow(True)
    for index, one in enumerate(panel.series):
        colour, marker, _ = looks[one.name]
        shift = 0.7 * ((index + 0.5) / len(panel.series) - 0.5)
        points = [(group + shift, value) for group, value in enumerate(one.values) if value is not None]
        if points:
            x, y = zip(*points, strict=True)
            drawn = axes.scatter(x, y, color=colour, marker=marker, s=24, linewidths=0.4, edgecolors="white")
            handles.setdefault(one.name, drawn)
    axes.set_xticks(range(len(panel.names)), panel.names, fontsize=8)
    axes.set_xlim(-0.6, len(panel.names) - 0.4)
    axes.tick_params(axis="x", length=0)


def _panels(count: int) -> tuple[Figure, list[Axes], int]:
    """A figure with `count` panels, and how many of them are side by side."""
    across = max(1, min(_ACROSS, count))
    down = max(1, -(-count // across))
    figure = Figure(figsize=(max(5.6, 3.1 * across + 0.6), 2.6 * down + 0.9), dpi=200, layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for empty in axes[count:]:
        empty.set_axis_off()
    return figure, axes[:count], across


def _legend(figure: Figure, handles: dict[str, Any]) -> None:
    """One legend for all panels, below them."""
    if handles:
        names = list(handles)
        figure.legend(
            list(handles.values()), names, loc="outside lower center", ncols=_columns(figure, names), frameon=False
        )


def inline(figure: Figure) -> Markup:
    """The chart as an `<svg>` element that can stand in a page."""
    return as_svg(figure)


def _columns(figure: Figure, names: Sequence[str]) -> int:
    """How many entries of a legend fit side by side."""
    inches = 0.6 + 0.066 * max(map(len, names), default=1)
    return max(1, min(len(names), int(figure.get_figwidth() / inches)))


def _looks(series: Sequence[Line | Dots]) -> dict[str, Look]:
    """The look of each series by the order of the names; the main series looks the same in all charts."""
    names = dict.fromkeys(one.name for one in series if not one.ours)
    looks = {name: _LOOKS[index % len(_LOOKS)] for index, name in enumerate(names)}
    return looks | {one.name: _OURS for one in series if one.ours}
