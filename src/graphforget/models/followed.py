"""How propagated attributes follow a deletion: rows are computed anew where that is cheap, by differences elsewhere.

With `g_j` the rows of `D^-1/2 H_k` that differ before and after, a row whose own list and degree stay is

    H'_{k+1}[r] = H_{k+1}[r] + D_r^-1/2 sum over these j that send to r of (g'_j - g_j)

A row whose list changed is computed anew. The rounding errors of differences add up, and `Propagated.defects` counts
them (docs/maths.md, section 16).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from graphforget.graph.adjacency import Adjacency
from graphforget.graph.overlay import Overlay, SlotChange
from graphforget.linalg.versioned import VersionedRows, exclusive, without_rows
from graphforget.models.defects import difference_defect, fresh_defect
from graphforget.models.propagated import (
    Propagated,
    Settings,
    attributes,
    inverse_root_degrees,
    propagate,
    recomputed,
    recomputed_from_attributes,
)

FEW_ENTRIES = 2**16  # up to so many entries, all rows that a change reaches are computed anew
CHEAP = 1.5  # a row is computed anew if its list is at most so many times the part of it that changed
MOST = 0.5  # of all entries; a change that reaches more of them is followed by propagating anew


@dataclass(frozen=True, eq=False, repr=False)
class Difference:
    """Where `D^-1/2 H_k` differs after a deletion, and by how much."""

    slots: np.ndarray  # ascending
    values: np.ndarray


@exclusive
def followed(old: Propagated, overlay: Overlay, change: SlotChange, train_slots: np.ndarray) -> Propagated:
    """The propagated attributes after a deletion, from those before it."""
    settings = old.settings
    difference = _attribute_difference(old, overlay, change)
    hops: list[VersionedRows] = []
    defects, is_fresh = [old.defects[0]], old.is_fresh
    for hop in range(1, settings.hops):
        reached = Reached.of(overlay.adjacency, change, difference.slots)
        if reached is None:
            return propagate(overlay, settings, train_slots, hops=hops, defects=defects, is_fresh=is_fresh)
        rows, difference, defect = _next_power(old, overlay, change, reached, difference, hops)
        hops.append(rows)
        defects.append(old.defects[hop] + defect)
        is_fresh = is_fresh and not reached.moved.any()
    if settings.hops:
        reached = Reached.of(overlay.adjacency, change, difference.slots, only=train_slots)
        assert reached is not None
    else:
        reached = Reached.anew(np.intersect1d(change.altered, train_slots, assume_unique=True))
    versions, defect = _training_rows(old, overlay, change, train_slots, reached, difference, hops)
    defects += [old.defects[-1] + defect] if settings.hops else []
    is_fresh = is_fresh and not reached.moved.any()
    training, bounds, single = versions
    new = Propagated(overlay, settings, train_slots, tuple(hops), training, bounds, tuple(defects), is_fresh)
    if single is not None:
        vars(new)["single"] = single
    return new


def _attribute_difference(old: Propagated, overlay: Overlay, change: SlotChange) -> Difference:
    """Of the attributes, and of the slots with another degree."""
    slots = np.union1d(change.altered, change.relinked)
    scale_rows = old.settings.scale_rows
    values = attributes(overlay, slots, scale_rows=scale_rows)
    values *= inverse_root_degrees(overlay.adjacency, slots)[:, None]
    before = attributes(old.overlay, slots, scale_rows=scale_rows)
    values -= before * inverse_root_degrees(change.before, slots)[:, None]
    return Difference(slots, values)


@dataclass(frozen=True, eq=False, repr=False)
class Reached:
    """The rows of the next power that a deletion changes: some are computed anew, to others differences are added."""

    slots: np.ndarray  # ascending
    moved: np.ndarray  # to which of them differences are added
    terms: np.ndarray  # of these: how many
    lists: sp.csr_matrix  # of these: which

    @classmethod
    def anew(cls, slots: np.ndarray) -> Reached:
        """All of them computed anew."""
        return cls(slots, np.zeros(slots.size, dtype=bool), np.zeros(0, dtype=np.int64), sp.csr_matrix((0, 0)))

    @classmethod
    def of(
        cls, adjacency: Adjacency, change: SlotChange, senders: np.ndarray, *, only: np.ndarray | None = None
    ) -> Reached | None:
        """Who receives from these senders, among `only` if that is given, and the slots whose own list changed.

        None if so many entries change that propagating anew is cheaper.
        """
        pairs = _Pairs.of(adjacency, senders, change.relinked, only)
        if pairs is None:
            return None
        own = change.relinked if only is None else np.intersect1d(change.relinked, only, assume_unique=True)
        lengths = adjacency.count(pairs.receivers)
        if lengths.sum() <= FEW_ENTRIES:
            return cls.anew(np.union1d(own, pairs.receivers))
        by_difference = lengths > CHEAP * pairs.counts
        slots = np.union1d(own, pairs.receivers)
        moved = np.zeros(slots.size, dtype=bool)
        moved[np.searchsorted(slots, pairs.receivers[by_difference])] = True
        lists = pairs.lists(by_difference, senders.size)
        return cls(slots, moved, pairs.counts[by_difference], lists)

    @property
    def fresh(self) -> np.ndarray:
        """The slots that are computed anew."""
        return self.slots[~self.moved]

    @cached_property
    def _moved_before(self) -> np.ndarray:
        return np.concatenate([[0], self.moved.cumsum()])

    def places(self, block: slice) -> tuple[slice, slice]:
        """The places of a block's rows among those that are computed anew, and among the others."""
        first, last = self._moved_before[block.start], self._moved_before[block.stop]
        return slice(block.start - first, block.stop - last), slice(first, last)

    def sums(self, places: slice, difference: np.ndarray) -> np.ndarray:
        """For these of the moved rows, the sum of the differences that reach them."""
        indptr = self.lists.indptr[places.start : places.stop + 1]
        entries = slice(indptr[0], indptr[-1])
        parts = (self.lists.data[entries], self.lists.indices[entries], indptr - indptr[0])
        sums: np.ndarray = sp.csr_matrix(parts, shape=(indptr.size - 1, difference.shape[0])) @ difference
        return sums


