"""Methods side by side."""

from __future__ import annotations

import functools
import importlib
from typing import Any, NoReturn

import pytest
import torch

import graphforget as gf
from cases import random_graph
from graphforget.linalg.newton import newton_cg
from graphforget.unlearning.compare import ComparisonRow, _distance, contenders

REQUEST = gf.Request(nodes=[4, 5])
MODULE = importlib.import_module("graphforget.unlearning.compare")  # which the function of that name hides


@functools.cache
def rows(model: str) -> dict[str, ComparisonRow]:
    graph = random_graph(3, nodes=40, edges=60)
    return {row.method: row for row in gf.compare(graph, model, REQUEST, shards=2, epochs=20)}


@pytest.mark.slow
def test_every_method_has_its_row_on_the_model_that_stands_for_the_asked_one() -> None:
    found = rows("sgc")
    assert list(found) == [
        *("retrain", "no_op", "newton", "idea"),
        *("grapheraser random", "grapheraser bekm", "grapheraser blpa"),
        *("gif", "ceu", "cgu", "scalegun", "gnndelete", "megu", "ascent"),
    ]
    assert (found["cgu"].model, found["scalegun"].model) == ("cgu", "scalegun")
    assert found["grapheraser blpa"].model == "sharded-sgc"
    assert {one.method for one in contenders("gcn")} == {
        *("retrain", "no_op", "idea", "grapheraser", "gif", "ceu", "gnndelete", "megu", "ascent"),
    }
    assert "grapheraser" not in {one.method for one in contenders("sign")}


@pytest.mark.slow
def test_distances_and_answers_are_those_to_the_retrained_model() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    retained = graph.without(REQUEST)
    before = gf.train(graph, "sgc")
    objective = before.objective(retained)
    optimum = newton_cg(objective, torch.zeros_like(before.theta), gradient_tolerance=1e-12).theta
    found = rows("sgc")
    assert found["retrain"].distance is not None
    assert 0 < found["retrain"].distance <= before.recipe.tolerance
    assert found["retrain"].agreement == 1
    assert found["no_op"].distance == pytest.approx(float((before.theta - optimum).norm()), abs=1e-5)
    assert found["newton"].distance is not None
    assert found["no_op"].distance is not None
    assert found["newton"].distance < 0.1 * found["no_op"].distance
    answers = before.logits(retained).argmax(dim=1)[retained.test_mask]
    goal = before.with_weights(optimum).logits(retained).argmax(dim=1)[retained.test_mask]
    assert found["no_op"].agreement == float((answers == goal).double().mean())
    assert found["no_op"].f1 == before.micro_f1(retained)
    assert (found["no_op"].level, found["no_op"].seconds) == (None, None)


@pytest.mark.slow
def test_levels_are_those_of_the_outcomes_and_what_cannot_be_run_says_why() -> None:
    found = rows("sgc")
    assert (found["newton"].level, found["newton"].epsilon) == ("certified", 1.0)
    assert (found["retrain"].level, found["retrain"].epsilon) == ("certified", 1.0)
    assert (found["grapheraser random"].level, found["grapheraser random"].epsilon) == ("exact", 0)
    assert (rows("gcn")["retrain"].level, rows("gcn")["retrain"].epsilon) == ("exact", 0)
    assert (found["idea"].level, found["idea"].epsilon) == ("empirical", None)
    assert found["idea"].note == "a condition of its claim does not hold"
    assert found["grapheraser blpa"].level == found["gif"].level == "empirical"
    assert found["ceu"].f1 is None
    assert found["ceu"].note == "method 'ceu' cannot forget nodes, only edges"
    assert found["grapheraser random"].distance is None
    assert found["cgu"].distance is not None
    assert all(row.train_seconds is not None for row in found.values())


@pytest.mark.slow
def test_retraining_starts_from_the_same_initial_weights() -> None:
    """Else the distance would be one between two draws of them."""
    found = rows("gcn")
    graph = random_graph(3, nodes=40, edges=60)
    twin = gf.train(graph.without(REQUEST), "gcn", epochs=20)
    old = gf.train(graph, "gcn", epochs=20)
    assert found["no_op"].distance == pytest.approx(float((old.theta - twin.theta).norm()), rel=1e-6)


