"""Checks of the parts that a graph is made of; each raises `InputError` with its own sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.targets import UNLABELLED as UNLABELLED
from graphforget.graph.targets import has_target, target_kind
from graphforget.linalg.sparse import from_scipy, to_scipy

FEWEST_CLASSES = 2
LARGEST = 1e15  # attributes are squared in float32


def checked_attributes(x: Any) -> Tensor:
    if sp.issparse(x):
        x = from_scipy(sp.csr_matrix(x))
    x = torch.as_tensor(x).detach().cpu()
    if x.dim() != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise InputError(f"the attributes have shape {tuple(x.shape)}, nodes x columns is needed")
    if x.layout not in (torch.strided, torch.sparse_csr):
        x = x.to_sparse_csr()
    if x.dtype.is_complex:
        raise InputError(f"the attributes are {x.dtype}, real numbers are needed")
    if x.dtype not in (torch.float32, torch.float64):
        x = x.to(torch.float32)  # exact for half precision, which scipy does not take
    values = x.values() if x.layout == torch.sparse_csr else x
    if not torch.isfinite(values).all():
        raise InputError("the attributes hold NaN or infinity, every value must be finite")
    if values.numel() and float(values.abs().max()) > LARGEST:
        raise InputError(f"an attribute is {float(values.abs().max()):g}, values up to {LARGEST:g} are possible")
    return from_scipy(to_scipy(x)) if x.layout == torch.sparse_csr else x + 0.0  # a copy in which -0.0 is 0.0


def checked_mask(mask: Tensor, n: int, label: str) -> Tensor:
    mask = torch.as_tensor(mask).detach().cpu()
    if mask.dtype != torch.bool or mask.shape != (n,):
        raise InputError(f"{label} is {mask.dtype} of shape {tuple(mask.shape)}, one boolean a node is needed")
    return mask.clone()


def checked_classes(y: Tensor, num_classes: int | None, class_names: Sequence[str] | None) -> int:
    """The number of outputs. Of classes it follows from the labels, the number that is given, and the class names."""
    if target_kind(y) != "classes":
        if num_classes not in (None, y.shape[1]):
            raise InputError(f"num_classes is {num_classes}, and the targets have {y.shape[1]} columns")
        return y.shape[1]
    if num_classes is None and class_names is None and not has_target(y).any():
        return FEWEST_CLASSES  # no node has a label: the graph is for links
    classes = int(y.max()) + 1 if y.numel() and num_classes is None else int(num_classes or 0)
    if class_names is not None:
        classes = max(classes, len(class_names))
    if classes < FEWEST_CLASSES:
        raise InputError(f"the labels name {classes} class(es), at least 2 are needed")
    if int(y.max()) >= classes:
        raise InputError(f"label {int(y.max())} is out of range for {classes} classes")
    return classes


def checked_split(
    y: Tensor, train_mask: Tensor | None, val_mask: Tensor | None, test_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The masks of training, validation and test nodes. By default every labelled node outside the others trains.

    A graph without any label has no training node, and is there for links.
    """
    n, labelled = y.shape[0], has_target(y)
    none = torch.zeros(n, dtype=torch.bool)
    val = checked_mask(none if val_mask is None else val_mask, n, "val_mask")
    test = checked_mask(none if test_mask is None else test_mask, n, "test_mask")
    rest = labelled & ~val & ~test
    train = checked_mask(rest if train_mask is None else train_mask, n, "train_mask")
    if not train.any() and (labelled.any() or target_kind(y) != "classes"):
        raise InputError("the graph has no training node")
    if (train & (val | test)).any() or (val & test).any():
        raise InputError("a node is in two parts of the split, the masks must not overlap")
    unlabelled = ((train | val | test) & ~labelled).nonzero()
    if unlabelled.numel():
        target = "target" if target_kind(y) == "values" else "label"
        raise InputError(f"node {int(unlabelled[0])} is in the split but has no {target}")
    return train, val, test


def checked_names(names: Sequence[str] | None, count: int, label: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = tuple(map(str, names))
    if len(names) != count:
        raise InputError(f"there are {len(names)} {label} for {count}")
    if not all(map(str.strip, names)):
        raise InputError(f"one of the {label} is blank, every one needs a name")
    if len(set(names)) != count:
        seen: set[str] = set()
        twice = next(n for n in names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise InputError(f"{twice!r} appears twice among the {label}")
    return names


def checked_numbers(numbers: Tensor, n: int) -> Tensor:
    numbers = torch.as_tensor(numbers).detach().cpu()
    valid = not numbers.dtype.is_floating_point and numbers.shape == (n,)
    if not valid or int(numbers.min()) < 0 or (numbers.diff() <= 0).any():
        raise InputError("the node numbers must be one whole number from 0 a node, in ascending order")
    return numbers.to(torch.int64).clone()


def checked_edges(edges: Tensor, n: int) -> Tensor:
    edges = torch.as_tensor(edges).detach().cpu()
    if edges.numel() == 0:
        return torch.zeros(2, 0, dtype=torch.int64)
    if edges.dim() != 2 or edges.shape[0] != 2 or edges.dtype.is_floating_point:
        raise InputError(f"the edges are {edges.dtype} of shape {tuple(edges.shape)}, whole numbers 2 x E are needed")
    edges = edges.to(torch.int64)
    if int(edges.min()) < 0 or int(edges.max()) >= n:
        bad = int(edges.min()) if int(edges.min()) < 0 else int(edges.max())
        raise InputError(f"an edge names node {bad}, the graph has nodes 0 to {n - 1}")
    return edges


def canonical_edges(edges: Tensor, n: int, *, directed: bool) -> Tensor:
    edges = checked_edges(edges, n)
    if not directed:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    keys = torch.unique(edges[1] * n + edges[0])
    return torch.stack([keys % n, keys // n])


def count_repeated_edges(edges: Tensor, n: int) -> int:
    """How many entries of the edge list repeat an earlier one; the other direction of an edge is no repetition."""
    edges = checked_edges(edges, n)
    return edges.shape[1] - torch.unique(edges[1] * n + edges[0]).numel()


def note_of_repeated_edges(count: int) -> tuple[str, ...]:
    """The note that repeated edges were dropped; none if there are none."""
    entries = "entry of the edge list was" if count == 1 else "entries of the edge list were"
    return (f"{count:,} repeated {entries} dropped, each edge counts once",) if count else ()


def note_of_dropped_loops(count: int) -> tuple[str, ...]:
    """The note of a loader that leaves out self-loops; none if there are none."""
    return (f"{count:,} self-loop{'s were' if count > 1 else ' was'} dropped",) if count else ()


def is_symmetric(edges: Tensor, n: int) -> bool:
    forward = torch.unique(edges[1] * n + edges[0])
    return torch.equal(forward, torch.unique(edges[0] * n + edges[1]))
