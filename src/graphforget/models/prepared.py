"""Prepared inputs of models, kept while their graph is in use, so that a request prepares each graph once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch

from graphforget.graph.graph import Graph

MOST_GRAPHS = 2  # one before a request and one after it
MOST_KEYS = 8  # of one graph: every newly trained encoder brings a key of its own

_prepared: weakref.WeakKeyDictionary[Graph, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


def prepared_once(
    graph: Graph,
    key: Hashable,
    prepare: Callable[[], Any],
    *,
    follow: Callable[[Any], Any] | None = None,
    anew: bool = False,
) -> Any:
    """What `prepare` returns for this graph, computed once for each key, or again if `anew`.

    `follow` makes it from what is there for the graph before a deletion. Only the graphs used last are kept, and none
    longer than the graph itself.
    """
    if torch.is_inference_mode_enabled():  # autograd refuses tensors from there
        return prepare()
    if key not in _prepared.get(graph, {}) or anew:
        parent = None if graph.change is None else graph.change.parent()
        earlier = {} if parent is None else _prepared.pop(parent, {})
        if earlier:
            assert parent is not None
            _prepared[parent] = earlier  # among those used last
        _evict(MOST_GRAPHS - (graph not in _prepared))  # before the work, so that its memory is free
        made = follow(earlier[key]) if follow is not None and key in earlier else prepare()
        known = _prepared.pop(graph, {})  # after the work, which may have prepared something itself
        known.pop(key, None)
        known[key] = made
        while len(known) > MOST_KEYS:
            known.pop(next(iter(known)))
    else:
        known = _prepared.pop(graph)
    _prepared[graph] = known
    _evict(MOST_GRAPHS)
    return known[key]


def _evict(most: int) -> None:
    """Leaves the inputs of so many graphs, those used last."""
    while len(_prepared) > most:
        _prepared.pop(next(iter(_prepared)), None)


def clear() -> None:
    """Forgets all prepared inputs."""
    _prepared.clear()