@pytest.mark.parametrize("recipe", ["quick", "paper"])
def test_the_models_are_trained_by_the_given_recipe(recipe: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    short: dict[str, Any] = {"epochs": 2}
    found = {row.method: row for row in gf.compare(graph, "gcn", REQUEST, methods=["no_op"], recipe=recipe, **short)}
    old, twin = (gf.train(each, "gcn", recipe=recipe, **short) for each in (graph, graph.without(REQUEST)))
    assert found["no_op"].distance == pytest.approx(float((old.theta - twin.theta).norm()), rel=1e-6)


def test_unlinking_is_compared_with_and_answers_no_request() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    source, target = graph.edge_index
    edge = tuple(graph.edge_index[:, source < target].T[3].tolist())
    both: dict[str, Any] = {"methods": ["no_op", "utu"], "epochs": 5}
    _, old, unlinked = gf.compare(graph, "gcn", gf.Request(edges=[edge]), **both)
    assert (unlinked.method, unlinked.level, unlinked.f1_released) == ("utu", None, None)
    assert (unlinked.distance, unlinked.f1) == (old.distance, old.f1)
    *_, refused = gf.compare(graph, "gcn", REQUEST, **both)
    assert (refused.f1, refused.note) == (None, "method 'utu' cannot forget anything but edges")
    for act in (gf.unlearn, gf.plan):
        with pytest.raises(gf.InputError, match=r"^'utu' changes no weight, so it answers no request; 'compare' shows"):
            act(gf.train(graph, "sgc"), graph, gf.Request(edges=[edge]), method="utu")


@pytest.mark.parametrize("model", ["cgu", "scalegun", "sharded-gcn", "nonsense"])
def test_only_plain_models_are_compared_on(model: str) -> None:
    with pytest.raises(
        gf.InputError, match=f"^model '{model}' cannot be compared on, only sgc, sign, relational-sign,"
    ):
        contenders(model)


def test_bad_input_is_refused() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    with pytest.raises(gf.InputError, match="^method 'magic' cannot be compared on 'gcn', only no_op, "):
        contenders("gcn", ["magic"])
    untested = gf.Graph.create(x=graph.x, edges=graph.edge_index, y=graph.y.clamp_min(0))
    with pytest.raises(gf.InputError, match="no test node"):
        next(iter(gf.compare(untested, "sgc", REQUEST)))
    with pytest.raises(gf.InputError, match="node 99 is not in the graph"):
        next(iter(gf.compare(graph, "sgc", gf.Request(nodes=[99]))))


@pytest.fixture
def untrainable(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("something was trained")

    monkeypatch.setattr(MODULE, "train", train)


@pytest.mark.usefixtures("untrainable")
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"epsilon": 0}, "epsilon is 0"),
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"delta": 0}, "delta is 0"),
        ({"delta": 1.0}, "delta is 1"),
        ({"request": gf.Request(nodes=[99])}, "node 99 is not in the graph"),
        ({"request": gf.Request(edges=[(0, 0)])}, "edge"),
        ({"methods": ["magic"]}, "method 'magic' cannot be compared on 'gcn', only no_op, utu, retrain, idea, "),
        ({"methods": ["auto"]}, "method 'auto' cannot be compared on 'gcn', only no_op, utu, retrain, idea, "),
        ({"methods": ["retrain", "cgu"]}, "method 'cgu' cannot be compared on 'gcn', only no_op, "),
        ({"methods": ["newton"]}, "method 'newton' cannot be compared on 'gcn', only no_op, "),
    ],
)
def test_what_is_asked_is_checked_before_anything_is_trained(target: dict[str, Any], told: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    request = target.pop("request", REQUEST)
    with pytest.raises(gf.InputError, match=f"^{told}"):
        next(iter(gf.compare(graph, "gcn", request, **target)))


@pytest.mark.parametrize(
    ("method", "model"),
    [("cgu", "gcn"), ("cgu", "sign"), ("newton", "gcn"), ("newton", "gat"), ("grapheraser", "sign")],
)
def test_a_method_that_serves_no_model_of_that_kind_is_refused_if_it_is_named(method: str, model: str) -> None:
    with pytest.raises(gf.InputError, match=f"^method '{method}' cannot be compared on '{model}', only ") as error:
        contenders(model, ["no_op", method])
    assert method not in str(error.value).split(", only ")[1].split(", ")
    assert method not in {one.method for one in contenders(model)}


def test_where_retraining_fails_there_is_nothing_to_compare_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlearn(*_: Any, method: str, **__: Any) -> NoReturn:
        raise gf.Refused(f"{method} has failed")

    monkeypatch.setattr(MODULE, "unlearn", unlearn)
    with pytest.raises(gf.Refused, match="^retrain has failed$"):
        next(iter(gf.compare(random_graph(3, nodes=40, edges=60), "sgc", REQUEST)))


@pytest.mark.slow
def test_every_distance_is_to_the_optimum_where_there_is_one() -> None:
    """Also that of the retrained model, and with noise in the objective to the optimum with that noise."""
    graph = random_graph(3, nodes=40, edges=60)
    retained = graph.without(REQUEST)
    found = rows("sgc")
    before = gf.train(graph, "sgc")
    exact = newton_cg(before.objective(retained), torch.zeros_like(before.theta), gradient_tolerance=1e-12).theta
    again = gf.unlearn(before, graph, REQUEST, method="retrain", seed=0).trained.theta
    step = gf.unlearn(before, graph, REQUEST, method="gif").trained.theta
    assert found["retrain"].distance == pytest.approx(float((again - exact).norm()), abs=2e-6)
    assert found["gif"].distance == pytest.approx(float((step - exact).norm()), abs=2e-6)
    for noise in (1.0, 100.0):
        noisy = gf.train(retained, "cgu", objective_noise=noise, tolerance=1e-6)
        other = gf.train(retained, "cgu", objective_noise=noise, tolerance=1e-6)
        assert _distance(noisy, before, retained) == pytest.approx(0, abs=2e-6)
        assert float((noisy.theta - other.theta).norm()) > 1  # another draw's optimum is elsewhere
