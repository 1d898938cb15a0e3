"""The single things that a request names, as far as a model's answers can tell of them, and how they are asked for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.scores import confidence
from graphforget.graph.graph import Graph
from graphforget.graph.validation import UNLABELLED
from graphforget.request.request import Request

LIMIT = 500  # items that are looked at; more tell little more


@dataclass(frozen=True)
class Items:
    """Training nodes that go or lose attributes, and edges by their labelled training ends: rows of the graph that
    still holds them. `ends` has two rows for each item, the same twice for a node."""

    ends: Tensor

    def __len__(self) -> int:
        return len(self.ends)

    def values(self, logits: Tensor, labels: Tensor) -> np.ndarray:
        """Each item's statistic: the confidence in the true label (`scores.confidence`), the mean of both ends."""
        sides = [confidence(logits[rows], labels[rows]) for rows in self.ends.T]
        return (sides[0] + sides[1]) / 2


def items_of(graph: Graph, request: Request, *, seed: int, limit: int = LIMIT) -> Items:
    """The items of a request, drawn by the seed if there are more than `limit`. None of them may be left to look at: a
    test node that goes was never learned."""
    what = request.resolve(graph)
    trains = graph.train_mask & (graph.y != UNLABELLED)
    edges = pairs_of(graph, what.edge_mask)
    first, second = edges[:, trains[edges].any(dim=0)]
    first, second = torch.where(trains[first], first, second), torch.where(trains[second], second, first)
    alone = torch.cat([what.node_rows, what.full_rows, what.partial_rows]).unique()
    ends = torch.cat([alone[trains[alone]].repeat(2, 1).T, torch.stack([first, second], dim=1)])
    ends = ends.sort(dim=1).values.unique(dim=0)  # edges to test nodes come down to their one end
    order = torch.randperm(len(ends), generator=torch.Generator().manual_seed(seed))[:limit].sort().values
    return Items(ends[order])


def pairs_of(graph: Graph, edge_mask: Tensor) -> Tensor:
    """The edges of a mask as 2 x E, each undirected one once."""
    source, target = graph.edge_index
    return graph.edge_index[:, edge_mask & (graph.directed | (source <= target))]


def without_removing(graph: Graph, request: Request, *, attributes: bool = True) -> Graph:
    """What is left to query of the graph after a request, with every row still in place: nodes that go stand alone,
    edges are gone, and `attributes` are blanked."""
    what = request.resolve(graph)
    goes = torch.zeros(graph.num_nodes, dtype=torch.bool)
    goes[what.node_rows] = True
    source, target = graph.edge_index
    keep = ~(what.edge_mask | goes[source] | goes[target])
    left = dataclasses.replace(graph, edge_index=graph.edge_index[:, keep], notes=())
    return left.without(Request(attributes=request.attributes)) if attributes and request.attributes else left
