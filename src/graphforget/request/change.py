"""Which training losses differ between two states of a graph, of which the second may have more than the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from graphforget.graph.differences import different, different_attributes, edge_keys, numbers_of_both, reweighted
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.request.footprint import Footprint


def change_footprint(before: Graph, after: Graph, reach: Reach) -> Footprint:
    """The footprint of a change for a model of this reach; of a deletion it is that of the request.

    Follows the layers as `footprint` does, over the edges that both graphs have. Whoever lost or gained an incoming
    edge, or has one with another weight or other relations, has another output.
    """
    numbers = numbers_of_both(before, after)
    n = numbers.size
    places = [np.searchsorted(numbers, one.numbers.numpy()) for one in (before, after)]
    first, second = edge_keys(before, after, numbers)
    common, *common_places = np.intersect1d(first, second, True, return_indices=True)
    other = np.concatenate([np.setxor1d(first, second, True), common[reweighted(before, after, *common_places)]])
    source, target = common % n, common // n
    both_ways = reach.both_ways and before.directed
    relinked = np.zeros(n, dtype=bool)
    relinked[other // n] = True
    if both_ways:
        relinked[other % n] = True
    stays = _mask(n, places[0]) & _mask(n, places[1])
    changed = np.zeros(n, dtype=bool)
    rows = [np.searchsorted(place, np.flatnonzero(stays)) for place in places]
    changed[np.flatnonzero(stays)[different_attributes(before, after, *rows)]] = True
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
    relabelled = np.zeros(n, dtype=bool)
    relabelled[np.flatnonzero(stays)[different(before.y, after.y, *rows)]] = True
    masks = trains[0] & ~trains[1], trains[0] & trains[1] & (changed | relabelled), changed
    added = np.searchsorted(places[1], np.flatnonzero(trains[1] & ~trains[0]))
    removed, affected, reached = (torch.from_numpy(np.searchsorted(places[0], mask.nonzero()[0])) for mask in masks)
    return Footprint(removed, affected, reached, torch.from_numpy(added))


def count_changes(before: Graph, after: Graph) -> dict[str, Any]:
    """How many nodes and edges come and go, and how many nodes and edges of both graphs have other values.

    An undirected edge counts once in each direction, as in `Graph.num_edges`.
    """
    numbers = [graph.numbers.numpy() for graph in (before, after)]
    common = np.intersect1d(numbers[0], numbers[1], True)
    rows = [np.searchsorted(listed, common) for listed in numbers]
    first, second = edge_keys(before, after, numbers_of_both(before, after))
    both, *columns = np.intersect1d(first, second, True, return_indices=True)
    return {
        "new_nodes": numbers[1].size - common.size,
        "lost_nodes": numbers[0].size - common.size,
        "new_edges": second.size - both.size,
        "lost_edges": first.size - both.size,
        "changed_edges": int(reweighted(before, after, *columns).sum()),
        "changed_attributes": int(different_attributes(before, after, *rows).sum()),
        "changed_labels": int(different(before.y, after.y, *rows).sum()),
    }


def _mask(n: int, places: np.ndarray) -> np.ndarray:
    mask = np.zeros(n, dtype=bool)
    mask[places] = True
    return mask
