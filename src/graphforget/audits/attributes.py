"""Removed attribute values: the paper's measure of them, and decoys to compare them with."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.targets import UNLABELLED
from graphforget.linalg.sparse import from_scipy, to_scipy
from graphforget.request.request import Request


class BlankedLoss(NamedTuple):
    """The mean loss of nodes whose attributes are blanked. The paper reads a low one as forgetting; it is accuracy.

    `as_published` passes probabilities instead of logits to the loss, as the paper's code does for IDEA and CGU. With
    this second softmax no loss is below `log(1 + (C - 1) / e)`.
    """

    true: float
    as_published: float


def blanked_loss(logits: Tensor, labels: Tensor) -> BlankedLoss:
    true, published = cross_entropy(logits, labels), cross_entropy(logits.softmax(dim=1), labels)
    return BlankedLoss(float(true), float(published))


def with_decoys(graph: Graph, request: Request, *, seed: int) -> tuple[Graph, Tensor]:
    """The graph with every value that the request names replaced by that of another node, and the training rows where
    this was done. The other node has the same class, and no model was trained on it if there is such a node."""
    resolved = Request(attributes=request.attributes).resolve(graph)
    named = torch.cat([resolved.full_rows, resolved.partial_rows]).unique()
    rows = named[graph.train_mask[named]]
    if not rows.numel():
        raise InputError("the request names no attributes of a training node")
    rng = np.random.default_rng(seed)
    train, labels = graph.train_rows.numpy(), graph.y.numpy()
    unseen = (~graph.train_mask & (graph.y != UNLABELLED)).nonzero().flatten().numpy()
    stand_in = np.arange(graph.num_nodes)
    for row in rows.tolist():
        same_class = [pool[labels[pool] == labels[row]] for pool in (unseen, train[train != row])]
        stand_in[row] = rng.choice(next((pool for pool in same_class if len(pool)), np.setdiff1d(train, [row])))
    source_rows = np.arange(graph.num_nodes)
    source_rows[resolved.full_rows.numpy()] = stand_in[resolved.full_rows.numpy()]
    entries = resolved.partial_rows.numpy(), resolved.partial_columns.numpy()
    if graph.x.layout == torch.sparse_csr:
        x = to_scipy(graph.x)
        mixed = x[source_rows]
        single = sp.csr_matrix((np.ones(len(entries[0]), dtype=x.dtype), entries), shape=x.shape)
        mixed = mixed - mixed.multiply(single) + x[stand_in].multiply(single)
        mixed.eliminate_zeros()
        return dataclasses.replace(graph, x=from_scipy(sp.csr_matrix(mixed))), rows
    dense = graph.x[torch.from_numpy(source_rows)]
    dense[entries] = graph.x[stand_in[entries[0]], entries[1]]
    return dataclasses.replace(graph, x=dense), rows
