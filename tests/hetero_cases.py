"""Heterogeneous graphs that the tests share, and the features of SIGN over relations by their definition."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch
from torch_geometric.data import HeteroData

import graphforget as gf
from graphforget.graph.schema import schema_of

CLASSES = 3
TARGET = "paper"


def random_data(
    seed: int, *, papers: int = 12, authors: int = 8, weighted: bool = False, full: bool = False, reverse: bool = False
) -> HeteroData:
    """Papers that cite each other, authors who write them, venues without attributes.

    With `full` no attribute is 0; with `reverse` one relation also stands the other way round.
    """
    rng = np.random.default_rng(seed)
    data = HeteroData()
    for kind, nodes, columns in ((TARGET, papers, 3), ("author", authors, 2)):
        drawn = rng.uniform(0.5, 1.5, (nodes, columns)) if full else rng.normal(size=(nodes, columns))
        data[kind].x = torch.from_numpy(drawn * (full | (rng.random((nodes, columns)) < 0.7)))
    data["venue"].num_nodes = 3
    y = np.arange(papers) % CLASSES
    train = rng.random(papers) < 0.7
    train[:CLASSES] = True
    data[TARGET].y, data[TARGET].train_mask = torch.from_numpy(y), torch.from_numpy(train)
    data[TARGET].test_mask = torch.from_numpy(~train)
    ends = {TARGET: papers, "author": authors, "venue": 3}
    counts = {("author", "writes", TARGET): 2 * papers, (TARGET, "cites", TARGET): papers, (TARGET, "in", "venue"): 9}
    for (source, name, target), count in counts.items():
        pairs = np.unique(
            np.stack([rng.integers(ends[source], size=count), rng.integers(ends[target], size=count)]), axis=1
        )
        pairs = pairs[:, pairs[0] < pairs[1]] if source == target else pairs
        data[source, name, target].edge_index = torch.from_numpy(pairs)
        if weighted:
            data[source, name, target].edge_weight = torch.from_numpy(rng.uniform(0.2, 3.0, pairs.shape[1]))
    if reverse:
        written = data["author", "writes", TARGET]
        data[TARGET, "rev_writes", "author"].edge_index = written.edge_index.flip(0)
        if weighted:
            data[TARGET, "rev_writes", "author"].edge_weight = written.edge_weight
    return data


def random_hetero(seed: int, *, directed: bool = False, **sizes: Any) -> gf.Graph:
    return gf.Graph.from_hetero(random_data(seed, **sizes), target=TARGET, directed=directed)


def random_hetero_request(graph: gf.Graph, seed: int) -> gf.Request:
    """A mixture of nodes, edges and attributes of any type, and labels, that leaves training nodes."""
    rng = np.random.default_rng([seed, 7])
    names = [str(name) for name in graph.subject_ids or ()]
    nodes = rng.choice(names, size=rng.integers(0, 3), replace=False).tolist()
    pairs = graph.edge_index.T.tolist()
    chosen = [pairs[place] for place in rng.integers(len(pairs), size=rng.integers(0, 3))]
    edges = [(names[u], names[v]) for u, v in {tuple(pair if graph.directed else sorted(pair)) for pair in chosen}]
    attributes: dict[int | str, Any] = {}
    for name in rng.choice(names, size=rng.integers(0, 3), replace=False).tolist():
        own = [column for column in graph.column_names or () if column.split(":")[0] == name.split(":")[0]]
        attributes[name] = "all" if rng.integers(2) else [str(rng.choice(own))]
    labelled = [names[row] for row in graph.train_rows.tolist() if names[row] not in nodes]
    labels = rng.choice(labelled, size=rng.integers(0, 2), replace=False).tolist()
    if not (nodes or edges or attributes or labels):
        nodes = [names[-1]]
    return gf.Request(nodes, edges, attributes, labels=labels)


def dense_relations(graph: gf.Graph, dtype: Any = np.float64) -> list[np.ndarray]:
    """The mean over the neighbours in each relation, by its definition."""
    matrices = []
    for number in range(len(graph.relation_names or ("edges",))):
        a = np.zeros((graph.num_nodes, graph.num_nodes), dtype=dtype)
        for place, (u, v) in enumerate(graph.edge_index.T.tolist()):
            mask = 1 if graph.edge_relations is None else int(graph.edge_relations[place])
            if mask >> number & 1:
                a[v, u] = 1 if graph.edge_weight is None else dtype(float(graph.edge_weight[place]))
        sums = a.sum(axis=1)
        matrices.append(a / np.where(sums > 0, sums, 1)[:, None])
    return matrices


def dense_features(graph: gf.Graph, *, hops: int, dtype: Any = np.float64) -> dict[tuple[int, ...], np.ndarray]:
    """`S_k ... S_1 X` for every sequence of up to `hops` relations, whether it leads anywhere or not."""
    x = graph.x.to_dense().double().numpy().astype(dtype)
    norms = np.sqrt((x * x).sum(axis=1))
    x = x / np.where(norms > 0, norms, 1)[:, None]
    matrices = dense_relations(graph, dtype)
    features = {}
    for length in range(hops + 1):
        for path in product(range(len(matrices)), repeat=length):
            values = x
            for relation in path:
                values = matrices[relation] @ values
            features[path] = values
    return features


def dense_rows(module: Any, graph: gf.Graph, dtype: Any = np.float64) -> np.ndarray:
    """The features of every node as the model orders them, with a 1 for the bias."""
    features = dense_features(graph, hops=module.reach.hops, dtype=dtype)
    parts = [features[path.relations][:, path.first : path.last] for path in module.paths]
    return np.concatenate([*parts, np.ones((graph.num_nodes, 1), dtype=dtype)], axis=1)


def two_signals(seed: int, *, nodes: int = 600, degree: int = 6) -> gf.Graph:
    """People in four classes, two bits each. Friends share the first bit, colleagues differ in the second.

    What a person's own attributes say is noisy. Over the union of both relations the signals cancel in part: a
    neighbour may be a friend or a colleague, and what it says means something else.
    """
    rng = np.random.default_rng(seed)
    bits = rng.integers(2, size=(nodes, 2))
    data = HeteroData()
    x = np.stack([bits[:, 0], 1 - bits[:, 0], bits[:, 1], 1 - bits[:, 1]], axis=1) + 1.5 * rng.normal(size=(nodes, 4))
    data["person"].x, data["person"].y = torch.from_numpy(x), torch.from_numpy(2 * bits[:, 0] + bits[:, 1])
    for name, bit, same in (("friend", 0, True), ("colleague", 1, False)):
        pairs = rng.integers(nodes, size=(2, 40 * nodes))
        fits = ((bits[pairs[0], bit] == bits[pairs[1], bit]) == same) & (pairs[0] != pairs[1])
        data["person", name, "person"].edge_index = torch.from_numpy(pairs[:, fits][:, : degree * nodes // 2])
    return gf.Graph.from_hetero(data, target="person").split(seed=seed, test=0.5)


def structural_zero(graph: gf.Graph, path: tuple[int, ...], columns: tuple[int, int]) -> bool:
    """Whether this block is 0 on the nodes of the target type for every set of edges that the relations allow."""
    schema = schema_of(graph)
    kinds = {TARGET}
    for relation in reversed(path):
        name = schema.relations[relation]
        source, target = schema.ends(name)
        forward = {source} if target in kinds else set()
        kinds = forward | ({target} if source in kinds and not graph.directed else set())
    return not any(schema.columns(kind) == columns for kind in kinds)
