"""Who sends messages to whom, as lists of senders, with a few lists replaced: what deletions leave of a graph's edges.

A deletion copies no edge that stays. It replaces the lists of the nodes that lost a neighbour, and shares all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from graphforget.linalg.ranges import ranges, row_blocks

ENTRIES = 2**20  # that are looked at together
NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Adjacency:
    """For each row the rows that send to it, in ascending order.

    `indices[indptr[r]:indptr[r + 1]]` are the senders of row `r`, unless `r` is one of the `replaced` rows: then its
    list stands in `new_indices`, in the same way. None of the arrays is ever changed.
    """

    indptr: np.ndarray  # int64
    indices: np.ndarray  # int32
    replaced: np.ndarray = field(default_factory=lambda: NONE)  # rows, ascending
    new_indptr: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    new_indices: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    @classmethod
    def of_edges(cls, edge_index: Tensor, rows: int) -> Adjacency:
        """From edges that are sorted by (target, source), without duplicates."""
        source, target = edge_index.numpy()
        indptr = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(target, minlength=rows), out=indptr[1:])
        return cls(indptr, source.astype(np.int32))

    @property
    def num_rows(self) -> int:
        return self.indptr.size - 1

    @property
    def num_entries(self) -> int:
        """How many edges there are, one for each direction."""
        lost = (self.indptr[self.replaced + 1] - self.indptr[self.replaced]).sum()
        return int(self.indices.size - lost + self.new_indices.size)

    @cached_property
    def counts(self) -> np.ndarray:
        """How many senders each row has."""
        counts = np.diff(self.indptr)
        counts[self.replaced] = np.diff(self.new_indptr)
        return counts

    @cached_property
    def loops(self) -> np.ndarray:
        """Whether each row sends to itself."""
        loops = np.zeros(self.num_rows, dtype=bool)
        for first, last in row_blocks(self.indptr, ENTRIES):
            rows = np.arange(first, last)
            counts, senders = self.lists(rows)
            loops[senders[senders == np.repeat(rows, counts)]] = True
        return loops

    def count(self, rows: np.ndarray) -> np.ndarray:
        """How many senders each of these rows has."""
        counts = self.indptr[rows + 1] - self.indptr[rows]
        place, other = self._places(rows)
        if other.any():
            there = place[other]
            counts[other] = self.new_indptr[there + 1] - self.new_indptr[there]
        return counts

    def lists(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of senders of each of these rows, and their lists one after the other."""
        starts, counts = self.indptr[rows], self.indptr[rows + 1] - self.indptr[rows]
        place, other = self._places(rows)
        if not other.any():
            return counts, self.indices[ranges(starts, counts)]
        there = place[other]
        new_counts = self.new_indptr[there + 1] - self.new_indptr[there]
        counts[other] = new_counts
        ends = counts.cumsum()
        senders = np.empty(int(ends[-1]), dtype=np.int32)
        firsts, same = ends - counts, ~other
        senders[ranges(firsts[same], counts[same])] = self.indices[ranges(starts[same], counts[same])]
        senders[ranges(firsts[other], new_counts)] = self.new_indices[ranges(self.new_indptr[there], new_counts)]
        return counts, senders

    def mark_senders(self, rows: np.ndarray, mask: np.ndarray) -> None:
        """Sets `mask` for all rows that send to any of these, without all their lists at once."""
        ends = np.concatenate([[0], self.count(rows).cumsum()])
        for first, last in row_blocks(ends, ENTRIES):
            mask[self.lists(rows[first:last])[1]] = True

    def holds(self, receivers: np.ndarray, senders: np.ndarray) -> np.ndarray:
        """Whether there is an edge from each sender to the receiver beside it."""
        counts, listed = self.lists(receivers)
        pairs = np.repeat(np.arange(receivers.size), counts)
        present = np.zeros(receivers.size, dtype=bool)
        present[pairs[listed == senders[pairs]]] = True
        return present

    def replacing(self, rows: np.ndarray, counts: np.ndarray, senders: np.ndarray) -> Adjacency:
        """Other lists for these rows, which are ascending."""
        kept = ~np.isin(self.replaced, rows, assume_unique=True)
        earlier = self.replaced[kept]
        earlier_counts = np.diff(self.new_indptr)[kept]
        merged = np.concatenate([earlier, rows])
        lengths = np.concatenate([earlier_counts, counts])
        content = np.concatenate([self.new_indices[ranges(self.new_indptr[:-1][kept], earlier_counts)], senders])
        order = merged.argsort(kind="stable")
        starts = (lengths.cumsum() - lengths)[order]
        indptr = np.zeros(merged.size + 1, dtype=np.int64)
        np.cumsum(lengths[order], out=indptr[1:])
        content = content[ranges(starts, lengths[order])].astype(np.int32, copy=False)
        new = Adjacency(self.indptr, self.indices, merged[order], indptr, content)
        if "loops" in vars(self):  # only these rows can have another one
            loops, owners = self.loops.copy(), np.repeat(rows, counts)
            loops[rows] = False
            loops[owners[owners == senders]] = True
            vars(new)["loops"] = loops
        return new

    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """All lists as one `indptr` and `indices`."""
        if not self.replaced.size:
            return self.indptr, self.indices
        indptr = np.zeros_like(self.indptr)
        np.cumsum(self.counts, out=indptr[1:])
        indices = np.empty(indptr[-1], dtype=np.int32)
        first = 0
        for place, row in enumerate([*self.replaced.tolist(), self.num_rows]):
            indices[indptr[first] : indptr[row]] = self.indices[self.indptr[first] : self.indptr[row]]
            if row < self.num_rows:
                new = self.new_indices[self.new_indptr[place] : self.new_indptr[place + 1]]
                indices[indptr[row] : indptr[row + 1]] = new
            first = row + 1
        return indptr, indices

    def edge_index(self, slots: np.ndarray | None = None) -> Tensor:
        """The edges as a PyG `edge_index`, sorted by (target, source); of these rows only, renumbered, if given."""
        indptr, indices = self.whole()
        counts = np.diff(indptr)
        if slots is None:
            edges = np.empty((2, indices.size), dtype=np.int64)
            edges[0], edges[1] = indices, np.repeat(np.arange(counts.size), counts)
            return torch.from_numpy(edges)
        rank = np.full(counts.size, -1, dtype=np.int64)  # rows that are left out have empty lists and are in no list
        rank[slots] = np.arange(slots.size)
        return torch.from_numpy(np.stack([rank[indices], np.repeat(rank, counts)]))

    def _places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows stand among the replaced ones, and which of them do."""
        if not self.replaced.size:
            return NONE, np.zeros(rows.size, dtype=bool)
        place = np.searchsorted(self.replaced, rows)
        return place, self.replaced[np.minimum(place, self.replaced.size - 1)] == rows
