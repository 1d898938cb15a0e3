"""The methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphforget.errors import InputError
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.method import Method
from graphforget.unlearning.methods.ascent import Ascent
from graphforget.unlearning.methods.ceu import Ceu
from graphforget.unlearning.methods.cgu import Cgu
from graphforget.unlearning.methods.gif import Gif
from graphforget.unlearning.methods.grapheraser import GraphEraser
from graphforget.unlearning.methods.idea import Idea
from graphforget.unlearning.selection import NEWTON, RETRAIN, Choice

# By name only, never chosen by `auto`.
BY_NAME: tuple[Method[Any], ...] = (Idea(), GraphEraser(), Gif(), Ceu(), Cgu(), Ascent())
ALL: tuple[Method[Any], ...] = (NEWTON, RETRAIN, *BY_NAME)
METHODS: dict[str, Method[Any]] = {method.name: method for method in ALL}


def named_choice(method: str, options: Mapping[str, Any]) -> Choice | None:
    """The named method with its options, parsed; None for `auto`."""
    if str(method).lower() == AUTO:
        return None
    named = find(method)
    return Choice(named, named.parse_options(dict(options)))


def find(name: str) -> Method[Any]:
    method = METHODS.get(str(name).lower())
    if method is None:
        raise InputError(f"there is no method {name!r}, only {AUTO}, {', '.join(METHODS)}")
    return method
