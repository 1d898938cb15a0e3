"""Cora, CiteSeer and PubMed from the raw files of Planetoid: Python 2 pickles, read without trusting them."""

from __future__ import annotations

import collections
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
import torch

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.targets import UNLABELLED
from graphforget.graph.validation import note_of_dropped_loops

VALIDATION_NODES = 500  # of the public split: the rows that follow its training rows


def read_planetoid(folder: Path, name: str) -> Graph:
    """The graph in `folder`'s files ind.<name>.*, with sparse attributes and the masks of the public split.

    Self-loops are left out. The 15 nodes of CiteSeer of which the files hold neither attributes nor a label
    have zero attributes and are unlabelled, in no part of the split.
    """

    def part(suffix: str) -> Path:
        return folder / f"ind.{name}.{suffix}"

    known_x, test_x = _attributes(part("allx")), _attributes(part("tx"))
    known_labels, test_labels = _labels(part("ally")), _labels(part("ty"))
    training = len(_labels(part("y")))
    test_nodes = _test_nodes(part("test.index"))
    sources, targets = _edges(part("graph"))
    try:
        n = int(test_nodes.max()) + 1
        node_of_row = np.concatenate([np.arange(known_x.shape[0]), test_nodes])
        if len(np.unique(node_of_row)) != len(node_of_row):
            raise ValueError("a node is listed twice")
        stacked = sp.vstack([known_x, test_x], format="coo")
        x = sp.csr_matrix((stacked.data, (node_of_row[stacked.row], stacked.col)), shape=(n, stacked.shape[1]))
        # PyG gives the nodes in the gaps of CiteSeer's test.index a row of zeros as label, and the argmax of
        # this row puts them into class 0, which is wrong: their class is unknown.
        y = np.full(n, UNLABELLED)
        y[node_of_row] = np.concatenate([known_labels, test_labels])
        masks = np.zeros((3, n), dtype=bool)
        masks[0, :training] = True
        masks[1, training : training + VALIDATION_NODES] = True
        masks[2, test_nodes] = True
    except (ValueError, IndexError) as error:
        raise InputError(f"the files ind.{name}.* in {folder} do not fit together: {error}") from error
    proper = sources != targets
    return Graph.create(
        x=x,
        edges=torch.from_numpy(np.stack([sources[proper], targets[proper]])),
        y=torch.from_numpy(y),
        train_mask=torch.from_numpy(masks[0]),
        val_mask=torch.from_numpy(masks[1]),
        test_mask=torch.from_numpy(masks[2]),
        name=name,
        notes=note_of_dropped_loops(len(np.unique(sources[~proper]))),  # each may be listed more than once
    )


def read_pickle(path: Path) -> Any:
    """A pickle of scipy CSR matrices, numpy arrays, dictionaries and lists; anything else is an `InputError`.

    Nothing in the file can run code: matrices and arrays are read as the passive classes below, and no other
    name is looked up.
    """
    try:
        with path.open("rb") as file:
            return _Unpickler(file, encoding="latin1").load()
    except Exception as error:  # a damaged pickle can raise any exception
        _refuse(path, error)


class _Type:
    """Stands for numpy's dtype, whose own state must not come from a file: it can forge pointers."""

    def __init__(self, code: str, *_: object) -> None:
        if code not in ("f4", "f8", "i4", "i8"):
            raise pickle.UnpicklingError(f"it holds values of type {code!r}, only numbers are allowed")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


class _Array:
    """Stands for numpy's array."""

    values: np.ndarray

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        flat = np.frombuffer(content.encode("latin1"), dtype=np.dtype(kind.order + kind.code))
        self.values = flat.reshape(shape, order="F" if fortran else "C")


class _Matrix:
    """Stands for scipy's CSR matrix."""

    data: _Array
    indices: _Array
    indptr: _Array
    _shape: tuple[int, int]

    def checked(self) -> sp.csr_matrix:
        parts = tuple(part.values for part in (self.data, self.indices, self.indptr))
        matrix = sp.csr_matrix(parts, shape=self._shape, dtype=np.float32)
        matrix.check_format(full_check=True)  # an index out of range would make scipy read foreign memory
        return matrix


class _Unpickler(pickle.Unpickler):
    STAND_INS: Mapping[tuple[str, str], type] = {
        ("__builtin__", "list"): list,
        ("collections", "defaultdict"): collections.defaultdict,
        ("numpy", "dtype"): _Type,
        ("numpy", "ndarray"): _Array,
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    }

    def find_class(self, module: str, name: str) -> type:
        stand_in = self.STAND_INS.get((module, name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"it needs {module}.{name}, which is not allowed")
        return stand_in


def _refuse(path: Path, reason: object) -> NoReturn:
    raise InputError(f"{path} is not the file that Planetoid published: {reason}") from None


def _attributes(path: Path) -> sp.csr_matrix:
    matrix = read_pickle(path)
    if not isinstance(matrix, _Matrix):
        _refuse(path, "it does not hold a sparse matrix")
    try:
        return matrix.checked()
    except (AttributeError, TypeError, ValueError) as error:
        _refuse(path, error)


def _labels(path: Path) -> np.ndarray:
    rows = getattr(read_pickle(path), "values", None)
    if not isinstance(rows, np.ndarray) or rows.ndim != 2:
        _refuse(path, "it does not hold one row of numbers for each node")
    if not ((rows == 1).sum(axis=1) == 1).all():
        _refuse(path, "a row does not name exactly one class")
    return rows.argmax(axis=1)


def _edges(path: Path) -> tuple[np.ndarray, np.ndarray]:
    neighbours = read_pickle(path)
    try:
        counts = [len(ends) for ends in neighbours.values()]
        sources = np.repeat(np.fromiter(neighbours, np.int64, len(counts)), counts)
        targets = np.fromiter((end for ends in neighbours.values() for end in ends), np.int64, sum(counts))
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        _refuse(path, error)
    return sources, targets


def _test_nodes(path: Path) -> np.ndarray:
    try:
        return np.array([int(line) for line in path.read_text(encoding="ascii").split()], dtype=np.int64)
    except (OSError, ValueError, OverflowError) as error:
        _refuse(path, error)
