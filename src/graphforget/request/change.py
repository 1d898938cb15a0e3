"""Which training losses differ between two states of a graph, of which the second may have more than the first."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import to_scipy
from graphforget.request.footprint import Footprint


def change_footprint(before: Graph, after: Graph, reach: Reach) -> Footprint:
    """The footprint of a change for a model of this reach; of a deletion it is that of the request.

    Follows the layers as `footprint` does, over the edges that both graphs have. Whoever lost or gained an incoming
    edge has another output.
    """
    numbers = np.union1d(before.numbers.numpy(), after.numbers.numpy())
    n = numbers.size
    places = [np.searchsorted(numbers, one.numbers.numpy()) for one in (before, after)]
    keys = []
    for graph, place in zip((before, after), places, strict=True):
        source, target = place[graph.edge_index.numpy()]
        keys.append(target * n + source)
    first, second = keys
    common, other = np.intersect1d(first, second, True), np.setxor1d(first, second, True)
    source, target = common % n, common // n
    both_ways = reach.both_ways and before.directed
    relinked = np.zeros(n, dtype=bool)
    relinked[other // n] = True
    if both_ways:
        relinked[other % n] = True
    stays = _mask(n, places[0]) & _mask(n, places[1])
    changed = np.zeros(n, dtype=bool)
    rows = [np.searchsorted(place, np.flatnonzero(stays)) for place in places]
    changed[np.flatnonzero(stays)[_different_attributes(before, after, *rows)]] = True
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
    relabelled[np.flatnonzero(stays)[_different(before.y, after.y, *rows)]] = True
    masks = trains[0] & ~trains[1], trains[0] & trains[1] & (changed | relabelled), changed
    added = np.searchsorted(places[1], np.flatnonzero(trains[1] & ~trains[0]))
    removed, affected, reached = (torch.from_numpy(np.searchsorted(places[0], mask.nonzero()[0])) for mask in masks)
    return Footprint(removed, affected, reached, torch.from_numpy(added))


def _mask(n: int, places: np.ndarray) -> np.ndarray:
    mask = np.zeros(n, dtype=bool)
    mask[places] = True
    return mask


def _different_attributes(before: Graph, after: Graph, rows: np.ndarray, later_rows: np.ndarray) -> np.ndarray:
    """A mask of the nodes with other attributes; the rows are those of the same nodes."""
    if not before.has_sparse_attributes:
        return _different(before.x, after.x, rows, later_rows)
    difference = (to_scipy(before.x)[rows] != to_scipy(after.x)[later_rows]).tocsr()
    different: np.ndarray = np.diff(difference.indptr) > 0
    return different


def _different(before: Tensor, after: Tensor, rows: np.ndarray, later_rows: np.ndarray) -> np.ndarray:
    first, second = (values.numpy()[some] for values, some in ((before, rows), (after, later_rows)))
    same = (first == second) | ((first != first) & (second != second))  # NaN: no value
    return ~same if same.ndim == 1 else ~same.all(axis=1)
