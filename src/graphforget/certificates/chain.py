"""The entries of a ledger: each holds the hash of the entry before it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from graphforget.certificates.levels import Level
from graphforget.errors import InputError

START = "0" * 64  # stands in for the hash before the first entry
FORMAT = 2
REFUSED = "refused"  # in place of a level: noise was drawn, and nothing was released
PREFIXES = {1: b"graphforget-ledger-1\n", 2: b"graphforget-ledger-2\n"}


class BrokenChain(InputError):
    """The chain of entries does not hold; the message names the first entry that is not what it must be."""


@dataclass(frozen=True)
class Entry:
    """One answered request."""

    number: int  # 1, 2, ...
    time: str  # ISO 8601, UTC
    request_id: str
    request_digest: str  # hex; salted, so that it names nobody
    certificate_digest: str  # hex SHA-256 of the certificate document
    level: Level | Literal["refused"]
    ratio: float | None  # at most distance / sigma of the release: 0 for exact, None where nothing is proven
    answer: str  # JSON text: the public answer
    previous: str  # hash of the entry before, `START` for the first
    hash: str  # SHA-256 of all of the above
    signer: str | None = None  # public key, hex
    signature: str | None = None  # of the hash, hex


COLUMNS = tuple(field.name for field in dataclasses.fields(Entry))
_HASHED = tuple(name for name in COLUMNS if name not in ("hash", "signer", "signature"))


@dataclass(frozen=True)
class Chain:
    """The entries 1, 2, ... of an unbroken chain. Making one checks it, so whoever is given one need not check again.

    Raises:
        BrokenChain: An entry is missing, was changed, or does not continue from the entry before it.
    """

    entries: tuple[Entry, ...] = ()
    follows: str = START  # the hash that the first entry continues from
    format: int = FORMAT

    def __post_init__(self) -> None:
        previous = self.follows
        for number, entry in enumerate(self.entries, start=1):
            if entry.number != number:
                raise BrokenChain(f"the ledger is broken at entry {number}: number {entry.number} stands in its place")
            if entry.previous != previous:
                raise BrokenChain(
                    f"the ledger is broken at entry {number}: it does not continue from the entry before it"
                )
            if not _is_intact(entry, self.format):
                raise BrokenChain(f"the ledger is broken at entry {number}: its hash is not that of its content")
            previous = entry.hash

    @property
    def head(self) -> str:
        """The hash of the last entry, `follows` if there is none."""
        return self.entries[-1].hash if self.entries else self.follows


def answered_together(entries: Iterable[Entry]) -> tuple[tuple[Entry, ...], ...]:
    """The entries, grouped by release or refusal: requests that were answered together name one certificate."""
    groups = groupby(entries, key=lambda entry: entry.certificate_digest)
    return tuple(tuple(group) for _, group in groups)


def signed_bytes(entry: Entry) -> bytes:
    """What an entry's signature covers: by its hash everything that the entry records, and everything before it."""
    return b"graphforget-ledger-entry\n" + entry.hash.encode()


def _is_intact(entry: Entry, format: int) -> bool:
    try:
        return entry.hash == entry_hash(entry, format)
    except (TypeError, ValueError):  # bytes or infinity, which `append` never writes
        return False


def entry_hash(entry: Entry, format: int = FORMAT) -> str:
    content = {name: getattr(entry, name) for name in _HASHED}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(PREFIXES[format] + text.encode()).hexdigest()
