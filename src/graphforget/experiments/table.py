"""A table of results: numbers with their spread, the paper's beside them, and what has to be said of both."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphforget.experiments.paper import Published

NOTHING = "-"
WANTED_SEEDS = 3
FEW = "* one seed, ** two seeds."


@dataclass(frozen=True)
class Spread:
    """The mean of several runs and their sample standard deviation, which one run alone has not."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Of the values that are there; None if none is."""
        known = [float(value) for value in values if value is not None]
        if not known:
            return None
        deviation = statistics.stdev(known) if len(known) > 1 else None
        return cls(statistics.fmean(known), deviation, len(known))


@dataclass(frozen=True)
class TableEntry:
    """One place of a table: our number and, where there is one, the paper's in brackets.

    `repeated` is False for what no seed changes.
    """

    ours: Spread | None
    paper: Published | None = None
    form: str = ".1f"
    repeated: bool = True

    @property
    def text(self) -> str:
        ours = NOTHING if self.ours is None else self._told(self.ours.mean, self.ours.deviation) + self._mark()
        if self.paper is None:
            return ours
        about = "" if self.paper.printed else "~"
        return f"{ours} ({about}{self._told(self.paper.mean, self.paper.deviation)})"

    @property
    def few(self) -> bool:
        """Whether there are too few runs to speak of a spread."""
        return self.repeated and self.ours is not None and self.ours.count < WANTED_SEEDS

    def _told(self, mean: float, deviation: float | None) -> str:
        spread = "" if deviation is None else f" ± {deviation:{self.form}}"
        return f"{mean:{self.form}}{spread}"

    def _mark(self) -> str:
        return "*" * self.ours.count if self.ours is not None and self.few else ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "ours": None if self.ours is None else asdict(self.ours),
            "paper": None if self.paper is None else asdict(self.paper),
        }


@dataclass(frozen=True)
class Bar:
    """Something that is to be reached, and whether it is; None as long as there is nothing to judge by."""

    wanted: str
    met: bool | None
    found: str
    so_far: bool = False  # whether there is more to come to judge by

    @classmethod
    def of(
        cls,
        wanted: str,
        found: Mapping[str, float],
        *,
        least: float | None = None,
        most: float | None = None,
        unit: str,
    ) -> Bar:
        """That every number found, by its place, is at least or at most so much. Tells the worst."""
        if not found:
            return cls(wanted, None, "")
        low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        met = (least is None or found[low] >= least) and (most is None or found[high] <= most)
        worst = low if least is not None else high
        return cls(wanted, met, f"The worst of {len(found)}: {worst}, {found[worst]:.3g} {unit}.")

    @property
    def text(self) -> str:
        verdict = "not run yet" if self.met is None else "reached" if self.met else "NOT REACHED"
        verdict += " so far" * (self.so_far and bool(self.met))
        return f"{self.wanted}: {verdict}. {self.found}".strip()


@dataclass(frozen=True)
class Table:
    """What an experiment shows. Rows are as long as there are columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | TableEntry, ...], ...]
    notes: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), "a row is not as long as there are columns"

    @property
    def texts(self) -> list[list[str]]:
        return [[place if isinstance(place, str) else place.text for place in row] for row in self.rows]

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, and what the marks mean if there are any."""
        few = any(isinstance(place, TableEntry) and place.few for row in self.rows for place in row)
        return (*self.notes, *([FEW] if few else []))

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[place if isinstance(place, str) else place.to_dict() for place in row] for row in self.rows],
            "notes": list(self.all_notes),
            "bars": [asdict(bar) for bar in self.bars],
        }
