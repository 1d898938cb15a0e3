"""A table of results: numbers with their spread, the paper's numbers beside them, notes and goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphforget.experiments.paper import Published
from graphforget.validation import named_in_files, written_fields

MISSING = "-"
MIN_SEEDS = 3
FEW = "* one seed, ** two seeds."


@dataclass(frozen=True)
class Spread:
    """The mean of several runs and their sample standard deviation, which is None for one run."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """The spread of the values that are not None; None if there are none."""
        present = [float(value) for value in values if value is not None]
        if not present:
            return None
        deviation = statistics.stdev(present) if len(present) > 1 else None
        return cls(statistics.fmean(present), deviation, len(present))


@dataclass(frozen=True)
class TableEntry:
    """One entry of a table: our number and, if there is one, the paper's number in brackets.

    `repeated` is False for a number that does not depend on the seed.
    """

    ours: Spread | None
    paper: Published | None = None
    form: str = ".1f"
    repeated: bool = True

    @property
    def text(self) -> str:
        ours = MISSING if self.ours is None else self._formatted(self.ours.mean, self.ours.deviation) + self._mark()
        if self.paper is None:
            return ours
        about = "" if self.paper.printed else "~"
        return f"{ours} ({about}{self._formatted(self.paper.mean, self.paper.deviation)})"

    @property
    def few(self) -> bool:
        """Whether there are too few runs for a spread."""
        return self.repeated and self.ours is not None and self.ours.count < MIN_SEEDS

    def _formatted(self, mean: float, deviation: float | None) -> str:
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
    """A goal and whether it is reached; None as long as there are no results to judge by."""

    goal: str = named_in_files("wanted")
    met: bool | None = named_in_files("met")
    detail: str = named_in_files("found")
    so_far: bool = False  # whether more results are to come

    @classmethod
    def of(
        cls,
        goal: str,
        values: Mapping[str, float],
        *,
        least: float | None = None,
        most: float | None = None,
        unit: str,
    ) -> Bar:
        """The goal that every value is at least `least` or at most `most`; the detail names the worst one."""
        if not values:
            return cls(goal, None, "")
        low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
        met = (least is None or values[low] >= least) and (most is None or values[high] <= most)
        worst = low if least is not None else high
        return cls(goal, met, f"The worst of {len(values)}: {worst}, {values[worst]:.3g} {unit}.")

    @property
    def text(self) -> str:
        verdict = "not run yet" if self.met is None else "reached" if self.met else "NOT REACHED"
        verdict += " so far" * (self.so_far and bool(self.met))
        return f"{self.goal}: {verdict}. {self.detail}".strip()


@dataclass(frozen=True)
class IdeaScores:
    """The scores of one cell: IDEA in the paper, IDEA here without and with the paper's noise, and re-training."""

    paper: Published | None
    private: Spread | None
    noised: Spread | None
    retrained: Spread | None


def idea_bars(metric: str, scores: Mapping[str, IdeaScores]) -> tuple[Bar, ...]:
    """The goals for IDEA in a table of scores by cell: against the paper's numbers, and against re-training."""

    def differences(higher: str, lower: str) -> dict[str, float]:
        pairs = {label: (getattr(cell, higher), getattr(cell, lower)) for label, cell in scores.items()}
        return {label: a.mean - b.mean for label, (a, b) in pairs.items() if a is not None and b is not None}

    return (
        Bar.of(
            f"IDEA's {metric}, private and without noise, is at least the paper's, which has noise, in every cell",
            differences("private", "paper"),
            least=0,
            unit="points against the paper's",
        ),
        Bar.of(
            f"IDEA's {metric} with the paper's sigma is at least the paper's in every cell",
            differences("noised", "paper"),
            least=0,
            unit="points against the paper's",
        ),
        Bar.of(
            f"IDEA's {metric} is within 2 points of re-training in every cell",
            differences("retrained", "private"),
            most=2,
            unit="points below",
        ),
    )


@dataclass(frozen=True)
class Table:
    """The table of an experiment. Each row has one entry for each column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | TableEntry, ...], ...]
    notes: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), "a row needs one entry for each column"

    @property
    def texts(self) -> list[list[str]]:
        return [[entry if isinstance(entry, str) else entry.text for entry in row] for row in self.rows]

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, and an explanation of the marks if there are any."""
        few = any(isinstance(entry, TableEntry) and entry.few for row in self.rows for entry in row)
        return (*self.notes, *([FEW] if few else []))

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[entry if isinstance(entry, str) else entry.to_dict() for entry in row] for row in self.rows],
            "notes": list(self.all_notes),
            "bars": [written_fields(bar) for bar in self.bars],
        }
