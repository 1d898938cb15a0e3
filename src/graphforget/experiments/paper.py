"""Published numbers as data, each with the table that it stands in: of the IDEA paper (`paper.json`) and of OpenGU
(`opengu.json`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

FILES = ("paper.json", "opengu.json")


@dataclass(frozen=True)
class Published:
    """A published number. `printed` is False if it was read off a plot or is from the README of its code."""

    mean: float
    deviation: float | None
    source: str
    printed: bool = True


def published(experiment: str, *path: str) -> Published | None:
    """The published number of an experiment, by the names on the path to it, or None if there is none."""
    for section in _document().get(experiment, []):
        value: Any = section["values"]
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, list):
            deviation = float(value[1]) if len(value) > 1 else None
            return Published(float(value[0]), deviation, section["source"], section.get("printed", True))
    return None


@cache
def _document() -> dict[str, Any]:
    documents: dict[str, Any] = {}
    for name in FILES:
        documents |= json.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))
    return documents
