"""Inspects a module before training: how far messages travel, and what rules out a certificate."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.reach import Reach
from graphforget.models.built_in import alteration, as_composite, has_built_in_type, is_built_in
from graphforget.models.captured import first_captured_value, reachable_digest
from graphforget.models.object_attributes import attributes
from graphforget.models.trials import fresh_copy, logits, small_graph, try_on_small_graphs, weightings

# PyG layers that send along the edges, with weights that depend on the degree of the sender or not.
NORMALISED_LAYERS = ("GCNConv", "SGConv", "APPNP")
MAX_FLOAT_ATTRIBUTES = 32  # of one module
PLAIN_LAYERS = ("GATConv", "GATv2Conv", "GINConv", "GINEConv", "SAGEConv", "GraphConv", "TransformerConv")


@dataclass(frozen=True)
class Inspection:
    """The result of `inspect`: the reach, and everything that rules out a certificate, in words."""

    reach: Reach
    certification_blockers: tuple[str, ...]
    fits_statistics: bool = False  # normalisation over nodes is fitted with the weights, on the same data

    @property
    def obstacles(self) -> tuple[str, ...]:
        """`certification_blockers`, by the name that files have for them."""
        return self.certification_blockers


def inspect(
    module: nn.Module, *, columns: int, classes: int | None = None, declared: Reach | None = None
) -> Inspection:
    """Inspects a module and tries it on small graphs with `columns` attributes.

    The reach is `declared`, or the module's own `reach`, or counted: one hop for every propagation of PyG's
    message-passing layers. A module that passes messages by other means has an unknown reach, and then every node
    counts as touched; declare the reach to avoid this. Then nodes, edges and attributes are removed from small graphs,
    under random weights. Outputs that change outside the footprint refute the reach. Passing these trials is evidence,
    not proof: a module can be built to pass them.

    Args:
        module: A module that is called as `module(x, edge_index)`; it is not changed.
        columns: The number of attributes of a node.
        classes: The number of classes, if the shape of the output is to be checked.
        declared: The reach, if it is known.

    Returns:
        The reach, and everything in the module that rules out a certificate.

    Raises:
        InputError: It is no module, does not run, caches graphs, or refutes its declared reach.
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"the module is a {type(module).__name__}, a torch.nn.Module is needed")
    if is_built_in(module):
        if declared is not None:
            raise InputError(f"the reach of {type(module).__name__} is known, declare one only for your own modules")
        return Inspection(module.reach, tuple(data_carriers(module)))  # type: ignore[arg-type]
    certification_blockers = list(data_carriers(module))
    reach, complaint, _ = _tried_reach(module, columns, classes, declared)
    if complaint:
        certification_blockers.append(complaint)
        reach = Reach(None)
    return Inspection(reach, tuple(certification_blockers))


def inspect_encoder(module: nn.Module, *, columns: int, classes: int) -> Inspection:
    """Inspects a fresh module that is to be an encoder of a stacked model.

    It is trained on its own part alone and then applied to the whole graph, so it may have any reach and may normalise
    over nodes. Its outputs must follow from its inputs, and it must carry no data from elsewhere.

    Raises:
        InputError: The module does not run, or caches graphs.
    """
    if is_built_in(module):
        return Inspection(module.reach, tuple(data_carriers(module)))  # type: ignore[arg-type]
    blockers = list(data_carriers(module, fits_statistics=True))
    trials = [_tried_reach(module, columns, classes, None)]
    if callable(getattr(module, "embed", None)):
        trials.append(_tried_reach(_Embedding(module), columns, None, None))
    blockers += [complaint for _, complaint, refutes in trials if complaint and not refutes]
    hops = [None if complaint else reach.hops for reach, complaint, _ in trials]
    if None in hops:
        return Inspection(Reach(None), tuple(blockers), fits_statistics=True)
    farthest = max((reach for reach, _, _ in trials), key=lambda reach: (reach.hops or 0, reach.degree_normalised))
    return Inspection(farthest, tuple(blockers), fits_statistics=True)


