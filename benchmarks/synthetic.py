"""Synthetic graphs: one with a rule that no linear model can learn, and one with many neighbours a node.

python benchmarks/synthetic.py      prints their sizes
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

import graphforget as gf

# The sizes of Amazon Computers, a graph of products that are bought together (Shchur et al. 2018).
SHOP_NODES, SHOP_NEIGHBOURS, SHOP_COLUMNS, SHOP_CLASSES = 13_752, 36, 767, 10


def nonlinear(
    *, nodes: int = 4_000, neighbours: int = 8, columns: int = 32, noise: float = 1.4, seed: int = 0
) -> gf.Graph:
    """Two hidden signs a node. Attributes show each sign by a shift, neighbours share both, the label is their product.

    A linear function of attributes or of their averages over neighbours cannot tell the product of two signs.
    """
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1, 1], size=(nodes, 2))
    directions = np.linalg.qr(rng.normal(size=(columns, 2)))[0].T
    x = signs @ directions + noise * rng.normal(size=(nodes, columns)) / np.sqrt(2)
    group = (signs[:, 0] > 0) * 2 + (signs[:, 1] > 0)
    edges = _homophilous_edges(group, neighbours=neighbours, inside=0.75, rng=rng)
    y = (signs.prod(axis=1) > 0).astype(np.int64)
    return _graph(torch.from_numpy(x).float(), edges, y, name="nonlinear", seed=seed)


def shop(*, seed: int = 0, nodes: int = SHOP_NODES) -> gf.Graph:
    """Sparse 0/1 attributes, ten classes, 36 neighbours a node of which 80 % have the node's class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, SHOP_CLASSES, size=nodes)
    likely = rng.random((SHOP_CLASSES, SHOP_COLUMNS)) < 0.15
    chance = 0.02 + 0.03 * likely[y]
    x = sp.csr_matrix((rng.random((nodes, SHOP_COLUMNS)) < chance).astype(np.float32))
    edges = _homophilous_edges(y, neighbours=SHOP_NEIGHBOURS, inside=0.8, rng=rng)
    return _graph(x, edges, y, name="shop", seed=seed)


def _homophilous_edges(group: np.ndarray, *, neighbours: int, inside: float, rng: np.random.Generator) -> np.ndarray:
    """About `neighbours` edges a node; a share `inside` of them stays within the node's group."""
    nodes, half = group.size, neighbours // 2
    source = np.repeat(np.arange(nodes), half)
    target = rng.integers(0, nodes, size=source.size)
    members = [np.flatnonzero(group == g) for g in range(group.max() + 1)]
    same = rng.random(source.size) < inside
    for number, nodes_of_group in enumerate(members):
        here = same & (group[source] == number)
        target[here] = rng.choice(nodes_of_group, size=int(here.sum()))
    return np.stack([source, target])[:, source != target]


def _graph(x: torch.Tensor | sp.csr_matrix, edges: np.ndarray, y: np.ndarray, *, name: str, seed: int) -> gf.Graph:
    graph = gf.Graph.create(x=x, edges=torch.from_numpy(edges), y=torch.from_numpy(y), name=name)
    return graph.split(seed=seed)


def main() -> None:
    for graph in (nonlinear(), shop()):
        print(graph)


if __name__ == "__main__":
    main()
