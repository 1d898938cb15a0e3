"""Salted hashes: SHA-256 of a salt, a kind and all parts, each after its length."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator


def salted_hash(salt: bytes, kind: str, *parts: str) -> str:
    """The hash of one thing, in hexadecimal digits."""
    return next(salted_digests(salt, kind, [b"".join(framed(part.encode()) for part in parts)])).hex()


def salted_digests(salt: bytes, kind: str, things: Iterable[bytes]) -> Iterator[bytes]:
    """The hash of each of many things, whose parts are framed already."""
    sha256, start = hashlib.sha256, framed(salt) + framed(kind.encode())
    return (sha256(start + thing).digest() for thing in things)


def framed(part: bytes) -> bytes:
    """The part after its length, so that different lists of parts never give the same bytes."""
    return len(part).to_bytes(8, "little") + part
