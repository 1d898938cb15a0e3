"""The single items that a request names and that the answers of a model can reveal, and graphs to query them on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.scores import confidence
from graphforget.errors import InputError
from graphforget.graph.edge_arrays import FORGOTTEN_WEIGHT, selected
from graphforget.graph.graph import Graph
from graphforget.graph.resolved import Resolved
from graphforget.graph.targets import UNLABELLED
from graphforget.models.items import NODE
from graphforget.request.request import Request

LIMIT = 500  # items that are audited; more would add little


@dataclass(frozen=True)
class Items:
    """Training nodes that are removed or lose attributes or label, and removed edges by their labelled training ends.

    `ends` holds two rows of the graph before the request for each item; for a node it is the same row twice.
    """

    ends: Tensor

    def __len__(self) -> int:
        return len(self.ends)

    def values(self, logits: Tensor, labels: Tensor) -> np.ndarray:
        """Each item's statistic: the confidence in the true label (`scores.confidence`), the mean of both ends."""
        sides = [confidence(logits[rows], labels[rows]) for rows in self.ends.T]
        return (sides[0] + sides[1]) / 2


def refuse_other_targets(graph: Graph, word: str = NODE) -> None:
    """Raises `InputError` unless one class is predicted for each node: the attacks read the confidence in it."""
    if word != NODE:
        raise InputError(f"an audit attacks the predicted class of a node, and the model answers for {word}s")
    if graph.target_kind != "classes":
        raise InputError(f"an audit attacks the predicted class of a node, and the graph has {graph.target_kind}")


def items_of(graph: Graph, request: Request, *, seed: int, limit: int = LIMIT) -> Items:
    """The items of a request, drawn by the seed if there are more than `limit`.

    There may be none: no model was trained on a removed test node.
    """
    resolved = request.resolve(graph)
    trains = graph.train_mask & (graph.y != UNLABELLED)
    edges = torch.cat([pairs_of(graph, resolved), _once(graph, resolved.weight_edges)], dim=1)
    first, second = edges[:, trains[edges].any(dim=0)]
    first, second = torch.where(trains[first], first, second), torch.where(trains[second], second, first)
    named = (resolved.node_rows, resolved.full_rows, resolved.partial_rows, resolved.label_rows)
    nodes = torch.cat(named).unique()
    ends = torch.cat([nodes[trains[nodes]].repeat(2, 1).T, torch.stack([first, second], dim=1)])
    ends = ends.sort(dim=1).values.unique(dim=0)  # an edge to a test node counts as its training end
    order = torch.randperm(len(ends), generator=torch.Generator().manual_seed(seed))[:limit].sort().values
    return Items(ends[order])


def pairs_of(graph: Graph, resolved: Resolved) -> Tensor:
    """The named edges as 2 x E, each undirected one once."""
    return _once(graph, resolved.edges)


def _once(graph: Graph, edges: Tensor) -> Tensor:
    return edges if graph.directed else edges[:, edges[0] <= edges[1]]


def reduced_graph(graph: Graph, request: Request, *, attributes: bool = True) -> Graph:
    """The graph after a request, but with every row still in its place, so that removed nodes can be queried.

    Removed nodes have no edges. `attributes=False` keeps the attributes that the request blanks.
    """
    resolved = request.resolve(graph)
    removed = torch.zeros(graph.num_nodes, dtype=torch.bool)
    removed[resolved.node_rows] = True
    source, target = graph.edge_index
    keep = ~(resolved.edge_mask(graph) | removed[source] | removed[target])
    if graph.edge_weight is not None:
        weight = graph.edge_weight.masked_fill(resolved.weight_mask(graph), FORGOTTEN_WEIGHT)
        graph = dataclasses.replace(graph, edge_weight=weight)
    reduced = dataclasses.replace(graph, edge_index=graph.edge_index[:, keep], notes=(), **selected(graph, keep))
    return reduced.without(Request(attributes=request.attributes)) if attributes and request.attributes else reduced
