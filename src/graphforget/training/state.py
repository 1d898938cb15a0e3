"""Tensors of a model beside its weights: which there are, whether they are the same, their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from graphforget.models.parameters import trainable

if TYPE_CHECKING:
    from graphforget.training.trained import Trained


def untrained_state(module: nn.Module) -> dict[str, Tensor]:
    """Buffers and frozen parameters, which are not in theta but determine the predictions."""
    in_theta = {name for name, _ in trainable(module)}
    return {name: value.detach().clone() for name, value in module.state_dict().items() if name not in in_theta}


def same_tensors(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Whether both hold the same tensors under the same names, bit for bit."""
    if first.keys() != second.keys():
        return False
    pairs = ((value, second[name]) for name, value in first.items())
    return all(a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def digest_of(values: Tensor) -> str:
    """SHA-256 of a tensor; publish it only together with a salt."""
    return hashlib.sha256(values.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


def same_state(first: Trained, second: Trained) -> bool:
    """Whether weights, buffers and what is released beside the weights are equal, bit for bit."""
    buffers = (dict(trained.module.named_buffers()) for trained in (first, second))
    same = same_tensors(*buffers) and same_tensors(first.released_state, second.released_state)
    return same and torch.equal(first.theta, second.theta)
