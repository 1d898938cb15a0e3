"""Cells: the parts of an experiment that are computed one by one, written down as they come, never computed twice."""

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
from graphforget.experiments.fingerprint import fingerprint
from graphforget.experiments.machine import machine

Key = dict[str, str | int | float]
Row = dict[str, Any]  # a finished cell: its key, and what was found


@dataclass(frozen=True)
class Cell:
    """One part of an experiment: `work(store=..., **key)`, a function of a module, gives its numbers by name.

    `store` is a folder where trained models are kept between cells.
    """

    key: Key
    cost: float  # seconds on one core, about
    work: Callable[..., Row]

    @property
    def label(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.key.items())


@dataclass(frozen=True)
class Origin:
    """When a cell was computed (ISO time) and on what."""

    made: str
    machine: dict[str, str | int]


class Record:
    """The finished cells of an experiment, a line of JSON each.

    A cell that failed has a line too and counts as not computed. What cannot be read, such as the last line of a run
    that was killed while it wrote, counts as not there, and so does what was computed with other settings; `left_out`
    tells of both.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[str, Row] = {}
        self._origins: dict[str, Origin] = {}
        self._errors: dict[str, str] = {}
        self._broken_end = False
        self._unreadable, self._of_others = 0, set[str]()
        try:
            text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        self._broken_end = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            self._take(line)

    def __contains__(self, cell: Cell) -> bool:
        return _name(cell.key) in self._found

    def rows(self, cells: Iterable[Cell] | None = None) -> list[Row]:
        """What was found of these cells, or of all, in their order."""
        if cells is None:
            return list(self._found.values())
        names = (_name(cell.key) for cell in cells)
        return [self._found[name] for name in names if name in self._found]

    def origins(self, cells: Iterable[Cell]) -> list[Origin]:
        """When and where these cells were computed, as far as it is known."""
        names = (_name(cell.key) for cell in cells)
        return [self._origins[name] for name in names if name in self._origins]

    def errors(self, cells: Iterable[Cell]) -> dict[str, str]:
        """Why cells have failed and are still to be computed, by their labels."""
        named = ((cell.label, _name(cell.key)) for cell in cells)
        return {label: self._errors[name] for label, name in named if name in self._errors}

    @property
    def left_out(self) -> str:
        """What the file holds beside, in words, or nothing."""
        others = len(self._of_others - self._found.keys())
        parts = [f"{others} cells of other settings"] if others else []
        parts += [f"{self._unreadable} lines that cannot be read"] if self._unreadable else []
        return f"{self.path.name} also holds {' and '.join(parts)}." if parts else ""

    def add(self, cell: Cell, found: Row, *, seconds: float) -> None:
        made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"key": cell.key, "found": _plain(found), "seconds": round(seconds, 3), "made": made}
        self._write(line | {"machine": machine(), "settings": fingerprint()})

    def fail(self, cell: Cell, why: str) -> None:
        self._write({"key": cell.key, "error": why})

    def _write(self, line: Row) -> None:
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
        self._take(text)

    def _take(self, line: str) -> None:
        try:
            read = json.loads(line)
            key = dict(read["key"])
            name = _name(key)
        except (ValueError, TypeError, KeyError, RecursionError):
            self._unreadable += 1
            return
        if isinstance(read.get("found"), dict) and read.get("settings") != fingerprint():
            self._of_others.add(name)
        elif isinstance(read.get("found"), dict):
            self._found[name] = key | read["found"]
            self._errors.pop(name, None)
            if isinstance(read.get("made"), str) and isinstance(read.get("machine"), dict):
                self._origins[name] = Origin(read["made"], read["machine"])
        elif "error" in read:
            self._errors[name] = str(read["error"])


def _name(key: Key) -> str:
    return json.dumps(key, sort_keys=True)


def _plain(value: Any) -> Any:
    """For JSON, which has no infinity and no NaN: nothing stands for them."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
