"""Every attack on every audited model, scored from the answers of the models (`queries.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.items import Items
from graphforget.audits.links import known_half, link_attacker, matched_non_edges, uniform_non_edges
from graphforget.audits.membership import Protocol, balanced_accuracy, membership_attacker
from graphforget.audits.populations import Case
from graphforget.audits.queries import Answers, Queries
from graphforget.audits.rows import BEFORE, Scores
from graphforget.audits.scores import confidence

# The answers of the audited models by row of the table; several for retrained models, one for each seed.
Targets = Mapping[str, Sequence[Answers]]
Scored = dict[str, list[Scores]]


def membership(case: Case, queries: Queries, targets: Targets, *, protocol: Protocol) -> Scored:
    """MIA-Graph: removed training nodes against test nodes.

    In the honest protocol every node is queried in the full graph, removed nodes with their old neighbours. In the
    paper's protocol a model is queried on the reduced graph. There a removed node has no neighbours, and the attack
    sees nothing else.
    """
    outsiders = torch.isin(case.retained.numbers, case.graph.numbers[queries.outsiders]).nonzero().flatten()
    seed = case.seeds(f"membership {protocol}", 0)[0]
    attacker = membership_attacker(case.retained, case.trained, protocol=protocol, seed=seed, exclude=outsiders)
    y = queries.full.y

    def scores(model: str, answers: Answers) -> Scores:
        query = "full" if protocol == "honest" or model == BEFORE else "reduced"
        logits = torch.from_numpy(answers[query])
        inside, outside = (attacker.scores(logits[r], y[r]) for r in (queries.removed, queries.outsiders))
        return inside, outside

    return _each(targets, scores)


def published_metric(scored: Mapping[str, Sequence[Scores]]) -> dict[str, float]:
    """What the paper's code calls AUC (`membership.balanced_accuracy`), for each row of the table."""
    return {
        model: float(np.mean([balanced_accuracy(high, low) for high, low in pairs])) for model, pairs in scored.items()
    }


def links(case: Case, queries: Queries, targets: Targets, shadow: Answers, *, protocol: Protocol) -> Scored:
    """StealLink's attack 3: removed edges against pairs that were never an edge, on the graph without the edges.

    The attacker knows half of the retained edges. In the paper's protocol each model has its own attacker, trained on
    the answers of that model, and the non-edges are any pairs. In the honest protocol one attacker learns from a model
    that was retrained for it, and the non-edges have the classes and degrees of the removed edges.
    """
    edge_seed, non_edge_seed, negative_seed, attacker_seed = case.seeds(f"links {protocol}", 0)
    edges = queries.edges
    known_edges = known_half(queries.reduced, seed=edge_seed)
    known_non_edges = uniform_non_edges(queries.full, known_edges.shape[1], seed=non_edge_seed)
    if protocol == "paper":
        negatives = uniform_non_edges(queries.full, edges.shape[1], seed=negative_seed, avoid=known_non_edges)
    else:
        negatives = matched_non_edges(queries.full, edges, seed=negative_seed, avoid=known_non_edges)

    def attack(answers: Answers) -> Callable[[Tensor, Tensor], np.ndarray]:
        posteriors = _posteriors(answers["reduced"])
        return link_attacker(posteriors, known_edges, known_non_edges, seed=attacker_seed).scores

    shared = attack(shadow) if protocol == "honest" else None

    def scores(model: str, answers: Answers) -> Scores:
        score = attack(answers) if shared is None else shared
        posteriors = _posteriors(answers["full" if model == BEFORE else "reduced"])
        return score(posteriors, edges), score(posteriors, negatives)

    return _each(targets, scores)


def attributes(queries: Queries, targets: Targets) -> Scored:
    """Removed attribute values against those of another node of the same class, by the confidence in the label."""
    rows, y = queries.attribute_rows, queries.full.y

    def scores(model: str, answers: Answers) -> Scores:
        true, decoy = (confidence(torch.from_numpy(answers[g])[rows], y[rows]) for g in ("restored", "decoys"))
        return true, decoy

    return _each(targets, scores)


def canaries(queries: Queries, targets: Mapping[str, Sequence[np.ndarray]]) -> dict[str, Scored]:
    """Planted canaries against decoys of the same kind, by the confidence in the planted label, or in the labels of
    the two ends of a planted edge. Both are queried on the graph that holds both."""
    planted = queries.canaries
    assert planted is not None
    kinds = {"canary nodes": (planted.nodes, planted.node_decoys), "canary edges": (planted.edges, planted.edge_decoys)}

    def values(items: Items, logits: np.ndarray) -> np.ndarray:
        return items.values(torch.from_numpy(logits), planted.query.y)

    return {
        name: {
            model: [(values(planted_items, logits), values(decoys, logits)) for logits in answers]
            for model, answers in targets.items()
        }
        for name, (planted_items, decoys) in kinds.items()
        if len(planted_items)
    }


def _each(targets: Targets, scores: Callable[[str, Answers], Scores]) -> Scored:
    return {model: [scores(model, one) for one in answers] for model, answers in targets.items()}


def _posteriors(logits: np.ndarray) -> Tensor:
    return torch.from_numpy(logits).softmax(dim=1)
