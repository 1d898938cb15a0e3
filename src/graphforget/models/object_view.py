"""One object as the search for captured data sees it: its kind, its content, the objects that it refers to."""

from __future__ import annotations

import collections
import enum
import functools
import io
import logging
import pathlib
import random
import threading
import types
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graphforget.models.code_references import default_parts, function_parts, is_library_class, is_library_function

MAX_ITEMS = 64  # in a container, those of nested containers included
MAX_TEXT = 256  # characters of a string
MAX_FLOATS = 4  # distinct ones in a container
MAX_DIGITS = 4  # significant digits of a float in a container
MAX_INT_BITS = 64

MODULE_INTERNALS = frozenset(vars(nn.Module()))  # registered parameters, buffers, submodules and hooks
CLASS_INTERNALS = frozenset(
    {
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__slots__", "__annotations__"),
        *("__annotate__", "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__"),
        *("__orig_bases__", "__parameters__", "__abstractmethods__", "_abc_impl", "__match_args__"),
        *("__dataclass_fields__", "__dataclass_params__", "__classcell__", "__type_params__", "__protocol_attrs__"),
    }
)
# PyG's description of a layer's own methods.
PYG_INSPECTOR = frozenset({"_cls", "_signature_dict", "_source_dict"})


class NamedField(NamedTuple):
    """An example of a named tuple, for the type of its fields."""

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
# Built-in classes whose content is read below, whatever Python subclass it comes in.
READ_BASES = frozenset({object, list, tuple, set, frozenset, dict, collections.deque, collections.OrderedDict})
READ_BASES |= {collections.defaultdict, str, int, float, bool, complex}


@dataclass(frozen=True)
class View:
    """One object: why it may hold data (or nothing), the objects that it refers to, and its own content as bytes."""

    finding: str = ""
    parts: tuple[tuple[str, object], ...] = ()
    content: bytes = b""


def view_of(value: object) -> View:
    """The object's view; one that raises an error when it is read is a finding."""
    try:
        for reader in (_view_of_scalar, _view_of_data, _view_of_code, _view_of_container):
            view = reader(value)
            if view is not None:
                return view
        return _view_of_object(value)
    except Exception:
        return View(f"a {type(value).__name__}, which cannot be looked into")


def _view_of_scalar(value: object) -> View | None:
    kind = type(value)
    if isinstance(value, enum.Enum):
        return View(parts=_labelled((name, part) for name, part in vars(value).items() if name != "__objclass__"))
    if isinstance(value, NUMBERS):
        return View(_number_finding(value), _subclass_parts(value), repr(value).encode())
    if isinstance(value, str):
        finding = f"a text of {len(value)} characters" if len(value) > MAX_TEXT else ""
        return View(finding, _subclass_parts(value), value.encode("utf-8", "surrogatepass"))
    if isinstance(value, pathlib.PurePath) and is_library_class(kind):
        return View(parts=((".path", str(value)),))
    if kind is object:
        return View()
    of_typing = kind.__module__ == "typing" and is_library_class(kind)
    if kind in PLAIN_TYPES or isinstance(value, np.dtype) or of_typing:
        return View(content=repr(value).encode())
    return None


def _subclass_parts(value: object) -> tuple[tuple[str, object], ...]:
    """What a number or a text of the user's own class holds beside itself."""
    return () if is_library_class(type(value)) else (*_labelled(own_attributes(value)), ("", type(value)))


def _number_finding(value: Any) -> str:
    if isinstance(value, int | np.integer) and int(value).bit_length() > MAX_INT_BITS:
        return f"a whole number of {int(value).bit_length()} bits"
    if isinstance(value, np.floating) and not _is_round(float(value)):
        return "a numpy number"
    return ""


