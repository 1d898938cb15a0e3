"""Processes to work on: each starts fresh, has one thread, and leaves an interrupt to the one that started it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch


def processes(jobs: int, *, prepare: Callable[..., None] | None = None, given: tuple[Any, ...] = ()) -> Executor:
    """`jobs` of them; each calls `prepare(*given)` first. Forking would not do: torch's threads do not survive it."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_settle, initargs=(prepare, given))


def stop(executor: Executor, others: set[BaseProcess]) -> None:
    """Ends the executor's processes at once, but not the `others` that were there before it."""
    for child in set(multiprocessing.active_children()) - others:
        child.terminate()
    executor.shutdown(wait=False, cancel_futures=True)


def _settle(prepare: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    if prepare is not None:
        prepare(*given)


def _end_with(parent: int) -> None:
    """What is worked on may be somebody's data, so nothing outlives a process that was killed."""
    wait([parent])
    os._exit(1)
