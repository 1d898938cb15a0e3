"""The module that a training starts with: a built-in model by its name, or a model of the user."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn

from graphforget.errors import InputError
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.models.built_in import as_composite, as_stacked
from graphforget.models.constructions import Construction
from graphforget.models.items import LINK, NODE, ItemModel, items_of
from graphforget.models.mini_batches import BATCH_OPTIONS
from graphforget.models.parameters import trainable
from graphforget.models.registry import build, entry_of
from graphforget.models.relational import RELATION_OPTIONS, RelationalSIGN
from graphforget.models.stacked import Stacked, default_attribute_scale
from graphforget.models.tasks import model_name

Model = str | nn.Module | Construction


def named_model(graph: Graph, model: Model | None, task: str | None) -> Model:
    """The model by its name in the registry, or a model of the user as it is. Raises `InputError` for a wrong task."""
    if isinstance(model, str | None):
        return model_name(graph, model, task)
    if task not in (None, NODE):
        raise InputError(f"a module of your own answers for nodes, and the task is {task!r}: give the name of a model")
    return model


def untrained_module(
    graph: Graph, model: Model, seed: int, options: dict[str, Any]
) -> tuple[str, nn.Module, dict[str, Any]]:
    """The name of the model, the untrained module, and its options for the recipe, which name no node."""
    if isinstance(model, str):
        return model.lower(), *_built(graph, model, seed, options)
    if not isinstance(model, nn.Module | Construction):
        word = "class" if isinstance(model, type) else type(model).__name__
        hint = f": {model.__name__}(...) or gf.stacked({model.__name__})" if isinstance(model, type) else ""
        raise InputError(f"the model is a {word}, a name or a torch.nn.Module is needed{hint}")
    if options:
        raise InputError(f"option {next(iter(options))!r} belongs to built-in models, set it on your module instead")
    if isinstance(model, Construction):
        model = model.resolved(graph)
        module = model.on(graph)
        if isinstance(module, Stacked):
            module.choose_mini_batches(graph, seed=seed)
        return model.name, module, module.settings
    if isinstance(model, ItemModel):
        raise InputError("the module answers for links or graphs, give the name of a model instead")
    if as_composite(model) is not None:
        raise InputError("the module is a stacked or boosted model, give its name, gf.stacked(...) or gf.boosted(...)")
    if not trainable(model):
        raise InputError("the model has no trainable parameter")
    return f"{type(model).__module__}.{type(model).__qualname__}", copy.deepcopy(model), {}


def _built(graph: Graph, name: str, seed: int, options: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """A built-in model, and its options. Given parts are options by their names; their nodes go into the model."""
    parts = options.get("parts")
    if isinstance(parts, list | tuple):
        raise InputError(f"the parts are {parts!r}, a number or the nodes of each named part is needed")
    if isinstance(parts, Mapping):
        options = options | {"parts": list(map(str, parts))}
    shape: Any = {"columns": graph.num_columns, "classes": graph.num_classes, "seed": seed}
    if name.lower().startswith(f"{LINK}-"):  # it stays when the model is trained with another seed
        options = {"split_seed": seed} | options
    if entry_of(name).build is RelationalSIGN:
        options = _with_relations(graph, options)
    module = build(name, **shape, **options)
    if type(module) is Stacked and "attribute_scale" not in options:
        options = options | {"attribute_scale": default_attribute_scale(items_of(module, graph).num_training)}
        module = build(name, **shape, **options)
    stacked, composite = as_stacked(module), as_composite(module)
    if stacked is not None and isinstance(parts, Mapping):
        stacked.set_members(graph, {str(part): nodes for part, nodes in parts.items()})
    if type(module) is Stacked:
        if not isinstance(graph, DistributedGraph):  # ranks train on whole parts
            module.choose_mini_batches(graph, seed=seed)
        options = {name: value for name, value in options.items() if name not in BATCH_OPTIONS}  # now in its settings
    return module, options if composite is None else composite.settings | options


def _with_relations(graph: Graph, options: dict[str, Any]) -> dict[str, Any]:
    """The options with the relations and types of the graph, which stay when data is deleted."""
    taken = [name for name in RELATION_OPTIONS if name in options]
    if taken:
        raise InputError(f"option {taken[0]!r} follows from the graph, do not give it")
    return RelationalSIGN.options_for(graph) | options
