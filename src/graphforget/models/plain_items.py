"""Copies of models for links and graphs that need torch alone (`models/plain/items.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.models.graph_items import GraphView
from graphforget.models.graph_models import GraphSIGN, GraphWL
from graphforget.models.item_networks import ItemNetwork
from graphforget.models.items import ItemModel, ItemView
from graphforget.models.link import LinkFixed
from graphforget.models.link_view import LinkView
from graphforget.models.stacked_items import StackedOnItems
from graphforget.models.stacked_model import StackedModel

Described = tuple[dict[str, Any], dict[str, Tensor]]  # settings for `plain.build`, and the state


def describe_on_items(module: ItemModel, describe: Callable[[nn.Module], Described]) -> Described:
    """The settings and the state of a plain copy. `describe` gives those of networks on nodes."""
    if isinstance(module, StackedOnItems):
        return _stacked(module, describe)
    if isinstance(module, ItemNetwork):
        return _network(module, describe)
    state = dict(module.state_dict())
    if isinstance(module, LinkFixed):
        settings = {"kind": "LinkFeatures", "powers": list(module.powers), "scale_rows": module.scale_rows}
        return settings | {"outputs": module.weight.shape[1], "split": _split(module.view)}, state
    if isinstance(module, GraphWL):
        return {"kind": "Colours", "classes": module.weight.shape[1]} | module.settings, state
    if isinstance(module, GraphSIGN):
        settings = {"kind": "Pooled", "columns": module.columns, "hops": module.hops}
        return settings | {"classes": module.weight.shape[1]}, state
    raise InputError(f"a {type(module).__name__} cannot be exported")


def _network(module: ItemNetwork, describe: Callable[[nn.Module], Described]) -> Described:
    inner, tensors = describe(module.inner)
    state = under("inner", tensors)
    if isinstance(module.view, LinkView):
        return {"kind": "LinkNetwork", "inner": inner, "split": _split(module.view)}, state
    assert module.head is not None
    width, classes = module.head.weight.shape
    settings = {"kind": "GraphNetwork", "inner": inner, "width": width, "classes": classes}
    return settings | {"pooling": _pooling(module.view)}, state | under("head", dict(module.head.state_dict()))


def _stacked(module: StackedOnItems, describe: Callable[[nn.Module], Described]) -> Described:
    if module.encoders is None or not module.built_in_modules:
        raise InputError("a stacked model of your own class cannot be exported, only one of a built-in network")
    parts = [describe(encoder.inner) for encoder in module.encoders.modules if isinstance(encoder, ItemNetwork)]
    fixed, _ = describe_on_items(module.fixed, describe)
    settings = {
        "kind": "StackedOnItems",
        "fixed": fixed,
        "encoders": [one for one, _ in parts],
        "width": module.width,
        "outputs": module.weight.shape[1],
        "norm": float(module.embedding_norm),
        "pooling": _pooling(module.view),
    }
    return settings, encoder_state(module, [tensors for _, tensors in parts])


def encoder_state(module: StackedModel, encoders: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The state of a stacked model: that of its fixed part and of its encoders, and the head."""
    assert module.encoders is not None
    state = under("fixed", dict(module.fixed.state_dict())) | {"weight": module.weight.detach()}
    for number, tensors in enumerate(encoders):
        state |= under(f"encoders.{number}", tensors)
    return state | {"scales": module.weight.new_tensor(module.encoders.scales)}


def _split(view: ItemView) -> dict[str, Any]:
    """What says which edges a link is predicted from."""
    assert isinstance(view, LinkView)
    given = view.settings
    return {"seed": given.split_seed, "held_out": given.test + given.validation, "messages": given.messages}


def _pooling(view: ItemView) -> str | None:
    return view.pooling if isinstance(view, GraphView) else None


def under(name: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state of a module that is the attribute `name` of another one."""
    return {f"{name}.{key}": value for key, value in state.items()}
