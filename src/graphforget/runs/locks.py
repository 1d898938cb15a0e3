"""Locks on folders, so that one process at a time moves a run directory on and nobody reads it while it is replaced.

There are two locks. `run_lock` is held on the run directory for as long as a request takes. `parent_lock` is held on
the folder around it while the run directory is read or replaced, because for a moment the run directory does not exist.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from graphforget.errors import InputError
from graphforget.files import error_reason


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Waits until nobody else is answering a request on this folder. A folder that does not exist needs no lock.

    A writer replaces the folder, so after waiting the folder is looked up again.
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
def run_locks(*folders: Path) -> Iterator[None]:
    """The locks of several folders, in one order, so that two processes never wait for each other."""
    with ExitStack() as locks:
        for folder in sorted(set(folders)):
            locks.enter_context(run_lock(folder))
        yield


@contextmanager
def parent_lock(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Locks the folder around `folder`: `shared` to read `folder`, otherwise to replace it."""
    try:
        held = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # then there is nothing to read, and writing reports the error
        yield
        return
    try:
        _take(held, folder.parent, shared=shared)
        yield
    finally:
        os.close(held)


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Locks a new folder that is about to replace another one, and stays locked there."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _take(held, folder)
        yield
    finally:
        os.close(held)


@contextmanager
def try_lock(folder: Path, why: str) -> Iterator[None]:
    """Locks a folder without waiting. Raises `InputError` with the message `why` if somebody else has the lock."""
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
