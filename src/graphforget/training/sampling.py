"""Trains a network in mini-batches with sampled neighbours. Every draw is keyed by node numbers (docs/maths.md, 11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.hashing import node_hashes, pair_hashes, salt, salted
from graphforget.graph.targets import as_numbers
from graphforget.linalg.pattern import Pattern
from graphforget.linalg.sparse import converted, selected_rows
from graphforget.models.composite import inner_inputs
from graphforget.models.dropout import KeyedDropout
from graphforget.models.mini_batches import MiniBatches
from graphforget.models.parameters import adam_for, backward_with_l2, flatten, trainable
from graphforget.training.losses import Loss
from graphforget.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Batch:
    """The subgraph that a few nodes read."""

    rows: Tensor  # of its nodes in the graph, ascending
    edge_index: Tensor  # between positions in `rows`, sorted by target, then source
    targets: Tensor  # positions in `rows` of the nodes that it is for, ascending


class NeighbourSampler:
    """In every epoch a node has the neighbours whose keyed hashes are the smallest.

    The hash is that of (seed, epoch, number of the node, number of the neighbour). So the neighbours of a node in an
    epoch depend on its own list of neighbours alone, and are the same in all batches. A smaller number of neighbours
    gives a part of what a larger one gives.
    """

    def __init__(self, graph: Graph, num_neighbors: tuple[int, ...], *, seed: int) -> None:
        source, target = graph.edge_index
        order = torch.from_numpy(np.argsort(target.numpy(), kind="stable"))
        source, target = source[order], target[order]
        self._hashes = pair_hashes(graph.numbers[target], graph.numbers[source])
        self._source, self._target = source.numpy(), target.numpy()
        self._degrees = np.bincount(self._target, minlength=graph.num_nodes)
        self._starts = self._degrees.cumsum() - self._degrees
        self._num_neighbors, self._seed = num_neighbors, seed
        drawn = [number for number in num_neighbors if number >= 0]
        # All neighbours of a node that has few need no order.
        few = min(drawn) if drawn else graph.edge_index.shape[1]
        self._sorted = np.flatnonzero(self._degrees[self._target] > few)

    def senders(self, epoch: int) -> np.ndarray:
        """The sender of every edge, by receiver and then by its hash in this epoch."""
        hashes = salted(self._hashes[self._sorted], salt("neighbours", self._seed, epoch)).numpy()
        order = np.lexsort((hashes, self._target[self._sorted]))
        senders = self._source.copy()
        senders[self._sorted] = self._source[self._sorted[order]]
        return senders

    def batch(self, rows: np.ndarray, senders: np.ndarray) -> Batch:
        """The subgraph of these rows, with the senders of an epoch: hop by hop the sampled neighbours of new nodes."""
        inside = np.zeros(self._degrees.size, dtype=bool)
        inside[rows] = True
        new, edges = rows, [np.zeros((2, 0), dtype=np.int64)]
        for number in self._num_neighbors:
            counts = self._degrees[new] if number < 0 else np.minimum(self._degrees[new], number)
            first = np.repeat(self._starts[new] - (counts.cumsum() - counts), counts)
            sent = senders[first + np.arange(first.size)]
            edges.append(np.stack([sent, np.repeat(new, counts)]))
            before = inside.copy()
            inside[sent] = True
            new = np.flatnonzero(inside & ~before)
        nodes, position = np.flatnonzero(inside), inside.cumsum() - 1
        source, target = position[np.concatenate(edges, axis=1)]
        keys = np.sort(target * nodes.size + source)
        edge_index = np.stack([keys % nodes.size, keys // nodes.size])
        return Batch(*map(torch.from_numpy, (nodes, edge_index, position[rows])))


def batch_rows(numbers: Tensor, rows: Tensor, *, batch_size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Positions in `rows`, in batches of almost one size: sorted by a keyed hash of the node's number, and cut.

    Within a batch positions ascend.
    """
    hashes = salted(node_hashes(numbers[rows]), salt("batch", seed, epoch))
    order = hashes.argsort(stable=True)
    for block in order.tensor_split(-(-rows.numel() // batch_size)):
        yield block.sort().values


def train_in_batches(
    module: nn.Module,
    graph: Graph,
    recipe: Recipe,
    loss: Loss,
    batches: MiniBatches,
    *,
    device: str = "cpu",
) -> bool:
    """Adam in mini-batches with dropout on, from the module's own weights, which it changes.

    A step takes the mean loss of the batch and the L2 term. Dropout is keyed by node number, so that a node has the
    same mask in all batches of an epoch. Returns whether the module drew any other random number.
    """
    if graph.edge_weight is not None:
        raise InputError("mini-batches take no edge weights: leave batch_size out to train on the whole of each part")
    module.to(device=device, dtype=torch.float32).train()
    parameters = [p for _, p in trainable(module)]
    x, rows = converted(graph.x, dtype=torch.float32, device="cpu"), graph.train_rows
    labels = as_numbers(graph.y[rows], parameters[0])
    sampler = NeighbourSampler(graph, batches.num_neighbors, seed=recipe.seed)
    optimiser = adam_for(parameters, recipe.learning_rate)
    unkeyed = False
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        for epoch in range(recipe.epochs):
            senders, drawn = sampler.senders(epoch), {"seed": recipe.seed, "epoch": epoch}
            for places in batch_rows(graph.numbers, rows, batch_size=batches.batch_size, **drawn):
                batch = sampler.batch(rows[places].numpy(), senders)
                edges = batch.edge_index.to(device)
                inputs = inner_inputs(module, _selected(x, batch.rows).to(device), edges)
                keyed_by = inputs[1] if isinstance(inputs[1], Pattern) else edges
                dropout = KeyedDropout(graph.numbers[batch.rows], keyed_by, seed=recipe.seed, device=device)
                optimiser.zero_grad()
                with dropout.at(epoch):
                    logits = module(*inputs)
                value = loss(logits[batch.targets.to(device)], labels[places.to(device)]).mean()
                backward_with_l2(value, parameters, recipe.mu)
                optimiser.step()
                unkeyed = unkeyed or dropout.unkeyed
    if not torch.isfinite(flatten(module)).all():
        raise InputError(f"training diverged, lower the learning rate {recipe.learning_rate}")
    return unkeyed


def _selected(x: Tensor, rows: Tensor) -> Tensor:
    """These rows of sparse or dense attributes."""
    return selected_rows(x, rows) if x.layout == torch.sparse_csr else x[rows]
