"""The numbers that the IDEA paper prints, as data (`paper.json`), each with the table that it stands in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Published:
    """A number of the paper. `printed` is False for what was read off a plot or stands in its code's README."""

    mean: float
    deviation: float | None
    source: str
    printed: bool = True


def published(experiment: str, *path: str) -> Published | None:
    """The paper's number of an experiment, by the names that lead to it, or None where it has none."""
    for section in _document().get(experiment, []):
        found: Any = section["values"]
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, list):
            deviation = float(found[1]) if len(found) > 1 else None
            return Published(float(found[0]), deviation, section["source"], section.get("printed", True))
    return None


def sources(experiment: str) -> tuple[str, ...]:
    """Where the paper has the numbers of an experiment."""
    return tuple(section["source"] for section in _document().get(experiment, []))


@cache
def _document() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("paper.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
