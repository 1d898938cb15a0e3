"""MEGU: its influenced nodes and its loss against slow formulas, and what its published smoothing repeats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import graphforget as gf
from cases import weighted
from graphforget.models.parameters import call_with
from graphforget.testing import example_graph
from graphforget.unlearning.methods.megu import influenced_nodes

FORGET: dict[str, Any] = {"method": "megu", "level": "empirical"}


def slow_cosines(graph: gf.Graph, forgotten: list[int]) -> np.ndarray:
    """The cosines with dense matrices."""
    n, (source, target) = graph.num_nodes, graph.edge_index.numpy()
    adjacency = np.eye(n)
    adjacency[target, source] = 1 if graph.edge_weight is None else graph.edge_weight.numpy()
    scale = 1 / np.sqrt(adjacency.sum(axis=1))
    propagation = scale[:, None] * adjacency * scale
    plain = graph.x.to_dense().numpy()
    flipped = plain.copy()
    flipped[forgotten] = 1 - flipped[forgotten]
    a, b = (propagation @ propagation @ each for each in (plain, flipped))
    return np.asarray((a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1)))


@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_influenced_nodes_are_those_whose_attributes_turn_most_within_two_hops(seed: int, weighs: bool) -> None:
    graph = weighted(example_graph(seed), seed, most=1.0) if weighs else example_graph(seed)
    forgotten = [4, 5]
    found = influenced_nodes(graph, torch.tensor(forgotten)).tolist()
    source, target = graph.edge_index.numpy()
    reached = set(forgotten)
    for _ in range(2):
        reached |= {int(v) for u, v in zip(source, target, strict=True) if int(u) in reached}
    near = sorted(reached - set(forgotten))
    assert set(found) <= set(near)
    cosines = slow_cosines(graph, forgotten)
    outside = [node for node in near if node not in found]
    if found and outside:
        assert cosines[found].max() <= cosines[outside].min()


def test_one_epoch_is_one_step_down_its_loss() -> None:
    graph = example_graph()
    trained = gf.train(graph, "gcn", seed=0, hidden=5, epochs=40)
    source, target = graph.edge_index
    edge = tuple(graph.edge_index[:, source < target].T[3].tolist())
    request, rate, kappa = gf.Request(edges=[edge]), 0.01, 0.3
    outcome = gf.unlearn(trained, graph, request, epochs=1, learning_rate=rate, kappa=kappa, **FORGET)
    after = outcome.graph
    old = trained.logits(graph).argmax(dim=1)
    near, lost = influenced_nodes(graph, torch.tensor(sorted(edge))), torch.tensor(sorted(edge))
    generator = torch.Generator().manual_seed(0)
    drawn = (2 * torch.rand(4, 3, dtype=torch.float64, generator=generator) - 1) / math.sqrt(3)
    theta = trained.theta.clone().requires_grad_()
    objective = trained.objective(after)
    logits = call_with(objective.data.module, theta, *objective.data.inputs)
    mapped = logits @ drawn[:-1] + drawn[-1]

    def distilled(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        wanted = (teacher.detach() / 1.5).softmax(dim=1)
        return (wanted * (wanted.log() - (student / 1.5).log_softmax(dim=1))).sum(dim=1).mean()

    forget = distilled(logits[lost], mapped[lost]) - functional.cross_entropy(mapped[lost], old[lost])
    keep = distilled(mapped[near], logits[near]) + functional.cross_entropy(logits[near], old[near])
    (gradient,) = torch.autograd.grad(kappa * forget + keep, theta)
    assert torch.allclose(outcome.trained.theta, (theta - rate * gradient).detach(), atol=1e-10)


@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_deleted_nodes_are_asked_without_their_edges(model: str) -> None:
    graph = example_graph()
    options: dict[str, Any] = {} if model == "sgc" else {"hidden": 5, "epochs": 40}
    trained = gf.train(graph, model, **options)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4, 5]), **FORGET)
    assert outcome.details["forgotten"] == 2
    assert outcome.level == "empirical"
    assert 4 not in outcome.graph.numbers.tolist()


def test_the_published_smoothing_repeats_the_old_predictions() -> None:
    graph = gf.load("patients")
    trained = gf.train(graph, "gcn", seed=0, hidden=8, epochs=30)
    request = gf.Request(attributes={graph.name_of(int(row)): "all" for row in graph.train_rows[:40]})
    plain = gf.unlearn(trained, graph, request, kappa=1.0, learning_rate=0.1, **FORGET)
    shown = gf.unlearn(trained, graph, request, kappa=1.0, learning_rate=0.1, smoothing=True, **FORGET)
    assert torch.equal(plain.trained.theta, shown.trained.theta)  # it is measured, and not released
    assert "smoothing" not in plain.details
    measured = shown.details["smoothing"]
    assert measured["repeats_old"] > measured["repeats_old_without"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs is 0, at least 1 is needed"),
        ({"kappa": 0}, "kappa is 0, a positive number is needed"),
        ({"learning_rate": "a"}, "learning_rate is 'a', a positive number is needed"),
        ({"smoothing": 1}, "smoothing is 1, true or false is needed"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    graph = example_graph()
    trained = gf.train(graph, "sgc")
    with pytest.raises(gf.InputError, match=f"^{message}$"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="megu", **options)
