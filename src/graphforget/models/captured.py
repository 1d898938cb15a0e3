"""Searches an object and every object that it can reach for captured data.

A module or a loss can store training data outside its parameters: in an attribute, a container, a closure, a global
variable or a class. The search starts at one object and follows its references (`object_contents.py` reads one object,
`code_references.py` a function). Settings are allowed: a number, a short text, a few layer sizes. Code of known
libraries is allowed. Anything else is a finding, and so is an object that cannot be read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from graphforget.models.object_contents import ObjectContents, read_object

MAX_SINGLE_FLOATS = 64  # among the objects that one attribute reaches
MAX_OBJECTS = 20_000  # that one attribute may reach


class CapturedValue(NamedTuple):
    """An object that may hold data: what it is, in words, and the path to it from the start of the search."""

    kind: str
    path: str


def first_captured_value(
    value: object, *, registered: Mapping[int, object], skipped: Callable[[object], bool] = lambda item: False
) -> CapturedValue | None:
    """The first object reachable from `value` that may hold data.

    Args:
        value: The start of the search.
        registered: Tensors and modules, by id, that are not searched because the caller checks them otherwise.
        skipped: Whether an object is not searched.

    Returns:
        The finding, such as `("a numpy array", ".scaler.mean_")`, or None.
    """
    floats = 0
    for count, (path, item, contents) in enumerate(_reachable_objects(value, registered, skipped)):
        if contents.finding:
            return CapturedValue(contents.finding, path)
        floats += isinstance(item, float | np.floating)
        if floats > MAX_SINGLE_FLOATS:
            return CapturedValue(f"more than {MAX_SINGLE_FLOATS} numbers", "")
        if count >= MAX_OBJECTS:
            return CapturedValue(f"more than {MAX_OBJECTS} objects, too many to be looked into", "")
    return None


def reachable_digest(value: object, *, registered: Mapping[int, object]) -> str:
    """A digest of all objects reachable from `value`. It changes if the content of any of them changes."""
    digest = hashlib.sha256()
    for count, (path, item, contents) in enumerate(_reachable_objects(value, registered)):
        digest.update(f"{path} {type(item).__qualname__} {len(contents.content)} {len(contents.references)}\n".encode())
        digest.update(contents.content)
        if count >= MAX_OBJECTS:
            break
    return digest.hexdigest()


def _reachable_objects(
    start: object, registered: Mapping[int, object], skipped: Callable[[object], bool] = lambda item: False
) -> Iterator[tuple[str, object, ObjectContents]]:
    """All objects reachable from `start`, each once: its path, the object, its contents."""
    visited: dict[int, object] = {}  # keeps the objects alive, so that no id is reused
    stack: list[tuple[str, object]] = [("", start)]
    while stack:
        path, item = stack.pop()
        if id(item) in visited or id(item) in registered or skipped(item):
            continue
        if type(item) not in (bool, int, float, complex, str):  # Python shares these objects, so each occurrence counts
            visited[id(item)] = item
        contents = read_object(item)
        yield path, item, contents
        stack += [(path + label, part) for label, part in reversed(contents.references)]
