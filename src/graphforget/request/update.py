"""An update: the next state of a graph, to which a model goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph


@dataclass(frozen=True, eq=False)
class Update:
    """The next state of a graph, with its node numbers (`Graph.next_state`)."""

    graph: Graph
