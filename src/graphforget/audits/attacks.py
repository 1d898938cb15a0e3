"""Every attack on every audited model, from the answers that the models gave (`queries.py`)."""

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
from graphforget.audits.rows import Scores
from graphforget.audits.scores import confidence

# The answers of the audited models by row of the table; of retrained ones for each seed.
Targets = Mapping[str, Sequence[Answers]]
Scored = dict[str, list[Scores]]


def membership(case: Case, queries: Queries, targets: Targets, *, protocol: Protocol) -> Scored:
    """MIA-Graph: removed training nodes against test nodes.

    In the honest protocol all are asked where they stood, removed nodes with their old neighbourhood. In the paper's,
    a model is asked on the reduced graph: there a removed node stands alone, and the attack sees that and no more.
    """
    outsiders = torch.isin(case.retained.numbers, case.graph.numbers[queries.outsiders]).nonzero().flatten()
    seed = case.seeds(f"membership {protocol}", 0)[0]
    attacker = membership_attacker(case.retained, case.trained, protocol=protocol, seed=seed, exclude=outsiders)
    y = queries.full.y

    def scores(model: str, answers: Answers) -> Scores:
        asked = "full" if protocol == "honest" or model == "before" else "reduced"
        logits = torch.from_numpy(answers[asked])
        inside, outside = (attacker.scores(logits[r], y[r]) for r in (queries.removed, queries.outsiders))
        return inside, outside

    return _each(targets, scores)


def published_metric(scored: Mapping[str, Sequence[Scores]]) -> dict[str, float]:
    """What the paper's code calls AUC (`membership.balanced_accuracy`), for each row of the table."""
    return {
        model: float(np.mean([balanced_accuracy(high, low) for high, low in several]))
        for model, several in scored.items()
    }


def links(case: Case, queries: Queries, targets: Targets, shadow: Answers, *, protocol: Protocol) -> Scored:
    """StealLink's attack 3: removed edges against pairs that never were one, asked on the graph without the edges.

    Half of the retained edges are known. In the paper's protocol every model has an attacker of its own, trained on
    its own answers, and non-edges are any pairs; in the honest one a single attacker learns from a model that was
    retrained for it, and non-edges have the removed edges' classes and degrees.
    """
    chosen, strange, tested, fitted = case.seeds(f"links {protocol}", 0)
    edges = queries.edges
    known = known_half(queries.reduced, seed=chosen)
    others = uniform_non_edges(queries.full, known.shape[1], seed=strange)
    if protocol == "paper":
        negatives = uniform_non_edges(queries.full, edges.shape[1], seed=tested, avoid=others)
    else:
        negatives = matched_non_edges(queries.full, edges, seed=tested, avoid=others)

    def attack(answers: Answers) -> Callable[[Tensor, Tensor], np.ndarray]:
        return link_attacker(_posteriors(answers["reduced"]), known, others, seed=fitted).scores

    shared = attack(shadow) if protocol == "honest" else None

    def scores(model: str, answers: Answers) -> Scores:
        score = attack(answers) if shared is None else shared
        posteriors = _posteriors(answers["full" if model == "before" else "reduced"])
        return score(posteriors, edges), score(posteriors, negatives)

    return _each(targets, scores)


def attributes(queries: Queries, targets: Targets) -> Scored:
    """Removed attribute values against somebody else's of the same class: with which is the model surer of a label?"""
    rows, y = queries.attribute_rows, queries.full.y

    def scores(model: str, answers: Answers) -> Scores:
        true, decoy = (confidence(torch.from_numpy(answers[g])[rows], y[rows]) for g in ("restored", "decoys"))
        return true, decoy

    return _each(targets, scores)


def canaries(queries: Queries, targets: Mapping[str, Sequence[np.ndarray]]) -> dict[str, Scored]:
    """Planted canaries against decoys of the same kind, by the confidence in the label that was planted, or in the
    labels of a planted edge's ends. All are asked on the graph that holds both."""
    planted = queries.canaries
    assert planted is not None
    kinds = {"canary nodes": (planted.nodes, planted.node_decoys), "canary edges": (planted.edges, planted.edge_decoys)}

    def values(items: Items, logits: np.ndarray) -> np.ndarray:
        return items.values(torch.from_numpy(logits), planted.query.y)

    return {
        name: {model: [(values(was, z), values(never, z)) for z in several] for model, several in targets.items()}
        for name, (was, never) in kinds.items()
        if len(was)
    }


def _each(targets: Targets, scores: Callable[[str, Answers], Scores]) -> Scored:
    return {model: [scores(model, answers) for answers in several] for model, several in targets.items()}


def _posteriors(logits: np.ndarray) -> Tensor:
    return torch.from_numpy(logits).softmax(dim=1)
