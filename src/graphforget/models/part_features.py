"""Propagated attributes of one rank's rows, with boundary rows that other ranks send (docs/maths.md, section 17).

A propagation computes every number as on one machine, to the last bit: a row is a sum over its own list, in its order.
A whole propagation exchanges boundary rows, some columns at a time. How the features follow a deletion is in
`models/part_following.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphforget.distributed.group import Group
from graphforget.graph.row_part import TRAIN, RowPart
from graphforget.linalg.neighbour_sums import neighbour_sums
from graphforget.linalg.ranges import row_blocks
from graphforget.models.defects import fresh_defects, gamma
from graphforget.models.propagated import Settings, scaled_attributes

COLUMNS = 8  # that are exchanged at a time
ROWS = 2**14
ENTRIES = 2**20


@dataclass(eq=False)
class PartFeatures:
    """`H_1 .. H_{K-1}` of all rows of a part, and the features of its training rows, as `models/propagated.py` has it.

    The last column of each `H` is the bound on the norm of the row. Rows of deleted nodes are 0.
    """

    settings: Settings
    hops: list[np.ndarray]  # n x (columns + 1)
    train_rows: np.ndarray  # of the part, ascending, when the features were propagated
    training: np.ndarray  # m x (powers x columns)
    bounds: np.ndarray  # m x powers
    defects: list[np.ndarray]  # for each power 1 .. K, of each row: a bound on what rounding has added to it

    @classmethod
    def empty(cls, part: RowPart, settings: Settings) -> PartFeatures:
        """Arrays that are not filled yet."""
        columns, rows = part.attributes.shape[1], part.rows_with(TRAIN)
        return cls(
            settings,
            [np.empty((part.num_rows, columns + 1)) for _ in range(settings.hops - 1)],
            rows,
            np.empty((rows.size, len(settings.powers) * columns)),
            np.empty((rows.size, len(settings.powers))),
            [np.empty(part.num_rows if hop < settings.hops else rows.size) for hop in range(1, settings.hops + 1)],
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """What is stored of them, by name."""
        stored = {"trainrows": self.train_rows.astype("<i8"), "training": self.training, "bounds": self.bounds}
        stored |= {f"defect-{hop + 1}": values for hop, values in enumerate(self.defects)}
        return stored | {f"hop-{hop + 1}": values for hop, values in enumerate(self.hops)}

    def squared_defects(self, part: RowPart) -> list[float]:
        """For each power the sum over this part of the squares of what rounding can add to a row."""
        columns = part.attributes.shape[1]
        scaled = float(gamma(columns + 5)) ** 2 * part.num_rows if self.settings.scale_rows else 0.0
        return [scaled, *(float(np.square(defects).sum()) for defects in self.defects)]

    def set_fresh_defects(self, part: RowPart) -> None:
        """Those of features that were propagated anew."""
        for hop, defects in enumerate(self.defects, start=1):
            rows = slice(None) if hop < self.settings.hops else self.train_rows
            bounds = self.hops[hop - 1][:, -1] if hop < self.settings.hops else self.bounds[:, -1]
            defects[:] = fresh_defects(part.counts[rows], bounds)

    def set_training(self, hop: int, places: np.ndarray | slice, values: np.ndarray, first: int = 0) -> None:
        """Sets columns of a power's block from `first` on, for some of the training rows. Bounds are the last column.

        `values` are columns of an `H`, those of its bound included if they reach so far.
        """
        if hop not in self.settings.powers:
            return
        place, columns = self.settings.powers.index(hop), self.training.shape[1] // len(self.settings.powers)
        width = min(values.shape[1], columns - first)
        start = place * columns + first
        self.training[places, start : start + width] = self.settings.scales[place] * values[:, :width]
        if first + values.shape[1] > columns:
            self.bounds[places, place] = values[:, -1]


class Boundary:
    """The rows of other ranks that this part's lists name, and which rows of this part the others need.

    The graph is undirected, so a rank knows both from its own lists.
    """

    def __init__(self, part: RowPart, group: Group) -> None:
        self._part, self._group = part, group
        n, start, stop = part.num_rows, part.start, part.stop
        needed: list[list[np.ndarray]] = [[] for _ in range(group.size)]
        outside: list[np.ndarray] = []
        for first, last in row_blocks(part.indptr, ENTRIES):
            rows = np.arange(first, last)
            counts, listed = part.lists(rows)
            owner_rows = np.repeat(rows, counts)
            away = (listed < start) | (listed >= stop)
            outside += [] if part.boundary is not None else [np.unique(listed[away])]
            owners = part.ranges.owners(listed[away])
            for rank in range(group.size):
                needed[rank].append(np.unique(owner_rows[away][owners == rank]))
        none = np.zeros(0, dtype=np.int64)
        stored = part.boundary
        self.numbers = np.unique(np.concatenate([none, *outside])) if stored is None else stored  # ascending
        owners = part.ranges.owners(self.numbers)
        self._got = np.bincount(owners, minlength=group.size).tolist()
        self._sent = [sum(map(len, rows)) for rows in needed]
        self._sends = np.concatenate([none, *(some for rows in needed for some in rows)])  # rows of this part
        self.size = n + self.numbers.size
        self.indptr = np.concatenate([[0], part.counts.astype(np.int64).cumsum()])
        self.indices = np.empty(int(self.indptr[-1]), dtype=np.int32)  # rows of this part, then boundary rows
        for first, last in row_blocks(part.indptr, ENTRIES):
            _, listed = part.lists(np.arange(first, last))
            away = (listed < start) | (listed >= stop)
            local = listed.astype(np.int64) - start
            local[away] = n + np.searchsorted(self.numbers, listed[away])
            self.indices[self.indptr[first] : self.indptr[last]] = local

    def fill(self, values: np.ndarray, *, purpose: str) -> None:
        """Sets the boundary rows of `values`, whose first rows are those of this part, to what their ranks have."""
        rows = values[self._sends]
        self._group.exchange_known(rows, self._sent, values[self._part.num_rows :], self._got, purpose=purpose)

    def lists(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lists of these rows, as `indptr` and `indices`."""
        counts = np.diff(self.indptr)[rows]
        starts = self.indptr[rows]
        places = np.arange(counts.sum()) + np.repeat(starts - (counts.cumsum() - counts), counts)
        return np.concatenate([[0], counts.cumsum()]), self.indices[places]


