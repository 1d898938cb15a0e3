"""GNNDelete: operators on the embeddings of the nodes around deleted data; the weights of the model stay."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.models.deletion import DeletionInputs, DeletionModel, two_layers
from graphforget.models.items import GRAPH, view_of
from graphforget.models.parameters import flatten
from graphforget.request.request import Request
from graphforget.training.recipe import HistoryEntry
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import GNNDELETE
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.task import Task
from graphforget.validation import positive_number, whole_number

Start = Literal["published", "identity"]
PUBLISHED_START = 1e-3  # every entry of an operator, in the released code


@dataclass(frozen=True)
class GnnDeleteOptions:
    """The published settings of the released script: `alpha` weighs the two losses, Adam trains each operator."""

    epochs: int = 1500
    learning_rate: float = 1e-3
    alpha: float = 0.5
    start: Start = "published"

    def __post_init__(self) -> None:
        if whole_number(self.epochs, "epochs") == 0:
            raise InputError("epochs is 0, at least 1 is needed")
        positive_number(self.learning_rate, "learning_rate")
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, int | float) or not 0 <= self.alpha <= 1:
            raise InputError(f"alpha is {self.alpha!r}, a number from 0 to 1 is needed")
        if self.start not in get_args(Start):
            raise InputError(f"start is {self.start!r}, it must be {' or '.join(get_args(Start))}")


@dataclass(frozen=True, eq=False)
class Targets:
    """Rows of the retained graph: the ends of deleted items with a random node for each, and the other masked nodes."""

    ends: Tensor
    decoys: Tensor
    others: tuple[Tensor, Tensor]  # for each layer


class GnnDelete(Method[GnnDeleteOptions], info=GNNDELETE):
    """For each layer `alpha DEC + (1 - alpha) NI` is minimised over its operator, the weights stay (docs/peers.md).

    DEC draws the embeddings of the ends of deleted items to those of random nodes. NI holds the embeddings of the other
    nodes within reach to those of the old model. Both are means of squared differences on the retained graph.
    """

    options = GnnDeleteOptions
    takes_items = True
    keeps_untouched = False  # the operator may act on nodes that do not train

    def unsupported(self, trained: Trained) -> str | None:
        reason = super().unsupported(trained)
        if reason is not None:
            return reason
        if trained.objective_noise_vector is not None:
            return "the model was trained with noise in its objective, which the operators would undo"
        view = view_of(trained.module)
        if two_layers(trained.module) is None or (view is not None and view.word == GRAPH):
            return "it needs two layers of the models 'gcn' or 'sage', or the model 'link-gcn'"
        return None

    def check(self, trained: Trained, graph: Graph, request: Request) -> None:
        super().check(trained, graph, request)
        if graph.edge_weight is not None:
            raise InputError(
                "method 'gnndelete' does not work here: the graph has edge weights, and its operators read none"
            )

    def gradients(self, trained: Trained) -> int:
        return GnnDeleteOptions.epochs

    def change(self, task: Task, options: GnnDeleteOptions) -> MethodResult:
        ends, masks = _neighbourhoods(task)
        if not masks[1].numel():
            raise Refused(
                "no retained node is near the data to delete, so the operators of 'gnndelete' would act on nothing and "
                "nothing would be forgotten; retrain instead (method 'retrain')"
            )
        start = PUBLISHED_START if options.start == "published" else None
        numbers = tuple(task.retained.numbers[each] for each in masks)
        module = DeletionModel(task.trained.module, (numbers[0], numbers[1]), start=start)
        module.to(device=task.device, dtype=torch.float64)
        initial = flatten(module)
        decoys = _random_nodes(task, ends.numel())
        others = (masks[0][~torch.isin(masks[0], ends)], masks[1][~torch.isin(masks[1], ends)])
        losses = _train_operators(module, task, Targets(ends, decoys, others), options)
        updated = _updated(task, module, initial)
        if torch.equal(updated.logits(task.retained), task.trained.logits(task.retained)):
            raise Refused(
                "the operators of 'gnndelete' change no answer, so nothing was forgotten; give alpha and the learning "
                "rate larger values, or retrain instead (method 'retrain')"
            )
        claim, _ = self.claim(task, updated, options)
        details = {"ends": ends.numel(), "first": masks[0].numel(), "second": masks[1].numel(), "losses": losses}
        return MethodResult(updated, claim, details=details)

    def claim(self, task: Task, trained: Trained, options: GnnDeleteOptions) -> tuple[Claim, dict[str, Any]]:
        return Empirical("the weights still hold the deleted data, behind operators that are trained to hide it"), {}


def _neighbourhoods(task: Task) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The ends of deleted items, one for each, and the nodes within one and two hops of them, as retained rows."""
    graph, resolved = task.graph, task.request.resolve(task.graph)
    n, (source, target) = graph.num_nodes, graph.edge_index
    removed = torch.zeros(n, dtype=torch.bool)
    removed[resolved.node_rows] = True
    beside = target[removed[source] & ~removed[target]]
    attributes = torch.cat([resolved.full_rows, resolved.partial_rows]).unique()
    ends = torch.cat([resolved.edges.flatten() if graph.directed else resolved.edges[0], beside, attributes])
    ends = ends[~removed[ends]]
    reached = torch.zeros(n, dtype=torch.bool)
    reached[ends] = True
    masks = []
    for _ in range(2):
        reached = reached.clone()
        reached[target[reached[source]]] = True
        masks.append((reached & ~removed).nonzero().flatten())
    after = (~removed).cumsum(dim=0) - 1
    return after[ends], (after[masks[0]], after[masks[1]])


