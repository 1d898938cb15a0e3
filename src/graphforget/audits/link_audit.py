"""Audits of models for links: can deleted edges be told from pairs that never were edges?

Two questions, each asked of the weights before the deletion, of the release, and of a release after full retraining.
StealLink: do the logits on the retained graph separate deleted edges from unlinked pairs of the same classes and
degrees? Linked nodes are similar, so every good model separates them to some degree: the retrained one is the measure.
Canaries: false edges between random nodes are planted, learned and deleted. No model that never saw them has a reason
to score them above other unlinked pairs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.links import matched_non_edges
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.links import SUPERVISED, edge_pairs, link_sides, pair_keys
from graphforget.graph.validation import canonical_edges
from graphforget.models.link import LinkFixed
from graphforget.privacy.noise import with_noise
from graphforget.request.request import Request
from graphforget.training.retraining import trained_anew
from graphforget.training.scores import auc
from graphforget.training.trained import Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.unlearn import unlearn


@dataclass(frozen=True)
class LinkAudit:
    """The area under the ROC curve of pairs to detect against other unlinked pairs, by the model that is asked.

    `position` is how far the weights without noise went from those before (1) to the retrained ones (0), measured by
    the logits of the pairs to detect.
    """

    pairs: int
    before: float  # the old weights on the retained graph, as if only the edges had been deleted
    released: float
    retrained: float  # with noise of its own
    position: float
    error: float  # the standard deviation of such an area if the pairs cannot be told apart

    @property
    def passed(self) -> bool:
        """Whether the release separates the pairs no better than a retrained model, up to three standard deviations."""
        return self.released - self.retrained <= 3 * self.error


def audit_deleted_links(trained: Trained, graph: Graph, request: Request, outcome: Outcome, *, seed: int) -> LinkAudit:
    """StealLink on the edges that a request named, both ends of which are still there.

    Raises:
        InputError: The model does not answer for links, or there is no such edge.
    """
    retained = outcome.graph
    lost = graph.numbers[edge_pairs(graph)]
    lost = lost[torch.isin(lost, retained.numbers).all(dim=1)]
    lost_rows = torch.searchsorted(retained.numbers, lost)
    keys = pair_keys(edge_pairs(retained), retained.num_nodes)
    lost_rows = lost_rows[~torch.isin(pair_keys(lost_rows, retained.num_nodes), keys)]
    if not len(lost_rows):
        raise InputError("the request deletes no edge between two nodes that remain, so there is nothing to audit")
    others = matched_non_edges(retained, lost_rows.T, seed=seed).T
    return _compared(trained, outcome, lost_rows, others, seed=seed)


def audit_link_canaries(trained: Trained, graph: Graph, *, count: int = 50, seed: int) -> LinkAudit:
    """Plants false edges, trains by the recipe of `trained`, deletes them, and compares with training without them.

    Raises:
        InputError: The model does not answer for links, or the graph has no room for the canaries.
    """
    canaries = _unlinked_pairs(_module(trained), graph, count, seed=seed)
    edges = canonical_edges(torch.cat([graph.edge_index, canaries.T], dim=1), graph.num_nodes, directed=False)
    planted = dataclasses.replace(graph, edge_index=edges)
    taught = trained_anew(trained, planted, seed=trained.recipe.seed)
    names = [(graph.name_of(u), graph.name_of(v)) for u, v in canaries.tolist()]
    outcome = unlearn(taught, planted, Request(edges=names), noise_seed=seed)
    others = matched_non_edges(outcome.graph, canaries.T, seed=seed).T
    return _compared(taught, outcome, canaries, others, seed=seed)


def _compared(trained: Trained, outcome: Outcome, pairs: Tensor, others: Tensor, *, seed: int) -> LinkAudit:
    graph = outcome.graph
    retrained = trained_anew(trained, graph, seed=trained.recipe.seed)
    noised = retrained.with_weights(with_noise(retrained.theta, sigma=retrained.recipe.sigma, seed=seed + 1))
    models = {"before": trained, "released": outcome.released, "retrained": noised}
    areas = {name: auc(_logits(model, graph, pairs), _logits(model, graph, others)) for name, model in models.items()}
    before, after, target = (_logits(model, graph, pairs) for model in (trained, outcome.trained, retrained))
    way = before - target
    position = float((after - target) @ way / (way @ way)) if way.any() else 0.0
    p, n = len(pairs), len(others)
    error = float(np.sqrt((p + n + 1) / (12 * p * n)))  # of Mann and Whitney's statistic
    return LinkAudit(pairs=p, position=position, error=error, **areas)


def _logits(model: Trained, graph: Graph, rows: Tensor) -> np.ndarray:
    values: np.ndarray = _module(model).pair_logits(graph, rows).squeeze(1).double().numpy()
    return values


def _module(trained: Trained) -> LinkFixed:
    if not isinstance(trained.module, LinkFixed):
        raise InputError(f"model {trained.recipe.model!r} does not answer for links of any pair, link-sign does")
    return trained.module


def _unlinked_pairs(module: LinkFixed, graph: Graph, count: int, *, seed: int) -> Tensor:
    """Random pairs of rows on the supervised side without an edge."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(graph.num_nodes, (64 * count, 2), generator=generator).sort(dim=1).values
    keys = pair_keys(drawn[drawn[:, 0] < drawn[:, 1]], graph.num_nodes).unique()
    keys = keys[~torch.isin(keys, pair_keys(edge_pairs(graph), graph.num_nodes))]
    drawn = torch.stack([keys // graph.num_nodes, keys % graph.num_nodes], dim=1)
    drawn = drawn[link_sides(graph.numbers[drawn], module.view.settings) == SUPERVISED]
    if len(drawn) < count:
        raise InputError(f"the graph has no room for {count} canary edges")
    return drawn[torch.randperm(len(drawn), generator=generator)[:count]]
