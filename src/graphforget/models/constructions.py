"""`gf.stacked` and `gf.boosted`: models that are built from a user's own module and can be certified."""

from __future__ import annotations

import dataclasses
import functools
import inspect as signatures
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.models.boosted import POWERS, Boosted
from graphforget.models.captured import first_captured_value
from graphforget.models.composite import CompositeModel, checked_positive, inner_inputs, made_by_seed
from graphforget.models.encoders import embedding
from graphforget.models.inspection import Inspection, inspect_encoder
from graphforget.models.mini_batches import checked_mini_batches
from graphforget.models.parameters import trainable
from graphforget.models.stacked import HOPS, Stacked, default_attribute_scale
from graphforget.models.stacked_model import EMBEDDING_NORM, PARTS, checked_parts
from graphforget.validation import whole_number

INNER_MU = 5e-4  # the L2 term of a user's own encoder or network

MakeModule = Callable[..., nn.Module]
Parts = int | Mapping[str, Iterable[int | str]]


@dataclass(frozen=True)
class Construction(ABC):
    """How to build a model from a user's own module, once the numbers of columns and classes are known."""

    make_module: MakeModule
    epochs: int | None = None  # None: by default

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """The name of the model in its recipe."""
        made = self.make_module
        path = f"{getattr(made, '__module__', '')}.{getattr(made, '__qualname__', type(made).__qualname__)}"
        return f"{self.kind}:{path}"

    @property
    def defaults(self) -> str:
        """The built-in model whose training defaults apply."""
        return f"{self.kind}-gcn"

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The settings, as the recipe records them. They name no node."""

    @abstractmethod
    def build(self, *, columns: int, classes: int) -> CompositeModel:
        """The untrained model. Raises `InputError` if the user's module cannot be part of one."""

    def resolved(self, graph: Graph, recorded: Mapping[str, Any] | None = None) -> Self:
        """With every setting that was left open: as `recorded` in a recipe, or by the graph of the first training."""
        return self

    def on(self, graph: Graph) -> CompositeModel:
        """The untrained model for a graph."""
        _check_no_weights(graph)
        return self.build(columns=graph.num_columns, classes=graph.num_classes)

    def _maker(self, columns: int, classes: int) -> tuple[Callable[[], nn.Module], nn.Module, Inspection]:
        """A function without arguments that makes a fresh module, one such module, and its inspection."""
        make = functools.partial(_searched, self.make_module, _without_arguments(self.make_module, columns, classes))
        first, again, second = (_made(make, seed=seed) for seed in (0, 0, 1))
        _check_fresh(first, again, second)
        return make, first, inspect_encoder(first, columns=columns, classes=classes)


@dataclass(frozen=True)
class StackedConstruction(Construction):
    """See `stacked`."""

    parts: Parts = PARTS
    hops: int = HOPS
    encoder_mu: float = INNER_MU
    embedding_norm: float = EMBEDDING_NORM
    attribute_scale: float | None = None  # None: by the number of training nodes
    batch_size: int | None = None  # None: by the number of training nodes
    num_neighbors: Sequence[int] | None = None

    kind: ClassVar[str] = "stacked"

    def __post_init__(self) -> None:
        checked_parts(self.parts)
        whole_number(self.hops, "hops")
        checked_positive(self.encoder_mu, "encoder_mu")
        checked_positive(self.embedding_norm, "embedding_norm")
        checked_positive(1.0 if self.attribute_scale is None else self.attribute_scale, "attribute_scale")
        checked_mini_batches(self.batch_size, self.num_neighbors, hops=0)  # their number is known later

    @property
    def options(self) -> dict[str, Any]:
        parts = checked_parts(self.parts)
        names = parts if isinstance(parts, int) else list(parts)
        numbers = ("hops", "encoder_mu", "embedding_norm", "attribute_scale")
        batches = {"batch_size": self.batch_size, "num_neighbors": self.num_neighbors and list(self.num_neighbors)}
        given = {name: value for name, value in batches.items() if value is not None}
        return {"parts": names} | {name: getattr(self, name) for name in numbers} | given

    def build(self, *, columns: int, classes: int) -> Stacked:
        make, fresh, inspection = self._maker(columns, classes)
        small = torch.ones(2, columns)
        edges = torch.tensor([[0, 1], [1, 0]])
        width = embedding(fresh.eval(), *inner_inputs(fresh, small, edges)).shape[1]
        return Stacked(
            make,
            columns,
            classes,
            **self.options,
            width=width,
            encoder_reach=inspection.reach,
            findings=inspection.certification_blockers,
            built_in_modules=False,
        )

    def resolved(self, graph: Graph, recorded: Mapping[str, Any] | None = None) -> Self:
        defaults: dict[str, Any] = {"attribute_scale": default_attribute_scale(graph.train_rows.numel())}
        defaults |= {name: (recorded or {}).get(name) for name in ("batch_size", "num_neighbors")}
        if recorded is not None:
            defaults["attribute_scale"] = recorded.get("attribute_scale", defaults["attribute_scale"])
        left_open = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **left_open)

    def on(self, graph: Graph) -> Stacked:
        _check_no_weights(graph)
        module = self.resolved(graph).build(columns=graph.num_columns, classes=graph.num_classes)
        if isinstance(self.parts, Mapping):
            module.set_members(graph, {str(name): nodes for name, nodes in self.parts.items()})
        return module


