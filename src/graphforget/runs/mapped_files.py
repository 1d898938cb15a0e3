"""Arrays that are mapped from files, and what an open graph sees while these files are overwritten.

A process holds one shared lock on the files of a run for as long as any array mapped from them is in use. A writer
needs the lock for itself, so it never changes what another process has open. The arrays that its own process has open
get their own copy of every page that is about to change: they are mapped copy-on-write, and writing a byte of a page
makes that copy. A process that is forked from one with open arrays is another process, and takes a lock of its own.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from graphforget.errors import InputError
from graphforget.files import open_regular
from graphforget.runs.journal import Write
from graphforget.runs.layout import LARGEST_ARRAY

PATIENCE = 2.0  # seconds that a writer waits for readers in other processes

Identity = tuple[int, int]  # of a file: its device and its inode, which renames do not change


@dataclass(eq=False)
class _Held:
    """The files of one run that this process has open: the descriptor of their lock, and what is mapped from each."""

    identity: Identity
    path: Path
    descriptor: int
    maps: dict[str, weakref.WeakSet[mmap.mmap]] = field(default_factory=dict)
    count: int = 0


_HELD: dict[Identity, _Held] = {}
_GUARD = threading.RLock()  # the collector may end a mapping at any time, in any thread


def identity_of(path: Path) -> Identity | None:
    """Which file this is; None if there is none."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def map_array(path: Path, dtype: str, shape: tuple[int, ...], *, lock: Path) -> np.ndarray:
    """An array in a file. What is written to the array does not reach the file.

    The shared lock on the file `lock` is held until nothing that shares memory with the array is left. The caller
    holds the lock of the folder around the run, and knows that the file has the size of the array.
    """
    with open_regular(path, largest=LARGEST_ARRAY) as file:
        if not os.fstat(file.fileno()).st_size:
            return np.zeros(shape, dtype=dtype)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    with _GUARD:
        held = _hold(lock)
        held.maps.setdefault(path.name, weakref.WeakSet()).add(mapped)
        held.count += 1
        weakref.finalize(mapped, _release, held)
    return np.frombuffer(mapped, dtype=dtype).reshape(shape)


def _hold(lock: Path) -> _Held:
    descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    identity = status.st_dev, status.st_ino
    if identity in _HELD:
        os.close(descriptor)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _HELD[identity] = _Held(identity, lock, descriptor)
    return _HELD[identity]


def _release(held: _Held) -> None:
    with _GUARD:
        held.count -= 1
        if held.count == 0:
            del _HELD[held.identity]
            os.close(held.descriptor)


def _lock_in_child() -> None:
    """A forked process has inherited the descriptor, and with it the lock of its parent, who could overwrite."""
    global _GUARD
    _GUARD = threading.RLock()  # another thread of the parent may have held it
    for held in _HELD.values():
        inherited, held.descriptor = held.descriptor, _opened(held)
        if held.descriptor != inherited:
            fcntl.flock(held.descriptor, fcntl.LOCK_SH)
            os.close(inherited)


def _opened(held: _Held) -> int:
    """A new descriptor of the locked file; the present one if the file is not at its place any more."""
    try:
        descriptor = os.open(held.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return held.descriptor
    status = os.fstat(descriptor)
    if (status.st_dev, status.st_ino) == held.identity:
        return descriptor
    os.close(descriptor)
    return held.descriptor


os.register_at_fork(after_in_child=_lock_in_child)


@contextmanager
def overwriting(lock: Path, writes: list[Write]) -> Iterator[None]:
    """Takes the lock of a run's files alone, and gives open arrays of this process their own copy of what changes.

    Raises `InputError` if another process has the files open.
    """
    with _GUARD:
        held = _hold(lock)
        held.count += 1
    try:
        _take_alone(held.descriptor, lock)
        for write in writes:
            pages = write.pages(mmap.PAGESIZE)
            for mapped in list(held.maps.get(write.name, ())):
                content = np.frombuffer(mapped, dtype=np.uint8)
                content[pages] = content[pages]
        yield
    finally:
        fcntl.flock(held.descriptor, fcntl.LOCK_SH)
        _release(held)


def _take_alone(descriptor: int, lock: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:  # a failed try may have lost the shared lock too; nobody else writes meanwhile
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if time.monotonic() > deadline:
                message = f"{lock.parent} is open in another process, and nothing was changed"
                raise InputError(f"{message}: close it there, or write the new state elsewhere with --out") from error
        time.sleep(0.05)
