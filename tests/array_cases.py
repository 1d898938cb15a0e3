"""Runs with a graph that is stored as arrays, for the tests of such runs."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphforget as gf

NODES, COLUMNS = 400, 6
GONE, ALTERED, SLOT = 57, 120, 57  # the deleted node, the one with a forgotten attribute, and the slot of the first
PLANTED = np.float32(123456.789)  # an attribute of both
SECRET = "subject-Zacharias-0057"


def planted_graph() -> gf.Graph:
    """A dense graph with subject ids, one of them distinctive, and a distinctive attribute at two nodes."""
    graph = gf.synthetic(nodes=NODES, edges=1600, columns=COLUMNS, classes=3)
    x = graph.x.clone()
    x[GONE, 2] = x[ALTERED, 3] = float(PLANTED)
    names = [SECRET if row == GONE else f"s{row}" for row in range(NODES)]
    return gf.Graph.create(
        x=x,
        edges=graph.edge_index,
        y=graph.y,
        train_mask=graph.train_mask,
        test_mask=graph.test_mask,
        subject_ids=names,
    )


def planted_request(graph: gf.Graph) -> gf.Request:
    """Deletes the node, an edge elsewhere, and the attribute of the other node."""
    source, target = graph.edge_index[:, graph.edge_index[0] > 200][:, 0].tolist()
    names = graph.subject_ids or ()
    return gf.Request(nodes=[SECRET], edges=[(names[source], names[target])], attributes={names[ALTERED]: [3]})


def holds_planted(folder: Path) -> list[str]:
    """The files below a folder that hold the distinctive attribute or the distinctive subject id."""
    wanted = (PLANTED.tobytes(), np.float64(PLANTED).tobytes(), SECRET.encode())
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [str(path.relative_to(folder)) for path in files if any(part in path.read_bytes() for part in wanted)]


def same_graph(one: gf.Graph, other: gf.Graph) -> bool:
    """Whether two graphs hold the same, looked at in full."""
    fields = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask", "numbers")
    same = all(torch.equal(getattr(one, name), getattr(other, name)) for name in fields)
    return same and one.subject_ids == other.subject_ids and one.digest == other.digest


STEPS = ("link", "fsync", "rename", "pwrite", "unlink", "rmdir")  # of the operating system, that a writer takes


def in_child(work: Callable[[], Any], *, die_at: int | None = None) -> int | None:
    """Runs work in a child process that kills itself with SIGKILL before step `die_at`.

    Returns the number of steps; None if it was killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            steps = itertools.count()
            for name in STEPS:
                setattr(os, name, _counted(getattr(os, name), steps, die_at))
            work()
            os.write(writer, str(next(steps)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    assert said, "the child raised an exception"
    return int(said)


def _counted(function: Callable[..., Any], steps: itertools.count[int], die_at: int | None) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        if next(steps) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)

    return counted
