"""The output for people: tables, bars and sentences, on standard output and standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

out = Console()
err = Console(stderr=True)
LONGEST = 2000  # characters of an error message, which may quote a file of somebody else


def say(sentence: str) -> None:
    out.print(sentence, highlight=False, markup=False, soft_wrap=True)


def print_error(sentence: str) -> None:
    err.print(f"graphforget: {sentence[:LONGEST]}", markup=False, highlight=False, soft_wrap=True)


def show_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """A line for each name and value."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in pairs:
        table.add_row(key, value)
    out.print(table, highlight=False, markup=False)


def show(rows: list[dict[str, Any]], *, as_json: bool, hidden: tuple[str, ...]) -> None:
    """A table for people, without the `hidden` columns, or all of it as JSON."""
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(box=None, pad_edge=False)
    for key, value in rows[0].items():
        if key not in hidden:
            table.add_column(key, justify="left" if isinstance(value, str | bool) else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for key, value in row.items() if key not in hidden))
    out.print(table, highlight=False)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar on standard error, for people."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("preparing", total=None)

        def report(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total or None)

        yield report