def inverse_root_degrees(part: RowPart, rows: np.ndarray, loops: np.ndarray) -> np.ndarray:
    """`D^-1/2` of these rows; a self-loop counts once."""
    scale: np.ndarray = 1 / np.sqrt(part.counts[rows].astype(np.int64) + ~loops)
    return scale


def propagate_part(part: RowPart, settings: Settings, group: Group) -> PartFeatures:
    """Propagates the attributes of the whole graph, for the rows of this part. Every rank calls it."""
    features = PartFeatures.empty(part, settings)
    columns, n, hops = part.attributes.shape[1], part.num_rows, settings.hops
    current = features.hops[0] if features.hops else np.empty((n, columns + 1))  # `H_0`, until `H_1` replaces it
    for first in range(0, n, ROWS):
        block = slice(first, min(first + ROWS, n))
        current[block] = scaled_attributes(np.asarray(part.attributes[block]), scale_rows=settings.scale_rows)
    features.set_training(0, slice(None), current[features.train_rows])
    if not hops:
        return features
    boundary = Boundary(part, group)
    everyone = np.arange(n)
    loops = part.loops(everyone)
    scale = np.empty((boundary.size, 1))
    scale[:n, 0] = inverse_root_degrees(part, everyone, loops)
    boundary.fill(scale, purpose="propagation")
    last_lists = boundary.lists(features.train_rows)
    for first in range(0, columns + 1, COLUMNS):
        some = slice(first, min(first + COLUMNS, columns + 1))
        values = np.empty((boundary.size, some.stop - first))
        values[:n] = current[:, some]
        for hop in range(1, hops + 1):
            boundary.fill(values, purpose="propagation")
            rows = everyone if hop < hops else features.train_rows
            indptr, indices = (boundary.indptr, boundary.indices) if hop < hops else last_lists
            sums = neighbour_sums(indptr, indices, lambda i: scale[i, 0], values)
            add_own(sums, values[:n], rows, scale[:n, 0], loops)
            if hop < hops:
                features.hops[hop - 1][:, some] = values[:n] = sums
            features.set_training(hop, slice(None), sums if hop == hops else sums[features.train_rows], first)
    features.set_fresh_defects(part)
    return features


