"""A journal is carried out for the state that was committed, as often as it takes, and dropped for any other."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphforget.distributed.part_files import BLOCK, open_part, write_part
from graphforget.distributed.part_journal import JOURNAL, MAGIC, settle, write_journal
from graphforget.errors import InputError


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"training": rng.normal(size=(BLOCK // 50, 13)), "roles": rng.integers(0, 3, 999).astype(np.uint8)}


def test_a_committed_journal_is_carried_out(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    part = write_part(tmp_path / "p", arrays)
    rows = np.array([0, 5, 10_000, 10_082, len(arrays["training"]) - 1])  # two of them over the end of a block
    new = np.arange(rows.size * 13, dtype=np.float64).reshape(rows.size, 13)
    after = write_journal(part, {"training": (rows, new), "roles": (rows[:2], np.array([9, 8], dtype="u1"))}, state="b")
    assert open_part(tmp_path / "p").digest == part.digest  # nothing has changed yet
    journal = (tmp_path / "p" / JOURNAL).read_bytes()
    settle(tmp_path / "p", state="b")
    (tmp_path / "p" / JOURNAL).write_bytes(journal)  # a rank that was killed before it removed the journal
    settle(tmp_path / "p", state="b")
    opened = open_part(tmp_path / "p", digest=after.digest)
    expected = arrays["training"].copy()
    expected[rows] = new
    assert np.array_equal(opened.map("training"), expected)
    assert opened.map("roles")[:6].tolist() == [9, *arrays["roles"][1:5].tolist(), 8]
    assert not (tmp_path / "p" / JOURNAL).exists()


def test_a_row_may_be_longer_than_a_block(tmp_path: Path) -> None:
    values = np.zeros((3, 5 * BLOCK // 16))  # two and a half blocks a row
    part = write_part(tmp_path / "p", {"training": values})
    values[1] = 1
    after = write_journal(part, {"training": (np.array([1]), values[1:2])}, state="b")
    settle(tmp_path / "p", state="b")
    assert np.array_equal(open_part(tmp_path / "p", digest=after.digest).map("training"), values)


def test_a_journal_of_another_state_is_dropped(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    part = write_part(tmp_path / "p", arrays)
    write_journal(part, {"roles": (np.array([1]), np.array([9], dtype="u1"))}, state="b")
    settle(tmp_path / "p", state="a")
    assert open_part(tmp_path / "p").digest == part.digest
    assert not (tmp_path / "p" / JOURNAL).exists()


def test_a_full_disk_is_one_sentence_and_changes_nothing(
    tmp_path: Path, arrays: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    part = write_part(tmp_path / "part", arrays)
    before = {path.name: path.read_bytes() for path in part.folder.iterdir()}

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    name = next(iter(arrays))
    with pytest.raises(InputError, match=r"journal.bin cannot be written: no space left on device"):
        write_journal(part, {name: (np.array([0]), arrays[name][:1])}, state="next")
    assert {path.name: path.read_bytes() for path in part.folder.iterdir()} == before


def changed_journal(content: bytes, change: Callable[[dict[str, Any]], None], places: list[int] | None = None) -> bytes:
    """A journal with another header or other places, and the digest that belongs to it."""
    start = len(MAGIC) + 8
    end = start + int.from_bytes(content[len(MAGIC) : start], "little")
    header, body = json.loads(content[start:end]), content[end:-32]
    change(header)
    if places is not None:
        raw = np.array(places, dtype="<i8").tobytes()
        body = raw + body[len(raw) :]
    text = json.dumps(header).encode()
    made = MAGIC + len(text).to_bytes(8, "little") + text + body
    return made + sha256(made).digest()


def renamed(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda header: header.update(writes=[[name, *header["writes"][0][1:]]])


def counted(count: int, width: int) -> Callable[[dict[str, Any]], None]:
    return lambda header: header.update(writes=[["roles", count, width]])


@pytest.mark.parametrize(
    ("change", "places", "words"),
    [
        (renamed("../outside"), None, "which the part does not have"),
        (renamed("other"), None, "which the part does not have"),
        (lambda header: None, [-1], "outside of the array"),
        (lambda header: None, [999], "outside of the array"),
        (lambda header: None, [2**62], "outside of the array"),
        (counted(-1, 1), None, "how many rows"),
        (counted(1, -1), None, "how many rows"),
        (counted(2**40, 1), None, "too short"),
        (lambda header: header.pop("writes"), None, "not what this version writes"),
        (lambda header: header.update(part='{"format": 1, "arrays": {}}'), None, "other arrays"),
    ],
)
def test_a_forged_journal_is_one_sentence_and_writes_nothing(
    tmp_path: Path,
    arrays: dict[str, np.ndarray],
    change: Callable[[dict[str, Any]], None],
    places: list[int] | None,
    words: str,
) -> None:
    part = write_part(tmp_path / "p", arrays)
    for name in (tmp_path / "outside.bin", tmp_path / "p" / "other.bin"):
        name.write_bytes(bytes(999))
    write_journal(part, {"roles": (np.array([1]), np.array([9], dtype="u1"))}, state="b")
    path = tmp_path / "p" / JOURNAL
    path.write_bytes(changed_journal(path.read_bytes(), change, places))
    with pytest.raises(InputError, match=words):
        settle(tmp_path / "p", state="b")
    assert open_part(tmp_path / "p").digest == part.digest
    assert (tmp_path / "outside.bin").read_bytes() == (tmp_path / "p" / "other.bin").read_bytes() == bytes(999)


@pytest.mark.parametrize("kind", ["damaged", "link", "large", "array is a link"])
def test_a_journal_is_a_file_of_its_own(tmp_path: Path, arrays: dict[str, np.ndarray], kind: str) -> None:
    part = write_part(tmp_path / "p", arrays)
    write_journal(part, {"roles": (np.array([1]), np.array([9], dtype="u1"))}, state="b")
    path, roles = tmp_path / "p" / JOURNAL, tmp_path / "p" / "roles.bin"
    before = roles.read_bytes()
    if kind == "damaged":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    elif kind == "large":
        os.truncate(path, 2**33)  # a file with a hole
    else:
        linked = path if kind == "link" else roles
        linked.rename(tmp_path / "elsewhere")
        linked.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="its digest|it is a link|up to"):
        settle(tmp_path / "p", state="b")
    assert roles.read_bytes() == before
