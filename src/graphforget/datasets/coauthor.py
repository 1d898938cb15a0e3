"""Coauthor CS and Physics from the raw .npz files of gnn-benchmark."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.validation import note_of_dropped_loops


def read_coauthor(path: Path, name: str) -> Graph:
    """The graph in an .npz file, with sparse attributes. Its class names are pickled, so they are not read.

    Attributes are counts of keywords in the file. They are set to 0 or 1, as PyG does. Self-loops are left out.
    """
    try:
        with np.load(path, allow_pickle=False) as content:
            x, adjacency = _matrix(content, "attr"), _matrix(content, "adj").tocoo()
            labels = content["labels"]
    except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not the file that gnn-benchmark published: {error}") from error
    x.eliminate_zeros()
    x.data = np.ones_like(x.data, dtype=np.float32)
    proper = adjacency.row != adjacency.col
    edges = np.stack([adjacency.row[proper], adjacency.col[proper]]).astype(np.int64)
    notes = note_of_dropped_loops(len(np.unique(adjacency.row[~proper])))
    return Graph.create(x=x, edges=torch.from_numpy(edges), y=torch.from_numpy(labels), name=name, notes=notes)


def _matrix(content: np.lib.npyio.NpzFile, name: str) -> sp.csr_matrix:
    parts = tuple(content[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    matrix = sp.csr_matrix(parts, shape=tuple(content[f"{name}_shape"]))
    matrix.check_format(full_check=True)  # an index out of range would make scipy read foreign memory
    return matrix
