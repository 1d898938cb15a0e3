"""`F(theta) = (1/m) (sum_i l_i(theta; G) + b . theta) + (mu/2) ||theta||^2`: value, gradient, curvature products."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.graph.targets import as_numbers
from graphforget.linalg.blocked import BlockedFeatures
from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.newton import Minimum, SmoothFunction, newton_cg
from graphforget.linalg.solution import Product
from graphforget.models.affine import AffineModel
from graphforget.models.inputs import fresh_inputs, model_inputs
from graphforget.models.items import NODE, items_of, view_of
from graphforget.models.parameters import call_with, trainable
from graphforget.models.registry import is_affine
from graphforget.training.losses import Loss, LossFunction, as_loss

SINGLE_STEPS = 30  # of Newton's method with products in float32
SMALLEST_SINGLE_MU = 1e-6  # with less curvature, products in float32 cost more steps than they save
LARGEST_SINGLE_SQUARE = 1e4  # the mean squared length of rows of features up to which they are used


class LossSum:
    """`sum_{i in rows} l_i(theta; G)` as a function of the flat parameters, with dropout off; `rows` are items."""

    def __init__(
        self,
        module: nn.Module,
        graph: Graph,
        rows: Tensor,
        *,
        loss: Loss,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
        inputs: tuple[Any, Any] | None = None,
    ) -> None:
        self.like = torch.empty(0, dtype=dtype, device=device)  # the parameters' type and device
        if not (is_affine(module) and module.can_share(self.like)):
            module = copy.deepcopy(module).eval().to(device=device, dtype=dtype)
        self.module = module
        self.affine_model: AffineModel | None = module if is_affine(module) else None  # by its exact type
        self.loss = loss
        self.size = sum(p.numel() for _, p in trainable(module))
        self.items = items_of(module, graph)
        view = view_of(module)
        nodes = graph.num_nodes if view is None else view.nodes_in_a_sum(graph)
        self.nodes, self.rows = max(nodes, len(self.items)), rows.to(device)
        self.labels = as_numbers(self.items.y, self.like)[self.rows]
        self.inputs = model_inputs(self.module, graph, dtype=dtype, device=device) if inputs is None else inputs
        self._cache: dict[str, Any] = {}
        self._last_logits: tuple[Tensor, int, Tensor] | None = None

    @property
    def affine(self) -> bool:
        """Whether the logits are an affine function of the parameters, by construction."""
        return self.affine_model is not None

    @property
    def row_norm_sums(self) -> tuple[float, float]:
        """`AffineModel.row_norm_sums` of an affine model, computed once."""
        model = self.affine_model
        assert model is not None
        result: tuple[float, float] = self.cached(
            "row norms", lambda: model.row_norm_sums(self.inputs, self.rows, self._jacobian)
        )
        return result

    def cached(self, name: str, compute: Callable[[], Any]) -> Any:
        """A value that depends on the model and the graph alone, computed once."""
        if name not in self._cache:
            self._cache[name] = compute()
        return self._cache[name]

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
        """Both, at little more than the cost of the gradient."""
        if not self.affine:
            _, total, gradient = self._recorded_gradient(theta, create_graph=False)
            return float(total.detach()), gradient
        if isinstance(self._jacobian, BlockedFeatures):
            return self._blocked_gradient(theta, self._jacobian)
        logits = self._logits_at(theta)
        value = float(self.loss(logits, self.labels).sum())
        return value, self._jacobian.adjoint(self.loss.gradient(logits, self.labels))

    def _blocked_gradient(self, theta: Tensor, jacobian: BlockedFeatures) -> tuple[float, Tensor]:
        values: list[float] = []
        labels = [self.labels[block] for block in jacobian.blocks]

        def inner(block: int, logits: Tensor) -> Tensor:
            value, gradient = self.loss.value_and_gradient(logits, labels[block])
            values.append(value)
            return gradient

        gradient = jacobian.through(theta.detach(), inner)
        return math.fsum(values), gradient

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
        if isinstance(jacobian, BlockedFeatures):
            by_block = [self.loss.curvature(logits[block], self.labels[block]) for block in jacobian.blocks]
            return lambda v: jacobian.through(v, lambda block, rows: by_block[block](rows))
        curvature = self.loss.curvature(logits, self.labels)
        return lambda v: jacobian.adjoint(curvature(jacobian.apply(v)))

    @property
    def feature_error(self) -> float | None:
        """A bound on the rounding error of the features in the Frobenius norm; None if they come with none."""
        return None if self.affine_model is None else self.affine_model.feature_error(self.inputs)

    @property
    def longest_sum(self) -> int:
        """At least the number of terms of any sum in a gradient of an affine model."""
        assert self.affine_model is not None
        summed = self.affine_model.summed_nodes(self.inputs, self.rows, nodes=self.nodes)
        return self.affine_model.longest_sum(summed)

    @property
    def num_rows(self) -> int:
        return self.labels.shape[0]

    @property
    def target_norm(self) -> float:
        return float(self.labels.double().norm())

    @property
    def jacobian_width(self) -> int:
        """The number of outputs of an affine model for an item."""
        return self._jacobian.value.shape[1]

    def jacobian(self, theta: Tensor) -> Jacobian:
        """The Jacobian of the logits of `rows` at `theta`."""
        return self._jacobian if self.affine else Jacobian(self.logits, theta)

    @cached_property
    def _jacobian(self) -> Jacobian:
        """The Jacobian of an affine model: the same at every theta, so recorded once."""
        assert self.affine_model is not None
        return self.affine_model.logits_jacobian(self.inputs, self.rows, nodes=self.nodes)

    def _logits_at(self, theta: Tensor) -> Tensor:
        if not self.affine:
            with torch.no_grad():
                return self.logits(theta)
        last, version = self._last_logits, None if theta.is_inference() else theta._version
        if last is not None and last[0] is theta and last[1] == version is not None:
            return last[2]
        logits = self._jacobian.value + self._jacobian.apply(theta.detach())
        if version is not None:
            self._last_logits = theta, version, logits  # a gradient and the curvature at one theta share them
        return logits

    def _recorded_gradient(self, theta: Tensor, *, create_graph: bool) -> tuple[Tensor, Tensor, Tensor]:
        """A copy of theta to differentiate by, the sum there, and its gradient."""
        with torch.enable_grad():
            leaf = theta.detach().clone().requires_grad_()
            total = self.loss(self.logits(leaf), self.labels).sum()
            return leaf, total, torch.autograd.grad(total, leaf, create_graph=create_graph)[0]


class Objective:
    """`F` on the training items of a graph. The L2 term covers every parameter and is part of `F`, never weight decay.

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
        inputs: tuple[Any, Any] | None = None,
    ) -> None:
        if not mu > 0:
            raise InputError(f"mu is {mu}, the weight of the L2 term must be positive")
        self.objective_noise_vector = (
            None if objective_noise_vector is None else objective_noise_vector.to(device=device, dtype=dtype)
        )
        self.graph, self.mu, self.items = graph, mu, items_of(module, graph)
        self.m = self.items.train_rows.numel()
        if not self.m:
            raise InputError(f"there is no training {self.items.word}")
        self._module, self._loss = module, as_loss(loss)
        self._where: dict[str, Any] = {"dtype": dtype, "device": device}
        self.data = LossSum(module, graph, self.items.train_rows, loss=self._loss, inputs=inputs, **self._where)

    def in_single_precision(self) -> Objective:
        """The same in float32: half the time and memory of a product, for solves that need few digits."""
        where = self._where | {"dtype": torch.float32}
        if self._has_fixed_features:  # no need to prepare the graph again
            where["inputs"] = tuple(part if part is None else part.to(torch.float32) for part in self.data.inputs)
        return Objective(
            self._module,
            self.graph,
            mu=self.mu,
            loss=self._loss,
            objective_noise_vector=self.objective_noise_vector,
            **where,
        )

    def with_fresh_features(self) -> Objective:
        """The same with features that are propagated anew, if they followed deletions."""
        inputs = fresh_inputs(self._module, self.graph, device=self._where["device"])
        if inputs is None or inputs[0] is self.data.inputs[0]:
            return self
        given: Any = self._where | {"objective_noise_vector": self.objective_noise_vector, "inputs": inputs}
        return Objective(self._module, self.graph, mu=self.mu, loss=self._loss, **given)

    @property
    def _has_fixed_features(self) -> bool:
        model = self.data.affine_model
        return model is not None and model.has_fixed_features

    def for_newton(self) -> SmoothFunction:
        """The same function, with curvature products in float32 if the features are short and mu is not tiny."""
        model = self.data.affine_model
        if model is None or not self._has_fixed_features or self.mu < SMALLEST_SINGLE_MU:
            return self
        _, squares = self.data.row_norm_sums
        return MixedPrecision(self) if squares <= LARGEST_SINGLE_SQUARE * self.m else self

    def resumed(self, start: Tensor) -> tuple[Tensor, Callable[[Tensor], None] | None]:
        """Where a minimisation from `start` begins, a checkpoint if there is one, and what keeps its points."""
        return start, None

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.data.size

    @property
    def like(self) -> Tensor:
        """An empty tensor of the parameters' type and device."""
        return self.data.like

    def on(self, rows: Tensor, *, reach: Reach) -> LossSum:
        """`sum_{i in rows} l_i` alone, without the L2 term.

        If the reach is known, only the part of the graph that sends messages to `rows` is used.
        """
        if self.items.word != NODE:  # their features are there already
            return LossSum(self._module, self.graph, rows, loss=self._loss, inputs=self.data.inputs, **self._where)
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


