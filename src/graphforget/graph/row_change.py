"""Which rows of an undirected graph a deletion changed, where the rest of it was copied."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph


@dataclass(frozen=True, eq=False, repr=False)
class RowChange:
    """How the rows of a graph differ from those of the graph before a deletion. All lists ascend."""

    parent: weakref.ref[Graph]
    gone: np.ndarray  # rows of the graph before
    relinked: np.ndarray  # rows of this graph with other neighbours
    altered: np.ndarray  # rows of this graph with other attributes
