"""The values of the built-in losses, one a row, what their derivatives share, and when those of torch are the same."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    by_class = logits.T.contiguous()
    return -by_class.log_softmax(dim=0).gather(0, labels.unsqueeze(0)).squeeze(0)


def softmax(logits: Tensor) -> Tensor:
    """By rows, computed by columns: torch's sums over few numbers that lie side by side take five times as long."""
    return logits.T.contiguous().softmax(dim=0).T.contiguous()


def softmax_and_cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Both from one pass of exponentials."""
    by_class = logits.T.contiguous()
    largest = by_class.amax(dim=0)
    chosen = by_class.gather(0, labels.unsqueeze(0)).squeeze(0)
    powers = by_class.sub(largest).exp_()  # not in place: one row is its own transpose
    total = powers.sum(dim=0)
    return powers.div_(total).T.contiguous(), total.log_().add_(largest).sub_(chosen)


def logistic(logits: Tensor, labels: Tensor) -> Tensor:
    signs = 2 * labels.to(logits) - 1
    return -F.logsigmoid(signs * logits).sum(dim=1)  # torch's softplus gives up log(1 + exp(-z)) at z = 20


def one_vs_rest(logits: Tensor, labels: Tensor) -> Tensor:
    return logistic(logits, F.one_hot(labels, logits.shape[1]))


def squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits - labels.to(logits)).square().sum(dim=1) / 2


def is_unaltered(loss: nn.Module) -> bool:
    """Whether the loss computes what its type does: it has no `forward` of its own, and no hook."""
    hooked = any(value for name, value in vars(loss).items() if name.endswith("_hooks"))
    return vars(loss).keys() == vars(type(loss)()).keys() and not hooked
