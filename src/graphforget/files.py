"""Reads files that somebody else may have written, and writes files completely or not at all."""

from __future__ import annotations

import os
import secrets
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from graphforget.errors import InputError

ZIP = b"PK\x03\x04"  # the first bytes of an archive
STAGED = ".part"  # ending of the name of a file that is being written
SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'"}  # other than the comma, with their names


class UnsafeFile(InputError):
    """A file is not a regular one, is too large, or is not of the right kind. The message says why."""


def error_reason(error: BaseException) -> str:
    """An error in one line, without the number and the path that errors of the operating system carry."""
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return " ".join(str(error).split()).rstrip(".")


@contextmanager
def open_regular(path: Path, *, largest: int, links: bool = False) -> Iterator[BinaryIO]:
    """Opens a regular file of at most `largest` bytes. Never waits for a pipe, reads no device, follows no link.

    Raises `FileNotFoundError` if the file is missing, and `UnsafeFile` for every other reason. With `links` it follows
    links: use that for a path that the user gave, not for a name in a folder that somebody else may have written.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = "it is a link" if not links and path.is_symlink() else error_reason(error)
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


def check_uncompressed(path: Path) -> None:
    """Raises `UnsafeFile` if a file of `torch.save` is compressed. It never is, and a small one could fill the memory.

    A file of another kind is left to whoever reads it.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(ZIP)) != ZIP:
                return
            with zipfile.ZipFile(file) as archive:
                inside, size = sum(entry.file_size for entry in archive.infolist()), path.stat().st_size
    except OSError as error:
        raise UnsafeFile(f"{path} cannot be read: {error_reason(error)}") from error
    except Exception as error:  # a damaged archive can raise any exception
        raise UnsafeFile(f"{path} cannot be read: it is a damaged archive") from error
    if inside > size:
        raise UnsafeFile(f"{path} cannot be read: it has {size:,} bytes and would take {inside:,} in memory")


def read_bytes(path: Path, *, largest: int, links: bool = False) -> bytes:
    """The content of a file that `open_regular` opens."""
    with open_regular(path, largest=largest, links=links) as file:
        return read_all(file, largest, path)


def read_all(file: BinaryIO, largest: int, path: Path) -> bytes:
    try:
        return file.read(largest)
    except OSError as error:
        raise UnsafeFile(f"{path} cannot be read: {error_reason(error)}") from error


def comma_separated(lines: Iterable[str], path: str | Path, *, columns: Sequence[str]) -> Iterator[str]:
    """The lines of a CSV file, unchanged. Raises `InputError` if its header separates these columns otherwise."""
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


def write_atomic(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Replaces the content of a file. After a failure the old content is there, and no other file."""
    staged = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{STAGED}")
    try:
        staged.write_bytes(content)
        if mode is not None:
            staged.chmod(mode)
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
