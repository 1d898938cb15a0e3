"""Trains a stacked model: an encoder on each part of the graph, then the head on all training nodes."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError, Refused
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.graph.growth import numbers_that_stay
from graphforget.graph.reach import Reach
from graphforget.models.built_in import is_built_in
from graphforget.models.composite import inner_inputs, made_by_seed
from graphforget.models.encoders import Encoders, embedding
from graphforget.models.inputs import inputs_for_one_use
from graphforget.models.inspection import Inspection, attribute_state
from graphforget.models.items import items_of, view_of
from graphforget.models.mini_batches import MiniBatches
from graphforget.models.propagation import normalised_adjacency
from graphforget.models.registry import is_affine
from graphforget.models.stacked_model import StackedModel
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.training.distributed_encoders import changed_on_ranks, trained_on_ranks
from graphforget.training.environment import environment
from graphforget.training.fit import blockers_after_training, deterministic, fit_one, train_by_adam
from graphforget.training.losses import Loss
from graphforget.training.recipe import Recipe, derived_seed
from graphforget.training.sampling import train_in_batches
from graphforget.training.trained import Trained
from graphforget.training.training_input import input_of_view, same_training_input

FEWEST = 2  # nodes of a part; with fewer there is no encoder, as without a training node
ENCODER_TOLERANCE = 1e-3  # of a polish, if there is one


def fit_stacked(
    module: StackedModel,
    graph: Graph,
    recipe: Recipe,
    loss: Loss,
    inspection: Inspection,
    *,
    warm: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
    started: float | None = None,
) -> Trained:
    """Trains all encoders from fresh weights, then the head to its optimum. `module` is changed."""
    started = time.perf_counter() if started is None else started
    if warm:
        raise InputError("the training of a stacked model cannot be continued, only its encoders can be trained again")
    if recipe.objective_noise:
        raise InputError("a stacked model takes no noise in its objective")
    if module.mini_batches is not None and recipe.polish_steps:
        raise InputError(f"polish_steps is {recipe.polish_steps}, and a training in mini-batches has no polish")
    module, blockers = with_encoders(
        module, graph, recipe, loss, range(module.num_parts), device=device, progress=progress
    )
    inspection = dataclasses.replace(
        inspection, certification_blockers=tuple(dict.fromkeys([*inspection.certification_blockers, *blockers]))
    )
    return fit_one(module, graph, recipe, loss, inspection, device=device, progress=progress, started=started)


@deterministic()
def with_encoders(
    module: StackedModel,
    graph: Graph,
    recipe: Recipe,
    loss: Loss,
    parts: Iterable[int],
    *,
    device: str = "cpu",
    progress: Progress | None = None,
) -> tuple[StackedModel, tuple[str, ...]]:
    """A copy whose encoders of these parts are trained from fresh weights on `graph`; the others stay as they are.

    Returns the copy, and everything that training found in the encoders that rules out a certificate.
    """
    numbers = list(parts)
    module = copy.deepcopy(module)
    old = module.encoders or Encoders((nn.Module(),) * module.num_parts, (0.0,) * module.num_parts)
    modules, scales = list(old.modules), list(old.scales)
    blockers: list[str] = []
    if isinstance(graph, DistributedGraph):
        made, blockers = trained_on_ranks(module, graph, recipe, loss, numbers) if numbers else ({}, [])
        for number, (encoder, scale) in made.items():
            modules[number], scales[number] = encoder, scale
    else:
        module.keep_members(graph.numbers)
        part_of = module.part_of(graph, seed=recipe.seed) if numbers else torch.zeros(0)
        for done, number in enumerate(numbers):
            if progress is not None:
                progress("encoders", done, len(numbers))
            modules[number], scales[number], found = trained_encoder(
                module, graph.induced(part_of == number), recipe, loss, number, device=device
            )
            blockers += found
    if numbers:
        module.encoders = Encoders(tuple(modules), tuple(scales))
    return module, tuple(dict.fromkeys(blockers))


def trained_encoder(
    module: StackedModel, part: Graph, recipe: Recipe, loss: Loss, number: int, *, device: str
) -> tuple[nn.Module, float, tuple[str, ...]]:
    """The encoder of one part, the mean row norm of its embedding there, and what rules out a certificate.

    It depends on the part, the recipe and the number of the part alone.
    """
    own = encoder_recipe(module, recipe, number)
    fresh = made_by_seed(module.make, own.seed)
    inspection = Inspection(training_reach(module), (), fits_statistics=not module.built_in_modules)
    part = input_of_view(part, inspection.reach, module.encoder_view)
    if not items_of(fresh, part).train_mask.any() or part.num_nodes < FEWEST:
        return fresh.double().eval(), 0.0, ()
    try:
        encoder, blockers = _fitted(fresh, part, own, loss, inspection, module.mini_batches, device=device)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if module.built_in_modules:
            raise
        message = " ".join(str(error).split())
        raise Refused(f"the encoder of a part with {part.num_nodes} nodes cannot be trained: {message}") from error
    return encoder, _mean_row_norm(encoder, part), blockers


def _fitted(
    fresh: nn.Module,
    part: Graph,
    recipe: Recipe,
    loss: Loss,
    inspection: Inspection,
    batches: MiniBatches | None,
    *,
    device: str,
) -> tuple[nn.Module, tuple[str, ...]]:
    """A fresh encoder trained on the whole of its part or in mini-batches, and what rules out a certificate."""
    if batches is None and (recipe.polish_steps or is_affine(fresh)):
        fitted = fit_one(fresh, part, recipe, loss, inspection, device=device)
        return fitted.module, fitted.certification_blockers
    before = None if is_built_in(fresh) else attribute_state(fresh)
    if batches is None:
        inputs = inputs_for_one_use(fresh, part, dtype=torch.float32, device=device)
        unkeyed = train_by_adam(fresh, part, recipe, loss, inputs=inputs, device=device)
    else:
        unkeyed = train_in_batches(fresh, part, recipe, loss, batches, device=device)
    encoder = fresh.double().eval().cpu()
    return encoder, blockers_after_training(inspection, before, encoder, loss, unkeyed=unkeyed)


def encoder_recipe(module: StackedModel, recipe: Recipe, number: int) -> Recipe:
    """How the encoder of a part is trained: as the recipe says, with a seed and an L2 term of its own."""
    return dataclasses.replace(
        recipe,
        seed=derived_seed(recipe.seed, number),
        mu=module.encoder_mu,
        tolerance=ENCODER_TOLERANCE,  # not that of the head, which a fallback may lower
        sigma=0.0,
        floor=None,
    )


def touched_parts(
    trained: Trained, graph: Graph, retained: Graph, request: Request | None, *, device: str
) -> list[int]:
    """The parts whose encoder would be another one if it were trained on the retained graph.

    A part is touched if what its training reads changes, bit for bit. An edge between two parts touches neither. In
    another environment training gives other bits, so all parts count as touched. Without a request, for an update of
    the graph, all parts are compared.
    """
    module, recipe = trained.stacked, trained.recipe
    if recipe.environment != environment(device=device):
        return list(range(module.num_parts))
    if isinstance(retained, DistributedGraph):
        assert request is not None
        named = _named_parts(lambda rows: module.hashed_part_of(rows, seed=recipe.seed), graph, request)
        return changed_on_ranks(retained, recipe, named)  # also if none is named: every rank is checked
    before = module.part_of(graph, seed=recipe.seed)
    after = with_members_that_stay(trained, graph, retained, request).stacked.part_of(retained, seed=recipe.seed)
    reach = training_reach(module)

    def touched(number: int) -> bool:
        parts = graph.induced(before == number), retained.induced(after == number)
        return not same_training_input(*parts, reach, view=module.encoder_view)

    parts = range(module.num_parts) if request is None else _named_parts(lambda rows: before[rows], graph, request)
    return [number for number in parts if touched(number)]


def with_renewed_encoders(
    trained: Trained, graph: Graph, retained: Graph, request: Request | None, *, device: str, progress: Progress
) -> tuple[Trained, list[int]]:
    """The model with the encoders that training on the retained graph gives, and the parts that were trained again.

    The weights of the head stay: they are a start for its optimum on the retained graph.
    """
    touched = touched_parts(trained, graph, retained, request, device=device)
    trained = with_members_that_stay(trained, graph, retained, request)
    recipe = dataclasses.replace(trained.recipe, environment=environment(device=device))
    module, blockers = with_encoders(
        trained.stacked, retained, recipe, trained.loss, touched, device=device, progress=progress
    )
    found = tuple(dict.fromkeys([*trained.certification_blockers, *blockers]))
    return dataclasses.replace(trained, module=module, recipe=recipe, certification_blockers=found), touched


def with_members_that_stay(trained: Trained, graph: Graph, retained: Graph, request: Request | None) -> Trained:
    """The model whose given parts hold no node that left: a new node may have got its number.

    A request brings no new node.
    """
    if request is not None or not (trained.is_stacked and trained.stacked.has_given_parts):
        return trained
    module = copy.deepcopy(trained.stacked)
    module.keep_members(numbers_that_stay(graph, retained))
    return dataclasses.replace(trained, module=module)


def with_replayed_encoders(
    trained: Trained, graph: Graph, *, device: str = "cpu", progress: Progress | None = None
) -> Trained:
    """The model with all encoders trained again on `graph`, by its recipe and seeds."""
    where: Any = {"device": device, "progress": progress}
    fresh, parts = trained.stacked.untrained(), range(trained.stacked.num_parts)
    module, _ = with_encoders(fresh, graph, trained.recipe, trained.loss, parts, **where)
    return dataclasses.replace(trained, module=module)


def _named_parts(part_of: Callable[[Tensor], Tensor], graph: Graph, request: Request) -> list[int]:
    """The parts that hold something that the request names: no other part can change."""
    resolved = request.resolve(graph)
    source, target = part_of(torch.cat([resolved.edges, resolved.weight_edges], dim=1))
    rows = torch.cat([resolved.node_rows, resolved.full_rows, resolved.partial_rows, resolved.label_rows])
    named = torch.cat([part_of(rows), source[source == target]]).unique()
    return named[named >= 0].tolist()


def training_reach(module: StackedModel) -> Reach:
    """How far an encoder's training reads; a module of a user may read the whole of its part."""
    return module.encoder_reach if module.built_in_modules else Reach(None)


def _mean_row_norm(encoder: nn.Module, part: Graph) -> float:
    """The mean norm of the rows of `S E` of the training items; 1 if all of them are 0.

    It is computed on what the encoder's training reads and nothing else, so it changes only when the encoder does.
    """
    x, view = part.x.to(torch.float64), view_of(encoder)
    edges = part.edge_index if view is None else view.messages(part)
    propagation: Any = normalised_adjacency(edges, part.num_nodes, dtype=torch.float64, edge_weight=part.edge_weight)
    rows = propagation @ embedding(encoder, *inner_inputs(encoder, x, edges, part.edge_weight))
    if view is not None:
        rows = view.combined(rows, view.places(part, dtype=torch.float64))
    return float(rows[items_of(encoder, part).train_rows].norm(dim=1).mean()) or 1.0
