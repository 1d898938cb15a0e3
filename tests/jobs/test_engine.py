"""The engine for resumable work: order, resuming, processes that die, interrupts."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from graphforget.jobs.engine import Finished, run
from graphforget.jobs.pool import InProcess, is_picklable, process_pool, process_pool_with


@dataclass
class Results:
    """A store in memory."""

    values: dict[int, int] = field(default_factory=dict)

    def has(self, task: int, /) -> bool:
        return task in self.values

    def keep(self, task: int, value: int, /) -> None:
        self.values[task] = value


def square(task: int) -> int:
    return task * task


def die_at_two(task: int) -> int:
    if task == 2:
        os._exit(3)
    return task * task


def fail_at_two(task: int) -> int:
    if task == 2:
        raise ValueError("two is too much")
    return task * task


@dataclass(frozen=True)
class Sleeper:
    """Sleeps in every task but the first, and leaves the number of its process."""

    folder: Path

    def __call__(self, task: int) -> int:
        if task:
            (self.folder / f"{os.getpid()}").touch()
            time.sleep(900)
        while not any(self.folder.iterdir()):
            time.sleep(0.01)
        return task


def test_results_are_stored_in_order_and_progress_counts_stored_ones() -> None:
    results, steps = Results({2: 4}), list[Finished[int, int]]()
    run([3, 1, 2], square, results, jobs=1, pool=InProcess, progress=steps.append)
    assert results.values == {2: 4, 3: 9, 1: 1}
    assert [(step.task, step.value, step.done, step.total, step.remaining) for step in steps] == [
        (3, 9, 2, 3, (1,)),
        (1, 1, 3, 3, ()),
    ]


def test_a_run_without_missing_tasks_starts_no_pool() -> None:
    def no_pool(jobs: int) -> Executor:
        raise AssertionError("there is nothing to compute")

    run([1, 2], square, Results({1: 1, 2: 4}), jobs=2, pool=no_pool)


@pytest.mark.parametrize("pool", [InProcess, ThreadPoolExecutor])
def test_an_exception_ends_the_run_and_the_next_one_continues(pool: Any) -> None:
    results = Results()
    with pytest.raises(ValueError, match="^two is too much$"):
        run([1, 2, 3], fail_at_two, results, jobs=1, pool=pool)
    assert results.values == {1: 1}
    run([1, 2, 3], square, results, jobs=1, pool=pool)
    assert results.values == {1: 1, 2: 4, 3: 9}


@pytest.mark.slow
def test_a_process_that_dies_is_an_error_or_a_result() -> None:
    results = Results()
    with pytest.raises(BrokenExecutor):
        run([1, 2, 3], die_at_two, results, jobs=1)
    assert results.values == {1: 1}
    run([1, 2, 3], die_at_two, results, jobs=1, on_lost=lambda task: -task)
    assert results.values == {1: 1, 2: -2, 3: 9}


def test_a_pool_that_breaks_while_it_is_idle_is_replaced() -> None:
    class BreaksAfterOne(InProcess):
        used = False

        def submit(self, *call: Any, **arguments: Any) -> Future[Any]:
            if self.used:
                raise BrokenProcessPool
            self.used = True
            return super().submit(*call, **arguments)

    results, pools = Results(), list[Executor]()

    def pool(jobs: int) -> Executor:
        pools.append(BreaksAfterOne())
        return pools[-1]

    run([1, 2, 3], square, results, jobs=1, pool=pool)
    assert results.values == {1: 1, 2: 4, 3: 9}
    assert len(pools) == 3


@pytest.mark.slow
def test_an_interrupt_keeps_finished_results_and_ends_the_workers(tmp_path: Path) -> None:
    def interrupt(step: Finished[int, int]) -> None:
        raise KeyboardInterrupt

    before = set(multiprocessing.active_children())
    results = Results()
    pool, call = process_pool_with(Sleeper(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run([0, 1], call, results, jobs=2, pool=pool, progress=interrupt)
    assert results.values == {0: 0}
    (worker,) = (int(path.name) for path in tmp_path.iterdir())
    deadline = time.monotonic() + 10
    while (_alive(worker) or set(multiprocessing.active_children()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _alive(worker)
    assert set(multiprocessing.active_children()) <= before


def _alive(process: int) -> bool:
    multiprocessing.active_children()  # reaps those that have ended
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_other_child_processes_are_left_alone() -> None:
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(900,))
    other.start()
    try:
        with pytest.raises(ValueError, match="two"):
            run([1, 2], fail_at_two, Results(), jobs=1)
        assert other.is_alive()
    finally:
        other.terminate()
        other.join()


@pytest.mark.slow
def test_work_that_travels_once_and_work_that_cannot_travel() -> None:
    pool, call = process_pool_with(square)
    results = Results()
    run([1, 2, 3], call, results, jobs=2, pool=pool)
    assert results.values == {1: 1, 2: 4, 3: 9}
    assert is_picklable(square)
    assert not is_picklable(lambda task: task)


def test_at_most_so_many_tasks_run_at_a_time() -> None:
    submitted: list[Future[int]] = []

    class Watched(ThreadPoolExecutor):
        def submit(self, *call: Any, **arguments: Any) -> Future[Any]:
            assert sum(not future.done() for future in submitted) < 2
            submitted.append(super().submit(*call, **arguments))
            return submitted[-1]

    results = Results()

    def work(task: int) -> int:
        time.sleep(0.01)
        return task

    run(range(8), work, results, jobs=2, pool=lambda jobs: Watched(8))
    assert sorted(results.values) == list(range(8))


@pytest.mark.slow
def test_an_executor_with_processes_uses_one_thread_each() -> None:
    with process_pool(1) as executor:
        assert executor.submit(_threads).result() == 1


def _threads() -> int:
    import torch

    return torch.get_num_threads()
