"""Locks on folders, so that one process at a time moves a run directory on and nobody reads it while it is replaced.

There are two locks. `run_lock` is held on the run directory for as long as a request takes. `parent_lock` is held on
the folder around it while the run directory is read or replaced, because for a moment the run directory does not exist.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphforget.errors import InputError
from graphforget.files import error_reason


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Waits until nobody else is answering a request on this folder. One that does not exist needs no turn.

    A writer replaces the folder by another one, so whoever has waited looks again.
    """
    while True:
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            yield
            return
        try:
            _take(held, folder)
            if _is_still(folder, held):
                yield
                return
        finally:
            os.close(held)


@contextmanager
def parent_lock(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Keeps the folder in its place, or out of everybody's sight while it is replaced (unless `shared`)."""
    try:
        held = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # then there is nothing to read in it, and who wants to write will be told
        yield
        return
    try:
        _take(held, folder.parent, shared=shared)
        yield
    finally:
        os.close(held)


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """The turn on a folder that is about to take another one's place and keeps it there."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _take(held, folder)
        yield
    finally:
        os.close(held)


@contextmanager
def alone(folder: Path, why: str) -> Iterator[None]:
    """The turn on a folder at once, or `InputError` with `why` not."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(why) from error
        yield
    finally:
        os.close(held)


def _take(descriptor: int, folder: Path, *, shared: bool = False) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    except OSError as error:
        raise InputError(f"{folder} cannot be locked: {error_reason(error)}") from error


def _is_still(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(folder), os.fstat(descriptor))
    except FileNotFoundError:
        return False
