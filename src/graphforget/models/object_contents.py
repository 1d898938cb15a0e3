"""Reads one object for the search for captured data: its own content, and the objects that it refers to.

A newcomer starts in `captured.py`, which follows these references from object to object.
"""

from __future__ import annotations

import collections
import enum
import functools
import io
import logging
import pathlib
import random
import re
import threading
import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graphforget.models.code_references import function_references, is_library_class, is_library_function
from graphforget.models.object_attributes import attributes, class_attributes, own_attributes

MAX_ITEMS = 64  # in a container, those of nested containers included
MAX_TEXT = 256  # characters of a string
MAX_FLOATS = 4  # distinct ones in a container
MAX_DIGITS = 4  # significant digits of a float in a container
MAX_INT_BITS = 64

# PyG's description of a layer's own methods.
PYG_INSPECTOR = frozenset({"_cls", "_signature_dict", "_source_dict"})


class NamedField(NamedTuple):
    """A named tuple, defined to get the type of its field descriptors."""

    name: str


NUMBERS = (bool, int, float, complex, np.bool_, np.integer, np.floating)
CONTAINERS = (list, tuple, set, frozenset, dict, types.MappingProxyType, collections.deque)
PLAIN_TYPES = (
    *(type(None), type(Ellipsis), type(NotImplemented), range, logging.Logger),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, np.ufunc),
    *(types.GenericAlias, types.UnionType, types.GetSetDescriptorType, types.MemberDescriptorType),
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType),
    *(type(threading.Lock()), type(threading.RLock()), type(vars(NamedField)["name"])),
)
# Built-in classes whose content is read below, in a Python subclass too.
READ_BASES = frozenset({object, list, tuple, set, frozenset, dict, collections.deque, collections.OrderedDict})
READ_BASES |= {collections.defaultdict, str, int, float, bool, complex}


@dataclass(frozen=True)
class ObjectContents:
    """One object, as far as it can be read.

    Attributes:
        finding: Why the object itself may hold data, in words; empty if it does not.
        references: The objects that it refers to, each with a label such as ".mean_" or "[0]".
        content: Its own content as bytes, for a digest.
    """

    finding: str = ""
    references: tuple[tuple[str, object], ...] = ()
    content: bytes = b""


def read_object(value: object) -> ObjectContents:
    """Reads one object. An object that raises an error when it is read is a finding."""
    try:
        for reader in (_read_scalar, _read_data, _read_code, _read_container):
            view = reader(value)
            if view is not None:
                return view
        return _read_attributes(value)
    except Exception:
        return ObjectContents(f"a {type(value).__name__}, which cannot be looked into")


def _read_scalar(value: object) -> ObjectContents | None:
    kind = type(value)
    if isinstance(value, enum.Enum):
        return ObjectContents(
            references=_labelled((name, part) for name, part in vars(value).items() if name != "__objclass__")
        )
    if isinstance(value, NUMBERS):
        return ObjectContents(_number_finding(value), _subclass_references(value), repr(value).encode())
    if isinstance(value, str):
        finding = f"a text of {len(value)} characters" if len(value) > MAX_TEXT else ""
        return ObjectContents(finding, _subclass_references(value), value.encode("utf-8", "surrogatepass"))
    if isinstance(value, pathlib.PurePath) and is_library_class(kind):
        return ObjectContents(references=((".path", str(value)),))
    if isinstance(value, re.Pattern):
        return ObjectContents(references=((".pattern", value.pattern),))
    if kind is object:
        return ObjectContents()
    of_typing = kind.__module__ == "typing" and is_library_class(kind)
    if kind in PLAIN_TYPES or isinstance(value, np.dtype) or of_typing:
        return ObjectContents(content=repr(value).encode())
    return None


def _subclass_references(value: object) -> tuple[tuple[str, object], ...]:
    """The attributes of a number or a string whose class is the user's own."""
    return () if is_library_class(type(value)) else (*_labelled(own_attributes(value)), ("", type(value)))


def _number_finding(value: Any) -> str:
    if isinstance(value, int | np.integer) and int(value).bit_length() > MAX_INT_BITS:
        return f"a whole number of {int(value).bit_length()} bits"
    if isinstance(value, np.floating) and not _is_round(float(value)):
        return "a numpy number"
    return ""


def _read_data(value: object) -> ObjectContents | None:
    """Types that hold data: tensors, arrays, bytes, files, random generators, models."""
    if isinstance(value, Tensor):
        return ObjectContents("a tensor", content=_tensor_bytes(value))
    if isinstance(value, np.ndarray):
        content = repr(value).encode() if value.dtype.hasobject else np.ascontiguousarray(value).tobytes()
        return ObjectContents("a numpy array", content=content)
    if isinstance(value, bytes | bytearray | memoryview):
        return ObjectContents(f"{len(value)} bytes" if len(value) else "", content=bytes(value))
    if isinstance(value, io.IOBase):
        return ObjectContents("an open file")
    if isinstance(value, random.Random):
        return ObjectContents("the state of a random generator", content=repr(value.getstate()).encode())
    if isinstance(value, torch.jit.ScriptModule):
        return ObjectContents("a compiled model, which cannot be looked into")
    if isinstance(value, nn.Module):
        if next(value.parameters(), None) is not None or next(value.buffers(), None) is not None:
            return ObjectContents("a model that is not a registered submodule")
        return ObjectContents(references=tuple((f".{name}", part) for name, part in attributes(value)))
    return None


def _tensor_bytes(tensor: Tensor) -> bytes:
    try:
        dense = tensor.detach().cpu()
        dense = dense if dense.layout == torch.strided else dense.to_dense()
        return dense.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return repr(tensor).encode()


