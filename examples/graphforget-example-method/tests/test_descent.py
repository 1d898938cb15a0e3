"""The tests that every method of graphforget passes, and one of this method's own."""

from __future__ import annotations

from typing import ClassVar

import graphforget as gf
from graphforget.testing import MethodConformance, example_graph


class TestDescent(MethodConformance):
    method = "descent"


class TestDescentOnANetwork(MethodConformance):
    method = "descent"
    model = "gcn"
    training: ClassVar = {"hidden": 5, "epochs": 20}


def test_it_comes_nearer_to_the_optimum_than_doing_nothing() -> None:
    graph = example_graph()
    trained = gf.train(graph, "sgc", mu=0.1)
    request = gf.Request(nodes=[4, 5])
    outcome = gf.unlearn(trained, graph, request, method="descent", level="empirical")
    objective = trained.objective(outcome.graph)
    before, after = (float(objective.gradient(each.theta).norm()) for each in (trained, outcome.trained))
    assert after < before
