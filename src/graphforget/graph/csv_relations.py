"""The relations of a CSV folder: a column `relation` in edges.csv. Ids such as author:17 say the types of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.hetero import MOST_RELATIONS
from graphforget.graph.schema import ANY, MARK, type_of_name


def column_types(columns: Sequence[str]) -> list[str]:
    """The type of each column, if all are named as author:age; else no column has a type."""
    types = [type_of_name(column) for column in columns]
    return types if all(types) else [ANY] * len(types)


def relation_arguments(
    names: Sequence[str], edges: Tensor, *, ids: Sequence[str], columns: Sequence[str], directed: bool
) -> dict[str, Any]:
    """The arguments of `Graph.create` for relations with these names, one an edge.

    Between nodes with types, as many relations have one name as there are pairs of types that it connects. Messages
    that flow both ways need no direction: then the types of a pair stand in alphabetical order.

    Raises:
        InputError: A node has a type that no column has, or there are too many relations.
    """
    typed = any(column_types(columns))
    types = [type_of_name(name) for name in ids] if typed else [ANY] * len(ids)
    unknown = sorted(set(types) - set(column_types(columns)))
    if unknown and typed:
        first = ids[types.index(unknown[0])]
        raise InputError(f"the columns have types, and no column is of the type of node {first!r}")
    triples = []
    for (u, v), name in zip(edges.T.tolist(), names, strict=True):
        ends = (types[u], types[v]) if directed else sorted((types[u], types[v]))
        triples.append(MARK.join((ends[0], name, ends[1])) if typed else name)
    relations = sorted(set(triples))
    if not 0 < len(relations) <= MOST_RELATIONS:
        raise InputError(f"edges.csv has {len(relations)} relations, 1 to {MOST_RELATIONS} are possible")
    place = {relation: number for number, relation in enumerate(relations)}
    masks = np.array([1 << place[relation] for relation in triples], dtype=np.int64)
    return {"edge_relations": torch.from_numpy(masks), "relation_names": relations}
