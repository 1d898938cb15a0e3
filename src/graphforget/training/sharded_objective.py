"""The objective of an ensemble on shards: the sum of its models' objectives, each on its own shard."""

from __future__ import annotations

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.models.parameters import flatten
from graphforget.models.sharded import Sharded
from graphforget.training.losses import Loss
from graphforget.training.objective import Objective
from graphforget.training.training_input import training_input


def shard_nodes(graph: Graph, shard_of: Tensor, shard: int) -> Tensor:
    """A mask of the nodes that a shard's model trains on: its training nodes, and all nodes that do not train."""
    return (shard_of == shard) | ~graph.train_mask


def shard_graph(graph: Graph, shard_of: Tensor, shard: int) -> Graph:
    """The nodes that a shard's model may see, and the edges among them."""
    return graph.induced(shard_nodes(graph, shard_of, shard))


def shard_part(graph: Graph, module: Sharded, shard: int) -> Graph:
    """The training input of a shard's model: the part of the shard that can influence its training nodes."""
    return training_input(shard_graph(graph, module.shard_of, shard), module.reach)


class ShardedObjective(Objective):
    """`sum_s F_s(theta_s)` with `F_s` the mean loss over shard s, on its part of the graph, and its L2 term.

    The flat parameters are the weights of the models, on which the objective does not depend, followed by the
    parameters of each model. An empty shard has no objective.
    """

    def __init__(self, module: Sharded, graph: Graph, *, mu: float, loss: Loss, device: str = "cpu") -> None:
        if module.shard_of.numel() != graph.num_nodes:
            raise InputError("the ensemble was trained on a graph with another number of nodes")
        self.graph, self.mu, self.m, self.objective_noise_vector = graph, mu, graph.train_rows.numel(), None
        self._ensemble, self._loss, self._device = module, loss, device
        self._sizes = [flatten(model).numel() for model in module.models]

    @property
    def size(self) -> int:
        return self._ensemble.shards + sum(self._sizes)

    @property
    def like(self) -> Tensor:
        return torch.empty(0, dtype=torch.float64, device=self._device)

    def shard(self, number: int) -> Objective | None:
        """`F_s`, or None for an empty shard."""
        part = shard_part(self.graph, self._ensemble, number)
        if not part.train_mask.any():
            return None
        return Objective(self._ensemble.models[number], part, mu=self.mu, loss=self._loss, device=self._device)

    def value(self, theta: Tensor) -> float:
        parts = zip(range(self._ensemble.shards), self._parts(theta), strict=True)
        return sum(objective.value(part) for s, part in parts if (objective := self.shard(s)) is not None)

    def value_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        total, gradients = 0.0, [theta.new_zeros(self._ensemble.shards)]
        for number, part in enumerate(self._parts(theta)):
            objective = self.shard(number)
            value, gradient = (0.0, torch.zeros_like(part)) if objective is None else objective.value_and_gradient(part)
            total += value
            gradients.append(gradient)
        return total, torch.cat(gradients)

    def _parts(self, theta: Tensor) -> tuple[Tensor, ...]:
        return theta[self._ensemble.shards :].split(self._sizes)
