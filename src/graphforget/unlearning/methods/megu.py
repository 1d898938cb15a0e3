"""MEGU: a few epochs in which the model and a linear operator on its logits teach each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.linalg.sparse import to_scipy
from graphforget.models.propagation import normalised_adjacency
from graphforget.request.request import Request
from graphforget.training.loss_sum import LossSum
from graphforget.training.scores import can_score
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import MEGU
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.smoothing import correct_and_smooth
from graphforget.unlearning.task import Task
from graphforget.validation import positive_number, whole_number

TEMPERATURE = 1.5
COLUMNS_AT_ONCE = 256
THRESHOLD_STEP = 0.1


@dataclass(frozen=True)
class MeguOptions:
    """The published settings. `smoothing` also measures the published prediction, which repeats old predictions."""

    epochs: int = 30
    learning_rate: float = 0.05
    kappa: float = 0.01
    smoothing: bool = False

    def __post_init__(self) -> None:
        if whole_number(self.epochs, "epochs") == 0:
            raise InputError("epochs is 0, at least 1 is needed")
        positive_number(self.learning_rate, "learning_rate")
        positive_number(self.kappa, "kappa")
        if not isinstance(self.smoothing, bool):
            raise InputError(f"smoothing is {self.smoothing!r}, true or false is needed")


class Megu(Method[MeguOptions], info=MEGU):
    """Gradient descent over the weights and a linear map `g` of logits (docs/peers.md).

    With `o` the logits on the retained graph, `q = g(o)` and `p` the old predictions, the loss is
    `kappa (KD(o, q) - CE(q, p))` on the data to delete, plus `KD(q, o) + CE(o, p)` on the nodes that it influences.
    A deleted node is asked without its edges. The weights are released; `g` is dropped.
    """

    options = MeguOptions
    needs_classes = True

    def unsupported(self, trained: Trained) -> str | None:
        reason = super().unsupported(trained)
        if reason is None and trained.objective_noise_vector is not None:
            return "the model was trained with noise in its objective, which the method would train away"
        return reason

    def gradients(self, trained: Trained) -> int:
        return 2 * MeguOptions.epochs

    def change(self, task: Task, options: MeguOptions) -> MethodResult:
        forgotten = named_nodes(task)
        old = task.trained.logits(task.graph).argmax(dim=1)
        influenced = influenced_nodes(task.graph, forgotten)
        rows = _retained_rows(task, influenced)
        if not rows.numel():
            raise Refused("no retained node is near the data to delete, so nothing can be taught; retrain instead")
        near = task.after.on(rows, reach=task.trained.reach)
        to_forget = _forgotten_losses(task, forgotten)
        old = old.to(task.device)
        theta = _trained_together(task, options, (near, old[influenced]), (to_forget, old[forgotten]))
        if not math.isfinite(float(theta.norm())):
            raise Refused("the training diverged; lower the learning rate, or retrain")
        updated = task.trained.with_update(theta, task.after, task.history_entry(self.name, theta))
        claim, _ = self.claim(task, updated, options)
        details: dict[str, Any] = {"forgotten": forgotten.numel(), "influenced": influenced.numel()}
        details |= {"smoothing": _smoothed(task, updated, old.cpu())} if options.smoothing else {}
        return MethodResult(updated, claim, details=details)

    def claim(self, task: Task, trained: Trained, options: MeguOptions) -> tuple[Claim, dict[str, Any]]:
        return Empirical("the model was trained towards its old predictions near the deleted data"), {}


def named_nodes(task: Task) -> Tensor:
    """The nodes that the request names, and the ends of the edges that it names: rows of the graph before it."""
    resolved = task.request.resolve(task.graph)
    return torch.cat([resolved.node_rows, resolved.edges.flatten(), resolved.full_rows]).unique()


def influenced_nodes(graph: Graph, forgotten: Tensor) -> Tensor:
    """The nodes within two hops whose propagated attributes depend most on the data to delete, without that data.

    The attributes `x` of the forgotten nodes are replaced by `1 - x`, and both versions are propagated twice. A node is
    influenced if the cosine of its two versions is at most a threshold. The threshold grows in steps of 0.1 until the
    largest cosine below it stays the same.
    """
    within = _within(graph, forgotten, hops=2)
    cosines = _cosines(graph, forgotten)[within]
    threshold, largest = THRESHOLD_STEP, -math.inf
    while True:
        below = cosines[cosines <= threshold]
        highest = float(below.max()) if below.size else -math.inf
        if (highest == largest and below.size) or threshold > 1:
            break
        threshold, largest = threshold + THRESHOLD_STEP, highest
    return torch.from_numpy(within[cosines <= threshold])


def _within(graph: Graph, rows: Tensor, *, hops: int) -> np.ndarray:
    """The rows that so many hops reach, without those that they start from."""
    source, target = graph.edge_index.numpy()
    start = np.zeros(graph.num_nodes, dtype=bool)
    start[rows.numpy()] = True
    reached = start.copy()
    for _ in range(hops):
        reached[target[reached[source]]] = True
    return np.flatnonzero(reached & ~start)


def _cosines(graph: Graph, forgotten: Tensor) -> np.ndarray:
    """For each node the cosine of its propagated attributes with those after the flip; a few columns at a time."""
    weight = graph.edge_weight
    matrix = normalised_adjacency(graph.edge_index, graph.num_nodes, dtype=torch.float64, edge_weight=weight)
    propagation = to_scipy(matrix.csr)
    x: Any = to_scipy(graph.x).tocsc() if graph.has_sparse_attributes else graph.x.numpy()
    sums = np.zeros((3, graph.num_nodes))
    rows = forgotten.numpy()
    for first in range(0, graph.num_columns, COLUMNS_AT_ONCE):
        part = x[:, first : first + COLUMNS_AT_ONCE]
        plain = np.asarray(part.todense() if graph.has_sparse_attributes else part, dtype=np.float64)
        flipped = plain.copy()
        flipped[rows] = 1 - plain[rows]
        a, b = (propagation @ (propagation @ each) for each in (plain, flipped))
        sums += np.stack([(a * b).sum(axis=1), (a * a).sum(axis=1), (b * b).sum(axis=1)])
    norms = np.sqrt(sums[1] * sums[2])
    return np.divide(sums[0], norms, out=np.ones_like(norms), where=norms > 0)


def _retained_rows(task: Task, rows: Tensor) -> Tensor:
    return torch.searchsorted(task.retained.numbers, task.graph.numbers[rows])


def _forgotten_losses(task: Task, forgotten: Tensor) -> LossSum:
    """The logits of the data to delete: of deleted nodes without their edges, of others on the retained graph."""
    graph, numbers = task.graph, task.graph.numbers[forgotten]
    stays = torch.isin(numbers, task.retained.numbers)
    if stays.all():
        rows = torch.searchsorted(task.retained.numbers, numbers)
        return task.after.on(rows, reach=task.trained.reach)
    keep = torch.zeros(graph.num_nodes, dtype=torch.bool)
    keep[forgotten] = True
    alone = graph.induced(keep)
    ends = [(u, v) for u, v in alone.edge_index.T.tolist() if alone.directed or u <= v]
    edges = [(alone.name_of(u), alone.name_of(v)) for u, v in ends]
    alone = alone.without(Request(edges=edges)) if edges else alone
    trained = task.trained
    return LossSum(trained.module, alone, torch.arange(alone.num_nodes), loss=trained.loss, device=task.device)


def _trained_together(
    task: Task, options: MeguOptions, near: tuple[LossSum, Tensor], to_forget: tuple[LossSum, Tensor]
) -> Tensor:
    """Gradient descent over the weights and the operator `g`, which starts as torch's linear layers do."""
    classes = task.graph.num_classes
    seed = task.trained.recipe.seed if task.seed is None else task.seed
    generator = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(classes)
    drawn = (2 * torch.rand(classes + 1, classes, dtype=torch.float64, generator=generator) - 1) * bound
    operator = drawn.to(task.device)
    theta = task.theta
    for done in range(options.epochs):
        task.progress("mutual training", done, options.epochs)
        jacobians = [sums.jacobian(theta) for sums, _ in (near, to_forget)]
        logits = [
            (jacobian.value + jacobian.apply(theta) if sums.affine else jacobian.value).detach().requires_grad_()
            for jacobian, (sums, _) in zip(jacobians, (near, to_forget), strict=True)
        ]
        leaf = operator.clone().requires_grad_()
        with torch.enable_grad():
            loss = _mutual_loss(logits[0], near[1], logits[1], to_forget[1], leaf, kappa=options.kappa)
            *by_logits, by_operator = torch.autograd.grad(loss, [*logits, leaf])
        gradient = sum((j.adjoint(u) for j, u in zip(jacobians, by_logits, strict=True)), torch.zeros_like(theta))
        theta = theta - options.learning_rate * gradient
        operator = operator - options.learning_rate * by_operator
    return theta


