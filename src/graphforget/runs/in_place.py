"""The next state of a run directory with a large graph: its array files are shared, and what is forgotten overwritten.

The new state has hard links to the arrays and a journal of what changes in them. Until it takes effect, the arrays are
as they were. A graph only ever loses data, so every change fits in the place of what it replaces.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from graphforget.errors import InputError
from graphforget.graph.digest import digest_tree
from graphforget.graph.graph import Graph
from graphforget.graph.overlay import Overlay
from graphforget.graph.record_tree import HASH
from graphforget.graph.targets import UNLABELLED
from graphforget.json_files import read_json
from graphforget.runs.arrays import StoredArrays, stored_targets
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
    names = [name for name in (ARRAYS, *ARRAY_FILES) if (folder / name).exists()]
    try:
        for name in names:
            os.link(folder / name, staging / name, follow_symlinks=False)
    except OSError:
        for name in names:
            (staging / name).unlink(missing_ok=True)
        return None
    writes = _changes(overlay, overlay.origin, graph, _subject_ends(folder))
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


def _subject_ends(folder: Path) -> np.ndarray | None:
    path = folder / "subject_ends.bin"
    return np.fromfile(path, dtype="<i8") if path.exists() else None


def _changes(overlay: Overlay, origin: StoredArrays, graph: Graph, subject_ends: np.ndarray | None) -> list[Write]:
    """The new bytes of everything that differs from the files."""
    slots = np.arange(overlay.num_slots) if overlay.slots is None else overlay.slots
    gone = np.setdiff1d(origin.slots, slots, assume_unique=True)
    replaced, altered = overlay.adjacency.replaced, overlay.forgotten
    relinked = replaced[overlay.adjacency.count(replaced) != origin.adjacency.count(replaced)]  # lists only get shorter
    writes = []
    if altered.size:
        values = overlay.values.astype(overlay.base.dtype.newbyteorder("<"))
        writes.append(Write.of_rows(ATTRIBUTES, altered, values))
    if relinked.size:
        writes += _list_changes(overlay, relinked)
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
        if subject_ends is not None:
            starts = np.where(gone > 0, subject_ends[gone - 1], 0)
            lengths = subject_ends[gone] - starts
            writes.append(Write("subjects.bin", starts, lengths, np.zeros(lengths.sum(), dtype=np.uint8)))
    return writes


def _list_changes(overlay: Overlay, relinked: np.ndarray) -> list[Write]:
    """The shorter lists of neighbours at the places of the old ones, filled up with -1, and how long they are."""
    adjacency = overlay.adjacency
    starts, widths = adjacency.indptr[relinked], np.diff(adjacency.indptr)[relinked]
    counts, senders = adjacency.lists(relinked)
    content = np.full(widths.sum(), -1, dtype="<i4")
    places = widths.cumsum() - widths
    inside = np.arange(senders.size) - np.repeat(counts.cumsum() - counts, counts)
    content[np.repeat(places, counts) + inside] = senders
    size = content.itemsize
    return [
        Write("indices.bin", starts * size, widths * size, content.view(np.uint8)),
        Write.of_rows("counts.bin", relinked, counts.astype("<i4")),
    ]
