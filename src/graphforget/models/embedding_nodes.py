"""An undirected graph as the encoders of a stacked model read it, row by row.

The bits of a row that is computed here depend on what that row reads alone: not on the other rows, nor on which rows
are computed with it. So some rows can be computed again, and are what a pass over the whole graph gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.graph.overlay import Overlay
from graphforget.linalg.neighbour_sums import neighbour_sums
from graphforget.linalg.sparse import SparseMatrix, converted, scale_rows_to_unit, to_scipy
from graphforget.models.propagated import attributes, propagated_once, recomputed
from graphforget.models.propagation import mean_adjacency, neighbour_mean_adjacency

NUMBERS = 512  # node numbers in a block of rows that are multiplied together

Slots = np.ndarray | None  # ascending; None: all


class EmbeddingNodes(ABC):
    """The nodes of one graph in slots, of which some may be empty."""

    @property
    @abstractmethod
    def num_slots(self) -> int: ...

    @abstractmethod
    def rows_in(self, values: np.ndarray) -> np.ndarray:
        """Of values with a row for each slot those of the rows of the graph."""

    @abstractmethod
    def rows_of(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slots of these that are not empty, and their rows in the graph."""

    @abstractmethod
    def receivers(self, senders: np.ndarray) -> np.ndarray:
        """These slots, and all that one of them sends to."""

    @abstractmethod
    def share(self, slots: np.ndarray) -> float:
        """How many of all messages these slots get."""

    @abstractmethod
    def product(self, weight: Tensor, slots: Slots = None, *, scale_rows: bool) -> np.ndarray:
        """`X W` of these slots."""

    @abstractmethod
    def propagated(self, values: np.ndarray, slots: Slots = None) -> np.ndarray:
        """`S V` of these slots, from all rows of `V`."""

    @abstractmethod
    def means(self, values: np.ndarray, slots: Slots = None, *, include_self: bool) -> np.ndarray:
        """The mean of the neighbours' rows of `V`, for these slots."""


