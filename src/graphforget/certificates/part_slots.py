"""What a rank computes of the trees from which absence is shown: slots of its rows, positions of its subjects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphforget.certificates.keyed_hashes import KeyedHashes
from graphforget.certificates.slot_tree import slot_hashes
from graphforget.certificates.subject_tree import subject_positions
from graphforget.certificates.vrf import SecretKey
from graphforget.errors import Mismatch
from graphforget.graph.record_tree import RecordTree
from graphforget.graph.row_part import tree_level

if TYPE_CHECKING:
    from graphforget.graph.row_part import RowPart

ROWS = 2**13  # that are hashed together


@dataclass(frozen=True)
class LowerPath:
    """The lower end of the opening of a number: its level, and the way to the top of a rank's subtree."""

    level: int
    path: tuple[bytes, ...]


def slot_subtrees(part: RowPart, key: bytes) -> RecordTree:
    """The slots of a part's rows, up to the level at which no subtree lies in two parts. All hashes are computed."""
    salts, leaves = part.salts, part.leaves
    if salts is None or (np.asarray(salts).any(axis=1) != np.asarray(leaves).any(axis=1)).any():
        raise Mismatch("the salts from which absence is shown are not those of the graph")
    numbers = np.arange(part.start, part.stop)
    hashes = [
        slot_hashes(key, numbers[block], np.asarray(salts[block]), np.asarray(leaves[block]))
        for block in (slice(first, first + ROWS) for first in range(0, numbers.size, ROWS))
    ]
    return RecordTree.of(numbers, np.concatenate(hashes), height=tree_level(part.ranges), empty=KeyedHashes(key))


def lower_path(part: RowPart, key: bytes, number: int) -> LowerPath | None:
    """Where a number that is not there is missing in this part; None if it is there."""
    if part.holds(np.array([number]))[0]:
        return None
    tree = slot_subtrees(part, key)
    level = tree.lowest_level(number)
    return LowerPath(level, tree.path(number, level=level))


def positions_in_part(part: RowPart, seed: bytes, height: int) -> np.ndarray:
    """The positions of a part's subjects in the subject tree."""
    return subject_positions(SecretKey(seed), part.names(np.flatnonzero(part.there)), height)