def _mutual_loss(
    near: Tensor, near_old: Tensor, lost: Tensor, lost_old: Tensor, operator: Tensor, *, kappa: float
) -> Tensor:
    near_mapped, lost_mapped = (each @ operator[:-1] + operator[-1] for each in (near, lost))
    forget = _distilled(lost, lost_mapped) - functional.cross_entropy(lost_mapped, lost_old)
    keep = _distilled(near_mapped, near) + functional.cross_entropy(near, near_old)
    return kappa * forget + keep


def _distilled(student: Tensor, teacher: Tensor) -> Tensor:
    """`KL(softmax(teacher / 1.5), softmax(student / 1.5))`; the teacher does not learn."""
    target = (teacher.detach() / TEMPERATURE).softmax(dim=1)
    return functional.kl_div((student / TEMPERATURE).log_softmax(dim=1), target, reduction="batchmean")


def _smoothed(task: Task, updated: Trained, old: Tensor) -> dict[str, float | None]:
    """Scores of the published prediction, and how often it repeats the old model on training nodes."""
    graph = task.retained
    logits, train = updated.logits(graph), graph.train_mask
    old = old[torch.searchsorted(task.graph.numbers, graph.numbers)]
    smooth = correct_and_smooth(logits.softmax(dim=1), graph, old).argmax(dim=1)
    plain, test = logits.argmax(dim=1), graph.test_mask
    scored = can_score("classes", graph.y[test])

    def share(predicted: Tensor, wanted: Tensor, mask: Tensor) -> float:
        return float((predicted[mask] == wanted[mask]).double().mean())

    return {
        "micro_f1": share(smooth, graph.y, test) if scored else None,
        "micro_f1_without": share(plain, graph.y, test) if scored else None,
        "repeats_old": share(smooth, old, train),
        "repeats_old_without": share(plain, old, train),
    }
