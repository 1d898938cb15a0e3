"""A tree with one slot a node number: the salted hash of a record, or of nothing. It shows that a number is not there.

Salts are random, new whenever a record changes, and gone with the node: after that nobody can test a guess of what a
deleted node was against a hash that was shown before, not even with the secret key. The root has a salt too, which is
new with every release: otherwise two equal roots would tell that a request changed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from graphforget.certificates.keyed_hashes import KeyedHashes, empty_hash
from graphforget.graph.record_tree import BITS, HASH, HEIGHT, RecordTree, path_root
from graphforget.linalg.versioned import VersionedRows
from graphforget.privacy.salt import new_salt, new_salts

SLOTS = "graphforget-slots-1"  # the algorithm of `root`


@dataclass(frozen=True)
class SlotOpening:
    """That a number is not in a slot tree.

    The salt of the root, the seed of an empty subtree that holds the number, and the way from there to the root.
    """

    salt: bytes
    seed: bytes
    path: tuple[bytes, ...]

    def root(self, number: int) -> bytes | None:
        """The root of the slot tree that this opening belongs to; None if it is no opening of this number."""
        level = HEIGHT - len(self.path)
        top = path_root(number, empty_hash(self.seed), self.path, level=level) if level >= 0 else None
        sizes = len(self.seed) == len(self.salt) == HASH
        return None if top is None or not sizes else slot_root(self.salt, top)


@dataclass(frozen=True, eq=False)
class SlotTree:
    """The slots of a graph's nodes. A slot stays where it is when its node goes."""

    key: bytes
    salt: bytes  # of the root, another one in every release
    salts: VersionedRows  # 32 bytes a slot, zeros for one that is empty
    tree: RecordTree

    @classmethod
    def of(cls, records: RecordTree, key: bytes) -> SlotTree:
        """The slots of a graph with these records, under new salts."""
        numbers = records.numbers
        leaves = records.leaves(numbers)
        return cls._made(key, new_salt(), numbers, new_salts(leaves), leaves)

    @classmethod
    def again(
        cls, key: bytes, salt: bytes, numbers: np.ndarray, salts: np.ndarray, records: RecordTree
    ) -> SlotTree | None:
        """The slots of these records with salts from before, all hashes computed; None if they do not belong together.

        Every record has a slot with a salt, and every other slot has none.
        """
        leaves = records.leaves(numbers)
        there = records.numbers[records.leaves(records.numbers).any(axis=1)]
        if not np.isin(there, numbers).all() or (leaves.any(axis=1) != salts.any(axis=1)).any():
            return None
        return cls._made(key, salt, numbers, salts, leaves)

    @classmethod
    def _made(cls, key: bytes, salt: bytes, numbers: np.ndarray, salts: np.ndarray, records: np.ndarray) -> SlotTree:
        tree = RecordTree.of(numbers, slot_hashes(key, numbers, salts, records), empty=KeyedHashes(key))
        return cls(key, salt, VersionedRows(salts), tree)

    @property
    def root(self) -> bytes:
        return slot_root(self.salt, self.tree.root)

    def updated(self, before: RecordTree, after: RecordTree) -> SlotTree:
        """The slots of the next release, with new salts for the root and where a record changed."""
        changed = after.differences(before)
        leaves = after.leaves(changed)
        salts = new_salts(leaves)
        new = self.salts.updated(np.searchsorted(self.tree.numbers, changed), salts)
        hashes = slot_hashes(self.key, changed, salts, leaves)
        return SlotTree(self.key, new_salt(), new, self.tree.updated(changed, hashes))

    def rebuilt(self, records: RecordTree) -> SlotTree | None:
        """The slots of these records with the salts of this tree, hashed anew; None if these are not its records."""
        return self.again(self.key, self.salt, self.tree.numbers, self.salts.array().copy(), records)

    def opening(self, number: int) -> SlotOpening | None:
        """The opening of a number that is not there; None if it is."""
        level = self.tree.lowest_level(number)
        if self.salts.rows(self.tree.numbers == number).any():
            return None
        seed = KeyedHashes(self.key).seed(level, number >> (BITS * level))
        return SlotOpening(self.salt, seed, self.tree.path(number, level=level))


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


def slot_root(salt: bytes, top: bytes) -> bytes:
    """The root in a certificate, from that of the tree."""
    return sha256(SLOTS.encode() + salt + top).digest()
