"""Canaries: made-up nodes and edges that a model is trained on and told to forget, beside others it never met.

Real removed edges look like edges to anybody who knows that neighbours are alike; a canary has nothing but the training
to give it away. Nodes carry the attributes of one class and the label of another; edges join two classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.audits.items import Items
from graphforget.errors import InputError
from graphforget.graph import Graph
from graphforget.linalg.sparse import to_scipy
from graphforget.request import Request

LARGEST = 50
LINKS = 2  # of a canary node, to training nodes of the class that its attributes are of


@dataclass(frozen=True)
class Canaries:
    """A graph with canaries, the request that takes them out again, and a graph to ask about them and their decoys."""

    planted: Graph
    request: Request
    query: Graph
    nodes: Items  # that were planted, rows of `query`
    node_decoys: Items
    edges: Items
    edge_decoys: Items


def plant(graph: Graph, *, seed: int, count: int | None = None) -> Canaries:
    """Plants `count` nodes and as many edges (by default one for 20 training nodes, at most 50), and makes as many
    decoys of the same kind that are in the query graph alone."""
    chance = np.random.default_rng(seed)
    train = graph.train_rows.numpy()
    count = max(2, min(LARGEST, len(train) // 20)) if count is None else count
    labels = graph.y.numpy()
    if len(np.unique(labels[train])) < 2:
        raise InputError("canaries need training nodes of two classes at least")
    likeness = chance.choice(train, 2 * count)  # whose attributes a canary carries
    wrong = np.array([chance.choice(np.setdiff1d(labels[train], labels[like])) for like in likeness])
    links = np.concatenate([_neighbours(like, train, labels, chance) for like in likeness])
    pairs = _strangers(graph, 2 * count, train, labels, chance)
    n, half = graph.num_nodes, count * LINKS
    ends = np.repeat(np.arange(n, n + 2 * count), LINKS)
    added = np.stack([links, ends])
    planted = _with_nodes(graph, likeness[:count], wrong[:count], np.hstack([added[:, :half], pairs[:, :count]]))
    query = _with_nodes(graph, likeness, wrong, np.hstack([added, pairs]))
    rows = torch.arange(n, n + 2 * count).repeat(2, 1).T
    across = torch.from_numpy(pairs.T.copy())
    return Canaries(
        planted=planted,
        request=Request(
            nodes=[planted.name_of(row) for row in range(n, n + count)],
            edges=[(planted.name_of(u), planted.name_of(v)) for u, v in pairs[:, :count].T.tolist()],
        ),
        query=query,
        nodes=Items(rows[:count]),
        node_decoys=Items(rows[count:]),
        edges=Items(across[:count]),
        edge_decoys=Items(across[count:]),
    )


def _neighbours(like: int, train: np.ndarray, labels: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    alike = train[labels[train] == labels[like]]
    return chance.choice(alike, LINKS, replace=len(alike) < LINKS)


def _strangers(
    graph: Graph, count: int, train: np.ndarray, labels: np.ndarray, chance: np.random.Generator
) -> np.ndarray:
    """Pairs of training nodes of two classes that no edge joins, each once, as 2 x count."""
    n = graph.num_nodes
    source, target = graph.edge_index.numpy()
    taken = set((np.minimum(source, target) * n + np.maximum(source, target)).tolist())
    found: list[tuple[int, int]] = []
    for _ in range(1000 * count):
        u, v = sorted(chance.choice(train, 2, replace=False).tolist())
        if labels[u] != labels[v] and u * n + v not in taken:
            taken.add(u * n + v)
            found.append((u, v))
            if len(found) == count:
                return np.array(found).T
    raise InputError(f"the graph has no room for {count} canary edges between training nodes of two classes")


def _with_nodes(graph: Graph, likeness: np.ndarray, labels: np.ndarray, edges: np.ndarray) -> Graph:
    """The graph with more training nodes, which carry these nodes' attributes, and more edges, both ways."""
    more = len(likeness)
    if graph.x.layout == torch.sparse_csr:
        own = to_scipy(graph.x)
        x: Tensor | sp.spmatrix = sp.vstack([own, own[likeness]], format="csr")
    else:
        x = torch.cat([graph.x, graph.x[torch.from_numpy(likeness)]])
    both = torch.from_numpy(np.hstack([edges, edges[::-1]]) if graph.directed else edges)
    first = int(graph.numbers[-1]) + 1
    subjects = graph.subject_ids
    if subjects is not None:
        taken = set(subjects)
        mark = next(mark for mark in ("canary" + "-" * length for length in range(1, 100)) if f"{mark}0" not in taken)
        subjects = (*subjects, *(f"{mark}{number}" for number in range(more)))
    none = torch.zeros(more, dtype=torch.bool)
    return Graph.create(
        x=x,
        edges=torch.cat([graph.edge_index, both], dim=1),
        y=torch.cat([graph.y, torch.from_numpy(labels)]),
        train_mask=torch.cat([graph.train_mask, ~none]),
        val_mask=torch.cat([graph.val_mask, none]),
        test_mask=torch.cat([graph.test_mask, none]),
        directed=graph.directed,
        num_classes=graph.num_classes,
        numbers=torch.cat([graph.numbers, torch.arange(first, first + more)]),
        subject_ids=subjects,
        column_names=graph.column_names,
        class_names=graph.class_names,
        name=graph.name,
    )
