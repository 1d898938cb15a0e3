"""Boosted models: a network that follows from the released start and the retained graph, and from nothing else."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch
from torch import Tensor

import graphforget as gf
from cases import OwnGCN, claim_of, random_graph
from graphforget.certificates.claims.combined import Combined
from graphforget.models.boosted import Residual
from graphforget.training.boosting import with_network, without_network
from graphforget.training.state import same_tensors

SMALL: dict[str, Any] = {"hidden": 3, "epochs": 4}
REQUEST = gf.Request(nodes=[4], attributes={6: "all"})


@functools.cache
def example() -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=60, edges=140)
    return gf.train(graph, "boosted-gcn", **SMALL), graph


def start_alone(graph: gf.Graph, start: str) -> gf.Trained:
    return gf.train(graph, start, sigma=0.05)


@pytest.mark.parametrize("start", ["sign", "sgc"])
def test_the_start_is_the_convex_model_of_that_name(start: str) -> None:
    graph = random_graph(3, nodes=60, edges=140)
    trained, alone = gf.train(graph, "boosted-gcn", start=start, **SMALL), start_alone(graph, start)
    assert torch.equal(trained.theta, alone.theta)
    torch.testing.assert_close(without_network(trained).logits(graph), alone.logits(graph), rtol=0, atol=1e-13)
    assert (trained.objective_value, trained.gradient_norm) == (alone.objective_value, alone.gradient_norm)


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "sage"])
def test_training_starts_at_the_start_and_improves_the_fit(name: str) -> None:
    """The gate is 0 before the first epoch, so the first loss is that of the start."""
    graph = random_graph(3, nodes=60, edges=140)
    options: Any = {"hidden": 8, "dropout": 0.0} | ({"heads": 2} if name == "gat" else {})
    trained = gf.train(graph, f"boosted-{name}", epochs=60, learning_rate=0.03, **options)

    def loss(model: gf.Trained) -> float:
        logits = model.logits(graph)[graph.train_rows]
        return float(torch.nn.functional.cross_entropy(logits, graph.y[graph.train_rows]))

    untouched = gf.train(graph, f"boosted-{name}", epochs=1, learning_rate=1e-30, **options)
    assert loss(untouched) == pytest.approx(loss(without_network(trained)), rel=1e-6)
    assert loss(trained) < loss(without_network(trained))


def test_the_residual_adds_a_gated_network_to_a_constant() -> None:
    module, offset = OwnGCN(), torch.randn(5, 3)
    residual = Residual(module, offset)
    x, edges = torch.randn(5, 4), torch.tensor([[0, 1], [1, 0]])
    assert torch.equal(residual(x, edges), offset)
    with torch.no_grad():
        residual.gate.fill_(2.0)
    torch.testing.assert_close(residual(x, edges), offset + 2 * module(x, edges))
    assert "offset" not in residual.state_dict()


def test_the_network_follows_from_the_released_start_and_the_retained_graph() -> None:
    """Two models that were trained on different data, with one retained graph and one draw of the released weights."""
    graph = random_graph(3, nodes=60, edges=140)
    changed = dataclasses.replace(graph, y=torch.where(graph.numbers == 4, (graph.y + 1) % 3, graph.y))
    outcomes = []
    for one in (graph, changed):
        trained = gf.train(one, "boosted-gcn", **SMALL)
        outcomes.append(gf.unlearn(trained, one, gf.Request(nodes=[4])))
    first, second = outcomes
    assert first.graph.digest == second.graph.digest
    assert not same_tensors(first.trained.released_state, second.trained.released_state)  # other noise
    theta = first.released_theta
    again = with_network(second.trained, theta, second.graph)
    assert same_tensors(again.released_state, first.trained.released_state)


def test_the_released_network_is_not_that_of_the_private_start() -> None:
    trained, graph = example()
    outcome = gf.unlearn(trained, graph, REQUEST)
    private = with_network(outcome.trained, outcome.trained.theta, outcome.graph)
    assert not same_tensors(private.released_state, outcome.trained.released_state)
    assert same_tensors(outcome.released.released_state, outcome.trained.released_state)
    expected = with_network(outcome.trained, outcome.released_theta, outcome.graph)
    assert same_tensors(expected.released_state, outcome.trained.released_state)


def test_it_is_certified_verified_and_replayed() -> None:
    trained, graph = example()
    outcome = gf.unlearn(trained, graph, REQUEST)
    assert outcome.level == "certified"
    assert list(claim_of(outcome, Combined).parts) == ["start", "network"]
    given: Any = {"released": outcome.released, "annexes": [outcome.annex]}
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, replay=True, **given).checks
    with pytest.raises(gf.InputError, match="needs the released weights"):
        gf.verify(outcome.certificate, outcome.trained, outcome.graph, replay=True)


def test_a_network_of_the_old_model_is_found_by_replay() -> None:
    """The weights of the start are unlearned and noised, and the network was trained on what was to be forgotten."""
    trained, graph = example()
    outcome = gf.unlearn(trained, graph, REQUEST)
    cheat = outcome.trained.with_weights(outcome.trained.theta)
    cheat.boosted.network = trained.boosted.network
    with pytest.raises(gf.Mismatch, match="the digest|do not match|does not match"):
        gf.verify(outcome.certificate, cheat, outcome.graph, released=outcome.released_theta, annexes=[outcome.annex])
    with pytest.raises(gf.Mismatch, match="training again on the retained graph gives other weights"):
        gf.verify(outcome.certificate, cheat, outcome.graph, released=outcome.released_theta, replay=True)
    with pytest.raises(gf.Mismatch, match="another state beside its weights"):
        gf.verify(outcome.certificate, cheat, outcome.graph, released=outcome.released)


def test_requests_in_a_row_make_the_network_anew() -> None:
    trained, graph = example()
    for node in (4, 5, 6):
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[node]))
        assert outcome.level == "certified"
        trained, graph = outcome.trained, outcome.graph
    anew = gf.train(graph, "boosted-gcn", tolerance=1e-7, **SMALL)
    assert outcome.certificate.tolerance is not None
    assert float((outcome.centre - anew.theta).norm()) <= outcome.certificate.tolerance + 1e-7
    expected = with_network(anew, outcome.released_theta, graph)
    assert same_tensors(expected.released_state, trained.released_state)


def test_without_noise_it_is_exact() -> None:
    graph = random_graph(3, nodes=60, edges=140)
    trained = gf.train(graph, "boosted-gcn", sigma=0.0, **SMALL)
    outcome = gf.unlearn(trained, graph, REQUEST)
    anew = gf.train(outcome.graph, "boosted-gcn", sigma=0.0, **SMALL)
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, anew.theta)
    assert same_tensors(outcome.trained.released_state, anew.released_state)


class Keeps(OwnGCN):
    """Stores something of what it sees in training."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            self.seen = float(x.sum())
        return super().forward(x, edge_index)


