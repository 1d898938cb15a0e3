"""Modules for links and graphs that need torch alone.

For graphs they are called as `module(x, edge_index, batch)`, for links as `module(x, edge_index, pairs, numbers)`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .hashing import TRAINING, pair_hashes, salt, salted, sides
from .nodes import Linear, build, message_weights, propagate, scaled, with_loops

FLOOR = 0.01  # added to a norm before something is divided by it
CELLS_AT_ONCE = 1 << 22  # of pairs x nodes


class KnownEdges(nn.Module):
    """The edges that a link is predicted from: those for training, or of these the ones that carry messages."""

    def __init__(self, seed: int, held_out: float, messages: float) -> None:
        super().__init__()
        self.seed, self.held_out, self.messages = seed, held_out, messages

    def forward(self, edge_index: Tensor, numbers: Tensor, highest: int) -> Tensor:
        edges = edge_index[:, edge_index[0] != edge_index[1]]
        return edges[:, sides(numbers[edges.T], self.seed, self.held_out, self.messages) <= highest]


class LinkFeatures(nn.Module):
    """Similarities of propagated attributes and structural features of a pair, under a linear head."""

    def __init__(
        self, powers: list[int], outputs: int, scale_rows: bool, split: dict[str, Any], structural: int = 10
    ) -> None:
        super().__init__()
        self.powers, self.scale_rows, self.known = list(powers), scale_rows, KnownEdges(**split)
        self.weight = nn.Parameter(torch.zeros(2 * len(powers) + structural, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, edge_index: Tensor, pairs: Tensor, numbers: Tensor | None = None) -> Tensor:
        numbers = torch.arange(x.shape[0]) if numbers is None else numbers
        edges = self.known(edge_index, numbers, TRAINING)
        step = max(CELLS_AT_ONCE // max(x.shape[0], 1), 1)
        structural = torch.cat([_structural(some, edges, x.shape[0]) for some in pairs.split(step)])
        return torch.cat([*self._similarities(x, edges, pairs), structural], dim=1) @ self.weight + self.bias

    def _similarities(self, x: Tensor, edges: Tensor, pairs: Tensor) -> list[Tensor]:
        z, n = scaled(x, self.scale_rows), x.shape[0]
        looped = with_loops(edges, n)
        weights = message_weights(looped, n, "normalised", x.dtype)
        columns = []
        for hop in range(max(self.powers) + 1):
            z = propagate(z, looped, weights) if hop else z
            if hop in self.powers:
                lengths = z.norm(dim=1) + FLOOR
                products = (z[pairs[:, 0]] * z[pairs[:, 1]]).sum(dim=1)
                both = torch.stack([products, products / (lengths[pairs[:, 0]] * lengths[pairs[:, 1]])], dim=1)
                columns.append(both)
        return columns


def _structural(pairs: Tensor, edges: Tensor, n: int) -> Tensor:
    """How the two nodes of each pair are connected by the edges, which stand in both directions."""
    ones = torch.ones(edges.shape[1], dtype=torch.float64)
    degrees = torch.zeros(n, dtype=torch.float64).index_add(0, edges[0], ones)
    adjacency = torch.sparse_coo_tensor(edges, ones, (n, n), check_invariants=False)
    near, other = (_neighbours(rows, adjacency) for rows in pairs.T)
    common = near * other
    weights = torch.stack([torch.ones(n).double(), 1 / degrees.clamp_min(2).log(), 1 / degrees.clamp_min(1)], dim=1)
    neighbours, adamic_adar, allocation = (common @ weights).T
    roots = degrees.clamp_min(1).rsqrt()
    paths = (torch.sparse.mm(adjacency, (near * roots).T).T * other * roots).sum(dim=1)
    first, second = degrees[pairs[:, 0]], degrees[pairs[:, 1]]
    log_first, log_second = first.log1p(), second.log1p()
    columns = (
        neighbours.log1p(),
        adamic_adar.log1p(),
        allocation.sqrt(),
        neighbours / (first + second - neighbours).clamp_min(1),
        paths.log1p(),
        paths.sqrt(),
        log_first + log_second,
        log_first * log_second,
        (log_first - log_second).abs(),
        (first == 0).double() + (second == 0).double(),
    )
    return torch.stack(columns, dim=1)


def _neighbours(rows: Tensor, adjacency: Tensor) -> Tensor:
    """A dense row for each node: 1 at its neighbours."""
    picks = torch.zeros(adjacency.shape[0], rows.numel(), dtype=torch.float64)
    picks[rows, torch.arange(rows.numel())] = 1.0
    return torch.sparse.mm(adjacency, picks).T


class LinkNetwork(nn.Module):
    """The dot product of the vectors that a network gives two nodes."""

    def __init__(self, inner: dict[str, Any], split: dict[str, Any]) -> None:
        super().__init__()
        self.inner, self.known = build(inner), KnownEdges(**split)

    def forward(self, x: Tensor, edge_index: Tensor, pairs: Tensor, numbers: Tensor | None = None) -> Tensor:
        numbers = torch.arange(x.shape[0]) if numbers is None else numbers
        vectors = self.inner(x, self.known(edge_index, numbers, 0))
        return (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(dim=1, keepdim=True)


class Colours(nn.Module):
    """How often each Weisfeiler-Lehman colour occurs in a graph, under a linear head."""

    def __init__(self, rounds: int, buckets: int, attributes: bool, degrees: bool, classes: int) -> None:
        super().__init__()
        self.rounds, self.buckets, self.attributes, self.degrees = rounds, buckets, attributes, degrees
        self.weight = nn.Parameter(torch.zeros(buckets * (rounds + 1), classes))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        width, graphs = self.buckets * (self.rounds + 1), int(batch.max()) + 1
        keys = []
        for number, hashes in enumerate(self._colours(x, edge_index)):
            column = (((hashes >> 32) & 0xFFFFFFFF) * self.buckets) >> 32
            keys.append(batch * width + self.buckets * number + column)
        cells, counts = torch.cat(keys).unique(return_counts=True)
        rows, columns, values = cells // width, cells % width, counts.double().log1p()
        lengths = torch.zeros(graphs, dtype=torch.float64).index_add(0, rows, values.square()).sqrt()
        terms = (values / lengths[rows])[:, None] * self.weight[columns]
        return torch.zeros(graphs, terms.shape[1], dtype=torch.float64).index_add(0, rows, terms) + self.bias

    def _colours(self, x: Tensor, edge_index: Tensor) -> list[Tensor]:
        n = x.shape[0]
        colours = torch.zeros(n, dtype=torch.int64)
        if self.attributes:
            rows, columns = x.nonzero(as_tuple=True)
            steps = x[rows, columns].double().asinh().round().to(torch.int64)
            hashes = torch.where(steps == 0, 0, pair_hashes(columns, steps))
            colours = colours.index_add(0, rows, hashes)
        if self.degrees:
            colours = pair_hashes(colours, torch.bincount(edge_index[1], minlength=n))
        by_round = [salted(colours, salt("wl", 0))]
        for number in range(1, self.rounds + 1):
            messages = salted(by_round[-1], salt("wl message", number))[edge_index[0]]
            sums = torch.zeros(n, dtype=torch.int64).index_add(0, edge_index[1], messages)
            by_round.append(pair_hashes(by_round[-1], sums))
        return by_round


class Pooled(nn.Module):
    """Sums and means over the nodes of a graph of propagated attributes, under a linear head."""

    def __init__(self, columns: int, hops: int, classes: int) -> None:
        super().__init__()
        self.hops = hops
        self.weight = nn.Parameter(torch.zeros(2 * ((columns + 1) * (hops + 1) + 1), classes))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        n = x.shape[0]
        edges = with_loops(edge_index, n)
        weights = message_weights(edges, n, "normalised", x.dtype)
        degrees = torch.bincount(edge_index[1], minlength=n).to(x.dtype)
        powers = [torch.cat([x, degrees.log1p()[:, None]], dim=1)]
        for _ in range(self.hops):
            powers.append(propagate(powers[-1], edges, weights))
        sums = _sums(torch.cat([*powers, torch.ones_like(x[:, :1])], dim=1), batch)
        values = torch.cat([sums, sums / sums[:, -1:]], dim=1).asinh()
        return values / values.norm(dim=1, keepdim=True) @ self.weight + self.bias


def _sums(values: Tensor, batch: Tensor) -> Tensor:
    return torch.zeros(int(batch.max()) + 1, values.shape[1], dtype=values.dtype).index_add(0, batch, values)


class GraphNetwork(nn.Module):
    """A linear head on the sum or the mean of the vectors that a network gives the nodes of a graph."""

    def __init__(self, inner: dict[str, Any], width: int, classes: int, pooling: str) -> None:
        super().__init__()
        self.inner, self.head, self.pooling = build(inner), Linear(width, classes, bias=True), pooling

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        out: Tensor = self.head(pooled(self.inner(x, edge_index), batch, self.pooling))
        return out


def pooled(vectors: Tensor, batch: Tensor, pooling: str) -> Tensor:
    sums = _sums(vectors, batch)
    return sums if pooling == "sum" else sums / torch.bincount(batch)[:, None]


class StackedOnItems(nn.Module):
    """Fixed features of items, and the embeddings by encoders, under one linear head."""

    def __init__(
        self,
        fixed: dict[str, Any],
        encoders: list[dict[str, Any]],
        width: int,
        outputs: int,
        norm: float,
        pooling: str | None,
    ) -> None:
        super().__init__()
        given = dict(fixed)
        self.fixed = ITEM_KINDS[given.pop("kind")](**given)
        self.norm, self.pooling = norm, pooling
        self.encoders = nn.ModuleList(build(one) for one in encoders)
        self.weight = nn.Parameter(torch.zeros(width * len(encoders), outputs))
        self.scales: Tensor
        self.register_buffer("scales", torch.zeros(len(encoders)))

    def forward(self, x: Tensor, edge_index: Tensor, items: Tensor, numbers: Tensor | None = None) -> Tensor:
        if self.pooling:
            fixed, messages = self.fixed(x, edge_index, items), edge_index
        else:
            numbers = torch.arange(x.shape[0]) if numbers is None else numbers
            fixed = self.fixed(x, edge_index, items, numbers)
            messages = self.fixed.known(edge_index, numbers, 0)
        looped = with_loops(messages, x.shape[0])
        weights = message_weights(looped, x.shape[0], "normalised", x.dtype)
        blocks = []
        for encoder, scale in zip(self.encoders, self.scales, strict=True):
            vectors = propagate(encoder(x, messages), looped, weights)
            if self.pooling:
                block = pooled(vectors, items, self.pooling)
            else:
                block = vectors[items[:, 0]] * vectors[items[:, 1]]
            blocks.append(torch.where(scale > 0, self.norm / scale.clamp_min(1e-300), 0.0) * block)
        out: Tensor = fixed + torch.cat(blocks, dim=1) @ self.weight
        return out


ITEM_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (LinkFeatures, LinkNetwork, Colours, Pooled, GraphNetwork, StackedOnItems)
}
