"""What rounding takes of a tolerance: numbers that float64 loses, and the warning of the training."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import graphforget as gf
from cases import random_graph, weighted
from graphforget.certificates.residual import residual
from graphforget.models.fixed import FixedPropagation
from graphforget.training.objective import Objective


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_the_ball_holds_the_optimum_where_squares_underflow(sparse: bool, directed: bool) -> None:
    """Without row scaling the norms of the rows, and that of the gradient, are rounded to 0."""
    x = 1e-170 * torch.rand(10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given: dict[str, Any] = {"x": x.to_sparse_csr() if sparse else x, "train_mask": torch.ones(10, dtype=torch.bool)}
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    graph = gf.Graph.create(edges=edges, y=torch.arange(10) % 3, num_classes=3, directed=directed, **given)
    module = FixedPropagation(3, 3, powers=(0, 1), scale_rows=False, bias=False).double()
    objective, mu = Objective(module, graph, mu=1e-4), 1e-4
    measured = residual(objective, torch.zeros(objective.size, dtype=torch.float64))
    # The curvature of the losses is about 1e-340, so the optimum is one step of length 1 / mu away.
    optimum = -measured.gradient / mu
    largest = float((measured.centre - optimum).abs().max())
    assert 0 < largest <= measured.radius
    assert measured.radius < 1e-100


@pytest.mark.parametrize("model", ["sgc", "sign", "relational-sign"])
def test_training_warns_where_rounding_takes_the_whole_tolerance(model: str) -> None:
    """The warning is right: the request is refused even after a training from 0, and one with more noise is not."""
    graph = random_graph(3, nodes=30, edges=60, directed=True, sparse=False)
    long = dataclasses.replace(graph, x=1e6 * graph.x)
    settings: dict[str, Any] = {"mu": 1e-6, "scale_rows": False, "tolerance": 10.0}
    trained = gf.train(long, model, sigma=0.01, **settings)
    (note,) = [note for note in trained.notes if "below the rounding error" in note]
    assert "no request can be certified" in note
    with pytest.raises(gf.Refused, match="below the rounding error"):
        gf.unlearn(trained, long, gf.Request(nodes=[4]))
    for other in (gf.train(graph, model), gf.train(graph, model, sigma=0.0)):
        assert not any("below the rounding error" in note for note in other.notes)


def test_very_unequal_weights_of_a_directed_graph_are_warned_of() -> None:
    """A heavy edge from a node of degree 1 makes a message a million times as long."""
    graph = weighted(random_graph(3, nodes=30, edges=60, directed=True, sparse=False), 3, most=12.0)
    assert any("below the rounding error" in note for note in gf.train(graph, "sgc").notes)
