"""Cells: the parts of an experiment that are computed one by one. Each is recorded and never computed twice."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphforget.errors import InputError
from graphforget.experiments.fingerprint import RECIPE, fingerprint, further_settings, same_settings
from graphforget.experiments.machine import commit, machine

Key = dict[str, str | int | float]
Row = dict[str, Any]  # a finished cell: its key and its values


@dataclass(frozen=True)
class Cell:
    """One part of an experiment: `work(store=..., **key)`, a function of a module, gives its values by name.

    `store` is a folder where trained models are kept between cells.
    """

    key: Key
    cost: float  # estimated seconds on one core
    work: Callable[..., Row]

    @property
    def label(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.key.items())


@dataclass(frozen=True)
class CellOutcome:
    """The result of a cell: its values, or None and the reason why it failed."""

    values: Row | None
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Origin:
    """When a cell was computed (ISO time), on which machine, and by the code of which commit, if that is known."""

    made: str
    machine: dict[str, str | int]
    commit: str | None = None


class Record:
    """The finished cells of an experiment, one line of JSON each.

    A failed cell has a line too and counts as not computed. A line that cannot be read, such as the last one of a run
    that was killed while it wrote, is ignored, and so is a cell that was computed with other settings; `left_out`
    counts both.
    """

    def __init__(self, path: Path, *, recipe: str = RECIPE) -> None:
        self.path, self.recipe = path, recipe
        self._rows: dict[str, Row] = {}
        self._origins: dict[str, Origin] = {}
        self._errors: dict[str, str] = {}
        self._unreadable, self._other_settings = 0, set[str]()
        try:
            text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        self._broken_end = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            self._read_line(line)

    def has(self, cell: Cell, /) -> bool:
        return _name(cell.key) in self._rows

    def rows(self, cells: Iterable[Cell] | None = None) -> list[Row]:
        """The rows of these cells in their order, or all rows."""
        if cells is None:
            return list(self._rows.values())
        names = (_name(cell.key) for cell in cells)
        return [self._rows[name] for name in names if name in self._rows]

    def origins(self, cells: Iterable[Cell]) -> list[Origin]:
        """When and where these cells were computed, as far as it is known."""
        names = (_name(cell.key) for cell in cells)
        return [self._origins[name] for name in names if name in self._origins]

    def errors(self, cells: Iterable[Cell]) -> dict[str, str]:
        """The reasons of failed cells that are still to be computed, by their labels."""
        named = ((cell.label, _name(cell.key)) for cell in cells)
        return {label: self._errors[name] for label, name in named if name in self._errors}

    @property
    def left_out(self) -> str:
        """A sentence about lines of the file that are not used; empty if there are none."""
        others = len(self._other_settings - self._rows.keys())
        parts = [f"{others} cells of other settings"] if others else []
        parts += [f"{self._unreadable} lines that cannot be read"] if self._unreadable else []
        return f"{self.path.name} also holds {' and '.join(parts)}." if parts else ""

    def keep(self, cell: Cell, outcome: CellOutcome, /) -> None:
        """Appends a line for the cell, with its values or with the reason why it failed."""
        if outcome.values is None:
            self._append({"key": cell.key, "error": outcome.error or ""})
            return
        made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"key": cell.key, "found": _finite(outcome.values), "seconds": round(outcome.seconds, 3), "made": made}
        own = further_settings(cell.key.get("model"), self.recipe)
        line |= {"machine": machine(), "commit": commit(), "settings": fingerprint()}
        self._append(line | ({} if own is None else {"model_settings": own}))

    def _append(self, line: Row) -> None:
        text = json.dumps(line, allow_nan=False)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as out:
                out.write(("\n" if self._broken_end else "") + text + "\n")
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror or error}") from error
        self._broken_end = False
        self._read_line(text)

    def _read_line(self, line: str) -> None:
        try:
            content = json.loads(line)
            key = dict(content["key"])
            name = _name(key)
        except (ValueError, TypeError, KeyError, RecursionError):
            self._unreadable += 1
            return
        known = content.get("settings") == fingerprint()
        known = known and same_settings(key.get("model"), self.recipe, content.get("model_settings"))
        if isinstance(content.get("found"), dict) and not known:
            self._other_settings.add(name)
        elif isinstance(content.get("found"), dict):
            self._rows[name] = key | content["found"]
            self._errors.pop(name, None)
            if isinstance(content.get("made"), str) and isinstance(content.get("machine"), dict):
                told = content.get("commit")
                self._origins[name] = Origin(
                    content["made"], content["machine"], told if isinstance(told, str) else None
                )
        elif "error" in content:
            self._errors[name] = str(content["error"])


def _name(key: Key) -> str:
    return json.dumps(key, sort_keys=True)


def _finite(value: Any) -> Any:
    """The same with None for infinity and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
