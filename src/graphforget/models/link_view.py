"""Links as items: supervised pairs of nodes, and how values of nodes become values of pairs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.graph.links import (
    MESSAGE,
    SUPERVISED,
    TEST,
    VALIDATION,
    LinkItems,
    LinkSettings,
    edge_pairs,
    edge_sides,
    link_items,
    link_sides,
    pair_keys,
)
from graphforget.graph.reach import Reach
from graphforget.graph.targets import without_targets
from graphforget.graph.validation import canonical_edges
from graphforget.models.items import LINK, Items, ItemView
from graphforget.models.prepared import prepared_once
from graphforget.request.footprint import Footprint
from graphforget.request.request import Request


@dataclass(frozen=True)
class LinkView(ItemView):
    """Pairs of nodes. Those for training see the message edges, those held out see all training edges."""

    word: ClassVar[str] = LINK
    outputs: ClassVar[int | None] = 1
    settings: LinkSettings = field(default_factory=LinkSettings)
    of_encoders: bool = False  # training does not see the supervised edges, which are kept for the head

    def items(self, graph: Graph) -> Items:
        pairs = self.pairs(graph)
        masks: Any = {name: pairs.sides == side for name, side in _MASKS.items()}
        return Items(word=LINK, keys=graph.numbers[pairs.rows], y=pairs.y.to(torch.int8).unsqueeze(1), **masks)

    def pairs(self, graph: Graph) -> LinkItems:
        """The items as rows of the graph."""
        pairs: LinkItems = prepared_once(graph, (type(self), self, "pairs"), lambda: self._pairs(graph))
        return pairs

    def _pairs(self, graph: Graph) -> LinkItems:
        pairs = link_items(graph, self.settings)
        if not self.of_encoders:
            return pairs
        # Encoders cannot see a supervised edge. So it is no item, and neither is an absent link that could be one.
        known = link_sides(graph.numbers[pairs.rows], self.settings) == MESSAGE
        return LinkItems(pairs.rows[known], pairs.y[known], pairs.sides[known])

    def edges(self, graph: Graph, *, held_out: bool) -> Tensor:
        """The edges that held-out pairs see, or those for training, as m x 2 rows."""
        key = (type(self), self, "sides")
        pairs, sides = prepared_once(graph, key, lambda: edge_sides(graph, self.settings))
        chosen: Tensor = pairs[sides <= (SUPERVISED if held_out else MESSAGE)]
        return chosen

    def messages(self, graph: Graph) -> Tensor:
        return canonical_edges(self.edges(graph, held_out=False).T, graph.num_nodes, directed=False)

    def training_graph(self, graph: Graph) -> Graph:
        """The graph without held-out edges, which training does not read, and without labels of nodes."""
        none = torch.zeros_like(graph.train_mask)
        edges = self.edges(graph, held_out=not self.of_encoders)
        return dataclasses.replace(
            graph,
            edge_index=canonical_edges(edges.T, graph.num_nodes, directed=False),
            y=without_targets(graph.y, torch.ones_like(none)),
            train_mask=none,
            val_mask=none,
            test_mask=none,
        )

    def encoder_view(self) -> LinkView:
        """Encoders learn from message edges alone: what they know of a supervised edge would mislead the head."""
        return LinkView(dataclasses.replace(self.settings, learn_messages=True), of_encoders=True)

    def places(self, graph: Graph, *, dtype: torch.dtype) -> Any:
        return self.pairs(graph).rows

    def combined(self, values: Tensor, places: Any) -> Tensor:
        return values[places[:, 0]] * values[places[:, 1]]

    def touched(self, graph: Graph, retained: Graph, request: Request, reach: Reach) -> Footprint:
        """Pairs that go, pairs near a change, and pairs that become negatives because their edge goes.

        A lost edge is felt by pairs with an end within `max(k, 1)` hops of it along the edges that they see: one hop by
        common neighbours and by paths of length 3. Changed attributes are felt within k hops.
        """
        before, after = self.pairs(graph), self.pairs(retained)
        row_of = torch.searchsorted(graph.numbers, retained.numbers)
        keys, later_keys = (
            pair_keys(rows, graph.num_nodes) * 2 + y
            for rows, y in ((before.rows, before.y), (row_of[after.rows], after.y))
        )
        stays = torch.isin(keys, later_keys, assume_unique=True)
        changed = graph.changed_attribute_rows(request.resolve(graph))
        lost = _lost_edges(graph, retained, row_of)
        trains = before.sides == SUPERVISED
        near = torch.where(
            trains,
            self._near(graph, lost, changed, reach, held_out=False)[before.rows].any(dim=1),
            self._near(graph, lost, changed, reach, held_out=True)[before.rows].any(dim=1),
        )
        new = ~torch.isin(later_keys, keys, assume_unique=True) & (after.sides == SUPERVISED)
        return Footprint(
            removed=(trains & ~stays).nonzero().flatten(),
            affected=(trains & stays & near).nonzero().flatten(),
            reached=(stays & near).nonzero().flatten(),
            added=new.nonzero().flatten(),
        )

    def _near(self, graph: Graph, lost: Tensor, changed: Tensor, reach: Reach, *, held_out: bool) -> Tensor:
        """The nodes near a change along the edges that these pairs see."""
        if reach.hops is None:
            return torch.ones(graph.num_nodes, dtype=torch.bool)
        edges = self.edges(graph, held_out=held_out)
        seen = torch.isin(pair_keys(edges, graph.num_nodes), pair_keys(lost, graph.num_nodes), assume_unique=True)
        near = _within(edges, edges[seen].flatten(), graph.num_nodes, hops=max(reach.hops, 1))
        return near | _within(edges, changed, graph.num_nodes, hops=reach.hops)


def link_view(**settings: Any) -> LinkView:
    """The view with these settings."""
    return LinkView(LinkSettings(**settings))


def autoencoder_view(**settings: Any) -> LinkView:
    """All training edges carry messages and are learned from, unless `settings` say otherwise."""
    return link_view(**{"messages": 1.0, "learn_messages": True} | settings)


_MASKS = {"train_mask": SUPERVISED, "val_mask": VALIDATION, "test_mask": TEST}


def _lost_edges(graph: Graph, retained: Graph, row_of: Tensor) -> Tensor:
    """The edges that are in the first graph alone, as rows of it."""
    before, after = edge_pairs(graph), row_of[edge_pairs(retained)]
    stays = torch.isin(pair_keys(before, graph.num_nodes), pair_keys(after, graph.num_nodes), assume_unique=True)
    return before[~stays]


def _within(edges: Tensor, start: Tensor, nodes: int, *, hops: int) -> Tensor:
    """A mask of the nodes within so many hops of `start`."""
    mask = np.zeros(nodes, dtype=bool)
    mask[start.numpy()] = True
    first, second = edges.numpy().T
    for _ in range(hops if start.numel() else 0):
        forward, backward = mask[first], mask[second]
        mask[second[forward]] = True
        mask[first[backward]] = True
    return torch.from_numpy(mask)
