"""The objective of a graph on several ranks, as rank 0 sees it: vectors of parameters go out, sums come back."""

from __future__ import annotations

import json
import math
from functools import cached_property
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.distributed.ranks import joined_replies
from graphforget.errors import InputError
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.linalg.solution import Product
from graphforget.models.defects import UNIT
from graphforget.models.fixed import FixedPropagation
from graphforget.models.parameters import trainable
from graphforget.models.part_embeddings import EncoderSet, stacked_on_ranks
from graphforget.models.propagated import Settings, summed_defects
from graphforget.models.stacked import Stacked
from graphforget.training.loss_sum import LossSum
from graphforget.training.losses import Loss, is_convex, is_recorded
from graphforget.training.objective import Objective


def fixed_features(module: FixedPropagation | Stacked) -> FixedPropagation:
    """The model itself, or the fixed features of a stacked one."""
    fixed: FixedPropagation = module.fixed if isinstance(module, Stacked) else module
    return fixed


def settings_on_ranks(settings: Settings) -> dict[str, Any]:
    """What the ranks propagate, as fields of a call."""
    names = {"powers": list(settings.powers), "scales": list(settings.scales)}
    return names | {"scale_rows": settings.scale_rows}


def model_on_ranks(module: nn.Module, graph: DistributedGraph) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the ranks need of a model beside its weights, as fields and tensors: encoders, if it has any."""
    stacked = stacked_on_ranks(module)
    if stacked is None:
        return {}, {}
    given = EncoderSet.of(stacked)
    return {"encoders": given.fields, "scored": graph.scored_role}, given.tensors


class DistributedLossSum(LossSum):
    """The losses of all training rows. Each rank has those of its own rows."""

    def __init__(self, module: FixedPropagation | Stacked, graph: DistributedGraph, loss: Loss) -> None:
        self.like = torch.empty(0, dtype=torch.float64)
        self.module, self.affine_model, self.loss = module, module, loss
        self.size = sum(parameter.numel() for _, parameter in trainable(module))
        self.graph = graph
        fixed = fixed_features(module)
        settings = fixed.propagated_settings
        more, tensors = model_on_ranks(module, graph)
        self.settings: dict[str, Any] = {
            **settings_on_ranks(settings),
            "bias": fixed.bias is not None,
            "classes": fixed.weight.shape[2],
            "loss": loss.name,
            **more,
        }
        replies = graph.call("prepare", self.settings, tensors)
        squares = [sum(parts) for parts in zip(*(reply.fields["defects"] for reply in replies), strict=True)]
        defects = [1.01 * math.sqrt(one) for one in squares]
        size = math.sqrt(sum(reply.fields["size"] for reply in replies))
        self._error = summed_defects(settings, defects) + 2 * UNIT * 1.01 * size
        self._squared_targets = sum(reply.fields["squared_targets"] for reply in replies)
        norms = graph.call("row norms", {"error": self._error})
        self._norms = tuple(sum(reply.fields["norms"][place] for reply in norms) for place in (0, 1))

    def value(self, theta: Tensor) -> float:
        return self.value_and_gradient(theta)[0]

    def value_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        sums = self._sum("gradient", {"theta": theta.detach()})
        return float(sums[-1]), sums[:-1].clone()

    def gauss_newton(self, theta: Tensor) -> Product:
        self.graph.call("curvature", None, {"theta": theta.detach()}, purpose="product")
        return lambda v: self._sum("product", {"v": v})

    def _sum(self, name: str, tensors: dict[str, Tensor]) -> Tensor:
        replies = self.graph.call(name, None, tensors, purpose=name)
        return joined_replies(replies, self.graph.ranges)

    # -- what bounds on rounding need ------------------------------------------------------------------------------

    @property
    def row_norm_sums(self) -> tuple[float, float]:
        total, squares = self._norms
        return total, squares

    @property
    def jacobian_width(self) -> int:
        return int(self.settings["classes"])

    @property
    def feature_error(self) -> float | None:
        return self._error

    @property
    def longest_sum(self) -> int:
        module: Any = self.module
        summed = self.graph.num_nodes if isinstance(module, Stacked) else self.graph.num_training
        longest: int = module.longest_sum(summed)
        return longest

    @property
    def num_rows(self) -> int:
        return self.graph.num_training

    @cached_property
    def target_norm(self) -> float:
        return 1.01 * math.sqrt(self._squared_targets)


class DistributedObjective(Objective):
    """`F` on the training rows of all ranks. Gradients and curvature products are in float64."""

    def __init__(self, module: FixedPropagation | Stacked, graph: DistributedGraph, *, mu: float, loss: Loss) -> None:
        if not (is_convex(loss) and is_recorded(loss.name)):
            raise InputError(f"the loss is {loss.name!r}, and on several ranks there are built-in losses only")
        self.graph, self.mu, self.m, self.objective_noise_vector = graph, mu, graph.num_training, None
        if not self.m:
            raise InputError("there is no training node")
        self.sums = self.data = DistributedLossSum(module, graph, loss)

    def resumed(self, start: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """The checkpoint of the minimisation that begins there, if there is one. Each step replaces it.

        A point with the number of steps before it is all that the next step depends on, so the result has the bits of
        a minimisation that nothing interrupted.
        """
        place = self.graph.checkpoint
        if place is None:
            return start, {}
        settings = json.dumps([self.sums.settings, self.mu, self.graph.digest], sort_keys=True)
        key = sha256(settings.encode() + start.numpy().tobytes()).hexdigest()
        theta, steps, products = place.read(key, like=start)

        def on_point(point: Tensor, steps: int, products: int) -> None:
            place.write(key, point, steps=steps, products=products)

        return theta, {"on_point": on_point, "steps_before": steps, "products_before": products}

    def with_fresh_features(self) -> Objective:
        """Itself: a row that carries much rounding is computed anew when a request reaches it."""
        return self

    def for_newton(self) -> Objective:
        return self


def objective_on(module: nn.Module, graph: Graph, *, mu: float, loss: Loss, **more: Any) -> Objective:
    """The objective of a model on a graph, wherever its rows lie. `more` is as for `Objective`."""
    if not isinstance(graph, DistributedGraph):
        return Objective(module, graph, mu=mu, loss=loss, **more)
    stacked = stacked_on_ranks(module)
    known = stacked if stacked is not None else module
    if not isinstance(known, FixedPropagation | Stacked) or not known.symmetric_propagation:
        name = type(module).__name__
        raise InputError(f"the model is a {name}, and on several ranks there are sgc, sign and stacked networks")
    if more.get("objective_noise_vector") is not None:
        raise InputError("noise in the objective is not possible on several ranks")
    return DistributedObjective(known, graph, mu=mu, loss=loss)
