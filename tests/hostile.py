"""What the tests with hostile files share: runs to spoil, and the watch over what comes of it."""

from __future__ import annotations

import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import graphforget as gf
from cases import random_graph

SECONDS = 5
FIRST = gf.Request(nodes=[9], attributes={11: [0, 2]})


class TooSlow(BaseException):
    """No `except` of the package may take it for its own."""


@contextmanager
def in_time(seconds: int = SECONDS) -> Iterator[None]:
    """Ends what takes longer, also where it waits for a pipe."""

    def late(*_: object) -> None:
        raise TooSlow(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def snapshot(folder: Path) -> dict[str, object]:
    """Everything in a folder: the bytes of regular files, the kind of all others."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        small = stat.S_ISREG(status.st_mode) and status.st_size < 2**24
        name = str(path.relative_to(folder))
        found[name] = path.read_bytes() if small else (stat.S_IFMT(status.st_mode), status.st_size)
    return found


def make_run(folder: Path, model: str = "sgc", *, deletions: int = 2, sparse: bool = True, **options: object) -> Path:
    """A run directory with a few deletions behind it."""
    graph = random_graph(3, nodes=24, edges=40, sparse=sparse)
    given = {"mu": 1e-2} | ({} if model in ("sgc", "sign", "cgu") else {"epochs": 3, "polish_steps": 2}) | options
    gf.save_run(folder, gf.train(graph, model, **given), graph)  # type: ignore[arg-type]
    for name, request in {"first": FIRST, "second": gf.Request(attributes={12: "all"})}.items():
        if deletions > (name == "second"):
            gf.answer(folder, request, request_id=name)
    return folder


def copied(run: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(run, place)
    return place
