"""Files that somebody else may have written: regular ones of limited size, and tensors whose header fits the file."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from graphforget.errors import InputError

LARGEST_HEADER = 2**20  # bytes that describe the tensors of a file


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
        return _read(file, largest, path)


def read_tensors(path: Path, *, largest: int) -> tuple[dict[str, Tensor], bytes]:
    """The tensors of a safetensors file, and its bytes. Nothing is read that its header does not account for."""
    with open_regular(path, largest=largest) as file:
        size = int.from_bytes(file.read(8), "little")
        if size > LARGEST_HEADER:
            raise UnsafeFile(f"{path} cannot be read: its header has {size:,} bytes, over {LARGEST_HEADER:,}")
        try:
            ends = [tensor["data_offsets"][1] for name, tensor in json.loads(file.read(size)).items() if name[0] != "_"]
            expected = 8 + size + max(ends, default=0)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise UnsafeFile(f"{path} cannot be read: it has no header of a safetensors file") from error
        if expected != os.fstat(file.fileno()).st_size:
            raise UnsafeFile(f"{path} cannot be read: it has not the size that its header says")
        file.seek(0)
        content = _read(file, largest, path)
    try:
        return load(content), content
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        raise UnsafeFile(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _read(file: BinaryIO, largest: int, path: Path) -> bytes:
    try:
        return file.read(largest)
    except OSError as error:
        raise UnsafeFile(f"{path} cannot be read: {error}") from error
