"""The peak memory of a piece of work in this process, where the system can tell it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def with_peak_memory(work: Callable[[], T]) -> tuple[T, float | None]:
    """The result, and by how many MiB the resident memory rose above its value at the start; None if it is not known.

    The kernel counts, so the work is not slowed down. Memory that was reserved before and is used again is not seen.
    """
    start = _reset()
    result = work()
    peak = _status("VmHWM")
    return result, None if start is None or peak is None else max(0.0, (peak - start) / 1024)


def _reset() -> float | None:
    try:
        RESET.write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> float | None:
    """A field of the status of the process, in KiB."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
