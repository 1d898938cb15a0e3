"""Versions of a matrix that share one array."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphforget.linalg import versioned
from graphforget.linalg.versioned import VersionedRows, exclusive


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.sets(st.integers(0, 5)), st.booleans()), max_size=30))
def test_every_version_of_a_tree_of_updates_reads_as_a_copy_of_its_own_would(
    moves: list[tuple[int, set[int], bool]],
) -> None:
    copies = [np.arange(12.0).reshape(6, 2)]
    versions = [VersionedRows(copies[0].copy())]
    for count, (parent, rows, look) in enumerate(moves, start=1):
        parent %= len(versions)
        index = np.array(sorted(rows), dtype=np.int64)
        values = np.full((index.size, 2), 100.0 + count)
        versions.append(versions[parent].updated(index, values))
        copy = copies[parent].copy()
        copy[index] = values
        copies.append(copy)
        if look:
            np.testing.assert_array_equal(versions[parent].array(), copies[parent])
    for version, copy in zip(versions, copies, strict=True):
        np.testing.assert_array_equal(version.array(), copy)
        np.testing.assert_array_equal(version.rows(np.array([3, 1])), copy[[3, 1]])


def test_a_version_that_nobody_holds_is_freed() -> None:
    first = VersionedRows(np.zeros((4, 1)))
    second = first.updated(np.array([0]), np.ones((1, 1)))
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
    assert second.array()[0, 0] == 1


def test_two_threads_with_two_versions_each_read_their_own() -> None:
    first = VersionedRows(np.zeros((2000, 50)))
    second = first.updated(np.arange(1000), np.ones((1000, 50)))
    wrong: list[float] = []

    @exclusive
    def total(version: VersionedRows) -> float:
        return float(version.array().sum())

    def read(version: VersionedRows, expected: float) -> None:
        wrong.extend(seen for seen in (total(version) for _ in range(300)) if seen != expected)

    threads = [threading.Thread(target=read, args=pair) for pair in ((first, 0.0), (second, 50_000.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_rows_that_are_computed_in_blocks_are_those_of_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioned, "BLOCK", 3)
    first = VersionedRows(np.arange(20.0).reshape(10, 2))
    index = np.array([9, 0, 4, 7, 2])
    blocks: list[slice] = []

    def doubled(block: slice, rows: np.ndarray) -> np.ndarray:
        blocks.append(block)
        np.testing.assert_array_equal(rows, np.arange(20.0).reshape(10, 2)[index[block]])
        return 2 * rows

    second = first.changed(index, doubled)
    expected = np.arange(20.0).reshape(10, 2)
    expected[index] *= 2
    assert blocks == [slice(0, 3), slice(3, 5)]
    np.testing.assert_array_equal(second.array(), expected)
    np.testing.assert_array_equal(first.array(), np.arange(20.0).reshape(10, 2))
    np.testing.assert_array_equal(second.array(), expected)


def test_an_update_that_fails_half_way_leaves_the_version_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioned, "BLOCK", 2)
    first = VersionedRows(np.arange(8.0).reshape(8, 1))

    def failing(block: slice, rows: np.ndarray) -> np.ndarray:
        if block.start >= 4:
            raise KeyboardInterrupt
        return rows + 100

    with pytest.raises(KeyboardInterrupt):
        first.changed(np.arange(8), failing)
    np.testing.assert_array_equal(first.array()[:, 0], np.arange(8.0))


class _Interrupting(np.ndarray):
    """An array that is interrupted after one of its assignments."""

    left = 0  # assignments until then

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        type(self).left -= 1
        if type(self).left == 0:
            raise KeyboardInterrupt


def test_an_interruption_while_versions_are_exchanged_tears_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioned, "BLOCK", 2)
    array = np.arange(8.0).reshape(8, 1).view(_Interrupting)
    _Interrupting.left = 0
    first = VersionedRows(array)
    second = first.updated(np.arange(8), np.arange(8.0).reshape(8, 1) + 100)
    _Interrupting.left = 2
    with pytest.raises(KeyboardInterrupt):
        first.array()
    np.testing.assert_array_equal(first.array()[:, 0], np.arange(8.0))
    np.testing.assert_array_equal(second.array()[:, 0], np.arange(8.0) + 100)
    np.testing.assert_array_equal(first.array()[:, 0], np.arange(8.0))


def test_a_signal_at_any_moment_tears_no_version() -> None:
    """Python raises the exception of a signal between two instructions, often where a loop begins again."""
    rows, interrupted = 20_000, 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        for turn in range(40):
            first = VersionedRows(np.zeros((rows, 32)))
            second = first.updated(np.arange(rows), np.ones((rows, 32)))
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 * (1 + turn))
                first.array()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            assert not first.array().any()
            assert second.array().all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert interrupted
