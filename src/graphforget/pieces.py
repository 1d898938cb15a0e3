"""Long work in pieces: several at a time, each kept in a file when it is done, so that a stopped run goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from graphforget.errors import InputError
from graphforget.fitting import Progress
from graphforget.workers import processes, stop

Piece = dict[str, np.ndarray]
Compute = Callable[[str], Piece]

IDENTITY = "identity.json"
_compute: Compute | None = None  # in a worker process


class Pieces:
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
            if any(path.suffix != ".part" for path in folder.iterdir()):
                raise InputError(f"{folder} holds other files, choose another folder")
            staging = known.with_suffix(".part")
            staging.write_text(json.dumps(identity))
            os.replace(staging, known)
        elif json.loads(known.read_text()) != identity:
            raise InputError(f"{folder} holds pieces of another run, remove it or choose another folder")

    def get(self, name: str) -> Piece:
        with np.load(self._file(name), allow_pickle=False) as kept:
            return dict(kept)

    def compute(
        self, names: Sequence[str], compute: Compute, *, jobs: int, stage: str, progress: Progress | None = None
    ) -> list[Piece]:
        """All these pieces, in order; those that are not there yet are computed, `jobs` at a time."""
        missing = [name for name in names if not self._is_there(name)]
        done = len(names) - len(missing)
        report = progress or (lambda stage, done, total: None)
        report(stage, done, len(names))
        if jobs > 1 and len(missing) > 1 and _can_travel(compute):
            others = set(multiprocessing.active_children())
            pool = processes(jobs, prepare=_prepare, given=(pickle.dumps(compute),))
            try:
                for future in as_completed([pool.submit(_in_worker, name) for name in missing]):
                    self._keep(*future.result())
                    done += 1
                    report(stage, done, len(names))
            finally:
                stop(pool, others)
        else:
            for name in missing:
                self._keep(name, compute(name))
                done += 1
                report(stage, done, len(names))
        return [self.get(name) for name in names]

    def _is_there(self, name: str) -> bool:
        """Whether it can be read; a piece that was damaged is computed again."""
        try:
            self.get(name)
        except (OSError, ValueError, BadZipFile):
            return False
        return True

    def _keep(self, name: str, piece: Piece) -> None:
        staging = self._file(name).with_suffix(".part")
        with staging.open("wb") as file:
            np.savez(file, **piece)  # type: ignore[arg-type]
        os.replace(staging, self._file(name))

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


def _in_worker(name: str) -> tuple[str, Piece]:
    assert _compute is not None
    return name, _compute(name)
