"""A tree keyed by subject: it shows that somebody is not in the graph, and names nobody else.

A verifiable random function of the subject id decides the position, so that an auditor can check the position of the
subject who is asked for, and nobody can compute that of another one. The upper part is a tree with 16 children a node.
Each of its leaves is a cell: a binary tree over the further bits of the position. Hashes of empty subtrees look like
all others. A subject who goes leaves an empty leaf behind, so no opening changes its shape because others went. The
root has a salt that is new with every release: otherwise two equal roots would tell that a request removed no node.

Openings from two releases show which of the hashes in both have changed. Openings of many invented subjects end at
depths from which the number of subjects can be estimated: the hash of an empty subtree cannot be opened any deeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np

from graphforget.certificates.keyed_hashes import KeyedHashes, empty_hash
from graphforget.certificates.vrf import SecretKey, verify
from graphforget.errors import Mismatch
from graphforget.graph.record_tree import BITS, CHILDREN, HASH, RecordTree, path_root
from graphforget.privacy.salt import new_salt
from graphforget.progress import Progress

SUBJECTS = "graphforget-subjects-1"  # the algorithm of `root`
CELL_BITS = 40  # of a position, below those of the upper part: two subjects share a position once in 2^38 times
HIGHEST = 5  # levels of the upper part, so that positions have fewer than 64 bits
Members = list[tuple[int, bool]]  # positions in a cell, and whether their subjects are there or were


@dataclass(frozen=True)
class SubjectOpening:
    """That a subject is not in a subject tree.

    The salt of the root, the proof of the position, the seed of an empty subtree that holds it, and the way from there
    to the root: the other child of each node in the cell, then the 15 other children of each node of the upper part.
    """

    salt: bytes
    height: int
    public_key: bytes
    proof: bytes
    seed: bytes
    cell: tuple[bytes, ...]
    path: tuple[bytes, ...]

    def root(self, subject: str) -> bytes | None:
        """The root of the subject tree that this opening belongs to; None if it is no opening of this subject."""
        value = verify(self.public_key, subject.encode(), self.proof)
        level = self.height - len(self.path)
        in_cell = len(self.cell) <= CELL_BITS and (level == 0 or not self.cell)
        sizes = len(self.salt) == len(self.seed) == HASH and all(len(other) == HASH for other in self.cell)
        if value is None or not (1 <= self.height <= HIGHEST and level >= 0 and in_cell and sizes):
            return None
        place, node = _position(value, self.height), empty_hash(self.seed)
        for depth, other in zip(range(len(self.cell), 0, -1), self.cell, strict=True):
            node = _cell_node(depth, *((other, node) if _prefix(place, depth) & 1 else (node, other)))
        top = path_root(place >> CELL_BITS, node, self.path, level=level, height=self.height)
        return None if top is None else _root(self.salt, self.height, self.public_key, top)


@dataclass(frozen=True, eq=False)
class SubjectTree:
    """The subjects of a graph, by position."""

    seed: bytes  # of the secret key of the random function
    key: bytes  # of the hashes
    salt: bytes  # of the root, another one in every release
    positions: np.ndarray  # of all who are in the tree or were, ascending
    present: np.ndarray  # whether they are
    tree: RecordTree  # the upper part; its leaves are cells

    @classmethod
    def of(cls, subjects: Sequence[str], key: bytes, *, progress: Progress | None = None) -> SubjectTree:
        """The tree of these subjects, who differ, under a new secret key of the random function."""
        height = height_for(len(subjects))
        while True:
            seed = new_salt()
            positions = np.unique(subject_positions(SecretKey(seed), subjects, height, progress))
            if len(positions) == len(subjects):  # otherwise two share a position
                return cls.made(seed, key, new_salt(), positions, np.ones(len(positions), dtype=bool))

    @classmethod
    def made(cls, seed: bytes, key: bytes, salt: bytes, positions: np.ndarray, present: np.ndarray) -> SubjectTree:
        """The tree with these subjects, all its hashes computed."""
        cells, empty = np.unique(positions >> CELL_BITS), KeyedHashes(key)
        tree = RecordTree.of(
            cells, _cells(empty, cells, positions, present), height=height_for(len(positions)), empty=empty
        )
        return cls(seed, key, salt, positions, present, tree)

    @cached_property
    def secret(self) -> SecretKey:
        return SecretKey(self.seed)

    @property
    def root(self) -> bytes:
        return _root(self.salt, self.tree.height, self.secret.public, self.tree.root)

    def without(self, subjects: Sequence[str]) -> SubjectTree:
        """The tree of the next release, without these subjects. Raises `Mismatch` if one of them is not in it."""
        gone = np.unique(subject_positions(self.secret, subjects, self.tree.height))
        if len(gone) != len(subjects) or not np.isin(gone, self.positions[self.present]).all():
            raise Mismatch("the trees from which absence is shown lack somebody who is in the graph")
        present = self.present.copy()
        present[np.searchsorted(self.positions, gone)] = False
        cells = np.unique(gone >> CELL_BITS)
        hashes = _cells(KeyedHashes(self.key), cells, self.positions, present)
        tree = self.tree.updated(cells, hashes)
        return SubjectTree(self.seed, self.key, new_salt(), self.positions, present, tree)

    def rebuilt(self, subjects: Sequence[str]) -> SubjectTree | None:
        """The tree with these subjects and the keys of this one, hashed anew; None if one of them was never in it."""
        there = np.isin(self.positions, subject_positions(self.secret, subjects, self.tree.height))
        if there.sum() != len(subjects):
            return None
        return self.made(self.seed, self.key, self.salt, self.positions, there)

    def opening(self, subject: str) -> SubjectOpening | None:
        """The opening of a subject who is not there; None if they are."""
        hashes, height = KeyedHashes(self.key), self.tree.height
        place = _position(self.secret.value(subject.encode()), height)
        number = place >> CELL_BITS
        members = _members(number, self.positions, self.present)
        if (place, True) in members:
            return None
        if members:
            level, depth = 0, _empty_depth(place, members)
            seed = hashes.seed(-depth, _prefix(place, depth))
        else:
            level, depth = self.tree.lowest_level(number), 0
            seed = hashes.seed(level, number >> (BITS * level))
        cell = tuple(_cell_hash(hashes, members, d, _prefix(place, d) ^ 1) for d in range(depth, 0, -1))
        path = self.tree.path(number, level=level)
        proof = self.secret.prove(subject.encode())
        return SubjectOpening(self.salt, height, self.secret.public, proof, seed, cell, path)


def height_for(count: int) -> int:
    """Levels of the upper part for so many positions, so that a cell holds up to 4 subjects on average."""
    return next((height for height in range(1, HIGHEST) if 4 * CHILDREN**height >= count), HIGHEST)


def _position(value: bytes, height: int) -> int:
    """The first bits of the random function's value."""
    return int.from_bytes(value[:8], "big") >> (64 - BITS * height - CELL_BITS)


