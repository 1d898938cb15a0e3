"""A module's parameters as one flat vector, and the module called with such a vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


def flatten(module: nn.Module) -> Tensor:
    """The trainable parameters of `module` in the order of `named_parameters`, copied."""
    return torch.cat([p.detach().reshape(-1) for _, p in trainable(module)])


def unflatten(module: nn.Module, theta: Tensor) -> dict[str, Tensor]:
    """Views into `theta` by the parameters' names."""
    named = trainable(module)
    parts = theta.split([p.numel() for _, p in named])
    return {name: part.view(p.shape) for (name, p), part in zip(named, parts, strict=True)}


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def call_with(module: nn.Module, theta: Tensor, *inputs: Any) -> Tensor:
    """`module(*inputs)` with the parameters `theta`; differentiable in `theta`."""
    out: Tensor = functional_call(module, unflatten(module, theta), inputs)
    return out


def assign(module: nn.Module, theta: Tensor) -> None:
    """Copies `theta` into the module's parameters."""
    with torch.no_grad():
        for name, part in unflatten(module, theta).items():
            module.get_parameter(name).copy_(part)


def adam_for(parameters: Sequence[Tensor], learning_rate: float) -> torch.optim.Optimizer:
    """Adam. Its fused steps walk through memory, so a parameter that is a slice of a larger tensor needs plain ones."""
    fused = all(parameter.is_contiguous() for parameter in parameters)
    return torch.optim.Adam(parameters, lr=learning_rate, fused=fused)


def backward_with_l2(value: Tensor, parameters: Sequence[Tensor], mu: float) -> None:
    """Leaves the gradients of `value + mu/2 ||theta||^2`, without recording the L2 term."""
    if value.requires_grad:  # it may depend on no parameter
        value.backward()
    with torch.no_grad():
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:  # the loss does not depend on it
                gradient = torch.zeros_like(parameter)
            elif gradient.layout != torch.strided:  # of an embedding with sparse gradients
                gradient = gradient.to_dense()
            parameter.grad = gradient.add_(parameter, alpha=mu)
