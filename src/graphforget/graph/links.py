"""Pairs of nodes to learn links from: the split of the edges and the negatives, in which no pair depends on another.

Every pair of nodes has a side, whether there is an edge or not: a keyed hash of its two numbers says it. Edges of the
training sides either carry messages or are supervised. Negatives are candidates that a keyed hash of one node names. A
candidate is compared with edges of its own side alone, since an equal pair has an equal side. So training negatives do
not depend on test edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.edge_arrays import has_edge_arrays
from graphforget.graph.hashing import node_hashes, pair_hashes, salt, salted, uniform
from graphforget.validation import whole_number

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph

MESSAGE, SUPERVISED, VALIDATION, TEST = range(4)  # the sides of a pair
MOST_NUMBERS = 2**31  # two node numbers make one 64-bit key
MOST_NEGATIVES = 1000  # that a node names


@dataclass(frozen=True)
class LinkSettings:
    """What decides sides and candidates, fixed before training.

    `messages` is the share of the training edges that carry messages. The others are supervised; with `learn_messages`
    all training edges are. A node names `negatives` candidates for training and `held_out_negatives` for validation and
    test. A candidate whose side is another is no item of this side, so the shares apply to these counts too.
    """

    split_seed: int = 0
    test: float = 0.1
    validation: float = 0.05
    messages: float = 0.8
    learn_messages: bool = False
    negatives: int = 2
    held_out_negatives: int = 10

    def __post_init__(self) -> None:
        for name in ("split_seed", "negatives", "held_out_negatives"):
            whole_number(getattr(self, name), name)
        for name in ("test", "validation", "messages"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise InputError(f"the share {name!r} is {share!r}, a number from 0 to 1 is needed")
        if self.test + self.validation >= 1 or (self.messages == 1 and not self.learn_messages):
            shares = f"test {self.test}, validation {self.validation}, messages {self.messages}"
            raise InputError(f"the shares {shares} leave no edge to learn from")
        if not isinstance(self.learn_messages, bool):
            raise InputError(f"learn_messages is {self.learn_messages!r}, true or false is needed")
        for name in ("negatives", "held_out_negatives"):
            if getattr(self, name) > MOST_NEGATIVES:
                raise InputError(f"{name} is {getattr(self, name)}, up to {MOST_NEGATIVES} are possible")


@dataclass(frozen=True, eq=False)
class LinkItems:
    """The pairs of one graph that are learned from or tested with."""

    rows: Tensor  # n x 2 rows of the graph, the first one lower; sorted by (first, second)
    y: Tensor  # 1: there is an edge
    sides: Tensor  # SUPERVISED: for training


def link_sides(pairs: Tensor, settings: LinkSettings) -> Tensor:
    """The side of every pair of node numbers (n x 2, in any order)."""
    hashes = pair_hashes(pairs.amin(dim=1), pairs.amax(dim=1))
    position = uniform(salted(hashes, salt("link side", settings.split_seed)))
    carries = uniform(salted(hashes, salt("link message", settings.split_seed))) < settings.messages
    sides = torch.where(carries, MESSAGE, SUPERVISED)
    sides[position < settings.test + settings.validation] = VALIDATION
    sides[position < settings.test] = TEST
    return sides


def edge_pairs(graph: Graph) -> Tensor:
    """The edges as n x 2 rows of nodes, the lower row first, sorted; self-loops are left out.

    Raises:
        InputError: The graph is directed or has edge weights or relations, or a node number is too large.
    """
    if graph.directed:
        raise InputError("the graph is directed, links are learned on undirected graphs alone")
    if has_edge_arrays(graph):
        raise InputError("the graph has edge weights or relations, links are learned on graphs without them alone")
    if graph.num_nodes and int(graph.numbers[-1]) >= MOST_NUMBERS:
        raise InputError(f"a node number is over {MOST_NUMBERS:,}, which is too large for links")
    source, target = graph.edge_index  # sorted by (target, source), in both directions
    return graph.edge_index[:, target < source].flip(0).T.contiguous()


def edge_sides(graph: Graph, settings: LinkSettings) -> tuple[Tensor, Tensor]:
    """The edges as by `edge_pairs`, and the side of each."""
    pairs = edge_pairs(graph)
    return pairs, link_sides(graph.numbers[pairs], settings)


def link_items(graph: Graph, settings: LinkSettings) -> LinkItems:
    """Supervised, validation and test edges, and the negatives of training, validation and test."""
    pairs, sides = edge_sides(graph, settings)
    negatives, negative_sides = link_negatives(graph, pairs, settings)
    if settings.learn_messages:
        sides[sides == MESSAGE] = SUPERVISED
    positive = sides != MESSAGE
    rows = torch.cat([pairs[positive], negatives])
    y = torch.zeros(rows.shape[0], dtype=torch.int64)
    y[: int(positive.sum())] = 1
    order = pair_keys(rows, graph.num_nodes).argsort()
    return LinkItems(rows[order], y[order], torch.cat([sides[positive], negative_sides])[order])


def link_negatives(graph: Graph, edges: Tensor, settings: LinkSettings) -> tuple[Tensor, Tensor]:
    """The pairs of candidates that are negatives, sorted, and the side of each: SUPERVISED, VALIDATION or TEST.

    A candidate is dropped, not replaced, if both nodes are the same, if it is an edge or named before.
    """
    n = graph.num_nodes
    rows, turns = _candidates(graph, settings)
    sides = link_sides(graph.numbers[rows], settings)
    sides[sides == MESSAGE] = SUPERVISED
    most = torch.where(sides == SUPERVISED, settings.negatives, settings.held_out_negatives)
    used = turns < most
    keys, where = torch.unique(pair_keys(rows[used], n), return_inverse=True)
    side_of = torch.empty_like(keys)
    side_of[where] = sides[used]
    fresh = ~torch.isin(keys, pair_keys(edges, n), assume_unique=True)
    return torch.stack([keys[fresh] // n, keys[fresh] % n], dim=1), side_of[fresh]


def named_pairs(graph: Graph, pairs: Sequence[tuple[int | str, int | str]]) -> Tensor:
    """Pairs of nodes that are named as in a request, as n x 2 rows, the lower one first.

    Raises `InputError` for anything else.
    """
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise InputError("a link is a pair of two different nodes")
    rows = torch.tensor([[graph.row(u), graph.row(v)] for u, v in pairs], dtype=torch.int64).reshape(-1, 2)
    if (rows[:, 0] == rows[:, 1]).any():
        raise InputError("a link is a pair of two different nodes")
    return rows.sort(dim=1).values


def pair_keys(rows: Tensor, n: int) -> Tensor:
    """One number for each pair of rows below n: in the order of the pairs."""
    return rows[:, 0] * n + rows[:, 1]


def _candidates(graph: Graph, settings: LinkSettings) -> tuple[Tensor, Tensor]:
    """The candidates of which the nodes differ, as rows, the lower one first; and the turn of each.

    Nodes lie on a ring, each at a hash of its number. A candidate is the next node on the ring after a hash of the node
    that names it and of the turn. So candidates follow from the nodes that are there, and no setting tells of others.
    If a node goes, the next one on the ring is named in its place, and nothing else changes.
    """
    count = max(settings.negatives, settings.held_out_negatives)
    places, order = salted(node_hashes(graph.numbers), salt("link ring", settings.split_seed)).sort()
    first = graph.numbers.repeat_interleave(count)
    turns = torch.arange(count).repeat(graph.num_nodes)
    draws = salted(pair_hashes(first, turns), salt("link negative", settings.split_seed))
    other = order[torch.searchsorted(places, draws) % max(graph.num_nodes, 1)]
    row = torch.arange(graph.num_nodes).repeat_interleave(count)
    valid = other != row
    rows = torch.stack([row[valid], other[valid]], dim=1)
    return rows.sort(dim=1).values, turns[valid]
