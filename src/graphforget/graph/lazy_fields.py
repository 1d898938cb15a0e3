"""Dataclasses with large fields that are made when somebody reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self


class LazyFields:
    """A base of frozen dataclasses. What is left of a large graph need not be copied before somebody asks for it."""

    @classmethod
    def lazy(cls, later: Mapping[str, Callable[[], Any]], *, like: Self | None = None, **fields: Any) -> Self:
        """An object like another one but for `fields`, and for those that functions in `later` make when they are read.

        `fields` may hold cached properties too.
        """
        made = object.__new__(cls)
        for name in (*(field.name for field in dataclasses.fields(cls)), *fields):  # type: ignore[arg-type]
            if name not in later:
                object.__setattr__(made, name, fields[name] if name in fields else getattr(like, name))
        object.__setattr__(made, "_later", dict(later))
        return made

    def __getattr__(self, name: str) -> Any:
        """Makes a field that is not there yet. Python asks here only for what is missing."""
        make = self.__dict__.get("_later", {}).get(name)
        if make is None:
            raise AttributeError(f"a {type(self).__name__} has no {name!r}")
        value = make()
        object.__setattr__(self, name, value)
        return value

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: shared arrays behind them may hold what was deleted."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
