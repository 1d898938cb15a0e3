"""Which training losses differ between two states of a graph, of which the second may have more than the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from graphforget.graph.differences import differences
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.request.footprint import Footprint


def change_footprint(before: Graph, after: Graph, reach: Reach) -> Footprint:
    """The footprint of a change for a model of this reach; of a deletion it is that of the request.

    Follows the layers as `footprint` does, over the edges that both graphs have. Whoever lost or gained an incoming
    edge, or has one with another weight or other relations, has another output.
    """
    found = differences(before, after)
    n, other = found.numbers.size, found.changed_edges
    places = [np.searchsorted(found.numbers, one.numbers.numpy()) for one in (before, after)]
    source, target = found.edges % n, found.edges // n
    both_ways = reach.both_ways and before.directed
    relinked = _mask(n, other // n)
    if both_ways:
        relinked[other % n] = True
    stays, changed = _mask(n, found.common), _mask(n, found.common[found.attributes])
    if reach.hops is None:
        changed = np.full(n, (changed | relinked).any() or not stays.all())
    for _ in range(reach.hops or 0):
        sends_anew = changed | relinked if reach.degree_normalised else changed
        following = changed | relinked
        following[target[sends_anew[source]]] = True
        if both_ways:
            following[source[sends_anew[target]]] = True
        changed = following
    changed &= stays
    trains = [_mask(n, place[graph.train_mask.numpy()]) for graph, place in zip((before, after), places, strict=True)]
    relabelled = _mask(n, found.common[found.targets])
    masks = trains[0] & ~trains[1], trains[0] & trains[1] & (changed | relabelled), changed
    added = np.searchsorted(places[1], np.flatnonzero(trains[1] & ~trains[0]))
    removed, affected, reached = (torch.from_numpy(np.searchsorted(places[0], mask.nonzero()[0])) for mask in masks)
    return Footprint(removed, affected, reached, torch.from_numpy(added))


def count_changes(before: Graph, after: Graph) -> dict[str, Any]:
    """How many nodes and edges come and go, and how many nodes and edges of both graphs have other values.

    An undirected edge counts once, as in `Graph.num_edges`.
    """
    found = differences(before, after)

    def count(keys: np.ndarray) -> int:
        return keys.size if before.directed else int((keys % found.numbers.size <= keys // found.numbers.size).sum())

    return {
        "new_nodes": after.num_nodes - found.common.size,
        "lost_nodes": before.num_nodes - found.common.size,
        "new_edges": count(found.gained),
        "lost_edges": count(found.lost),
        "changed_edges": count(found.edges[found.reweighted]),
        "changed_attributes": int(found.attributes.sum()),
        "changed_labels": int(found.targets.sum()),
    }


def _mask(n: int, places: np.ndarray) -> np.ndarray:
    mask = np.zeros(n, dtype=bool)
    mask[places] = True
    return mask
