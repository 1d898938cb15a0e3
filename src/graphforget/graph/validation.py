"""Checks of the parts that a graph is made of; each raises `InputError` with its own sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.canonical import BLOCK, CanonicalEdges, canonical_adjacency, checked_pairs, edge_list
from graphforget.graph.targets import UNLABELLED as UNLABELLED
from graphforget.graph.targets import has_target, target_kind
from graphforget.linalg.sparse import csr_tensor, from_scipy, to_scipy

FEWEST_CLASSES = 2
LARGEST = 1e15  # attributes are squared in float32
FEWEST_SPARSE_COLUMNS = 64
LARGEST_SPARSE_SHARE = 0.25  # of values that are not 0


def checked_attributes(x: Any, *, sparse: bool | None = None) -> Tensor:
    """The attributes as float32 or float64, with 0.0 for -0.0: a copy, sparse if `sparse`, or by default if they are
    mostly zeros. A sparse matrix stays sparse.

    Raises:
        InputError: They are no matrix of finite numbers of ordinary size.
    """
    if sparse not in (None, True, False) or (isinstance(sparse, int) and not isinstance(sparse, bool)):
        raise InputError(f"sparse is {sparse!r}, True, False or None is needed")
    given, x = x, attribute_matrix(x)
    if x.dtype.is_complex:
        raise InputError(f"the attributes are {x.dtype}, real numbers are needed")
    if x.dtype not in (torch.float32, torch.float64):
        x = x.to(torch.float32)  # exact for half precision, which scipy does not take
    if x.layout == torch.sparse_csr:
        x = from_scipy(to_scipy(x))
        _check_values(x.values())
        return x
    _check_values(x)
    if is_mostly_zeros(x) if sparse is None else sparse:
        return _sparse(x)
    shared = isinstance(given, Tensor) and given.data_ptr() == x.data_ptr()
    return x + 0.0 if shared or not isinstance(given, Tensor) else x.add_(0.0)


def attribute_matrix(x: Any) -> Tensor:
    """The attributes as a matrix on the CPU, dense or CSR, which may share memory with the input.

    Raises:
        InputError: They have no rows or columns.
    """
    if sp.issparse(x):
        csr = sp.csr_matrix(x)
        crow, columns, values = map(torch.from_numpy, (csr.indptr, csr.indices, csr.data))
        x = csr_tensor(crow, columns, values, csr.shape)
    x = torch.as_tensor(x).detach().cpu()
    if x.dim() != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise InputError(f"the attributes have shape {tuple(x.shape)}, nodes x columns is needed")
    return x if x.layout in (torch.strided, torch.sparse_csr) else x.to_sparse_csr()


def is_mostly_zeros(x: Tensor) -> bool:
    """Whether dense attributes are faster and smaller as a sparse matrix."""
    return x.shape[1] >= FEWEST_SPARSE_COLUMNS and int(torch.count_nonzero(x)) <= LARGEST_SPARSE_SHARE * x.numel()


def _check_values(values: Tensor) -> None:
    """Without temporaries as large as the values."""
    if not values.numel():
        return
    largest = max(
        (abs(float(end)) for end in values.aminmax()), key=lambda size: math.inf if math.isnan(size) else size
    )
    if not math.isfinite(largest):
        raise InputError("the attributes hold NaN or infinity, every value must be finite")
    if largest > LARGEST:
        raise InputError(f"an attribute is {largest:g}, values up to {LARGEST:g} are possible")


def _sparse(x: Tensor) -> Tensor:
    """Dense attributes in the form of `from_scipy`, some rows at a time."""
    rows, nonzero = x.numpy(), int(torch.count_nonzero(x))
    crow = np.zeros(x.shape[0] + 1, dtype=np.int64)
    columns, values = np.empty(nonzero, dtype=np.int64), np.empty(nonzero, dtype=rows.dtype)
    step, end = max(1, BLOCK // x.shape[1]), 0
    for first in range(0, x.shape[0], step):
        block = rows[first : first + step]
        at = np.nonzero(block)
        crow[first + 1 : first + 1 + len(block)] = end + np.bincount(at[0], minlength=len(block)).cumsum()
        start, end = end, end + at[0].size
        columns[start:end], values[start:end] = at[1], block[at]
    return csr_tensor(torch.from_numpy(crow), torch.from_numpy(columns), torch.from_numpy(values), tuple(x.shape))


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


def checked_edges(edges: Any, n: int) -> Tensor:
    return checked_pairs(edges, n).to(torch.int64)


def canonical_edges(edges: Tensor | CanonicalEdges, n: int, *, directed: bool) -> Tensor:
    canonical = canonical_adjacency(edges, n, directed=directed)
    return edge_list(canonical.indptr, canonical.indices)


def count_repeated_edges(edges: Tensor | CanonicalEdges, n: int) -> int:
    """How many entries of the edge list repeat an earlier one; the other direction of an edge is no repetition."""
    if isinstance(edges, CanonicalEdges):
        return edges.repeated
    return canonical_adjacency(edges, n, directed=True).repeated


def note_of_repeated_edges(count: int) -> tuple[str, ...]:
    """The note that repeated edges were dropped; none if there are none."""
    entries = "entry of the edge list was" if count == 1 else "entries of the edge list were"
    return (f"{count:,} repeated {entries} dropped, each edge counts once",) if count else ()


def note_of_dropped_loops(count: int) -> tuple[str, ...]:
    """The note of a loader that leaves out self-loops; none if there are none."""
    return (f"{count:,} self-loop{'s were' if count > 1 else ' was'} dropped",) if count else ()


def is_symmetric(edges: Tensor, n: int) -> bool:
    """Whether every edge is present in both directions."""
    return not canonical_adjacency(edges, n, directed=None).directed