@dataclass(frozen=True)
class BoostedConstruction(Construction):
    """See `boosted`."""

    start: str = "sign"
    network_mu: float = INNER_MU

    kind: ClassVar[str] = "boosted"

    def __post_init__(self) -> None:
        if self.start not in POWERS:
            raise InputError(f"the start is {self.start!r}, it must be one of {', '.join(POWERS)}")
        checked_positive(self.network_mu, "network_mu")

    @property
    def options(self) -> dict[str, Any]:
        return {"start": self.start, "network_mu": self.network_mu}

    def build(self, *, columns: int, classes: int) -> Boosted:
        make, _, inspection = self._maker(columns, classes)
        return Boosted(
            make,
            columns,
            classes,
            **self.options,
            network_reach=inspection.reach,
            findings=inspection.certification_blockers,
            built_in_modules=False,
        )


OwnModel = nn.Module | Construction  # a model of the user


# Longer than 50 lines because of the documentation of its parameters.
def stacked(
    make_module: MakeModule,
    *,
    parts: Parts = PARTS,
    hops: int = HOPS,
    encoder_mu: float = INNER_MU,
    embedding_norm: float = EMBEDDING_NORM,
    attribute_scale: float | None = None,
    batch_size: int | None = None,
    num_neighbors: Sequence[int] | None = None,
    epochs: int | None = None,
) -> StackedConstruction:
    """Any GNN, built so that it can be certified: encoders on parts of the graph, and one linear head.

    The nodes are split into parts. An encoder is trained on each part alone. The head reads the embeddings by all
    encoders and the attributes propagated 0 to `hops` times. A request trains only the encoders of the parts that it
    touches again, and moves the head by Newton steps. Every request reaches level `certified`.

    Args:
        make_module: Makes a module with fresh weights that is called as `module(x, edge_index)` and returns one number
            a class; for example its class. It is called without arguments, or with the numbers of columns and classes.
            If the module has a method `embed(x, edge_index)`, this gives its embedding, otherwise its outputs do.
        parts: The number of parts. A keyed hash of its number decides in which part a node is. Or the nodes of each
            part by a name of the part, such as `{"consented": nodes}`: only requests that touch them then train an
            encoder again. Whether a node is in a part must not depend on other nodes.
        hops: How often attributes are propagated for the head.
        encoder_mu: Weight of the L2 term of an encoder.
        embedding_norm: The mean norm of a row of an encoder's embedding, where rows of attributes have norm 1. The
            smaller it is, the more the head's L2 term weighs against the encoders.
        attribute_scale: The factor of a node's own attributes, beside their averages over neighbours. By default 1, and
            less with fewer than 1000 training nodes; training fixes it.
        batch_size: Training nodes of a mini-batch of an encoder's training; 0: all of the part. By default mini-batches
            are for parts with more than 100,000 training nodes; training fixes it.
        num_neighbors: How many neighbours of a node a mini-batch has, for each hop; -1: all. By default 10 at each hop.
        epochs: Epochs of an encoder's training. `gf.train(epochs=)` is the same.

    Returns:
        The model for `gf.train`.

    Raises:
        InputError: An argument is out of its range.

    Example:
        >>> import graphforget as gf
        >>> from torch_geometric.nn import GraphSAGE
        >>> def make_module(columns: int, classes: int) -> GraphSAGE:
        ...     return GraphSAGE(columns, 16, num_layers=2, out_channels=classes)
        >>> graph = gf.load("patients")
        >>> trained = gf.train(graph, gf.stacked(make_module, parts=4), epochs=20)
        >>> gf.unlearn(trained, graph, gf.Request(nodes=["patient-0017"])).level
        'certified'
    """
    settings: Any = {"encoder_mu": encoder_mu, "embedding_norm": embedding_norm, "attribute_scale": attribute_scale}
    batches: Any = {"batch_size": batch_size, "num_neighbors": num_neighbors}
    return StackedConstruction(make_module, epochs, parts, hops, **settings, **batches)


