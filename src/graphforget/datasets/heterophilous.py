"""Tolokers and Minesweeper from the raw .npz files of heterophilous-graphs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.validation import note_of_dropped_loops


def read_heterophilous(path: Path, name: str) -> Graph:
    """The graph in an .npz file, with dense attributes and the first of its ten splits (50, 25 and 25 %)."""
    try:
        with np.load(path, allow_pickle=False) as content:
            x, labels = content["node_features"], content["node_labels"]
            edges = content["edges"].astype(np.int64, casting="safe").reshape(-1, 2).T
            train, val, test = (torch.from_numpy(content[f"{part}_masks"][0]) for part in ("train", "val", "test"))
            proper = edges[0] != edges[1]
            return Graph.create(
                x=torch.from_numpy(x),
                edges=torch.from_numpy(edges[:, proper]),
                y=torch.from_numpy(labels),
                train_mask=train,
                val_mask=val,
                test_mask=test,
                name=name,
                notes=note_of_dropped_loops(len(np.unique(edges[0, ~proper]))),
            )
    except (OSError, EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not the file that heterophilous-graphs published: {error}") from error
