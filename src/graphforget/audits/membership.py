"""MIA-Graph (Olatunji et al. 2021): infers from the answers on a node whether the model was trained on it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.network import AttackNetwork, FittedNetwork
from graphforget.audits.scores import confidence
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.graph.targets import UNLABELLED
from graphforget.progress import Progress
from graphforget.training.retraining import trained_anew
from graphforget.training.train import train
from graphforget.training.trained import Trained
from graphforget.validation import whole_number

Protocol = Literal["paper", "honest"]

# Nodes of each class in the shadow's training set, and as many outside; half of the class if it has fewer.
SHADOW_NODES = {"cora": 90, "citeseer": 100, "pubmed": 1500, "cs": 400, "physics": 1000}

PAPER = AttackNetwork(hidden=(100, 50), dropout=0.2, learning_rate=0.01, epochs=300, batch=32)
# 300 epochs overfit to the shadow, so a fifth of the shadow's own nodes decides when to stop, never the target.
# At the paper's learning rate all units die on large graphs with little to learn, such as CS: all scores are equal.
HONEST = dataclasses.replace(PAPER, learning_rate=0.001, standardise=True, held_out=0.2)

LARGEST_ODDS = 700.0  # as a logarithm: about the limit of a float64


@dataclass(frozen=True, eq=False)
class MembershipAttacker:
    """An attacker that was trained on one shadow model; it can attack every model with the same classes."""

    protocol: Protocol
    network: FittedNetwork = field(repr=False)
    shadow: Trained = field(repr=False)
    members: Tensor = field(repr=False)  # rows that the shadow was trained on
    non_members: Tensor = field(repr=False)  # rows that the attack was trained on as non-members
    note: str = ""  # how the shadow differs from `like`, if it does

    def scores(self, logits: Tensor, labels: Tensor) -> np.ndarray:
        """One score for each node from its logits and its true label: higher for members, above 0 means "member"."""
        return self.network.scores(_features(logits, labels, protocol=self.protocol))


def membership_attacker(
    graph: Graph,
    like: Trained,
    *,
    protocol: Protocol,
    seed: int,
    exclude: Tensor | None = None,
    progress: Progress | None = None,
) -> MembershipAttacker:
    """Trains a shadow model on `graph`, which is what the attacker knows, and an attack network on its posteriors.

    Neither is trained on the rows `exclude`, as members or as non-members: the audited nodes belong there. All rows
    stay in the graph and pass messages on.

    - `paper`: the attack of the IDEA paper. The shadow is a two-layer GCN, whatever is attacked, and the features are
      the raw posterior. Nodes are drawn by class from all labelled nodes. Faults of its code are not repeated: shadow
      edges between the wrong nodes, a softmax of a softmax, members and others queried on different graphs, scores
      averaged over batches.
    - `honest`: the shadow has the recipe of `like` and is trained on half of the training nodes; the other half are
      the non-members. The features are the sorted posterior and the log-odds of the true label.
    """
    if protocol not in get_args(Protocol):
        raise InputError(f"the protocol is {protocol!r}, it must be one of {', '.join(get_args(Protocol))}")
    split_seed, shadow_seed, network_seed = _seeds(seed)
    usable = _usable(graph, exclude)
    note = ""
    if protocol == "paper":
        members, non_members = _by_class(graph, usable, seed=split_seed)
        shadow_graph = _shadow_graph(graph, members, non_members)
        shadow = _paper_shadow(shadow_graph, seed=shadow_seed, progress=progress)
    else:
        members, non_members = _halves(usable & graph.train_mask, seed=split_seed)
        shadow_graph = _shadow_graph(graph, members, non_members)
        shadow, note = _shadow_like(shadow_graph, like, seed=shadow_seed, progress=progress)
    rows = torch.cat([members, non_members])
    features = _features(shadow.logits(shadow_graph)[rows], graph.y[rows], protocol=protocol)
    network = (PAPER if protocol == "paper" else HONEST).fit(
        features, np.arange(rows.numel()) < members.numel(), seed=network_seed, progress=progress
    )
    return MembershipAttacker(protocol, network, shadow, members, non_members, note)


def balanced_accuracy(positive_scores: np.ndarray, negative_scores: np.ndarray) -> float:
    """The mean of the true positive rate and the true negative rate, with a threshold of 0.

    The paper's code calls it AUC: it is the area under the ROC curve of hard labels, which has one corner only. (The
    code averages it over batches; this is over all scores at once.)
    """
    positive_scores, negative_scores = np.asarray(positive_scores), np.asarray(negative_scores)
    if positive_scores.size == 0 or negative_scores.size == 0:
        raise InputError("there are no scores, members and non-members are needed")
    return float(((positive_scores > 0).mean() + (negative_scores <= 0).mean()) / 2)


def _seeds(seed: int) -> tuple[int, int, int]:
    """Independent seeds for the split, the shadow and the network; no target is trained with any of them."""
    split, shadow, network = np.random.SeedSequence(whole_number(seed, "the seed")).generate_state(3)
    return int(split), int(shadow), int(network)


def _usable(graph: Graph, exclude: Tensor | None) -> Tensor:
    """Labelled rows that are not excluded, as a mask."""
    usable = graph.y != UNLABELLED
    if exclude is None:
        return usable
    if exclude.dim() != 1 or exclude.dtype not in (torch.int64, torch.int32):
        raise InputError(f"exclude is {exclude.dtype} of shape {tuple(exclude.shape)}, a list of rows is needed")
    if exclude.numel() and not 0 <= int(exclude.min()) <= int(exclude.max()) < graph.num_nodes:
        raise InputError(f"exclude names a row outside the graph, which has rows 0 to {graph.num_nodes - 1}")
    usable[exclude.long()] = False
    return usable


def _by_class(graph: Graph, usable: Tensor, *, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inside, outside = [], []
    for label in range(graph.num_classes):
        rows = (usable & (graph.y == label)).nonzero().flatten()
        rows = rows[torch.randperm(rows.numel(), generator=generator)]
        count = min(SHADOW_NODES.get(graph.name, rows.numel()), rows.numel() // 2)
        inside.append(rows[:count])
        outside.append(rows[count : 2 * count])
    return _checked_halves(torch.cat(inside), torch.cat(outside))


def _halves(usable: Tensor, *, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = usable.nonzero().flatten()
    rows = rows[torch.randperm(rows.numel(), generator=generator)]
    return _checked_halves(rows[: rows.numel() // 2], rows[rows.numel() // 2 :])


def _checked_halves(members: Tensor, non_members: Tensor) -> tuple[Tensor, Tensor]:
    if members.numel() == 0:
        raise InputError("too few nodes are left to train a shadow model on, after those that are excluded")
    return members.sort().values, non_members.sort().values


def _shadow_graph(graph: Graph, members: Tensor, non_members: Tensor) -> Graph:
    """The same graph with the members as its training nodes."""
    train_mask, test_mask = torch.zeros(2, graph.num_nodes, dtype=torch.bool)
    train_mask[members], test_mask[non_members] = True, True
    return dataclasses.replace(graph, train_mask=train_mask, val_mask=torch.zeros_like(train_mask), test_mask=test_mask)


def _paper_shadow(graph: Graph, *, seed: int, progress: Progress | None) -> Trained:
    return train(graph, "gcn", hidden=256, epochs=300, learning_rate=1e-4, polish_steps=0, seed=seed, progress=progress)


def _shadow_like(graph: Graph, like: Trained, *, seed: int, progress: Progress | None) -> tuple[Trained, str]:
    """A model trained by the recipe of `like` with its own initial weights, or a GCN and a note if it has no recipe."""
    try:
        return trained_anew(like, graph, seed=seed, noise_seed=seed, progress=progress), ""
    except Refused as reason:
        return train(graph, "gcn", seed=seed, progress=progress), f"the shadow is a GCN, since {reason}"


def _features(logits: Tensor, labels: Tensor, *, protocol: Protocol) -> np.ndarray:
    """The raw posterior; or the sorted posterior and the log-odds `log p_y - log(1 - p_y)` of the true label."""
    logits = logits.detach().cpu().double()
    labels = labels.detach().cpu()
    if logits.dim() != 2 or labels.shape != logits.shape[:1]:
        shapes = f"the logits have shape {tuple(logits.shape)} and the labels {tuple(labels.shape)}"
        raise InputError(f"{shapes}, nodes x classes and one label for each node are needed")
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise InputError(f"a label is no class from 0 to {logits.shape[1] - 1}, only labelled nodes can be attacked")
    posterior = logits.softmax(dim=1)
    if protocol == "paper":
        return posterior.numpy()
    odds = np.clip(confidence(logits, labels), -LARGEST_ODDS, LARGEST_ODDS)
    return np.column_stack([posterior.sort(dim=1, descending=True).values.numpy(), odds])
