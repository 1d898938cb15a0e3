"""Changes of a part's files, written down before they are made, so that a killed rank can make them later.

A journal holds positions and new bytes, never old ones, for the state with one name. Rank 0 decides whether that state
is the current one. If it is, the journal is carried out, as often as it takes. If it is not, it is erased unread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np

from graphforget.distributed.part_files import BLOCK, PART_FILE, ArrayFile, PartFiles, file_digest, sync
from graphforget.errors import InputError
from graphforget.files import write_atomic

JOURNAL = "journal.bin"
MAGIC = b"graphforget-part-journal-1\n"

Changes = Mapping[str, tuple[np.ndarray, np.ndarray]]  # of each array: rows (ascending), and their new values


def write_journal(part: PartFiles, changes: Changes, *, state: str) -> PartFiles:
    """Writes the journal of these changes, and gives what the part's files will be. No file of the part changes."""
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
    write_atomic(part.folder / JOURNAL, content + sha256(content).digest(), mode=0o600)
    _sync_file(part.folder / JOURNAL)
    sync(part.folder)
    return after


def settle(folder: Path, *, state: str) -> None:
    """Carries a journal of this state out, and erases any other one. Nothing happens without a journal."""
    path = folder / JOURNAL
    if not path.exists():
        return
    content = path.read_bytes()
    intact = content.startswith(MAGIC) and sha256(content[:-32]).digest() == content[-32:]
    start = len(MAGIC) + 8
    end = start + int.from_bytes(content[len(MAGIC) : start], "little")
    header = json.loads(content[start:end]) if intact else {}
    if header.get("state") == state:
        _carry_out(folder, header, memoryview(content)[end:-32])
    elif not intact:
        raise InputError(f"{path} is damaged")
    _erase(path)


def _carry_out(folder: Path, header: dict[str, object], body: memoryview) -> None:
    at = 0
    writes: list[tuple[str, int, int]] = header["writes"]  # type: ignore[assignment]
    for name, count, width in writes:
        places = np.frombuffer(body, dtype="<i8", count=count, offset=at)
        at += 8 * count
        with (folder / f"{name}.bin").open("r+b") as file:
            for number, place in enumerate(places.tolist()):
                file.seek(place)
                file.write(body[at + number * width : at + (number + 1) * width])
            file.flush()
            os.fsync(file.fileno())
        at += count * width
    write_atomic(folder / PART_FILE, str(header["part"]).encode(), mode=0o600)
    sync(folder)


def _new_hashes(part: PartFiles, name: str, places: np.ndarray, raw: np.ndarray) -> list[bytes]:
    """The hashes of a file's blocks after these bytes are written. Only blocks that they touch are read."""
    hashes, width = list(part.hashes[name]), raw.shape[1]
    first, last = places // BLOCK, (places + width - 1) // BLOCK
    touched = np.unique(np.concatenate([first, last]))  # a row is shorter than a block
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
