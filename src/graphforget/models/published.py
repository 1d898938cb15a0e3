"""GraphEraser as the code behind the paper's Table 1 ran it: for that table alone, use `sharded-gcn` elsewhere.

What differs from `sharded-gcn`: rows are scaled to sum 1, with which a hundred epochs do not get far; no self-loops, so
that a node without neighbours in its shard is blind; dropout off (that code switches it off in the first epoch and not
on again); every model answers on its own shard's part of the graph; log-probabilities are averaged; and the learned
weights minimise a loss whose penalty drives all of them to 0. Its SGC is this same network. One thing is left out: it
mixes up positions and node numbers in BEKM, which makes that partition random, and trains on test labels; here the
partition is then random and test labels stay unseen.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import Matrix, SparseMatrix, as_matrix, entry_rows, with_values
from graphforget.models.base import GraphModel, Linear
from graphforget.models.propagation import plain_normalised_adjacency
from graphforget.models.sharded import Sharded

SAMPLE, BATCH, EPOCHS, LEARNING_RATE = 1000, 32, 10, 1e-3  # of the learned weights


class PublishedGCN(GraphModel):
    """Two layers of `D^-1/2 A D^-1/2 X W + b`, 32 hidden units."""

    reach = Reach(2, degree_normalised=True)

    def __init__(self, columns: int, classes: int, *, hidden: int = 32) -> None:
        super().__init__(scale_rows=True)
        self.first, self.second = Linear(columns, hidden, bias=False), Linear(hidden, classes, bias=False)
        self.first_bias = torch.nn.Parameter(torch.zeros(hidden))
        self.second_bias = torch.nn.Parameter(torch.zeros(classes))

    def prepare(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Matrix, object]:
        sums = (x.abs() if x.layout != torch.sparse_csr else with_values(x, x.values().abs())) @ torch.ones(
            x.shape[1], 1, dtype=x.dtype, device=x.device
        )
        shares = torch.where(sums > 0, 1 / sums, 0).squeeze(1)
        if x.layout == torch.sparse_csr:
            scaled = with_values(x, x.values() * shares[entry_rows(x)])
        else:
            scaled = x * shares.unsqueeze(1)
        return as_matrix(scaled), self.propagation(edge_index, x.shape[0], x.dtype, edge_weight)

    def propagation(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
    ) -> Matrix:
        self.checked_weight(edge_weight)
        return plain_normalised_adjacency(edge_index, num_nodes, dtype=dtype)

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        assert isinstance(propagation, SparseMatrix)
        hidden = (propagation @ self.first(x) + self.first_bias).relu()
        return propagation @ self.second(hidden) + self.second_bias


class PublishedEraser(Sharded):
    """Every model answers on its own training nodes and the nodes that do not train."""

    def prepare(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Matrix, object]:
        self.checked_weight(edge_weight)
        rows, _ = super().prepare(x, edge_index[:, :0])
        source, target = edge_index
        if self.shard_of.numel() != x.shape[0]:  # asked about another graph: nobody knows its shards
            inside = [torch.ones(x.shape[0], dtype=torch.bool, device=x.device)] * self.shards
        else:
            shard_of = self.shard_of.to(x.device)
            inside = [(shard_of == shard) | (shard_of < 0) for shard in range(self.shards)]
        parts = [edge_index[:, nodes[source] & nodes[target]] for nodes in inside]
        return rows, [self.propagation(part, x.shape[0], x.dtype) for part in parts]

    def answers(self, x: Matrix, propagation: object) -> Tensor:
        assert isinstance(propagation, list)
        pairs = zip(self.models, propagation, strict=True)
        return torch.stack([model.logits(x, part).log_softmax(dim=1) for model, part in pairs])  # type: ignore[operator]

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        if self.aggregation == "majority":
            return super().logits(x, propagation)
        return torch.tensordot(self.weights, self.answers(x, propagation), dims=1)

    @property
    def has_random_shards(self) -> bool:
        return self.partition in ("random", "bekm")

    def weights_graph(self, graph: Graph, *, seed: int) -> Graph:
        """A sample of the training nodes and the edges among them."""
        generator = torch.Generator().manual_seed(seed)
        rows = graph.train_rows[torch.randperm(graph.train_rows.numel(), generator=generator)[:SAMPLE]]
        keep = torch.zeros(graph.num_nodes, dtype=torch.bool)
        keep[rows] = True
        return graph.induced(keep)

    def learned_weights(self, answers: Tensor, labels: Tensor, *, alive: Tensor, seed: int) -> Tensor:
        return published_weights(answers, labels, seed=seed)


def published_weights(answers: Tensor, labels: Tensor, *, seed: int) -> Tensor:
    """The learned weights as that code fits them: a softmax over log-probabilities already, and `+ ||a||` unscaled."""
    shards, nodes, _ = answers.shape
    generator = torch.Generator().manual_seed(seed)
    weights = torch.full((shards,), 1 / shards, dtype=answers.dtype, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=LEARNING_RATE)
    best, lowest = weights.detach().clone(), float("inf")
    for _ in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(nodes, generator=generator).split(BATCH):
            optimiser.zero_grad()
            mixed = torch.tensordot(weights, answers[:, batch], dims=1).softmax(dim=1)
            loss = functional.cross_entropy(mixed, labels[batch]) + (weights.square().sum() + 1e-8).sqrt()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                weights.clamp_(min=0)
            total += float(loss.detach())
        if total < lowest:
            best, lowest = weights.detach().clone(), total
    return best / best.sum() if best.sum() > 0 else torch.full_like(best, 1 / shards)
