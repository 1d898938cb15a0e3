"""Removed attribute values: the paper's measure of them, and whether a model can tell them from somebody else's."""

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
from graphforget.graph.validation import UNLABELLED
from graphforget.linalg.sparse import from_scipy, to_scipy
from graphforget.request.request import Request


class BlankedLoss(NamedTuple):
    """The mean loss of nodes whose attributes are blanked, which the paper reads as forgetting. A low one is accuracy.

    `as_published` puts probabilities where logits belong, as the paper's code does for IDEA and CGU: a second softmax,
    under which no loss falls below `log(1 + (C - 1) / e)`.
    """

    true: float
    as_published: float


def blanked_loss(logits: Tensor, labels: Tensor) -> BlankedLoss:
    true, published = cross_entropy(logits, labels), cross_entropy(logits.softmax(dim=1), labels)
    return BlankedLoss(float(true), float(published))


def with_decoys(graph: Graph, request: Request, *, seed: int) -> tuple[Graph, Tensor]:
    """The graph with every value that the request names replaced by that of another node of the same class, one that
    no model was trained on if there is any, and the labelled training rows where this is so."""
    what = Request(attributes=request.attributes).resolve(graph)
    named = torch.cat([what.full_rows, what.partial_rows]).unique()
    rows = named[graph.train_mask[named]]
    if not rows.numel():
        raise InputError("the request names no attributes of a training node")
    chance = np.random.default_rng(seed)
    train, labels = graph.train_rows.numpy(), graph.y.numpy()
    unseen = (~graph.train_mask & (graph.y != UNLABELLED)).nonzero().flatten().numpy()
    stand_in = np.arange(graph.num_nodes)
    for row in rows.tolist():
        alike = [others[labels[others] == labels[row]] for others in (unseen, train[train != row])]
        stand_in[row] = chance.choice(next((rows for rows in alike if len(rows)), np.setdiff1d(train, [row])))
    whole = np.arange(graph.num_nodes)
    whole[what.full_rows.numpy()] = stand_in[what.full_rows.numpy()]
    places = what.partial_rows.numpy(), what.partial_columns.numpy()
    if graph.x.layout == torch.sparse_csr:
        x = to_scipy(graph.x)
        mixed = x[whole]
        single = sp.csr_matrix((np.ones(len(places[0]), dtype=x.dtype), places), shape=x.shape)
        mixed = mixed - mixed.multiply(single) + x[stand_in].multiply(single)
        mixed.eliminate_zeros()
        return dataclasses.replace(graph, x=from_scipy(sp.csr_matrix(mixed))), rows
    dense = graph.x[torch.from_numpy(whole)]
    dense[places] = graph.x[stand_in[places[0]], places[1]]
    return dataclasses.replace(graph, x=dense), rows
