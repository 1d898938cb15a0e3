"""GraphEraser: the models of those shards are trained anew that have seen what is to go."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from graphforget.certificates.claim import SHARDED, UNTOUCHED, Claim, empirical, exact
from graphforget.certificates.levels import Level
from graphforget.doctor import Inspection
from graphforget.errors import Refused
from graphforget.footprint import footprint
from graphforget.graph import Graph
from graphforget.models.sharded import Sharded
from graphforget.request import Request
from graphforget.sharding.ensemble import train_shards
from graphforget.sharding.objective import shard_nodes
from graphforget.trained import Trained
from graphforget.unlearning.base import Method, Task
from graphforget.unlearning.outcome import Change


@dataclass(frozen=True)
class GraphEraserOptions:
    """There are none: shards, partition and aggregation were chosen when the ensemble was trained."""


class GraphEraser(Method[GraphEraserOptions]):
    """Trains the touched shards anew from fresh weights on what is retained, and fits the weights of all shards anew.

    Touched is a shard if a training loss in it depends on what goes: followed through the model's layers on the
    shard's own part of the graph. `exact` where the partition did not depend on what goes: always for `random`, where a
    node's own number decides; for `blpa`, which follows the edges, if no training node and no edge between two goes;
    for `bekm`, which also sees attributes, if besides no attribute of a training node does. Else the partition keeps a
    trace, and the level is `empirical`.
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
        return _claim(task, touched_shards(task)).level

    def change(self, task: Task, options: GraphEraserOptions) -> Change:
        trained, module = task.trained, task.trained.module
        assert isinstance(module, Sharded)
        touched = touched_shards(task)
        claim = _claim(task, touched)
        stays = torch.searchsorted(task.graph.numbers, task.retained.numbers)
        recipe = trained.recipe
        seed = recipe.seed + 1 if task.seed is None else task.seed
        fitted = train_shards(
            module,
            module.shard_of[stays],
            task.retained,
            dataclasses.replace(recipe, seed=seed) if touched else recipe,
            trained.loss,
            Inspection(trained.reach, trained.obstacles),
            touched,
            device=task.device,
            progress=task.progress,
            started=task.started,
        )
        if claim.level != "exact":
            fitted = dataclasses.replace(fitted, history=(*trained.history, task.forgotten(self.name, fitted.theta)))
        _refuse_kept(trained, fitted, touched)
        details = {
            "shards": module.shards,
            "retrained": len(touched),
            "partition": module.partition,
            "aggregation": module.aggregation,
            "untouched": not touched,
        }
        return Change(fitted, claim, details)


def touched_shards(task: Task) -> list[int]:
    """The shards in which a training loss depends on what the request names."""
    graph, module = task.graph, task.trained.module
    assert isinstance(module, Sharded)
    inside = (shard_nodes(graph, module.shard_of, shard) for shard in range(module.shards))
    found = (footprint(graph, task.request, task.trained.reach, inside=nodes) for nodes in inside)
    return [shard for shard, touched in enumerate(found) if not touched.empty]


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


def _refuse_kept(before: Trained, after: Trained, touched: list[int]) -> None:
    """A shard that was to be trained anew and has the old weights was not."""
    assert isinstance(before.module, Sharded)
    assert isinstance(after.module, Sharded)
    for shard in touched:
        old, new = before.module.models[shard].state_dict(), after.module.models[shard].state_dict()
        if all(torch.equal(value, new[name]) for name, value in old.items()):
            raise Refused(f"shard {shard} was to be trained anew and has its old weights, so nothing was forgotten")
