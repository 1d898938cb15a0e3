"""Copies of built-in models that need torch alone, for serving (`models/plain`)."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphforget.errors import InputError
from graphforget.models import plain
from graphforget.models.boosted import Boosted
from graphforget.models.built_in import is_built_in
from graphforget.models.fixed import FixedPropagation, MeanSGC
from graphforget.models.gat import GAT
from graphforget.models.gcn import GCN
from graphforget.models.gin import GIN
from graphforget.models.items import ItemModel
from graphforget.models.linearised import Linearised
from graphforget.models.plain_items import Described, describe_on_items, encoder_state, under
from graphforget.models.published import PublishedEraser
from graphforget.models.relational import RelationalSIGN
from graphforget.models.sage import SAGE
from graphforget.models.sharded import Sharded
from graphforget.models.stacked import Stacked


def plain_copy(module: nn.Module) -> nn.Module:
    """A module with the same weights and logits that needs torch alone; `models/plain` says how it is called.

    A model over several relations is called as `module(x, edge_index, edge_relations=masks)`.

    Raises:
        InputError: The model is the user's own, or votes by majority.
    """
    settings, state = describe(module)
    copied = plain.build(settings)
    copied.load_state_dict(state)
    return copied.eval()


def describe(module: nn.Module) -> Described:
    """The settings and the state of a plain copy."""
    if type(module) is not Linearised and not is_built_in(module):
        raise InputError(f"a {type(module).__name__} is a module of your own, which is plain already: no copy is made")
    if isinstance(module, ItemModel):
        return describe_on_items(module, describe)
    if isinstance(module, FixedPropagation):
        return _propagation(module), dict(module.state_dict())
    if isinstance(module, RelationalSIGN):
        return _relational(module), dict(module.state_dict())
    if isinstance(module, Stacked):
        return _stacked(module)
    if isinstance(module, Boosted):
        return _boosted(module)
    if isinstance(module, Sharded):
        return _sharded(module)
    if isinstance(module, Linearised):
        settings, state = describe(module.base)
        return {"kind": "Linearised", "base": settings}, under("base", state) | {"delta": module.delta.detach()}
    return _network(module), dict(module.state_dict())


def _propagation(module: FixedPropagation) -> dict[str, Any]:
    _, columns, classes = module.weight.shape
    return {
        "kind": "Propagation",
        "columns": columns,
        "classes": classes,
        "powers": list(module.powers),
        "scales": [float(module.scales[power]) for power in module.powers],
        "scale_rows": module.scale_rows,
        "bias": module.bias is not None,
        "mean": isinstance(module, MeanSGC),
    }


def _relational(module: RelationalSIGN) -> dict[str, Any]:
    return {
        "kind": "RelationalPropagation",
        "classes": module.weight.shape[1],
        "paths": [list(path.relations) for path in module.paths],
        "spans": [[path.first, path.last] for path in module.paths],
        "scale_rows": module.scale_rows,
    }


def _network(module: nn.Module) -> dict[str, Any]:
    if isinstance(module, GCN):
        columns, hidden = module.first.weight.shape
        return _settings(module, "GCN", columns, module.second_bias.numel(), hidden)
    if isinstance(module, GAT):
        heads, hidden = module.first.source.shape
        columns, classes = module.first.linear.weight.shape[0], module.second.source.shape[1]
        return _settings(module, "GAT", columns, classes, hidden) | {"heads": heads}
    if isinstance(module, GIN):
        columns, classes = module.read_input.weight.shape
        return _settings(module, "GIN", columns, classes, module.read_first.weight.shape[0])
    if isinstance(module, SAGE):
        columns, hidden = module.near.weight.shape
        more = {"include_self": module.include_self}
        return _settings(module, "SAGE", columns, module.far.weight.shape[1], hidden) | more
    raise InputError(f"a {type(module).__name__} cannot be exported")


def _settings(module: Any, kind: str, columns: int, classes: int, hidden: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "columns": columns,
        "classes": classes,
        "hidden": hidden,
        "scale_rows": bool(module.scale_rows),
    }


def _stacked(module: Stacked) -> Described:
    if module.encoders is None or not module.built_in_modules:
        raise InputError("a stacked model of your own class cannot be exported, only one of a built-in network")
    parts = [describe(encoder) for encoder in module.encoders.modules]
    state = encoder_state(module, [tensors for _, tensors in parts])
    settings = {
        "kind": "Stacked",
        "fixed": _propagation(module.fixed),
        "encoders": [one for one, _ in parts],
        "width": module.width,
        "classes": module.weight.shape[1],
        "norm": float(module.embedding_norm),
    }
    return settings, state


def _boosted(module: Boosted) -> Described:
    if module.network is None or not module.built_in_modules:
        raise InputError("a boosted model without its network, or of your own class, cannot be exported")
    network, tensors = describe(module.network.module)
    state = under("start", dict(module.start.state_dict())) | under("network", tensors)
    settings = {"kind": "Boosted", "start": _propagation(module.start), "network": network}
    return settings, state | {"gate": module.start.weight.new_tensor([module.network.gate])}


def _sharded(module: Sharded) -> Described:
    if isinstance(module, PublishedEraser):
        raise InputError(f"a {type(module).__name__} repeats a table of the paper and cannot be exported")
    if module.aggregation == "majority":
        raise InputError("an ensemble that votes by majority cannot be exported, only one that takes the mean")
    parts = [describe(one) for one in module.models]
    state = {"weights": module.weights.detach()}
    for number, (_, tensors) in enumerate(parts):
        state |= under(f"models.{number}", tensors)
    return {"kind": "Sharded", "models": [one for one, _ in parts]}, state
