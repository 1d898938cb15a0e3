"""What a plan counts, and that it changes nothing."""

from __future__ import annotations

import importlib
import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import graphs, random_graph, requests
from graphforget.certificates.levels import MEANING
from graphforget.training.objective import Objective


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_counts(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    trained = gf.train(graph, "sgc", tolerance=1.0)
    theta = trained.theta.clone()
    plan = gf.plan(trained, graph, request)
    retained = graph.without(request)
    assert plan.nodes == graph.num_nodes - retained.num_nodes
    assert plan.edges == graph.num_edges - retained.num_edges
    touched = gf.footprint(graph, request, trained.reach)
    assert plan.training_nodes == touched.removed.numel()
    assert plan.affected == touched.affected.numel()
    assert plan.training_nodes + plan.affected + plan.untouched == graph.train_rows.numel()
    dense = graph.x.to_dense() if graph.x.layout == torch.sparse_csr else graph.x
    values = 0
    for node, columns in request.attributes.items():
        row = dense[graph.row(node)]
        values += int((row if columns == "all" else row[list(columns)]).count_nonzero())
    assert plan.values == values
    assert plan.attribute_nodes == len(request.attributes)
    assert (plan.method, plan.level) == ("newton", "certified")  # whatever it touches
    assert plan.releases_left == trained.releases_left == 64
    assert list(plan.affected_by) == list(request.kinds)
    assert max(plan.affected_by.values()) <= plan.affected + plan.training_nodes
    assert plan.affected <= sum(plan.affected_by.values())
    paper = gf.plan(trained, graph, request, method="idea")
    assert (paper.method, paper.level) == ("idea", None)
    assert paper.meaning.startswith("would be refused: the guarantee of 'idea' does not hold here")
    paper = gf.plan(trained, graph, request, method="idea", level="empirical")
    assert (paper.method, paper.level) == ("idea", "empirical")
    assert torch.equal(trained.theta, theta)
    told = json.loads(json.dumps(plan.to_dict()))
    assert (told["audience"], told["affected"]) == ("private", plan.affected)


def test_a_plan_tells_what_is_not_covered_and_refuses_what_unlearn_would() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc")
    plan = gf.plan(trained, graph, gf.Request(nodes=[4]), method="retrain")
    assert plan.level == "certified"
    assert plan.meaning == MEANING["certified"]
    assert any("released before" in gap for gap in plan.not_covered)
    assert any("backups" in gap for gap in plan.not_covered)
    assert any("embeddings" in gap for gap in plan.not_covered)
    for given_, told in (
        ((trained, graph, gf.Request(nodes=[99])), "node 99 is not in the graph"),
        ((trained, random_graph(4, nodes=40), gf.Request(nodes=[4])), "the graph is not the one"),
    ):
        with pytest.raises(gf.InputError, match=f"^{told}"):
            gf.plan(*given_)
    with pytest.raises(gf.InputError, match="^there is no method 'magic'"):
        gf.plan(trained, graph, gf.Request(nodes=[4]), method="magic")


@pytest.mark.parametrize("method", ["idea", "retrain"])
def test_the_expected_time_is_that_of_a_gradient_times_the_work(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "gcn", hidden=4, epochs=20, polish_steps=2)
    monkeypatch.setattr(importlib.import_module("graphforget.unlearning.plan"), "_gradient_seconds", lambda *_: 0.25)
    plan = gf.plan(trained, graph, gf.Request(nodes=[4]), method=method, level="empirical")
    assert plan.seconds == 0.25 * {"idea": 60, "retrain": 20 + 2 * 2}[method]
    assert plan.retrain_seconds == trained.seconds


def test_a_gradient_is_timed_on_the_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one also prepares what is used again."""
    clock = iter([10.0, 10.5])
    calls: list[str] = []
    gradient = Objective.gradient

    def counted(self: Objective, theta: torch.Tensor) -> torch.Tensor:
        calls.append("gradient")
        return gradient(self, theta)

    def now() -> float:
        calls.append("clock")
        return next(clock)

    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc")
    monkeypatch.setattr(Objective, "gradient", counted)
    monkeypatch.setattr(
        importlib.import_module("graphforget.unlearning.plan"), "time", SimpleNamespace(perf_counter=now)
    )
    plan = gf.plan(trained, graph, gf.Request(nodes=[4]))
    assert calls == ["gradient", "clock", "gradient", "clock"]
    assert plan.seconds == 0.5 * gf.METHODS["newton"].gradients(trained)


class Centred(torch.nn.Module):
    """A linear model of rows minus a buffer, which could hold a mean of the data."""

    mean: torch.Tensor

    def __init__(self, columns: int, classes: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(columns, classes)
        self.register_buffer("mean", torch.zeros(columns))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(x - self.mean)
        return out


def test_a_plan_says_what_in_a_module_rules_out_a_guarantee() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, gf.stacked(Centred, parts=2), epochs=2)
    plan = gf.plan(trained, graph, gf.Request(nodes=[3]))
    assert plan.level == "empirical"
    (advice,) = plan.advice
    assert advice.endswith(trained.certification_blockers[0])
    assert "'mean'" in advice


def test_a_plan_says_how_many_releases_are_left_and_what_comes_then() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", releases=1)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    plan = gf.plan(outcome.trained, outcome.graph, gf.Request(nodes=[5]))
    assert (plan.method, plan.level, plan.releases_left) == ("retrain", "certified", 0)
    refused = gf.plan(outcome.trained, outcome.graph, gf.Request(nodes=[5]), otherwise="refuse")
    assert refused.level is None
    assert "the guarantee for 1 releases together covers no" in refused.meaning
    assert gf.plan(gf.train(graph, "sgc", sigma=0.0), graph, gf.Request(nodes=[4])).releases_left is None
