"""What a graph may be made of: every check of its parts, each with its own sentence."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.linalg.sparse import from_scipy, to_scipy

UNLABELLED = -1
LARGEST = 1e15  # attributes are squared in float32
LARGEST_STORED = 1e100  # of what is known of a model: products of a few such numbers are finite

Fields = TypeVar("Fields")


def checked_attributes(x: Any) -> Tensor:
    if sp.issparse(x):
        x = from_scipy(sp.csr_matrix(x))
    x = torch.as_tensor(x).detach().cpu()
    if x.dim() != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise InputError(f"the attributes have shape {tuple(x.shape)}, nodes x columns is needed")
    if x.layout not in (torch.strided, torch.sparse_csr):
        x = x.to_sparse_csr()
    if x.dtype.is_complex:
        raise InputError(f"the attributes are {x.dtype}, real numbers are needed")
    if x.dtype not in (torch.float32, torch.float64):
        x = x.to(torch.float32)  # exact for half precision, which scipy does not take
    values = x.values() if x.layout == torch.sparse_csr else x
    if not torch.isfinite(values).all():
        raise InputError("the attributes hold NaN or infinity, every value must be finite")
    if values.numel() and float(values.abs().max()) > LARGEST:
        raise InputError(f"an attribute is {float(values.abs().max()):g}, values up to {LARGEST:g} are possible")
    return from_scipy(to_scipy(x)) if x.layout == torch.sparse_csr else x + 0.0  # a copy in which -0.0 is 0.0


def checked_labels(y: Any, n: int) -> Tensor:
    y = torch.as_tensor(y).detach().cpu().flatten()
    if y.numel() != n:
        raise InputError(f"there are {y.numel()} labels for {n} nodes, each node needs one ({UNLABELLED}: unlabelled)")
    if y.dtype.is_floating_point and not torch.equal(y, y.round()):
        raise InputError("the labels are not whole numbers")
    y = y.to(torch.int64)
    if (y < UNLABELLED).any():
        raise InputError(f"label {int(y.min())} is negative, classes count from 0 ({UNLABELLED}: unlabelled)")
    return y.clone()


def checked_mask(mask: Tensor, n: int, what: str) -> Tensor:
    mask = torch.as_tensor(mask).detach().cpu()
    if mask.dtype != torch.bool or mask.shape != (n,):
        raise InputError(f"{what} is {mask.dtype} of shape {tuple(mask.shape)}, one boolean a node is needed")
    return mask.clone()


def check_split(y: Tensor, train: Tensor, val: Tensor, test: Tensor) -> None:
    if not train.any():
        raise InputError("the graph has no training node")
    if (train & (val | test)).any() or (val & test).any():
        raise InputError("a node is in two parts of the split, the masks must not overlap")
    unlabelled = ((train | val | test) & (y == UNLABELLED)).nonzero()
    if unlabelled.numel():
        raise InputError(f"node {int(unlabelled[0])} is in the split but has no label")


def checked_names(names: Sequence[str] | None, count: int, what: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = tuple(map(str, names))
    if len(names) != count:
        raise InputError(f"there are {len(names)} {what} for {count}")
    if not all(map(str.strip, names)):
        raise InputError(f"one of the {what} is blank, so nobody could name it")
    if len(set(names)) != count:
        seen: set[str] = set()
        twice = next(n for n in names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise InputError(f"{twice!r} stands twice among the {what}")
    return names


def checked_numbers(numbers: Tensor, n: int) -> Tensor:
    numbers = torch.as_tensor(numbers).detach().cpu()
    whole = not numbers.dtype.is_floating_point and numbers.shape == (n,)
    if not whole or int(numbers.min()) < 0 or (numbers.diff() <= 0).any():
        raise InputError("the node numbers must be one whole number from 0 a node, in ascending order")
    return numbers.to(torch.int64).clone()


def is_number(text: str) -> bool:
    """Whether the text could be taken for a whole number: "5", "5.0", "+5" ..."""
    return re.fullmatch(r"[+-]?\d+(\.0*)?", text.strip()) is not None


def as_whole_number(value: Any) -> int | None:
    """The value as an int from 0, or None; booleans and fractions are no whole numbers."""
    if isinstance(value, bool | np.bool_) or getattr(value, "dtype", None) == torch.bool:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if number >= 0 else None


def whole_number(value: Any, what: str) -> int:
    """The value as an int from 0 that fits into 64 bits."""
    number = as_whole_number(value)
    if number is None or number >= 2**63:
        raise InputError(f"{what} is {value!r}, a whole number from 0 is needed")
    return number


def check_from_zero(value: float, what: str) -> None:
    """Refuses what is negative or not a number; infinity is from 0."""
    if not value >= 0:
        raise InputError(f"{what} is {value}, a number from 0 is needed")


def checked_device(device: Any) -> str:
    """A device that this machine has."""
    try:
        torch.zeros(1, device=device)
    except Exception as error:  # torch raises whatever it likes here
        raise InputError(f"device {device!r} cannot be used: {' '.join(str(error).split())}") from error
    return str(device)


def is_digits(text: str) -> bool:
    """Whether the text spells a whole number; none that a node could have is longer than 20 digits."""
    return text.isascii() and text.isdigit() and len(text) <= 20


def checked_edges(edges: Tensor, n: int) -> Tensor:
    edges = torch.as_tensor(edges).detach().cpu()
    if edges.numel() == 0:
        return torch.zeros(2, 0, dtype=torch.int64)
    if edges.dim() != 2 or edges.shape[0] != 2 or edges.dtype.is_floating_point:
        raise InputError(f"the edges are {edges.dtype} of shape {tuple(edges.shape)}, whole numbers 2 x E are needed")
    edges = edges.to(torch.int64)
    if int(edges.min()) < 0 or int(edges.max()) >= n:
        bad = int(edges.min()) if int(edges.min()) < 0 else int(edges.max())
        raise InputError(f"an edge names node {bad}, the graph has nodes 0 to {n - 1}")
    return edges


def canonical_edges(edges: Tensor, n: int, *, directed: bool) -> Tensor:
    edges = checked_edges(edges, n)
    if not directed:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    keys = torch.unique(edges[1] * n + edges[0])
    return torch.stack([keys % n, keys // n])


def count_repeated_edges(edges: Tensor, n: int) -> int:
    """How many entries of the edge list repeat an earlier one; the other direction of an edge is no repetition."""
    edges = checked_edges(edges, n)
    return edges.shape[1] - torch.unique(edges[1] * n + edges[0]).numel()


def note_of_dropped_loops(count: int) -> tuple[str, ...]:
    """The note of a loader that leaves out self-loops; none if there are none."""
    return (f"{count:,} self-loop{'s were' if count > 1 else ' was'} dropped",) if count else ()


def is_symmetric(edges: Tensor, n: int) -> bool:
    forward = torch.unique(edges[1] * n + edges[0])
    return torch.equal(forward, torch.unique(edges[0] * n + edges[1]))


SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'"}  # that programs write instead of commas


def comma_separated(lines: Iterable[str], path: str | Path, *, columns: Sequence[str]) -> Iterator[str]:
    """The lines of a CSV file as they are. Raises `InputError` if the header has these columns by another separator."""
    header_seen = False
    for line in lines:
        if not header_seen and line.strip():
            header_seen = True
            for separator, name in SEPARATORS.items():
                cells = {cell.strip().strip("\"'").strip() for cell in line.split(separator)}
                if len(cells) > 1 and cells.issuperset(columns):
                    advice = "save it with commas between the cells and with points in the numbers (0.5, not 0,5)"
                    raise InputError(f"the separator of {path} is {name}, a comma is needed: {advice}")
        yield line


def fields_once(what: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """A hook for JSON objects: the parser itself would silently keep the last of two equal fields."""

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for name, value in pairs:
            if name in content:
                raise InputError(f"field {name[:80]!r} stands twice in {what}")
            content[name] = value
        return content

    return object_of


def read_fields(kind: type[Fields], content: Any, what: str) -> Fields:
    """A dataclass from the JSON object that holds its fields: none missing, none unknown, each of its declared type."""
    if not isinstance(content, Mapping):
        raise InputError(f"{what} is no object with fields")
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name, field in fields.items():
        if name not in content and field.default is field.default_factory is dataclasses.MISSING:
            raise InputError(f"{what} lacks its field {name!r}")
    for name in content:
        if name not in fields:
            raise InputError(f"{what} has an unknown field {name[:80]!r}")
    return kind(**{name: _of_type(hints[name], value, name, what) for name, value in content.items()})


def _of_type(hint: Any, value: Any, name: str, what: str) -> Any:
    """The value as this type: lists become tuples, objects dataclasses; whole numbers may stand for numbers."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        if value is None and type(None) in parts:
            return None
        fitting = (part for part in parts if get_origin(part) is Literal and value in get_args(part))
        return _of_type(next(fitting, parts[0]), value, name, what)
    if dataclasses.is_dataclass(hint):
        return read_fields(hint, value, f"the {name}")  # type: ignore[arg-type]
    if hint is Any or (origin is Literal and value in parts) or (origin is dict and isinstance(value, dict)):
        return value
    if origin is tuple and isinstance(value, list):
        if parts[0] is str and all(type(item) is str for item in value):  # at once: there may be millions
            return tuple(value)
        return tuple(_of_type(parts[0], item, name, what) for item in value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and number and math.isfinite(value):
        return float(value)
    if hint in (int, bool, str) and type(value) is hint:
        return value
    names = {float: "a number", int: "a whole number", bool: "true or false", str: "text", dict: "an object"}
    needed = f"one of {', '.join(parts)}" if origin is Literal else names.get(origin or hint, "a list")
    raise InputError(f"{name} in {what} is {str(value)[:80]!r}, {needed} is needed")