def test_a_users_network_is_certified_and_one_that_keeps_data_is_not() -> None:
    graph = random_graph(3, nodes=60, edges=140)
    trained = gf.train(graph, gf.boosted(OwnGCN, start="sgc", epochs=3))
    assert trained.recipe.epochs == 3
    assert gf.unlearn(trained, graph, REQUEST).level == "certified"
    keeps = gf.train(graph, gf.boosted(Keeps, epochs=3))
    assert any("'seen'" in blocker for blocker in keeps.certification_blockers)


class KeepsOfSmallerGraphs(OwnGCN):
    """Stores something only when it is trained on a graph that has lost a node."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training and x.shape[0] == 59:
            self.seen = float(x.sum())
        return super().forward(x, edge_index)


def test_a_network_that_keeps_data_only_later_is_not_released() -> None:
    graph = random_graph(3, nodes=60, edges=140)
    trained = gf.train(graph, gf.boosted(KeepsOfSmallerGraphs, epochs=3))
    assert trained.certifiable
    with pytest.raises(gf.Refused, match="the network cannot be released: attribute 'seen'"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]))


def test_the_environment_is_that_of_the_networks_training() -> None:
    trained, graph = example()
    elsewhere = dataclasses.replace(trained.recipe, environment=trained.recipe.environment | {"threads": 99})
    outcome = gf.unlearn(dataclasses.replace(trained, recipe=elsewhere), graph, gf.Request(nodes=[4]))
    assert outcome.trained.recipe.environment == trained.recipe.environment
    given: Any = {"released": outcome.released, "replay": True}
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, **given).checks


def test_an_unknown_start_is_refused() -> None:
    graph = random_graph(3, nodes=60, edges=140)
    for call in (lambda: gf.boosted(OwnGCN, start="gcn"), lambda: gf.train(graph, "boosted-gcn", start="gcn")):
        with pytest.raises(gf.InputError, match="the start is 'gcn', it must be one of sgc, sign"):
            call()
