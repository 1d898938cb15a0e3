"""What a plan counts, and that it changes nothing."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import graphs, random_graph, requests


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
    assert plan.level == ("exact" if touched.empty else "certified")
    assert plan.method == "newton"
    assert list(plan.affected_by) == list(request.kinds)
    assert max(plan.affected_by.values()) <= plan.affected + plan.training_nodes
    assert plan.affected <= sum(plan.affected_by.values())
    paper = gf.plan(trained, graph, request, method="idea")
    assert paper.level == ("exact" if touched.empty else "conditional")
    assert torch.equal(trained.theta, theta)
    assert json.loads(json.dumps(plan.to_dict())) is not None


def test_a_plan_tells_what_is_not_covered_and_refuses_what_unlearn_would() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc")
    plan = gf.plan(trained, graph, gf.Request(nodes=[4]), method="retrain")
    assert plan.level == "exact"
    assert "fresh" not in plan.meaning
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


def test_the_expected_time_is_that_of_a_gradient_times_the_work() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "gcn", hidden=4, epochs=20, polish_steps=2)
    quick, slow = (gf.plan(trained, graph, gf.Request(nodes=[4]), method=m) for m in ("idea", "retrain"))
    assert quick.seconds > 0
    assert slow.seconds > 0
    assert quick.retrain_seconds == trained.seconds
