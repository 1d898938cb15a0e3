"""A Merkle tree over numbers: its root follows every change of a leaf at the cost of the leaves that change."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Protocol

import numpy as np

from graphforget.linalg.versioned import VersionedRows, exclusive

BITS, CHILDREN = 4, 16  # a node has 16 children, so there are few inner hashes beside the leaves
HEIGHT = 16  # levels above the leaves, for numbers under 2^63
HASH = 32  # bytes
ABSENT = bytes(HASH)  # the leaf of a number that is not in the tree
TAG = 16  # bytes before the children in the input of a node's hash
BLOCK = 2**13  # nodes that are hashed at once, which bounds the memory


class EmptyHashes(Protocol):
    """The hashes of subtrees that hold nothing."""

    def at(self, level: int, prefixes: np.ndarray) -> np.ndarray:
        """A k x 32 array, or one row for all: the hashes of empty subtrees of this level with these prefixes."""


class ConstantHashes:
    """One hash a level: that of 16 empty children. So the root does not tell removed numbers from those never there."""

    def at(self, level: int, prefixes: np.ndarray) -> np.ndarray:
        return np.frombuffer(_constant(level), dtype=np.uint8)[None]


@cache
def _constant(level: int) -> bytes:
    return ABSENT if level == 0 else node_hash(level, _constant(level - 1) * CHILDREN)


CONSTANT = ConstantHashes()


@dataclass(frozen=True, eq=False)
class RecordTree:
    """A sparse tree with 16 children a node; the prefix of a number at level l is the number without 4 l bits.

    Make one with `of`. `updated` gives another version and leaves this one as it is. Versions share their arrays.

    Example:
        >>> leaves = np.arange(64, dtype=np.uint8).reshape(2, 32)
        >>> tree = RecordTree.of(np.array([3, 2**40]), leaves)
        >>> smaller = tree.updated(np.array([3]), np.zeros((1, 32), dtype=np.uint8))
        >>> smaller.root == RecordTree.of(np.array([2**40]), leaves[1:]).root
        True
        >>> check_path(tree.root, 3, leaves[0].tobytes(), tree.path(3))
        True
    """

    prefixes: tuple[np.ndarray, ...]  # of each level, ascending; those of numbers that were removed stay
    hashes: tuple[VersionedRows, ...]
    empty: EmptyHashes = CONSTANT

    @classmethod
    def of(
        cls, numbers: np.ndarray, leaves: np.ndarray, *, height: int = HEIGHT, empty: EmptyHashes = CONSTANT
    ) -> RecordTree:
        """The tree of these leaves.

        Args:
            numbers: k different numbers from 0, in ascending order.
            leaves: k x 32 bytes. A leaf of zeros is as good as none.
            height: The number of levels above the leaves, for numbers under 16^height.
            empty: The hashes of empty subtrees.

        Returns:
            The tree.
        """
        return cls.above(0, numbers.astype(np.int64), leaves.astype(np.uint8), height=height, empty=empty)

    @classmethod
    def above(
        cls,
        level: int,
        prefixes: np.ndarray,
        hashes: np.ndarray,
        *,
        height: int = HEIGHT,
        empty: EmptyHashes = CONSTANT,
    ) -> RecordTree:
        """The upper part of a tree whose subtrees at a level have these prefixes, ascending, and these hashes.

        What is below that level is elsewhere: its paths begin there.
        """
        nothing = np.zeros(0, dtype=np.int64), np.zeros((0, HASH), dtype=np.uint8)
        levels = [nothing] * level + [(prefixes, hashes)]
        for step in range(level, height):
            below, under = levels[-1]
            levels.append(_parents(step, below, under, empty, top=step == height - 1))
        return cls(tuple(one for one, _ in levels), tuple(VersionedRows(one) for _, one in levels), empty)

    @property
    def height(self) -> int:
        return len(self.prefixes) - 1

    @property
    @exclusive
    def root(self) -> bytes:
        return self.hashes[-1].array().tobytes()

    @property
    def numbers(self) -> np.ndarray:
        """The numbers that are in the tree or were, ascending."""
        return self.prefixes[0]

    def leaves(self, numbers: np.ndarray) -> np.ndarray:
        """The leaves of these numbers, k x 32."""
        return self._at(0, numbers)

    @exclusive
    def updated(self, numbers: np.ndarray, leaves: np.ndarray) -> RecordTree:
        """The tree with other leaves at some of its numbers. The cost does not depend on how many others there are.

        Args:
            numbers: k different numbers that are in the tree or were.
            leaves: Their new leaves, k x 32; zeros remove a number.

        Returns:
            The new version.

        Raises:
            ValueError: A number was never in the tree.
        """
        if not _places(self.numbers, numbers)[1].all():
            raise ValueError("a tree takes no new numbers, only new leaves for its own")
        changed, values = np.asarray(numbers, dtype=np.int64), leaves
        hashes: list[VersionedRows] = []
        for level, (prefixes, rows) in enumerate(zip(self.prefixes, self.hashes, strict=True)):
            if level and self.empty is CONSTANT and prefixes.size == self.prefixes[level - 1].size == 1:
                changed = changed >> BITS  # a chain of single nodes, as above the numbers of small graphs
                values = _only_child(level, int(self.prefixes[level - 1][0]), values)
            elif level:
                changed = np.unique(changed >> BITS)
                children = _children(level - 1, changed, self.prefixes[level - 1], hashes[-1].array(), self.empty)
                values = _node_hashes(level, children)
            hashes.append(rows.updated(np.searchsorted(prefixes, changed), values))
        return RecordTree(self.prefixes, tuple(hashes), self.empty)

    def differences(self, other: RecordTree) -> np.ndarray:
        """The numbers whose leaves differ in two trees with the same hashes of empty subtrees, ascending.

        Only subtrees with different hashes are looked into.
        """
        prefixes = np.zeros(int(self.root != other.root), dtype=np.int64)
        for level in reversed(range(self.height)):
            prefixes = _child_prefixes(prefixes)
            prefixes = prefixes[(self._at(level, prefixes) != other._at(level, prefixes)).any(axis=1)]
        return prefixes

    def lowest_level(self, number: int) -> int:
        """The level of the largest empty subtree that holds this number; 0 if the number is in the tree or was."""
        above = enumerate(self.prefixes[1:])
        return next(
            level for level, prefixes in above if _places(prefixes, np.array([number >> (BITS * (level + 1))]))[1].all()
        )

    @exclusive
    def path(self, number: int, *, level: int = 0) -> tuple[bytes, ...]:
        """The opening of a number: for each level from this one to the top, the 15 other children, 480 bytes."""
        steps = []
        for step in range(level, self.height):
            prefix = number >> (BITS * step)
            parent = np.array([prefix >> BITS])
            children = _children(step, parent, self.prefixes[step], self.hashes[step].array(), self.empty)[0]
            steps.append(np.delete(children, prefix % CHILDREN, axis=0).tobytes())
        return tuple(steps)

    @exclusive
    def _at(self, level: int, prefixes: np.ndarray) -> np.ndarray:
        return _rows_or_empty(level, prefixes, self.prefixes[level], self.hashes[level].array(), self.empty)


def _parents(
    level: int, prefixes: np.ndarray, hashes: np.ndarray, empty: EmptyHashes, *, top: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The prefixes and hashes of the nodes above those of a level; there is always a node at the top."""
    parents = np.unique(prefixes >> BITS) if prefixes.size else np.zeros(int(top), dtype=np.int64)
    parts = [
        _node_hashes(level + 1, _children(level, some, prefixes, hashes, empty))
        for some in np.array_split(parents, 1 + parents.size // BLOCK)
    ]
    return parents, np.concatenate(parts)


def check_path(
    root: bytes, number: int, leaf: bytes, path: tuple[bytes, ...], *, level: int = 0, height: int = HEIGHT
) -> bool:
    """Whether `path` shows that a tree with this root has `leaf` at a number; with `level`, at its prefix there."""
    return path_root(number, leaf, path, level=level, height=height) == root


def path_root(
    number: int, leaf: bytes, path: tuple[bytes, ...], *, level: int = 0, height: int = HEIGHT
) -> bytes | None:
    """The root of the tree that `path` belongs to; None if it is no path to this number in a tree of this height."""
    right_sizes = len(leaf) == HASH and all(len(others) == HASH * (CHILDREN - 1) for others in path)
    if not right_sizes or not 0 <= number < CHILDREN**height or len(path) != height - level:
        return None
    for step, others in enumerate(path, start=level):
        cut = HASH * ((number >> (BITS * step)) % CHILDREN)
        leaf = node_hash(step + 1, others[:cut] + leaf + others[cut:])
    return leaf


def node_hash(level: int, children: bytes) -> bytes:
    """SHA-256 of a node's level and its 16 children."""
    return sha256(_tag(level) + children).digest()


def _only_child(level: int, prefix: int, child: np.ndarray) -> np.ndarray:
    """The hash of a node that has one child, with this prefix, 1 x 32."""
    others, place = _constant(level - 1), prefix % CHILDREN
    children = others * place + child.tobytes() + others * (CHILDREN - 1 - place)
    return np.frombuffer(node_hash(level, children), dtype=np.uint8)[None]


def _tag(level: int) -> bytes:
    return b"graphforget-n" + level.to_bytes(TAG - 13, "little")


def _node_hashes(level: int, children: np.ndarray) -> np.ndarray:
    """`node_hash` of each row of children, k x 16 x 32."""
    count, width = len(children), TAG + CHILDREN * HASH
    buffer = np.empty((count, width), dtype=np.uint8)
    buffer[:, :TAG] = np.frombuffer(_tag(level), dtype=np.uint8)
    buffer[:, TAG:] = children.reshape(count, CHILDREN * HASH)
    raw = buffer.reshape(-1).data
    digests = b"".join([sha256(raw[start : start + width]).digest() for start in range(0, count * width, width)])
    return np.frombuffer(digests, dtype=np.uint8).reshape(count, HASH)


def _child_prefixes(parents: np.ndarray) -> np.ndarray:
    return ((parents[:, None] << BITS) + np.arange(CHILDREN)).reshape(-1)


def _children(
    level: int, parents: np.ndarray, prefixes: np.ndarray, hashes: np.ndarray, empty: EmptyHashes
) -> np.ndarray:
    """The children of these parents, k x 16 x 32; `level` is that of the children."""
    rows = _rows_or_empty(level, _child_prefixes(parents), prefixes, hashes, empty)
    return rows.reshape(len(parents), CHILDREN, HASH)


def _rows_or_empty(
    level: int, wanted: np.ndarray, prefixes: np.ndarray, hashes: np.ndarray, empty: EmptyHashes
) -> np.ndarray:
    """The hashes at the wanted prefixes, of empty subtrees where there are none."""
    place, there = _places(prefixes, wanted)
    rows = np.empty((wanted.size, HASH), dtype=np.uint8)
    rows[there] = hashes[place[there]]
    rows[~there] = empty.at(level, wanted[~there])
    return rows


def _places(prefixes: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the wanted prefixes are among these ascending ones, and a mask of those that are."""
    place = np.searchsorted(prefixes, wanted)
    there = place < prefixes.size
    there[there] = prefixes[place[there]] == wanted[there]
    return place, there
