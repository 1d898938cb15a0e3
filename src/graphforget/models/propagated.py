"""Propagated attributes of a graph that follow a deletion at the cost of what it changes (docs/maths.md, section 16).

With `H_0 = X` (rows scaled) and `S = D^-1/2 (A + I) D^-1/2`, the features are made of `H_{k+1} = S H_k`. `H_1` to
`H_{K-1}` are held for all nodes and `H_K` for the training nodes alone. Everything is in the slots of the overlay.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from graphforget.graph.adjacency import Adjacency
from graphforget.graph.overlay import Overlay
from graphforget.linalg.neighbour_sums import neighbour_sums
from graphforget.linalg.sparse import LONGER, SHORT
from graphforget.linalg.versioned import VersionedRows, exclusive
from graphforget.models.defects import UNIT, fresh_defect, gamma

BLOCK = 2**16  # slots
FEW = 16  # one in so many of the slots
COLUMNS = 8192  # as many as numpy reads at once


@dataclass(frozen=True)
class Settings:
    """What is computed: `[c_h S^h X]` over the powers `h`."""

    powers: tuple[int, ...]
    scales: tuple[float, ...]
    scale_rows: bool

    @property
    def hops(self) -> int:
        return self.powers[-1]


@dataclass(frozen=True, eq=False, repr=False)
class Propagated:
    """`H_1 .. H_{K-1}` of all slots, and the features of the training nodes, of one graph.

    The last column of every matrix is the same sum over the norms of the attributes: a bound on the norm of the row,
    all numbers that it comes from taken in absolute value.
    """

    overlay: Overlay
    settings: Settings
    train_slots: np.ndarray
    hops: tuple[VersionedRows, ...]  # H_1 .. H_{K-1}
    training: VersionedRows  # m x (powers x columns): the features of the training nodes
    bounds: VersionedRows  # m x powers: bounds on the norms of their blocks
    defects: tuple[float, ...]  # of each power 0 .. K: a bound on ||H_k - S H_{k-1}||_F, as computed
    is_fresh: bool = True  # bit for bit what propagating the graph anew gives: no difference was ever added

    @cached_property
    @exclusive
    def single(self) -> VersionedRows:
        """The features of the training nodes in float32."""
        return VersionedRows(self.training.array().astype(np.float32))

    @property
    def error(self) -> float:
        """A bound on the Frobenius norm of the rounding error of all features.

        `H_k` is off by at most the sum of the defects up to `k`, because `||S||_2 <= 1`.
        """
        return summed_defects(self.settings, self.defects) + 2 * UNIT * self._size  # the scales round once more

    @cached_property
    @exclusive
    def _size(self) -> float:
        """At least the Frobenius norm of the features of the training nodes."""
        return float(np.linalg.norm(self.bounds.array() * np.abs(self.settings.scales)))

    # -- all nodes -----------------------------------------------------------------------------------------------

    @exclusive
    def power(self, hop: int, slots: np.ndarray) -> np.ndarray:
        """`H_hop` of these slots, with the bounds as its last column."""
        if hop == 0:
            return attributes(self.overlay, slots, scale_rows=self.settings.scale_rows)
        if hop <= len(self.hops):
            return self.hops[hop - 1].rows(slots)
        if hop == 1:
            return recomputed_from_attributes(self.overlay, slots, scale_rows=self.settings.scale_rows)
        return recomputed(self.overlay.adjacency, slots, self.hops[-1].array())

    @exclusive
    def features(self, slots: np.ndarray) -> np.ndarray:
        """The features of these slots."""
        settings = self.settings
        blocks = zip(settings.powers, settings.scales, strict=True)
        return np.concatenate([scale * self.power(hop, slots)[:, :-1] for hop, scale in blocks], axis=1)

    def bounds_of(self, slots: np.ndarray) -> np.ndarray:
        """Bounds on the norms of the blocks of these slots, a column a power, without the scales."""
        return np.stack([self._bounds(hop, slots) for hop in self.settings.powers], axis=1)

    @exclusive
    def _bounds(self, hop: int, slots: np.ndarray) -> np.ndarray:
        if 1 < hop > len(self.hops):
            last: np.ndarray = recomputed(self.overlay.adjacency, slots, self.hops[-1].array()[:, -1:])
            return last[:, 0]
        return self.power(hop, slots)[:, -1]

    @exclusive
    def logits(self, weight: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """`sum_h c_h S^h X W_h` of these rows of the graph; `weight` is powers x columns x classes."""
        settings, slots = self.settings, self.overlay.slots_of(rows)
        total = np.zeros((slots.size, weight.shape[2]), dtype=np.float64)
        for place, (hop, scale) in enumerate(zip(settings.powers, settings.scales, strict=True)):
            if hop > len(self.hops) and FEW * slots.size > self.overlay.num_slots:
                # Of many nodes, few classes travel cheaper than many columns.
                total += scale * self._last_logits(weight[place], slots)
                continue
            for start in range(0, slots.size, BLOCK):
                block = slots[start : start + BLOCK]
                total[start : start + BLOCK] += scale * (self.power(hop, block)[:, :-1] @ weight[place])
        return total

    def _last_logits(self, weight: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """`S (H_{K-1} W)`."""
        carried = np.empty((self.overlay.num_slots, weight.shape[1]))
        for start in range(0, carried.shape[0], BLOCK):
            block = np.arange(start, min(start + BLOCK, carried.shape[0]))
            carried[block] = self.power(self.settings.hops - 1, block)[:, :-1] @ weight
        return recomputed(self.overlay.adjacency, slots, carried)


@dataclass(frozen=True, eq=False, repr=False)
class PropagatedFeatures:
    """Propagated attributes as the first input of a model, in one precision."""

    propagated: Propagated
    dtype: torch.dtype = torch.float64
    rows: np.ndarray | None = None  # for which `logits` computes; None: all

    def to(self, dtype: torch.dtype) -> PropagatedFeatures:
        """The same features in another precision."""
        return dataclasses.replace(self, dtype=dtype)

    def only(self, rows: Tensor) -> PropagatedFeatures:
        """The same features, of which `logits` uses those of some rows."""
        return dataclasses.replace(self, rows=rows.numpy())

    @property
    def error(self) -> float:
        """A bound on the rounding error of the features of all training nodes, in the Frobenius norm."""
        return self.propagated.error

    def of_rows(self, rows: Tensor) -> Callable[[], Tensor]:
        """A function that gives the features of these rows; those of the training nodes are there already."""
        propagated, slots = self.propagated, self.propagated.overlay.slots_of(rows.numpy())
        if np.array_equal(slots, propagated.train_slots):
            versions = propagated.single if self.dtype == torch.float32 else propagated.training
            return lambda: torch.from_numpy(versions.array())
        values = torch.from_numpy(propagated.features(slots)).to(self.dtype)
        return lambda: values

    @exclusive
    def row_norms(self, rows: Tensor | None = None) -> Tensor:
        """For each of these rows at least the norm of its features, without that of a bias; for all by default."""
        propagated = self.propagated
        overlay = propagated.overlay
        count = overlay.num_slots if overlay.slots is None else overlay.slots.size
        slots = overlay.slots_of(np.arange(count) if rows is None else rows.numpy())
        known = np.array_equal(slots, propagated.train_slots)
        bounds = propagated.bounds.array() if known else propagated.bounds_of(slots)
        return torch.from_numpy(np.linalg.norm(bounds * np.abs(propagated.settings.scales), axis=1) + self.error)

    @exclusive
    def logits(self, weight: Tensor) -> Tensor:
        """`sum_h c_h S^h X W_h` of all rows of the graph, or of `rows`."""
        overlay = self.propagated.overlay
        count = overlay.num_slots if overlay.slots is None else overlay.slots.size
        rows = np.arange(count) if self.rows is None else self.rows
        values = self.propagated.logits(weight.detach().double().numpy(), rows)
        return torch.from_numpy(values).to(weight.dtype)


def attributes(overlay: Overlay, slots: np.ndarray | slice, *, scale_rows: bool) -> np.ndarray:
    """`H_0` of these slots in float64, with the norm of each row as its last column."""
    return scaled_attributes(overlay.attributes(slots), scale_rows=scale_rows)


def scaled_attributes(part: np.ndarray, *, scale_rows: bool) -> np.ndarray:
    """`H_0` of rows with these attributes in float64, with the norm of each row as its last column."""
    out = np.empty((part.shape[0], part.shape[1] + 1))
    out[:, :-1] = part
    if scale_rows and part.dtype == np.float64:
        small = np.abs(part).max(axis=1) < SHORT
        out[small, :-1] *= LONGER  # a power of two: the scaled row is the same, and squares do not underflow
    norms = np.sqrt(_squared_norms(out[:, :-1]))
    if scale_rows:
        out[:, :-1] /= np.where(norms > 0, norms, 1)[:, None]
        norms = (norms > 0).astype(np.float64)
    out[:, -1] = norms
    return out


def _squared_norms(rows: np.ndarray) -> np.ndarray:
    """Of each row. numpy adds up a longer row in another order if it is alone."""
    total = np.zeros(rows.shape[0])
    for start in range(0, rows.shape[1], COLUMNS):
        part = rows[:, start : start + COLUMNS]
        total += np.einsum("ij,ij->i", part, part)
    return total


def all_attributes(overlay: Overlay, settings: Settings) -> np.ndarray:
    """`H_0` of all slots."""
    out = np.empty((overlay.num_slots, overlay.base.shape[1] + 1))
    for start in range(0, overlay.num_slots, BLOCK):
        out[start : start + BLOCK] = attributes(
            overlay, slice(start, min(start + BLOCK, overlay.num_slots)), scale_rows=settings.scale_rows
        )
    return out


def inverse_root_degrees(adjacency: Adjacency, slots: np.ndarray) -> np.ndarray:
    """`D^-1/2` of these slots; a self-loop counts once."""
    return 1 / np.sqrt(adjacency.count(slots) + ~adjacency.loops[slots])


def recomputed(adjacency: Adjacency, slots: np.ndarray, previous: np.ndarray) -> np.ndarray:
    """`(S H)[slots]` from all rows of `H`, as a propagation of the whole graph computes it, to the last bit."""
    counts, senders = adjacency.lists(slots)
    every = adjacency.num_rows // 4 < senders.size
    of_all = inverse_root_degrees(adjacency, np.arange(adjacency.num_rows)) if every else None
    indptr = np.concatenate([[0], counts.cumsum()])
    sums = neighbour_sums(
        indptr, senders, lambda i: inverse_root_degrees(adjacency, i) if of_all is None else of_all[i], previous
    )
    return with_own_rows(sums, previous[slots], adjacency, slots)


def recomputed_from_attributes(overlay: Overlay, slots: np.ndarray, *, scale_rows: bool) -> np.ndarray:
    """`(S H_0)[slots]`, reading the attributes that it needs alone."""
    adjacency = overlay.adjacency
    counts, senders = adjacency.lists(slots)
    needed, place = np.unique(np.concatenate([senders, slots]), return_inverse=True)
    values = attributes(overlay, needed, scale_rows=scale_rows)
    scale = inverse_root_degrees(adjacency, needed)
    indptr = np.concatenate([[0], counts.cumsum()])
    sums = neighbour_sums(indptr, place[: senders.size].astype(np.int32), lambda i: scale[i], values)
    return with_own_rows(sums, values[place[senders.size :]], adjacency, slots)


def propagated_once(adjacency: Adjacency, previous: np.ndarray) -> np.ndarray:
    """`S H` for all slots."""
    slots = np.arange(adjacency.num_rows)
    scale = inverse_root_degrees(adjacency, slots)
    sums = neighbour_sums(*adjacency.whole(), lambda i: scale[i], previous)
    return with_own_rows(sums, previous, adjacency, slots)


def with_own_rows(sums: np.ndarray, own: np.ndarray, adjacency: Adjacency, slots: np.ndarray) -> np.ndarray:
    """`D^-1/2 (sums + D^-1/2 own)`; a row that is in its own list is not added again. `sums` is changed."""
    scale = inverse_root_degrees(adjacency, slots)
    weights = np.where(adjacency.loops[slots], 0.0, scale)
    for start in range(0, slots.size, BLOCK):  # no temporary as large as the sums
        block = slice(start, start + BLOCK)
        sums[block] += weights[block, None] * own[block]
        sums[block] *= scale[block, None]
    return sums


def propagate(
    overlay: Overlay,
    settings: Settings,
    train_slots: np.ndarray,
    *,
    hops: Sequence[VersionedRows] = (),
    defects: Sequence[float] = (),
    is_fresh: bool = True,
) -> Propagated:
    """Propagates the attributes of the whole graph. The last power is computed for the training nodes alone.

    `hops` are the first powers where they are known already, with the defects of the attributes and of these powers.
    """
    adjacency, columns = overlay.adjacency, overlay.base.shape[1]
    training = np.empty((train_slots.size, len(settings.powers) * columns))
    bounds = np.empty((train_slots.size, len(settings.powers)))
    held, total = list(hops), list(defects) or [_attribute_defect(overlay, settings)]
    if 0 in settings.powers:
        attribute_rows = attributes(overlay, train_slots, scale_rows=settings.scale_rows)
        _set_block(training, bounds, settings, 0, attribute_rows)
    for hop in range(1, settings.hops + 1):
        if hop < settings.hops and hop > len(hops):
            current = propagated_once(adjacency, held[-1].array() if held else all_attributes(overlay, settings))
            held.append(VersionedRows(current))
            total.append(fresh_defect(adjacency.counts, current[:, -1]))
        if hop < settings.hops:
            rows = held[hop - 1].rows(train_slots) if hop in settings.powers else None
        else:
            rows = recomputed(adjacency, train_slots, held[-1].array() if held else all_attributes(overlay, settings))
            total.append(fresh_defect(adjacency.count(train_slots), rows[:, -1]))
        if rows is not None:
            _set_block(training, bounds, settings, hop, rows)
    own = VersionedRows(training), VersionedRows(bounds)
    return Propagated(overlay, settings, train_slots, tuple(held), *own, tuple(total), is_fresh)


def _set_block(training: np.ndarray, bounds: np.ndarray, settings: Settings, hop: int, rows: np.ndarray) -> None:
    """Sets the block of a power. Bounds stand without the scale."""
    place, columns = settings.powers.index(hop), rows.shape[1] - 1
    training[:, place * columns : (place + 1) * columns] = settings.scales[place] * rows[:, :-1]
    bounds[:, place] = rows[:, -1]


# -- rounding --------------------------------------------------------------------------------------------------------


def summed_defects(settings: Settings, defects: Sequence[float]) -> float:
    """A bound on the Frobenius norm of what the defects of all powers add to the features."""
    total = 0.0
    for power, scale in zip(settings.powers, settings.scales, strict=True):
        total += (abs(scale) * sum(defects[: power + 1])) ** 2
    return 1.01 * math.sqrt(total)


def _attribute_defect(overlay: Overlay, settings: Settings) -> float:
    """Of rows that were divided by their norms; rows as they are have none."""
    terms = overlay.base.shape[1] + 5
    return float(gamma(terms)) * math.sqrt(overlay.num_slots) if settings.scale_rows else 0.0