def subject_positions(
    secret: SecretKey, subjects: Sequence[str], height: int, progress: Progress | None = None
) -> np.ndarray:
    """The positions of these subjects in a tree with so many levels."""
    places = []
    for done, subject in enumerate(subjects):
        places.append(_position(secret.value(subject.encode()), height))
        if progress is not None and done % 1000 == 0:
            progress("hashing subjects", done, len(subjects))
    return np.array(places, dtype=np.int64)


def _prefix(place: int, depth: int) -> int:
    """A position without the bits under this depth of its cell."""
    return place >> (CELL_BITS - depth)


def _empty_depth(place: int, members: Members) -> int:
    """The least depth of a cell at which nobody else shares the prefix of this position, or that of the leaves."""
    shared = [CELL_BITS - (place ^ member).bit_length() for member, _ in members]
    return min(max(shared) + 1, CELL_BITS)


def _cells(hashes: KeyedHashes, cells: np.ndarray, positions: np.ndarray, present: np.ndarray) -> np.ndarray:
    values = [_cell_hash(hashes, _members(cell, positions, present), 0, cell) for cell in cells.tolist()]
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(len(cells), HASH)


def _members(cell: int, positions: np.ndarray, present: np.ndarray) -> Members:
    """The positions in a cell, and whether their subjects are there."""
    first, last = np.searchsorted(positions, [cell << CELL_BITS, (cell + 1) << CELL_BITS])
    return list(zip(positions[first:last].tolist(), present[first:last].tolist(), strict=True))


def _cell_hash(hashes: KeyedHashes, members: Members, depth: int, prefix: int) -> bytes:
    """The hash of the node with this prefix in a cell with these members."""
    inside = [member for member in members if _prefix(member[0], depth) == prefix]
    if len(inside) > 1:
        return _cell_node(depth + 1, *(_cell_hash(hashes, inside, depth + 1, 2 * prefix + bit) for bit in (0, 1)))
    if not inside:
        return empty_hash(hashes.seed(-depth, prefix))
    ((place, there),) = inside
    node = hashes.present(place) if there else empty_hash(hashes.seed(-CELL_BITS, place))
    for level in range(CELL_BITS, depth, -1):  # the others on the way are empty
        own = _prefix(place, level)
        other = empty_hash(hashes.seed(-level, own ^ 1))
        node = _cell_node(level, *((other, node) if own & 1 else (node, other)))
    return node


def _cell_node(depth: int, left: bytes, right: bytes) -> bytes:
    """The parent of two nodes at this depth of a cell."""
    return sha256(b"graphforget-cell" + bytes([depth]) + left + right).digest()


def _root(salt: bytes, height: int, public_key: bytes, top: bytes) -> bytes:
    return sha256(SUBJECTS.encode() + salt + bytes([height]) + public_key + top).digest()