class _Embedding(nn.Module):
    """A module's `embed` as its output."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.module.embed(x, edge_index)  # type: ignore[operator]
        return out


def _tried_reach(
    module: nn.Module, columns: int, classes: int | None, declared: Reach | None
) -> tuple[Reach, str, bool]:
    """The reach, the first failed trial in words (empty if none failed), and whether it refutes the reach."""
    _refuse_cached_graphs(module)
    own = getattr(module, "reach", None)
    if not isinstance(own, Reach | None):
        raise InputError(f"the module's 'reach' is {own!r}, a graphforget.Reach is needed")
    try:
        reach = declared or own or _counted_reach(fresh_copy(module), columns)
        with torch.random.fork_rng(devices=[]):
            complaint, refutes = try_on_small_graphs(module, columns, classes, reach)
            if refutes and not reach.both_ways:
                reach = dataclasses.replace(reach, both_ways=True)
                complaint, refutes = try_on_small_graphs(module, columns, classes, reach)
    except InputError:
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise InputError(f"the model does not run as model(x, edge_index) on {columns} columns: {message}") from error
    if complaint and refutes and (declared or own):
        raise InputError(f"the model's declared reach ({reach}) is too small: {complaint}")
    return reach, complaint, refutes


# -- inspection ------------------------------------------------------------------------------------------------------


def _refuse_cached_graphs(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if getattr(part, "cached", False) is True:
            raise InputError(
                f"layer '{name}' ({type(part).__name__}) is built with cached=True and would go on using the old graph "
                "after a deletion, build it with cached=False"
            )


def data_carriers(module: nn.Module, *, fits_statistics: bool = False) -> Iterator[str]:
    """Everything in the module, except its trainable parameters, that may hold training data or results of training.

    The search follows attributes, class attributes and methods through containers, objects, closures and globals
    (`captured.py`). An unaltered model of this package holds none; for a linearised model its base is searched, for a
    stacked or boosted model a fresh module of the user. With `fits_statistics`, the statistics of BatchNorm count as
    parameters.
    """
    if has_built_in_type(module):
        altered = alteration(module)
        if not altered:
            base, composite = getattr(module, "base", None), as_composite(module)
            yield from data_carriers(base) if isinstance(base, nn.Module) else ()
            yield from composite.findings if composite is not None else ()
            return
        yield altered
    registered = _registered(module)
    for name, part in module.named_modules():
        where = _place(name, part)
        if isinstance(part, nn.modules.batchnorm._NormBase) and not (fits_statistics and _has_plain_statistics(part)):
            yield f"{where} carries statistics of the training data"
            continue
        if isinstance(part, torch.jit.ScriptModule):
            yield f"{where} is compiled and cannot be looked into"
            continue
        for buffer in part._buffers:
            fitted = fits_statistics and isinstance(part, nn.modules.batchnorm._NormBase)
            if not fitted and not (buffer == "eps" and _has_constant_eps(part)):
                yield f"buffer '{f'{name}.{buffer}'.lstrip('.')}' may carry statistics of the training data"
        for attribute, value in attributes(part):
            finding = first_captured_value(value, registered=registered)
            if finding:
                place = f" in '{attribute}{finding.path}'" if finding.path else ""
                yield f"attribute '{attribute}' of {where} holds {finding.kind}{place}, which may carry data"
        if sum(isinstance(value, float) for value in vars(part).values()) > MAX_FLOAT_ATTRIBUTES:
            yield f"{where} holds more than {MAX_FLOAT_ATTRIBUTES} numbers as attributes"
        if any(hooks for attribute, hooks in vars(part).items() if _runs_in_forward(attribute)):
            yield f"{where} has hooks, which cannot be looked into"
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            yield f"parameter '{name}' is frozen and keeps what it was trained on"


def attribute_state(module: nn.Module) -> dict[tuple[str, str], str]:
    """A digest of every attribute and its reachable objects, by layer and name, to be compared after training."""
    registered = _registered(module)
    return {
        (_place(name, part), attribute): reachable_digest(value, registered=registered)
        for name, part in module.named_modules()
        for attribute, value in attributes(part)
    }


def changed_attributes(before: dict[tuple[str, str], str], module: nn.Module) -> Iterator[str]:
    """Attributes that training changed or added: a running mean in a plain number or a list carries data too."""
    after = attribute_state(module)
    for where, attribute in dict.fromkeys([*before, *after]):
        if before.get((where, attribute)) != after.get((where, attribute)):
            yield f"attribute '{attribute}' of {where} changed in training and may carry data"


def _registered(module: nn.Module) -> dict[int, object]:
    return {id(item): item for item in (*module.parameters(), *module.buffers(), *module.modules())}


def _place(name: str, part: nn.Module) -> str:
    return f"layer '{name}' ({type(part).__name__})" if name else f"the module ({type(part).__name__})"


def _has_plain_statistics(part: nn.Module) -> bool:
    """Whether it is torch's own normalisation layer, with no other buffers than torch gives it."""
    own = ("running_mean", "running_var", "num_batches_tracked")
    return type(part).__module__.startswith("torch.nn.") and set(part._buffers) <= set(own)


def _has_constant_eps(part: nn.Module) -> bool:
    """Whether it is PyG's GIN layer, which registers a number of its own as a buffer."""
    if type(part).__name__ not in ("GINConv", "GINEConv"):
        return False
    import torch_geometric.nn as pyg

    eps = part._buffers.get("eps")
    return type(part) in (pyg.GINConv, pyg.GINEConv) and eps is not None and eps.numel() == 1


def _runs_in_forward(attribute: str) -> bool:
    """Whether it holds hooks of torch or PyG's layers; `attributes` gives the hooks of state dicts."""
    return attribute.endswith("_hooks") and "state_dict" not in attribute


def _counted_reach(module: nn.Module, columns: int) -> Reach:
    import torch_geometric.nn as pyg

    called: list[nn.Module] = []
    for part in module.modules():
        if isinstance(part, pyg.MessagePassing):
            part.register_propagate_forward_pre_hook(lambda layer, _: called.append(layer))
    logits(module, small_graph(columns, directed=False, arm=4, weighted=weightings(module)[-1]))
    if not called:
        return Reach(None)
    plain = tuple(getattr(pyg, name) for name in PLAIN_LAYERS)
    known = plain + tuple(getattr(pyg, name) for name in NORMALISED_LAYERS)
    one_way = all(type(layer) in known and layer.flow == "source_to_target" for layer in called)
    normalised = not all(type(layer) in plain for layer in called)
    return Reach(len(called), degree_normalised=normalised, both_ways=not one_way)
