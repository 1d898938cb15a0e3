"""Methods side by side."""

from __future__ import annotations

import functools

import pytest
import torch

import graphforget as gf
from cases import random_graph
from graphforget.compare import Row, contenders
from graphforget.linalg.newton import newton_cg

REQUEST = gf.Request(nodes=[4, 5])


@functools.cache
def rows(model: str) -> dict[str, Row]:
    graph = random_graph(3, nodes=40, edges=60)
    return {row.method: row for row in gf.compare(graph, model, REQUEST, shards=2, epochs=20)}


def test_every_method_has_its_row_on_the_model_that_stands_for_the_asked_one() -> None:
    found = rows("sgc")
    assert list(found) == [
        *("retrain", "nothing", "newton", "idea"),
        *("grapheraser random", "grapheraser bekm", "grapheraser blpa"),
        *("gif", "ceu", "cgu", "ascent"),
    ]
    assert found["cgu"].model == "cgu"
    assert found["grapheraser blpa"].model == "sharded-sgc"
    assert {one.method for one in contenders("gcn")} == {
        *("retrain", "nothing", "idea", "grapheraser", "gif", "ceu", "ascent"),
    }
    assert "grapheraser" not in {one.method for one in contenders("sign")}


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
    assert found["nothing"].distance == pytest.approx(float((before.theta - optimum).norm()), abs=1e-5)
    assert found["newton"].distance is not None
    assert found["nothing"].distance is not None
    assert found["newton"].distance < 0.1 * found["nothing"].distance
    answers = before.logits(retained).argmax(dim=1)[retained.test_mask]
    goal = before.with_weights(optimum).logits(retained).argmax(dim=1)[retained.test_mask]
    assert found["nothing"].agreement == float((answers == goal).double().mean())
    assert found["nothing"].f1 == before.micro_f1(retained)
    assert (found["nothing"].level, found["nothing"].seconds) == (None, None)


def test_levels_are_those_of_the_outcomes_and_what_cannot_be_run_says_why() -> None:
    found = rows("sgc")
    assert (found["newton"].level, found["newton"].epsilon) == ("certified", 1.0)
    assert (found["retrain"].level, found["grapheraser random"].level) == ("exact", "exact")
    assert found["grapheraser blpa"].level == found["gif"].level == "empirical"
    assert found["ceu"].f1 is None
    assert found["ceu"].note == "method 'ceu' cannot forget nodes, only edges"
    assert found["grapheraser random"].distance is None
    assert found["cgu"].distance is not None
    assert all(row.train_seconds is not None for row in found.values())


def test_retraining_starts_from_the_same_initial_weights() -> None:
    """Else the distance would be one between two draws of them."""
    found = rows("gcn")
    graph = random_graph(3, nodes=40, edges=60)
    twin = gf.train(graph.without(REQUEST), "gcn", epochs=20)
    old = gf.train(graph, "gcn", epochs=20)
    assert found["nothing"].distance == pytest.approx(float((old.theta - twin.theta).norm()), rel=1e-6)


@pytest.mark.parametrize("model", ["cgu", "sharded-gcn", "nonsense"])
def test_only_plain_models_are_compared_on(model: str) -> None:
    with pytest.raises(gf.InputError, match=f"^model '{model}' cannot be compared on, only sgc, sign, gcn"):
        contenders(model)


def test_bad_input_is_refused() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    with pytest.raises(gf.InputError, match="there is no method 'magic'"):
        contenders("gcn", ["magic"])
    untested = gf.Graph.create(x=graph.x, edges=graph.edge_index, y=graph.y.clamp_min(0))
    with pytest.raises(gf.InputError, match="no test node"):
        next(iter(gf.compare(untested, "sgc", REQUEST)))
    with pytest.raises(gf.InputError, match="node 99 is not in the graph"):
        next(iter(gf.compare(graph, "sgc", gf.Request(nodes=[99]))))
