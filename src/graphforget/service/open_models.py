"""Models that are kept in memory between requests, as long as their run directories do not change."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from graphforget.graph.graph import Graph
from graphforget.runs.layout import RUN_FILE
from graphforget.runs.read import load_run
from graphforget.service.identities import SubjectNames
from graphforget.training.trained import Trained

Stamp = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model and its graph at one state of a run directory."""

    trained: Trained
    graph: Graph

    @cached_property
    def names(self) -> SubjectNames:
        return SubjectNames(self.graph)


class OpenModels:
    """Reads a run directory again only after it has changed."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Stamp, OpenModel]] = {}

    def get(self, run: str) -> OpenModel:
        stamp = _stamp(Path(run))
        known = self._open.get(run)
        if known is None or known[0] != stamp:
            known = stamp, OpenModel(*load_run(run))
            if _stamp(Path(run)) == stamp:
                self._open[run] = known
        return known[1]

    def forget(self, run: str) -> None:
        """Drops a model, with the deleted data that it still holds."""
        self._open.pop(run, None)


def _stamp(run: Path) -> Stamp:
    """A new state is a new file. None while a run directory is being replaced."""
    try:
        status = (run / RUN_FILE).stat()
    except OSError:
        return (0, 0, 0)
    return status.st_ino, status.st_mtime_ns, status.st_size
