"""`J v` and `J^T u` of a function of one flat vector, by reverse mode alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

PROBES = 8


class Jacobian:
    """The Jacobian `J` of `function` at `point`, and the value there.

    torch.func's forward mode does not take sparse CSR tensors, so `J v` is computed by differentiating `u -> J^T u`.
    The passes through `function` are recorded once; each product afterwards is one backward pass.
    """

    has_shared_features = False  # whether `J v` is `Z W`: `v` as a matrix with a row a feature, a column an output

    def __init__(self, function: Callable[[Tensor], Tensor], point: Tensor) -> None:
        with torch.enable_grad():
            self._point = point.detach().clone().requires_grad_()
            self._output = function(self._point)
        self.value = self._output.detach()

    def adjoint(self, u: Tensor) -> Tensor:
        """`J^T u`."""
        return torch.autograd.grad(self._output, self._point, u, retain_graph=True)[0]

    def apply(self, v: Tensor) -> Tensor:
        """`J v`."""
        dual, pulled_back = self._transposed
        return torch.autograd.grad(pulled_back, dual, v, retain_graph=True)[0]

    @cached_property
    def _transposed(self) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            dual = torch.zeros_like(self._output, requires_grad=True)
            (pulled_back,) = torch.autograd.grad(self._output, self._point, dual, create_graph=True)
        return dual, pulled_back


def squared_frobenius_norm(jacobian: Jacobian) -> float:
    """`||J||_F^2`, estimated with `PROBES` vectors of random signs (Hutchinson's estimator)."""
    generator = torch.Generator().manual_seed(0)
    estimate = 0.0
    for _ in range(PROBES):
        signs = 2.0 * torch.randint(0, 2, tuple(jacobian.value.shape), generator=generator) - 1
        estimate += float(jacobian.adjoint(signs.to(jacobian.value)).square().sum()) / PROBES
    return estimate
