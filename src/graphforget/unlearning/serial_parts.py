"""The paper's serial splitting (its Proposition 2): parts of a request that are unlearned one after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.request.footprint import footprint
from graphforget.request.kinds import Kind
from graphforget.request.request import Request

# Nodes last: while they are there, edges at them and attributes of them can still be named.
ORDER: tuple[Kind, ...] = ("partial attributes", "attributes", "edges", "nodes")


def serial_parts(graph: Graph, request: Request, reach: Reach) -> list[Request]:
    """Parts within which no two kinds of request touch the same training node.

    The theorem behind the paper's step asks for that. Each kind joins the last part if it keeps to itself there,
    and otherwise opens the next one. Graphforget's own step needs no splitting.
    """
    parts: list[list[Kind]] = []
    touched: list[Tensor] = []
    for kind in ORDER:
        if kind not in request.kinds:
            continue
        found = footprint(graph, request.only(kind), reach)
        rows = torch.cat([found.removed, found.affected])
        if parts and not torch.isin(rows, touched[-1]).any():
            parts[-1].append(kind)
            touched[-1] = torch.cat([touched[-1], rows])
        else:
            parts.append([kind])
            touched.append(rows)
    return [request.only(*kinds) for kinds in parts]
