"""Losses, gradients and curvature products over the training rows of one rank, block by block of node numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from graphforget.distributed.row_ranges import tree_sum
from graphforget.graph.row_part import TRAIN, RowPart
from graphforget.graph.targets import as_numbers
from graphforget.linalg.blocked import BlockedFeatures
from graphforget.models.part_features import PartFeatures
from graphforget.training.losses import Loss

FLOAT64 = torch.empty(0, dtype=torch.float64)
ALIGNMENT = 16  # bytes


def aligned(values: np.ndarray) -> Tensor:
    """The same numbers where a row of any array could begin: products may differ in the last bit elsewhere."""
    rows = torch.from_numpy(values)
    return rows.clone() if rows.data_ptr() % ALIGNMENT else rows


class PartLosses:
    """The losses of one rank's training rows at linear models of their features.

    A block's sum depends on its own rows alone. Blocks are added in the tree of `distributed/row_ranges.py`, so each
    method gives a row for each subtree of blocks that the rank has.
    """

    def __init__(
        self,
        part: RowPart,
        features: PartFeatures,
        *,
        loss: Loss,
        classes: int,
        bias: bool,
        embeddings: np.ndarray | None = None,
    ) -> None:
        """`embeddings` are those of the training rows of `features`, which stand before the features."""
        self.loss, self._classes, self._bias = loss, classes, bias
        self.subtrees = part.ranges.subtrees_of(part.rank)
        self._blocks: dict[int, tuple[BlockedFeatures, Tensor]] = {}
        size, stays = part.ranges.block, part.roles[features.train_rows] == TRAIN
        for block in part.ranges.blocks_of(part.rank):
            first, last = np.searchsorted(features.train_rows + part.start, [block * size, (block + 1) * size])
            rows = slice(int(first), int(last))
            values = features.training[rows]
            values = values if embeddings is None else np.concatenate([embeddings[rows], values], axis=1)
            values = values if stays[rows].all() else values[stays[rows]]
            labels = torch.from_numpy(np.array(part.targets[features.train_rows[rows][stays[rows]]]))
            self._blocks[block] = self._of_rows(aligned(np.asarray(values))), as_numbers(labels, FLOAT64)
        self._curvature: dict[int, list[Callable[[Tensor], Tensor]]] = {}

    def _of_rows(self, values: Tensor) -> BlockedFeatures:
        return BlockedFeatures(lambda: values, classes=self._classes, bias=self._bias)

    def _sums(self, of_block: Callable[[int], Tensor]) -> Tensor:
        return torch.stack([tree_sum(span, of_block, torch.add) for span in self.subtrees])

    def values_and_gradients(self, theta: Tensor) -> Tensor:
        """The gradients of the summed losses, each followed by the sum itself."""
        return self._sums(lambda block: self._value_and_gradient(block, theta))

    def _value_and_gradient(self, block: int, theta: Tensor) -> Tensor:
        features, labels = self._blocks[block]
        parts = [labels[rows] for rows in features.blocks]
        values: list[float] = []

        def inner(number: int, logits: Tensor) -> Tensor:
            value, gradient = self.loss.value_and_gradient(logits, parts[number])
            values.append(value)
            return gradient

        gradient = features.through(theta, inner)
        return torch.cat([gradient, gradient.new_tensor([sum(values)])])

    def set_curvature(self, theta: Tensor) -> None:
        """Takes the curvature of the losses at `theta` for the products that follow."""
        self._curvature = {}
        for block, (features, labels) in self._blocks.items():
            logits = features.apply(theta)
            self._curvature[block] = [self.loss.curvature(logits[rows], labels[rows]) for rows in features.blocks]

    def products(self, v: Tensor) -> Tensor:
        """The products of the summed losses' Gauss-Newton matrices with `v`."""
        return self._sums(
            lambda block: self._blocks[block][0].through(v, lambda number, u: self._curvature[block][number](u))
        )

    @property
    def squared_targets(self) -> float:
        """The sum of the squares of the targets, for losses whose gradient has no bound."""
        return sum(float(labels.double().square().sum()) for _, labels in self._blocks.values())