class SparseNodes(EmbeddingNodes):
    """A graph with sparse attributes. Rows and slots are the same."""

    def __init__(self, graph: Graph, propagation: SparseMatrix, attributes: SparseMatrix, *, scaled: bool) -> None:
        """`propagation` is the normalised adjacency of the graph in float64, `attributes` are its own or scaled."""
        self._x, self._edge_index = graph.x, graph.edge_index  # not the graph, so that it can be freed
        self._propagation = to_scipy(propagation.csr)
        self._attributes = {scaled: to_scipy(attributes.csr)}  # by whether rows are scaled

    @property
    def num_slots(self) -> int:
        return int(self._propagation.shape[0])

    def rows_in(self, values: np.ndarray) -> np.ndarray:
        return values

    def rows_of(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return slots, slots

    def receivers(self, senders: np.ndarray) -> np.ndarray:
        reached = np.zeros(self.num_slots, dtype=bool)
        reached[self._propagation[senders].indices] = True  # with their self-loops
        return np.flatnonzero(reached)

    def share(self, slots: np.ndarray) -> float:
        indptr = self._propagation.indptr
        return float((indptr[slots + 1] - indptr[slots]).sum() / max(indptr[-1], 1))

    def product(self, weight: Tensor, slots: Slots = None, *, scale_rows: bool) -> np.ndarray:
        if scale_rows not in self._attributes:
            x = converted(self._x, dtype=torch.float64, device="cpu")
            self._attributes[scale_rows] = to_scipy(SparseMatrix(scale_rows_to_unit(x) if scale_rows else x).csr)
        return _times(self._attributes[scale_rows], weight.detach().numpy(), slots)

    def propagated(self, values: np.ndarray, slots: Slots = None) -> np.ndarray:
        return _times(self._propagation, values, slots)

    def means(self, values: np.ndarray, slots: Slots = None, *, include_self: bool) -> np.ndarray:
        return _times(self._mean_with_self if include_self else self._mean, values, slots)

    @cached_property
    def _mean(self) -> sp.csr_matrix:
        return to_scipy(neighbour_mean_adjacency(self._edge_index, self.num_slots, dtype=torch.float64).csr)

    @cached_property
    def _mean_with_self(self) -> sp.csr_matrix:
        return to_scipy(mean_adjacency(self._edge_index, self.num_slots, dtype=torch.float64).csr)


def _times(matrix: sp.csr_matrix, values: np.ndarray, slots: Slots) -> np.ndarray:
    """scipy adds up each row in its own order, whatever the other rows are."""
    product: np.ndarray = (matrix if slots is None else matrix[slots]) @ values
    return product


class DenseNodes(EmbeddingNodes):
    """A graph with dense attributes, in the slots of its overlay."""

    def __init__(self, graph: Graph) -> None:
        assert graph.overlay is not None
        self._overlay: Overlay = graph.overlay
        self._numbers = graph.numbers.numpy()

    @property
    def num_slots(self) -> int:
        return self._overlay.num_slots

    def rows_in(self, values: np.ndarray) -> np.ndarray:
        return values if self._overlay.slots is None else values[self._overlay.slots]

    def rows_of(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._overlay.slots is None:
            return slots, slots
        rows = np.minimum(self._overlay.rows_of(slots), self._numbers.size - 1)
        present = self._overlay.slots[rows] == slots
        return slots[present], rows[present]

    def receivers(self, senders: np.ndarray) -> np.ndarray:
        reached = np.zeros(self.num_slots, dtype=bool)
        self._overlay.adjacency.mark_senders(senders, reached)  # who sends to them: the graph is undirected
        reached[senders] = True
        return np.flatnonzero(reached)

    def share(self, slots: np.ndarray) -> float:
        adjacency = self._overlay.adjacency
        return float(adjacency.count(slots).sum() / max(adjacency.indices.size, 1))

    def product(self, weight: Tensor, slots: Slots = None, *, scale_rows: bool) -> np.ndarray:
        """In blocks of node numbers, each with a place for every number: a row's place is its own."""
        weight = weight.detach().clone()  # where memory is aligned
        every = self._overlay.slots_of(np.arange(self._numbers.size))
        numbers, of_rows = self._numbers, every
        if slots is not None:
            of_rows, rows = self.rows_of(slots)
            numbers = numbers[rows]
        out = np.zeros((self.num_slots if slots is None else slots.size, weight.shape[1]))
        place = of_rows if slots is None else np.searchsorted(slots, of_rows)
        starts = np.flatnonzero(np.diff(numbers // NUMBERS, prepend=-1))
        for first, last in pairwise([*starts, numbers.size]):
            block = torch.zeros(NUMBERS, weight.shape[0], dtype=torch.float64)
            inside = numbers[first:last] % NUMBERS
            block.numpy()[inside] = attributes(self._overlay, of_rows[first:last], scale_rows=scale_rows)[:, :-1]
            out[place[first:last]] = (block @ weight).numpy()[inside]
        return out

    def propagated(self, values: np.ndarray, slots: Slots = None) -> np.ndarray:
        adjacency = self._overlay.adjacency
        return propagated_once(adjacency, values) if slots is None else recomputed(adjacency, slots, values)

    def means(self, values: np.ndarray, slots: Slots = None, *, include_self: bool) -> np.ndarray:
        adjacency = self._overlay.adjacency
        listed = np.arange(self.num_slots) if slots is None else slots
        counts, senders = adjacency.lists(listed)
        indptr = np.concatenate([[0], counts.cumsum()])
        sums = neighbour_sums(indptr, senders, lambda i: np.ones(i.size), values)
        if include_self:
            added = ~adjacency.loops[listed]
            sums += np.where(added[:, None], values[listed], 0.0)
            counts = counts + added
        sums /= np.maximum(counts, 1)[:, None]
        return sums
