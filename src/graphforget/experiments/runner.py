"""Runs the cells of an experiment, the cheapest first, and records each as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from graphforget.errors import InputError, Refused
from graphforget.experiments.cells import Cell, CellOutcome, Record
from graphforget.jobs import engine
from graphforget.jobs.engine import Finished
from graphforget.jobs.pool import Pool, process_pool

PRIOR = 60.0  # seconds for which the estimated costs count as right before any cell is measured


@dataclass(frozen=True)
class CellProgress:
    """How far a run is. `left` is the estimated time in seconds of the remaining cells, from the times so far."""

    done: int
    total: int
    left: float
    label: str  # of the last cell
    seconds: float
    error: str | None = None  # why it failed


def run(
    cells: Sequence[Cell],
    record: Record,
    *,
    store: Path,
    jobs: int,
    pool: Pool = process_pool,
    report: Callable[[CellProgress], None] | None = None,
) -> int:
    """Computes the cells that are not in `record` yet and records each as it is done; gives the number that failed.

    A cell that fails is recorded with the reason, and the next run tries it again. See `jobs.engine.run` for what an
    interrupt does.
    """
    pace = _Pace(jobs=jobs)

    def finished(cell: Finished[Cell, CellOutcome]) -> None:
        progress = pace.add(cell)
        if report is not None:
            report(progress)

    engine.run(
        sorted(cells, key=lambda cell: cell.cost),
        partial(_compute, store=store),
        record,
        jobs=jobs,
        pool=pool,
        on_lost=lambda cell: CellOutcome(None, 0.0, "its process ended, perhaps for want of memory"),
        progress=finished,
    )
    return pace.failed


class _Pace:
    """How long cells take compared with their estimated costs."""

    def __init__(self, *, jobs: int) -> None:
        self.jobs = jobs
        self.failed = 0
        self._estimated = self._measured = PRIOR

    def add(self, finished: Finished[Cell, CellOutcome]) -> CellProgress:
        cell, outcome = finished.task, finished.value
        if outcome.values is None:
            self.failed += 1
        else:
            self._estimated += cell.cost
            self._measured += outcome.seconds
        cost = sum(other.cost for other in finished.remaining)
        left = cost * self._measured / self._estimated / self.jobs
        return CellProgress(finished.done, finished.total, left, cell.label, outcome.seconds, outcome.error)


def _compute(cell: Cell, *, store: Path) -> CellOutcome:
    """Computes a cell in a worker. An exception becomes a message, because it may not survive pickling."""
    started = time.perf_counter()
    try:
        values = cell.work(store=store, **cell.key)
    except Exception as error:  # the other cells are still to be computed
        kind = "" if isinstance(error, InputError | Refused) else f"{type(error).__name__}: "
        message = _without_local_paths(" ".join(f"{kind}{error}".split()), store)
        return CellOutcome(None, time.perf_counter() - started, message)
    return CellOutcome(values, time.perf_counter() - started)


def _without_local_paths(text: str, store: Path) -> str:
    """Results are published, and the paths of this machine are not for their readers."""
    for path, name in ((store.resolve(), "OUT/models"), (Path.cwd(), "."), (Path.home(), "~")):
        text = text.replace(str(path), name)
    return text
