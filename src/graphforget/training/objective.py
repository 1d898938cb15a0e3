"""`F(theta) = (1/m) (sum_i l_i(theta; G) + b . theta) + (mu/2) ||theta||^2`: value, gradient, curvature products."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.linalg.newton import Minimum, newton_cg
from graphforget.linalg.solution import Preconditioner, Product
from graphforget.models.inputs import fresh_inputs
from graphforget.models.items import NODE, items_of
from graphforget.training.loss_sum import LossSum
from graphforget.training.losses import Loss, LossFunction, as_loss

SINGLE_STEPS = 30  # of Newton's method with products in float32
SMALLEST_SINGLE_MU = 1e-6  # with less curvature, products in float32 cost more steps than they save
LARGEST_SINGLE_SQUARE = 1e4  # the mean squared length of rows of features up to which they are used


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

    def for_newton(self) -> Objective | MixedPrecision:
        """The same function, with curvature products in float32 if the features are short and mu is not tiny."""
        model = self.data.affine_model
        if model is None or not self._has_fixed_features or self.mu < SMALLEST_SINGLE_MU:
            return self
        _, squares = self.data.row_norm_sums
        return MixedPrecision(self) if squares <= LARGEST_SINGLE_SQUARE * self.m else self

    def resumed(self, start: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Where a minimisation from `start` begins, a checkpoint if there is one, and more options of `newton_cg`."""
        return start, {}

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

    def preconditioner(self, theta: Tensor) -> Preconditioner | None:
        """One for the curvature there, if the outputs share their features and are many enough."""
        return self._single.data.preconditioner(theta.to(self._single.like), mu=self._single.mu)


def minimise(
    objective: Objective,
    theta: Tensor,
    *,
    max_steps: int = 100,
    known: Preconditioner | None = None,
    learn_ritz: bool = False,
    **options: Any,
) -> Minimum:
    """`newton_cg` from `theta`, first with curvature products in float32 where they are likely to do.

    A Newton step needs few digits of the curvature, and the gradient that decides whether a step was good is always
    that of float64. If `SINGLE_STEPS` of them do not converge, the others have products in float64. The solves in
    float32 are preconditioned: by `known` if it is there, from an earlier minimisation.
    """
    function = objective.for_newton()
    if isinstance(function, Objective):
        theta, more = objective.resumed(theta)
        return newton_cg(objective, theta, max_steps=max_steps, **options, **more)
    fits = known is not None and known.size == theta.numel()
    single: Any = {"preconditioner": function.preconditioner, "known": known if fits else None}
    single |= {"learn_ritz": learn_ritz, "solve_dtype": torch.float32}
    minimum = newton_cg(function, theta, max_steps=min(SINGLE_STEPS, max_steps), **single, **options)
    left = max_steps - minimum.steps
    if minimum.status == "converged" or not left:
        return minimum
    again = newton_cg(objective, minimum.theta, max_steps=left, **options)
    return dataclasses.replace(again, steps=minimum.steps + again.steps, products=minimum.products + again.products)
