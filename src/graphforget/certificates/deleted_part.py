"""The search for deleted data in one rank's part of a graph, by the salted hashes of an annex."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphforget.certificates.deleted_data import MOST_HASHED, attributes_left, has_edge, has_label, has_node
from graphforget.certificates.salted import framed
from graphforget.linalg.ranges import row_blocks

if TYPE_CHECKING:
    from graphforget.certificates.annex import Annex
    from graphforget.distributed.group import Group
    from graphforget.graph.row_part import RowPart

EDGES_AT_ONCE = 1 << 20


def find_deleted_in_part(annex: Annex, part: RowPart, group: Group, *, num_edges: int) -> str | None:
    """Which kind of data that `annex` names is in this part, in words that name nobody, or None.

    Every rank calls it: an edge is recognised by the names of both ends, and ranks send those of boundary rows.
    """
    rows = np.flatnonzero(part.there)
    names = part.names(rows)
    identities = [framed(name.encode()) for name in names]
    edge_found = False
    if annex.edges:
        outside = _names_outside(part, group)
        numbers = np.concatenate([rows + part.start, np.array(list(outside), dtype=np.int64)])
        order = numbers.argsort()
        together = [*names, *outside.values()]
        known = [together[place] for place in order.tolist()]
        tagged = num_edges > MOST_HASHED
        edge_found = has_edge(annex, known, _edges(part, numbers[order]), directed=False, by_tags=tagged)
    if has_node(annex, identities):
        return "a node that was to be forgotten"
    if edge_found:
        return "an edge that was to be forgotten"
    if annex.labels and has_label(annex, torch.from_numpy(np.array(part.targets[rows])), identities):
        return "a label that was to be forgotten"
    if not annex.attributes:
        return None
    return attributes_left(
        annex, identities, part.attributes.shape[1], lambda some: np.asarray(part.attributes[rows[some]])
    )


def _names_outside(part: RowPart, group: Group) -> dict[int, str]:
    """The names of the boundary rows by number; without subject ids these are the numbers themselves."""
    listed = np.unique(part.indices)
    outside = listed[(listed >= 0) & ((listed < part.start) | (listed >= part.stop))].astype(np.int64)
    if part.subjects is None:
        return {number: str(number) for number in outside.tolist()}
    owners = part.ranges.owners(outside)
    asked = group.exchange([outside[owners == rank] for rank in range(group.size)], purpose="names")
    sent = [np.ascontiguousarray(part.subjects[numbers - part.start]) for numbers in asked]
    names = np.concatenate(group.exchange(sent, purpose="names"))
    return {number: row.tobytes().rstrip(b"\0").decode() for number, row in zip(outside.tolist(), names, strict=True)}


def _edges(part: RowPart, numbers: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ends of the edges of this part, as places among the numbers."""
    for first, last in row_blocks(part.indptr, EDGES_AT_ONCE):
        counts, senders = part.lists(np.arange(first, last))
        receivers = np.repeat(np.arange(first, last) + part.start, counts)
        inside = (senders >= part.start) & (senders < part.stop)
        once = ~inside | (senders <= receivers)
        yield np.searchsorted(numbers, senders[once]), np.searchsorted(numbers, receivers[once])
