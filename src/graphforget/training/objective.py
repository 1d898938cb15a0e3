"""`F(theta) = (1/m) (sum_i l_i(theta; G) + b . theta) + (mu/2) ||theta||^2`: value, gradient, curvature products."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.solution import Product
from graphforget.linalg.sparse import SparseMatrix, converted
from graphforget.models.base import GraphModel
from graphforget.models.built_in import is_built_in
from graphforget.models.fixed import FixedPropagation
from graphforget.models.linearised import Linearised
from graphforget.models.parameters import call_with, flatten, trainable
from graphforget.models.registry import is_affine
from graphforget.training.losses import Loss, LossFunction, as_loss
from graphforget.training.prepared import prepared_once


class LossSum:
    """`sum_{i in rows} l_i(theta; G)` as a function of the flat parameters, with dropout off."""

    def __init__(
        self,
        module: nn.Module,
        graph: Graph,
        rows: Tensor,
        *,
        loss: Loss,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
    ) -> None:
        self.like = torch.empty(0, dtype=dtype, device=device)  # what parameters are like
        if not isinstance(module, FixedPropagation) or module.weight.to(self.like) is not module.weight:
            module = copy.deepcopy(module).eval().to(device=device, dtype=dtype)
        self.module = module  # of a model of fixed propagation only shapes are used
        self.loss = loss
        self.affine = is_affine(module)
        self.size = sum(p.numel() for _, p in trainable(module))
        self.nodes, self.rows = graph.num_nodes, rows.to(device)
        self.labels = graph.y.to(device)[self.rows]
        self.inputs = model_inputs(self.module, graph, dtype=dtype, device=device)
        self._kept: dict[str, Any] = {}
        self._seen: tuple[Tensor, int, Tensor] | None = None

    def cached(self, name: str, compute: Callable[[], Any]) -> Any:
        """What depends on the model and the graph alone, computed once."""
        if name not in self._kept:
            self._kept[name] = compute()
        return self._kept[name]

    def logits(self, theta: Tensor) -> Tensor:
        """The logits of `rows`; differentiable in `theta`."""
        return call_with(self.module, theta, *self.inputs)[self.rows]

    def losses(self, theta: Tensor) -> Tensor:
        """One loss for each of `rows`."""
        with torch.no_grad():
            return self.loss(self._logits_at(theta), self.labels)

    def value(self, theta: Tensor) -> float:
        return float(self.losses(theta).sum())

    def gradient(self, theta: Tensor) -> Tensor:
        return self.value_and_gradient(theta)[1]

    def value_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        """Both, for little more than the gradient alone."""
        if not self.affine:
            _, total, gradient = self._recorded_gradient(theta, create_graph=False)
            return float(total.detach()), gradient
        logits = self._logits_at(theta)
        value = float(self.loss(logits, self.labels).sum())
        return value, self._jacobian.adjoint(self.loss.gradient(logits, self.labels))

    def hessian(self, theta: Tensor) -> Product:
        """`v -> H v` with the Hessian at `theta`."""
        if self.affine:  # the Hessian of an affine model is its Gauss-Newton matrix
            return self.gauss_newton(theta)
        leaf, _, gradient = self._recorded_gradient(theta, create_graph=True)
        return lambda v: torch.autograd.grad(gradient, leaf, v, retain_graph=True)[0]

    def gauss_newton(self, theta: Tensor) -> Product:
        """`v -> J^T B J v` with the generalised Gauss-Newton matrix at `theta`; B is the loss's curvature."""
        jacobian = self.jacobian(theta)
        logits = self._logits_at(theta) if self.affine else jacobian.value
        curvature = self.loss.curvature(logits, self.labels)
        return lambda v: jacobian.adjoint(curvature(jacobian.apply(v)))

    def jacobian(self, theta: Tensor) -> Jacobian:
        """Of the logits of `rows` at `theta`."""
        return self._jacobian if self.affine else Jacobian(self.logits, theta)

    @cached_property
    def _jacobian(self) -> Jacobian:
        """Of an affine model: the same at every theta, so recorded once."""
        if isinstance(self.module, Linearised):
            return _RowsOf(self.module.jacobian(*self.inputs), self.rows)
        assert isinstance(self.module, FixedPropagation)
        return _FixedJacobian(self.module, self.inputs, self.rows, nodes=self.nodes)

    def _logits_at(self, theta: Tensor) -> Tensor:
        if not self.affine:
            with torch.no_grad():
                return self.logits(theta)
        seen, version = self._seen, None if theta.is_inference() else theta._version
        if seen is not None and seen[0] is theta and seen[1] == version is not None:
            return seen[2]
        logits = self._jacobian.value + self._jacobian.apply(theta.detach())
        if version is not None:
            self._seen = theta, version, logits  # a gradient and the curvature at one theta share them
        return logits

    def _recorded_gradient(self, theta: Tensor, *, create_graph: bool) -> tuple[Tensor, Tensor, Tensor]:
        """A copy of theta to differentiate by, the sum there, and its gradient."""
        with torch.enable_grad():
            leaf = theta.detach().clone().requires_grad_()
            total = self.loss(self.logits(leaf), self.labels).sum()
            return leaf, total, torch.autograd.grad(total, leaf, create_graph=create_graph)[0]


