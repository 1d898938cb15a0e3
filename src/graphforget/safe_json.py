"""JSON from files that somebody else may have written: of limited size and depth, every field once."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from graphforget.checks import fields_once

LARGEST = 64 * 2**20  # bytes
DEEPEST = 64  # nested lists and objects


class JsonError(ValueError):
    """The file cannot be read as JSON. The message says why."""


def read_bytes(path: Path, *, largest: int) -> bytes:
    """A regular file of at most `largest` bytes. Never waits for a pipe, reads no device, follows no link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise JsonError(f"{path.name} is not a regular file")
        if status.st_size > largest:
            raise JsonError(f"{path.name} has {status.st_size:,} bytes, up to {largest:,} are read")
        return file.read(status.st_size)


def read_json(path: Path, *, what: str = "the file", largest: int = LARGEST) -> Any:
    """Raises `JsonError`, or `OSError` where the file cannot be opened."""
    return parse_json(read_bytes(path, largest=largest), what=what)


def parse_json(content: bytes | str, *, what: str = "the file") -> Any:
    """Raises `JsonError` on what is no JSON, too deep, or names a field twice."""
    try:
        parsed = json.loads(content, object_pairs_hook=fields_once(what), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise JsonError(f"{what} is not JSON: {error}") from error
    level: list[Any] = [parsed]
    for _ in range(DEEPEST + 1):
        level = [
            part
            for container in level
            if isinstance(container, dict | list)
            for part in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return parsed
    raise JsonError(f"{what} is nested more than {DEEPEST} deep")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
