"""Positions in arrays of lists that stand one after the other, as those of a sparse matrix by rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray | slice:
    """The places start, start + 1, ... of several runs, one after the other; a slice if the runs follow one another."""
    ends = starts + counts
    if not starts.size:
        return slice(0, 0)
    if (starts[1:] == ends[:-1]).all():
        return slice(int(starts[0]), int(ends[-1]))
    return np.arange(counts.sum()) + np.repeat(starts - (counts.cumsum() - counts), counts)


def row_blocks(indptr: np.ndarray, entries: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about so many entries each, and at least one row."""
    first, rows = 0, indptr.size - 1
    while first < rows:
        last = int(np.searchsorted(indptr, indptr[first] + entries, side="right")) - 1
        last = min(max(last, first + 1), rows)
        yield first, last
        first = last
