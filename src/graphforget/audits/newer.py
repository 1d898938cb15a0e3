"""The newer attacks on a model after a deletion, each with its controls: unchanged weights and retrained models.

Attacks on nodes need the removed nodes at their old place, so every model answers on the graph before the deletion.
Attacks on edges need a shadow: another graph on which the attacker trained and unlearned in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.attacks import Scored
from graphforget.audits.items import pairs_of, reduced_graph
from graphforget.audits.links import matched_non_edges
from graphforget.audits.output_change import output_change
from graphforget.audits.populations import Forget
from graphforget.audits.recall import recall_attack
from graphforget.audits.rows import NO_OP, RETRAINED
from graphforget.audits.trend import Base, View, dense_attributes, trend_attacker
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.request.request import Request
from graphforget.request.sampling import Drawing, draw_request
from graphforget.training.retraining import trained_anew
from graphforget.training.trained import Trained

Models = Mapping[str, Sequence[Trained]]  # by row of the table; NO_OP and RETRAINED are among them
BASES: tuple[Base, ...] = ("mia", "steal")
MOST = 1000  # nodes of each kind that are attacked


@dataclass(frozen=True, eq=False)
class Shadow:
    """A graph of the attacker, a model that was trained on it and unlearned some of its edges, and these edges."""

    graph: Graph
    model: Trained
    removed: Tensor  # 2 x R
    reduced: Graph  # without the removed edges


def controls(trained: Trained, graph: Graph, request: Request, *, seeds: int, seed: int) -> dict[str, list[Trained]]:
    """The two rows that every attack is compared with: unchanged weights, and models retrained without the data."""
    retained = graph.without(request)
    retrained = [trained_anew(trained, retained, seed=seed + 1 + k, noise_seed=seed + 1 + k) for k in range(seeds)]
    return {NO_OP: [trained], RETRAINED: retrained}


def node_attacks(models: Models, graph: Graph, request: Request, *, seed: int) -> dict[str, Scored]:
    """`output change` and `recall`: removed training nodes against test nodes.

    Raises:
        InputError: The request removes no training node, the graph has no test node, or a control is missing.
    """
    _check_controls(models)
    gone = request.resolve(graph).node_rows
    removed, outside = gone[graph.train_mask[gone]], graph.test_mask.nonzero().flatten()
    outside = outside[~torch.isin(outside, gone)]
    if not removed.numel() or not outside.numel():
        raise InputError("removed training nodes and retained test nodes are needed for an attack on nodes")
    removed, outside = (_sample(rows, seed) for rows in (removed, outside))
    before = models[NO_OP][0].logits(graph)
    x = dense_attributes(graph, torch.arange(graph.num_nodes))

    def changed(model: Trained) -> np.ndarray:
        return output_change(before, model.logits(graph))

    def recalled(model: Trained) -> np.ndarray:
        return recall_attack(x, model.logits(graph).softmax(dim=1), seed=seed).scores

    return {
        name: _each(models, lambda model, score=score: _both(score(model), removed, outside))  # type: ignore[misc]
        for name, score in (("output change", changed), ("recall", recalled))
    }


def edge_attacks(models: Models, graph: Graph, request: Request, shadow: Shadow, *, seed: int) -> dict[str, Scored]:
    """TrendAttack on both bases, with and without trend bits: removed edges against non-edges of the same classes and
    degrees. All four attacks learn from removed edges of the shadow."""
    _check_controls(models)
    pairs = pairs_of(graph, request.resolve(graph))
    pairs = pairs[:, pairs[0] != pairs[1]]
    if not pairs.shape[1]:
        raise InputError("the request removes no edge between two nodes, so there is no edge to attack")
    reduced = reduced_graph(graph, request)
    others = matched_non_edges(graph, pairs, seed=seed)
    retained, cut = _cut(shadow.reduced, shadow.removed.shape[1], seed=seed)
    linked = torch.cat([shadow.removed, retained], dim=1)
    unlinked = matched_non_edges(shadow.graph, linked, seed=seed + 1)
    shadow_view = View(shadow.model.logits(shadow.reduced).softmax(dim=1), shadow.graph, cut)
    scored: dict[str, Scored] = {}
    for base in BASES:
        for with_trend in (False, True):
            attacker = trend_attacker(shadow_view, linked, unlinked, base=base, with_trend=with_trend, seed=seed)

            def score(model: Trained, attacker=attacker) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[no-untyped-def]
                view = View(model.logits(reduced).softmax(dim=1), graph, reduced.edge_index)
                return attacker.scores(view, pairs), attacker.scores(view, others)

            scored[f"trend {base}" if with_trend else base] = _each(models, score)
    return scored


def make_shadow(graph: Graph, like: Trained, forget: Forget, *, share: float = 0.05, seed: int) -> Shadow:
    """Trains on the attacker's graph by the recipe of `like`, and unlearns a share of its edges in the same way."""
    request = draw_request(graph, Drawing("edges", share=share), seed=seed)
    taught = trained_anew(like, graph, seed=seed, noise_seed=seed)
    outcome = forget(taught, graph, request, seed)
    return Shadow(graph, outcome.released, pairs_of(graph, request.resolve(graph)), reduced_graph(graph, request))


def halves(graph: Graph, *, seed: int) -> tuple[Graph, Graph]:
    """Two disjoint induced halves of the nodes: the second grows from a random node to its neighbours, breadth first.

    The published protocol cuts with METIS. Nothing but two connected graphs without a common node is needed here.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(graph.num_nodes, generator=generator).tolist()
    source, target = graph.edge_index
    neighbours: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for u, v in zip(source.tolist(), target.tolist(), strict=True):
        neighbours[u].append(v)
    chosen, queue, most = torch.zeros(graph.num_nodes, dtype=torch.bool), [], graph.num_nodes // 2
    for start in order:
        queue = [start]
        while queue and int(chosen.sum()) < most:
            node = queue.pop(0)
            if not chosen[node]:
                chosen[node] = True
                queue += neighbours[node]
        if int(chosen.sum()) >= most:
            break
    return graph.induced(~chosen), graph.induced(chosen)


def _cut(graph: Graph, count: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Some edges of the graph as pairs u < v, and the edge list without them."""
    source, target = graph.edge_index
    once = (source < target).nonzero().flatten()
    order = torch.randperm(once.numel(), generator=torch.Generator().manual_seed(seed))[:count]
    pairs = graph.edge_index[:, once[order]]
    keys = pairs[0] * graph.num_nodes + pairs[1]
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    return pairs, graph.edge_index[:, ~torch.isin(low * graph.num_nodes + high, keys)]


def _each(models: Models, score: Callable[[Trained], tuple[np.ndarray, np.ndarray]]) -> Scored:
    return {name: [score(model) for model in group] for name, group in models.items()}


def _both(values: np.ndarray, removed: Tensor, outside: Tensor) -> tuple[np.ndarray, np.ndarray]:
    return values[removed.numpy()], values[outside.numpy()]


def _sample(rows: Tensor, seed: int) -> Tensor:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:MOST]
    return rows[order].sort().values


def _check_controls(models: Models) -> None:
    missing = [name for name in (NO_OP, RETRAINED) if not models.get(name)]
    if missing:
        raise InputError(f"the control {missing[0]!r} is missing, an attack without it shows nothing")