def _view_of_data(value: object) -> View | None:
    """Kinds of objects that hold data by their nature."""
    if isinstance(value, Tensor):
        return View("a tensor", content=_tensor_bytes(value))
    if isinstance(value, np.ndarray):
        content = repr(value).encode() if value.dtype.hasobject else np.ascontiguousarray(value).tobytes()
        return View("a numpy array", content=content)
    if isinstance(value, bytes | bytearray | memoryview):
        return View(f"{len(value)} bytes" if len(value) else "", content=bytes(value))
    if isinstance(value, io.IOBase):
        return View("an open file")
    if isinstance(value, random.Random):
        return View("the state of a random generator", content=repr(value.getstate()).encode())
    if isinstance(value, torch.jit.ScriptModule):
        return View("a compiled model, which cannot be looked into")
    if isinstance(value, nn.Module):
        if next(value.parameters(), None) is not None or next(value.buffers(), None) is not None:
            return View("a model that is not a registered submodule")
        return View(parts=tuple((f".{name}", part) for name, part in attributes(value)))
    return None


def _tensor_bytes(tensor: Tensor) -> bytes:
    try:
        dense = tensor.detach().cpu()
        dense = dense if dense.layout == torch.strided else dense.to_dense()
        return dense.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return repr(tensor).encode()


def _view_of_code(value: object) -> View | None:
    """Functions, methods, classes and modules: what they carry beside their code."""
    if isinstance(value, types.ModuleType):
        return View(content=value.__name__.encode())  # what a function uses of it is looked at with the function
    if isinstance(value, type):
        return _view_of_class(value)
    if isinstance(value, types.FunctionType):
        return View(parts=tuple(function_parts(value)), content=value.__code__.co_code)
    if isinstance(value, types.MethodType):
        return View(parts=((".__func__", value.__func__), (".__self__", value.__self__)))
    if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
        kind = type(value.__self__)
        if kind.__name__.startswith(("pybind11_", "PyCapsule")) and _has_hidden_state(kind):
            return View(content=value.__name__.encode())  # a function of a library written in C++
        return View(parts=((".__self__", value.__self__),), content=value.__name__.encode())
    if isinstance(value, staticmethod | classmethod):
        return View(parts=(("", value.__func__),))
    if isinstance(value, property):
        return View(parts=((".fget", value.fget), (".fset", value.fset), (".fdel", value.fdel)))
    if isinstance(value, functools.partial):
        arguments = ((f".args[{i}]", argument) for i, argument in enumerate(value.args))
        keywords = _labelled(value.keywords.items())
        return View(parts=((".func", value.func), *arguments, *keywords, *_labelled(vars(value).items())))
    if isinstance(value, functools._lru_cache_wrapper):
        if is_library_function(value.__wrapped__):
            return View()
        return View("a function with a cache")
    if isinstance(value, weakref.ReferenceType):
        return View(parts=(("()", value()),))
    return None


def _view_of_class(value: type) -> View:
    if is_library_class(value):
        return View(content=value.__qualname__.encode())
    if issubclass(value, enum.Enum):
        return View(parts=tuple((f".{name}", member) for name, member in value.__members__.items()))
    bases = [(f".{base.__name__}", base) for base in (*value.__bases__, type(value))]
    return View(parts=(*_labelled(class_attributes(value)), *bases))


def _view_of_container(value: object) -> View | None:
    if not isinstance(value, CONTAINERS):
        return None
    finding = _container_finding(value)
    if finding:
        return View(finding)
    items = _items(value)
    if isinstance(value, set | frozenset):
        items.sort(key=repr)
    parts: list[tuple[str, object]] = [(f"[{i}]", item) for i, item in enumerate(items)]
    if isinstance(value, collections.defaultdict):
        parts.append((".default_factory", value.default_factory))
    if type(value) in READ_BASES or isinstance(value, types.MappingProxyType):
        return View(parts=tuple(parts))
    inner = _view_of_object(value)  # a class of the user's own may hold more than items
    return View(inner.finding, (*parts, *inner.parts))


def _items(value: object) -> list[object]:
    """Values, then keys of a mapping; as the built-in class reads them, whatever a subclass makes of it."""
    if isinstance(value, dict):
        return [*dict.values(value), *dict.keys(value)]
    if isinstance(value, types.MappingProxyType):
        return [*value.values(), *value.keys()]
    base: Any = next(base for base in CONTAINERS if isinstance(value, base))
    return list(base.__iter__(value))


