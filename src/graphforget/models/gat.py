"""Graph attention network (Velickovic et al. 2018)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphforget.graph.reach import Reach
from graphforget.linalg.pattern import Pattern
from graphforget.linalg.sparse import Matrix
from graphforget.models.base import GraphModel, Linear
from graphforget.models.propagation import weights_with_loops


class WeightedPattern(Pattern):
    """Edges with weights."""

    def __init__(self, rows: Tensor, columns: Tensor, size: int, weight: Tensor) -> None:
        super().__init__(rows, columns, size)
        self.log_weight = weight.log().unsqueeze(1)  # the same for all heads


class GATLayer(nn.Module):
    """PyG's GATConv, heads side by side, for sparse attributes and without a tensor of edges x features.

    `a(s -> t) = softmax over s of leaky_relu(p . h_s + q . h_t)`, out_t = sum_s a(s -> t) h_s + b, with `h = x W`.
    The logarithm of an edge's weight is added to its score, so that an edge of weight 2 counts as two edges.
    """

    def __init__(self, columns: int, out: int, *, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.linear = Linear(columns, heads * out, bias=False)
        self.source = nn.Parameter(torch.empty(heads, out))
        self.target = nn.Parameter(torch.empty(heads, out))
        self.bias = nn.Parameter(torch.zeros(heads * out))
        for vector in (self.source, self.target):
            nn.init.uniform_(vector, -math.sqrt(6 / (heads + out)), math.sqrt(6 / (heads + out)))

    def forward(self, x: Matrix | Tensor, edges: Pattern) -> Tensor:
        from torch_geometric.utils import (
            softmax,
        )  # here, because importing PyG takes seconds that other models save

        h: Tensor = self.linear(x).unflatten(1, (self.heads, -1))
        sent, received = (h * self.source).sum(dim=2), (h * self.target).sum(dim=2)
        score = functional.leaky_relu(sent[edges.columns] + received[edges.rows], 0.2)
        if isinstance(edges, WeightedPattern):
            score = score + edges.log_weight.to(score)
        weight = functional.dropout(softmax(score, edges.rows, num_nodes=edges.size), self.dropout, self.training)
        return edges.weighted_sum(weight, h).flatten(1) + self.bias


class GAT(GraphModel):
    """Two layers: eight heads side by side, then one; ELU and dropout between them."""

    reach = Reach(2, degree_normalised=False)
    takes_edge_weight = True

    def __init__(
        self,
        columns: int,
        classes: int,
        *,
        hidden: int = 8,
        heads: int = 8,
        dropout: float = 0.6,
        scale_rows: bool = True,
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        self.dropout, self.width = dropout, heads * hidden
        self.first = GATLayer(columns, hidden, heads=heads, dropout=dropout)
        self.second = GATLayer(heads * hidden, classes, heads=1, dropout=dropout)

    def propagation(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
    ) -> Pattern:
        """The edges by target, with a self-loop at every node."""
        loops = torch.arange(num_nodes, device=edge_index.device)
        source, target = torch.cat([edge_index, loops.expand(2, -1)], dim=1)
        keys = (target * num_nodes + source).unique()
        target, source = keys // num_nodes, keys % num_nodes
        if edge_weight is None:
            return Pattern(target, source, num_nodes)
        weights = weights_with_loops(edge_index, edge_weight, torch.stack([source, target]), num_nodes)
        return WeightedPattern(target, source, num_nodes, weights)

    def embed(self, x: Matrix, propagation: object) -> Tensor:
        """The n x h activations that the last layer reads, before dropout, from the results of `prepare`."""
        return functional.elu(self.first(x, propagation))

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        hidden = functional.dropout(self.embed(x, propagation), self.dropout, self.training)
        out: Tensor = self.second(hidden, propagation)
        return out
