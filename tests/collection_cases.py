"""Random collections of graphs, and requests for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import graphforget as gf

COLUMNS, CLASSES = 3, 2


def random_collection(
    seed: int, *, graphs: int = 10, sparse: bool = False, directed: bool = False, ids: bool = False, mixed: bool = False
) -> gf.Graph:
    """Small graphs with gaps between their numbers; attributes repeat, so that colours do. `mixed`: in no order."""
    rng = np.random.default_rng(seed)
    numbers = np.sort(rng.choice(3 * graphs, size=graphs, replace=False))
    sizes = rng.integers(1, 6, size=graphs)
    in_graph = np.repeat(numbers, sizes)
    n = len(in_graph)
    if mixed:
        rng.shuffle(in_graph)
    y = np.arange(graphs) % CLASSES
    side = rng.choice([0, 0, 0, 1, 2], size=graphs)
    side[: 2 * CLASSES] = 0
    y[rng.random(graphs) < 0.1 * (side == 1)] = 0
    place = np.searchsorted(numbers, in_graph)
    edges = [
        rng.choice(members, size=(2, int(rng.integers(0, 2 * len(members) + 1))))
        for members in ((in_graph == number).nonzero()[0] for number in numbers)
    ]
    x = torch.from_numpy(rng.choice([0.0, 0.0, 1.0, 2.5], size=(n, COLUMNS)))
    return gf.Graph.create(
        x=x.to_sparse_csr() if sparse else x,
        edges=torch.from_numpy(np.concatenate(edges, axis=1)),
        y=torch.from_numpy(y[place]),
        train_mask=torch.from_numpy(side[place] == 0),
        val_mask=torch.from_numpy(side[place] == 1),
        test_mask=torch.from_numpy(side[place] == 2),
        num_classes=CLASSES,
        directed=directed,
        graph_numbers=torch.from_numpy(in_graph),
        graph_ids=[f"graph {number}" for number in numbers] if ids else None,
    )


def random_request(graph: gf.Graph, seed: int) -> gf.Request:
    """Graphs, nodes, edges and attributes in any mixture; training graphs remain."""
    rng = np.random.default_rng([seed, 1])
    while True:
        few = lambda available: rng.permutation(available)[: int(rng.integers(0, 3))].tolist()  # noqa: E731
        names = graph.graph_ids or graph.numbers_of_graphs.tolist()
        source, target = graph.edge_index
        once = graph.edge_index if graph.directed else graph.edge_index[:, source <= target]
        attributes: dict[int | str, Any] = {
            node: "all" if rng.random() < 0.5 else [int(rng.integers(COLUMNS))] for node in few(graph.num_nodes)
        }
        edges = [tuple(once[:, place].tolist()) for place in few(once.shape[1])]
        nodes, graphs = few(graph.num_nodes), [names[place] for place in few(len(names))]
        try:
            request = gf.Request(nodes, edges, attributes, graphs)
            request.resolve(graph)
        except gf.InputError:
            continue
        return request
