"""Runs the cells of an experiment on several processes, cheapest first, and goes on where it was stopped."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphforget.errors import InputError, Refused
from graphforget.experiments.cells import Cell, Record, Row
from graphforget.jobs.pool import processes, stop

PRIOR = 60.0  # seconds that estimates are taken to have been right for, before any cell has shown better


@dataclass(frozen=True)
class CellProgress:
    """How far a run is. `left` are the seconds that the cells to come will take, by how long those before them took."""

    done: int
    total: int
    left: float
    label: str  # of the last cell
    seconds: float
    error: str | None = None  # why it failed


@dataclass(frozen=True)
class _Done:
    """What a worker hands back: an exception itself may not survive the way between processes."""

    found: Row | None
    seconds: float
    error: str | None = None


def run(
    cells: Sequence[Cell],
    record: Record,
    *,
    store: Path,
    jobs: int,
    pool: Callable[[int], Executor] = processes,
    report: Callable[[CellProgress], None] | None = None,
) -> int:
    """Computes the cells that are not in `record` yet and writes each down as it is done; the number that failed.

    A cell that fails is written down with the reason and tried again by the next run. Interrupted, it ends its own
    workers at once; what they were at is lost, what was finished is not.
    """
    todo = deque(sorted((cell for cell in cells if cell not in record), key=lambda cell: cell.cost))
    pace = _Pace(done=len(cells) - len(todo), total=len(cells), jobs=jobs)
    if not todo:
        return 0
    others = set(multiprocessing.active_children())
    executor = pool(jobs)
    running: dict[Future[_Done], Cell] = {}
    try:
        while todo or running:
            while todo and len(running) < jobs:
                cell = todo.popleft()
                running[executor.submit(_compute, cell.work, cell.key, store)] = cell
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            if any(isinstance(future.exception(), BrokenExecutor) for future in finished):
                finished = set(running)  # a process that died takes the others' work with it
                executor.shutdown()
                executor = pool(jobs)
            for future in finished:
                cell = running.pop(future)
                outcome = _result(future)
                if outcome.found is None:
                    record.fail(cell, outcome.error or "")
                else:
                    record.add(cell, outcome.found, seconds=outcome.seconds)
                told = pace.passed(cell, outcome, [*todo, *running.values()])
                if report is not None:
                    report(told)
    except BaseException:
        stop(executor, others)
        raise
    executor.shutdown()
    return pace.failed


class _Pace:
    """How long cells take against what was estimated."""

    def __init__(self, *, done: int, total: int, jobs: int) -> None:
        self.done, self.total, self.jobs = done, total, jobs
        self.failed = 0
        self._estimated = self._taken = PRIOR

    def passed(self, cell: Cell, outcome: _Done, left: Sequence[Cell]) -> CellProgress:
        self.done += 1
        if outcome.found is None:
            self.failed += 1
        else:
            self._estimated += cell.cost
            self._taken += outcome.seconds
        seconds = sum(each.cost for each in left) * self._taken / self._estimated / self.jobs
        return CellProgress(self.done, self.total, seconds, cell.label, outcome.seconds, outcome.error)


def _result(future: Future[_Done]) -> _Done:
    try:
        return future.result()
    except BrokenExecutor:
        return _Done(None, 0.0, "its process ended, perhaps for want of memory")


def _compute(work: Callable[..., Row], key: dict[str, Any], store: Path) -> _Done:
    started = time.perf_counter()
    try:
        found = work(store=store, **key)
    except Exception as error:  # whatever it is, the other cells are to be computed
        kind = "" if isinstance(error, InputError | Refused) else f"{type(error).__name__}: "
        told = _without_places(" ".join(f"{kind}{error}".split()), store)
        return _Done(None, time.perf_counter() - started, told)
    return _Done(found, time.perf_counter() - started)


def _without_places(text: str, store: Path) -> str:
    """Results are for others to read, and where this machine keeps things is not for them."""
    for place, name in ((store.resolve(), "OUT/models"), (Path.cwd(), "."), (Path.home(), "~")):
        text = text.replace(str(place), name)
    return text
