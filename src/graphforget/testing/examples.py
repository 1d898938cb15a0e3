"""A small graph, and a request of each kind for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from graphforget.graph.graph import Graph
from graphforget.request.request import Request

COLUMNS, CLASSES = 4, 3


def example_graph(seed: int = 3, *, nodes: int = 40, edges: int = 60) -> Graph:
    """A random undirected graph with three classes, training nodes, test nodes and a few nodes without a label."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(nodes, COLUMNS)) * (rng.random((nodes, COLUMNS)) < 0.7))
    y = torch.from_numpy(rng.permutation(np.arange(nodes) % CLASSES))
    train = torch.from_numpy(rng.random(nodes) < 0.7)
    train[:CLASSES] = True
    y[:CLASSES] = torch.arange(CLASSES)
    test = ~train
    unlabelled = test.nonzero().flatten()[:2]
    y[unlabelled] = -1
    test[unlabelled] = False
    ends = torch.from_numpy(rng.integers(0, nodes, size=(2, edges)))
    given: Any = {"x": x.to_sparse_csr(), "edges": ends[:, ends[0] != ends[1]], "y": y}
    return Graph.create(**given, train_mask=train, test_mask=test, num_classes=CLASSES)


def example_requests(graph: Graph) -> dict[str, Request]:
    """A request of each kind, and one that mixes them."""
    source, target = graph.edge_index
    edges = [tuple(graph.edge_index[:, source < target].T[3].tolist())]
    return {
        "nodes": Request(nodes=[4, 5]),
        "edges": Request(edges=edges),
        "attributes": Request(attributes={6: "all"}),
        "partial attributes": Request(attributes={7: [0, 2]}),
        "labels": Request(labels=[8, 9]),
        "mixed": Request(nodes=[20], edges=edges, attributes={6: "all", 7: [0, 2]}, labels=[8]),
    }
