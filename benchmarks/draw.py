"""The deletion requests that the benchmarks draw: a share of training nodes, edges or attributes, by seed."""

from __future__ import annotations

import random

import graphforget as gf

KINDS = ("nodes", "edges", "attributes", "partial attributes")


def drawn(graph: gf.Graph, kind: str, *, share: float, seed: int) -> gf.Request:
    """`share` of the training nodes (to remove, or to take all or half of the attributes from), or of the edges."""
    chance = random.Random(f"{kind} {seed}")
    if kind == "edges":
        source, target = graph.edge_index
        once = graph.edge_index[:, source < target].T.tolist()
        return gf.Request(edges=[tuple(e) for e in chance.sample(once, max(1, int(share * len(once))))])
    rows = graph.train_rows.tolist()
    nodes = chance.sample(rows, max(1, int(share * len(rows))))
    if kind == "nodes":
        return gf.Request(nodes=nodes)
    if kind == "attributes":
        return gf.Request(attributes=dict.fromkeys(nodes, "all"))
    columns = chance.sample(range(graph.num_columns), graph.num_columns // 2)
    return gf.Request(attributes=dict.fromkeys(nodes, columns))
