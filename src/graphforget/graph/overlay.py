"""A graph as what deletions leave of a base: shared arrays, other lists of neighbours, and forgotten attributes.

Nodes lie in the slots of the base. A deleted node leaves its slot empty, without neighbours and with attributes of 0,
so that a deletion renumbers nothing. The rows of the graph are the slots that are not empty.
"""

from __future__ import annotations

import dataclasses
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphforget.graph.adjacency import NONE, Adjacency

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph
    from graphforget.graph.resolved import Resolved

MOST_CHANGED = 0.25  # of slots or edges; beyond this share the graph becomes a base of its own


@dataclass(frozen=True, eq=False, repr=False)
class Overlay:
    """What is left of a base. Nothing in it is ever changed."""

    base: np.ndarray  # attributes, a row a slot
    adjacency: Adjacency  # of slots
    slots: np.ndarray | None = None  # of each row of the graph; None: row and slot are the same
    forgotten: np.ndarray = field(default_factory=lambda: NONE)  # slots whose attributes differ from the base
    values: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # their attributes
    unlabelled: np.ndarray = field(default_factory=lambda: NONE)  # slots whose target was forgotten since the base
    origin: object = None  # the files that the base is mapped from, for who writes them; overlays of a base share it

    @property
    def num_slots(self) -> int:
        return self.adjacency.num_rows

    def slots_of(self, rows: np.ndarray) -> np.ndarray:
        """The slots of these rows of the graph."""
        return rows if self.slots is None else self.slots[rows]

    def rows_of(self, slots: np.ndarray) -> np.ndarray:
        """The rows of these slots, which are not empty."""
        return slots if self.slots is None else np.searchsorted(self.slots, slots)

    def attributes(self, slots: np.ndarray | slice) -> np.ndarray:
        """A copy of the attributes of these slots."""
        part = np.array(self.base[slots])
        if self.forgotten.size:
            listed = np.arange(self.num_slots)[slots] if isinstance(slots, slice) else slots
            place = np.minimum(np.searchsorted(self.forgotten, listed), self.forgotten.size - 1)
            differs = self.forgotten[place] == listed
            part[differs] = self.values[place[differs]]
        return part

    def x(self) -> Tensor:
        """The attributes of all rows of the graph."""
        part = self.attributes(slice(None) if self.slots is None else self.slots)
        return torch.from_numpy(part)

    def edge_index(self) -> Tensor:
        return self.adjacency.edge_index(self.slots)

    @property
    def is_worn(self) -> bool:
        """Whether so much has changed that a base of its own is cheaper."""
        empty = 0 if self.slots is None else self.num_slots - self.slots.size
        changed = self.adjacency.new_indices.size > MOST_CHANGED * max(self.adjacency.indices.size, 1)
        return changed or max(empty, self.forgotten.size) > MOST_CHANGED * self.num_slots


@dataclass(frozen=True, eq=False, repr=False)
class SlotChange:
    """How a deletion changed the overlay of a graph: all slots of which anything differs, ascending."""

    parent: weakref.ref[Graph]
    before: Adjacency
    gone: np.ndarray  # slots of deleted nodes
    relinked: np.ndarray  # slots with other neighbours, the deleted ones included
    altered: np.ndarray  # slots with other attributes, the deleted ones included


def overlay_without(overlay: Overlay, resolved: Resolved, graph: Graph) -> tuple[Overlay, SlotChange]:
    """The overlay without what a request names, at the cost of the lists and rows that change.

    For undirected graphs, where who sends to a node is who receives from it.
    """
    gone = np.unique(overlay.slots_of(resolved.node_rows.numpy()))
    adjacency, relinked = _without_edges(overlay, resolved, gone)
    altered, values = _forgotten(overlay, resolved, gone)
    slots = overlay.slots
    if gone.size:
        slots = np.arange(overlay.num_slots) if slots is None else slots
        slots = np.delete(slots, np.searchsorted(slots, gone))
    kept = ~np.isin(overlay.forgotten, altered, assume_unique=True)
    merged = np.concatenate([overlay.forgotten[kept], altered])
    order = merged.argsort()
    earlier = overlay.values[kept] if overlay.forgotten.size else values[:0]
    after = dataclasses.replace(
        overlay,
        adjacency=adjacency,
        slots=slots,
        forgotten=merged[order],
        values=np.concatenate([earlier, values])[order],
        unlabelled=np.setdiff1d(
            np.union1d(overlay.unlabelled, overlay.slots_of(resolved.label_rows.numpy())), gone, assume_unique=True
        ),
    )
    return after, SlotChange(weakref.ref(graph), overlay.adjacency, gone, relinked, altered)


def _without_edges(overlay: Overlay, resolved: Resolved, gone: np.ndarray) -> tuple[Adjacency, np.ndarray]:
    """The adjacency without the named edges and those of deleted nodes, and the slots whose lists change."""
    before = overlay.adjacency
    named = overlay.slots_of(resolved.edges.numpy())  # senders and receivers, in both directions
    counts, neighbours = before.lists(gone)
    receivers = np.concatenate([named[1], neighbours.astype(np.int64)])
    senders = np.concatenate([named[0], np.repeat(gone, counts)])
    relinked = np.unique(np.concatenate([receivers, gone]))
    if not relinked.size:
        return before, relinked
    lengths, listed = before.lists(relinked)
    owner = np.repeat(relinked, lengths)
    n = before.num_rows
    keeps = ~np.isin(owner * n + listed, np.unique(receivers * n + senders))
    if gone.size:
        keeps &= ~np.isin(owner, gone)
    new_lengths = np.bincount(np.searchsorted(relinked, owner[keeps]), minlength=relinked.size)
    return before.replacing(relinked, new_lengths, listed[keeps]), relinked


def _forgotten(overlay: Overlay, resolved: Resolved, gone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The slots whose attributes the request names, with those of deleted nodes, and their new attributes."""
    full = overlay.slots_of(resolved.full_rows.numpy())
    partial = overlay.slots_of(resolved.partial_rows.numpy())
    altered = np.unique(np.concatenate([gone, full, partial]))
    values = overlay.attributes(altered)
    values[np.searchsorted(altered, partial), resolved.partial_columns.numpy()] = 0
    values[np.searchsorted(altered, np.concatenate([full, gone]))] = 0
    return altered, values
