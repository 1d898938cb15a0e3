"""What every table and figure is: cells to compute, a table made of what was found, and perhaps a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from matplotlib.figure import Figure

from graphforget.experiments.cells import Cell, Row
from graphforget.experiments.table import Table


class Cells(Protocol):
    def __call__(self, *, quick: bool, seeds: int) -> list[Cell]: ...


@dataclass(frozen=True)
class Experiment:
    """One table or figure. `alone` ones measure time, so nothing of ours may run beside a cell of theirs."""

    name: str
    title: str
    cells: Cells
    table: Callable[[Sequence[Row]], Table]
    figure: Callable[[Sequence[Row]], Figure] | None = None
    caption: str = ""  # of the figure
    alone: bool = False
