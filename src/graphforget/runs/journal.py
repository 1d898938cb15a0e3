"""What a request overwrites in the files of a run: a redo-only journal, safe to be killed at every step.

The journal holds positions and new bytes, nothing of the old ones. It comes into the run directory with the new state,
in one rename. Whoever opens a run directory with a journal first does what it says. Doing it twice changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from graphforget.errors import InputError
from graphforget.files import error_reason, read_bytes

JOURNAL, ERASED = "journal", "journal.done"  # the second is done and waits to be erased
LARGEST_JOURNAL = 2**34  # bytes
HASH = 32
ZEROS = bytes(2**20)


@dataclass(frozen=True, eq=False)
class Write:
    """Other bytes at some places of a file."""

    name: str  # of the file
    starts: np.ndarray  # int64, the places in bytes
    lengths: np.ndarray  # int64
    data: np.ndarray  # uint8, the new bytes of all places, one after the other

    @classmethod
    def of_rows(cls, name: str, rows: np.ndarray, values: np.ndarray) -> Write:
        """Other rows of an array: `values` has one for each of `rows`, in the type of the file."""
        size = values[:1].nbytes or values.itemsize
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return cls(name, rows.astype(np.int64) * size, np.full(rows.size, size), content)

    def pages(self, size: int) -> np.ndarray:
        """The first byte of every page of the file that is written to."""
        written = self.lengths > 0
        starts, lengths = self.starts[written], self.lengths[written]
        first = starts // size
        counts = (starts + lengths - 1) // size - first + 1
        steps = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        return np.unique(np.repeat(first, counts) + steps) * size

    def apply(self, folder: Path) -> None:
        """Overwrites the bytes, and waits until the disk has them."""
        descriptor = os.open(folder / self.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            ends = self.starts + self.lengths
            fits = not self.starts.size or (self.starts.min() >= 0 and ends.max() <= status.st_size)
            if not stat.S_ISREG(status.st_mode) or not fits:
                raise InputError(f"its journal does not fit {self.name}")
            content, first = self.data.data, 0
            for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
                _write_at(descriptor, content[first : first + length], start)
                first += length
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_journal(folder: Path, writes: list[Write]) -> None:
    """Writes the journal of a new state. The caller sees to it that the disk has it before the state takes effect."""
    parts: dict[str, np.ndarray] = {}
    for write in writes:
        parts |= {f"{write.name}/{part}": getattr(write, part) for part in ("starts", "lengths", "data")}
    content = save(parts)
    path = folder / JOURNAL
    path.touch(mode=0o600)
    path.write_bytes(hashlib.sha256(content).digest() + content)


def replay(folder: Path, names: Collection[str]) -> None:
    """Does what the journal of a run directory says, if there is one, and erases it.

    `names` are the files that it may change. The caller holds the lock of the folder around the run directory.

    Raises:
        InputError: The journal is not as it was written.
        OSError: A file cannot be written. The journal is still there.
    """
    path = folder / JOURNAL
    if os.path.lexists(path):
        for write in _read(path, names):
            write.apply(folder)
        os.rename(path, folder / ERASED)
        sync_folder(folder)  # a journal that is partly erased must not count as one
    if os.path.lexists(folder / ERASED):
        _erase(folder / ERASED)


def is_pending(folder: Path) -> bool:
    """Whether there is a journal, or what is left of one."""
    return any(os.path.lexists(folder / name) for name in (JOURNAL, ERASED))


def sync_folder(folder: Path) -> None:
    """Waits until the disk has the names of the files in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, names: Collection[str]) -> list[Write]:
    content = read_bytes(path, largest=LARGEST_JOURNAL)
    if hashlib.sha256(content[HASH:]).digest() != content[:HASH]:
        raise InputError("its journal is not the file that was written")
    try:
        parts = load(content[HASH:])
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(f"its journal cannot be read: {error_reason(error)}") from error
    writes = []
    for name in sorted({part.rpartition("/")[0] for part in parts}):
        starts, lengths, data = (parts.get(f"{name}/{part}") for part in ("starts", "lengths", "data"))
        if name not in names or starts is None or lengths is None or data is None:
            raise InputError(f"its journal names {name[:80]!r}, which it should not")
        types = [part.dtype for part in (starts, lengths, data)] == [np.int64, np.int64, np.uint8]
        if not types or starts.shape != lengths.shape or (lengths < 0).any() or lengths.sum() != data.size:
            raise InputError(f"its journal has places in {name} that do not fit their content")
        writes.append(Write(name, starts, lengths, data))
    return writes


def _write_at(descriptor: int, content: memoryview, place: int) -> None:
    while len(content):
        done = os.pwrite(descriptor, content, place)
        content, place = content[done:], place + done


def _erase(path: Path) -> None:
    """Overwrites the places that were forgotten, and removes the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        for place in range(0, size, len(ZEROS)):
            _write_at(descriptor, memoryview(ZEROS)[: size - place], place)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.unlink(path)
