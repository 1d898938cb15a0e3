"""Whether a model still has the settings that its recipe records."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import nn

from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.models.items import ItemView
from graphforget.models.object_attributes import MODULE_INTERNALS
from graphforget.models.registry import MODELS, build

MOST_KNOWN = 64  # models whose settings are remembered
_fresh: dict[tuple[object, ...], dict[str, Any]] = {}  # the settings of a fresh model, by its name, shape and options


def has_recorded_settings(module: nn.Module, graph: Graph, *, name: str, options: dict[str, Any]) -> bool:
    """Whether a built-in model has the numbers, words and view that its name and options give it on this graph.

    What is certified is computed with them. Somebody may have changed them after training.
    """
    if name not in MODELS:
        return True
    ensemble = {"shards": 1} if "shards" in options else {}
    given = tuple(sorted((key, repr(value)) for key, value in (options | ensemble).items()))
    known = (name, graph.num_columns, graph.num_classes, given)
    if known not in _fresh:
        with torch.device("meta"):
            fresh = build(name, columns=graph.num_columns, classes=graph.num_classes, **options | ensemble)
        while len(_fresh) >= MOST_KNOWN:
            _fresh.pop(next(iter(_fresh)))
        _fresh[known] = _settings(fresh, skip=ensemble)
    return _settings(module, skip=ensemble) == _fresh[known]


def _settings(module: nn.Module, *, skip: Container[str]) -> dict[str, Any]:
    """The attributes that are plain values, by name."""
    attributes = {name: value for name, value in vars(module).items() if name not in MODULE_INTERNALS}
    return {name: value for name, value in attributes.items() if name not in skip and _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str | ItemView | Reach)
