"""The utility forecast of `plan`: right where a request ruins a model, private, and without influence on a release."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch

import graphforget as gf
from graphforget.unlearning import forecast as forecasts
from graphforget.unlearning import plan as plans

pytestmark = pytest.mark.usefixtures("one_thread")
HUBS, MEMBERS = 10, 100


@functools.cache
def graph_with_hubs() -> gf.Graph:
    """Nodes that show nothing of their class, each linked to hubs of its class, which show everything."""
    rng = np.random.default_rng(0)
    n = 2 * (HUBS + MEMBERS)
    y = np.repeat([0, 1, 0, 1], [HUBS, HUBS, MEMBERS, MEMBERS])
    x = np.zeros((n, 3))
    x[np.arange(2 * HUBS), y[: 2 * HUBS]] = 1
    x[2 * HUBS :, 2] = rng.uniform(0.5, 1, 2 * MEMBERS)
    members = np.arange(2 * HUBS, n)
    edges = [(int(rng.integers(HUBS)) + HUBS * int(y[node]), int(node)) for node in members for _ in range(2)]
    return gf.Graph.create(x=torch.from_numpy(x), edges=torch.tensor(sorted(set(edges))).T, y=torch.from_numpy(y))


@pytest.mark.parametrize("model", ["sgc", "sign", "gcn"])
def test_a_collapse_is_foreseen_and_an_ordinary_request_is_not_one(model: str) -> None:
    graph = graph_with_hubs()
    trained = gf.train(graph, model, seed=0)
    ruin = gf.Request(nodes=list(range(2 * HUBS)))
    plan = gf.plan(trained, graph, ruin)
    assert plan.forecast is not None
    assert plan.forecast.present > 0.95
    assert plan.forecast.expected < 0.75
    assert plan.forecast.collapse
    (warning,) = plan.warnings
    assert warning.startswith("A collapse is expected")
    after = gf.unlearn(trained, graph, ruin, method="retrain")
    assert abs(after.trained.micro_f1(after.graph, after.graph.train_mask) - plan.forecast.expected) < 0.15
    calm = gf.plan(trained, graph, gf.Request(nodes=list(range(2 * HUBS, 2 * HUBS + 10))))
    assert calm.forecast is not None
    assert not calm.forecast.collapse
    assert calm.warnings == ()


def test_validation_nodes_are_scored_where_there_are_some() -> None:
    graph = graph_with_hubs().split(seed=0)
    held = forecasts_held_out(graph)
    plan = gf.plan(gf.train(held, "sgc"), held, gf.Request(nodes=[int(held.numbers[held.train_rows[0]])]))
    assert plan.forecast is not None
    assert plan.forecast.items == "validation"


def forecasts_held_out(graph: gf.Graph) -> gf.Graph:
    from graphforget.graph.split import hold_out

    return hold_out(graph, seed=0, share=0.3)


def test_links_graphs_and_stacked_models_have_a_forecast() -> None:
    graph = gf.load("patients")
    link = gf.plan(gf.train(graph, "sign", task="link"), graph, gf.Request(nodes=[graph.name_of(3)]))
    assert link.forecast is not None
    assert link.forecast.score == "auc"
    stacked = gf.train(graph, "stacked-gcn", epochs=3)
    assert gf.plan(stacked, graph, gf.Request(nodes=[graph.name_of(3)])).forecast is not None
    shards = gf.train(graph, "sharded-sgc", shards=3)
    assert gf.plan(shards, graph, gf.Request(nodes=[graph.name_of(3)])).forecast is None


def test_the_forecast_is_private_and_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_with_hubs()
    trained = gf.train(graph, "sgc", seed=0)
    ruin = gf.Request(nodes=list(range(2 * HUBS)))
    content = gf.plan(trained, graph, ruin).to_dict()
    assert content["audience"] == "private"
    assert content["warnings"]
    json.dumps(content)

    def no_forecast(task: object) -> None:
        raise AssertionError("a request asked for the forecast")

    monkeypatch.setattr(plans, "forecast_of", no_forecast)
    monkeypatch.setattr(forecasts, "forecast_of", no_forecast)
    outcome = gf.unlearn(trained, graph, ruin)
    assert outcome.level == "certified"
    assert "forecast" not in json.dumps(outcome.public())
