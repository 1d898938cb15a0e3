"""Per-node losses, with their first and second derivative in the logits."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from graphforget.captured import first_finding
from graphforget.errors import InputError

CROSS_ENTROPY = "cross_entropy"
ONE_VS_REST = "one_vs_rest"

LossFunction = Callable[[Tensor, Tensor], Tensor]


class Loss:
    """Any callable `(logits, labels) -> one loss a node`. Each loss must depend on its own node's logits alone."""

    smoothness = math.inf  # the largest eigenvalue that its curvature in the logits can have

    def steepness(self, classes: int) -> float:
        """The largest norm that its gradient in the logits can have."""
        return math.inf

    def __init__(self, function: LossFunction, *, name: str | None = None) -> None:
        if not callable(function):
            raise InputError(f"the loss is {function!r}, a callable (logits, labels) -> one loss a node is needed")
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.function(logits, labels)

    def gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The derivative of the summed losses in the logits, row by row."""
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            return torch.autograd.grad(self(logits, labels).sum(), logits)[0]

    def curvature(self, logits: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        """`U -> B U`, with `B` the block-diagonal second derivative of the summed losses in the logits."""
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self(logits, labels).sum(), logits, create_graph=True)
        if not slope.requires_grad:
            return torch.zeros_like
        return lambda u: torch.autograd.grad(slope, logits, u, retain_graph=True)[0]


class CrossEntropy(Loss):
    """`-log softmax(logits)[label]`: convex, at least 0, with closed derivatives."""

    smoothness = 1 / 2

    def steepness(self, classes: int) -> float:
        """`||softmax(z) - e_y||` at most."""
        return math.sqrt(2)

    def __init__(self) -> None:
        super().__init__(_cross_entropy, name=CROSS_ENTROPY)

    def gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`softmax(z) - e_y`."""
        gradient = _softmax(logits)
        gradient[torch.arange(labels.numel(), device=labels.device), labels] -= 1
        return gradient

    def curvature(self, logits: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        """`(diag(p) - p p^T) u` for each row."""
        p = _softmax(logits)

        def product(u: Tensor) -> Tensor:
            weighted = p * u
            return weighted - p * weighted.sum(dim=1, keepdim=True)

        return product


class OneVsRest(Loss):
    """`sum_k log(1 + exp(-y_k z_k))` with `y_k = 1` for the label, -1 for the others: a logistic regression a class.

    Convex, at least 0, with closed derivatives; the classes are coupled by nothing.
    """

    smoothness = 1 / 4

    def __init__(self) -> None:
        super().__init__(_one_vs_rest, name=ONE_VS_REST)

    def steepness(self, classes: int) -> float:
        """`||sigmoid(z) - e_y||` at most."""
        return math.sqrt(classes)

    def gradient(self, logits: Tensor, labels: Tensor) -> Tensor:
        """`sigmoid(z) - e_y`."""
        gradient = logits.sigmoid()
        gradient[torch.arange(labels.numel(), device=labels.device), labels] -= 1
        return gradient

    def curvature(self, logits: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        """`s (1 - s) u` for each number, `s = sigmoid(z)`."""
        s = logits.sigmoid()
        weights = s * (1 - s)
        return lambda u: weights * u


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    by_class = logits.T.contiguous()
    return -by_class.log_softmax(dim=0).gather(0, labels.unsqueeze(0)).squeeze(0)


def _softmax(logits: Tensor) -> Tensor:
    """By rows, computed by columns: torch's sums over few numbers that lie side by side take five times as long."""
    return logits.T.contiguous().softmax(dim=0).T.contiguous()


def _one_vs_rest(logits: Tensor, labels: Tensor) -> Tensor:
    signs = torch.full_like(logits, -1.0).scatter_(1, labels.unsqueeze(1), 1.0)
    return -F.logsigmoid(signs * logits).sum(dim=1)  # torch's softplus gives up log(1 + exp(-z)) at z = 20


BUILT_IN: dict[str, type[CrossEntropy] | type[OneVsRest]] = {CROSS_ENTROPY: CrossEntropy, ONE_VS_REST: OneVsRest}


def is_convex(loss: Loss) -> bool:
    """Whether the loss is convex in the logits by construction: a built-in one itself, nothing that claims to be."""
    return type(loss) in BUILT_IN.values()


def as_loss(loss: Loss | LossFunction | str | None) -> Loss:
    """The default is cross-entropy; a built-in loss goes by its name, and no loss of one's own can."""
    if loss is None:
        return CrossEntropy()
    if isinstance(loss, str):
        if loss not in BUILT_IN:
            raise InputError(f"there is no loss {loss!r}, only {', '.join(BUILT_IN)} or a function of one's own")
        return BUILT_IN[loss]()
    if not isinstance(loss, Loss):
        loss = Loss(loss)
        loss.name = f"own {loss.name}" if loss.name in BUILT_IN else loss.name
    if loss.name in BUILT_IN and not isinstance(loss, BUILT_IN[loss.name]):
        raise InputError(f"a loss of one's own cannot be named {loss.name!r}")
    return loss


def captured_by_loss(loss: Loss) -> list[str]:
    """What a loss of one's own brings along that may be data: class weights that were counted on the data, say."""
    if is_convex(loss):
        return []
    finding = first_finding(loss, registered={})
    return [f"the loss {loss.name!r} holds {finding}"] if finding else []


def check_loss(loss: Loss, *, classes: int) -> None:
    """Tries the loss on random logits, or else on probabilities, in float64.

    It must give one finite loss a node that depends on that node alone.
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, classes, generator=generator, dtype=torch.float64)
    labels = torch.arange(7) % classes
    try:
        loss(logits.float(), labels)
    except Exception as error:
        told = " ".join(str(error).split())
        raise InputError(f"the loss {loss.name!r} does not run in float32, which training uses: {told}") from error
    for outputs in (logits, logits.softmax(dim=1)):
        try:
            together, apart = loss(outputs, labels), loss(outputs[2:5], labels[2:5])
        except Exception as error:
            raise InputError(
                f"the loss {loss.name!r} does not run in float64: {' '.join(str(error).split())}"
            ) from error
        if not isinstance(together, Tensor) or together.shape != (7,):
            shape = tuple(together.shape) if isinstance(together, Tensor) else type(together).__name__
            raise InputError(f"the loss {loss.name!r} gives {shape} for 7 nodes, one loss a node is needed")
        if torch.isfinite(together).all():
            break
    else:
        raise InputError(f"the loss {loss.name!r} is not finite, neither on logits nor on probabilities")
    if not torch.allclose(together[2:5], apart, rtol=1e-9, atol=1e-12):
        raise InputError(f"the loss {loss.name!r} of a node depends on other nodes")
