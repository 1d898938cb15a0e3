"""A run directory on disk: the names of its files, their size limits, and the place of its state."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graphforget.certificates.ledger import LARGEST as LEDGER_LARGEST
from graphforget.errors import InputError
from graphforget.files import error_reason
from graphforget.json_files import LARGEST as JSON_LARGEST
from graphforget.runs.journal import ERASED, JOURNAL, LARGEST_JOURNAL, is_pending, replay
from graphforget.runs.locks import parent_lock, try_lock

FORMAT = 4
RUN_FILE = "run.json"
LARGEST = 2**30  # bytes of one file of tensors
WIDEST = 2**24  # columns or classes of a graph that is read
EARLIER_FORMAT = 3  # strongly convex models of it can be read and go on
MODEL_FILES = ("weights.safetensors", "graph.safetensors", "graph.json")
ARRAYS, ATTRIBUTES = "arrays.json", "attributes.bin"  # of a large graph: the types and shapes of its arrays
LARGEST_ARRAY = 2**44  # bytes
NAMES = ("numbers", "targets", "roles", "leaves", "indptr", "counts", "indices", "subjects", "subject_ends")
ARRAY_FILES = (ATTRIBUTES, *(f"{name}.bin" for name in NAMES))
CERTIFICATE, RELEASED, OUTCOME, ANNEX = ("certificate.json", "released.safetensors", "outcome.json", "annex.json")
SUPPRESSED = "suppressed.json"  # keyed hashes of what requests deleted, so that no update brings it back: private
ABSENT = "absent.json"  # the same of what was asked for while it was absent, since the last release: private
ABSENT_STAGED = "absent.json.new"
PROOFS = "proofs.safetensors"  # the trees from which absence is shown: private
LEDGER, EARLIER_LEDGER = "ledger.sqlite", "ledger-1.sqlite"  # the second of an earlier format, kept as it was
DATABASES = {f"{name}{suffix}" for name in (LEDGER, EARLIER_LEDGER) for suffix in ("", "-wal", "-shm")}
OWN = {RUN_FILE, *MODEL_FILES, CERTIFICATE, RELEASED, OUTCOME, ANNEX, PROOFS, *DATABASES, ARRAYS, *ARRAY_FILES}
SHARDS = "shards.json"  # of a graph on several ranks: its parts, which lie beside the run
OWN |= {JOURNAL, ERASED, SUPPRESSED, ABSENT, ABSENT_STAGED, SHARDS}
LIMITS = {  # bytes of each file; what is larger is neither written nor read
    RUN_FILE: 2**24,
    **dict.fromkeys(("weights.safetensors", "graph.safetensors", RELEASED, PROOFS), LARGEST),
    **dict.fromkeys(("graph.json", CERTIFICATE, OUTCOME, ARRAYS, SHARDS), JSON_LARGEST),
    **dict.fromkeys(ARRAY_FILES, LARGEST_ARRAY),
    JOURNAL: LARGEST_JOURNAL,
    **dict.fromkeys((ANNEX, SUPPRESSED, ABSENT), 2**29),
    **dict.fromkeys((LEDGER, EARLIER_LEDGER), LEDGER_LARGEST),
}
AUDIT_RESULT, AUDIT_PICTURE, AUDIT_PIECES = "audit.json", "audit.png", "pieces"  # in the folder of an audit
REHEARSAL = "node:5%"  # what the audit of a run forgets if no request is given


class DamagedRun(InputError):
    """A run directory is not as it was written."""


def inside_run(path: str | Path) -> bool:
    """Whether the path lies within a run directory."""
    return any((parent / RUN_FILE).is_file() for parent in Path(path).resolve().parents)


def check_free(folder: str | Path, *, force: bool = False) -> None:
    """Raises `InputError` for a place that `save_run` could not or should not write to."""
    recover(folder)
    check_writable(folder, force=force)


def recover(folder: str | Path) -> None:
    """Restores the state of a run directory whose writer was killed: between two renames, or before it was done."""
    folder = real_path(folder)
    with parent_lock(folder):
        restore(folder)
        finish_overwriting(folder)


def finish_overwriting(folder: Path) -> None:
    """Overwrites what a run directory has forgotten, if a journal says that this is not done."""
    try:
        replay(folder, ARRAY_FILES)
    except OSError as error:
        message = f"{folder} cannot overwrite what it has forgotten: {error_reason(error)}"
        raise InputError(f"{message}; the next command on it tries again") from error
    except InputError as error:
        raise DamagedRun(f"{folder} is damaged: {error}") from error


def check_writable(folder: str | Path, *, force: bool = False) -> None:
    """What `check_free` does, for a caller that has called `recover`."""
    named, folder = folder, real_path(folder)
    if folder.exists() and not force:
        raise InputError(f"{named} exists already, choose another place or overwrite it with --force (force=True)")
    if folder.exists() and not (folder / RUN_FILE).is_file():
        raise InputError(f"{named} is not a run directory and is not overwritten")
    if folder.exists() and foreign_files(folder):
        raise InputError(
            f"{named} holds {foreign_files(folder)[0]!r}, which is not the run's own: move it elsewhere first"
        )
    if inside_run(folder):
        raise InputError(f"{named} is inside another run directory, choose a place outside")
    anchor = next(parent for parent in folder.parents if parent.exists())
    if not anchor.is_dir() or not os.access(anchor, os.W_OK):
        raise InputError(f"{anchor} is not a folder that can be written to")


@contextmanager
def open_run(folder: str | Path) -> Iterator[Path]:
    """The place of a run directory's state, locked against writers."""
    folder = real_path(folder)
    if is_pending(folder):
        recover(folder)
    with parent_lock(folder, shared=True):
        if is_pending(folder):
            raise InputError(f"{folder} was being written by a process that was killed just now: try again")
        if folder.exists():  # a killed writer may have left the old state, with the deleted data
            shutil.rmtree(old_state(folder), ignore_errors=True)
        killed_between_renames = not folder.exists() and old_state(folder).is_dir()
        yield old_state(folder) if killed_between_renames else folder


def old_state(folder: Path) -> Path:
    """The place of the old state while the new one replaces it."""
    return folder.with_name(f".{folder.name}.graphforget-old")


def real_path(folder: str | Path) -> Path:
    """The absolute path, without links."""
    try:
        folder = Path(folder).resolve()
        folder.exists()
    except OSError as error:
        raise InputError(f"{folder} cannot be used: {error_reason(error)}") from error
    if not folder.name:
        raise InputError(f"{folder} is the root of the file system, which cannot be a run directory")
    return folder


def restore(folder: Path) -> None:
    """Puts the old state back if a process was killed between two renames."""
    if old_state(folder).is_dir() and not folder.exists():
        old_state(folder).rename(folder)


def clear_leftovers(folder: Path) -> None:
    """Removes what killed processes left beside the folder: it may hold deleted data.

    A living writer holds the lock of its folder. The number of its process says nothing: another process may have it
    by now, and in a container all of them may have the same one.
    """
    if folder.exists():
        shutil.rmtree(old_state(folder), ignore_errors=True)
    for left in folder.parent.iterdir() if folder.parent.is_dir() else ():
        if re.fullmatch(rf"\.{re.escape(folder.name)}\.graphforget-\d+-\w+", left.name):
            with suppress(InputError, OSError), try_lock(left, "somebody is writing to it"):
                shutil.rmtree(left, ignore_errors=True)


def foreign_files(folder: Path) -> list[str]:
    """The names of files in a run directory that do not belong to it."""
    return sorted(path.name for path in folder.iterdir() if path.name not in OWN) if folder.is_dir() else []


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
