"""Writes a run directory, completely or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from graphforget.errors import InputError
from graphforget.files import error_reason
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.json_files import check_values
from graphforget.models.deletion import DeletionModel
from graphforget.request.hashed_items import HashedItems
from graphforget.runs.arrays import is_large, write_arrays
from graphforget.runs.in_place import stage_in_place
from graphforget.runs.journal import is_pending, sync_folder
from graphforget.runs.layout import (
    ABSENT,
    ABSENT_STAGED,
    ARRAYS,
    ATTRIBUTES,
    FORMAT,
    LEDGER,
    LIMITS,
    MODEL_FILES,
    RUN_FILE,
    SUPPRESSED,
    check_free,
    checksum,
    clear_leftovers,
    finish_overwriting,
    old_state,
    real_path,
    restore,
)
from graphforget.runs.locks import hold_lock, parent_lock, run_lock
from graphforget.runs.mapped_files import overwriting
from graphforget.runs.run_file import GraphFile
from graphforget.runs.tensors import OPTIONAL, RELEASED_STATE, STATE, TENSORS
from graphforget.training.environment import versions
from graphforget.training.state import untrained_state
from graphforget.training.trained import Trained
from graphforget.validation import check_instance


def save_run(folder: str | Path, trained: Trained, graph: Graph, *, force: bool = False) -> Path:
    """Saves a model and its graph as a run directory.

    Args:
        folder: Where to save it.
        trained: The model.
        graph: The graph that it was trained on.
        force: Whether to overwrite a run directory.

    Returns:
        The path of the run directory.

    Raises:
        InputError: The folder exists and `force` is not set, holds a ledger, or cannot be written; or an argument is of
            another kind.
    """
    check_instance(trained, Trained, "model")
    check_instance(graph, Graph, "graph")
    with run_lock(real_path(folder)):
        check_free(folder, force=force)
        if (real_path(folder) / LEDGER).exists():
            raise InputError(f"{folder} holds a ledger of deletions, which would be lost: remove it yourself")
        return write_run(folder, trained, graph, overwrite=force)


def write_run(
    folder: str | Path,
    trained: Trained,
    graph: Graph,
    *,
    overwrite: bool,
    extras: Mapping[str, bytes] | None = None,
    finish: Callable[[Path], None] | None = None,
) -> Path:
    """Puts a run directory in place, with further files. The caller holds its lock and has called `check_free`.

    Everything goes to a temporary folder beside it that is then renamed, so a crash leaves the old state or the new.
    `finish` writes what is no plain file into the temporary folder. Without `overwrite`, a folder that somebody else
    wrote in the meantime is left alone.
    """
    named, folder = folder, real_path(folder)
    clear_leftovers(folder)
    if trained.graph_digest != graph.digest:
        raise InputError("the graph is not the one that this model was trained on")
    if trained.noise:
        raise InputError("these are released weights with noise, a run directory keeps those without it")
    if isinstance(trained.module, DeletionModel):
        raise InputError("a model with operators of 'gnndelete' names nodes around deleted data, so it is not stored")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.graphforget-{os.getpid()}-", dir=folder.parent))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error_reason(error)}") from error
    try:
        with hold_lock(staging):
            writes = stage_in_place(staging, folder, graph) if overwrite and is_large(graph) else None
            _write(staging, trained, graph, extras or {}, finish, has_arrays=writes is not None)
            staging.chmod(0o777 & ~umask())
            if writes:
                sync_folder(staging)
            with parent_lock(folder):
                if folder.exists() and not overwrite:
                    raise InputError(f"{named} was written by somebody else in the meantime and is left alone")
                with nullcontext() if writes is None else overwriting(folder / ATTRIBUTES, writes):
                    _replace(folder, staging, named)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise InputError(f"{named} cannot be written: {error_reason(error)}") from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return folder


def _replace(folder: Path, staging: Path, named: str | Path) -> None:
    """Replaces the old state by the new one."""
    if not folder.exists():
        staging.rename(folder)
        return
    old = old_state(folder)
    folder.rename(old)
    try:
        staging.rename(folder)
    except BaseException:
        restore(folder)
        raise
    if is_pending(folder):
        sync_folder(folder.parent)  # the new state is there for good before anything of the old one is overwritten
        finish_overwriting(folder)
    shutil.rmtree(old, ignore_errors=True)
    if old.exists():
        raise InputError(f"{named} is written, but its old state could not be removed and is still at {old}")


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write(
    folder: Path,
    trained: Trained,
    graph: Graph,
    extras: Mapping[str, bytes],
    finish: Callable[[Path], None] | None,
    *,
    has_arrays: bool,
) -> None:
    """Writes the files of a run. With `has_arrays` those of its graph are there already."""
    as_arrays, on_ranks = is_large(graph), isinstance(graph, DistributedGraph)
    _write_names(folder, graph, with_subjects=not as_arrays and not on_ranks)
    flat = {"theta": trained.theta.contiguous()} | (
        {} if trained.objective_noise_vector is None else {"tilt": trained.objective_noise_vector}
    )
    state = {f"{STATE}{name}": value for name, value in untrained_state(trained.module).items()}
    if trained.composite is not None:  # its encoders or its network are no part of the module's own state
        state |= {f"{RELEASED_STATE}{name}": value for name, value in trained.composite.released_state().items()}
    save_file(flat | state, folder / "weights.safetensors")
    if not as_arrays and not on_ranks:
        _write_tensors(folder, graph)
    elif not has_arrays and not on_ranks:
        write_arrays(folder, graph)
    if trained.suppressed is not None:
        listed = {"audience": "private", "suppressed": trained.suppressed.to_dict()}
        extras = {**extras, SUPPRESSED: (json.dumps(listed, indent=2) + "\n").encode()}
    for name, content in extras.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    if trained.absent is not None:
        write_absent(folder, trained.absent)
    if finish is not None:
        finish(folder)
    files: tuple[str, ...] = ("weights.safetensors", ARRAYS, "graph.json") if as_arrays else MODEL_FILES
    files = ("weights.safetensors", "graph.json") if on_ranks else files
    sums = {name: checksum((folder / name).read_bytes()) for name in (*files, *extras)}
    salt = {"graph_salt": trained.graph_salt.hex()}
    run = {"format": FORMAT, "audience": "private", **trained.summary(), **salt, "sha256": sums, "versions": versions()}
    (folder / RUN_FILE).write_text(json.dumps(run, indent=2) + "\n")
    (folder / RUN_FILE).chmod(0o600)  # what was measured, and checksums that names could be tried against
    _check_sizes(folder)


def _write_names(folder: Path, graph: Graph, *, with_subjects: bool) -> None:
    """Writes `graph.json`. Subject ids of a graph in arrays or on ranks are in an array of their own."""
    names = {f.name: getattr(graph, f.name) for f in dataclasses.fields(GraphFile)}
    for name in ("graph_ids", "relation_names"):
        if names[name] is None:
            del names[name]
    if graph.next_number == 0:
        del names["next_number"]
    if not with_subjects:
        names["subject_ids"] = None
    (folder / "graph.json").write_text(json.dumps(names, indent=2) + "\n")
    (folder / "graph.json").chmod(0o600)  # names people, as the tensors do that safetensors writes so


def write_absent(folder: Path, absent: HashedItems) -> None:
    """Writes what was asked for while it was absent. After a kill, the old list or the new one is there."""
    content = (json.dumps({"audience": "private", "absent": absent.to_dict()}, indent=2) + "\n").encode()
    if len(content) > LIMITS[ABSENT]:
        raise InputError(f"{ABSENT} would have more than the {LIMITS[ABSENT]:,} bytes that can be read")
    staged = folder / ABSENT_STAGED
    with staged.open("wb") as file:
        staged.chmod(0o600)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(staged, folder / ABSENT)


def _check_sizes(folder: Path) -> None:
    """Raises `InputError` for a file that could not be read again, and brings all files to the disk."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > LIMITS[path.name]:
                raise InputError(f"{path.name} would have more than the {LIMITS[path.name]:,} bytes that can be read")
            if path.suffix == ".json":
                check_values(file.read(), path.name)
            os.fsync(file.fileno())


def _write_tensors(folder: Path, graph: Graph) -> None:
    """Writes a graph that is not large."""
    stored = (*TENSORS, "y", *(name for name in OPTIONAL if getattr(graph, name) is not None))
    tensors: dict[str, Tensor] = {name: getattr(graph, name).contiguous() for name in stored}
    if graph.x.layout == torch.sparse_csr:
        tensors |= {
            "x.crow": graph.x.crow_indices().contiguous(),
            "x.columns": graph.x.col_indices().contiguous(),
            "x.values": graph.x.values().contiguous(),
        }
    else:
        tensors["x"] = graph.x.contiguous()
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "graph.safetensors")


def rewrite_checksums(folder: str | Path) -> None:
    """Writes new checksums. For tests and demonstrations that plant errors which no checksum shows."""
    path = Path(folder) / RUN_FILE
    run = json.loads(path.read_text())
    sums = {name: checksum((Path(folder) / name).read_bytes()) for name in run["sha256"]}
    path.write_text(json.dumps(run | {"sha256": sums}, indent=2) + "\n")
