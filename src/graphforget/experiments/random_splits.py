"""The protocol of OpenGU and of the benchmark of 2026: an 80/20 split of all nodes, and skewed requests."""

from __future__ import annotations

import dataclasses
import random
from functools import lru_cache

import torch
from torch import Tensor

import graphforget as gf
from graphforget.errors import InputError
from graphforget.graph.targets import has_target

TRAIN, SHARE = 0.8, 0.1
WORKLOADS = ("random", "most frequent class", "second class", "highest degree", "lowest degree")


@lru_cache(maxsize=2)
def split_graph(data: str, seed: int) -> gf.Graph:
    """The graph with 80 % of its nodes for training and 20 % for test, by a permutation of all nodes.

    It is not stratified and has no validation nodes. Nodes without a label are in neither part.
    """
    graph = gf.load(data, seed=seed)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    train = torch.zeros(graph.num_nodes, dtype=torch.bool)
    train[order[: int(TRAIN * graph.num_nodes)]] = True
    labelled = has_target(graph.y)
    none = torch.zeros_like(train)
    return dataclasses.replace(graph, train_mask=train & labelled, test_mask=~train & labelled, val_mask=none)


def node_request(graph: gf.Graph, workload: str, *, seed: int, share: float = SHARE) -> gf.Request:
    """A request for `int(share n)` of all `n` nodes, drawn from the training nodes.

    A class with fewer training nodes is deleted whole. Degrees are compared, and ties follow the order of the nodes.
    """
    rows, count = _candidates(graph, workload), int(share * graph.num_nodes)
    if workload in WORKLOADS[:3]:
        names = rows.tolist()
        drawn = random.Random(f"{workload} {seed}").sample(names, min(count, len(names)))
    else:
        drawn = rows[:count].tolist()
    return gf.Request(nodes=[graph.name_of(row) for row in sorted(drawn)])


def _candidates(graph: gf.Graph, workload: str) -> Tensor:
    if workload not in WORKLOADS:
        raise InputError(f"there is no workload {workload!r}, only {', '.join(WORKLOADS)}")
    rows = graph.train_rows
    if workload == "random":
        return rows
    if workload in WORKLOADS[1:3]:
        sizes = torch.bincount(graph.y[rows], minlength=graph.num_classes)
        label = sizes.argsort(descending=True, stable=True)[WORKLOADS.index(workload) - 1]
        return rows[graph.y[rows] == label]
    degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes)[rows]
    return rows[degrees.argsort(descending=workload == "highest degree", stable=True)]
