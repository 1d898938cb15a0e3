"""An experiment: cells to compute, a table of their results, and possibly a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from matplotlib.figure import Figure

from graphforget.experiments.cells import Cell, Row
from graphforget.experiments.fingerprint import RECIPE
from graphforget.experiments.table import Table


class Cells(Protocol):
    def __call__(self, *, quick: bool, seeds: int) -> list[Cell]: ...


class FurtherCells(Protocol):
    def __call__(self, model: str, method: str, *, quick: bool, seeds: int) -> list[Cell]: ...


@dataclass(frozen=True)
class Experiment:
    """One table or figure. One that is `alone` measures time, so its cells run one at a time.

    One with `further` also compares any other method on a model, of other packages too.
    """

    name: str
    title: str
    cells: Cells
    table: Callable[[Sequence[Row]], Table]
    figure: Callable[[Sequence[Row]], Figure] | None = None
    caption: str = ""  # of the figure
    alone: bool = False
    further: FurtherCells | None = None
    recipe: str = RECIPE
