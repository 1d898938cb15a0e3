"""Results of long work as files in a private folder, one a piece, so that a stopped run can continue."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from graphforget.errors import InputError
from graphforget.files import STAGED, write_atomic
from graphforget.jobs.engine import Finished, run
from graphforget.jobs.pool import InProcess, is_picklable, process_pool_with
from graphforget.json_files import read_json
from graphforget.progress import Progress, no_progress

Checkpoint = dict[str, np.ndarray]
Compute = Callable[[str], Checkpoint]

IDENTITY = "identity.json"


class Checkpoints:
    """The finished parts of one long computation, each an .npz file in a folder that only the owner can read.

    `identity` says which computation they belong to. A folder with checkpoints of another one is refused.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder = folder
        self._loaded: dict[str, Checkpoint] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)  # the checkpoints may hold personal data
            self._claim(folder / IDENTITY, identity)
        except (OSError, ValueError) as error:
            raise InputError(f"checkpoints cannot be stored in {folder}: {error}") from error

    def _claim(self, file: Path, identity: str) -> None:
        folder = self.folder
        if not file.exists():
            if any(path.suffix != STAGED for path in folder.iterdir()):
                raise InputError(f"{folder} holds other files, choose another folder")
            write_atomic(file, json.dumps(identity).encode())
        elif read_json(file) != identity:
            raise InputError(f"{folder} holds checkpoints of another run, remove it or choose another folder")

    def compute(
        self, names: Sequence[str], compute: Compute, *, jobs: int, stage: str, progress: Progress | None = None
    ) -> list[Checkpoint]:
        """All these pieces, in order. Those that are not in the folder yet are computed, `jobs` at a time.

        The computation runs in this process if it is one piece, or if `compute` cannot be pickled.
        """
        missing = [name for name in names if not self.has(name)]
        report = progress or no_progress
        report(stage, len(names) - len(missing), len(names))

        def finished(piece: Finished[str, Checkpoint]) -> None:
            report(stage, len(names) - len(piece.remaining), len(names))

        if jobs > 1 and len(missing) > 1 and is_picklable(compute):
            pool, call = process_pool_with(compute)
            run(missing, call, self, jobs=jobs, pool=pool, progress=finished)
        else:
            run(missing, compute, self, jobs=1, pool=InProcess, progress=finished)
        return [self._loaded.pop(name) for name in names]

    def has(self, name: str, /) -> bool:
        """Whether the piece is there and can be read; a damaged one is computed again."""
        try:
            with np.load(self._file(name), allow_pickle=False) as arrays:
                self._loaded[name] = dict(arrays)
        except (OSError, ValueError, BadZipFile):
            return False
        return True

    def keep(self, name: str, piece: Checkpoint, /) -> None:
        content = io.BytesIO()
        np.savez(content, **piece)  # type: ignore[arg-type]
        write_atomic(self._file(name), content.getvalue())
        self._loaded[name] = piece

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.npz"
