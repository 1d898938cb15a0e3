"""ScaleGUN: CGU's step and budget on features that are propagated lazily, with two counts of their error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.linalg.forward_push import PushState
from graphforget.linalg.sparse import DenseMatrix
from graphforget.models.fixed import FixedPropagation
from graphforget.models.lazy_propagation import features_after, pushed_features
from graphforget.request.request import Request
from graphforget.training.objective import Objective
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import SCALEGUN
from graphforget.unlearning.methods.cgu import Budget, BudgetedNewton
from graphforget.unlearning.task import Task
from graphforget.validation import positive_number

Certificate = Literal["corrected", "published"]
SLOPE, SLOPE_LIPSCHITZ = 1.0, 0.25  # of the logistic loss: the largest derivative, and how fast it changes


@dataclass(frozen=True)
class ScaleGunOptions:
    """How the error of the features is counted, and up to which residue nothing is pushed.

    "corrected" counts absolute residues, for all classes together in one budget, with the gradient that training left.
    "published" decides as the released code does: by the signed sum of residues, and by as many budgets as classes. In
    both cases the epsilon of the claim follows from the corrected count.
    """

    certificate: Certificate = "corrected"
    rmax: float = 1e-9

    def __post_init__(self) -> None:
        if self.certificate not in get_args(Certificate):
            allowed = " or ".join(get_args(Certificate))
            raise InputError(f"the certificate is {self.certificate!r}, it must be {allowed}")
        positive_number(self.rmax, "rmax")

    @property
    def budget(self) -> Budget:
        return "joint" if self.certificate == "corrected" else "published"


class ScaleGun(BudgetedNewton[ScaleGunOptions], info=SCALEGUN):
    """CGU's step with features `Z` that a push computes up to an error (docs/peers.md, "ScaleGUN").

    `grad L'(theta'; Z') = grad L(theta; Z)` + the remainder of the step + the errors of both features. The remainder is
    that of CGU. `gradient_error` bounds the errors, before the step and after it.
    """

    options = ScaleGunOptions

    def unsupported(self, trained: Trained) -> str | None:
        module = trained.module
        if isinstance(module, FixedPropagation) and not (module.symmetric_propagation and len(module.powers) == 1):
            return "it needs one power of the symmetric propagation, as the model 'scalegun' has"
        if isinstance(module, FixedPropagation) and module.powers == (0,):
            return "the model has 0 hops, so there is nothing to push: method 'cgu' takes the same step"
        return super().unsupported(trained)

    def check(self, trained: Trained, graph: Graph, request: Request) -> None:
        super().check(trained, graph, request)
        if graph.directed:
            raise InputError(
                "method 'scalegun' does not work here: the graph is directed, and its push needs both ways"
            )
        if graph.edge_weight is not None:
            raise InputError(
                "method 'scalegun' does not work here: the graph has edge weights, and its push counts neighbours"
            )

    def objectives(self, task: Task, options: ScaleGunOptions) -> tuple[Objective, Objective]:
        states = _states(task, options)
        pairs = zip((task.graph, task.retained), states, strict=True)
        before, after = (_objective(task.trained, graph, state, device=task.device) for graph, state in pairs)
        return before, after

    def feature_error(self, task: Task, options: ScaleGunOptions, theta: Tensor) -> float:
        before, after = _states(task, options)
        module = _module(task.trained)
        return gradient_error(module, before, task.theta) + gradient_error(module, after, theta)

    def counted_by_class(self, by_class: Tensor, added: float) -> float:
        return float(by_class.sum())  # the published count leaves out everything else

    def spending(self, updated: Trained, task: Task, options: ScaleGunOptions) -> tuple[float, float]:
        spent, allowed = super().spending(updated, task, options)
        if options.budget == "published":  # the first term is read anew for every request
            _, after = _states(task, options)
            spent += published_error(after, classes=task.graph.num_classes)
        return spent, allowed


def gradient_error(module: FixedPropagation, state: PushState, theta: Tensor) -> float:
    """A bound on `||grad L(theta; Z) - grad L(theta; Z^)||` over all classes, `Z^` the features of the state.

    With `s_j` at least the sum of the absolute errors of column j over all nodes, the part of class k is at most
    `||s|| + (1/4) max_i ||z_i|| sum_j |w_jk| s_j`: a slope of at most 1 times the error of a row, and the change of the
    slope times the row. `max_i ||z_i||` is at most that of `Z^` plus `||s||`.
    """
    sums = state.absolute_residues
    error = float(np.linalg.norm(sums))
    longest = float(np.linalg.norm(state.features, axis=1).max(initial=0.0)) + error
    weight, _ = module.parts(theta)
    slopes = weight.detach().abs().squeeze(0).T.cpu().numpy() @ sums
    return float(np.linalg.norm(SLOPE * error + SLOPE_LIPSCHITZ * longest * slopes))


def published_error(state: PushState, *, classes: int) -> float:
    """`2 C ||1^T R||` with the signed sum of the residues, as the released code counts it. It is no bound."""
    return 2 * classes * float(np.linalg.norm(state.signed_residues))


def _module(trained: Trained) -> FixedPropagation:
    assert isinstance(trained.module, FixedPropagation)
    return trained.module


def _states(task: Task, options: ScaleGunOptions) -> tuple[PushState, PushState]:
    module = _module(task.trained)
    before = pushed_features(module, task.graph, rmax=options.rmax)
    return before, features_after(module, task.graph, task.retained, task.request, rmax=options.rmax)


def _objective(trained: Trained, graph: Graph, state: PushState, *, device: str) -> Objective:
    features = torch.from_numpy(state.features).to(device)
    inputs = DenseMatrix(features), features.norm(dim=1)
    given: Any = {"objective_noise_vector": trained.objective_noise_vector, "device": device, "inputs": inputs}
    return Objective(trained.module, graph, mu=trained.recipe.mu, loss=trained.loss, **given)
