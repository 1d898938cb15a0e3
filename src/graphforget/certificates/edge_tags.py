"""Tags of edges: a quick test of many edges against the few that an annex names.

A graph may have many millions of edges, and SHA-256 of the names of each would take minutes in Python. So every *node*
is hashed with SHA-256, and a tag of 64 bits is computed from the hashes of both ends by AES, for many edges in one
call. Only edges whose tag is in the annex are hashed themselves.

What a tag reveals: whoever has the annex, and so the salt, can test a guess of both ends, as with the hash of the edge
that the annex contains anyway. Nothing can be learned of one end alone. The tag is half of a block, so the key does
not help to get the ends from it: 2^64 blocks have this half. A test of a guess takes no less work than one block of
SHA-256, which is what a test against the hash takes: therefore AES is applied `ROUNDS` times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from graphforget.certificates.salted import framed, salted_digests

ROUNDS = 40  # measured with the processor's own instructions: SHA-256 36 ns a block, AES 2 ns; an even number
BLOCK = 16  # bytes
TAGS_AT_ONCE = 4096  # their blocks stay in cache


def node_keys(salt: bytes, names: Iterable[bytes]) -> np.ndarray:
    """64 bits of the salted hash of each node as the end of an edge; the names are framed."""
    digests = b"".join(digest[:8] for digest in salted_digests(salt, "edge end", names))
    return np.frombuffer(digests, dtype="<u8")


def edge_tags(salt: bytes, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The tag of each edge from the keys of its two ends, the same for both directions."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    # AES serves as a fast pseudo-random function of each block: nothing is encrypted, so no mode has to hide equality.
    key = hashlib.sha256(framed(salt) + framed(b"edge tags")).digest()
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    tags = np.empty(first.size, dtype="<u8")
    blocks, spare = (np.empty((TAGS_AT_ONCE + 1, 2), dtype="<u8") for _ in range(2))  # the cipher wants one block more
    for start in range(0, first.size, TAGS_AT_ONCE):
        part = slice(start, start + TAGS_AT_ONCE)
        size = first[part].size
        np.minimum(first[part], second[part], out=blocks[:size, 0])
        np.maximum(first[part], second[part], out=blocks[:size, 1])
        here, there = blocks.data.cast("B"), spare.data.cast("B")
        for _ in range(ROUNDS // 2):
            cipher.update_into(here[: size * BLOCK], there)
            cipher.update_into(there[: size * BLOCK], here)
        tags[part] = blocks[:size, 0]
    return tags
