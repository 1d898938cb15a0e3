"""The queries: every audited model answers on the same few graphs, and all attacks are scored from these answers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.attributes import with_decoys
from graphforget.audits.canaries import Canaries, plant
from graphforget.audits.items import Items, items_of, pairs_of, reduced_graph
from graphforget.audits.populations import Case, noised
from graphforget.audits.rows import BEFORE, METHOD, NO_OP
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.graph.resolved import Resolved
from graphforget.request.kinds import Kind
from graphforget.training.retraining import trained_anew
from graphforget.training.trained import Trained

Answers = dict[str, np.ndarray]
MOST = 1000  # items of each kind that are attacked
REFUSED = "refused"  # the key of a reason that stands in place of answers


@dataclass(frozen=True, eq=False)
class Queries:
    """The graphs that models are queried on. All but `canaries` have the rows of the graph before the request."""

    full: Graph  # before the request
    reduced: Graph  # after the request, with removed nodes as isolated rows
    restored: Graph | None  # after the request, but with the attributes that it blanks ...
    decoys: Graph | None  # ... and with those of other nodes in their place
    attribute_rows: Tensor
    canaries: Canaries | None  # None if the graph has no room for any
    items: Items
    removed: Tensor  # training nodes that go or lose their label
    outsiders: Tensor  # retained test nodes
    edges: Tensor  # 2 x E, the named edges of which no direction is left, each once

    @classmethod
    def of(cls, case: Case, *, canaries: Collection[Kind] = ("nodes", "edges")) -> Queries:
        """The queries of a case. At most `MOST` items of each kind are drawn; `canaries` are the kinds to plant."""
        resolved = case.request.resolve(case.graph)
        draw, decoy_seed, canary_seed, choice = case.seeds("queries", 0)
        reduced = reduced_graph(case.graph, case.request)
        blanked = torch.cat([resolved.full_rows, resolved.partial_rows])
        audited = case.graph.train_mask[blanked].any()
        restored = reduced_graph(case.graph, case.request, attributes=False) if audited else None
        decoys, rows = (None, blanked[:0]) if restored is None else with_decoys(restored, case.request, seed=decoy_seed)
        retained_tests = case.graph.test_mask.clone()
        gone = torch.cat([resolved.node_rows, resolved.label_rows]).unique()
        retained_tests[gone] = False
        return cls(
            full=case.graph,
            reduced=reduced,
            restored=restored,
            decoys=decoys,
            attribute_rows=_sample(rows, choice),
            canaries=_planted(case.retained, seed=canary_seed, kinds=canaries),
            items=items_of(case.graph, case.request, seed=draw),
            removed=_sample(gone[case.graph.train_mask[gone]], choice),
            outsiders=_sample(retained_tests.nonzero().flatten(), choice),
            edges=_sample(_unlinked(case.graph, reduced, resolved).T, choice).T,
        )

    def answers(self, model: Trained) -> Answers:
        """The logits of the model for every row of every graph."""
        graphs = {
            "full": self.full,
            "reduced": self.reduced,
            "restored": self.restored,
            "decoys": self.decoys,
            "canaries": None if self.canaries is None else self.canaries.query,
        }
        return {name: model.logits(graph).numpy() for name, graph in graphs.items() if graph is not None}


def _planted(graph: Graph, *, seed: int, kinds: Collection[Kind]) -> Canaries | None:
    try:
        return plant(graph, seed=seed, kinds=kinds)
    except InputError:
        return None


def _sample(rows: Tensor, seed: int) -> Tensor:
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:MOST]
    return rows[chosen.sort().values]


def _unlinked(graph: Graph, reduced: Graph, resolved: Resolved) -> Tensor:
    """The named edges as pairs u < v, without loops and without edges whose other direction is retained."""
    pairs = pairs_of(graph, resolved).sort(dim=0).values.unique(dim=1)
    numbers, linked = (p[0] * graph.num_nodes + p[1] for p in (pairs, reduced.edge_index.sort(dim=0).values))
    return pairs[:, (pairs[0] != pairs[1]) & ~torch.isin(numbers, linked)]


def retrained(case: Case, queries: Queries, number: int, *, sigma: float) -> Answers:
    """The answers of a model that is trained on the retained graph, with noise `sigma`, and its weights without it."""
    seed, noise_seed, release_seed, _ = case.seeds("retrained", number)
    model = trained_anew(case.trained, case.retained, seed=seed, noise_seed=noise_seed, device=case.device)
    return queries.answers(noised(model, case.retained, sigma=sigma, seed=release_seed)) | {
        "theta": model.theta.numpy()
    }


def with_canaries(case: Case, queries: Queries, *, sigma: float) -> Answers:
    """The logits on the graph of the canaries of a model that was trained on them, before and after it unlearned them;
    or the reason why there are none."""
    canaries = queries.canaries
    if canaries is None:
        return {REFUSED: np.array("the graph has no room for them")}
    seed, noise_seed, release_seed, forget_seed = case.seeds("canaries", 0)
    start = trained_anew(case.trained, canaries.planted, seed=seed, noise_seed=noise_seed, device=case.device)
    try:
        outcome = case.forget(start, canaries.planted, canaries.request, forget_seed)
    except (InputError, Refused) as reason:
        return {REFUSED: np.array(str(reason))}
    models = {
        BEFORE: start,
        NO_OP: noised(start, canaries.planted, sigma=sigma, seed=release_seed),
        METHOD: outcome.released,
    }
    return {name: model.logits(canaries.query).numpy() for name, model in models.items()}
