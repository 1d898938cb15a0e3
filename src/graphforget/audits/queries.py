"""What every audited model is asked, once: its answers on the same few graphs, from which all attacks are scored."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.attributes import with_decoys
from graphforget.audits.canaries import Canaries, plant
from graphforget.audits.items import Items, items_of, pairs_of, without_removing
from graphforget.audits.populations import Case, noised
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.request.kinds import Kind
from graphforget.training.retraining import trained_anew
from graphforget.training.trained import Trained

Answers = dict[str, np.ndarray]
MOST = 1000
REFUSED = "refused"  # instead of answers: why there are none


@dataclass(frozen=True, eq=False)
class Queries:
    """The graphs that models are asked on. All but `canaries` have the rows of the graph that holds everything."""

    full: Graph  # with what was removed, in its place
    reduced: Graph  # as after the request, removed nodes standing alone
    restored: Graph | None  # as after the request, but with the attributes that were to go ...
    decoys: Graph | None  # ... and with somebody else's in their place
    attribute_rows: Tensor
    canaries: Canaries | None  # None where there is no room for any
    items: Items
    removed: Tensor  # training nodes that went
    outsiders: Tensor  # test nodes that stayed
    edges: Tensor  # 2 x E, that were named and are linked no more, whichever way; each once

    @classmethod
    def of(cls, case: Case, *, canaries: Collection[Kind] = ("nodes", "edges")) -> Queries:
        """Of anything that there is more of to attack, `MOST` are drawn. `canaries` are the kinds to plant."""
        what = case.request.resolve(case.graph)
        draw, decoy_seed, canary_seed, choice = case.seeds("queries", 0)
        left = without_removing(case.graph, case.request)
        blanked = torch.cat([what.full_rows, what.partial_rows])
        audited = case.graph.train_mask[blanked].any()
        restored = without_removing(case.graph, case.request, attributes=False) if audited else None
        decoys, rows = (None, blanked[:0]) if restored is None else with_decoys(restored, case.request, seed=decoy_seed)
        stays = case.graph.test_mask.clone()
        stays[what.node_rows] = False
        return cls(
            full=case.graph,
            reduced=left,
            restored=restored,
            decoys=decoys,
            attribute_rows=_some(rows, choice),
            canaries=_planted(case.retained, seed=canary_seed, kinds=canaries),
            items=items_of(case.graph, case.request, seed=draw),
            removed=_some(what.node_rows[case.graph.train_mask[what.node_rows]], choice),
            outsiders=_some(stays.nonzero().flatten(), choice),
            edges=_some(_unlinked(case.graph, left, what.edge_mask).T, choice).T,
        )

    def answers(self, model: Trained) -> Answers:
        """The logits of every row of every graph."""
        asked = {
            "full": self.full,
            "reduced": self.reduced,
            "restored": self.restored,
            "decoys": self.decoys,
            "canaries": None if self.canaries is None else self.canaries.query,
        }
        return {name: model.logits(graph).numpy() for name, graph in asked.items() if graph is not None}


def _planted(graph: Graph, *, seed: int, kinds: Collection[Kind]) -> Canaries | None:
    try:
        return plant(graph, seed=seed, kinds=kinds)
    except InputError:
        return None


def _some(rows: Tensor, seed: int) -> Tensor:
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:MOST]
    return rows[chosen.sort().values]


def _unlinked(graph: Graph, left: Graph, edge_mask: Tensor) -> Tensor:
    """The named edges as pairs u < v, without loops and without those whose other direction stays."""
    pairs = pairs_of(graph, edge_mask).sort(dim=0).values.unique(dim=1)
    numbers, linked = (p[0] * graph.num_nodes + p[1] for p in (pairs, left.edge_index.sort(dim=0).values))
    return pairs[:, (pairs[0] != pairs[1]) & ~torch.isin(numbers, linked)]


def retrained(case: Case, queries: Queries, number: int, *, sigma: float) -> Answers:
    """Of a model that was trained on the retained graph and would go out with noise `sigma`; and its own weights."""
    seed, noise_seed, release, _ = case.seeds("retrained", number)
    model = trained_anew(case.trained, case.retained, seed=seed, noise_seed=noise_seed)
    return queries.answers(noised(model, sigma=sigma, seed=release)) | {"theta": model.theta.numpy()}


def with_canaries(case: Case, queries: Queries, *, sigma: float) -> Answers:
    """Logits on the canaries' graph of a model that was trained on them, before and after it was told to forget; or why
    it could not be."""
    canaries = queries.canaries
    if canaries is None:
        return {REFUSED: np.array("the graph has no room for them")}
    seed, noise_seed, release, forgetting = case.seeds("canaries", 0)
    start = trained_anew(case.trained, canaries.planted, seed=seed, noise_seed=noise_seed)
    try:
        outcome = case.forget(start, canaries.planted, canaries.request, forgetting)
    except (InputError, Refused) as reason:
        return {REFUSED: np.array(str(reason))}
    models = {"before": start, "nothing": noised(start, sigma=sigma, seed=release), "method": outcome.released}
    return {name: model.logits(canaries.query).numpy() for name, model in models.items()}
