"""A journal is carried out for the state that was committed, as often as it takes, and dropped for any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphforget.distributed.part_files import BLOCK, open_part, write_part
from graphforget.distributed.part_journal import JOURNAL, settle, write_journal


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


def test_a_journal_of_another_state_is_dropped(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    part = write_part(tmp_path / "p", arrays)
    write_journal(part, {"roles": (np.array([1]), np.array([9], dtype="u1"))}, state="b")
    settle(tmp_path / "p", state="a")
    assert open_part(tmp_path / "p").digest == part.digest
    assert not (tmp_path / "p" / JOURNAL).exists()
