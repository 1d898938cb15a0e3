"""What a convex model has in common whose release holds more than its weights: encoders, or a network."""

from __future__ import annotations

import copy
import hashlib
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.models.affine import AffineModel
from graphforget.models.base import GraphModel, NormalisedModel
from graphforget.models.item_networks import ItemNetwork
from graphforget.validation import LARGEST_STORED

ENCODERS, HEAD = "encoders", "head"  # the parts of a stacked model
START, NETWORK = "start", "network"  # the parts of a boosted model


class CompositeModel(NormalisedModel, AffineModel):
    """A model whose parameters are those of its convex part. The other part follows from training and is a state.

    `claim_parts` names both in the order in which one follows from the other. `replayed_part` is the one that training
    gives, bit for bit.
    """

    claim_parts: ClassVar[tuple[str, str]]
    replayed_part: ClassVar[str]
    make: Callable[[], nn.Module]  # a module with fresh weights, for the part that is no parameter
    findings: tuple[str, ...]  # everything in such a module that rules out a certificate, in words
    built_in_modules: bool  # whether such a module is one of this package, and not a user's

    @abstractmethod
    def released_state(self) -> dict[str, Tensor]:
        """The tensors of the part that is no parameter. They are released as they are."""

    @abstractmethod
    def load_released_state(self, state: Mapping[str, Tensor]) -> None:
        """Reads the result of `released_state`. Raises `InputError` for anything else."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All settings of the construction, for the recipe. They name no node."""

    def check_shapes(self, state: Mapping[str, Tensor], prefixes: Sequence[str]) -> None:
        """Raises `InputError` if a tensor of a file does not fit, before a module of that size is made."""
        if not self.built_in_modules:
            return  # its author chose its size
        with torch.device("meta"):
            shapes = {name: value.shape for name, value in self.make().state_dict().items()}
        for prefix in prefixes:
            for name, shape in shapes.items():
                if prefix + name not in state or state[prefix + name].shape != shape:
                    raise InputError(f"the tensor {prefix + name!r} is missing, or of another shape")

    @property
    def takes_edge_weight(self) -> bool:  # type: ignore[override]
        """Whether the module that it makes reads weights. That of a user is called without them."""
        if not self.built_in_modules:
            return False
        with torch.device("meta"):
            module = self.make()
        return isinstance(module, GraphModel) and module.takes_edge_weight

    @abstractmethod
    def untrained(self) -> CompositeModel:
        """The same architecture without that part, its parameters at 0."""


def inner_state(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """All tensors of a module by name."""
    return {f"{prefix}{name}": value.detach().clone() for name, value in module.state_dict().items()}


def load_inner_state(module: nn.Module, state: dict[str, Tensor], prefix: str) -> nn.Module:
    """Takes the tensors of a fresh module out of `state` and loads them, in float64.

    Raises:
        InputError: A tensor is missing, has another shape or type, or is not finite.
    """
    module.double().eval()
    own = module.state_dict()
    given = {name: state.pop(f"{prefix}{name}", None) for name in own}
    for name, value in own.items():
        part = given[name]
        if part is None or part.shape != value.shape or part.dtype != value.dtype:
            raise InputError(f"the tensor {prefix + name!r} is missing, or of another shape")
        if part.is_floating_point() and not torch.isfinite(part).all():
            raise InputError(f"the tensor {prefix + name!r} holds NaN or infinity")
    module.load_state_dict(given)
    return module


def state_digest(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of named tensors. For this process: it names prepared inputs and is in no document."""
    sha = hashlib.sha256()
    for name, value in state.items():
        sha.update(name.encode() + value.numpy().tobytes())
    return sha.hexdigest()


def made_by_seed(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module whose fresh weights follow from the seed, whichever generator they come from.

    The caller's random states do not change.
    """
    states = random.getstate(), np.random.get_state()  # noqa: NPY002, a module may draw from it
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            return make()
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def inner_inputs(
    module: nn.Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
) -> tuple[Any, Any]:
    """The inputs of an inner module: a model of this package prepares the graph, any other gets `(x, edge_index)`."""
    if isinstance(module, ItemNetwork):
        module = module.inner
    if isinstance(module, GraphModel):
        return module.prepare(x, edge_index, module.checked_weight(edge_weight))
    return (x.to_dense() if x.layout == torch.sparse_csr else x), edge_index


def converted_module(module: nn.Module, like: Tensor) -> nn.Module:
    """The module for inputs of this type and device: itself, or a copy."""
    first = next(module.parameters())
    if first.dtype == like.dtype and first.device == like.device:
        return module
    return copy.deepcopy(module).to(like)


def checked_positive(value: Any, name: str) -> float:
    """A setting that is a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LARGEST_STORED:
        raise InputError(f"{name} is {value!r}, a positive number is needed")
    return float(value)
