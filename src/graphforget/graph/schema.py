"""What the names of a heterogeneous graph say: the type of every node and column, and what each relation connects.

A node of type "author" has the subject id "author:17", a column of that type the name "author:age", and a relation the
name "author:writes:paper". Types are settings of the data: a deletion changes none of these names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphforget.errors import InputError

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph

MARK = ":"  # after a type in a name
ANY = ""  # the one type of a graph whose nodes have no types
ALL_EDGES = "edges"  # the one relation of a graph without relations


@dataclass(frozen=True)
class Schema:
    """The types of a graph, how many columns each has, and its relations.

    The columns of a type follow one another, in the order of the types. A graph without types has the one type "".
    """

    types: tuple[str, ...]
    widths: tuple[int, ...]
    relations: tuple[str, ...]
    directed: bool = False

    @property
    def typed(self) -> bool:
        return self.types != (ANY,)

    def columns(self, kind: str) -> tuple[int, int]:
        """The first column of a type, and the one after its last."""
        place = self.types.index(kind)
        first = sum(self.widths[:place])
        return first, first + self.widths[place]

    def ends(self, relation: str) -> tuple[str, str]:
        """The type that a relation leads from, and the one that it leads to."""
        if not self.typed:
            return ANY, ANY
        source, _, rest = relation.partition(MARK)
        return source, rest.rpartition(MARK)[2]

    def senders(self, relation: str, receiver: str) -> tuple[str, ...]:
        """The type, if there is one, whose nodes send messages to those of `receiver` in this relation."""
        source, target = self.ends(relation)
        if receiver == target:
            return (source,)
        return (target,) if receiver == source and not self.directed else ()


def schema_of(graph: Graph) -> Schema:
    """The schema of any graph. A graph without types has one; a graph without relations has one relation.

    Raises:
        InputError: The names of columns, relations and nodes do not name the same types.
    """
    relations = graph.relation_names or (ALL_EDGES,)
    if not any(MARK in relation for relation in relations):
        return Schema((ANY,), (graph.num_columns,), relations, graph.directed)
    kinds = [type_of_name(column) for column in graph.column_names or ()]
    types = tuple(dict.fromkeys(kinds))
    schema = Schema(types, tuple(map(kinds.count, types)), relations, graph.directed)
    in_order = kinds == [kind for kind, width in zip(types, schema.widths, strict=True) for _ in range(width)]
    ends = {end for relation in relations for end in schema.ends(relation)}
    if not kinds or not in_order or not ends <= set(types) or any(r.count(MARK) != 2 for r in relations):
        raise InputError(
            "the relations name types of nodes, and the columns do not: relations are named 'author:writes:paper', and "
            "the columns of each type, one after the other, 'author:age'"
        )
    return schema


def type_of_name(name: str) -> str:
    """The type in the name of a node, a column or a relation; "" if there is none."""
    kind, mark, _ = name.partition(MARK)
    return kind if mark else ANY


def is_typed(graph: Graph) -> bool:
    """Whether the nodes of the graph have types."""
    return any(MARK in relation for relation in graph.relation_names or ())


def rows_of_type(graph: Graph, kind: str) -> Tensor:
    """The rows of the nodes of a type."""
    return torch.tensor([row for row, name in enumerate(graph.subject_ids or ()) if type_of_name(name) == kind]).long()


def target_type(graph: Graph) -> str:
    """The type whose nodes have labels; "" for a graph without types.

    Raises:
        InputError: Nodes of several types have labels, or no node has one.
    """
    if not is_typed(graph):
        return ANY
    labelled = (graph.train_mask | graph.val_mask | graph.test_mask).nonzero().flatten().tolist()
    subjects = graph.subject_ids or ()
    kinds = sorted({type_of_name(subjects[row]) for row in labelled} if subjects else ())
    if len(kinds) != 1:
        names = f"of the types {', '.join(kinds)}" if kinds else "of no type"
        raise InputError(f"nodes {names} have labels, those of one type have to have them")
    return kinds[0]


def checked_types(types: Iterable[str]) -> tuple[str, ...]:
    """The names of types. Raises `InputError` for one that no name could start with."""
    types = tuple(types)
    for kind in types:
        if not isinstance(kind, str) or not kind or MARK in kind:
            raise InputError(f"a type is named {kind!r}, a name without {MARK!r} is needed")
    return types
