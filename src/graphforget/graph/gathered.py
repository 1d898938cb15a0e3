"""A subgraph whose nodes lie on all ranks, brought to one of them: rows, and lists of neighbours cut to its nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch

from graphforget.distributed.group import Group
from graphforget.graph.graph import Graph
from graphforget.graph.row_part import TEST, TRAIN, VALIDATION, RowPart
from graphforget.linalg.sparse import from_scipy

PURPOSE = "encoders"


def induced_on(
    rank: int,
    part: RowPart,
    is_member: Callable[[np.ndarray], np.ndarray],
    group: Group,
    *,
    classes: int,
    sparse: bool,
) -> Graph | None:
    """The subgraph of the nodes whose numbers are members, on this rank; None on the others. Every rank calls it.

    It is the graph that `Graph.induced` gives on one machine, without names. `sparse` is how attributes are kept there.
    """
    rows = np.flatnonzero(part.there)
    rows = rows[is_member(rows + part.start)]
    counts, listed = part.lists(rows)
    inside = is_member(listed.astype(np.int64))
    owner = np.repeat(np.arange(rows.size), counts)[inside]
    sent = {
        "numbers": rows + part.start,
        "roles": np.asarray(part.roles[rows]),
        "counts": np.bincount(owner, minlength=rows.size),
        "neighbours": listed[inside].astype(np.int64),
        "targets": np.asarray(part.targets[rows]),
        "attributes": np.asarray(part.attributes[rows]),
    }
    got = {name: _sent_to(rank, values, group) for name, values in sent.items()}
    return _graph(got, classes=classes, sparse=sparse) if group.rank == rank else None


def _sent_to(rank: int, values: np.ndarray, group: Group) -> np.ndarray:
    """The values of all ranks, by ascending rank, on one rank; nothing on the others. They travel as bytes."""
    width = values.itemsize * int(np.prod(values.shape[1:]))
    raw = np.frombuffer(np.ascontiguousarray(values).tobytes(), dtype=np.uint8).reshape(len(values), width)
    parts = [raw if other == rank else raw[:0] for other in range(group.size)]
    together = np.ascontiguousarray(np.concatenate(group.exchange(parts, purpose=PURPOSE)))
    return together.reshape(-1).view(values.dtype).reshape(-1, *values.shape[1:])


def _graph(got: dict[str, np.ndarray], *, classes: int, sparse: bool) -> Graph:
    numbers, roles, x = got["numbers"], got["roles"], got["attributes"]
    source = np.searchsorted(numbers, got["neighbours"])
    target = np.repeat(np.arange(numbers.size), got["counts"])
    masks = (torch.from_numpy(roles == role) for role in (TRAIN, VALIDATION, TEST))
    train, val, test = masks
    return Graph(
        x=from_scipy(sp.csr_matrix(x)) if sparse else torch.from_numpy(x),
        edge_index=torch.from_numpy(np.stack([source, target])),
        y=torch.from_numpy(got["targets"]),
        train_mask=train,
        val_mask=val,
        test_mask=test,
        num_classes=classes,
        directed=False,
        numbers=torch.from_numpy(numbers),
    )
