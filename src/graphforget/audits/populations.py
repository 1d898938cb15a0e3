"""Populations of models for the per-example test: in every world a part of the data is drawn, and two models are made.

One is trained with what is to be forgotten and forgets it, the other, on another draw, never sees it. What else they
saw differs from world to world: that is what an attacker does not know. Guarantees hold for every graph, so for draws.
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
from graphforget.graph.graph import Graph
from graphforget.privacy.noise import with_noise
from graphforget.request.request import Request
from graphforget.training.retraining import trained_anew
from graphforget.training.trained import Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.unlearn import unlearn

# A model, its graph, a request and a seed of the noise -> what came of it.
Forget = Callable[[Trained, Graph, Request, int], Outcome]


@dataclass(frozen=True)
class ByMethod:
    """Forgets by one of the package's methods, with noise of the same size that is repeatable: none of it goes out."""

    method: str = "auto"
    asked: dict[str, Any] = field(default_factory=dict)  # epsilon, delta, and the method's options

    def __call__(self, trained: Trained, graph: Graph, request: Request, noise_seed: int) -> Outcome:
        asked = {"level": "empirical"} | self.asked  # what remembers is to be measured, not refused
        outcome = unlearn(trained, graph, request, method=self.method, **asked)
        sigma = outcome.certificate.sigma or 0.0
        released = with_noise(outcome.centre, sigma=sigma, seed=noise_seed) if sigma else outcome.released_theta
        return dataclasses.replace(outcome, released_theta=released)


@dataclass(frozen=True, eq=False)
class Case:
    """What is audited: a model that knows what `request` names of `graph`, and a way to make it forget."""

    trained: Trained
    graph: Graph
    request: Request
    forget: Forget
    share: float  # of the other training nodes, in every world
    seed: int

    def seeds(self, what: str, number: int) -> list[int]:
        """Independent seeds for one piece of the audit."""
        return [int(s) for s in np.random.SeedSequence([self.seed, number, *what.encode()]).generate_state(4)]

    @functools.cached_property
    def retained(self) -> Graph:
        return self.graph.without(self.request)


def noised(trained: Trained, *, sigma: float, seed: int) -> Trained:
    """The model as it would have gone out."""
    return trained.with_weights(with_noise(trained.theta, sigma=sigma, seed=seed)) if sigma else trained


def population(case: Case, items: Items, number: int) -> tuple[dict[str, np.ndarray], Outcome]:
    """Each item's statistic under the models of one world, as they are kept and as they go out, with noise; and what
    came of the deletion in it. All are asked on the graph that still holds the items."""
    draw, start_seed, start_noise, released = case.seeds("world", number)
    other_draw, other_seed, other_noise, other_released = case.seeds("other world", number)
    graph = drawn_part(case, case.graph, draw)
    start = trained_anew(case.trained, graph, seed=start_seed, noise_seed=start_noise)
    outcome = case.forget(start, graph, case.request, released)
    sigma = outcome.certificate.sigma or 0.0
    part = drawn_part(case, case.retained, other_draw)
    other = trained_anew(case.trained, part, seed=other_seed, noise_seed=other_noise)
    models = {
        "nothing": start,
        "method": outcome.trained,
        "retrained": other,
        "released nothing": noised(start, sigma=sigma, seed=case.seeds("noise", number)[0]),
        "released method": outcome.released,
        "released retrained": noised(other, sigma=sigma, seed=other_released),
    }
    values = {name: items.values(model.logits(case.graph), case.graph.y) for name, model in models.items()}
    return values, outcome


def drawn_part(case: Case, graph: Graph, seed: int) -> Graph:
    """The graph with a share of its training nodes; those that the request names stay among them."""
    named = case.request.resolve(case.graph)
    asked = torch.cat([named.node_rows, named.full_rows, named.partial_rows, _ends(case.graph, named.edge_mask)])
    chance = torch.rand(case.graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    chance[asked] = 0.0
    kept = case.graph.numbers[chance < case.share]
    return dataclasses.replace(graph, train_mask=graph.train_mask & torch.isin(graph.numbers, kept))


def _ends(graph: Graph, edge_mask: Tensor) -> Tensor:
    return graph.edge_index[:, edge_mask].flatten()
