"""The callback to which long computations report."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # stage, steps done, total steps (0: unknown)


def no_progress(stage: str, done: int, total: int) -> None:
    """A callback that ignores what is reported."""
