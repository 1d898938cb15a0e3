"""The part of a graph that a rank keeps for a run: its arrays, and the features of its rows."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphforget.distributed.part_files import PartFiles, part_folder, write_part
from graphforget.distributed.row_ranges import RowRanges
from graphforget.errors import InputError
from graphforget.files import error_reason
from graphforget.graph.record_tree import HASH
from graphforget.graph.row_part import ARRAYS, BOUNDARY, GONE, SALTS, SUBJECTS, TEST, TRAIN, VALIDATION, RowPart
from graphforget.models.part_features import PartFeatures
from graphforget.models.propagated import Settings
from graphforget.privacy.salt import new_salts


def checked_arrays(files: PartFiles, ranges: RowRanges, rank: int, *, columns: int) -> dict[str, np.ndarray]:
    """The arrays of a part, after a check of what keeps memory safe. Raises `InputError`."""
    first, last = ranges.range_of(rank)
    n, folder = last - first, files.folder
    missing = [name for name in ARRAYS if name not in files.files]
    if missing:
        raise InputError(f"{folder} is damaged: it has no {missing[0]}")
    names = (*ARRAYS, *(name for name in (SUBJECTS, BOUNDARY, SALTS) if name in files.files))
    arrays = {name: files.map(name) for name in names}
    shapes = {"attributes": (n, columns), "roles": (n,), "counts": (n,), "indptr": (n + 1,), "leaves": (n, HASH)}
    shapes |= {SALTS: (n, HASH)} if SALTS in arrays else {}
    if any(arrays[name].shape != shape for name, shape in shapes.items()) or arrays["targets"].shape[0] != n:
        raise InputError(f"{folder} is damaged, or is the part of another rank: its arrays do not have {n:,} rows")
    indptr, counts, indices = arrays["indptr"], arrays["counts"], arrays["indices"]
    widths = np.diff(indptr)
    fits = n == 0 or (
        indptr[0] == 0 and indptr[-1] == indices.size and (counts >= 0).all() and (counts <= widths).all()
    )
    within = not indices.size or (indices.min() >= -1 and indices.max() < ranges.nodes)
    if not fits or not within or not np.isin(arrays["roles"], (0, TRAIN, VALIDATION, TEST, GONE)).all():
        raise InputError(f"{folder} is damaged: its lists of neighbours or its roles cannot be")
    return arrays


def feature_settings(given: Mapping[str, Any]) -> Settings:
    """What is computed, from the fields of a call."""
    return Settings(tuple(given["powers"]), tuple(given["scales"]), bool(given["scale_rows"]))


def stored_features(files: PartFiles, part: RowPart, settings: Settings) -> PartFeatures:
    """The features that a run has stored with a part. Raises `InputError` if they are not those of these settings."""
    columns, powers = part.attributes.shape[1], len(settings.powers)
    names = [f"hop-{hop}" for hop in range(1, settings.hops)]
    carried = [f"defect-{hop}" for hop in range(1, settings.hops + 1)]
    missing = [name for name in ("trainrows", "training", "bounds", *names, *carried) if name not in files.files]
    if missing:
        raise InputError(f"{files.folder} is damaged: it has no {missing[0]}")
    rows = np.asarray(files.map("trainrows"))
    hops, training, bounds = [files.map(name) for name in names], files.map("training"), files.map("bounds")
    shapes = [training.shape == (rows.size, powers * columns), bounds.shape == (rows.size, powers)]
    shapes += [values.shape == (part.num_rows, columns + 1) for values in hops]
    defects = [files.map(name) for name in carried]
    shapes += [values.shape == (part.num_rows,) for values in defects[:-1]]
    shapes += [values.shape == (rows.size,) for values in defects[-1:]]
    inside = not rows.size or (rows[0] >= 0 and rows[-1] < part.num_rows and (np.diff(rows) > 0).all())
    if not all(shapes) or not inside:
        raise InputError(f"{files.folder} is damaged: its features are not those of the model")
    return PartFeatures(settings, hops, rows, training, bounds, defects)


def new_part(folder: Path, rank: int, part: RowPart, features: PartFeatures | None) -> PartFiles:
    """Writes a part and its features into a new folder."""
    arrays = {name: np.asarray(getattr(part, name)) for name in ARRAYS}
    arrays |= {} if part.subjects is None else {SUBJECTS: np.asarray(part.subjects)}
    arrays[SALTS] = new_salts(np.asarray(part.leaves)) if part.salts is None else np.asarray(part.salts)
    arrays |= {} if features is None else features.arrays()
    try:
        return write_part(part_folder(folder, rank), arrays)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error_reason(error)}") from error


def sweep_parts(folder: Path, rank: int, *, keep: str) -> None:
    """Removes a rank's parts from all folders with parts but one."""
    for other in folder.iterdir() if folder.is_dir() else ():
        if other.name != keep and other.is_dir():
            shutil.rmtree(part_folder(other, rank), ignore_errors=True)
            with contextlib.suppress(OSError):
                other.rmdir()  # the last rank there
