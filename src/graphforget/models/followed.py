"""How propagated attributes follow a deletion: rows are computed anew where that is cheap, by differences elsewhere.

With `g_j` the rows of `D^-1/2 H_k` that differ before and after, a row whose own list and degree stay is

    H'_{k+1}[r] = H_{k+1}[r] + D_r^-1/2 sum over these j that send to r of (g'_j - g_j)

A row whose list changed is computed anew. The rounding errors of differences add up, and `Propagated.defects` counts
them (docs/maths.md, section 16).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graphforget.graph.adjacency import Adjacency
from graphforget.graph.overlay import Overlay, SlotChange
from graphforget.linalg.versioned import VersionedRows, exclusive
from graphforget.models.propagated import (
    Propagated,
    attributes,
    difference_defect,
    fresh_defect,
    inverse_root_degrees,
    propagate,
    recomputed,
    recomputed_from_attributes,
)

FEW_ENTRIES = 2**16  # up to so many entries, all rows that a change reaches are computed anew
CHEAP = 1.5  # a row is computed anew if its list is at most so many times the part of it that changed
MOST = 0.5  # of all entries; a change that reaches more of them is followed by propagating anew


@dataclass(frozen=True, eq=False, repr=False)
class ChangedRows:
    """Rows of one power that differ, with their values before and after."""

    slots: np.ndarray
    before: np.ndarray | None  # None of the last power, from which nothing follows
    after: np.ndarray


@exclusive
def followed(old: Propagated, overlay: Overlay, change: SlotChange, train_slots: np.ndarray) -> Propagated:
    """The propagated attributes after a deletion, from those before it."""
    settings = old.settings
    scaled = {"scale_rows": settings.scale_rows}
    both = (attributes(part, change.altered, **scaled) for part in (old.overlay, overlay))
    rows = ChangedRows(change.altered, *both)
    hops: list[VersionedRows] = []
    defects, is_fresh = [old.defects[0]], old.is_fresh
    blocks = {0: rows}
    for hop in range(1, settings.hops + 1):
        last = hop == settings.hops
        following = _next_rows(old, overlay, change, rows, hop, hops, only=train_slots if last else None)
        if following is None:
            return propagate(overlay, settings, train_slots)
        rows, defect, by_differences = following
        is_fresh = is_fresh and not by_differences
        defects.append(old.defects[hop] + defect)
        blocks[hop] = rows
        if not last:
            hops.append(old.hops[hop - 1].updated(rows.slots, rows.after))
    training, bounds, single = _training_rows(old, train_slots, blocks)
    new = Propagated(overlay, settings, train_slots, tuple(hops), training, bounds, tuple(defects), is_fresh)
    if single is not None:
        vars(new)["single"] = single
    return new


def _next_rows(
    old: Propagated,
    overlay: Overlay,
    change: SlotChange,
    rows: ChangedRows,
    hop: int,
    hops: list[VersionedRows],
    *,
    only: np.ndarray | None,
) -> tuple[ChangedRows, float, bool] | None:
    """The rows of `H_hop` that differ, among `only` if that is given, what they add to its defect, and whether any of
    them was computed by differences.

    None if so many entries change that propagating anew is cheaper.
    """
    adjacency = overlay.adjacency
    senders, difference = _scaled_difference(old, adjacency, change, rows, hop - 1, hops)
    pairs = _Pairs.of(adjacency, senders, change.relinked, only)
    if pairs is None:
        return None
    lengths = adjacency.count(pairs.receivers)
    few = lengths.sum() <= FEW_ENTRIES
    anew = np.ones(lengths.size, dtype=bool) if few else lengths <= CHEAP * pairs.counts
    own = change.relinked if only is None else np.intersect1d(change.relinked, only, assume_unique=True)
    fresh = np.union1d(own, pairs.receivers[anew])
    moved = pairs.receivers[~anew]
    values = _anew(overlay, fresh, hops, scale_rows=old.settings.scale_rows)
    defect = fresh_defect(adjacency.count(fresh), values[:, -1])
    before = _held_rows(old, hop, fresh) if only is None else None
    if not moved.size:
        return ChangedRows(fresh, before, values), defect, False
    added = pairs.sums(~anew, difference)
    added *= inverse_root_degrees(adjacency, moved)[:, None]
    stood = _held_rows(old, hop, moved)
    added += stood
    defect += difference_defect(pairs.counts[~anew], stood[:, -1], added[:, -1])
    slots, values = np.concatenate([fresh, moved]), np.concatenate([values, added])
    return ChangedRows(slots, before if before is None else np.concatenate([before, stood]), values), defect, True


def _scaled_difference(
    old: Propagated, adjacency: Adjacency, change: SlotChange, rows: ChangedRows, hop: int, hops: list[VersionedRows]
) -> tuple[np.ndarray, np.ndarray]:
    """The slots where `D^-1/2 H_hop` differs, and by how much."""
    other = np.setdiff1d(change.relinked, rows.slots, assume_unique=True)  # with another degree alone
    slots = np.concatenate([rows.slots, other])
    scale_rows = old.settings.scale_rows
    same = hops[hop - 1].rows(other) if hop else attributes(old.overlay, other, scale_rows=scale_rows)
    assert rows.before is not None
    before, after = (np.concatenate([part, same]) for part in (rows.before, rows.after))
    after *= inverse_root_degrees(adjacency, slots)[:, None]
    before *= inverse_root_degrees(change.before, slots)[:, None]
    after -= before
    order = slots.argsort()
    return slots[order], after[order]


@dataclass(frozen=True, eq=False, repr=False)
class _Pairs:
    """Who receives from the given senders, themselves included, without receivers whose own list changed."""

    receivers: np.ndarray  # ascending
    counts: np.ndarray  # how many of the senders each has
    place: np.ndarray  # of each pair: that of its receiver
    sender: np.ndarray  # of each pair: the place of its sender

    @classmethod
    def of(
        cls, adjacency: Adjacency, senders: np.ndarray, without: np.ndarray, only: np.ndarray | None
    ) -> _Pairs | None:
        """From the lists of the senders, or of the receivers if these are shorter. None if there are too many."""
        pushed = adjacency.count(senders).sum()
        if only is not None:
            only = np.setdiff1d(only, without, assume_unique=True)
            if adjacency.count(only).sum() < pushed:
                return cls._of_receivers(adjacency, senders, only)
        elif pushed > MOST * max(adjacency.indices.size, 1):
            return None
        return cls._of_senders(adjacency, senders, without, only)

    @classmethod
    def _of_senders(
        cls, adjacency: Adjacency, senders: np.ndarray, without: np.ndarray, only: np.ndarray | None
    ) -> _Pairs:
        lengths, listed = adjacency.lists(senders)
        to_itself = np.flatnonzero(~adjacency.loops[senders])
        receiver = np.concatenate([listed, senders[to_itself]])
        sender = np.concatenate([np.repeat(np.arange(senders.size), lengths), to_itself])
        takes = np.full(adjacency.num_rows, only is None)
        if only is not None:
            takes[only] = True
        takes[without] = False
        stays = takes[receiver]
        return cls._of_pairs(adjacency, receiver[stays], sender[stays])

    @classmethod
    def _of_receivers(cls, adjacency: Adjacency, senders: np.ndarray, receivers: np.ndarray) -> _Pairs:
        lengths, listed = adjacency.lists(receivers)
        rank = np.full(adjacency.num_rows, -1, dtype=np.int32)
        rank[senders] = np.arange(senders.size, dtype=np.int32)
        places = rank[listed]
        stays = places >= 0
        itself = receivers[(rank[receivers] >= 0) & ~adjacency.loops[receivers]]
        receiver = np.concatenate([np.repeat(receivers, lengths)[stays], itself])
        return cls._of_pairs(adjacency, receiver, np.concatenate([places[stays], rank[itself]]))

    @classmethod
    def _of_pairs(cls, adjacency: Adjacency, receiver: np.ndarray, sender: np.ndarray) -> _Pairs:
        takes = np.zeros(adjacency.num_rows, dtype=bool)
        takes[receiver] = True
        receivers = np.flatnonzero(takes)
        rank = np.empty(adjacency.num_rows, dtype=np.int32)
        rank[receivers] = np.arange(receivers.size, dtype=np.int32)
        place = rank[receiver]
        return cls(receivers, np.bincount(place, minlength=receivers.size), place, sender)

    def sums(self, some: np.ndarray, values: np.ndarray) -> np.ndarray:
        """For some of the receivers, the sum of the values of their senders."""
        rank = some.cumsum() - 1
        stays = some[self.place]
        place, sender = rank[self.place[stays]], self.sender[stays]
        shape = (int(some.sum()), values.shape[0])
        sums: np.ndarray = sp.csr_matrix((np.ones(place.size), (place, sender)), shape=shape) @ values
        return sums


def _anew(overlay: Overlay, slots: np.ndarray, hops: list[VersionedRows], *, scale_rows: bool) -> np.ndarray:
    """The next power of these slots, from the powers that have followed already."""
    if not hops:
        return recomputed_from_attributes(overlay, slots, scale_rows=scale_rows)
    return recomputed(overlay.adjacency, slots, hops[-1].array())


def _held_rows(old: Propagated, hop: int, slots: np.ndarray) -> np.ndarray:
    """The rows of `H_hop` before the deletion. Of the last power, those of training nodes are held."""
    if hop <= len(old.hops):
        return old.hops[hop - 1].rows(slots)
    settings = old.settings
    place, columns = settings.powers.index(hop), old.overlay.base.shape[1]
    rows = np.searchsorted(old.train_slots, slots)
    out = np.empty((slots.size, columns + 1))
    out[:, :-1] = old.training.array()[rows, place * columns : (place + 1) * columns]
    if settings.scales[place] != 1:
        out[:, :-1] /= settings.scales[place]
    out[:, -1] = old.bounds.array()[rows, place]
    return out


def _training_rows(
    old: Propagated, train_slots: np.ndarray, blocks: dict[int, ChangedRows]
) -> tuple[VersionedRows, VersionedRows, VersionedRows | None]:
    """The features of the training nodes, their bounds, and the features in float32 if those were in use."""
    settings, columns = old.settings, old.overlay.base.shape[1]
    versions: list[VersionedRows | None] = [old.training, old.bounds, vars(old).get("single")]
    if train_slots.size != old.train_slots.size:
        gone = np.flatnonzero(~np.isin(old.train_slots, train_slots, assume_unique=True))
        versions = [None if version is None else VersionedRows(_without(version.array(), gone)) for version in versions]
    training, bounds, single = versions
    assert training is not None
    assert bounds is not None
    trains = {hop: np.isin(rows.slots, train_slots, assume_unique=True) for hop, rows in blocks.items()}
    touched = np.unique(np.concatenate([rows.slots[trains[hop]] for hop, rows in blocks.items()]))
    index = np.searchsorted(train_slots, touched)
    one = len(settings.powers) == 1  # then every number of these rows is set
    features = np.empty((touched.size, columns)) if one else training.rows(index)
    norms = bounds.rows(index)
    for place, (hop, scale) in enumerate(zip(settings.powers, settings.scales, strict=True)):
        some = slice(None) if trains[hop].all() else trains[hop]
        slots, values = blocks[hop].slots[some], blocks[hop].after[some]
        rows = np.searchsorted(touched, slots)
        block = values[:, :-1] if scale == 1 else scale * values[:, :-1]
        features[rows, place * columns : (place + 1) * columns] = block
        norms[rows, place] = values[:, -1]
    if single is not None:
        single = single.updated(index, features.astype(np.float32))
    return training.updated(index, features), bounds.updated(index, norms), single


def _without(values: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """The array without a few rows, copied block by block."""
    ends = zip([0, *(gone + 1).tolist()], [*gone.tolist(), values.shape[0]], strict=True)
    return np.concatenate([values[first:last] for first, last in ends])
