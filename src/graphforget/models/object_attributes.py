"""The attributes of objects, classes and modules, where data may be stored beside the parameters."""

from __future__ import annotations

import types
from collections.abc import Iterator

import torch
from torch import nn

from graphforget.models.code_references import default_references, is_library_class

MODULE_INTERNALS = frozenset(vars(nn.Module()))  # registered parameters, buffers, submodules and hooks
CLASS_INTERNALS = frozenset(
    {
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__slots__", "__annotations__"),
        *("__annotate__", "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__"),
        *("__orig_bases__", "__parameters__", "__abstractmethods__", "_abc_impl", "__match_args__"),
        *("__dataclass_fields__", "__dataclass_params__", "__classcell__", "__type_params__", "__protocol_attrs__"),
    }
)


def attributes(module: nn.Module) -> Iterator[tuple[str, object]]:
    """The attributes of a module that torch has not registered, and those of its classes.

    Classes of known libraries are left out. Parameters and buffers are looked at for attributes of their own.
    """
    if isinstance(module, torch.jit.ScriptModule):  # compiled: `data_carriers` reports it
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
    """The attributes of a class; for `__init__` only its default values.

    `__init__` may refer to a dataset, as in `GCNConv(dataset.num_features, 16)`. Everything that it stored is an
    attribute of the object, which is looked at anyway.
    """
    for name, value in list(vars(kind).items()):
        if name == "__init__" and isinstance(value, types.FunctionType):
            yield from ((f"{name}{label}", default) for label, default in default_references(value))
        elif name not in CLASS_INTERNALS:
            yield name, value