class MixedPrecision:
    """An objective with value and gradient in float64 and curvature products in float32."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    @cached_property
    def _single(self) -> Objective:
        return self._objective.in_single_precision()

    def value_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        return self._objective.value_and_gradient(theta)

    def hessian(self, theta: Tensor) -> Product:
        """`v -> (H + mu I) v`, rounded to float32."""
        product = self._single.hessian(theta.to(self._single.like))
        return lambda v: product(v.to(self._single.like)).to(v)


def minimise(objective: Objective, theta: Tensor, *, max_steps: int = 100, **options: Any) -> Minimum:
    """`newton_cg` from `theta`, first with curvature products in float32 where they are likely to do.

    A Newton step needs few digits of the curvature, and the gradient that decides whether a step was good is always
    that of float64. If `SINGLE_STEPS` of them do not converge, the others have products in float64.
    """
    function = objective.for_newton()
    if function is objective:
        theta, on_point = objective.resumed(theta)
        return newton_cg(objective, theta, max_steps=max_steps, on_point=on_point, **options)
    minimum = newton_cg(function, theta, max_steps=min(SINGLE_STEPS, max_steps), **options)
    left = max_steps - minimum.steps
    if minimum.status == "converged" or not left:
        return minimum
    again = newton_cg(objective, minimum.theta, max_steps=left, **options)
    return dataclasses.replace(again, steps=minimum.steps + again.steps, products=minimum.products + again.products)
