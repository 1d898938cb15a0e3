"""The methods by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from graphforget.errors import InputError
from graphforget.plugins import METHODS as METHODS_GROUP
from graphforget.plugins import Plugin, load_plugins
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.method import Method
from graphforget.unlearning.methods.ascent import Ascent
from graphforget.unlearning.methods.ceu import Ceu
from graphforget.unlearning.methods.cgu import Cgu
from graphforget.unlearning.methods.gif import Gif
from graphforget.unlearning.methods.gnndelete import GnnDelete
from graphforget.unlearning.methods.grapheraser import GraphEraser
from graphforget.unlearning.methods.idea import Idea
from graphforget.unlearning.methods.megu import Megu
from graphforget.unlearning.methods.scalegun import ScaleGun
from graphforget.unlearning.plugged import plugged_method
from graphforget.unlearning.selection import NEWTON, RETRAIN, Choice

UTU = "utu"  # Unlink-to-Unlearn: a row of `compare`, and no method

# By name only, never chosen by `auto`.
BY_NAME: tuple[Method[Any], ...] = (
    *(Idea(), GraphEraser(), Gif(), Ceu(), Cgu()),
    *(ScaleGun(), GnnDelete(), Megu(), Ascent()),
)
ALL: tuple[Method[Any], ...] = (NEWTON, RETRAIN, *BY_NAME)
METHODS: dict[str, Method[Any]] = {method.name: method for method in ALL}


def named_choice(method: str, options: Mapping[str, Any]) -> Choice | None:
    """The named method with its options, parsed; None for `auto`."""
    if str(method).lower() == AUTO:
        return None
    named = find(method)
    return Choice(named, named.parse_options(dict(options)))


@functools.cache
def plugged_methods() -> dict[str, Plugin[Method[Any]]]:
    """The methods of other installed packages by name. The first call loads them."""
    taken = {*METHODS, AUTO, UTU, "no_op", "nothing"}
    return load_plugins(METHODS_GROUP, plugged_method, taken=taken)


def all_methods() -> dict[str, Method[Any]]:
    """The methods of this package, and those of other installed packages after them."""
    return METHODS | {name: plugin.value for name, plugin in plugged_methods().items()}


def find(name: str) -> Method[Any]:
    """The method with this name. Other packages are only loaded if this one has no such method."""
    method = METHODS.get(str(name).lower())
    if method is None and str(name).lower() != UTU:
        method = all_methods().get(str(name).lower())
    if method is None and str(name).lower() == UTU:
        raise InputError("'utu' changes no weight, so it answers no request; 'compare' shows it as a row")
    if method is None:
        raise InputError(f"there is no method {name!r}, only {AUTO}, {', '.join(all_methods())}")
    return method
