"""Where features that followed a deletion may not be used: training, published scores, losses of one's own."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

import graphforget as gf
from cases import random_graph
from graphforget.graph import overlay as overlay_module
from graphforget.models import followed as followed_module
from graphforget.models import inputs as inputs_module
from graphforget.models.inputs import model_inputs
from graphforget.models.propagated import Propagated, propagate


@pytest.fixture(autouse=True)
def by_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_module, "FEW_ENTRIES", 0)
    monkeypatch.setattr(followed_module, "CHEAP", 0)
    monkeypatch.setattr(followed_module, "MOST", math.inf)
    monkeypatch.setattr(overlay_module, "MOST_CHANGED", math.inf)


def rebuilt(graph: gf.Graph) -> gf.Graph:
    """The same graph, sharing nothing with the graphs before it."""
    return dataclasses.replace(graph, x=graph.x.clone(), edge_index=graph.edge_index.clone())


def is_fresh(trained: gf.Trained, graph: gf.Graph) -> bool:
    features = model_inputs(trained.module, graph, dtype=torch.float64)[0]
    held: Propagated = features.propagated
    return held.is_fresh


def own_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def two_components(far: int) -> gf.Graph:
    """The first nodes are in a component of their own and do not train."""
    graph = random_graph(5, nodes=60, edges=150, sparse=False)
    more = torch.randn(far, graph.num_columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ring = torch.stack([torch.arange(far), (torch.arange(far) + 1) % far])
    return gf.Graph.create(
        x=torch.cat([more, graph.x]),
        edges=torch.cat([ring, graph.edge_index + far], dim=1),
        y=torch.cat([torch.full((far,), -1), graph.y]),
        train_mask=torch.cat([torch.zeros(far, dtype=torch.bool), graph.train_mask]),
        num_classes=graph.num_classes,
    )


@pytest.mark.parametrize("removed", [1, 7, 30])
def test_a_network_loss_on_a_linear_model_is_trained_on_the_training_input_alone(removed: int) -> None:
    graph = two_components(40)
    trained = gf.train(graph, "sgc", loss=own_loss, sigma=0, epochs=10, polish_steps=2)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=list(range(removed))))
    assert outcome.level == "exact"
    anew = gf.train(rebuilt(outcome.graph), "sgc", loss=own_loss, sigma=0, epochs=10, polish_steps=2)
    assert torch.equal(outcome.trained.theta, anew.theta)


@pytest.mark.parametrize("model", ["sgc", "sign"])
def test_published_scores_are_those_of_the_retained_graph_to_the_last_digit(model: str) -> None:
    graph = random_graph(3, nodes=60, edges=150, sparse=False)
    x = graph.x.clone()
    x[4] *= 1e9
    graph = gf.Graph.create(
        x=x,
        edges=graph.edge_index,
        y=x[:, :2].sin() + graph.y[:, None],
        train_mask=graph.train_mask & (graph.numbers != 4),
        test_mask=~graph.train_mask,
    )
    trained = gf.train(graph, model, scale_rows=False, mu=1.0)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), otherwise="retrain")
    scores = {name: value["released"] for name, value in outcome.public().items() if name.startswith("test_")}
    anew = outcome.released.scores(rebuilt(outcome.graph))
    assert scores == {f"test_{name}": value for name, value in anew.items()}


def test_for_a_loss_that_is_declared_convex_features_are_propagated_anew() -> None:
    graph = random_graph(3, nodes=60, edges=150, sparse=False)
    request = gf.Request(edges=[tuple(graph.edge_index[:, 0].tolist())])
    plain = gf.train(graph, "sgc")
    assert not is_fresh(plain, gf.unlearn(plain, graph, request).graph)
    own = gf.train(graph, "sgc", loss=gf.Loss(own_loss, convex=True))
    outcome = gf.unlearn(own, graph, request)
    assert outcome.level == "conditional"
    assert is_fresh(own, outcome.graph)


def test_the_fixed_features_of_a_stacked_model_follow_and_its_training_propagates_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = random_graph(3, nodes=80, edges=200, sparse=False)
    request = gf.Request(edges=[tuple(graph.edge_index[:, 0].tolist())])
    trained = gf.train(graph, "stacked-gcn", parts=2, epochs=3)
    calls: list[int] = []
    real = propagate

    def counted(*args: object) -> Propagated:
        calls.append(1)
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(inputs_module, "propagate", counted)
    outcome = gf.unlearn(trained, graph, request)
    assert outcome.level == "certified"
    assert not calls
    assert not is_fresh(outcome.trained, outcome.graph)
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph).checks


def test_a_stacked_model_without_noise_is_retrained_as_on_a_graph_of_its_own() -> None:
    graph = random_graph(3, nodes=80, edges=200, sparse=False)
    request = gf.Request(edges=[tuple(graph.edge_index[:, 0].tolist())])
    gf.train(graph, "sign")  # its features are those of the stacked model, and follow the deletion
    trained = gf.train(graph, "stacked-gcn", parts=2, epochs=3, sigma=0, attribute_scale=1.0)
    outcome = gf.unlearn(trained, graph, request, method="retrain")
    assert outcome.level == "exact"
    anew = gf.train(rebuilt(outcome.graph), "stacked-gcn", parts=2, epochs=3, sigma=0, attribute_scale=1.0)
    assert torch.equal(outcome.trained.theta, anew.theta)
