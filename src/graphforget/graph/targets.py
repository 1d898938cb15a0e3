"""What a node can have to be predicted: one class, several labels that are on or off, or numbers.

The type of the tensor says which: int64 with n entries are classes, whole numbers n x L are labels (stored as int8),
float64 n x T are values. A node has all of its labels or values, or none: a row of -1, or of NaN.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.linalg.sparse import masked

UNLABELLED = -1
LARGEST_TARGET = 1e15  # targets are squared in float32

TargetKind = Literal["classes", "labels", "values"]


def target_kind(y: Tensor) -> TargetKind:
    """ "classes", "labels" or "values", from the type and shape alone."""
    if y.dtype.is_floating_point:
        return "values"
    return "labels" if y.dim() == 2 else "classes"


def has_target(y: Tensor) -> Tensor:
    """One boolean a node: whether it has a class, labels or values."""
    if y.dtype.is_floating_point:
        return ~y.isnan().any(dim=1)
    return (y != UNLABELLED).all(dim=1) if y.dim() == 2 else y != UNLABELLED


def targets_where(y: Tensor, keep: Tensor) -> Tensor:
    """The targets of the nodes of the mask `keep`."""
    return masked(y, keep) if y.dim() == 1 else y[keep]


def as_numbers(y: Tensor, like: Tensor) -> Tensor:
    """The targets as losses take them, on the device of `like`: labels and values in its type, classes as they are."""
    return y.to(like) if y.dim() == 2 else y.to(like.device)


def without_targets(y: Tensor, rows: Tensor) -> Tensor:
    """A copy in which the nodes of the mask `rows` have no target."""
    y = y.clone()
    y[rows] = torch.nan if y.dtype.is_floating_point else UNLABELLED
    return y


def checked_targets(y: Any, n: int, *, kind: TargetKind | None = None) -> Tensor:
    """The targets of `n` nodes in their own type, as a copy.

    Without `kind` floating-point numbers are values. Whole numbers or booleans n x L are labels if L is over 1 or their
    type is bool or int8, all others are classes.

    Raises:
        InputError: They are none of the three, or not of this kind.
    """
    y = torch.as_tensor(y).detach().cpu()
    if kind is not None and kind not in get_args(TargetKind):
        raise InputError(f"the targets are {kind!r}, {', '.join(get_args(TargetKind))} are possible")
    if y.dtype.is_complex:
        raise InputError(f"the targets are {y.dtype}, real numbers are needed")
    kind = kind_of_input(y) if kind is None else kind
    if kind == "classes":
        return _classes(y, n)
    y = y[:, None] if y.dim() == 1 else y
    if y.dim() != 2 or y.shape[0] != n or y.shape[1] == 0:
        raise InputError(f"the targets have shape {tuple(y.shape)} for {n} nodes, one row a node is needed")
    return _labels(y) if kind == "labels" else _values(y)


def note_of_whole_values(y: Tensor) -> tuple[str, ...]:
    """A note on values that are whole numbers: they may be meant as classes or labels."""
    if target_kind(y) != "values" or not torch.equal(y.nan_to_num(), y.nan_to_num().round()):
        return ()
    return (
        "y holds whole numbers in floating point and is read as values: give targets='classes' or targets='labels', or "
        "convert it to int64 or bool, if it holds classes or labels",
    )


def kind_of_input(y: Tensor) -> TargetKind:
    """The kind of targets that come without one."""
    if y.dtype.is_floating_point:
        return "values"
    several = y.dim() == 2 and (y.shape[1] > 1 or y.dtype in (torch.bool, torch.int8))
    return "labels" if several else "classes"


def _classes(y: Tensor, n: int) -> Tensor:
    y = y.flatten()
    if y.numel() != n:
        raise InputError(f"there are {y.numel()} labels for {n} nodes, each node needs one ({UNLABELLED}: unlabelled)")
    if y.dtype.is_floating_point and not torch.equal(y, y.round()):
        raise InputError("the labels are not whole numbers")
    y = y.to(torch.int64)
    if (y < UNLABELLED).any():
        raise InputError(f"label {int(y.min())} is negative, classes count from 0 ({UNLABELLED}: unlabelled)")
    return y.clone()


def _labels(y: Tensor) -> Tensor:
    absent = (y == UNLABELLED).all(dim=1) if y.dtype != torch.bool else torch.zeros(y.shape[0], dtype=torch.bool)
    wrong = (~absent[:, None] & (y != 0) & (y != 1)).nonzero()
    if wrong.numel():
        row, column = wrong[0].tolist()
        raise InputError(
            f"label {column} of node {row} is {y[row, column].item()!r}, 0 or 1 is needed, or a row of {UNLABELLED}"
        )
    return y.to(torch.int8).clone()


def _values(y: Tensor) -> Tensor:
    y = y.to(torch.float64) + 0.0  # a copy in which -0.0 is 0.0
    absent = y.isnan()
    partly = (absent.any(dim=1) & ~absent.all(dim=1)).nonzero()
    if partly.numel():
        raise InputError(f"node {int(partly[0])} has some of its values and not the others, all or none are needed")
    y[absent] = torch.nan  # of all patterns of bits that are NaN this one
    largest = float(y[~absent].abs().max()) if not absent.all() else 0.0
    if largest > LARGEST_TARGET:
        raise InputError(f"a target is {largest:g}, values up to {LARGEST_TARGET:g} are possible")
    return y
