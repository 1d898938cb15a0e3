"""Locks on folders: one process writes a run directory at a time, and nobody reads it while it is being replaced."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphforget.errors import InputError


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Waits for its turn. A folder that does not exist needs no lock: only one process can rename its own into place.

    The lock is on the folder itself, which a writer replaces by another one; so whoever has waited looks again.
    """
    while True:
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            yield
            return
        try:
            take(held, shared=shared)
            if _is_still(folder, held):
                yield
                return
        except OSError as error:
            raise InputError(f"{folder} cannot be locked: {error}") from error
        finally:
            os.close(held)


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """The lock on a folder that is about to take another one's place and keeps it there."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        take(held)
        yield
    finally:
        os.close(held)


def take(descriptor: int, *, shared: bool = False) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def _is_still(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(folder), os.fstat(descriptor))
    except FileNotFoundError:
        return False
