"""Any GNN, linearised at public weights: strongly convex with an L2 term (docs/maths.md, section 5.2)."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.linalg.jacobian import Jacobian, squared_frobenius_norm
from graphforget.models.affine import AffineModel
from graphforget.models.inspection import inspect
from graphforget.models.parameters import assign, call_with, flatten, trainable


class Linearised(AffineModel):
    """`f_lin(d; G) = f(theta_0; G) + J(theta_0; G) d`; its only parameter is `d`.

    `theta_0` is drawn from `seed` and the parameters' shapes alone. The weights of `base` are overwritten, so the
    model holds neither these weights nor anything that they were trained on.
    """

    def __init__(self, base: nn.Module, *, seed: int, columns: int) -> None:
        super().__init__()
        inspection = inspect(base, columns=columns)
        if inspection.certification_blockers:
            raise InputError(f"this model cannot be linearised: {inspection.certification_blockers[0]}")
        self.seed = seed
        self.reach = inspection.reach
        base = copy.deepcopy(base).eval().requires_grad_(True)
        if any(p.dtype.itemsize <= 2 for p in base.parameters()):  # half precision
            base = base.float()
        draw_weights(base, seed=seed)
        # Hidden in a tuple so that `base` is no submodule: `delta` stays the only parameter.
        self._base = (base,)
        self.delta = nn.Parameter(torch.zeros_like(self.origin))

    @property
    def base(self) -> nn.Module:
        return self._base[0]

    @property
    def origin(self) -> Tensor:
        """`theta_0`."""
        return flatten(self.base)

    def jacobian(self, *inputs: Any) -> Jacobian:
        """The base model's Jacobian at `theta_0` on these inputs."""
        return Jacobian(lambda theta: call_with(self.base, theta, *inputs), self.origin)

    def forward(self, x: Any, edge_index: Any, *edge_weight: Any) -> Tensor:
        jacobian = self.jacobian(x, edge_index, *edge_weight)
        change: Tensor = _Apply.apply(self.delta, jacobian)
        return jacobian.value + change

    def _apply(self, *args: Any, **kwargs: Any) -> Linearised:
        super()._apply(*args, **kwargs)
        self.base._apply(*args, **kwargs)
        return self

    # -- as an affine model --------------------------------------------------------------------------------------

    def logits_jacobian(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> Jacobian:
        return _JacobianRows(self.jacobian(*inputs), rows)

    def row_norm_sums(self, inputs: tuple[Any, Any], rows: Tensor, jacobian: Jacobian) -> tuple[float, float]:
        """The second is twice an estimate of the Jacobian's squared Frobenius norm; the first follows from it."""
        squares = 2 * squared_frobenius_norm(jacobian)
        return math.sqrt(rows.numel() * squares), squares

    def longest_sum(self, nodes: int) -> int:
        widest = max(max(parameter.shape, default=1) for parameter in self.base.parameters())
        return 5 * (nodes + widest + 10)

    @property
    def origin_norm(self) -> float:
        return float(self.origin.norm())


class _JacobianRows(Jacobian):
    """Some rows of the logits of a recorded Jacobian."""

    def __init__(self, jacobian: Jacobian, rows: Tensor) -> None:
        self._jacobian, self._rows = jacobian, rows
        self.value = jacobian.value[rows]

    def apply(self, v: Tensor) -> Tensor:
        return self._jacobian.apply(v)[self._rows]

    def adjoint(self, u: Tensor) -> Tensor:
        return self._jacobian.adjoint(torch.zeros_like(self._jacobian.value).index_add_(0, self._rows, u))


class _Apply(torch.autograd.Function):
    """`v -> J v`, whose derivative is `u -> J^T u`, whose derivative is again this."""

    @staticmethod
    def forward(ctx, v: Tensor, jacobian: Jacobian) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.jacobian = jacobian
        return jacobian.apply(v)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[no-untyped-def]
        return _Adjoint.apply(gradient, ctx.jacobian), None


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u: Tensor, jacobian: Jacobian) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.jacobian = jacobian
        return jacobian.adjoint(u)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[no-untyped-def]
        return _Apply.apply(gradient, ctx.jacobian), None


def linearised(base: nn.Module, *, seed: int = 0, columns: int) -> Linearised:
    """`base` linearised at weights drawn from the public `seed`. Wide models lose least: 256 hidden units, not 64."""
    return Linearised(base, seed=seed, columns=columns)


def base_of(module: nn.Module) -> nn.Module:
    """The base of a linearised model; any other module itself, a subclass of `Linearised` included."""
    return module.base if type(module) is Linearised else module


def draw_weights(module: nn.Module, *, seed: int) -> None:
    """Overwrites the weights: Glorot-normal matrices, zero biases, unit scales, from the seed and the shapes alone."""
    if any(parameter.is_meta for parameter in module.parameters()):
        return  # on the meta device only the number of parameters matters
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for name, parameter in trainable(module):
        if parameter.dim() >= 2:
            std = math.sqrt(2.0 / (parameter.shape[-2] + parameter.shape[-1]))
            parts.append(torch.randn(parameter.numel(), generator=generator, dtype=torch.float64) * std)
        else:
            fill = 1.0 if name.endswith("weight") else 0.0
            parts.append(torch.full((parameter.numel(),), fill, dtype=torch.float64))
    assign(module, torch.cat(parts))
