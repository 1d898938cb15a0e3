"""Hashes of what is not in a tree. With a secret key they look like all others, and one of them can be opened alone."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b, sha256

import numpy as np

from graphforget.graph.record_tree import HASH


@dataclass(frozen=True)
class KeyedHashes:
    """The hash of an empty subtree is that of a pseudo-random seed. The seed shows that the subtree is empty."""

    key: bytes  # 32 random bytes

    def at(self, level: int, prefixes: np.ndarray) -> np.ndarray:
        hashes = b"".join([empty_hash(self.seed(level, prefix)) for prefix in prefixes.tolist()])
        return np.frombuffer(hashes, dtype=np.uint8).reshape(len(prefixes), HASH)

    def seed(self, level: int, prefix: int) -> bytes:
        """The seed of the empty subtree with this prefix."""
        return self._bytes(b"empty", level, prefix)

    def present(self, prefix: int) -> bytes:
        """The leaf of somebody who is in the tree. It tells nothing else of them."""
        return sha256(b"graphforget-present" + self._bytes(b"present", 0, prefix)).digest()

    def _bytes(self, use: bytes, level: int, prefix: int) -> bytes:
        place = level.to_bytes(8, "little", signed=True) + prefix.to_bytes(8, "little")
        return blake2b(place, key=self.key, digest_size=HASH, person=use).digest()


def empty_hash(seed: bytes) -> bytes:
    """The hash of an empty subtree. No node and no leaf has this form."""
    return sha256(b"graphforget-empty" + seed).digest()
