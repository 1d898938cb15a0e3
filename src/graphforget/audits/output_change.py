"""MIattack (the 2026 benchmark of graph unlearning): deleted nodes by how far their answers moved.

The score of a node is the Euclidean distance of its posterior before and after the deletion. The attack needs the old
model, which is outside every guarantee of unlearning. It measures "changed more than test nodes". A retrained model
changes most where its own training nodes were, so its area is not 0.5, and unchanged weights have exactly 0.5.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from graphforget.errors import InputError


def output_change(before: Tensor, after: Tensor) -> np.ndarray:
    """`||softmax(before_i) - softmax(after_i)||_2` of every row; both are logits on the same graph."""
    if before.shape != after.shape or before.dim() != 2:
        shapes = f"{tuple(before.shape)} and {tuple(after.shape)}"
        raise InputError(f"the logits have shapes {shapes}, the same nodes and classes are needed")
    change = before.detach().double().softmax(dim=1) - after.detach().double().softmax(dim=1)
    distances: np.ndarray = change.norm(dim=1).cpu().numpy()
    return distances
