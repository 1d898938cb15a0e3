"""A doctor for models: how far messages travel, and what would spoil a certificate."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.models.reach import Reach

# PyG layers whose edge weights do not depend on the degree of the source. All others count as degree-normalised.
PLAIN_LAYERS = frozenset({"GATConv", "GATv2Conv", "GINConv", "GINEConv", "SAGEConv", "GraphConv", "TransformerConv"})


@dataclass(frozen=True)
class Inspection:
    """What was found: the reach, and each thing that rules out a certificate, in words."""

    reach: Reach
    obstacles: tuple[str, ...]


def inspect(module: nn.Module, *, columns: int, declared: Reach | None = None) -> Inspection:
    """Looks at `module` and runs it on a tiny random graph of `columns` attributes.

    The reach is `declared`, or the module's own `reach`, or counted: one hop for every propagation of PyG's
    message-passing layers. A module that passes messages by other means has an unknown reach, which means that every
    node counts as touched; declare it to do better. A declaration that the tiny graph refutes is an `InputError`.
    """
    _refuse_cached_graphs(module)
    own = getattr(module, "reach", None)
    module = copy.deepcopy(module).eval().to(device="cpu", dtype=torch.float32)
    obstacles = [*_data_carriers(module)]
    try:
        reach = declared or own or _counted_reach(module, columns)
        far = _probe(module, columns, reach)
    except Exception as error:
        raise InputError(f"the model does not run as model(x, edge_index) on {columns} columns: {error}") from error
    if far and (declared or own):
        raise InputError(f"the model's declared reach ({reach}) is too small: {far}")
    if far:
        obstacles.append(far)
        reach = Reach(None)
    return Inspection(reach, tuple(obstacles))


def _refuse_cached_graphs(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if getattr(part, "cached", False) is True:
            raise InputError(
                f"layer '{name}' ({type(part).__name__}) is built with cached=True and would go on using the old graph "
                "after a deletion, build it with cached=False"
            )


def _data_carriers(module: nn.Module) -> list[str]:
    found = []
    norms: list[str] = []
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            norms.append(name)
            found.append(f"layer '{name}' ({type(part).__name__}) carries statistics of the training data")
    for name, buffer in module.named_buffers():
        inside_norm = any(name.startswith(f"{norm}." if norm else "") for norm in norms)
        if buffer.dtype.is_floating_point and not inside_norm and not _is_public(module, name):
            found.append(f"buffer '{name}' may carry statistics of the training data")
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            found.append(f"parameter '{name}' is frozen and keeps what it was trained on")
    return found


def _is_public(module: nn.Module, buffer: str) -> bool:
    """The origin of a linearised model is drawn from a public seed."""
    return buffer in getattr(module, "public_buffers", ())


def _counted_reach(module: nn.Module, columns: int) -> Reach:
    from torch_geometric.nn import MessagePassing

    layers = [part for part in module.modules() if isinstance(part, MessagePassing)]
    called: list[str] = []
    for layer in layers:
        layer.register_propagate_forward_pre_hook(lambda part, _: called.append(type(part).__name__))
    x, edge_index = _path_graph(4, columns)
    with torch.no_grad():
        module(x, edge_index)
    if not called:
        return Reach(None)
    return Reach(len(called), degree_normalised=not PLAIN_LAYERS.issuperset(called))


def _probe(module: nn.Module, columns: int, reach: Reach) -> str:
    """Changes one end of a path and looks at the other; in words what should not have happened, or nothing."""
    hops = 4 if reach.hops is None else reach.hops
    x, edge_index = _path_graph(2 * hops + 6, columns)
    with torch.no_grad():
        before = module(x, edge_index)
        if not torch.equal(before, module(x, edge_index)):
            return "the same input gives different outputs in eval mode"
        if reach.hops is None:
            return ""
        other = x.clone()
        other[0] = torch.randn(columns, generator=torch.Generator().manual_seed(1))
        after_attribute = module(other, edge_index)
        after_edge = module(x, edge_index[:, 2:])  # without the edge (0, 1)
    message = f"a change reaches nodes more than {hops} hops away (global pooling, normalisation over nodes ...)"
    if not _equal(before[hops + 1 :], after_attribute[hops + 1 :]):
        return message
    from_edge = hops + 2 if reach.degree_normalised else hops + 1
    return "" if _equal(before[from_edge:], after_edge[from_edge:]) else message


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-6, atol=1e-7, equal_nan=True)


def _path_graph(nodes: int, columns: int) -> tuple[Tensor, Tensor]:
    """Nodes 0 - 1 - 2 ..., both directions; the first two columns of edge_index are the edge (0, 1)."""
    x = torch.randn(nodes, columns, generator=torch.Generator().manual_seed(0))
    forward = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    return x, torch.stack([forward, forward.flip(0)], dim=2).reshape(2, -1)
