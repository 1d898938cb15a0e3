"""Pools of worker processes: each starts fresh, uses one thread, and leaves an interrupt to its parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

Pool = Callable[[int], Executor]  # the number of workers -> the executor that has them

_work: Callable[[Any], Any] | None = None  # in a worker process of `process_pool_with`


def process_pool(jobs: int) -> Executor:
    """`jobs` worker processes. They are spawned and not forked, because torch's threads do not survive a fork."""
    return _spawned(jobs)


def process_pool_with(work: Callable[[Any], Any]) -> tuple[Pool, Callable[[Any], Any]]:
    """A pool whose processes receive `work` once, when they start, and the function that calls it in a worker.

    Use it if `work` holds large data: a task then travels alone. `work` must be picklable, see `is_picklable`.
    """
    return partial(_spawned, initializer=_receive, arguments=(pickle.dumps(work),)), _call_received


class InProcess(Executor):
    """An executor without workers: `submit` runs the call at once, in this process."""

    def __init__(self, jobs: int = 1) -> None:
        """`jobs` is there so that the class itself is a `Pool`; there is one call at a time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def terminate(executor: Executor, unrelated: set[BaseProcess]) -> None:
    """Ends the executor's processes at once. `unrelated` are child processes that existed before it."""
    for child in set(multiprocessing.active_children()) - unrelated:
        child.terminate()
    executor.shutdown(wait=False, cancel_futures=True)


def is_picklable(work: Callable[..., Any]) -> bool:
    """Whether `work` can be sent to another process. A model that is defined in a notebook cannot."""
    try:
        pickle.loads(pickle.dumps(work))
    except Exception:  # an object's own methods can raise anything
        return False
    return True


def _spawned(
    jobs: int, *, initializer: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(initializer, arguments))


def _start_worker(initializer: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()
    if initializer is not None:
        initializer(*arguments)


def _exit_after(parent: int) -> None:
    """A worker may hold personal data, so it must not outlive a parent that was killed."""
    wait([parent])
    os._exit(1)


def _receive(work: bytes) -> None:
    global _work
    _work = pickle.loads(work)


def _call_received(task: Any) -> Any:
    assert _work is not None
    return _work(task)
