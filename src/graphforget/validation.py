"""Checks of numbers and names that several packages need."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from graphforget.errors import InputError

LARGEST_STORED = 1e100  # number in run.json: products of a few such numbers are finite
FILE_NAME = "name in files"
Fields = TypeVar("Fields")


def is_number(text: str) -> bool:
    """Whether the text could be taken for a whole number: "5", "5.0", "+5" ..."""
    return re.fullmatch(r"[+-]?\d+(\.0*)?", text.strip()) is not None


def is_digits(text: str) -> bool:
    """Whether the text spells a whole number; none that a node could have is longer than 20 digits."""
    return text.isascii() and text.isdigit() and len(text) <= 20


def as_whole_number(value: Any) -> int | None:
    """The value as an int from 0, or None if it is not one. Booleans and fractions are not."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool"):
        return None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if number >= 0 else None


def whole_number(value: Any, label: str) -> int:
    """The value as an int from 0 that fits into 64 bits. `label` names it in the error message."""
    number = as_whole_number(value)
    if number is None:
        raise InputError(f"{label} is {value!r}, a whole number from 0 is needed")
    if number >= 2**63:
        raise InputError(f"{label} is {value!r}, whole numbers below 2^63 are possible")
    return number


def positive_number(value: Any, label: str) -> float:
    """Raises `InputError` if `value` is not a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise InputError(f"{label} is {value!r}, a positive number is needed")
    return float(value)


def check_instance(value: Any, kind: type, label: str) -> None:
    """Raises `InputError` unless it is an instance of this public class of the package."""
    if not isinstance(value, kind):
        raise InputError(f"the {label} is a {type(value).__name__}, a graphforget.{kind.__name__} is needed")


def check_from_zero(value: float, label: str) -> None:
    """Raises `InputError` for a negative number or NaN; infinity is allowed."""
    if not value >= 0:
        raise InputError(f"{label} is {value}, a number from 0 is needed")


def read_fields(kind: type[Fields], content: Any, label: str) -> Fields:
    """A dataclass from a JSON object. No field may be missing or unknown, and each must have its declared type."""
    if not isinstance(content, Mapping):
        raise InputError(f"{label} is no object with fields")
    hints = get_type_hints(kind)
    fields = {file_name(field): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name, field in fields.items():
        if name not in content and field.default is field.default_factory is dataclasses.MISSING:
            raise InputError(f"{label} lacks its field {name!r}")
    for name in content:
        if name not in fields:
            raise InputError(f"{label} has an unknown field {name[:80]!r}")
    given = {fields[name].name: (name, value) for name, value in content.items()}
    return kind(**{field: _of_type(hints[field], value, name, label) for field, (name, value) in given.items()})


def file_name(field: dataclasses.Field[Any]) -> str:
    """The name of a dataclass field in files: its own, or the one that `named_in_files` gives it."""
    return str(field.metadata.get(FILE_NAME, field.name))


def named_in_files(name: str, **more: Any) -> Any:
    """A dataclass field that has another name in files, which must not change when the code does."""
    return dataclasses.field(metadata={FILE_NAME: name}, **more)


def written_fields(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass under their names in files; `read_fields` reads them back."""
    return {file_name(field): getattr(instance, field.name) for field in dataclasses.fields(instance)}


def _of_type(hint: Any, value: Any, name: str, label: str) -> Any:
    """The value as this type. Lists become tuples, objects become dataclasses, and an int may stand for a float."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        if value is None and type(None) in parts:
            return None
        fitting = (part for part in parts if get_origin(part) is Literal and value in get_args(part))
        return _of_type(next(fitting, parts[0]), value, name, label)
    if dataclasses.is_dataclass(hint):
        return read_fields(hint, value, f"the {name}")  # type: ignore[arg-type]
    if hint is Any or (origin is Literal and value in parts) or (origin is dict and isinstance(value, dict)):
        return value
    if origin is tuple and isinstance(value, list):
        if parts[0] is str and all(type(item) is str for item in value):  # at once: there may be millions
            return tuple(value)
        return tuple(_of_type(parts[0], item, name, label) for item in value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and number and math.isfinite(value):
        return float(value)
    if hint in (int, bool, str) and type(value) is hint:
        return value
    names = {float: "a number", int: "a whole number", bool: "true or false", str: "text", dict: "an object"}
    needed = f"one of {', '.join(parts)}" if origin is Literal else names.get(origin or hint, "a list")
    raise InputError(f"{name} in {label} is {str(value)[:80]!r}, {needed} is needed")
