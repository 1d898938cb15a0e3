"""Ranks as threads of one process, for tests of what ranks compute together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from graphforget.distributed.group import Group, Traffic

Result = TypeVar("Result")


class ThreadGroup(Group):
    """One rank among threads. What it sends is counted as between processes."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, box: dict[int, list[np.ndarray]]) -> None:
        self.rank, self.size, self.traffic = rank, size, Traffic()
        self.restarts, self._purpose, self._device, self._folder = 0, "control", None, None
        self._barrier, self._box = barrier, box

    def exchange(self, parts: Sequence[np.ndarray], *, purpose: str) -> list[np.ndarray]:
        self.traffic.add(purpose, sum(part.nbytes for rank, part in enumerate(parts) if rank != self.rank))
        self._box[self.rank] = [part.copy() for part in parts]
        self._barrier.wait()
        received = [self._box[rank][self.rank] for rank in range(self.size)]
        self._barrier.wait()
        return received

    def exchange_known(
        self, rows: np.ndarray, sent: list[int], out: np.ndarray, got: list[int], *, purpose: str
    ) -> None:
        ends = np.cumsum([0, *sent])
        parts = [rows[ends[rank] : ends[rank + 1]] for rank in range(self.size)]
        received = self.exchange(parts, purpose=purpose)
        assert [len(part) for part in received] == got
        out[:] = np.concatenate(received)


def on_threads(number: int, work: Callable[[Group], Result]) -> list[Result]:
    """What `work` gives on each of so many ranks."""
    barrier, box = threading.Barrier(number, timeout=60), {}  # type: ignore[var-annotated]

    def run(rank: int) -> Result:
        try:
            return work(ThreadGroup(rank, number, barrier, box))
        except BaseException:
            barrier.abort()  # the others would wait for this one
            raise

    with ThreadPoolExecutor(number) as pool:
        futures = [pool.submit(run, rank) for rank in range(number)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    first = next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), None)
    if errors:
        raise first or errors[0]
    return [future.result() for future in futures]
