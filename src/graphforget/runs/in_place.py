"""The next state of a run directory with a large graph: its array files are shared, and what is forgotten overwritten.

The new state has hard links to the arrays and a journal of what changes in them. Until it takes effect, the arrays are
as they were. A graph only ever loses data, so every change fits in the place of what it replaces.

Lists of neighbours and of subject ids that become shorter are written anew, one after the other without a gap. A gap
would tell who has lost a neighbour: the two nodes with a gap are the ends of an edge that was deleted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from graphforget.errors import InputError
from graphforget.graph.digest import digest_tree
from graphforget.graph.graph import Graph
from graphforget.graph.overlay import Overlay
from graphforget.graph.record_tree import HASH
from graphforget.graph.targets import UNLABELLED
from graphforget.json_files import read_json
from graphforget.linalg.ranges import ranges
from graphforget.runs.arrays import (
    LISTS,
    SUBJECTS,
    StoredArrays,
    stored_targets,
    write_header,
    write_lists,
    write_small,
)
from graphforget.runs.journal import Write, write_journal
from graphforget.runs.layout import ARRAY_FILES, ARRAYS, ATTRIBUTES, LIMITS, RUN_FILE
from graphforget.runs.mapped_files import identity_of


def stage_in_place(staging: Path, folder: Path, graph: Graph) -> list[Write] | None:
    """Links the arrays of a run directory into its next state, and writes the journal of what changes in them.

    Args:
        staging: The folder of the next state.
        folder: The run directory.
        graph: The graph of the next state.

    Returns:
        What changes. None if the arrays cannot be shared: the graph does not come from this state of the run
        directory, or the file system has no hard links. Then the folder of the next state is as it was.
    """
    overlay = graph.overlay
    if overlay is None or not isinstance(overlay.origin, StoredArrays) or not _is_at(overlay.origin, folder):
        return None
    relinked, gone = _relinked(overlay, overlay.origin), _gone(overlay, overlay.origin)
    has_gaps = relinked.size or overlay.origin.adjacency.replaced.size  # the second as an earlier version left them
    anew = {ARRAYS, *(LISTS if has_gaps else ()), *(SUBJECTS if gone.size else ())}
    names = [name for name in ARRAY_FILES if name not in anew and (folder / name).exists()]
    try:
        for name in names:
            os.link(folder / name, staging / name, follow_symlinks=False)
    except OSError:
        for name in names:
            (staging / name).unlink(missing_ok=True)
        return None
    header = read_json(folder / ARRAYS, largest=LIMITS[ARRAYS])
    if has_gaps:
        header |= write_lists(staging, overlay)
    if gone.size and (folder / SUBJECTS[0]).exists():
        header |= _write_subjects(staging, folder, gone)
    write_header(staging, header)
    writes = _changes(overlay, relinked, gone, graph)
    if writes:
        write_journal(staging, writes)
    return writes


def _is_at(origin: StoredArrays, folder: Path) -> bool:
    """Whether the files of a run directory are those of `origin`, in the state in which they were read."""
    if origin.identity is None or identity_of(folder / ATTRIBUTES) != origin.identity:
        return False
    try:
        run = read_json(folder / RUN_FILE, largest=LIMITS[RUN_FILE])
    except (OSError, InputError):
        return False
    return isinstance(run, dict) and run.get("graph_digest") == origin.digest


def _gone(overlay: Overlay, origin: StoredArrays) -> np.ndarray:
    """The slots of nodes that were deleted since the files were written."""
    slots = np.arange(overlay.num_slots) if overlay.slots is None else overlay.slots
    return np.setdiff1d(origin.slots, slots, assume_unique=True)


def _relinked(overlay: Overlay, origin: StoredArrays) -> np.ndarray:
    """The slots with fewer neighbours than in the files; lists only get shorter."""
    replaced = overlay.adjacency.replaced
    relinked: np.ndarray = replaced[overlay.adjacency.count(replaced) != origin.adjacency.count(replaced)]
    return relinked


def _changes(overlay: Overlay, relinked: np.ndarray, gone: np.ndarray, graph: Graph) -> list[Write]:
    """The new bytes of everything that differs in the files that are shared."""
    altered, writes = overlay.forgotten, []
    if altered.size:
        values = overlay.values.astype(overlay.base.dtype.newbyteorder("<"))
        writes.append(Write.of_rows(ATTRIBUTES, altered, values))
    changed = np.union1d(np.union1d(relinked, altered), overlay.unlabelled)
    if changed.size:
        leaves = np.zeros((changed.size, HASH), dtype=np.uint8)
        stays = ~np.isin(changed, gone, assume_unique=True)
        numbers = graph.numbers.numpy()[overlay.rows_of(changed[stays])]
        leaves[stays] = digest_tree(graph).tree.leaves(numbers)
        writes.append(Write.of_rows("leaves.bin", changed, leaves))
    without_target = np.union1d(gone, overlay.unlabelled)
    if without_target.size:
        no_target = stored_targets(graph, np.zeros(without_target.size, dtype=np.int64))
        no_target[:] = np.nan if no_target.dtype.kind == "f" else UNLABELLED
        writes.append(Write.of_rows("targets.bin", without_target, no_target))
        writes.append(Write.of_rows("roles.bin", without_target, np.zeros(without_target.size, dtype="|u1")))
    if gone.size:
        writes.append(Write.of_rows("numbers.bin", gone, np.full(gone.size, -1, dtype="<i8")))
    return writes


def _write_subjects(staging: Path, folder: Path, gone: np.ndarray) -> dict[str, Any]:
    """Writes the subject ids without those of deleted nodes, and gives their entries of the header."""
    names, ends_file = SUBJECTS
    content, ends = np.fromfile(folder / names, dtype="|u1"), np.fromfile(folder / ends_file, dtype="<i8")
    lengths = np.diff(ends, prepend=0)
    content = np.delete(content, ranges((ends - lengths)[gone], lengths[gone]))
    lengths[gone] = 0
    return write_small(staging, {names: content, ends_file: lengths.cumsum().astype("<i8")})
