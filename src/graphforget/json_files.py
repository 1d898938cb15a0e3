"""Reads JSON that somebody else may have written: of limited size and depth, every field once, finite numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphforget.errors import InputError
from graphforget.files import read_bytes

LARGEST = 64 * 2**20  # bytes
DEEPEST = 64  # nested lists and objects
MOST = 5_000_000  # values; each takes far more memory than it has bytes in the file
LARGEST_NUMBER = 2**128  # of whole numbers


class JsonError(InputError):
    """A text cannot be read as JSON. The message says why."""


def read_json(path: Path, *, name: str = "the file", largest: int = LARGEST) -> Any:
    """Reads a JSON file. Raises `InputError`, or `FileNotFoundError` if the file is missing.

    `name` names the file in error messages.
    """
    return parse_json(read_bytes(path, largest=largest), name=name)


def parse_json(content: bytes | str, *, name: str = "the file") -> Any:
    """Raises `JsonError` if the text is not JSON, is too deep or too large, or has a field twice."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        if sum(map(text.count, ",[{")) > MOST:
            raise ValueError(f"it holds more than {MOST:,} values")
        parsed = json.loads(
            text,
            object_pairs_hook=fields_once(name),
            parse_constant=_number,
            parse_float=_number,
            parse_int=_whole_number,
        )
        if re.search(r"\\u[dD]", text):  # half of a surrogate pair cannot be encoded later
            json.dumps(parsed, ensure_ascii=False).encode()
    except InputError as error:
        raise JsonError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise JsonError(f"{name} is not JSON: {error}") from error
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
    raise JsonError(f"{name} is nested more than {DEEPEST} deep")


def check_values(content: bytes, name: str) -> None:
    """Raises `JsonError` for JSON with more values than `parse_json` reads. Nobody could read what was written."""
    if len(content) > MOST and sum(map(content.count, (b",", b"[", b"{"))) > MOST:
        raise JsonError(f"{name} would have more than the {MOST:,} values that can be read")


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is no finite number")
    return number


def _whole_number(text: str) -> int:
    number = int(text)
    if abs(number) > LARGEST_NUMBER:
        raise ValueError(f"{text[:40]}... is too large a number")
    return number


def fields_once(name: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """A hook for JSON objects that refuses equal fields. The parser alone would silently use the last one."""

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for field, value in pairs:
            if field in content:
                raise InputError(f"field {field[:80]!r} appears twice in {name}")
            content[field] = value
        return content

    return object_of
