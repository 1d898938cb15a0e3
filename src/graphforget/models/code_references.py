"""The objects that a function refers to (closure, defaults, globals, constants), and which code is a library's."""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

# The code of these libraries is not searched; objects of their classes are.
LIBRARIES = frozenset(sys.stdlib_module_names) | {
    *("torch", "torch_geometric", "torch_scatter", "torch_sparse", "torch_cluster", "pyg_lib", "einops"),
    *("numpy", "scipy", "sklearn", "pandas", "typing_extensions", "graphforget"),
}


def function_references(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """The objects that a function refers to, each with a label. For a library's function only its closure."""
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            yield f".{name}", cell.cell_contents
        except ValueError:  # an empty cell
            continue
    if is_library_function(function):
        return
    yield from default_references(function)
    yield from ((f".{name}", value) for name, value in vars(function).items())
    for code in _nested_code(function.__code__):
        yield from ((".constants", value) for value in _constants(code))
        yield from _globals(code, function.__globals__)


def default_references(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """The default values of a function's parameters."""
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    for name, value in (*zip(names, defaults, strict=True), *(function.__kwdefaults__ or {}).items()):
        yield f".{name}", value


def _nested_code(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _nested_code(value)


def _constants(code: types.CodeType) -> Iterator[object]:
    """The constants in the code, without the docstring."""
    for position, value in enumerate(code.co_consts):
        docstring = position == 0 and isinstance(value, str) and not code.co_name.startswith("<")
        if isinstance(value, tuple | frozenset | bytes | str | int) and not docstring:
            yield value


def _globals(code: types.CodeType, namespace: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The globals that the code reads. For a module of the user, also its attributes whose names the code uses."""
    read = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for name in sorted(read & namespace.keys()):
        value = namespace[name]
        yield f".{name}", value
        if isinstance(value, types.ModuleType) and not _is_library(value.__name__):
            yield from ((f".{name}.{used}", vars(value)[used]) for used in code.co_names if used in vars(value))


def _is_library(module_name: object) -> bool:
    return isinstance(module_name, str) and _is_library_package(module_name.partition(".")[0])


def _is_library_package(name: str) -> bool:
    """By its name; for a standard module also by its file, because a user's script may have the same name."""
    if name not in LIBRARIES or name == "__main__":
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return name not in sys.stdlib_module_names or file is None or _is_in_standard_library(file)


def _is_in_standard_library(file: str) -> bool:
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.dirname(os.__file__)}
    return file.startswith(tuple(folder + os.sep for folder in folders)) and "site-packages" not in file


def is_library_function(function: object) -> bool:
    """By the globals that its code runs with. `__module__` is not used, because anybody can set it."""
    namespace = getattr(function, "__globals__", {})
    module = sys.modules.get(str(namespace.get("__name__")))
    return module is not None and vars(module) is namespace and _is_library(module.__name__)


def is_library_class(kind: type) -> bool:
    """By looking the class up in the module that it names, because anybody can set `__module__`."""
    if not _is_library(kind.__module__):
        return False
    item: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        item = getattr(item, name, None)
    return item is kind or not (kind.__flags__ & 1 << 9)  # a class written in C cannot forge it


def is_installed_code(item: object, *, except_package: str) -> bool:
    """Whether it is a function or a class of an installed package, other than `except_package`."""
    if isinstance(item, types.FunctionType):
        name = str(item.__globals__.get("__name__"))
    elif isinstance(item, type):
        name = item.__module__
    else:
        return False
    module = sys.modules.get(name)
    parts = (getattr(module, "__file__", None) or "").split(os.sep)
    if name.partition(".")[0] == except_package or not {"site-packages", "dist-packages"} & set(parts):
        return False
    if isinstance(item, types.FunctionType):
        return vars(module) is item.__globals__
    found: Any = module
    for part in item.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is item
