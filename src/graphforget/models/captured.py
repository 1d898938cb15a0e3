"""Looks for data in everything that an object can reach: attributes, containers, closures, globals, classes.

A setting (a number, a short text, a few layer sizes) carries no data worth the name. Everything else that is no code
of a known library is a finding, and so is an object that cannot be looked into (`object_view.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from graphforget.models.object_view import View, view_of

MAX_LOOSE_FLOATS = 64  # single floats in all that one attribute reaches
MAX_OBJECTS = 20_000  # in all that one attribute reaches


class CapturedValue(NamedTuple):
    """A thing that may be data, in words, and the path to it from where the search began."""

    kind: str
    path: str


def first_finding(value: object, *, registered: Mapping[int, object]) -> CapturedValue | None:
    """The first thing that `value` reaches and that may be data.

    Args:
        value: where to start.
        registered: tensors and modules by id that are looked at elsewhere.

    Returns:
        A finding such as `("a numpy array", ".scaler.mean_")`, or None.
    """
    floats = 0
    for count, (path, item, view) in enumerate(_walk(value, registered)):
        if view.finding:
            return CapturedValue(view.finding, path)
        floats += isinstance(item, float | np.floating)
        if floats > MAX_LOOSE_FLOATS:
            return CapturedValue(f"more than {MAX_LOOSE_FLOATS} numbers", "")
        if count >= MAX_OBJECTS:
            return CapturedValue(f"more than {MAX_OBJECTS} objects, too many to be looked into", "")
    return None


def fingerprint(value: object, *, registered: Mapping[int, object]) -> str:
    """A digest of everything that `value` reaches; a change of any of it changes the digest."""
    digest = hashlib.sha256()
    for count, (path, item, view) in enumerate(_walk(value, registered)):
        digest.update(f"{path} {type(item).__qualname__} {len(view.content)} {len(view.parts)}\n".encode())
        digest.update(view.content)
        if count >= MAX_OBJECTS:
            break
    return digest.hexdigest()


def _walk(start: object, registered: Mapping[int, object]) -> Iterator[tuple[str, object, View]]:
    """Everything that can be reached, each object once, with the path to it."""
    visited: dict[int, object] = {}  # holds the objects, so that no id is used twice
    stack: list[tuple[str, object]] = [("", start)]
    while stack:
        path, item = stack.pop()
        if id(item) in visited or id(item) in registered:
            continue
        if type(item) not in (bool, int, float, complex, str):  # each of these counts, whether it is shared or not
            visited[id(item)] = item
        view = view_of(item)
        yield path, item, view
        stack += [(path + label, part) for label, part in reversed(view.parts)]