def _container_finding(value: object) -> str:
    """Too many items, too many floats or too exact ones, those of containers inside included."""
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
            # A mapping has a key for every value: these are names.
            if leaves > MAX_ITEMS * (2 if is_mapping else 1) or len(opened) > MAX_ITEMS:
                return f"a {kind} of more than {MAX_ITEMS} items"
    if len(floats) > MAX_FLOATS or not all(_is_round(item) for item in floats):
        return f"a {kind} of numbers"
    return ""


def _is_round(value: complex) -> bool:
    """Whether a person may have typed it: four significant digits at most."""
    if isinstance(value, complex):
        return _is_round(value.real) and _is_round(value.imag)
    number = Decimal(repr(float(value)))
    return not number.is_finite() or len(number.normalize().as_tuple().digits) <= MAX_DIGITS


def _view_of_object(value: object) -> View:
    kind = type(value)
    if _has_hidden_state(kind):
        return View(f"a {kind.__name__}, which cannot be looked into")
    parts = list(own_attributes(value))
    if kind.__module__ == "torch_geometric.inspector" and is_library_class(kind):
        parts = [(name, part) for name, part in parts if name not in PYG_INSPECTOR]
    return View(parts=(*_labelled(parts), ("", kind)))


def _has_hidden_state(kind: type) -> bool:
    """Whether some base, written in C, keeps memory of its own that no attribute shows."""
    for part in kind.__mro__:
        base, inside = part.__base__, vars(part)
        if part in READ_BASES or base is None:
            continue
        shown = sum(isinstance(item, types.MemberDescriptorType) for item in inside.values())
        shown += ("__dict__" in inside) + ("__weakref__" in inside)
        if part.__basicsize__ - base.__basicsize__ > 8 * shown or part.__itemsize__ > base.__itemsize__:
            return True
    return False


# -- attributes, functions, libraries --------------------------------------------------------------------------------


def attributes(module: nn.Module) -> Iterator[tuple[str, object]]:
    """The attributes of a module that torch has not registered, then those of its classes that are no library's."""
    if isinstance(module, torch.jit.ScriptModule):  # compiled: `data_carriers` names it as a whole
        return
    for name, value in own_attributes(module):
        if name not in MODULE_INTERNALS or ("state_dict" in name and name.endswith("_hooks")):
            yield name, value
    for part in type(module).__mro__:
        if not is_library_class(part):
            for name, value in class_attributes(part):
                yield f"{part.__name__}.{name}", value
            yield f"{part.__name__}.__class__", type(part)
    for name, parameter in (*module._parameters.items(), *module._buffers.items()):
        if parameter is not None:
            yield f"{name}.__dict__", vars(parameter)
            yield f"{name}._backward_hooks", parameter._backward_hooks


def _labelled(pairs: Iterable[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    return tuple((f".{name}", value) for name, value in pairs)


def own_attributes(value: object) -> Iterator[tuple[str, object]]:
    """`__dict__` and `__slots__` of an object."""
    inside = getattr(value, "__dict__", None)
    if isinstance(inside, dict):
        yield from list(inside.items())
    for part in type(value).__mro__:
        for name, item in list(vars(part).items()):
            if isinstance(item, types.MemberDescriptorType) and name != "__dict__":
                try:
                    yield name, item.__get__(value)
                except AttributeError:  # an empty slot
                    continue


def class_attributes(kind: type) -> Iterator[tuple[str, object]]:
    """The attributes of a class; of `__init__` the default values alone.

    Its other references have done their work when the object exists: `GCNConv(dataset.num_features, 16)`. What it
    stored of them is an attribute of the object.
    """
    for name, value in list(vars(kind).items()):
        if name == "__init__" and isinstance(value, types.FunctionType):
            yield from ((f"{name}{label}", default) for label, default in default_parts(value))
        elif name not in CLASS_INTERNALS:
            yield name, value