def _next_power(
    old: Propagated,
    overlay: Overlay,
    change: SlotChange,
    reached: Reached,
    difference: Difference,
    hops: list[VersionedRows],
) -> tuple[VersionedRows, Difference, float]:
    """The next of the powers that are held for all slots, where it differs, and what that adds to its defect."""
    adjacency, slots = overlay.adjacency, reached.slots
    scale, scale_before = (inverse_root_degrees(part, slots) for part in (adjacency, change.before))
    values = _anew(overlay, reached.fresh, hops, scale_rows=old.settings.scale_rows)
    changes = np.empty((slots.size, values.shape[1]))
    bounds = np.empty(reached.terms.size)

    def following(block: slice, stood: np.ndarray) -> np.ndarray:
        (fresh, others), moved = reached.places(block), reached.moved[block]
        rows = np.empty_like(stood)
        rows[~moved] = values[fresh]
        if moved.any():
            added = reached.sums(others, difference.values)
            added *= scale[block][moved, None]
            added += stood[moved]
            bounds[others] = stood[moved, -1] + added[:, -1]
            rows[moved] = added
        np.multiply(rows, scale[block, None], out=changes[block])
        changes[block] -= stood * scale_before[block, None]
        return rows

    version = old.hops[len(hops)].changed(slots, following)
    defect = fresh_defect(adjacency.count(reached.fresh), values[:, -1])
    return version, Difference(slots, changes), defect + difference_defect(reached.terms, bounds)


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

    def lists(self, some: np.ndarray, senders: int) -> sp.csr_matrix:
        """For some of the receivers, which senders each has."""
        rank = some.cumsum() - 1
        stays = some[self.place]
        place, sender = rank[self.place[stays]], self.sender[stays]
        return sp.csr_matrix((np.ones(place.size), (place, sender)), shape=(int(some.sum()), senders))


