"""`sum_i l_i(theta; G)` over some items: value, gradient, curvature products, and a preconditioner for these."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.graph.graph import Graph
from graphforget.graph.targets import as_numbers
from graphforget.linalg.blocked import BlockedFeatures
from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.preconditioner import low_rank_preconditioner
from graphforget.linalg.solution import Preconditioner, Product
from graphforget.models.affine import AffineModel
from graphforget.models.inputs import model_inputs
from graphforget.models.items import items_of, view_of
from graphforget.models.parameters import call_with, trainable
from graphforget.models.registry import is_affine
from graphforget.training.losses import Loss

FEWEST_OUTPUTS = 5  # with fewer, a preconditioner of so low a rank saves less than it costs
SIGNS = 64  # different rows of random signs


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
        self.loss, self._weighted = loss, graph.edge_weight is not None
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

    def preconditioner(self, theta: Tensor, *, mu: float) -> Preconditioner | None:
        """A preconditioner for the curvature of the mean loss with the L2 term, if the outputs share their features."""
        outputs = self.jacobian_width
        if not self._jacobian.has_shared_features or outputs < FEWEST_OUTPUTS:
            return None
        curvature = self.loss.curvature(self._logits_at(theta), self.labels)
        few = 2.0 * torch.randint(0, 2, (SIGNS, outputs), generator=torch.Generator().manual_seed(0)) - 1
        signs = few.to(self.like).repeat(-(-self.num_rows // SIGNS), 1)[: self.num_rows]
        weights = (signs * curvature(signs)).sum(dim=1).clamp_min(0) / outputs  # about the mean of the diagonal
        return low_rank_preconditioner(self._jacobian, weights, mu=mu)

    @property
    def feature_error(self) -> float | None:
        """A bound on the rounding error of the features in the Frobenius norm; None if they come with none."""
        return None if self.affine_model is None else self.affine_model.feature_error(self.inputs)

    @property
    def longest_sum(self) -> int:
        """At least the number of terms of any sum in a gradient of an affine model; weights are summed up too."""
        assert self.affine_model is not None
        summed = self.affine_model.summed_nodes(self.inputs, self.rows, nodes=self.nodes)
        return self.affine_model.longest_sum(2 * summed + 10 if self._weighted else summed)

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
