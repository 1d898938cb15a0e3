"""Which rank has which node numbers: contiguous ranges of whole blocks, and the tree in which blocks are summed.

Blocks depend on the number of nodes alone. Sums of blocks are added in one binary tree over all blocks, whoever has
them, so the bits of a sum do not depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from graphforget.errors import InputError

SMALLEST_BLOCK = 16  # nodes; a node of the tree of records has as many children
MOST_BLOCKS = 256  # fewer, larger blocks cost less, more of them are shared out more evenly

Value = TypeVar("Value")
Span = tuple[int, int]  # the first block of a subtree, and the one after its last


@dataclass(frozen=True)
class RowRanges:
    """The ranges of `parts` ranks over `nodes` node numbers.

    Example:
        >>> RowRanges(1000, 4).starts
        (0, 240, 496, 752, 1000)
    """

    nodes: int
    parts: int

    def __post_init__(self) -> None:
        if self.parts < 1 or self.parts > self.num_blocks:
            most = self.num_blocks
            raise InputError(f"the number of parts is {self.parts}, 1 to {most} are possible for {self.nodes:,} nodes")

    @property
    def block(self) -> int:
        """The number of nodes of a block: a power of 2."""
        size = SMALLEST_BLOCK
        while size * MOST_BLOCKS < self.nodes:
            size *= 2
        return size

    @property
    def num_blocks(self) -> int:
        return max(1, -(-self.nodes // self.block))

    @cached_property
    def block_starts(self) -> tuple[int, ...]:
        """The first block of each rank, and the number of blocks. If the ranks are 2^k, each has one subtree."""
        return (*_halved(0, self.num_blocks, self.parts), self.num_blocks)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first number of each rank, and the number of nodes."""
        return tuple(min(block * self.block, self.nodes) for block in self.block_starts)

    def range_of(self, rank: int) -> tuple[int, int]:
        """The first number of a rank, and the one after its last."""
        return self.starts[rank], self.starts[rank + 1]

    def blocks_of(self, rank: int) -> range:
        return range(self.block_starts[rank], self.block_starts[rank + 1])

    def owners(self, numbers: np.ndarray) -> np.ndarray:
        """The rank of each number."""
        return np.searchsorted(np.asarray(self.starts[1:-1]), numbers, side="right")

    def subtrees_of(self, rank: int) -> list[Span]:
        """The largest subtrees of blocks that a rank has all blocks of, from left to right."""
        first, last = self.block_starts[rank], self.block_starts[rank + 1]
        return _covered(0, self.num_blocks, first, last)


def _halved(first: int, last: int, parts: int) -> list[int]:
    """The first blocks of so many ranks, by halving the blocks and the ranks."""
    if parts == 1:
        return [first]
    left = parts // 2
    middle = _middle(first, last) if parts % 2 == 0 else first + (last - first) * left // parts
    return _halved(first, middle, left) + _halved(middle, last, parts - left)


def _middle(first: int, last: int) -> int:
    return first + (last - first) // 2


def _covered(first: int, last: int, low: int, high: int) -> list[Span]:
    if low <= first and last <= high:
        return [(first, last)] if last > first else []
    if high <= first or last <= low:
        return []
    middle = _middle(first, last)
    return _covered(first, middle, low, high) + _covered(middle, last, low, high)


def tree_sum(span: Span, leaf: Callable[[int], Value], add: Callable[[Value, Value], Value]) -> Value:
    """The sum of the values of the blocks of a subtree, added in the tree; `leaf` is called from left to right."""
    first, last = span
    if last - first == 1:
        return leaf(first)
    middle = _middle(first, last)
    left = tree_sum((first, middle), leaf, add)
    return add(left, tree_sum((middle, last), leaf, add))


def joined_sum(
    num_blocks: int, spans: Sequence[Span], values: Sequence[Value], add: Callable[[Value, Value], Value]
) -> Value:
    """The sum over all blocks from those of subtrees that cover them."""
    known = dict(zip(spans, values, strict=True))

    def total(span: Span) -> Value:
        if span in known:
            return known[span]
        middle = _middle(*span)
        return add(total((span[0], middle)), total((middle, span[1])))

    return total((0, num_blocks))