def add_own(sums: np.ndarray, own: np.ndarray, rows: np.ndarray, scale: np.ndarray, loops: np.ndarray) -> None:
    """`D^-1/2 (sums + D^-1/2 own)` for these rows; a row that is in its own list is not added again."""
    weights = np.where(loops[rows], 0.0, scale[rows])
    for first in range(0, rows.size, ROWS):
        block = slice(first, first + ROWS)
        sums[block] += weights[block, None] * own[rows[block]]
        sums[block] *= scale[rows[block], None]


# -- some rows -------------------------------------------------------------------------------------------------------


def own_rows(part: RowPart, features: PartFeatures, hop: int, rows: np.ndarray) -> np.ndarray:
    """`H_hop` of rows of this part."""
    if hop:
        held: np.ndarray = features.hops[hop - 1][rows]
        return held
    return scaled_attributes(np.asarray(part.attributes[rows]), scale_rows=features.settings.scale_rows)


def recomputed(
    part: RowPart, rows: np.ndarray, values_of: Callable[[np.ndarray], np.ndarray], group: Group, *, purpose: str
) -> list[tuple[slice, np.ndarray]]:
    """`(S V)[rows]`, some columns at a time, from `values_of`, which gives rows of `V` of this part.

    Every rank calls it, and sends the rows that the others need of it.
    """
    counts, listed = part.lists(rows)
    needed = np.unique(np.concatenate([listed.astype(np.int64), rows + part.start]))
    owners = part.ranges.owners(needed)
    asked = group.exchange([needed[owners == rank] for rank in range(group.size)], purpose=purpose)
    wanted = [numbers - part.start for numbers in asked]
    degrees = [inverse_root_degrees(part, some, part.loops(some))[:, None] for some in wanted]
    scale = np.concatenate(group.exchange(degrees, purpose=purpose))[:, 0]
    values = [values_of(some) for some in wanted]
    indptr = np.concatenate([[0], counts.cumsum()])
    indices = np.searchsorted(needed, listed).astype(np.int32)
    own, loops = np.searchsorted(needed, rows + part.start), part.loops(rows)
    results = []
    for first in range(0, values[0].shape[1], COLUMNS):
        some = slice(first, min(first + COLUMNS, values[0].shape[1]))
        there = np.concatenate(
            group.exchange([np.ascontiguousarray(block[:, some]) for block in values], purpose=purpose)
        )
        sums = neighbour_sums(indptr, indices, lambda i: scale[i], there)
        sums += np.where(loops, 0.0, scale[own])[:, None] * there[own]
        sums *= scale[own][:, None]
        results.append((some, sums))
    return results


def part_logits(
    part: RowPart, features: PartFeatures, weight: np.ndarray, rows: np.ndarray, group: Group
) -> np.ndarray:
    """`sum_h c_h S^h X W_h` of these rows; `weight` is powers x columns x classes. Every rank calls it."""
    settings = features.settings
    total = np.zeros((rows.size, weight.shape[2]))
    for place, (hop, scale) in enumerate(zip(settings.powers, settings.scales, strict=True)):

        def carried(some: np.ndarray, hop: int = hop, w: np.ndarray = weight[place]) -> np.ndarray:
            product: np.ndarray = own_rows(part, features, max(hop - 1, 0), some)[:, :-1] @ w
            return product

        if 0 < hop == settings.hops:  # few classes travel cheaper than many columns
            for some, sums in recomputed(part, rows, carried, group, purpose="score"):
                total[:, some] += scale * sums
        else:
            total += scale * (own_rows(part, features, hop, rows)[:, :-1] @ weight[place])
    return total
