"""An ensemble of models of one architecture, each trained on its own shard of the graph (Chen et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.ensembles.aggregation import AGGREGATIONS, combined
from graphforget.ensembles.partition import PARTITIONS
from graphforget.errors import InputError
from graphforget.linalg.sparse import Matrix
from graphforget.models.base import GraphModel

SHARD_OF = "shard_of"


class Sharded(GraphModel):
    """The answers of `k` models put together; every one of them answers on the whole graph that it is asked about.

    `shard_of` is the shard of each training node of the graph that the ensemble stands on, -1 for all other nodes;
    `weights` are how much each model counts. Both are filled in by training.
    """

    shard_of: Tensor

    def __init__(
        self, make: Callable[[], GraphModel], *, shards: int = 10, partition: str = "random", aggregation: str = "mean"
    ) -> None:
        for what, name, known in (("partition", partition, PARTITIONS), ("aggregation", aggregation, AGGREGATIONS)):
            if name not in known:
                raise InputError(f"there is no {what} {name!r}, only {', '.join(known)}")
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
    def shards(self) -> int:
        return len(self.models)

    def prepare(self, x: Tensor, edge_index: Tensor) -> tuple[Matrix, object]:
        """As one of its models does: they are all alike."""
        return self._first.prepare(x, edge_index)

    @property
    def preparation(self) -> None:
        return None  # it may depend on the shards

    def propagation(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> object:
        return self._first.propagation(edge_index, num_nodes, dtype)

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        weights = self.weights.clamp_min(0)  # noise may have carried one below
        weights = weights / weights.sum() if weights.sum() > 0 else torch.full_like(weights, 1 / self.shards)
        return combined(self.answers(x, propagation), weights, aggregation=self.aggregation)

    def answers(self, x: Matrix, propagation: object) -> Tensor:
        """`k x n x C` log-probabilities, one model after the other."""
        return torch.stack([model.logits(x, propagation).log_softmax(dim=1) for model in self.models])  # type: ignore[operator]

    @property
    def _first(self) -> GraphModel:
        first = self.models[0]
        assert isinstance(first, GraphModel)
        return first

    def check_shards(self, train_mask: Tensor) -> None:
        """Refuses shards that are not those of these training nodes: for weights out of a file."""
        shard_of = self.shard_of
        if shard_of.dtype != torch.int64 or shard_of.shape != train_mask.shape:
            raise InputError("the shards are not one whole number a node")
        trains = (shard_of >= 0) & (shard_of < self.shards)
        if not torch.equal(trains, train_mask) or (shard_of < -1).any() or (shard_of >= self.shards).any():
            raise InputError("the shards are not those of the training nodes")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        held = state_dict.get(prefix + SHARD_OF)
        if held is not None:
            self.shard_of = torch.empty_like(held)  # as many nodes as the graph has that it was trained on
        super()._load_from_state_dict(state_dict, prefix, *args)
