"""One rank's rows of an undirected graph with dense attributes: its arrays, its records, and what deletions do to them.

The rows are a range of node numbers. A node that was deleted keeps its row, with the role `GONE`, no neighbours,
attributes of 0, no target, no name and a hash of 0. A list of neighbours that became shorter ends with -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from graphforget.distributed.group import Group
from graphforget.distributed.row_ranges import RowRanges
from graphforget.graph.record_tree import BITS, HASH, RecordTree
from graphforget.graph.records import encoded_records, nonzero_attributes
from graphforget.graph.targets import UNLABELLED
from graphforget.linalg.ranges import ranges
from graphforget.privacy.salt import new_salts

TRAIN, VALIDATION, TEST, GONE = 1, 2, 4, 128  # roles
ARRAYS = ("attributes", "targets", "roles", "indptr", "indices", "counts", "leaves")
BOUNDARY = "boundary"  # numbers of other parts that the lists of a part name, ascending
SALTS = "salts"  # of the hashes from which absence is shown, 32 bytes a row, zeros for a deleted node
SUBJECTS = "subjects"  # names of the nodes as bytes of one width, filled with zeros
RECORDS = 2**13  # rows that are hashed together


@dataclass(frozen=True, eq=False)
class Deletion:
    """What a request deletes, by numbers of the whole graph. An edge stands there in both directions."""

    nodes: np.ndarray
    edges: np.ndarray  # 2 x k: senders and receivers
    full: np.ndarray
    partial: np.ndarray
    columns: np.ndarray  # of each number in `partial`
    labels: np.ndarray  # of nodes that lose their label and stay


@dataclass(frozen=True, eq=False)
class Changed:
    """The rows of this part of which anything differs, ascending, and how many training nodes went."""

    gone: np.ndarray
    relinked: np.ndarray  # with other neighbours, the deleted ones included
    altered: np.ndarray  # whose attributes really differ and that stay
    attributes_before: np.ndarray  # of the altered rows
    degrees_before: np.ndarray  # of the relinked rows; a self-loop counts once
    removed: int  # training nodes that are deleted or lose their label
    values: int  # attribute values that the request names and that were not 0


class RowPart:
    """The rows of one rank. Changes are made in memory; `changed_rows` says in which rows of which arrays."""

    def __init__(self, ranges_: RowRanges, rank: int, arrays: Mapping[str, np.ndarray]) -> None:
        self.ranges, self.rank = ranges_, rank
        self.start, self.stop = ranges_.range_of(rank)
        self.attributes, self.targets, self.roles = (arrays[name] for name in ("attributes", "targets", "roles"))
        self.indptr, self.indices, self.counts = (arrays[name] for name in ("indptr", "indices", "counts"))
        self.leaves, self.subjects = arrays["leaves"], arrays.get(SUBJECTS)
        self.boundary, self.salts = arrays.get(BOUNDARY), arrays.get(SALTS)
        self.changed_rows: dict[str, np.ndarray] = {}

    @property
    def num_rows(self) -> int:
        return self.stop - self.start

    @property
    def there(self) -> np.ndarray:
        """A mask of the rows that are not deleted."""
        return self.roles != GONE

    def rows_with(self, role: int) -> np.ndarray:
        return np.flatnonzero(self.roles == role)

    def owned(self, numbers: np.ndarray) -> np.ndarray:
        """The rows of those of the numbers that are in this part."""
        return numbers[(numbers >= self.start) & (numbers < self.stop)] - self.start

    def lists(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many neighbours each of these rows has, and their numbers, one list after the other."""
        counts = self.counts[rows].astype(np.int64)
        return counts, self.indices[ranges(self.indptr[rows], counts)]

    def loops(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of these rows has an edge to itself."""
        counts, listed = self.lists(rows)
        owner = np.repeat(np.arange(rows.size), counts)
        loops = np.zeros(rows.size, dtype=bool)
        loops[owner[listed == rows[owner] + self.start]] = True
        return loops

    def degrees(self, rows: np.ndarray) -> np.ndarray:
        """The number of neighbours of each of these rows with itself; a self-loop counts once."""
        degrees: np.ndarray = self.counts[rows].astype(np.int64) + ~self.loops(rows)
        return degrees

    # -- names ---------------------------------------------------------------------------------------------------

    def names(self, rows: np.ndarray) -> list[str]:
        """The permanent names of these rows: their subject ids, or their numbers."""
        if self.subjects is None:
            return [str(number) for number in (rows + self.start).tolist()]
        return [name.decode() for name in self._names(rows)]

    def _names(self, rows: np.ndarray) -> list[bytes]:
        if self.subjects is None:
            return [b""] * rows.size
        return [row.tobytes().rstrip(b"\0") for row in np.asarray(self.subjects[rows])]

    def find(self, subjects: list[str]) -> dict[str, int]:
        """The numbers of those of the subject ids that are in this part."""
        if self.subjects is None or not self.num_rows:
            return {}
        width = self.subjects.shape[1]
        wanted = [name for name in subjects if len(name.encode()) <= width and "\0" not in name]
        flat = np.ascontiguousarray(self.subjects).view(f"S{width}")[:, 0]
        rows = np.flatnonzero(np.isin(flat, np.array([name.encode() for name in wanted], dtype=f"S{width}")))
        return {flat[row].decode(): row + self.start for row in rows.tolist() if self.roles[row] != GONE}

    def holds(self, numbers: np.ndarray) -> np.ndarray:
        """A mask of the numbers that are in this part and not deleted."""
        inside = (numbers >= self.start) & (numbers < self.stop)
        inside[inside] = self.roles[numbers[inside] - self.start] != GONE
        return inside

    def has_edges(self, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
        """A mask of the pairs that are edges whose receiver is in this part."""
        inside = np.flatnonzero((receivers >= self.start) & (receivers < self.stop))
        counts, listed = self.lists(receivers[inside] - self.start)
        pair = np.repeat(inside, counts)
        present = np.zeros(receivers.size, dtype=bool)
        present[pair[listed == senders[pair]]] = True
        return present

    # -- deletions -----------------------------------------------------------------------------------------------

    def remove(self, deletion: Deletion, group: Group) -> Changed:
        """Removes what the deletion names of this part. Every rank calls it: edges of deleted nodes end elsewhere."""
        gone, self.boundary = np.unique(self.owned(deletion.nodes)), None
        unlabelled = np.setdiff1d(self.owned(deletion.labels), gone)
        removed = int(np.count_nonzero(self.roles[np.concatenate([gone, unlabelled])] == TRAIN))
        altered, attributes_before, values = self._forget(deletion, gone)
        senders, receivers = self._lost_edges(deletion, gone, group)
        relinked = np.union1d(receivers, gone)
        degrees_before = self.degrees(relinked)
        self._unlink(relinked, gone, senders, receivers)
        self._unlabel(unlabelled, 0)
        self._unlabel(gone, GONE)
        if self.subjects is not None:
            self.subjects[gone] = 0
            self._note(SUBJECTS, gone)
        self._rehash(np.unique(np.concatenate([relinked, altered, gone, unlabelled])))
        return Changed(gone, relinked, altered, attributes_before, degrees_before, removed, values)

    def _lost_edges(self, deletion: Deletion, gone: np.ndarray, group: Group) -> tuple[np.ndarray, np.ndarray]:
        """The edges that this part loses: numbers of the senders, and rows of the receivers."""
        counts, neighbours = self.lists(gone)
        pairs = np.stack([np.repeat(gone + self.start, counts), neighbours.astype(np.int64)], axis=1)
        owners = self.ranges.owners(pairs[:, 1])
        parts = group.exchange([pairs[owners == rank] for rank in range(group.size)], purpose="request")
        named = deletion.edges.T[(deletion.edges[1] >= self.start) & (deletion.edges[1] < self.stop)]
        both = np.concatenate([*parts, named])
        return both[:, 0], both[:, 1] - self.start

    def _unlink(self, relinked: np.ndarray, gone: np.ndarray, senders: np.ndarray, receivers: np.ndarray) -> None:
        counts, listed = self.lists(relinked)
        owner = np.repeat(relinked, counts)
        n = self.ranges.nodes
        keeps = ~np.isin(owner * n + listed, receivers * n + senders) & ~np.isin(owner, gone)
        widths = self.indptr[relinked + 1] - self.indptr[relinked]
        places = np.arange(widths.sum()) + np.repeat(self.indptr[relinked] - (widths.cumsum() - widths), widths)
        new_counts = np.bincount(np.searchsorted(relinked, owner[keeps]), minlength=relinked.size)
        values = np.full(places.size, -1, dtype=self.indices.dtype)
        ends = widths.cumsum() - widths
        values[ranges(ends, new_counts)] = listed[keeps]
        self.indices[places] = values
        self.counts[relinked] = new_counts
        self._note("indices", places)
        self._note("counts", relinked)

    def _forget(self, deletion: Deletion, gone: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Sets attributes to 0.

        Gives the rows where any was not 0 and whose nodes stay, what they were, and how many values were not 0.
        """
        full = np.unique(self.owned(deletion.full))
        inside = (deletion.partial >= self.start) & (deletion.partial < self.stop)
        partial, columns = deletion.partial[inside] - self.start, deletion.columns[inside]
        changed = [full[(self.attributes[full] != 0).any(axis=1)], partial[self.attributes[partial, columns] != 0]]
        values = int(np.count_nonzero(self.attributes[full])) + int(np.count_nonzero(self.attributes[partial, columns]))
        altered = np.setdiff1d(np.concatenate(changed), gone)
        before = np.array(self.attributes[altered])
        self.attributes[np.concatenate([full, gone])] = 0
        self.attributes[partial, columns] = 0
        self._note("attributes", np.concatenate([full, gone, partial]))
        return altered, before, values

    def _unlabel(self, rows: np.ndarray, role: int) -> None:
        """Takes the target of these rows away, and gives them another role."""
        self.roles[rows] = role
        self.targets[rows] = np.nan if self.targets.dtype.kind == "f" else UNLABELLED
        self._note("roles", rows)
        self._note("targets", rows)

    def _rehash(self, rows: np.ndarray) -> None:
        stays = rows[self.roles[rows] != GONE]
        self.leaves[rows] = 0
        self.leaves[stays] = self.record_hashes(stays)
        self._note("leaves", rows)
        if self.salts is not None:
            self.salts[rows] = new_salts(self.leaves[rows])
            self._note(SALTS, rows)

    def _note(self, name: str, rows: np.ndarray) -> None:
        self.changed_rows[name] = np.union1d(self.changed_rows.get(name, rows[:0]), rows).astype(np.int64)

    # -- records -------------------------------------------------------------------------------------------------

    def record_hashes(self, rows: np.ndarray) -> np.ndarray:
        """SHA-256 of the canonical records of these rows, k x 32 bytes: the same as on one machine."""
        digests = [sha256(record).digest() for part in _chunks(rows) for record in self._records(part)]
        return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(rows.size, HASH)

    def _records(self, rows: np.ndarray) -> Iterator[bytes]:
        counts, neighbours = self.lists(rows)
        return encoded_records(
            numbers=rows + self.start,
            in_graph=np.full(rows.size, -1),
            roles=self.roles[rows],
            targets=np.asarray(self.targets[rows]),
            names=self._names(rows),
            attributes=nonzero_attributes(np.asarray(self.attributes[rows])),
            counts=counts,
            neighbours=neighbours.astype(np.int64),
        )

    def check_records(self) -> bool:
        """Whether every stored hash is that of its record."""
        rows = np.flatnonzero(self.there)
        stored = np.asarray(self.leaves)
        gone = np.flatnonzero(~self.there)
        return not stored[gone].any() and bool((self.record_hashes(rows) == stored[rows]).all())

    def subtree_hashes(self) -> tuple[int, np.ndarray, np.ndarray]:
        """The level of the tree of records whose subtrees lie in one part, their prefixes here, and their hashes."""
        level = tree_level(self.ranges)
        numbers = np.arange(self.start, self.stop)
        tree = RecordTree.of(numbers, np.asarray(self.leaves), height=level)
        return level, tree.prefixes[level], tree.hashes[level].array()


def tree_level(ranges_: RowRanges) -> int:
    """The highest level of the tree of records at which no subtree lies in two parts."""
    return (ranges_.block.bit_length() - 1) // BITS


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    return (rows[start : start + RECORDS] for start in range(0, rows.size, RECORDS))