class _RowsOf(Jacobian):
    """Some rows of the logits of a recorded Jacobian."""

    def __init__(self, whole: Jacobian, rows: Tensor) -> None:
        self._whole, self._rows = whole, rows
        self.value = whole.value[rows]

    def apply(self, v: Tensor) -> Tensor:
        return self._whole.apply(v)[self._rows]

    def adjoint(self, u: Tensor) -> Tensor:
        return self._whole.adjoint(torch.zeros_like(self._whole.value).index_add_(0, self._rows, u))


class _FixedJacobian(Jacobian):
    """Some rows of the logits of a model of fixed propagation, which are a linear function of its parameters."""

    def __init__(self, module: FixedPropagation, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> None:
        self._module, self._inputs, self._rows = module, inputs, rows
        self._nodes, self.value = nodes, module.weight.detach().new_zeros(rows.numel(), module.weight.shape[2])

    def apply(self, v: Tensor) -> Tensor:
        return self._module.at(v, *self._inputs).index_select(0, self._rows)

    def adjoint(self, u: Tensor) -> Tensor:
        everywhere = torch.zeros(self._nodes, u.shape[1], dtype=u.dtype, device=u.device)
        return self._module.transposed(everywhere.index_copy_(0, self._rows, u), *self._inputs)


class Objective:
    """`F` on a graph's training nodes. The L2 term covers every parameter and is part of `F`, never weight decay.

    `objective_noise_vector` is the `b` of objective perturbation: noise drawn before training, 0 if there is none.
    """

    def __init__(
        self,
        module: nn.Module,
        graph: Graph,
        *,
        mu: float,
        loss: Loss | LossFunction | None = None,
        objective_noise_vector: Tensor | None = None,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
    ) -> None:
        if not mu > 0:
            raise InputError(f"mu is {mu}, the weight of the L2 term must be positive")
        self.objective_noise_vector = (
            None if objective_noise_vector is None else objective_noise_vector.to(device=device, dtype=dtype)
        )
        self.graph, self.mu, self.m = graph, mu, graph.train_rows.numel()
        self._module, self._loss = module, as_loss(loss)
        self._where: dict[str, Any] = {"dtype": dtype, "device": device}
        self.data = LossSum(module, graph, graph.train_rows, loss=self._loss, **self._where)

    def in_single_precision(self) -> Objective:
        """The same in float32: half the time and memory of a product, for solves that need few digits."""
        where = self._where | {"dtype": torch.float32}
        return Objective(
            self._module,
            self.graph,
            mu=self.mu,
            loss=self._loss,
            objective_noise_vector=self.objective_noise_vector,
            **where,
        )

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.data.size

    @property
    def like(self) -> Tensor:
        """What parameters are like."""
        return self.data.like

    def on(self, rows: Tensor, *, reach: Reach) -> LossSum:
        """`sum_{i in rows} l_i` alone, without the L2 term, evaluated only where it can be felt.

        Only the part of the graph that sends messages to `rows` takes part, if the model's reach is known.
        """
        if reach.hops is None:
            return LossSum(self._module, self.graph, rows, loss=self._loss, **self._where)
        part, inside = self.graph.neighbourhood(rows, hops=reach.hops)
        return LossSum(self._module, part, inside, loss=self._loss, **self._where)

    def linear_term(self, theta: Tensor) -> float:
        """`b . theta`."""
        return 0.0 if self.objective_noise_vector is None else float(self.objective_noise_vector @ theta)

    def value(self, theta: Tensor) -> float:
        return (self.data.value(theta) + self.linear_term(theta)) / self.m + 0.5 * self.mu * float(theta @ theta)

    def gradient(self, theta: Tensor) -> Tensor:
        return self.value_and_gradient(theta)[1]

    def value_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        value, gradient = self.data.value_and_gradient(theta)
        if self.objective_noise_vector is not None:
            value, gradient = value + self.linear_term(theta), gradient + self.objective_noise_vector
        return value / self.m + 0.5 * self.mu * float(theta @ theta), gradient / self.m + self.mu * theta

    def hessian(self, theta: Tensor) -> Product:
        """`v -> (H + mu I) v`."""
        return self._regularised(self.data.hessian(theta))

    def gauss_newton(self, theta: Tensor) -> Product:
        """`v -> (J^T B J / m + mu I) v`, positive definite for a convex loss whatever the model."""
        return self._regularised(self.data.gauss_newton(theta))

    def _regularised(self, product: Product) -> Product:
        return lambda v: (product(v) / self.m).add_(v, alpha=self.mu)


def model_inputs(
    module: nn.Module, graph: Graph, *, dtype: torch.dtype, device: str | torch.device = "cpu"
) -> tuple[Any, Any]:
    """What `module` is called with: its own prepared form of the graph, or `(x, edge_index)`."""
    if is_built_in(module) and isinstance(module, GraphModel) and module.preparation is not None:
        key = (module.preparation, dtype, str(device))
        return prepared_once(graph, key, lambda: _prepared_inputs(module, graph, dtype=dtype, device=device))
    return _prepared_inputs(module, graph, dtype=dtype, device=device)


def _prepared_inputs(
    module: nn.Module, graph: Graph, *, dtype: torch.dtype, device: str | torch.device
) -> tuple[Any, Any]:
    x, edge_index = converted(graph.x, dtype=dtype, device=device), graph.edge_index.to(device)
    if isinstance(module, GraphModel):
        ready, propagation = module.prepare(x, edge_index)
        alike = is_built_in(module) and module.symmetric_propagation  # a subclass may weigh otherwise
        if alike and not graph.directed and isinstance(propagation, SparseMatrix):
            propagation = propagation.symmetric()
        return ready, propagation
    if isinstance(module, Linearised):
        return model_inputs(module.base, graph, dtype=dtype, device=device)
    if x.layout == torch.sparse_csr and not accepts_sparse(module, x):
        x = x.to_dense()
    return x, edge_index


def accepts_sparse(module: nn.Module, x: Tensor) -> bool:
    """Whether `module` runs on sparse CSR attributes and can be differentiated twice there, as PyG's GCNConv can."""
    module = copy.deepcopy(module).eval()  # trying it out must leave no trace in it
    probe = torch.eye(2, x.shape[1], dtype=x.dtype, device=x.device).to_sparse_csr()
    edge_index = torch.tensor([[0, 1], [1, 0]], device=x.device)
    theta = flatten(module).to(x.dtype).requires_grad_()
    try:
        with torch.enable_grad():
            out = call_with(module, theta, probe, edge_index).square().sum()
            (gradient,) = torch.autograd.grad(out, theta, create_graph=True)
            torch.autograd.grad(gradient.square().sum(), theta)
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError, AssertionError):
        return False
    return True
