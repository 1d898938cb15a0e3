"""GraphEraser: retrains the models of the shards whose training data a request changes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.levels import Level
from graphforget.errors import Refused
from graphforget.graph.graph import Graph
from graphforget.models.inspection import Inspection
from graphforget.training.environment import environment
from graphforget.training.retraining import refuse_untrained
from graphforget.training.sharded_objective import shard_graph
from graphforget.training.shards import train_shards
from graphforget.training.trained import Trained
from graphforget.training.training_input import same_training_input
from graphforget.unlearning.catalogue import GRAPHERASER
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.task import Task


@dataclass(frozen=True)
class GraphEraserOptions:
    """There are none: shards, partition and aggregation were chosen when the ensemble was trained."""


class GraphEraser(Method[GraphEraserOptions], info=GRAPHERASER):
    """Retrains the touched shards from fresh weights on the retained graph, and fits the weights of all shards again.

    A shard is touched if its training input changes. Its model is trained with the seed of the shard, not with the
    caller's. So training on the retained graph would give the same ensemble: `exact` for `random` partitions, where
    a node's own number decides. `blpa` and `bekm` partitions depend on the edges and attributes of the deleted nodes
    and keep a trace of them, so their level is `empirical` for every request.
    """

    options = GraphEraserOptions
    keeps_untouched = False
    refuses_no_op = False
    takes_shards = True

    def unsupported(self, trained: Trained) -> str | None:
        if not trained.is_ensemble:
            return "the model was not trained on shards, as sharded-gcn and the other sharded models are"
        return None

    def gradients(self, trained: Trained) -> int:
        return trained.recipe.epochs

    def best_level(self, trained: Trained, graph: Graph, options: GraphEraserOptions) -> Level:
        return _claim(trained).level

    def expected_level(self, task: Task, options: GraphEraserOptions) -> Level:
        refuse_untrained(task.trained)
        claim = _claim(task.trained)
        _refuse_nothing(claim, touched_shards(task))
        return claim.level

    def change(self, task: Task, options: GraphEraserOptions) -> MethodResult:
        trained, module = task.trained, task.trained.ensemble
        refuse_untrained(trained)
        touched = touched_shards(task)
        here = environment(device=task.device)
        claim = _claim(trained)
        _refuse_nothing(claim, touched)
        fitted = train_shards(
            module,
            _retained_shards(task),
            task.retained,
            dataclasses.replace(trained.recipe, environment=here),
            trained.loss,
            Inspection(trained.reach, trained.certification_blockers),
            touched,
            device=task.device,
            progress=task.progress,
            started=task.started,
        )
        if claim.level != "exact":
            fitted = dataclasses.replace(
                fitted, history=(*trained.history, task.history_entry(self.name, fitted.theta))
            )
        details = {
            "shards": module.shards,
            "retrained": len(touched),
            "partition": module.partition,
            "aggregation": module.aggregation,
            "untouched": not touched,
        }
        return MethodResult(fitted, claim, details=details)


def touched_shards(task: Task) -> list[int]:
    """The shards whose training input changes, bit for bit, when the requested data is removed.

    In another environment training gives other bits, so all shards count as touched.
    """
    module, retained = task.trained.ensemble, _retained_shards(task)
    if task.trained.recipe.environment != environment(device=task.device):
        return list(range(module.shards))

    def touched(shard: int) -> bool:
        before = shard_graph(task.graph, module.shard_of, shard)
        return not same_training_input(before, shard_graph(task.retained, retained, shard), task.trained.reach)

    return [shard for shard in range(module.shards) if touched(shard)]


def _retained_shards(task: Task) -> Tensor:
    """The shard of each node of the retained graph. A node that lost its label is in none, as in a new partition."""
    shard_of = task.trained.ensemble.shard_of[torch.searchsorted(task.graph.numbers, task.retained.numbers)]
    return shard_of.masked_fill(~task.retained.train_mask, -1)


def _refuse_nothing(claim: Claim, touched: list[int]) -> None:
    """Raises `Refused` if no shard would change but the model may keep a trace of the data to delete."""
    if not touched and claim.level != "exact":
        raise Refused(
            f"no shard was trained on the data to delete, but {claim.statement}; retrain instead (method 'retrain')"
        )


def _claim(trained: Trained) -> Claim:
    """It depends on the model alone: the touched shards would reveal something about the request."""
    module = trained.ensemble
    if trained.certification_blockers:
        return Empirical("the model may carry data past its weights")
    if module.partition != "random":
        return Empirical(f"the partition ({module.partition}) was made with the removed data and keeps a trace of it")
    if trained.history:
        return Empirical("an earlier request was answered by a method that guarantees nothing")
    return Exact(sigma=trained.recipe.sigma)
