"""Many requests in a row on a larger graph, whose features follow by differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import graphforget as gf
from cases import present
from graphforget.certificates.residual import residual
from graphforget.graph import overlay as overlay_module
from graphforget.linalg.newton import newton_cg
from graphforget.models import followed as followed_module
from graphforget.models.inputs import model_inputs
from graphforget.models.propagated import propagate
from graphforget.training.objective import Objective


def random_request(graph: gf.Graph, rng: np.random.Generator) -> gf.Request:
    """One node, one edge, or the attributes of one node."""
    kind, row = rng.integers(3), int(rng.integers(graph.num_nodes))
    name = graph.name_of(row)
    if kind == 0:
        return gf.Request(nodes=[name])
    overlay = present(graph.overlay)
    senders = overlay.rows_of(overlay.adjacency.lists(overlay.slots_of(np.array([row])))[1])
    if kind == 1 and senders.size:
        return gf.Request(edges=[(graph.name_of(int(rng.choice(senders))), name)])
    return gf.Request(attributes={name: "all" if row % 2 else [int(rng.integers(graph.num_columns))]})


def fresh_objective(trained: gf.Trained, graph: gf.Graph) -> Objective:
    """The objective on a graph that shares nothing with the graphs before it."""
    return trained.objective(
        gf.Graph.create(
            x=graph.x.clone(),
            edges=graph.edge_index.clone(),
            y=graph.y,
            train_mask=graph.train_mask,
            test_mask=graph.test_mask,
            num_classes=graph.num_classes,
            numbers=graph.numbers,
        )
    )


def check_chain(
    graph: gf.Graph, model: str, *, requests: int, every: int, seed: int, spread: float, releases: int
) -> None:
    """The measured ball holds the optimum, and the carried bound is never exceeded, every time they are checked."""
    rng = np.random.default_rng(seed)
    trained = gf.train(graph, model, releases=releases)
    by_differences = 0
    for step in range(1, requests + 1):
        outcome = gf.unlearn(trained, graph, random_request(graph, rng))
        assert outcome.level == "certified"
        trained, graph = outcome.trained, outcome.graph
        if step % every:
            continue
        features = model_inputs(trained.module, graph, dtype=torch.float64)[0].propagated
        overlay = present(graph.overlay)
        anew = propagate(overlay, features.settings, features.train_slots)
        off = np.linalg.norm(features.training.array() - anew.training.array())
        assert off <= features.error + anew.error
        assert features.error <= spread
        by_differences += not features.is_fresh
        measured = residual(trained.objective(graph), trained.theta)
        objective = fresh_objective(trained, graph)
        value, gradient = objective.value_and_gradient(trained.theta)
        exact = residual(objective, trained.theta)
        # The optimum is within `exact.radius` of `exact.centre`: both balls come from one theta on one graph.
        assert float((measured.gradient - gradient).norm()) <= measured.rounding + exact.rounding
        closer = optimum(objective, trained.theta)
        assert float((closer - measured.centre).norm()) <= measured.radius
        assert math.isclose(value, trained.objective_value, rel_tol=1e-9)
    assert by_differences  # else nothing was tested


def optimum(objective: Objective, theta: torch.Tensor) -> torch.Tensor:
    found = newton_cg(objective, theta, gradient_tolerance=1e-10)
    assert found.gradient_norm <= 1e-10
    return found.theta


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", "sign"])
def test_requests_in_a_row_stay_within_their_measured_ball(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_module, "FEW_ENTRIES", 0)
    monkeypatch.setattr(followed_module, "CHEAP", 0)
    monkeypatch.setattr(overlay_module, "MOST_CHANGED", math.inf)
    graph = gf.synthetic(nodes=600, edges=3000, columns=8, classes=4, seed=1, train=0.5, signal=2.0)
    check_chain(graph, model, requests=40, every=10, seed=0, spread=1e-10, releases=1000)


def test_features_that_carry_much_rounding_are_propagated_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_module, "FEW_ENTRIES", 0)
    monkeypatch.setattr(followed_module, "CHEAP", 0)
    monkeypatch.setattr(overlay_module, "MOST_CHANGED", math.inf)
    graph = gf.synthetic(nodes=300, edges=900, columns=4, classes=3, seed=1, train=0.5)
    trained = gf.train(graph, "sgc")
    first = gf.unlearn(trained, graph, gf.Request(edges=[edge_of(graph)]))
    assert not model_inputs(trained.module, first.graph, dtype=torch.float64)[0].propagated.is_fresh
    monkeypatch.setattr("graphforget.unlearning.methods.newton.MOST_FEATURE_ROUNDING", 0.0)
    second = gf.unlearn(first.trained, first.graph, gf.Request(edges=[edge_of(first.graph)]))
    assert model_inputs(trained.module, second.graph, dtype=torch.float64)[0].propagated.is_fresh


def edge_of(graph: gf.Graph) -> tuple[int | str, int | str]:
    first, second = graph.edge_index[:, 0].tolist()
    return graph.name_of(first), graph.name_of(second)


@pytest.mark.long
@pytest.mark.parametrize(("model", "requests"), [("sgc", 1000), ("sign", 200)])
def test_many_requests_in_a_row_on_a_large_graph(model: str, requests: int) -> None:
    graph = gf.synthetic(nodes=42_000, edges=294_000, columns=32, classes=10, seed=1, train=0.5, signal=1.5)
    check_chain(graph, model, requests=requests, every=50, seed=0, spread=1e-8, releases=1000)
