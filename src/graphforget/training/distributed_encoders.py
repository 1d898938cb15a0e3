"""The encoders of a stacked model on several ranks, as rank 0 sees them: each rank trains some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.models.composite import load_inner_state, made_by_seed
from graphforget.models.part_embeddings import stacked_on_ranks
from graphforget.models.stacked_model import StackedModel
from graphforget.training.losses import Loss, is_recorded
from graphforget.training.recipe import Recipe

PURPOSE = "encoders"


def trained_on_ranks(
    module: StackedModel, graph: DistributedGraph, recipe: Recipe, loss: Loss, parts: Sequence[int]
) -> tuple[dict[int, tuple[nn.Module, float]], list[str]]:
    """The encoders of these parts with their scales, trained from fresh weights, and what rules out a certificate."""
    stacked_on_ranks(module)
    if not is_recorded(loss.name):
        raise InputError(f"the loss is {loss.name!r}, and on several ranks there are built-in losses only")
    tensors: dict[str, Tensor] = {}
    scales: dict[int, float] = {}
    blockers: list[str] = []
    for reply in graph.call("train encoders", _asked(graph, recipe, parts), purpose=PURPOSE):
        tensors |= reply.tensors
        scales |= {int(number): float(scale) for number, scale in reply.fields["scales"]}
        blockers += reply.fields["blockers"]
    made = {}
    for number in parts:
        encoder = load_inner_state(made_by_seed(module.make, recipe.seed), tensors, f"encoders.{number}.")
        made[number] = encoder, scales[number]
    return made, blockers


def changed_on_ranks(graph: DistributedGraph, recipe: Recipe, parts: Sequence[int]) -> list[int]:
    """Those of these parts whose training input is not the one that their encoder was trained on."""
    replies = graph.call("changed encoders", _asked(graph, recipe, parts), purpose=PURPOSE)
    return sorted(number for reply in replies for number in reply.fields["changed"])


def _asked(graph: DistributedGraph, recipe: Recipe, parts: Sequence[int]) -> dict[str, Any]:
    facts = graph.facts
    fields = {"parts": list(parts), "classes": facts.num_classes, "sparse": facts.sparse_attributes}
    return fields | {"recipe": dataclasses.asdict(recipe)}
