"""GraphEraser: the models of those shards are trained anew that have seen what is to go."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from graphforget.certificates.claim import SHARDED, UNTOUCHED, Claim, empirical, exact
from graphforget.certificates.levels import Level
from graphforget.doctor import Inspection
from graphforget.errors import Refused
from graphforget.graph import Graph
from graphforget.models.sharded import Sharded
from graphforget.request import Request
from graphforget.retraining import refuse_untrained
from graphforget.sharding.ensemble import train_shards
from graphforget.sharding.objective import shard_graph
from graphforget.trained import Trained
from graphforget.training_input import same_training_input
from graphforget.unlearning.base import Method, Task
from graphforget.unlearning.outcome import Change


@dataclass(frozen=True)
class GraphEraserOptions:
    """There are none: shards, partition and aggregation were chosen when the ensemble was trained."""


class GraphEraser(Method[GraphEraserOptions]):
    """Trains the touched shards anew from fresh weights on what is retained, and fits the weights of all shards anew.

    Touched is a shard if its training input changes. Its model is trained with the shard's own seed, whatever seed the
    caller gives, so that the ensemble is the one that training on the retained graph would give. `exact` where the
    partition did not depend on what goes: always for `random`, where a node's own number decides; for `blpa`, which
    follows the edges, if no training node and no edge between two goes; for `bekm`, which also sees attributes, if
    besides no attribute of a training node does. Else the partition keeps a trace, and the level is `empirical`.
    """

    options = GraphEraserOptions
    name = "grapheraser"
    title = "GraphEraser, the touched shards trained anew"
    reference = "Chen et al., CCS 2022"
    level = "exact"
    models = "sharded"
    keeps_untouched = False
    takes_shards = True

    def unsupported(self, trained: Trained) -> str | None:
        if not isinstance(trained.module, Sharded):
            return "the model was not trained on shards, as sharded-gcn and its like are"
        return None

    def gradients(self, trained: Trained) -> int:
        return trained.recipe.epochs

    def foreseen(self, task: Task, options: GraphEraserOptions) -> Level:
        refuse_untrained(task.trained)
        return _claim(task, touched_shards(task)).level

    def change(self, task: Task, options: GraphEraserOptions) -> Change:
        trained, module = task.trained, task.trained.module
        assert isinstance(module, Sharded)
        refuse_untrained(trained)
        touched = touched_shards(task)
        claim = _claim(task, touched)
        fitted = train_shards(
            module,
            _retained_shards(task),
            task.retained,
            trained.recipe,
            trained.loss,
            Inspection(trained.reach, trained.obstacles),
            touched,
            device=task.device,
            progress=task.progress,
            started=task.started,
        )
        if claim.level != "exact":
            fitted = dataclasses.replace(fitted, history=(*trained.history, task.forgotten(self.name, fitted.theta)))
        details = {
            "shards": module.shards,
            "retrained": len(touched),
            "partition": module.partition,
            "aggregation": module.aggregation,
            "untouched": not touched,
        }
        return Change(fitted, claim, details)


def touched_shards(task: Task) -> list[int]:
    """The shards whose training input is not the same, bit for bit, without what the request names."""
    module, retained = task.trained.module, _retained_shards(task)
    assert isinstance(module, Sharded)

    def touched(shard: int) -> bool:
        before = shard_graph(task.graph, module.shard_of, shard)
        return not same_training_input(before, shard_graph(task.retained, retained, shard), task.trained.reach)

    return [shard for shard in range(module.shards) if touched(shard)]


def _retained_shards(task: Task) -> Tensor:
    """The shard of each node of the retained graph."""
    module = task.trained.module
    assert isinstance(module, Sharded)
    return module.shard_of[torch.searchsorted(task.graph.numbers, task.retained.numbers)]


def partition_saw(partition: str, graph: Graph, request: Request) -> bool:
    """Whether the way the nodes were split depends on what the request names."""
    what, train = request.resolve(graph), graph.train_mask
    if partition == "random":
        return False
    source, target = graph.edge_index[:, what.edge_mask]
    if train[what.node_rows].any() or (train[source] & train[target]).any():
        return True
    return partition != "blpa" and bool(train[torch.cat([what.full_rows, what.partial_rows])].any())


def _claim(task: Task, touched: list[int]) -> Claim:
    trained, module = task.trained, task.trained.module
    assert isinstance(module, Sharded)
    saw = partition_saw(module.partition, task.graph, task.request)
    if not touched and (saw or trained.history):
        raise Refused(
            "no shard's training has seen what is to go, but the partition keeps a trace of what it was made with; "
            "retrain instead (method 'retrain')"
        )
    if not touched and trained.obstacles:
        raise Refused(
            f"no shard's training has seen what is to go, but data may get past it: {trained.obstacles[0]}; retrain "
            "instead (method 'retrain')"
        )
    if trained.obstacles:
        return empirical(f"nothing is guaranteed, because of the model: {trained.obstacles[0]}")
    if saw:
        return empirical(
            f"every shard that had seen what was removed was trained anew, but the partition ({module.partition}) was "
            "made with it and keeps a trace"
        )
    if trained.history:
        return empirical("the partition was made with what an earlier request removed and keeps a trace of it")
    untouched = not touched and module.aggregation != "learned"
    return exact(UNTOUCHED if untouched else SHARDED, sigma=trained.recipe.sigma)
