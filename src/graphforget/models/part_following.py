"""How the features of one rank's rows follow a deletion: differences of changed rows cross the wire, and little else.

With `g_j` the rows of `D^-1/2 H_k` that differ before and after, a row whose own list and degree stay is

    H'_{k+1}[r] = H_{k+1}[r] + D_r^-1/2 sum over these j that send to r of (g'_j - g_j)

A row whose list changed is computed anew, from rows that its rank asks for. So is a row whose carried rounding error
is over `MOST_CARRIED` times that of a new one. Differences are added by ascending number of their senders, on whichever
rank, so the number of ranks changes no bit (docs/maths.md, section 17).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graphforget.distributed.group import Group
from graphforget.graph.row_part import TRAIN, Changed, RowPart
from graphforget.models.defects import difference_defects, fresh_defects
from graphforget.models.part_features import COLUMNS, PartFeatures, own_rows, recomputed
from graphforget.models.propagated import scaled_attributes

MOST_CARRIED = 32  # times the bound of a row that is computed anew
PURPOSE = "request"


@dataclass(eq=False)
class Followed:
    """What a deletion changed of the features: rows of each hop, places of training rows, and training rows in all."""

    hops: list[np.ndarray]
    training: np.ndarray
    affected: int


@dataclass(frozen=True, eq=False)
class Difference:
    """Where `D^-1/2 H_k` of rows of this part differs after a deletion, and by how much."""

    rows: np.ndarray  # ascending
    values: np.ndarray


def follow_part(part: RowPart, features: PartFeatures, change: Changed, group: Group) -> Followed:
    """Brings the features after a deletion. Every rank calls it."""
    settings, changed = features.settings, []
    difference = _attribute_difference(part, features, change)
    for hop in range(1, settings.hops):
        difference = _next_power(part, features, change, difference, hop, group)
        changed.append(np.union1d(difference.rows, change.gone))
    if settings.hops:
        train = _last_power(part, features, change, difference, group)
    else:
        train = np.intersect1d(change.altered, part.rows_with(TRAIN), assume_unique=True)
    places = np.searchsorted(features.train_rows, train)
    for hop in range(settings.hops or 1):
        features.set_training(hop, places, own_rows(part, features, hop, train))
    gone = np.flatnonzero(part.roles[features.train_rows] != TRAIN)  # deleted, or without a label
    gone = gone[features.bounds[gone].any(axis=1)]
    features.training[gone], features.bounds[gone] = 0, 0
    if settings.hops:
        features.defects[-1][gone] = 0
    return Followed(changed, np.union1d(places, gone), int(train.size))


def _attribute_difference(part: RowPart, features: PartFeatures, change: Changed) -> Difference:
    """Of the attributes, and of the rows with another degree."""
    rows = np.union1d(change.altered, _relinked(part, change))
    values = own_rows(part, features, 0, rows)
    before = values.copy()
    altered = np.searchsorted(rows, change.altered)
    before[altered] = scaled_attributes(change.attributes_before, scale_rows=features.settings.scale_rows)
    return _scaled_difference(part, change, rows, values, before)


def _scaled_difference(
    part: RowPart, change: Changed, rows: np.ndarray, values: np.ndarray, before: np.ndarray
) -> Difference:
    """`D^-1/2` times these values, minus the same before; both arrays are changed."""
    degrees = part.degrees(rows)
    values /= np.sqrt(degrees)[:, None]
    _, mine, of_change = np.intersect1d(rows, change.relinked, assume_unique=True, return_indices=True)
    degrees[mine] = change.degrees_before[of_change]
    before /= np.sqrt(degrees)[:, None]
    values -= before
    return Difference(rows, values)


def _relinked(part: RowPart, change: Changed) -> np.ndarray:
    """The rows with other neighbours that stay."""
    return change.relinked[part.there[change.relinked]]


def _next_power(
    part: RowPart, features: PartFeatures, change: Changed, difference: Difference, hop: int, group: Group
) -> Difference:
    """Brings `H_hop` of all rows after the deletion, and gives where it differs."""
    arrival = Arrival.of(part, difference.rows, group)
    held, defects = features.hops[hop - 1], features.defects[hop - 1]
    rows = np.union1d(arrival.rows, _relinked(part, change))
    before = np.array(held[rows])
    anew = _computed_anew(part, change, rows, before[:, -1], defects[rows])
    values, moved = before.copy(), ~anew
    added = arrival.differences(rows[moved], part, difference, group)
    scale = 1 / np.sqrt(part.degrees(rows[moved]))[:, None]
    for some, sums in added.blocks:
        values[moved, some] += scale * sums
    for some, sums in recomputed(
        part, rows[anew], lambda i: own_rows(part, features, hop - 1, i), group, purpose=PURPOSE
    ):
        values[anew, some] = sums
    held[rows], held[change.gone] = values, 0
    defects[rows[moved]] += difference_defects(added.terms, before[moved, -1] + values[moved, -1])
    defects[rows[anew]] = fresh_defects(part.counts[rows[anew]], values[anew, -1])
    defects[change.gone] = 0
    return _scaled_difference(part, change, rows, values, before)


def _last_power(
    part: RowPart, features: PartFeatures, change: Changed, difference: Difference, group: Group
) -> np.ndarray:
    """Brings the last power of the training rows after the deletion, and gives those that it reaches."""
    settings, columns, defects = features.settings, part.attributes.shape[1], features.defects[-1]
    arrival = Arrival.of(part, difference.rows, group)
    rows = np.intersect1d(np.union1d(arrival.rows, _relinked(part, change)), part.rows_with(TRAIN), assume_unique=True)
    places = np.searchsorted(features.train_rows, rows)
    before = np.array(features.bounds[places, -1])
    anew = _computed_anew(part, change, rows, before, defects[places])
    moved, start = places[~anew], features.training.shape[1] - columns
    added = arrival.differences(rows[~anew], part, difference, group)
    scale = 1 / np.sqrt(part.degrees(rows[~anew]))[:, None]
    for some, sums in added.blocks:
        sums *= scale
        width = min(some.stop, columns) - some.start
        features.training[moved, start + some.start : start + some.start + width] += (
            settings.scales[-1] * sums[:, :width]
        )
        if some.stop > columns:
            features.bounds[moved, -1] += sums[:, -1]
    previous = settings.hops - 1
    for some, sums in recomputed(
        part, rows[anew], lambda i: own_rows(part, features, previous, i), group, purpose=PURPOSE
    ):
        features.set_training(settings.hops, places[anew], sums, some.start)
    defects[moved] += difference_defects(added.terms, before[~anew] + features.bounds[moved, -1])
    defects[places[anew]] = fresh_defects(part.counts[rows[anew]], features.bounds[places[anew], -1])
    return rows


def _computed_anew(
    part: RowPart, change: Changed, rows: np.ndarray, bounds: np.ndarray, defects: np.ndarray
) -> np.ndarray:
    """A mask of the rows that are computed anew: those with another list, and those that carry too much rounding."""
    worn = defects > MOST_CARRIED * fresh_defects(part.counts[rows], bounds)
    mask: np.ndarray = np.isin(rows, change.relinked, assume_unique=True) | worn
    return mask


# -- what crosses the wire -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Added:
    """Sums of differences for some rows: how many terms each has, and the sums, some columns at a time."""

    terms: np.ndarray
    blocks: Iterator[tuple[slice, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Arrival:
    """Which rows of this part receive from rows that differ, on any rank, and who is to send."""

    senders: list[np.ndarray]  # for each rank: places of this part's senders that have receivers there
    counts: list[np.ndarray]  # of each rank's senders: how many rows of this part receive
    receivers: list[np.ndarray]  # of each rank's senders, one after the other: these rows

    @classmethod
    def of(cls, part: RowPart, senders: np.ndarray, group: Group) -> Arrival:
        """Tells each rank which of its rows are neighbours of these rows of this part. Every rank calls it."""
        counts, listed = part.lists(senders)
        itself = np.flatnonzero(~part.loops(senders))
        place = np.concatenate([np.repeat(np.arange(senders.size), counts), itself])
        number = np.concatenate([listed.astype(np.int64), senders[itself] + part.start])
        owners = part.ranges.owners(number)
        sending, how_many, to = [], [], []
        for rank in range(group.size):
            mine = np.flatnonzero(owners == rank)
            mine = mine[place[mine].argsort(kind="stable")]
            some, number_of = np.unique(place[mine], return_counts=True)
            sending.append(some)
            how_many.append(number_of.astype(np.int32))
            to.append((number[mine] - part.ranges.starts[rank]).astype(np.int32))
        return cls(sending, group.exchange(how_many, purpose=PURPOSE), group.exchange(to, purpose=PURPOSE))

    @property
    def rows(self) -> np.ndarray:
        """All rows of this part that receive, ascending."""
        return np.unique(np.concatenate(self.receivers)).astype(np.int64)

    def differences(self, rows: np.ndarray, part: RowPart, difference: Difference, group: Group) -> Added:
        """The sums of the differences that these rows receive, which are all the others send. Every rank calls it.

        A rank asks for the senders that it needs, and gets those whose difference is not 0.
        """
        index = np.full(part.num_rows, -1)
        index[rows] = np.arange(rows.size)
        pairs = [
            (np.repeat(np.arange(counts.size), counts), index[receivers])
            for counts, receivers in zip(self.counts, self.receivers, strict=True)
        ]
        pairs = [(sender[place >= 0], place[place >= 0]) for sender, place in pairs]
        needed = [np.zeros(counts.size, dtype=np.uint8) for counts in self.counts]
        for mask, (sender, _) in zip(needed, pairs, strict=True):
            mask[sender] = 1
        asked = group.exchange(needed, purpose=PURPOSE)
        differs = (difference.values != 0).any(axis=1)
        sent = [np.flatnonzero((mask == 1) & differs[some]) for mask, some in zip(asked, self.senders, strict=True)]
        got = group.exchange([places.astype(np.int32) for places in sent], purpose=PURPOSE)
        rows_sent = [some[places] for some, places in zip(self.senders, sent, strict=True)]
        terms = np.bincount(np.concatenate([place for _, place in pairs]), minlength=rows.size)
        lists = self._lists(pairs, got, rows.size)
        return Added(terms, _sums(lists, [difference.values[some] for some in rows_sent], group))

    def _lists(self, pairs: list[tuple[np.ndarray, np.ndarray]], got: list[np.ndarray], size: int) -> sp.csr_matrix:
        """Which of the rows that come each receiver adds. They come by ascending number of their senders."""
        coming = sum(places.size for places in got)
        at, receiver, first = [], [], 0
        for counts, places, (sender, place) in zip(self.counts, got, pairs, strict=True):
            order = np.full(counts.size, -1)
            order[places] = first + np.arange(places.size)
            first += places.size
            stays = order[sender] >= 0
            at.append(order[sender[stays]])
            receiver.append(place[stays])
        columns, rows = np.concatenate(at), np.concatenate(receiver)
        return sp.csr_matrix((np.ones(columns.size), (rows, columns)), shape=(size, coming))


def _sums(lists: sp.csr_matrix, sent: list[np.ndarray], group: Group) -> Iterator[tuple[slice, np.ndarray]]:
    """Exchanges the rows, some columns at a time, and adds them up for each receiver."""
    width = sent[0].shape[1]
    for first in range(0, width, COLUMNS):
        some = slice(first, min(first + COLUMNS, width))
        parts = group.exchange([np.ascontiguousarray(rows[:, some]) for rows in sent], purpose=PURPOSE)
        yield some, lists @ np.concatenate(parts)