def _read_code(value: object) -> ObjectContents | None:
    """Functions, methods, classes and modules: the objects that they refer to."""
    if isinstance(value, types.ModuleType):
        return ObjectContents(
            content=value.__name__.encode()
        )  # `function_references` follows what a function uses of it
    if isinstance(value, type):
        return _read_class(value)
    if isinstance(value, types.FunctionType):
        return ObjectContents(references=tuple(function_references(value)), content=value.__code__.co_code)
    if isinstance(value, types.MethodType):
        return ObjectContents(references=((".__func__", value.__func__), (".__self__", value.__self__)))
    if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
        kind = type(value.__self__)
        if kind.__name__.startswith(("pybind11_", "PyCapsule")) and _has_hidden_state(kind):
            return ObjectContents(content=value.__name__.encode())  # a function of a library written in C++
        return ObjectContents(references=((".__self__", value.__self__),), content=value.__name__.encode())
    if isinstance(value, staticmethod | classmethod):
        return ObjectContents(references=(("", value.__func__),))
    if isinstance(value, property):
        return ObjectContents(references=((".fget", value.fget), (".fset", value.fset), (".fdel", value.fdel)))
    if isinstance(value, functools.partial):
        arguments = ((f".args[{i}]", argument) for i, argument in enumerate(value.args))
        keywords = _labelled(value.keywords.items())
        return ObjectContents(
            references=((".func", value.func), *arguments, *keywords, *_labelled(vars(value).items()))
        )
    if isinstance(value, functools._lru_cache_wrapper):
        if is_library_function(value.__wrapped__):
            return ObjectContents()
        return ObjectContents("a function with a cache")
    if isinstance(value, weakref.ReferenceType):
        return ObjectContents(references=(("()", value()),))
    return None


def _read_class(value: type) -> ObjectContents:
    if is_library_class(value):
        return ObjectContents(content=value.__qualname__.encode())
    if issubclass(value, enum.Enum):
        return ObjectContents(references=tuple((f".{name}", member) for name, member in value.__members__.items()))
    bases = [(f".{base.__name__}", base) for base in (*value.__bases__, type(value))]
    return ObjectContents(references=(*_labelled(class_attributes(value)), *bases))


def _read_container(value: object) -> ObjectContents | None:
    if not isinstance(value, CONTAINERS):
        return None
    finding = _container_finding(value)
    if finding:
        return ObjectContents(finding)
    items = _items(value)
    if isinstance(value, set | frozenset):
        items.sort(key=repr)
    parts: list[tuple[str, object]] = [(f"[{i}]", item) for i, item in enumerate(items)]
    if isinstance(value, collections.defaultdict):
        parts.append((".default_factory", value.default_factory))
    if type(value) in READ_BASES or isinstance(value, types.MappingProxyType):
        return ObjectContents(references=tuple(parts))
    inner = _read_attributes(value)  # a class of the user may have attributes too
    return ObjectContents(inner.finding, (*parts, *inner.references))


def _items(value: object) -> list[object]:
    """The items of a container: the values, then the keys of a mapping. A subclass cannot change the reading."""
    if isinstance(value, dict):
        return [*dict.values(value), *dict.keys(value)]
    if isinstance(value, types.MappingProxyType):
        return [*value.values(), *value.keys()]
    base: Any = next(base for base in CONTAINERS if isinstance(value, base))
    return list(base.__iter__(value))


def _container_finding(value: object) -> str:
    """Why a container may hold data: too many items, too many floats, or floats with too many digits.

    The items of nested containers count too.
    """
    kind = type(value).__name__
    leaves, floats = 0, set()
    pending, opened = [value], {id(value)}
    while pending:
        container = pending.pop()
        is_mapping = isinstance(container, dict | types.MappingProxyType)
        for item in _items(container):
            if isinstance(item, CONTAINERS):
                if id(item) not in opened:
                    opened.add(id(item))
                    pending.append(item)
                continue
            leaves += 1
            if isinstance(item, float | complex | np.floating):
                floats.add(complex(item))
            # Each value of a mapping has a key, which is a name.
            if leaves > MAX_ITEMS * (2 if is_mapping else 1) or len(opened) > MAX_ITEMS:
                return f"a {kind} of more than {MAX_ITEMS} items"
    if len(floats) > MAX_FLOATS or not all(_is_round(item) for item in floats):
        return f"a {kind} of numbers"
    return ""


def _is_round(value: complex) -> bool:
    """Whether a person may have typed the number: it has at most four significant digits."""
    if isinstance(value, complex):
        return _is_round(value.real) and _is_round(value.imag)
    number = Decimal(repr(float(value)))
    return not number.is_finite() or len(number.normalize().as_tuple().digits) <= MAX_DIGITS


def _read_attributes(value: object) -> ObjectContents:
    kind = type(value)
    if _has_hidden_state(kind):
        return ObjectContents(f"a {kind.__name__}, which cannot be looked into")
    parts = list(own_attributes(value))
    if kind.__module__ == "torch_geometric.inspector" and is_library_class(kind):
        parts = [(name, part) for name, part in parts if name not in PYG_INSPECTOR]
    return ObjectContents(references=(*_labelled(parts), ("", kind)))


def _has_hidden_state(kind: type) -> bool:
    """Whether a base class that is written in C has memory that no attribute shows."""
    for part in kind.__mro__:
        base, inside = part.__base__, vars(part)
        if part in READ_BASES or base is None:
            continue
        shown = sum(isinstance(item, types.MemberDescriptorType) for item in inside.values())
        shown += ("__dict__" in inside) + ("__weakref__" in inside)
        if part.__basicsize__ - base.__basicsize__ > 8 * shown or part.__itemsize__ > base.__itemsize__:
            return True
    return False


def _labelled(pairs: Iterable[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    return tuple((f".{name}", value) for name, value in pairs)
