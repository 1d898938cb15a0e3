"""Compositions of relations that bring attributes to the nodes of one type (docs/maths.md, section 5.4)."""

from __future__ import annotations

from dataclasses import dataclass

from graphforget.errors import InputError
from graphforget.graph.schema import Schema

MOST_PATHS = 256


@dataclass(frozen=True)
class RelationPath:
    """Relations one after the other, the first at the sender: `S_k ... S_1 X` on the columns of the sender's type."""

    relations: tuple[int, ...]
    first: int  # column of the sender's type
    last: int  # and the one after its last

    @property
    def width(self) -> int:
        return self.last - self.first


def relation_paths(schema: Schema, target: str, *, hops: int) -> tuple[RelationPath, ...]:
    """All paths of up to `hops` relations that end at nodes of type `target`, shorter ones first.

    Every other composition is 0 on these nodes, whatever the edges are. The end of a path is a path too.

    Raises:
        InputError: There are more than `MOST_PATHS`.
    """
    level: list[tuple[tuple[int, ...], str]] = [((), target)]
    paths = list(level)
    for _ in range(hops):
        level = [
            ((number, *relations), sender)
            for relations, receiver in level
            for number, relation in enumerate(schema.relations)
            for sender in schema.senders(relation, receiver)
        ]
        paths += level
        if len(paths) > MOST_PATHS:
            raise InputError(
                f"{len(schema.relations)} relations have more than {MOST_PATHS} compositions of up to {hops}: "
                "choose fewer hops"
            )
    return tuple(RelationPath(relations, *schema.columns(sender)) for relations, sender in paths)
