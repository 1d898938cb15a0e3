"""A tree with one slot a node number: the salted hash of a record, or of nothing. It shows that a number is not there.

Salts are random, new whenever a record changes, and gone with the node: after that nobody can test a guess of what a
deleted node was against a hash that was shown before, not even with the secret key.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from graphforget.certificates.keyed_hashes import KeyedHashes, empty_hash
from graphforget.graph.record_tree import BITS, HASH, HEIGHT, RecordTree, path_root
from graphforget.linalg.versioned import VersionedRows

SLOTS = "graphforget-slots-1"  # the algorithm of `root`


@dataclass(frozen=True)
class SlotOpening:
    """That a number is not in a slot tree: the seed of an empty subtree that holds it, and the way to the root."""

    seed: bytes
    path: tuple[bytes, ...]

    def root(self, number: int) -> bytes | None:
        """The root of the slot tree that this opening belongs to; None if it is no opening of this number."""
        level = HEIGHT - len(self.path)
        top = path_root(number, empty_hash(self.seed), self.path, level=level) if level >= 0 else None
        return None if top is None or len(self.seed) != HASH else _root(top)


@dataclass(frozen=True, eq=False)
class SlotTree:
    """The slots of a graph's nodes. A slot stays where it is when its node goes."""

    key: bytes
    salts: VersionedRows  # 32 bytes a slot, zeros for one that is empty
    tree: RecordTree

    @classmethod
    def of(cls, records: RecordTree, key: bytes) -> SlotTree:
        """The slots of a graph with these records, under new salts."""
        numbers = records.numbers
        leaves = records.leaves(numbers)
        return cls._made(key, numbers, _new_salts(leaves), leaves)

    @classmethod
    def _made(cls, key: bytes, numbers: np.ndarray, salts: np.ndarray, records: np.ndarray) -> SlotTree:
        tree = RecordTree.of(numbers, slot_hashes(key, numbers, salts, records), empty=KeyedHashes(key))
        return cls(key, VersionedRows(salts), tree)

    @property
    def root(self) -> bytes:
        return _root(self.tree.root)

    def updated(self, before: RecordTree, after: RecordTree) -> SlotTree:
        """The slots after a change of the graph's records, with new salts where a record changed."""
        changed = after.differences(before)
        leaves = after.leaves(changed)
        salts = _new_salts(leaves)
        new = self.salts.updated(np.searchsorted(self.tree.numbers, changed), salts)
        return SlotTree(self.key, new, self.tree.updated(changed, slot_hashes(self.key, changed, salts, leaves)))

    def rebuilt(self, records: RecordTree) -> SlotTree | None:
        """The slots of these records with the salts of this tree, hashed anew; None if a record has no slot here."""
        numbers = self.tree.numbers
        leaves = records.leaves(records.numbers).any(axis=1)
        if not np.isin(records.numbers[leaves], numbers).all():
            return None
        return self._made(self.key, numbers, self.salts.array().copy(), records.leaves(numbers))

    def opening(self, number: int) -> SlotOpening | None:
        """The opening of a number that is not there; None if it is."""
        level = self.tree.lowest_level(number)
        if self.salts.rows(self.tree.numbers == number).any():
            return None
        seed = KeyedHashes(self.key).seed(level, number >> (BITS * level))
        return SlotOpening(seed, self.tree.path(number, level=level))


def slot_hashes(key: bytes, numbers: np.ndarray, salts: np.ndarray, records: np.ndarray) -> np.ndarray:
    """The leaves of these slots: hashes of salt and record, or of an empty slot where the record is zeros."""
    tag, size = b"graphforget-slot", 2 * HASH
    there = records.any(axis=1)
    raw = np.concatenate([salts, records], axis=1)[there].reshape(-1).data
    hashes = b"".join([sha256(tag + raw[start : start + size]).digest() for start in range(0, len(raw), size)])
    leaves = np.empty((len(numbers), HASH), dtype=np.uint8)
    leaves[there] = np.frombuffer(hashes, dtype=np.uint8).reshape(-1, HASH)
    leaves[~there] = KeyedHashes(key).at(0, numbers[~there])
    return leaves


def _new_salts(records: np.ndarray) -> np.ndarray:
    """A random salt for each record, zeros for one that is zeros."""
    salts = np.frombuffer(os.urandom(records.size), dtype=np.uint8).reshape(records.shape).copy()
    salts[~records.any(axis=1)] = 0
    return salts


def _root(top: bytes) -> bytes:
    return sha256(SLOTS.encode() + top).digest()
