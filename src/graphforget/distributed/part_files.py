"""The files of one part of a graph: raw arrays, mapped and not read, with a digest of each in part.json.

The digest of a file is SHA-256 of the hashes of its blocks, so a change costs the blocks that it touches. An array is
mapped so that changes in memory do not reach the file. `Journal` brings them there.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from graphforget.errors import InputError, OtherVersion
from graphforget.files import error_reason, open_regular, write_atomic
from graphforget.json_files import read_json

FORMAT = 1
PART_FILE = "part.json"
BLOCK = 2**20  # bytes that have one hash
LARGEST = 2**44  # bytes of one array
DTYPES = ("<f4", "<f8", "<i4", "<i8", "|i1", "|u1")


def part_folder(folder: Path, rank: int) -> Path:
    """The folder of a rank's part."""
    return folder / f"part-{rank:04d}"


@dataclass(frozen=True)
class ArrayFile:
    """The type, the shape and the digest of an array."""

    dtype: str
    shape: tuple[int, ...]
    digest: str

    @property
    def size(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def to_dict(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), "digest": self.digest}


@dataclass
class PartFiles:
    """The arrays of one part, and the hashes of the blocks of their files."""

    folder: Path
    files: dict[str, ArrayFile]
    hashes: dict[str, list[bytes]]

    def map(self, name: str) -> np.ndarray:
        """An array, mapped from its file. What is written to it stays in memory."""
        file = self.files[name]
        if not file.size:
            return np.zeros(file.shape, dtype=file.dtype)
        return np.memmap(self.folder / f"{name}.bin", dtype=file.dtype, mode="c", shape=file.shape)

    def header(self) -> bytes:
        """The content of part.json."""
        arrays = {name: file.to_dict() for name, file in sorted(self.files.items())}
        return (json.dumps({"format": FORMAT, "arrays": arrays}, indent=2) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of part.json, which covers every file."""
        return sha256(self.header()).hexdigest()


def open_part(folder: Path, *, digest: str | None = None) -> PartFiles:
    """Reads part.json and checks every file by its digest.

    Args:
        folder: The folder of the part.
        digest: The digest of part.json, as rank 0 has it.

    Raises:
        InputError: A file is missing, or is not as it was written.
        OtherVersion: Another version wrote the part.
    """
    try:
        files = read_header(folder)
        hashes = {name: _checked_hashes(folder / f"{name}.bin", file) for name, file in files.items()}
    except OtherVersion:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{folder} is damaged: {error.filename} is missing") from error
    except (OSError, InputError) as error:
        raise InputError(f"{folder} is damaged: {error_reason(error)}") from error
    part = PartFiles(folder, files, hashes)
    if digest is not None and part.digest != digest:
        raise InputError(f"{folder} is damaged, or is the part of another graph: its digest is not that of rank 0")
    return part


def read_header(folder: Path) -> dict[str, ArrayFile]:
    """The arrays of part.json. Their files are not read."""
    return parsed_header(read_json(folder / PART_FILE, name=str(folder / PART_FILE)), folder)


def parsed_header(content: Any, folder: Path) -> dict[str, ArrayFile]:
    """The arrays that the content of part.json describes, each with a name that is safe as that of a file."""
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise OtherVersion(f"{folder} has format {str(found)[:80]}, this version reads format {FORMAT}")
    return {name: _array_file(name, entry) for name, entry in dict(content.get("arrays") or {}).items()}


def _array_file(name: str, entry: Any) -> ArrayFile:
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, digest = fields.get("dtype"), fields.get("shape"), fields.get("digest")
    sizes = isinstance(shape, list) and all(type(one) is int and 0 <= one < 2**40 for one in shape)
    if dtype not in DTYPES or not sizes or not isinstance(digest, str) or not name.replace("-", "").isalnum():
        raise InputError(f"part.json does not describe the array {name[:40]!r}")
    return ArrayFile(str(dtype), tuple(shape), digest)  # type: ignore[arg-type]


def _checked_hashes(path: Path, file: ArrayFile) -> list[bytes]:
    with open_regular(path, largest=LARGEST) as content:
        if os.fstat(content.fileno()).st_size != file.size:
            raise InputError(f"{path.name} has not the size that part.json says")
        hashes = [sha256(block).digest() for block in iter(lambda: content.read(BLOCK), b"")]
    if file_digest(hashes) != file.digest:
        raise InputError(f"{path.name} is not the file that was written")
    return hashes


def file_digest(hashes: list[bytes]) -> str:
    """The digest of a file from the hashes of its blocks."""
    return sha256(b"".join(hashes)).hexdigest()


# -- writing ---------------------------------------------------------------------------------------------------------


def write_part(folder: Path, arrays: Mapping[str, np.ndarray]) -> PartFiles:
    """Writes arrays and part.json into a new folder, synced. Arrays may be mapped: they are read block by block."""
    folder.mkdir(parents=True, mode=0o700)
    files, hashes = {}, {}
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<").str
        path = folder / f"{name}.bin"
        path.touch(mode=0o600)
        listed = []
        with path.open("wb") as file:
            for block in _byte_blocks(array.astype(dtype, copy=False)):
                listed.append(sha256(block).digest())
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        files[name], hashes[name] = ArrayFile(dtype, array.shape, file_digest(listed)), listed
    part = PartFiles(folder, files, hashes)
    write_atomic(folder / PART_FILE, part.header(), mode=0o600)
    sync(folder)
    return part


def _byte_blocks(array: np.ndarray) -> Iterator[memoryview]:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else np.zeros(0, dtype=np.uint8)
    for start in range(0, flat.size, BLOCK):
        yield flat[start : start + BLOCK].data


def sync(folder: Path) -> None:
    """Waits until the names in a folder are on the disk."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
