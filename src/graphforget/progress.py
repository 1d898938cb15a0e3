"""What long work reports to."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # stage, steps done, steps in all (0: unknown)


def no_progress(stage: str, done: int, total: int) -> None:
    """Reports to nobody."""
