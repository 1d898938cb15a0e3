"""Per-node losses, with their first and second derivative in the logits."""
# Longer than 350 lines because the base class asks for the built-in losses, and they are made from it.

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.targets import UNLABELLED, TargetKind
from graphforget.models.captured import first_captured_value
from graphforget.training.loss_values import (
    cross_entropy,
    is_unaltered,
    logistic,
    one_vs_rest,
    softmax,
    softmax_and_cross_entropy,
    squared_error,
)

CROSS_ENTROPY = "cross_entropy"
ONE_VS_REST = "one_vs_rest"
LOGISTIC = "logistic"
SQUARED_ERROR = "squared_error"

LossFunction = Callable[[Tensor, Tensor], Tensor]
Convexity = Literal["proven", "declared", "unknown"]


class Loss:
    """Any callable `(logits, labels) -> one loss per node`. The loss of a node must depend only on that node's logits.

    Args:
        function: The callable.
        name: The name in the recipe; by default the function's own name.
        convex: Declares that it is convex in the logits. Training then uses Newton's method on models that are affine
            in their weights. `check_loss` tests the declaration, but it remains an assumption.
    """

    smoothness = math.inf  # the largest eigenvalue that its curvature in the logits can have
    gradient_scale = 1.0  # the factor by which rounding in softmax or sigmoid enters the gradient in the logits
    declared_convex = False
    targets: TargetKind | None = None  # what it compares the logits with; None: whatever its author made it for

    def steepness(self, classes: int) -> float:
        """The largest norm that its gradient in the logits can have."""
        return math.inf

    def steepness_sum(self, target_norm: float, *, classes: int, total: float, squares: float, norm: float) -> float:
        """A bound on `sum_i q_i ||r_i||`, with `r_i` the gradient in the logits of row `i` of the features.

        `q_i` are the norms of these rows, `total` their sum, `squares` the sum of their squares; the logits are at
        most `q_i norm` long. `target_norm` is that of all targets.
        """
        return self.steepness(classes) * total

    def steepness_norm(self, target_norm: float, *, rows: int, classes: int, squares: float, norm: float) -> float:
        """A bound on `sqrt(sum_i ||r_i||^2)`; everything is as in `steepness_sum`."""
        return self.steepness(classes) * math.sqrt(rows)

    def __init__(self, function: LossFunction, *, name: str | None = None, convex: bool = False) -> None:
        if not callable(function):
            raise InputError(f"the loss is {function!r}, a callable (logits, labels) -> one loss a node is needed")
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        if convex:
            self.declared_convex = True

    @property
    def convexity(self) -> Convexity:
        """Whether it is convex in the logits: "proven" by construction, "declared" by its author, or "unknown"."""
        if is_convex(self):
            return "proven"
        return "declared" if vars(self).get("declared_convex") is True else "unknown"

    def check_classes(self, classes: int) -> None:
        """Raises `InputError` if the loss was made for another number of classes."""

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.function(logits, labels)

    def gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of the summed losses in the logits, row by row."""
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            return torch.autograd.grad(self(logits, labels).sum(), logits)[0]

    def value_and_gradient(self, logits: Tensor, labels: Tensor) -> tuple[float, Tensor]:
        """The sum of the losses, and its derivative in the logits, row by row."""
        return float(self(logits, labels).sum()), self.gradient(logits, labels)

    def curvature(self, logits: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        """`U -> B U`, with `B` the block-diagonal second derivative of the summed losses in the logits."""
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self(logits, labels).sum(), logits, create_graph=True)
        if not slope.requires_grad:
            return torch.zeros_like
        return lambda u: torch.autograd.grad(slope, logits, u, retain_graph=True)[0]


class CrossEntropy(Loss):
    """`-sum_c v_c log softmax(logits)_c` with targets `v = w q`, `q = (1 - s) e_y + s/C`: convex, at least 0.

    As `torch.nn.CrossEntropyLoss` has it: `w` are weights of the classes (1 by default), `s` is the label smoothing
    (0 by default, then the loss is `-w_y log softmax(logits)[y]`). With `W = sum_c v_c` the gradient is `W p - v` and
    the curvature `W (diag(p) - p p^T)`, `p = softmax(logits)`. The name records weights and smoothing.

    >>> CrossEntropy(weight=[1, 2.5], label_smoothing=0.1).name
    'cross_entropy(weight=[1.0,2.5],label_smoothing=0.1)'
    """

    targets: TargetKind | None = "classes"

    def __init__(self, weight: Sequence[float] | Tensor | None = None, label_smoothing: float = 0.0) -> None:
        self.weight = _class_weights(weight)
        self.label_smoothing = _share(label_smoothing)
        given = [] if self.weight is None else [f"weight=[{','.join(map(repr, self.weight))}]"]
        given += [f"label_smoothing={self.label_smoothing!r}"] if self.label_smoothing else []
        super().__init__(cross_entropy, name=f"{CROSS_ENTROPY}({','.join(given)})" if given else CROSS_ENTROPY)
        if self.weight is not None:
            self.gradient_scale = float(self._targets(len(self.weight)).sum(dim=1).max())
        self.smoothness = self.gradient_scale / 2

    def check_classes(self, classes: int) -> None:
        if self.weight is not None and len(self.weight) != classes:
            raise InputError(f"the loss has weights of {len(self.weight)} classes, the graph has {classes} classes")

    def steepness(self, classes: int) -> float:
        """`||W p - v||` at most: a convex function of `p`, so its maximum is at a corner `p = e_k`.

        There its square is `W^2 - 2 W v_k + ||v||^2`, largest for the smallest `v_k`.
        """
        if self._is_plain:
            return math.sqrt(2)
        targets = self._targets(classes)
        total = targets.sum(dim=1)
        squares = total.square() - 2 * total * targets.amin(dim=1) + targets.square().sum(dim=1)
        return math.sqrt(float(squares.max()))

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self._is_plain:
            return cross_entropy(logits, labels)
        targets = self._targets(logits.shape[1]).to(logits)[labels]
        return -(targets * logits.log_softmax(dim=1)).sum(dim=1)

    def gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`W p - v`; without weights and smoothing `softmax(z) - e_y`."""
        gradient = softmax(logits)
        if self._is_plain:
            gradient[torch.arange(labels.numel(), device=labels.device), labels] -= 1
            return gradient
        targets = self._targets(logits.shape[1])
        return gradient * self._totals(targets, logits, labels) - targets.to(logits)[labels]

    def value_and_gradient(self, logits: Tensor, labels: Tensor) -> tuple[float, Tensor]:
        """The sum of the losses, and `softmax(z) - e_y`, with the exponentials computed once."""
        if not self._is_plain:
            return super().value_and_gradient(logits, labels)
        gradient, losses = softmax_and_cross_entropy(logits, labels)
        gradient[torch.arange(labels.numel(), device=labels.device), labels] -= 1
        return float(losses.sum()), gradient

    def curvature(self, logits: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        """`W (diag(p) - p p^T) u` for each row."""
        p = softmax(logits)
        scale = None if self._is_plain else self._totals(self._targets(logits.shape[1]), logits, labels)

        def product(u: Tensor) -> Tensor:
            weighted = p * u
            bent = weighted - p * weighted.sum(dim=1, keepdim=True)
            return bent if scale is None else bent * scale

        return product

    @property
    def _is_plain(self) -> bool:
        return self.weight is None and not self.label_smoothing

    def _targets(self, classes: int) -> Tensor:
        """`v` of each label, a row a label, in float64."""
        targets = torch.full((classes, classes), self.label_smoothing / classes, dtype=torch.float64)
        targets.diagonal().add_(1 - self.label_smoothing)
        return targets if self.weight is None else targets * torch.tensor(self.weight, dtype=torch.float64)

    @staticmethod
    def _totals(targets: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """`W` of each node, as a column."""
        return targets.sum(dim=1, keepdim=True).to(logits)[labels]


class Logistic(Loss):
    """`sum_k log(1 + exp(-s_k z_k))` with `s_k = 1` for a label that is on, -1 for one that is off.

    One logistic regression a label, coupled by nothing: convex, at least 0, with closed derivatives.
    """

    smoothness = 1 / 4
    targets: TargetKind | None = "labels"

    def __init__(self) -> None:
        super().__init__(logistic, name=LOGISTIC)

    def steepness(self, classes: int) -> float:
        """`||sigmoid(z) - y||` at most."""
        return math.sqrt(classes)

    def gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`sigmoid(z) - y`."""
        return logits.sigmoid() - labels.to(logits)

    def curvature(self, logits: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        """`s (1 - s) u` for each number, `s = sigmoid(z)`."""
        s = logits.sigmoid()
        weights = s * (1 - s)
        return lambda u: weights * u


class OneVsRest(Logistic):
    """`sum_k log(1 + exp(-y_k z_k))` with `y_k = 1` for the class, -1 for the others: a logistic regression a class."""

    targets: TargetKind | None = "classes"

    def __init__(self) -> None:
        Loss.__init__(self, one_vs_rest, name=ONE_VS_REST)

    def gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`sigmoid(z) - e_y`."""
        gradient = logits.sigmoid()
        gradient[torch.arange(labels.numel(), device=labels.device), labels] -= 1
        return gradient


class SquaredError(Loss):
    """`||z - y||^2 / 2`: convex, at least 0, with the identity as its curvature."""

    smoothness = 1.0
    targets: TargetKind | None = "values"

    def __init__(self) -> None:
        super().__init__(squared_error, name=SQUARED_ERROR)

    def steepness_sum(self, target_norm: float, *, classes: int, total: float, squares: float, norm: float) -> float:
        """`||r_i|| <= q_i norm + ||y_i||`, and `sum_i q_i ||y_i|| <= sqrt(sum_i q_i^2) ||Y||` (Cauchy and Schwarz)."""
        return squares * norm + math.sqrt(squares) * target_norm

    def steepness_norm(self, target_norm: float, *, rows: int, classes: int, squares: float, norm: float) -> float:
        """`||r_i|| <= q_i norm + ||y_i||`, and the triangle inequality."""
        return math.sqrt(squares) * norm + target_norm

    def gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`z - y`."""
        return logits - labels.to(logits)

    def curvature(self, logits: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        """`u` itself."""
        return torch.clone


def _class_weights(weight: Sequence[float] | Tensor | None) -> tuple[float, ...] | None:
    """The class weights as numbers; None if all of them are 1."""
    if weight is None:
        return None
    try:
        numbers = tuple(float(w) for w in weight)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"the class weights are a {type(weight).__name__}, one number a class is needed") from error
    if not numbers or not all(0 <= w < math.inf for w in numbers) or not any(numbers):
        raise InputError("the class weights must be finite numbers from 0, not all of them 0")
    return None if all(w == 1 for w in numbers) else numbers


def _share(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"label_smoothing is {value!r}, a number from 0 to 1 is needed")
    return float(value)


# -- names and kinds -------------------------------------------------------------------------------------------------

BUILT_IN: dict[str, Callable[[], Loss]] = {
    CROSS_ENTROPY: CrossEntropy,
    ONE_VS_REST: OneVsRest,
    LOGISTIC: Logistic,
    SQUARED_ERROR: SquaredError,
}
DEFAULT: dict[TargetKind, str] = {"classes": CROSS_ENTROPY, "labels": LOGISTIC, "values": SQUARED_ERROR}
WITH_SETTINGS = re.compile(
    rf"{CROSS_ENTROPY}\((?:weight=\[(?P<weight>[^\]]+)\])?(?:(?:(?<=\]),|(?<=\())label_smoothing=(?P<smoothing>[^,]+))?\)"
)


def is_recorded(name: str) -> bool:
    """Whether the loss can be made from its name alone: a built-in loss, with its settings if it has any."""
    return _from_name(name) is not None


def _from_name(name: str) -> Loss | None:
    if name in BUILT_IN:
        return BUILT_IN[name]()
    settings = WITH_SETTINGS.fullmatch(name)
    if settings is None:
        return None
    try:
        weight = None if settings["weight"] is None else [float(w) for w in settings["weight"].split(",")]
        loss = CrossEntropy(weight, float(settings["smoothing"] or 0))
    except (ValueError, InputError):
        return None
    return loss if loss.name == name else None


def is_convex(loss: Loss) -> bool:
    """Whether the loss is convex in the logits by construction: an unaltered built-in loss, by its exact type."""
    if type(loss) not in BUILT_IN.values():
        return False
    original = _from_name(loss.name)
    return type(original) is type(loss) and vars(original) == vars(loss)


def assumed_convex(loss: Loss) -> bool:
    """Whether the loss is convex by construction or declared to be; a declaration is a condition of every claim."""
    return loss.convexity != "unknown"


def as_loss(loss: Loss | LossFunction | str | None, *, targets: TargetKind = "classes") -> Loss:
    """The loss that a caller means: by default the one for these targets, a built-in loss by its name, or the user's.

    A loss of the user cannot have the name of a built-in one.

    `torch.nn.CrossEntropyLoss` becomes the built-in one, with its class weights and label smoothing, and a
    `torch.nn.BCEWithLogitsLoss` without weights becomes `logistic`.
    """
    if loss is None:
        return BUILT_IN[DEFAULT[targets]]()
    if isinstance(loss, str):
        named = _from_name(loss)
        if named is None:
            raise InputError(f"there is no loss {loss!r}, only {', '.join(BUILT_IN)} or a function of one's own")
        return named
    if type(loss) is nn.CrossEntropyLoss and is_unaltered(loss):
        return _from_torch(loss)
    if type(loss) is nn.BCEWithLogitsLoss and is_unaltered(loss) and loss.weight is loss.pos_weight is None:
        return Logistic()
    if not isinstance(loss, Loss):
        loss = Loss(loss)
        loss.name = f"own {loss.name}" if is_recorded(loss.name) else loss.name
    original = _from_name(loss.name)
    if original is None or is_convex(loss):
        return loss
    if isinstance(loss, type(original)) and type(loss) is not type(original):  # a subclass, which computes otherwise
        loss = copy.copy(loss)
        loss.name = f"own {loss.name}"
        return loss
    raise InputError(f"a loss of one's own cannot be named {loss.name!r}")


def _from_torch(loss: nn.CrossEntropyLoss) -> CrossEntropy:
    if loss.ignore_index not in (-100, UNLABELLED):
        raise InputError(
            f"the loss has ignore_index={loss.ignore_index}, take nodes out of train_mask instead of ignoring a class"
        )
    return CrossEntropy(loss.weight, loss.label_smoothing)


def captured_by_loss(loss: Loss) -> list[str]:
    """Captured data in a user's loss, in words; for example class weights that were computed from the data."""
    if is_convex(loss):
        return []
    finding = first_captured_value(loss, registered={})
    return [f"the loss {loss.name!r} holds {finding.kind}, which may carry data"] if finding else []
