"""A matrix of which several versions are in use, stored once: a new version costs the rows that it changes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
BLOCK = 2048  # rows that are moved together
_in_use = threading.RLock()


def exclusive(function: Callable[P, R]) -> Callable[P, R]:
    """Lets one thread at a time run functions that read or move versions: the array shows one version at a time."""

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with _in_use:
            return function(*args, **kwargs)

    return locked


class VersionedRows:
    """One version of a matrix whose rows are replaced again and again.

    All versions share one array. The version that was used last owns it; every other one holds the rows in which it
    differs from its neighbour on the way to the owner. Reading another version moves the array there, at the cost of
    these rows (Baker 1978, "Shallow binding in LISP 1.5": rerooting). Versions that nobody holds are freed.
    Functions that keep an array while they work are `exclusive`.

    Example:
        >>> first = VersionedRows(np.zeros((3, 1)))
        >>> second = first.updated(np.array([1]), np.array([[5.0]]))
        >>> float(second.array()[1, 0]), float(first.array()[1, 0])
        (5.0, 0.0)
    """

    def __init__(self, values: np.ndarray) -> None:
        """`values` is not copied, and belongs to the versions from here on."""
        self._values = values
        self._difference: tuple[np.ndarray, np.ndarray, VersionedRows] | None = None  # None: this version owns it

    @property
    def shape(self) -> tuple[int, ...]:
        return self._values.shape

    def array(self) -> np.ndarray:
        """The whole array. It shows this version only until another one is read, so do not keep it."""
        self._own()
        return self._values

    @exclusive
    def rows(self, index: np.ndarray) -> np.ndarray:
        """A copy of these rows."""
        return self.array()[index]

    def updated(self, index: np.ndarray, values: np.ndarray) -> VersionedRows:
        """A new version with other rows; `index` names each row once. This version stays what it is."""
        return self.changed(index, lambda block, _: values[block])

    @exclusive
    def changed(self, index: np.ndarray, function: Callable[[slice, np.ndarray], np.ndarray]) -> VersionedRows:
        """A new version with other rows, computed in blocks that stay in cache.

        `function(block, rows)` returns the new rows of `index[block]`; `rows` are those of this version.
        """
        self._own()
        new = VersionedRows(self._values)
        before = np.empty((index.size, *self._values.shape[1:]), dtype=self._values.dtype)
        read = 0
        try:
            for start in range(0, index.size, BLOCK):
                block = slice(start, min(start + BLOCK, index.size))
                np.take(self._values, index[block], axis=0, out=before[block], mode="clip")
                read = block.stop
                self._values[index[block]] = function(block, before[block])
            self._difference = (index, before, new)
        except BaseException:
            self._values[index[:read]] = before[:read]
            self._difference = None
            raise
        return new

    @exclusive
    def _own(self) -> None:
        """Moves the array to this version, along the chain of differences from the owner."""
        chain: list[VersionedRows] = []
        version = self
        while version._difference is not None:
            chain.append(version)
            version = version._difference[2]
        for reached in reversed(chain):
            assert reached._difference is not None
            index, rows, owner = reached._difference
            interrupted = _exchange(self._values, index, rows)
            reached._difference, owner._difference = None, (index, rows, reached)
            if interrupted is not None:
                raise interrupted


def _exchange(values: np.ndarray, index: np.ndarray, rows: np.ndarray) -> KeyboardInterrupt | None:
    """Exchanges these rows of an array with other rows, in place.

    Half of an exchange would be no version at all, so an interruption is returned when all is done, and what needs
    memory comes before anything changes.
    """
    interrupted = None
    size = (min(BLOCK, index.size), *values.shape[1:])
    first, second = np.empty(size, dtype=values.dtype), np.empty(size, dtype=values.dtype)
    start, copied = 0, -1
    while True:
        try:
            while start < index.size:  # inside, because Python also looks for signals where a loop begins again
                block = slice(start, min(start + BLOCK, index.size))
                before, after = first[: block.stop - start], second[: block.stop - start]
                if copied != start:
                    np.take(values, index[block], axis=0, out=before, mode="clip")
                    after[:] = rows[block]
                    copied = start
                values[index[block]], rows[block] = after, before  # the same if it is done twice
                start = block.stop
            return interrupted
        except KeyboardInterrupt as error:
            interrupted = error


def without_rows(values: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """The array without a few rows, copied block by block."""
    ends = zip([0, *(gone + 1).tolist()], [*gone.tolist(), values.shape[0]], strict=True)
    return np.concatenate([values[first:last] for first, last in ends])
