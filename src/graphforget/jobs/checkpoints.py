"""Long work in pieces: several at a time, each kept in a file when it is done, so that a stopped run goes on."""

from __future__ import annotations

import io
import json
import multiprocessing
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from graphforget.errors import InputError
from graphforget.files import STAGED, write_whole
from graphforget.jobs.pool import processes, stop
from graphforget.json_files import read_json
from graphforget.progress import Progress

Checkpoint = dict[str, np.ndarray]
Compute = Callable[[str], Checkpoint]

IDENTITY = "identity.json"
_compute: Compute | None = None  # in a worker process


class Checkpoints:
    """The finished pieces of one piece of work in a folder. `identity` says what they belong to: pieces of anything
    else are refused, never mixed in."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)  # whatever is worked on, it is nobody else's
            self._claim(folder / IDENTITY, identity)
        except (OSError, ValueError) as error:
            raise InputError(f"pieces cannot be kept in {folder}: {error}") from error

    def _claim(self, known: Path, identity: str) -> None:
        folder = self.folder
        if not known.exists():
            if any(path.suffix != STAGED for path in folder.iterdir()):
                raise InputError(f"{folder} holds other files, choose another folder")
            write_whole(known, json.dumps(identity).encode())
        elif read_json(known) != identity:
            raise InputError(f"{folder} holds pieces of another run, remove it or choose another folder")

    def compute(
        self, names: Sequence[str], compute: Compute, *, jobs: int, stage: str, progress: Progress | None = None
    ) -> list[Checkpoint]:
        """All these pieces, in order; those that are not there yet are computed, `jobs` at a time."""
        found = {name: piece for name in names if (piece := self._kept(name)) is not None}
        missing = [name for name in names if name not in found]
        report = progress or (lambda stage, done, total: None)
        report(stage, len(found), len(names))

        def keep(name: str, piece: Checkpoint) -> None:
            self._keep(name, piece)
            found[name] = piece
            report(stage, len(found), len(names))

        if jobs > 1 and len(missing) > 1 and _can_travel(compute):
            others = set(multiprocessing.active_children())
            pool = processes(jobs, prepare=_prepare, given=(pickle.dumps(compute),))
            try:
                for future in as_completed([pool.submit(_in_worker, name) for name in missing]):
                    keep(*future.result())
            finally:
                stop(pool, others)
        else:
            for name in missing:
                keep(name, compute(name))
        return [found[name] for name in names]

    def _kept(self, name: str) -> Checkpoint | None:
        """None if it is not there, or was damaged and has to be computed again."""
        try:
            with np.load(self._file(name), allow_pickle=False) as kept:
                return dict(kept)
        except (OSError, ValueError, BadZipFile):
            return None

    def _keep(self, name: str, piece: Checkpoint) -> None:
        content = io.BytesIO()
        np.savez(content, **piece)  # type: ignore[arg-type]
        write_whole(self._file(name), content.getvalue())

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.npz"


def _can_travel(compute: Compute) -> bool:
    """Whether it can be sent to another process; a model defined in a notebook cannot, and is worked on here."""
    try:
        pickle.loads(pickle.dumps(compute))
    except Exception:  # pickle raises whatever an object's own methods do
        return False
    return True


def _prepare(compute: bytes) -> None:
    global _compute
    _compute = pickle.loads(compute)


def _in_worker(name: str) -> tuple[str, Checkpoint]:
    assert _compute is not None
    return name, _compute(name)
