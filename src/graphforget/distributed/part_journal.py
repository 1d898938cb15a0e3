"""Changes of a part's files, written down before they are made, so that a killed rank can make them later.

A journal holds positions and new bytes, never old ones, for the state with one name. Rank 0 decides whether that state
is the current one. If it is, the journal is carried out, as often as it takes. If it is not, it is erased unread.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from graphforget.distributed.part_files import (
    BLOCK,
    LARGEST,
    PART_FILE,
    ArrayFile,
    PartFiles,
    file_digest,
    parsed_header,
    read_header,
    sync,
)
from graphforget.errors import InputError, OtherVersion
from graphforget.files import error_reason, open_regular, write_atomic
from graphforget.json_files import parse_json

JOURNAL = "journal.bin"
MAGIC = b"graphforget-part-journal-1\n"
LARGEST_HEADER = 2**20  # bytes

Changes = Mapping[str, tuple[np.ndarray, np.ndarray]]  # of each array: rows (ascending), and their new values


def write_journal(part: PartFiles, changes: Changes, *, state: str) -> PartFiles:
    """Writes the journal of these changes, and gives what the part's files will be. No file of the part changes.

    Raises:
        InputError: It cannot be written, because the disk is full for example.
    """
    files, hashes, writes = dict(part.files), dict(part.hashes), []
    for name, (rows, values) in changes.items():
        if not rows.size:
            continue
        width = int(values[:1].nbytes)
        raw = np.ascontiguousarray(values).reshape(rows.size, -1).view(np.uint8)
        hashes[name] = _new_hashes(part, name, rows * width, raw)
        old = files[name]
        files[name] = ArrayFile(old.dtype, old.shape, file_digest(hashes[name]))
        writes.append((name, rows.astype("<i8") * width, raw))
    after = PartFiles(part.folder, files, hashes)
    header = {
        "state": state,
        "part": after.header().decode(),
        "writes": [[name, int(places.size), int(raw.shape[1])] for name, places, raw in writes],
    }
    text = json.dumps(header).encode()
    body = b"".join(piece.tobytes() for _, places, raw in writes for piece in (places, raw))
    content = MAGIC + len(text).to_bytes(8, "little") + text + body
    try:
        write_atomic(part.folder / JOURNAL, content + sha256(content).digest(), mode=0o600)
        _sync_file(part.folder / JOURNAL)
        sync(part.folder)
    except OSError as error:
        raise InputError(f"{part.folder / JOURNAL} cannot be written: {error_reason(error)}") from error
    return after


def settle(folder: Path, *, state: str) -> None:
    """Carries a journal of this state out, and erases any other one. Nothing happens without a journal.

    Raises:
        InputError: The journal is damaged, or is none of this part. Nothing is written then.
    """
    path = folder / JOURNAL
    if not os.path.lexists(path):
        return
    try:
        files = read_header(folder)
        content = _read(path, files)
        start = len(MAGIC) + 8
        end = start + int.from_bytes(content[len(MAGIC) : start], "little")
        header = parse_json(content[start:end], name="its header")
        body = memoryview(content)[end:-32]
        writes = _checked_writes(folder, files, header, body) if header["state"] == state else None
    except FileNotFoundError as error:
        raise InputError(f"{folder} is damaged: {error.filename} is missing") from error
    except OtherVersion:
        raise
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: it is not what this version writes") from error
    if writes is not None:
        _carry_out(folder, header["part"], writes, body)
    _erase(path)


def _read(path: Path, files: dict[str, ArrayFile]) -> bytes:
    """A journal with the right digest. Each row of an array can be in it once, so its size has a limit."""
    largest = sum(file.size + 8 * math.prod(file.shape[:1]) for file in files.values()) + LARGEST_HEADER
    with open_regular(path, largest=largest) as file:
        content = file.read()
    if not content.startswith(MAGIC) or sha256(content[:-32]).digest() != content[-32:]:
        raise InputError("its digest is not that of its content")
    return content


@dataclass(frozen=True, eq=False)
class _Write:
    """New bytes for one array: where they go in its file, and where the first of them is in the journal."""

    path: Path
    places: np.ndarray
    width: int
    at: int


def _checked_writes(
    folder: Path, files: dict[str, ArrayFile], header: dict[str, Any], body: memoryview
) -> list[_Write]:
    """The writes of a journal. Each is within the file of an array that this part has."""
    after = parsed_header(parse_json(header["part"], name="part.json in it"), folder)
    if _shapes(after) != _shapes(files):
        raise InputError("it is for a part with other arrays")
    at, writes = 0, []
    for name, count, width in header["writes"]:
        if name not in files:
            raise InputError(f"it names the array {str(name)[:40]!r}, which the part does not have")
        if type(count) is not int or type(width) is not int or count < 0 or width < 1:
            raise InputError("it does not say how many rows it has")
        if at + count * (8 + width) > len(body):
            raise InputError("it is too short")
        places = np.frombuffer(body, dtype="<i8", count=count, offset=at)
        if count and (places.min() < 0 or places.max() > files[name].size - width):
            raise InputError(f"it writes outside of the array {name!r}")
        path = folder / f"{name}.bin"
        with open_regular(path, largest=LARGEST) as file:
            if os.fstat(file.fileno()).st_size != files[name].size:
                raise InputError(f"{path.name} has not the size that part.json says")
        writes.append(_Write(path, places, width, at + 8 * count))
        at += count * (8 + width)
    return writes


def _shapes(files: dict[str, ArrayFile]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (file.dtype, file.shape) for name, file in files.items()}


def _carry_out(folder: Path, part: str, writes: list[_Write], body: memoryview) -> None:
    for write in writes:
        with os.fdopen(os.open(write.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as file:
            for number, place in enumerate(write.places.tolist()):
                file.seek(place)
                file.write(body[write.at + number * write.width : write.at + (number + 1) * write.width])
            file.flush()
            os.fsync(file.fileno())
    write_atomic(folder / PART_FILE, part.encode(), mode=0o600)
    sync(folder)


def _new_hashes(part: PartFiles, name: str, places: np.ndarray, raw: np.ndarray) -> list[bytes]:
    """The hashes of a file's blocks after these bytes are written. Only blocks that they touch are read."""
    hashes, width = list(part.hashes[name]), raw.shape[1]
    first, last = places // BLOCK, (places + width - 1) // BLOCK
    blocks = last - first + 1  # of each row: how many it touches
    within = np.arange(blocks.sum()) - np.repeat(blocks.cumsum() - blocks, blocks)
    touched = np.unique(np.repeat(first, blocks) + within)
    with (part.folder / f"{name}.bin").open("rb") as file:
        for block in touched.tolist():
            file.seek(block * BLOCK)
            content = bytearray(file.read(BLOCK))
            for index in range(int(np.searchsorted(last, block)), int(np.searchsorted(first, block, side="right"))):
                start = int(places[index]) - block * BLOCK
                low, high = max(start, 0), min(start + width, len(content))
                content[low:high] = raw[index, low - start : high - start].tobytes()
            hashes[block] = sha256(content).digest()
    return hashes


def _erase(path: Path) -> None:
    """Overwrites a journal and removes it: its new bytes tell what was deleted."""
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    sync(path.parent)


def _sync_file(path: Path) -> None:
    held = os.open(path, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
