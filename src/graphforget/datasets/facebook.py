"""Pages of Facebook and the likes among them, from the raw files of MUSAE."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.validation import note_of_dropped_loops

COLUMNS = 4_714
KINDS = ("company", "government", "politician", "tvshow")


def read_facebook(folder: Path, name: str, *, columns: int = COLUMNS) -> Graph:
    """The graph in three files, with sparse attributes of 0 or 1. Self-loops are left out.

    The names of the pages are not read: nodes are named by number.
    """
    try:
        kinds = _kinds(folder / "facebook_target.csv")
        x = _attributes(folder / "facebook_features.json", len(kinds), columns)
        edges = _edges(folder / "facebook_edges.csv")
    except (OSError, LookupError, TypeError, ValueError, csv.Error) as error:
        raise InputError(f"{folder} does not hold the files that MUSAE published: {error}") from error
    proper = edges[0] != edges[1]
    return Graph.create(
        x=x,
        edges=torch.from_numpy(edges[:, proper]),
        y=torch.from_numpy(kinds),
        class_names=KINDS,
        name=name,
        notes=note_of_dropped_loops(len(np.unique(edges[0, ~proper]))),
    )


def _kinds(path: Path) -> np.ndarray:
    """The class of every page; pages are numbered from 0 in the order of the file."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    if [int(line["id"]) for line in lines] != list(range(len(lines))):
        raise ValueError(f"{path.name} does not number the pages from 0")
    return np.array([KINDS.index(line["page_type"]) for line in lines], dtype=np.int64)


def _attributes(path: Path, nodes: int, columns: int) -> sp.csr_matrix:
    content = json.loads(path.read_text(encoding="utf-8"))
    lists = [content[str(node)] for node in range(nodes)]
    places = np.array([column for numbers in lists for column in numbers]).astype(np.int64, casting="safe")
    rows = np.repeat(np.arange(nodes), [len(numbers) for numbers in lists])
    x = sp.csr_matrix((np.ones(places.size, dtype=np.float32), (rows, places)), shape=(nodes, columns))
    x.data[:] = 1  # an attribute that is listed twice is still 1
    return x


def _edges(path: Path) -> np.ndarray:
    with path.open(encoding="utf-8", newline="") as file:
        pairs = [(int(line["id_1"]), int(line["id_2"])) for line in csv.DictReader(file)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
