"""An ensemble of models of one architecture, each trained on its own shard of the graph (Chen et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.ensembles.aggregation import AGGREGATIONS, aggregate, learned_weights
from graphforget.ensembles.partition import PARTITIONS
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.linalg.sparse import Matrix
from graphforget.models.base import GraphModel

SHARD_OF = "shard_of"


class Sharded(GraphModel):
    """The combined predictions of `k` models, each of which predicts on the whole graph that is given.

    `shard_of` is the shard of each training node of the graph that the ensemble was trained on, -1 for all other
    nodes; `weights` are the weights of the models. Training sets both.
    """

    shard_of: Tensor

    def __init__(
        self, make: Callable[[], GraphModel], *, shards: int = 10, partition: str = "random", aggregation: str = "mean"
    ) -> None:
        for label, name, known in (("partition", partition, PARTITIONS), ("aggregation", aggregation, AGGREGATIONS)):
            if name not in known:
                raise InputError(f"there is no {label} {name!r}, only {', '.join(known)}")
        if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1:
            raise InputError(f"the number of shards is {shards!r}, a whole number from 1 is needed")
        models = [make() for _ in range(shards)]
        super().__init__(scale_rows=models[0].scale_rows)
        self.partition, self.aggregation = partition, aggregation
        self.reach = models[0].reach
        self.weights = nn.Parameter(torch.full((shards,), 1 / shards))
        self.models = nn.ModuleList(models)
        self.register_buffer(SHARD_OF, torch.zeros(0, dtype=torch.int64))

    @property
    def takes_edge_weight(self) -> bool:  # type: ignore[override]
        return self._first.takes_edge_weight

    @property
    def shards(self) -> int:
        return len(self.models)

    def prepare(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Matrix, object]:
        """As each of its models does: they have the same architecture."""
        return self._first.prepare(x, edge_index, self.checked_weight(edge_weight))

    @property
    def preparation(self) -> None:
        return None  # it may depend on the shards

    def propagation(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
    ) -> object:
        return self._first.propagation(edge_index, num_nodes, dtype, edge_weight)

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        weights = self.weights.clamp_min(0)  # noise may have made one negative
        weights = weights / weights.sum() if weights.sum() > 0 else torch.full_like(weights, 1 / self.shards)
        return aggregate(self.answers(x, propagation), weights, aggregation=self.aggregation)

    def answers(self, x: Matrix, propagation: object) -> Tensor:
        """`k x n x C` log-probabilities, in the order of the models."""
        return torch.stack([model.logits(x, propagation).log_softmax(dim=1) for model in self.models])  # type: ignore[operator]

    @property
    def has_random_shards(self) -> bool:
        """Whether a hash of a node's own number decides its shard, and no other node or edge."""
        return self.partition == "random"

    def weights_graph(self, graph: Graph, *, seed: int) -> Graph:
        """The graph on whose training nodes the weights of the models are learned."""
        return graph

    def learned_weights(self, answers: Tensor, labels: Tensor, *, alive: Tensor, seed: int) -> Tensor:
        """The weights of the models, fitted to `answers` on labelled nodes; 0 for a shard that is not `alive`."""
        return learned_weights(answers, labels, alive=alive)

    @property
    def _first(self) -> GraphModel:
        first = self.models[0]
        assert isinstance(first, GraphModel)
        return first

    def check_shards(self, train_mask: Tensor) -> None:
        """Raises `InputError` if the shards, read from a file, do not belong to these training nodes."""
        shard_of = self.shard_of
        if shard_of.dtype != torch.int64 or shard_of.shape != train_mask.shape:
            raise InputError("the shards are not one whole number a node")
        trains = (shard_of >= 0) & (shard_of < self.shards)
        if not torch.equal(trains, train_mask) or (shard_of < -1).any() or (shard_of >= self.shards).any():
            raise InputError("the shards are not those of the training nodes")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        shard_of = state_dict.get(prefix + SHARD_OF)
        if shard_of is not None:
            self.shard_of = torch.empty_like(shard_of)  # one entry for each node of the graph that it was trained on
        super()._load_from_state_dict(state_dict, prefix, *args)


def as_ensemble(module: nn.Module) -> Sharded | None:
    """The module as an ensemble on shards; None for any other model and for a user's module."""
    return module if isinstance(module, Sharded) else None
