"""Lazy propagation by forward push: sums over neighbours that are only carried on where they exceed a threshold.

The exact sums are `y^0 = d^(1/2) x` and `y^k(v) = sum over neighbours u of y^(k-1)(u) / d(u)`, so that
`d^(-1/2) y^K` is `S^K x` with `S = D^-1/2 A D^-1/2`. A state holds, for each layer, reserves `q` and residues `r` with

    q^0 + r^0 = d^(1/2) x          q^k + r^k = sum over neighbours u of q^(k-1)(u) / d(u)

and every residue is at most the threshold. What is pushed moves from the residue to the reserve and on to the
neighbours' residues. All columns are pushed at once. `A` is symmetric and has every self-loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from graphforget.linalg.ranges import ranges


@dataclass(frozen=True, eq=False)
class PushState:
    """Reserves of the layers 0 to K and residues of the layers 0 to K - 1; the last layer has none left."""

    adjacency: sp.csr_matrix
    degrees: np.ndarray
    reserves: tuple[np.ndarray, ...]
    residues: tuple[np.ndarray, ...]
    threshold: float

    @cached_property
    def features(self) -> np.ndarray:
        """`S^K x`, up to what the residues hold back."""
        return self.reserves[-1] / np.sqrt(self.degrees)[:, None]

    @cached_property
    def absolute_residues(self) -> np.ndarray:
        """For each column at least `sum over nodes of |error of the features|`.

        The error of `y^K` is `sum_k (A D^-1)^(K-k) r^k`. The columns of `A D^-1` sum to 1, so no step makes the sum of
        absolute values larger, and no degree is below 1.
        """
        return sum((np.abs(each).sum(axis=0) for each in self.residues), np.zeros(self.reserves[0].shape[1]))

    @property
    def signed_residues(self) -> np.ndarray:
        """The sum of all residues in each column, in which they can cancel. It bounds nothing."""
        return sum((each.sum(axis=0) for each in self.residues), np.zeros(self.reserves[0].shape[1]))


@dataclass(frozen=True, eq=False)
class Removal:
    """What goes, in rows of the graph before: removed nodes, pairs that are adjacent no more, and new attributes."""

    keep: np.ndarray  # a mask over the rows
    lost: np.ndarray  # 2 x k: the row of a node that stays, and of the neighbour that it loses
    changed: np.ndarray  # rows whose attributes differ afterwards, among those that stay
    attributes: np.ndarray  # of these rows


def push_anew(adjacency: sp.csr_matrix, x: np.ndarray, *, layers: int, threshold: float) -> PushState:
    """The state of a graph without any history."""
    degrees = np.diff(adjacency.indptr).astype(np.float64)
    residues = [x * np.sqrt(degrees)[:, None], *(np.zeros_like(x) for _ in range(layers))]
    reserves = [np.zeros_like(x) for _ in range(layers + 1)]
    everywhere = np.arange(x.shape[0])
    return _pushed(adjacency, degrees, reserves, residues, everywhere, threshold)


def push_removal(state: PushState, removal: Removal, adjacency: sp.csr_matrix) -> PushState:
    """The state of the graph after a removal, whose `adjacency` has only the rows that stay.

    A node that loses neighbours keeps its ratio of reserve to degree, so that no other node's sum changes. What its own
    sums lose goes to its residues and is pushed. The state before is left as it is.
    """
    keep, old = removal.keep, state.degrees
    losers, place = np.unique(removal.lost[0], return_inverse=True)
    degrees = np.diff(adjacency.indptr).astype(np.float64)
    row_after = np.cumsum(keep) - 1
    ratio = (degrees[row_after[losers]] / old[losers])[:, None]
    gone, column = np.unique(removal.lost[1], return_inverse=True)
    sums = sp.csr_matrix((np.ones(place.size), (place, column)), shape=(losers.size, gone.size))
    lost = [sums @ (reserve[gone] / old[gone, None]) for reserve in state.reserves[:-1]]
    reserves, residues = [each[keep] for each in state.reserves], [each[keep] for each in state.residues]
    rows, last = row_after[losers], len(state.residues)
    for layer, reserve in enumerate(state.reserves):
        if layer == last:
            reserves[layer][rows] -= lost[layer - 1]
            continue
        reserves[layer][rows] = reserve[losers] * ratio
        if layer:
            residues[layer][rows] += reserve[losers] * (1 - ratio) - lost[layer - 1]
    recovered = (state.reserves[0][losers] + state.residues[0][losers]) / np.sqrt(old[losers])[:, None]
    for nodes, x in ((rows, recovered), (row_after[removal.changed], removal.attributes)):  # new attributes come last
        residues[0][nodes] = x * np.sqrt(degrees[nodes])[:, None] - reserves[0][nodes]
    touched = np.union1d(rows, row_after[removal.changed])
    return _pushed(adjacency, degrees, reserves, [*residues, np.zeros((0, 0))], touched, state.threshold)


def _pushed(
    adjacency: sp.csr_matrix,
    degrees: np.ndarray,
    reserves: list[np.ndarray],
    residues: list[np.ndarray],
    touched: np.ndarray,
    threshold: float,
) -> PushState:
    """Pushes layer by layer, from the touched rows on. Changes the arrays in place."""
    layers = len(reserves) - 1
    for layer in range(layers):
        residue = residues[layer][touched]
        pushed = np.where(np.abs(residue) > threshold, residue, 0.0)
        is_active = pushed.any(axis=1)
        active, moved = touched[is_active], pushed[is_active]
        residues[layer][active] -= moved
        reserves[layer][active] += moved
        near, sums = _sums_over_neighbours(adjacency, active, moved / degrees[active, None])
        receiver = reserves[layer + 1] if layer + 1 == layers else residues[layer + 1]
        receiver[near] += sums
        touched = np.union1d(touched, near)
    return PushState(adjacency, degrees, tuple(reserves), tuple(residues[:layers]), threshold)


def _sums_over_neighbours(
    adjacency: sp.csr_matrix, active: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The neighbours of the active rows, and for each of them the sum of the values of its active neighbours."""
    counts = np.diff(adjacency.indptr)[active]
    entries = ranges(adjacency.indptr[active], counts)
    near, place = np.unique(adjacency.indices[entries], return_inverse=True)
    sources = np.repeat(np.arange(active.size), counts)
    return near, sp.csr_matrix((np.ones(place.size), (place, sources)), shape=(near.size, active.size)) @ values
