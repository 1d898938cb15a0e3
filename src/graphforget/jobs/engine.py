"""The one engine for resumable work: runs tasks in a pool and stores each result as soon as it is there."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from graphforget.jobs.pool import Pool, process_pool, terminate

Task = TypeVar("Task")
Value = TypeVar("Value")
_Task = TypeVar("_Task", contravariant=True)
_Value = TypeVar("_Value", contravariant=True)


class ResultStore(Protocol[_Task, _Value]):
    """Where results are kept. A task that it has is not computed again."""

    def has(self, task: _Task, /) -> bool: ...

    def keep(self, task: _Task, value: _Value, /) -> None: ...


@dataclass(frozen=True)
class Finished(Generic[Task, Value]):
    """A task that has just been stored, and how far the run is."""

    task: Task
    value: Value
    done: int
    total: int
    remaining: tuple[Task, ...]  # running or not started yet


def run(
    tasks: Sequence[Task],
    work: Callable[[Task], Value],
    results: ResultStore[Task, Value],
    *,
    jobs: int,
    pool: Pool = process_pool,
    on_lost: Callable[[Task], Value] | None = None,
    progress: Callable[[Finished[Task, Value]], None] | None = None,
) -> None:
    """Computes the tasks that `results` does not have yet and keeps each result as soon as it is there.

    An exception of `work` ends the run. Whatever ends it, an interrupt too, ends the workers at once: the tasks that
    they were computing are lost, the stored ones are not, and the next run continues from there.

    Args:
        tasks: What is to be computed, in the order in which it is started.
        work: Gives the result of a task. It runs in the pool, so a pool of processes must be able to pickle it.
        results: Where results are kept.
        jobs: How many tasks run at a time.
        pool: Gives the executor for so many workers.
        on_lost: Gives the result of a task that was lost when a process died; by default `BrokenExecutor` is raised.
        progress: Called after each stored result.
    """
    todo = deque(task for task in tasks if not results.has(task))
    if not todo:
        return
    unrelated = set(multiprocessing.active_children())
    executor = pool(jobs)
    running: dict[Future[Value], Task] = {}
    try:
        while todo or running:
            if not _submit(todo, running, executor, work, jobs=jobs):
                executor = _replaced(executor, pool, jobs)
                continue
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            if any(isinstance(future.exception(), BrokenExecutor) for future in finished):
                finished = set(running)
                executor = _replaced(executor, pool, jobs)
            for future in [future for future in running if future in finished]:
                task = running.pop(future)
                value = _result(future, task, on_lost)
                results.keep(task, value)
                if progress is not None:
                    remaining = (*todo, *running.values())
                    progress(Finished(task, value, len(tasks) - len(remaining), len(tasks), remaining))
    except BaseException:
        terminate(executor, unrelated)
        raise
    executor.shutdown()


def _submit(
    todo: deque[Task],
    running: dict[Future[Value], Task],
    executor: Executor,
    work: Callable[[Task], Value],
    *,
    jobs: int,
) -> bool:
    """Starts tasks until `jobs` are running; False if none is, because the executor broke while it was idle."""
    while todo and len(running) < jobs:
        try:
            future = executor.submit(work, todo[0])
        except BrokenExecutor:
            break
        running[future] = todo.popleft()
    return bool(running)


def _replaced(executor: Executor, pool: Pool, jobs: int) -> Executor:
    executor.shutdown()
    return pool(jobs)


def _result(future: Future[Value], task: Task, on_lost: Callable[[Task], Value] | None) -> Value:
    try:
        return future.result()
    except BrokenExecutor:
        if on_lost is None:
            raise
        return on_lost(task)
