"""The paper's serial splitting (its Proposition 2): parts of a request that are unlearned one after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.request.footprint import footprint
from graphforget.request.kinds import Kind
from graphforget.request.request import Request

# Nodes come last: a request cannot name edges, attributes or labels of nodes that were removed before. So edges come
# after their weights.
ORDER: tuple[Kind, ...] = ("edge weights", "labels", "partial attributes", "attributes", "edges", "nodes", "graphs")


def serial_parts(graph: Graph, request: Request, reach: Reach) -> list[Request]:
    """Parts within which no two kinds of request touch the same training node.

    The theorem behind the paper's step requires that. A kind joins the last part if it touches other training nodes
    than that part; otherwise it starts a new part. The step of graphforget needs no splitting.
    """
    parts: list[list[Kind]] = []
    touched: list[Tensor] = []
    for kind in ORDER:
        if kind not in request.kinds:
            continue
        part = footprint(graph, request.only(kind), reach)
        rows = torch.cat([part.removed, part.affected])
        if parts and not torch.isin(rows, touched[-1]).any():
            parts[-1].append(kind)
            touched[-1] = torch.cat([touched[-1], rows])
        else:
            parts.append([kind])
            touched.append(rows)
    return [request.only(*kinds) for kinds in parts]
