"""Checks a loss on random logits before it is used in training."""

from __future__ import annotations

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.targets import TargetKind, as_numbers
from graphforget.training.losses import CROSS_ENTROPY, Loss, LossFunction, as_loss

ROWS = 256  # random logits in every trial of convexity


def loss_for(
    loss: Loss | LossFunction | str | None, *, targets: TargetKind, default: str = CROSS_ENTROPY, model: str = ""
) -> Loss:
    """The loss that a caller means for these targets; `default` is that of the model, for classes.

    Raises:
        InputError: There is no such loss, or it is made for other targets.
    """
    if loss is None and (default != CROSS_ENTROPY or targets == "classes"):
        chosen = as_loss(default)
        if chosen.targets not in (None, targets):
            raise InputError(f"model {model!r} has the loss {chosen.name!r}, and the graph has {targets}")
        return chosen
    chosen = as_loss(loss, targets=targets)
    if chosen.targets not in (None, targets):
        raise InputError(f"the loss {chosen.name!r} is for {chosen.targets}, and the graph has {targets}")
    return chosen


def check_loss(loss: Loss, *, classes: int, targets: TargetKind = "classes") -> None:
    """Tries the loss on random logits, or else on probabilities, in float64.

    It must give one finite loss a node that depends on that node alone. A loss that is declared convex must look so.
    """
    loss.check_classes(classes)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, classes, generator=generator, dtype=torch.float64)
    labels = _random_targets(7, classes, targets)
    try:
        loss(logits.float(), as_numbers(labels, logits.float()))
    except Exception as error:
        raise InputError(
            f"the loss {loss.name!r} does not run in float32, which training uses: {_in_one_line(error)}"
        ) from error
    for outputs in (logits, logits.softmax(dim=1)):
        try:
            together, apart = loss(outputs, labels), loss(outputs[2:5], labels[2:5])
        except Exception as error:
            raise InputError(f"the loss {loss.name!r} does not run in float64: {_in_one_line(error)}") from error
        if not isinstance(together, Tensor) or together.shape != (7,):
            shape = tuple(together.shape) if isinstance(together, Tensor) else type(together).__name__
            advice = ', use reduction="none"' if shape == () else ""
            raise InputError(f"the loss {loss.name!r} gives {shape} for 7 nodes, one loss a node is needed{advice}")
        if torch.isfinite(together).all():
            break
    else:
        raise InputError(f"the loss {loss.name!r} is not finite, neither on logits nor on probabilities")
    if not torch.allclose(together[2:5], apart, rtol=1e-9, atol=1e-12):
        raise InputError(f"the loss {loss.name!r} of a node depends on other nodes")
    if loss.convexity == "declared":
        _try_convexity(loss, classes, targets)


def _random_targets(rows: int, outputs: int, kind: TargetKind) -> Tensor:
    if kind == "classes":
        return torch.arange(rows) % outputs
    generator = torch.Generator().manual_seed(2)
    if kind == "labels":
        return torch.randint(0, 2, (rows, outputs), generator=generator, dtype=torch.float64)
    return torch.randn(rows, outputs, generator=generator, dtype=torch.float64)


def _try_convexity(loss: Loss, classes: int, targets: TargetKind) -> None:
    """Checks midpoints and second derivatives at random logits of several sizes: evidence of convexity, not proof."""
    generator = torch.Generator().manual_seed(1)
    labels = _random_targets(ROWS, classes, targets)
    for size in (0.1, 1.0, 10.0):
        left, right, direction = torch.randn(3, ROWS, classes, generator=generator, dtype=torch.float64) * size
        try:
            ends, middle = (loss(left, labels) + loss(right, labels)) / 2, loss((left + right) / 2, labels)
            bent = loss.curvature(left, labels)(direction)
        except Exception as error:
            raise InputError(
                f"the loss {loss.name!r} is declared convex and has no second derivative: {_in_one_line(error)}"
            ) from error
        if not (torch.isfinite(ends) & torch.isfinite(middle) & torch.isfinite(bent).all(dim=1)).all():
            raise InputError(f"the loss {loss.name!r} is declared convex and is not finite on logits of size {size}")
        below = ends - middle < -1e-9 * (1 + ends.abs())
        downwards = (direction * bent).sum(dim=1) < -1e-9 * (1e-9 + direction.norm(dim=1) * bent.norm(dim=1))
        if (below | downwards).any():
            raise InputError(f"the loss {loss.name!r} is declared convex and is not, at logits of size {size}")


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
