"""Additions of other installed packages, by their entry points. They are loaded when they are first asked for.

A package that cannot be loaded costs one warning and nothing else. Installing a package means trusting its code: what
is checked here and in the rooms that use additions guards against mistakes and false claims, not against hostile code.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

METHODS, ATTACKS = "graphforget.methods", "graphforget.attacks"
NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")

T = TypeVar("T")


class PluginWarning(UserWarning):
    """A package offers something that cannot be used."""


@dataclass(frozen=True)
class Plugin(Generic[T]):
    """What a package adds under a name."""

    name: str
    package: str  # with its version
    value: T


def has_plugins(group: str) -> bool:
    """Whether any package offers something; nothing is loaded."""
    return bool(entry_points(group=group))


def load_plugins(group: str, make: Callable[[Any, str, str], T], *, taken: Collection[str]) -> dict[str, Plugin[T]]:
    """Everything usable that packages offer, by name.

    `make` gets what an entry point names, the name and the package, and checks it. Names in `taken` are refused, and of
    two packages with the same name the first in alphabetical order counts.
    """
    loaded: dict[str, Plugin[T]] = {}
    for entry in sorted(entry_points(group=group), key=lambda one: (one.name, _package(one))):
        package = _package(entry)
        try:
            if not NAME.fullmatch(entry.name):
                raise ValueError("a name has small letters, digits, '-' and '_'")
            if entry.name in taken:
                raise ValueError("graphforget itself has this name")
            if entry.name in loaded:
                raise ValueError(f"package {loaded[entry.name].package} has this name")
            loaded[entry.name] = Plugin(entry.name, package, make(entry.load(), entry.name, package))
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            kind = group.rpartition(".")[2].removesuffix("s")
            message = f"the {kind} {entry.name!r} of package {package} is left out, because {reason}"
            warnings.warn(message, PluginWarning, stacklevel=2)
    return loaded


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "(unknown)"
