"""TrendAttack: infers removed edges from the answers of an unlearned model, by how confidence changes along the graph.

A base score of a pair (from the answers, or from distances too) is learned together with the weights of four trend
bits of each end: whether the confidence of a node is below that of its neighbours, and theirs below that of their
neighbours. The attacker learns on a shadow graph that shares no node with the attacked one, and unlearned likewise.

Three faults of the published code are not repeated. The confidence is the largest probability alone, never a maximum
over attributes. The attacks without trend bits also learn from removed edges. Edges that are queried as retained are
cut from the attacker's view of the shadow graph too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from graphforget.audits.links import combined, distances
from graphforget.audits.network import DIGITS
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.targets import has_target
from graphforget.graph.validation import checked_edges
from graphforget.linalg.sparse import to_scipy
from graphforget.validation import whole_number

Base = Literal["mia", "steal"]

FIRST_WEIGHTS = (0.5, -0.5, -0.5, 0.5)  # of the trend bits
LEARNING_RATE, WEIGHT_DECAY, DROPOUT, EPOCHS, BATCH = 0.01, 1e-4, 0.5, 100, 512
REFERENCE_EPOCHS = 100


@dataclass(frozen=True, eq=False)
class View:
    """What the attacker sees of one model: its posteriors, the attributes, and the edges that the attacker knows."""

    posteriors: Tensor
    attributes: Graph = field(repr=False)  # the graph whose rows the pairs are of
    edges: Tensor = field(repr=False)  # 2 x E, both directions


def trend_bits(posteriors: Tensor, edges: Tensor) -> Tensor:
    """Four bits of every node: `[t0 < t1], [t0 >= t1], [t1 < t2], [t1 >= t2]`.

    `t0` is the largest probability and `t_{k+1} = D^-1/2 A D^-1/2 t_k` on the edges; without an edge it is 0.
    """
    trend = [posteriors.max(dim=1).values.double()]
    source, target = edges
    degrees = torch.zeros_like(trend[0]).index_add_(0, target, torch.ones(target.numel(), dtype=torch.float64))
    scale = degrees.clamp(min=1).rsqrt()
    for _ in range(2):
        messages = (scale * trend[-1])[source]
        trend.append(scale * torch.zeros_like(trend[0]).index_add_(0, target, messages))
    below = [trend[k] < trend[k + 1] for k in range(2)]
    return torch.stack([below[0], ~below[0], below[1], ~below[1]], dim=1).float()


@dataclass(frozen=True, eq=False)
class TrendAttacker:
    """A trained attacker. Its base is `mia` or `steal`, with or without trend bits."""

    base: Base
    network: _PairNetwork = field(repr=False)
    reference: nn.Module | None = field(repr=False)
    scaling: tuple[Tensor, Tensor] = field(repr=False)

    def scores(self, view: View, pairs: Tensor) -> np.ndarray:
        """One score for each pair, the same for (u, v) and (v, u); above 0 means "linked"."""
        first, second, shared = _features(view, pairs, base=self.base, reference=self.reference)
        mean, deviation = self.scaling
        bits = trend_bits(view.posteriors, view.edges)[pairs].sum(dim=0)
        with torch.no_grad():
            values = self.network.eval()(first, second, (shared - mean) / deviation, bits)
        return np.asarray(np.round(values.double().numpy(), DIGITS - 4))


def trend_attacker(
    shadow: View, linked: Tensor, unlinked: Tensor, *, base: Base, with_trend: bool, seed: int
) -> TrendAttacker:
    """Trains on pairs of the shadow graph: `linked` ones, removed and retained, and `unlinked` ones."""
    if base not in ("mia", "steal"):
        raise InputError(f"the base is {base!r}, it must be mia or steal")
    if not linked.shape[1] or not unlinked.shape[1]:
        raise InputError("an attack is trained on linked and unlinked pairs, and one kind is missing")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(whole_number(seed, "the seed"))
        reference = _reference(shadow.attributes) if base == "steal" else None
        pairs = torch.cat([linked, unlinked], dim=1)
        kinds = (torch.arange(pairs.shape[1]) < linked.shape[1]).float()
        first, second, shared = _features(shadow, pairs, base=base, reference=reference)
        mean = shared.mean(dim=0)
        deviation = (shared - mean).square().mean(dim=0).sqrt().clamp(min=1e-6)
        bits = trend_bits(shadow.posteriors, shadow.edges)[pairs].sum(dim=0)
        network = _PairNetwork(first.shape[1], shared.shape[1], with_trend=with_trend)
        _learn(network, (first, second, (shared - mean) / deviation, bits), kinds)
    return TrendAttacker(base, network, reference, (mean, deviation))


class _PairNetwork(nn.Module):
    """`base(u, v) + t . bits(u) + t . bits(v)`."""

    def __init__(self, classes: int, shared: int, *, with_trend: bool) -> None:
        super().__init__()
        self.ends = nn.Sequential(nn.Linear(classes, 64), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(64, 64))
        self.pair = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1)) if not shared else None
        self.shared = (
            nn.Sequential(nn.Linear(shared, 64), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(64, 1)) if shared else None
        )
        self.trend = nn.Parameter(torch.tensor(FIRST_WEIGHTS)) if with_trend else None

    def forward(self, first: Tensor, second: Tensor, shared: Tensor, bits: Tensor) -> Tensor:
        """One score for each pair; `bits` are the sums of those of both ends."""
        if self.pair is not None:
            value: Tensor = self.pair(self.ends(first) * self.ends(second)).squeeze(1)
        else:
            assert self.shared is not None
            value = self.shared(shared).squeeze(1)
        return value if self.trend is None else value + bits @ self.trend


def _learn(network: _PairNetwork, features: tuple[Tensor, ...], kinds: Tensor) -> None:
    adam = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    network.train()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(kinds)).split(BATCH):
            adam.zero_grad()
            scores = network(*(part[rows] for part in features))
            binary_cross_entropy_with_logits(scores, kinds[rows]).backward()
            adam.step()


def _features(view: View, pairs: Tensor, *, base: Base, reference: nn.Module | None) -> tuple[Tensor, Tensor, Tensor]:
    """The posteriors of both ends, and for `steal` the distances and entropies of the pair."""
    u, v = checked_edges(pairs, view.attributes.num_nodes)
    first, second = view.posteriors[u].float(), view.posteriors[v].float()
    if base == "mia":
        return first, second, torch.zeros(len(u), 0)
    rows = dense_attributes(view.attributes, u), dense_attributes(view.attributes, v)
    assert reference is not None
    with torch.no_grad():
        learned = [reference(part).softmax(dim=1) for part in rows]
    groups = [rows, (first, second), (learned[0], learned[1])]
    parts = [part for p, q in groups for part in _pair_statistics(p.double().numpy(), q.double().numpy())]
    shared = np.nan_to_num(np.concatenate(parts, axis=1), nan=0.0, posinf=0.0, neginf=0.0)
    return first, second, torch.from_numpy(shared).float()


def _pair_statistics(p: np.ndarray, q: np.ndarray) -> list[np.ndarray]:
    """Eight distances of the two rows, and mean, product, absolute and squared difference of their entropies."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return [*distances(p, q), *combined(_entropy(p), _entropy(q))]


def _entropy(rows: np.ndarray) -> np.ndarray:
    """The entropy of the absolute values of a row, scaled to sum 1; 0 for a row of zeros."""
    sizes = np.abs(rows)
    shares = sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1e-12)
    return -(shares * np.log(np.maximum(shares, 1e-12))).sum(axis=1, keepdims=True)


def _reference(graph: Graph) -> nn.Module:
    """A network on the attributes of the shadow graph alone, which knows no edge."""
    rows = (graph.train_mask & has_target(graph.y)).nonzero().flatten()
    x, y = dense_attributes(graph, rows), graph.y[rows]
    network = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, graph.num_classes))
    adam = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for _ in range(REFERENCE_EPOCHS):
        adam.zero_grad()
        cross_entropy(network(x), y).backward()
        adam.step()
    return network.eval()


def dense_attributes(graph: Graph, rows: Tensor) -> Tensor:
    """The attributes of some rows in float32, with their zeros."""
    if graph.x.layout == torch.sparse_csr:
        return torch.from_numpy(to_scipy(graph.x)[rows.numpy()].toarray()).float()
    return graph.x[rows].float()