def _random_nodes(task: Task, count: int) -> Tensor:
    """Random retained rows, by the seed of the request or else of the training."""
    seed = task.trained.recipe.seed if task.seed is None else task.seed
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(task.retained.num_nodes, (count,), generator=generator)


def _train_operators(module: DeletionModel, task: Task, targets: Targets, options: GnnDeleteOptions) -> list[float]:
    """Trains both operators, layer by layer and epoch by epoch. Returns the last loss of each layer."""
    given: Any = {"dtype": torch.float64, "device": task.device}
    x, inputs = module.item_inputs(task.retained, **given)
    nowhere = torch.zeros(0, dtype=torch.int64, device=task.device)
    with torch.no_grad():
        old = module.layers(x, DeletionInputs(inputs.propagation, inputs.places, (nowhere, nowhere)))
    operators = (module.first_operator, module.second_operator)
    optimisers = [torch.optim.Adam([each], lr=options.learning_rate) for each in operators]
    values = [0.0, 0.0]
    module.train()
    for done in range(options.epochs):
        task.progress("operators", done, options.epochs)
        for layer, optimiser in enumerate(optimisers):
            optimiser.zero_grad()
            now = module.layers(x, inputs)[layer]
            loss = _loss(now, old[layer], targets, layer, alpha=options.alpha)
            (operators[layer].grad,) = torch.autograd.grad(loss, operators[layer])
            optimiser.step()
            values[layer] = float(loss.detach())
    module.eval()
    return values


def _loss(now: Tensor, old: Tensor, targets: Targets, layer: int, *, alpha: float) -> Tensor:
    total = now.new_zeros(())
    for share, rows, wanted in (
        (alpha, targets.ends, targets.decoys),
        (1 - alpha, targets.others[layer], targets.others[layer]),
    ):
        if rows.numel():
            total = total + share * functional.mse_loss(now[rows], old[wanted])
    return total + 0.0 * now.sum()


def _updated(task: Task, module: DeletionModel, initial: Tensor) -> Trained:
    """The model with its operators, on the retained graph. It was one without them before."""
    trained, theta = task.trained, flatten(module).cpu()
    entry = HistoryEntry(
        method=GNNDELETE.name,
        m=trained.items(task.graph).num_training,
        removed=task.touched.num_removed,
        affected=task.touched.num_affected,
        step_norm=float((theta - initial.cpu()).norm()),
        gradient_norm=trained.gradient_norm,
    )
    history = (*trained.history, entry)
    moved = dataclasses.replace(trained, module=module.to("cpu"), theta=theta, history=history)
    return moved.measured_on(moved.objective(task.retained, device=task.device))
