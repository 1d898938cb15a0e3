"""Canaries: artificial nodes and edges that a model is trained on and then unlearns, and decoys that it never saw.

An attacker can guess real removed edges, because neighbours are similar. Only the training of the model can reveal a
canary. Canary nodes have the attributes of one class and the label of another; canary edges join two classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.audits.items import Items
from graphforget.errors import InputError
from graphforget.graph.edge_arrays import with_more
from graphforget.graph.graph import Graph
from graphforget.linalg.sparse import to_scipy
from graphforget.request.kinds import Kind
from graphforget.request.request import Request

LARGEST = 50
LINKS = 2  # of a canary node, to training nodes of the class that its attributes are of


@dataclass(frozen=True)
class Canaries:
    """A graph with canaries, the request that removes them, and a graph to query them and their decoys on."""

    planted: Graph
    request: Request
    query: Graph
    nodes: Items  # the planted ones, as rows of `query`
    node_decoys: Items
    edges: Items
    edge_decoys: Items


def plant(
    graph: Graph, *, seed: int, count: int | None = None, kinds: Collection[Kind] = ("nodes", "edges")
) -> Canaries:
    """Plants `count` canaries of each of these kinds, and makes as many decoys that are in the query graph only.

    By default there is one canary for 20 training nodes, at most 50.
    """
    rng = np.random.default_rng(seed)
    train = graph.train_rows.numpy()
    count = max(2, min(LARGEST, len(train) // 20)) if count is None else count
    labels = graph.y.numpy()
    if len(np.unique(labels[train])) < 2:
        raise InputError("canaries need training nodes of two classes at least")
    nodes, edges = (count if kind in kinds else 0 for kind in ("nodes", "edges"))
    templates = rng.choice(train, 2 * nodes, replace=len(train) < 2 * nodes)  # canaries copy their attributes
    wrong = np.array([rng.choice(np.setdiff1d(labels[train], labels[row])) for row in templates], dtype=np.int64)
    links = np.array([_neighbours(row, train, labels, rng) for row in templates], dtype=np.int64).ravel()
    pairs = _unlinked_pairs(graph, 2 * edges, train, labels, rng)
    n, half = graph.num_nodes, nodes * LINKS
    ends = np.repeat(np.arange(n, n + 2 * nodes), LINKS)
    added = np.stack([links, ends])
    planted = with_nodes(graph, templates[:nodes], wrong[:nodes], np.hstack([added[:, :half], pairs[:, :edges]]))
    query = with_nodes(graph, templates, wrong, np.hstack([added, pairs]))
    rows = torch.arange(n, n + 2 * nodes).repeat(2, 1).T
    across = torch.from_numpy(pairs.T.copy())
    return Canaries(
        planted=planted,
        request=Request(
            nodes=[planted.name_of(row) for row in range(n, n + nodes)],
            edges=[(planted.name_of(u), planted.name_of(v)) for u, v in _named(graph, pairs[:, :edges]).T.tolist()],
        ),
        query=query,
        nodes=Items(rows[:nodes]),
        node_decoys=Items(rows[nodes:]),
        edges=Items(across[:edges]),
        edge_decoys=Items(across[edges:]),
    )


def _neighbours(row: int, train: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    same_class = train[labels[train] == labels[row]]
    return rng.choice(same_class, LINKS, replace=len(same_class) < LINKS)


def _unlinked_pairs(
    graph: Graph, count: int, train: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Distinct pairs of training nodes of two classes without an edge between them, as 2 x count."""
    n = graph.num_nodes
    source, target = graph.edge_index.numpy()
    taken = set((np.minimum(source, target) * n + np.maximum(source, target)).tolist())
    pairs: list[tuple[int, int]] = []
    if not count:
        return np.zeros((2, 0), dtype=np.int64)
    for _ in range(1000 * count):
        u, v = sorted(rng.choice(train, 2, replace=False).tolist())
        if labels[u] != labels[v] and u * n + v not in taken:
            taken.add(u * n + v)
            pairs.append((u, v))
            if len(pairs) == count:
                return np.array(pairs).T
    raise InputError(f"the graph has no room for {count} canary edges between training nodes of two classes")


def _named(graph: Graph, edges: np.ndarray) -> np.ndarray:
    """The edges as a request and a graph name them: in a directed graph both directions are listed."""
    return np.hstack([edges, edges[::-1]]) if graph.directed else edges


def with_nodes(graph: Graph, templates: np.ndarray, labels: np.ndarray, edges: np.ndarray) -> Graph:
    """The graph with more training nodes, which copy the attributes of `templates`, and more edges, both ways."""
    more = len(templates)
    if graph.x.layout == torch.sparse_csr:
        old = to_scipy(graph.x)
        x: Tensor | sp.spmatrix = sp.vstack([old, old[templates]], format="csr")
    else:
        x = torch.cat([graph.x, graph.x[torch.from_numpy(templates)]])
    both = torch.from_numpy(_named(graph, edges))
    first = int(graph.numbers[-1]) + 1
    subjects = graph.subject_ids
    if subjects is not None:
        taken = set(subjects)
        prefixes = ("canary" + "-" * length for length in itertools.count(1))
        prefix = next(prefix for prefix in prefixes if not any(f"{prefix}{number}" in taken for number in range(more)))
        subjects = (*subjects, *(f"{prefix}{number}" for number in range(more)))
    none = torch.zeros(more, dtype=torch.bool)
    return Graph.create(
        x=x,
        sparse=False,  # as the graph has them
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
        relation_names=graph.relation_names,
        **with_more(graph, both.shape[1]),
    )
