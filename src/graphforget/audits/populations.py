"""Populations of models for the per-example test: for each member part of the data is drawn and two models are trained.

One model is trained with the data that is to be forgotten and unlearns it. The other one is trained on another draw
without that data. The rest of the training data differs from member to member, because an attacker does not know it.
Guarantees hold for every graph, so they hold for draws.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphforget.audits.items import Items
from graphforget.audits.rows import METHOD, NO_OP, RETRAINED
from graphforget.graph.graph import Graph
from graphforget.privacy.noise import with_noise
from graphforget.request.request import Request
from graphforget.training.boosting import with_network
from graphforget.training.retraining import trained_anew
from graphforget.training.trained import Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.unlearn import unlearn

# A model, its graph, a request and a seed of the noise -> the outcome.
Forget = Callable[[Trained, Graph, Request, int], Outcome]


@dataclass(frozen=True)
class ByMethod:
    """Unlearns by a method of the package. The noise has the same size but is repeatable: nothing is released."""

    method: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)  # epsilon, delta, and the options of the method
    device: str = "cpu"

    def __call__(self, trained: Trained, graph: Graph, request: Request, noise_seed: int) -> Outcome:
        options = {"level": "empirical"} | self.options  # a weak method is to be measured, not refused
        outcome = unlearn(trained, graph, request, method=self.method, device=self.device, **options)
        sigma = outcome.certificate.sigma or 0.0
        released = with_noise(outcome.centre, sigma=sigma, seed=noise_seed) if sigma else outcome.released_theta
        model = with_network(outcome.trained, released, outcome.graph, device=self.device)
        return dataclasses.replace(outcome, trained=model, released_theta=released)


@dataclass(frozen=True, eq=False)
class Case:
    """What is audited: a model that was trained on what `request` names of `graph`, and a function that unlearns."""

    trained: Trained
    graph: Graph
    request: Request
    forget: Forget
    share: float  # of the other training nodes that each model of a population is trained on
    seed: int
    device: str = "cpu"

    def seeds(self, purpose: str, number: int) -> list[int]:
        """Four independent seeds. `purpose` is part of the seed, so a change of its spelling changes all draws."""
        return [int(s) for s in np.random.SeedSequence([self.seed, number, *purpose.encode()]).generate_state(4)]

    @functools.cached_property
    def retained(self) -> Graph:
        return self.graph.without(self.request)


def noised(trained: Trained, graph: Graph, *, sigma: float, seed: int) -> Trained:
    """The model that was trained on `graph` with the noise of a release. A network is trained from what is released."""
    if not sigma:
        return trained
    theta = with_noise(trained.theta, sigma=sigma, seed=seed)
    return with_network(trained, theta, graph).with_weights(theta)


def population(case: Case, items: Items, number: int) -> tuple[dict[str, np.ndarray], Outcome]:
    """Each item's statistic under the models of one member of the populations, private and released, and the outcome
    of its deletion. All models are queried on the graph that still holds the items."""
    draw, start_seed, start_noise, released = case.seeds("world", number)
    other_draw, other_seed, other_noise, other_released = case.seeds("other world", number)
    graph = sampled_part(case, case.graph, draw)
    start = trained_anew(case.trained, graph, seed=start_seed, noise_seed=start_noise, device=case.device)
    outcome = case.forget(start, graph, case.request, released)
    sigma = outcome.certificate.sigma or 0.0
    part = sampled_part(case, case.retained, other_draw)
    other = trained_anew(case.trained, part, seed=other_seed, noise_seed=other_noise, device=case.device)
    models = {
        NO_OP: start,
        METHOD: with_network(outcome.trained, outcome.trained.theta, outcome.graph),
        RETRAINED: other,
        f"released {NO_OP}": noised(start, graph, sigma=sigma, seed=case.seeds("noise", number)[0]),
        f"released {METHOD}": outcome.released,
        f"released {RETRAINED}": noised(other, part, sigma=sigma, seed=other_released),
    }
    values = {name: items.values(model.logits(case.graph), case.graph.y) for name, model in models.items()}
    return values, outcome


def sampled_part(case: Case, graph: Graph, seed: int) -> Graph:
    """The graph with a share of its training nodes, which always includes those that the request names."""
    resolved = case.request.resolve(case.graph)
    rows = (resolved.node_rows, resolved.full_rows, resolved.partial_rows, resolved.label_rows, resolved.edge_ends)
    named = torch.cat(rows)
    draws: Tensor = torch.rand(case.graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    draws[named] = 0.0
    sampled = case.graph.numbers[draws < case.share]
    return dataclasses.replace(graph, train_mask=graph.train_mask & torch.isin(graph.numbers, sampled))
