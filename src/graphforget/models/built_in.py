"""Which modules are unaltered models of this package, decided by their exact type."""

from __future__ import annotations

import dataclasses
import functools

from torch import nn

from graphforget.graph.links import LinkSettings
from graphforget.graph.reach import Reach
from graphforget.models.base import Linear
from graphforget.models.boosted import Boosted
from graphforget.models.captured import first_captured_value
from graphforget.models.composite import CompositeModel
from graphforget.models.fixed import SGC, SIGN, FixedPropagation, MeanSGC
from graphforget.models.gat import GAT, GATLayer
from graphforget.models.gcn import GCN
from graphforget.models.gin import GIN, GINLayer
from graphforget.models.graph_items import GraphView
from graphforget.models.graph_models import GraphSIGN, GraphWL
from graphforget.models.item_networks import ItemNetwork
from graphforget.models.items import view_of
from graphforget.models.link import LinkSGC, LinkSIGN
from graphforget.models.link_view import LinkView
from graphforget.models.object_attributes import MODULE_INTERNALS
from graphforget.models.published import PublishedEraser, PublishedGCN
from graphforget.models.relational import RelationalSIGN
from graphforget.models.sage import SAGE
from graphforget.models.sharded import SHARD_OF, Sharded
from graphforget.models.stacked import Stacked
from graphforget.models.stacked_items import StackedOnItems
from graphforget.models.stacked_model import MEMBERS, StackedModel

MOST_PARTS, LONGEST_INT, LONGEST_WORD = 8, 32, 32  # entries, bits, characters that a glance accepts
LARGEST_ROUND = 16.0
REACH_FIELDS = {field.name for field in dataclasses.fields(Reach)}
ENSEMBLES = frozenset({Sharded, PublishedEraser})
STACKED = frozenset({Stacked, StackedOnItems})
COMPOSITES = STACKED | {Boosted}
NETWORKS = frozenset({GCN, GAT, GIN, SAGE, PublishedGCN, ItemNetwork})
LINEAR = frozenset({FixedPropagation, SGC, SIGN, MeanSGC, RelationalSIGN, LinkSGC, LinkSIGN, GraphWL, GraphSIGN})
MODEL_TYPES = LINEAR | NETWORKS | ENSEMBLES | COMPOSITES
LAYER_TYPES = frozenset({Linear, GATLayer, GINLayer, nn.ModuleList})
BUFFERS: dict[type, tuple[str, ...]] = {**dict.fromkeys(STACKED, MEMBERS), **dict.fromkeys(ENSEMBLES, (SHARD_OF,))}
# Attributes that hold modules of any type, which are searched by themselves.
INNER_MODULES: dict[type, tuple[str, ...]] = dict.fromkeys(STACKED, ("make", "encoders"))
INNER_MODULES[Boosted] = ("make", "network")


@functools.cache
def _model_types() -> frozenset[type]:
    from graphforget.models.linearised import Linearised  # imported late: that module imports this one

    return MODEL_TYPES | {Linearised}


def has_built_in_type(module: nn.Module) -> bool:
    """Whether its class is one of this package's models; a subclass is not, whatever its `__module__` says."""
    return type(module) in _model_types()


def as_composite(module: object) -> CompositeModel | None:
    """The module as a model of which more is released than its weights, by its exact type; None for any other."""
    return module if isinstance(module, CompositeModel) and type(module) in COMPOSITES else None


def as_stacked(module: nn.Module) -> StackedModel | None:
    """The module as a stacked model, by its exact type; None for any other."""
    return module if isinstance(module, StackedModel) and type(module) in STACKED else None


def is_built_in(module: nn.Module) -> bool:
    """Whether it is an unaltered model of this package, so that everything known of its class holds for it."""
    return has_built_in_type(module) and not alteration(module)


def _is_plain_view(view: object) -> bool:
    """Whether it is a view of this package, by its exact type, with settings and nothing else in it."""
    if type(view) not in (LinkView, GraphView) or vars(view).keys() != {each.name for each in dataclasses.fields(view)}:  # type: ignore[arg-type]
        return False
    settings = getattr(view, "settings", None)
    if settings is None:
        return True
    return type(settings) is LinkSettings and vars(settings).keys() == {e.name for e in dataclasses.fields(settings)}


def _is_plain_setting(value: object) -> bool:
    """Whether a glance shows that it is too small to hold data: a few short numbers or words, by their exact types."""
    if type(value) is tuple or type(value) is dict:
        parts: tuple[object, ...] = (*value, *value.values()) if isinstance(value, dict) else tuple(value)
        return len(parts) <= MOST_PARTS and all(_is_plain_scalar(part) and _is_round(part) for part in parts)
    if type(value) is Reach:
        return vars(value).keys() == REACH_FIELDS and all(map(_is_plain_scalar, vars(value).values()))
    return _is_plain_scalar(value)


def _is_plain_scalar(value: object) -> bool:
    if type(value) is int:
        return value.bit_length() <= LONGEST_INT
    return value is None or type(value) in (bool, float) or (type(value) is str and len(value) <= LONGEST_WORD)


def _is_round(value: object) -> bool:
    """Whether it is no float with many digits, of which a list could hold data."""
    return not isinstance(value, float) or (abs(value) <= LARGEST_ROUND and (value * LARGEST_ROUND).is_integer())


def alteration(module: nn.Module) -> str:
    """How a model of this package was altered after its construction, in words; empty if it was not."""
    view = view_of(module)
    if view is not None and not _is_plain_view(view):
        return "how the model sees a graph was replaced"
    known = _model_types() | LAYER_TYPES
    registered = {id(item): item for item in (*module.parameters(), *module.buffers(), *module.modules())}
    for name, part in module.named_modules():
        where = f"layer '{name}' ({type(part).__name__})" if name else f"the model ({type(part).__name__})"
        if type(part) not in known:
            return f"{where} is not part of this package"
        if any(vars(part)[hooks] for hooks in MODULE_INTERNALS if hooks.endswith("_hooks")):
            return f"{where} has hooks, which cannot be looked into"
        for attribute, value in vars(part).items():
            if attribute in MODULE_INTERNALS:
                continue
            if hasattr(type(part), attribute):
                return f"attribute '{attribute}' of {where} was replaced"
            if attribute in INNER_MODULES.get(type(part), ()):
                continue
            if type(part) not in MODEL_TYPES | LAYER_TYPES and attribute == "_base":  # of a linearised model
                continue
            if _is_plain_setting(value):
                continue
            finding = first_captured_value(value, registered=registered)
            if finding:
                return f"attribute '{attribute}' of {where} holds {finding.kind}, which may carry data"
        extra = [buffer for buffer in part._buffers if buffer not in BUFFERS.get(type(part), ())]
        if extra:
            return f"buffer '{extra[0]}' was added to {where}"
        frozen = [key for key, item in part._parameters.items() if item is not None and not item.requires_grad]
        if frozen:
            return f"parameter '{frozen[0]}' of {where} is frozen and keeps what it was trained on"
    return ""