def _anew(overlay: Overlay, slots: np.ndarray, hops: list[VersionedRows], *, scale_rows: bool) -> np.ndarray:
    """The next power of these slots, from the powers that have followed already."""
    if not hops:
        return recomputed_from_attributes(overlay, slots, scale_rows=scale_rows)
    return recomputed(overlay.adjacency, slots, hops[-1].array())


def _training_rows(
    old: Propagated,
    overlay: Overlay,
    change: SlotChange,
    train_slots: np.ndarray,
    reached: Reached,
    difference: Difference,
    hops: list[VersionedRows],
) -> tuple[tuple[VersionedRows, VersionedRows, VersionedRows | None], float]:
    """The features of the training nodes, their bounds, and the features in float32 if those were in use.

    Beside them what the last power adds to its defect.
    """
    settings, slots, columns = old.settings, reached.slots, old.overlay.base.shape[1]
    training, bounds, single = _without_deleted(old, train_slots)
    index = np.searchsorted(train_slots, slots)
    norms = bounds.rows(index)
    of_moved = norms[reached.moved, -1]
    scale = inverse_root_degrees(overlay.adjacency, slots)
    if settings.hops:
        values = _anew(overlay, reached.fresh, hops, scale_rows=settings.scale_rows)
    else:
        values = attributes(overlay, reached.fresh, scale_rows=settings.scale_rows)
    norms[~reached.moved, -1] = values[:, -1]

    def following(block: slice, stood: np.ndarray) -> np.ndarray:
        (fresh, others), moved = reached.places(block), reached.moved[block]
        rows = stood.copy()
        _set_earlier_powers(rows, norms[block], overlay, settings, change, slots[block], hops)
        last = rows[:, -columns:]
        last[~moved] = settings.scales[-1] * values[fresh, :-1]
        if moved.any():
            added = reached.sums(others, difference.values)
            added *= scale[block][moved, None]
            last[moved] += settings.scales[-1] * added[:, :-1]
            norms[block][moved, -1] += added[:, -1]
        return rows

    training = training.changed(index, following)
    defect = fresh_defect(overlay.adjacency.count(reached.fresh), values[:, -1])
    defect += difference_defect(reached.terms, of_moved + norms[reached.moved, -1])
    if single is not None:
        single = single.changed(index, lambda block, _: training.array()[index[block]].astype(np.float32))
    return (training, bounds.updated(index, norms), single), defect


def _set_earlier_powers(
    rows: np.ndarray,
    norms: np.ndarray,
    overlay: Overlay,
    settings: Settings,
    change: SlotChange,
    slots: np.ndarray,
    hops: list[VersionedRows],
) -> None:
    """Sets the blocks of all powers but the last in the features of these slots. Attributes change where named."""
    columns = overlay.base.shape[1]
    for place, (hop, scale) in enumerate(zip(settings.powers[:-1], settings.scales, strict=False)):
        some = slice(None) if hop else np.flatnonzero(np.isin(slots, change.altered, assume_unique=True))
        if hop:
            power = hops[hop - 1].array()[slots]
        else:
            power = attributes(overlay, slots[some], scale_rows=settings.scale_rows)
        rows[some, place * columns : (place + 1) * columns] = scale * power[:, :-1]
        norms[some, place] = power[:, -1]


def _without_deleted(
    old: Propagated, train_slots: np.ndarray
) -> tuple[VersionedRows, VersionedRows, VersionedRows | None]:
    """What is held of the training nodes that stay."""
    single = vars(old).get("single")
    if train_slots.size == old.train_slots.size:
        return old.training, old.bounds, single
    gone = np.flatnonzero(~np.isin(old.train_slots, train_slots, assume_unique=True))
    training, bounds = (VersionedRows(without_rows(part.array(), gone)) for part in (old.training, old.bounds))
    return training, bounds, None if single is None else VersionedRows(without_rows(single.array(), gone))