def boosted(
    make_module: MakeModule, *, start: str = "sign", network_mu: float = INNER_MU, epochs: int | None = None
) -> BoostedConstruction:
    """A certified convex model, and any network that is trained from its released weights.

    The network adds to the logits of the start. It is trained anew for every release, for a few epochs, and has the
    guarantee of the start: it is computed from the released start and the retained graph.

    Args:
        make_module: Makes a module with fresh weights, as for `stacked`.
        start: "sign" or "sgc".
        network_mu: Weight of the L2 term of the network.
        epochs: Epochs of the network's training. `gf.train(epochs=)` is the same.

    Returns:
        The model for `gf.train`.

    Raises:
        InputError: An argument is out of its range.
    """
    return BoostedConstruction(make_module, epochs, start, network_mu)


def _check_no_weights(graph: Graph) -> None:
    """Raises `InputError` for edge weights, which a module of the user is not given here."""
    if graph.edge_weight is not None:
        raise InputError(
            "the graph has edge weights, which a class of your own does not read in a stacked or boosted model: name a "
            "built-in network such as 'stacked-gcn', or leave the weights out"
        )


def _without_arguments(make: MakeModule, columns: int, classes: int) -> Callable[[], nn.Module]:
    """The function with the arguments that it needs: none, or the numbers of columns and classes."""
    if isinstance(make, nn.Module) or not callable(make):
        raise InputError("a function that makes a fresh module is needed, such as the module's class")
    try:
        signature = signatures.signature(make)
    except (TypeError, ValueError):
        return make
    for arguments in ((), (columns, classes)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return (lambda: make(columns, classes)) if arguments else make
    raise InputError("the function that makes the module must take no arguments, or (columns, classes)")


def _searched(make_module: MakeModule, make: Callable[[], nn.Module]) -> nn.Module:
    """A fresh module, after a search of the function that makes it for data. Raises `InputError` if it holds any.

    The search is repeated for every module, because a global variable can be filled later.
    """
    kinds = make_module.__mro__ if isinstance(make_module, type) else ()
    for start in (make_module, *(vars(kind)["__init__"] for kind in kinds if "__init__" in vars(kind))):
        held = first_captured_value(start, registered={})
        if held:
            place = f" in '{held.path}'" if held.path else ""
            raise InputError(
                f"the function that makes the module holds {held.kind}{place}, which may carry data: let it take "
                "numbers only, or (columns, classes)"
            )
    return make()


def _made(make: Callable[[], nn.Module], *, seed: int) -> nn.Module:
    try:
        module = made_by_seed(make, seed)
    except InputError:
        raise
    except Exception as error:  # a user's own code can raise any exception there is
        raise InputError(
            f"the module cannot be made: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(module, nn.Module):
        raise InputError(f"the function made a {type(module).__name__}, a torch.nn.Module is needed")
    if not trainable(module):
        raise InputError("the module has no trainable parameter")
    if not all(isinstance(value, torch.Tensor) for value in module.state_dict().values()):
        raise InputError("the module has a state that is not made of tensors, which cannot be saved safely")
    return module


def _check_fresh(first: nn.Module, again: nn.Module, second: nn.Module) -> None:
    """Raises `InputError` unless modules have fresh weights and statistics: by a seed, by it again, by another one."""
    if [n for n, p in first.state_dict().items() if not torch.equal(p, again.state_dict()[n])]:
        raise InputError("the function makes different modules by the same seed, so training cannot be replayed")
    if [(n, p.shape) for n, p in first.state_dict().items()] != [(n, p.shape) for n, p in second.state_dict().items()]:
        raise InputError("the function makes modules of different shapes")
    drawn = []
    for (name, one), (_, other) in zip(trainable(first), trainable(second), strict=True):
        constant = bool((one == one.flatten()[0]).all()) if one.numel() else True
        if not constant and torch.equal(one, other):
            raise InputError(f"the function makes the same parameter {name!r} whatever the seed, so it is not fresh")
        drawn.append(not constant)
    if not any(drawn):
        raise InputError("the function makes modules of which no parameter is drawn at random")
    for name, part in first.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.running_mean is not None:
            assert part.running_var is not None
            if part.running_mean.any() or not (part.running_var == 1).all():
                raise InputError(f"layer {name!r} of a fresh module has statistics already, which may carry data")
