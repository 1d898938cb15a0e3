"""Files: reading those that somebody else may have written, and writing whole ones."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from graphforget.errors import InputError

STAGED = ".part"  # how the name ends of a file that was being written when its process was killed
SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'"}  # that programs write instead of commas


class UnsafeFile(InputError):
    """A file is no regular one, too large, or not what its kind of file must be. The message says why."""


@contextmanager
def open_regular(path: Path, *, largest: int, links: bool = False) -> Iterator[BinaryIO]:
    """A regular file of at most `largest` bytes. Never waits for a pipe, reads no device, follows no link.

    A missing file is a `FileNotFoundError`, anything else that is wrong an `UnsafeFile`. `links` follows links: for
    paths that a user has named, not for names in a folder that somebody else may have written.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = "it is a link" if not links and path.is_symlink() else str(error)
        raise UnsafeFile(f"{path} cannot be read: {reason}") from error
    try:
        check_regular(path, os.fstat(descriptor), largest=largest)
    except UnsafeFile:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file


def check_regular(path: Path, status: os.stat_result, *, largest: int) -> None:
    """Raises `UnsafeFile` unless this is the status of a regular file of at most `largest` bytes."""
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFile(f"{path} cannot be read: it is not a regular file")
    if status.st_size > largest:
        raise UnsafeFile(f"{path} cannot be read: it has {status.st_size:,} bytes, up to {largest:,} are possible")


def read_bytes(path: Path, *, largest: int, links: bool = False) -> bytes:
    """The content of a file that `open_regular` opens."""
    with open_regular(path, largest=largest, links=links) as file:
        return read_all(file, largest, path)


def read_all(file: BinaryIO, largest: int, path: Path) -> bytes:
    try:
        return file.read(largest)
    except OSError as error:
        raise UnsafeFile(f"{path} cannot be read: {error}") from error


def comma_separated(lines: Iterable[str], path: str | Path, *, columns: Sequence[str]) -> Iterator[str]:
    """The lines of a CSV file as they are. Raises `InputError` if the header has these columns by another separator."""
    header_seen = False
    for line in lines:
        if not header_seen and line.strip():
            header_seen = True
            for separator, name in SEPARATORS.items():
                cells = {cell.strip().strip("\"'").strip() for cell in line.split(separator)}
                if len(cells) > 1 and cells.issuperset(columns):
                    advice = "save it with commas between the cells and with points in the numbers (0.5, not 0,5)"
                    raise InputError(f"the separator of {path} is {name}, a comma is needed: {advice}")
        yield line


def write_whole(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Puts `content` in the place of what is there. A failure leaves what was there before, and nothing else."""
    staged = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{STAGED}")
    try:
        staged.write_bytes(content)
        if mode is not None:
            staged.chmod(mode)
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
