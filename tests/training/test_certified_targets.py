"""Labels and values: what is claimed of models of them holds, against oracles, and what does not fit is refused."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import graphforget as gf
from cases import dense_rows, graphs, random_graph, requests, with_targets
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.certificates.residual import residual
from graphforget.models.fixed import SGC, SIGN
from graphforget.models.registry import build
from graphforget.training.losses import Logistic, Loss, SquaredError
from graphforget.training.objective import Objective
from graphforget.training.rounding import rounding_allowance
from graphforget.unlearning.distance import optimum

KINDS = ("labels", "values")
LOSSES: dict[str, Loss] = {"labels": Logistic(), "values": SquaredError()}
MODELS: dict[str, dict[str, Any]] = {
    "sgc": {},
    "sign": {"hops": 2},
    "linearised-gcn": {"hidden": 4},
    "stacked-gcn": {"hidden": 3, "epochs": 3, "parts": 2},
    "boosted-gcn": {"hidden": 3, "epochs": 3},
}


@functools.cache
def people(kind: str) -> gf.Graph:
    return with_targets(random_graph(3, nodes=40, edges=60), kind)


@functools.cache
def trained_on(kind: str, model: str = "sgc") -> gf.Trained:
    return gf.train(people(kind), model, **MODELS.get(model, {}))


def verified(outcome: gf.Outcome) -> gf.Verification:
    return gf.verify(
        outcome.certificate, outcome.trained, outcome.graph, released=outcome.released, annexes=[outcome.annex]
    )


# -- certified -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", MODELS)
def test_a_request_is_certified(kind: str, model: str) -> None:
    trained = trained_on(kind, model)
    assert (trained.recipe.loss, trained.proven_convex, trained.converged) == (LOSSES[kind].name, True, True)
    outcome = gf.unlearn(trained, people(kind), gf.Request(nodes=[4], attributes={6: [0]}))
    assert (outcome.method, outcome.level, outcome.certificate.conditions) == ("newton", "certified", ())
    assert outcome.certificate.objective["loss"] == LOSSES[kind].name
    assert outcome.certificate.sigma
    verified(outcome)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_retraining_is_training_on_the_retained_graph(kind: str, model: str) -> None:
    options: Any = {} if model == "sgc" else {"hidden": 4, "epochs": 3, "polish_steps": 2}
    trained = gf.train(people(kind), model, **options)
    request = gf.Request(nodes=[4], edges=[tuple(people(kind).edge_index[:, 9].tolist())])
    outcome = gf.unlearn(trained, people(kind), request, method="retrain")
    again = gf.train(people(kind).without(request), model, **options)
    assert torch.equal(outcome.trained.theta, again.theta)
    assert outcome.level == ("certified" if model == "sgc" else "exact")
    verified(outcome)


def closed_form(graph: gf.Graph, trained: gf.Trained) -> Tensor:
    """The minimiser for values, by dense normal equations."""
    z = torch.from_numpy(dense_rows(trained.module, graph))[graph.train_rows]
    hessian = z.T @ z / len(z) + trained.recipe.mu * torch.eye(z.shape[1], dtype=torch.float64)
    return torch.linalg.solve(hessian, z.T @ graph.y[graph.train_rows] / len(z)).flatten()


def check_ball(data: st.DataObject, kind: str) -> None:
    """The ball of the certificate holds the optimum on the retained graph, and the tolerance is kept."""
    graph = with_targets(data.draw(graphs()), kind)
    request = data.draw(requests(graph))
    module = data.draw(st.sampled_from(["sgc", "sign"]))
    trained = gf.train(graph, module, mu=data.draw(st.sampled_from([1e-4, 1e-2])))
    outcome = gf.unlearn(trained, graph, request)
    assert outcome.level == "certified"
    claim = outcome.certificate.claim
    assert isinstance(claim, ResidualBall)
    best = optimum(trained, outcome.graph, within=1e-10)
    if kind == "values":
        torch.testing.assert_close(best, closed_form(outcome.graph, trained), rtol=1e-6, atol=1e-7)
    assert float((outcome.centre - best).norm()) <= claim.tolerance + 1e-10
    measured = residual(outcome.trained.objective(outcome.graph), outcome.trained.theta)
    assert float((measured.centre - best).norm()) <= measured.radius + 1e-10
    assert float((measured.theta - best).norm()) <= measured.distance + 1e-10


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_ball_holds_the_retrained_optimum(kind: str, data: st.DataObject) -> None:
    check_ball(data, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_the_ball_holds_the_retrained_optimum_in_hundreds_of_cases(kind: str, data: st.DataObject) -> None:
    check_ball(data, kind)


# -- rounding ----------------------------------------------------------------------------------------------------------


def exact_gradient(objective: Objective, theta: Tensor) -> np.ndarray:
    """`grad F` in 80-bit arithmetic, from the definition."""
    long, graph = np.longdouble, objective.graph
    z = dense_rows(objective.data.module, graph, long)[graph.train_rows.numpy()]
    y = graph.y[graph.train_rows].numpy().astype(long)
    logits = z @ theta.numpy().astype(long).reshape(-1, y.shape[1])
    r = logits - y
    if graph.target_kind == "labels":
        small = np.exp(-np.abs(logits))
        r = np.where(logits >= 0, 1 / (1 + small), small / (1 + small)) - y
    return (z.T @ r / len(r)).ravel() + long(objective.mu) * theta.numpy().astype(long)


def check_rounding(kind: str, seed: int, *, weights: float, targets: float, attributes: float) -> float:
    """The error as a share of the allowance."""
    graph = with_targets(random_graph(seed, nodes=14, edges=24), kind)
    y = graph.y * targets if kind == "values" else graph.y
    graph = gf.Graph.create(x=graph.x * attributes, edges=graph.edge_index, y=y, train_mask=graph.train_mask)
    module = (SGC, SIGN)[seed % 2](graph.num_columns, 2, scale_rows=False).double()
    objective = Objective(module, graph, mu=1e-3, loss=LOSSES[kind])
    noise = torch.randn(objective.data.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    theta = weights * noise
    computed, exact = objective.gradient(theta), exact_gradient(objective, theta)
    error = float(np.sqrt(((computed.numpy().astype(np.longdouble) - exact) ** 2).sum()))
    allowance = rounding_allowance(objective, theta, gradient_norm=float(computed.norm()))
    assert error <= allowance
    size = attributes * (attributes * weights + (targets if kind == "values" else 1)) + weights + attributes + 1
    assert allowance <= 1e-9 * size  # and it is no excuse
    return error / allowance


SIZES = [1e-3, 1.0, 1e4, 1e8]


@pytest.mark.parametrize("kind", KINDS)
def test_the_rounding_allowance_covers_large_targets_weights_and_attributes(kind: str) -> None:
    shares = [
        check_rounding(kind, seed, weights=weights, targets=targets, attributes=attributes)
        for seed in range(4)
        for weights in SIZES
        for targets in (SIZES if kind == "values" else [1.0])
        for attributes in (1e-2, 1.0, 30.0)
    ]
    assert max(shares) > 1e-4


def test_the_constants_of_a_bounded_loss_would_not_cover_large_targets() -> None:
    """What the allowance needs of the targets: without it the error of the gradient is larger."""
    graph = with_targets(random_graph(1, nodes=14, edges=24), "values")
    graph = gf.Graph.create(x=graph.x, edges=graph.edge_index, y=graph.y * 1e9, train_mask=graph.train_mask)
    objective = Objective(SGC(graph.num_columns, 2).double(), graph, mu=1e-3, loss=SquaredError())
    theta = torch.zeros(objective.data.size, dtype=torch.float64)
    error = float(
        np.abs(objective.gradient(theta).numpy().astype(np.longdouble) - exact_gradient(objective, theta)).max()
    )
    total, _ = objective.data.row_norm_sums
    assert error > 100 * 2.0**-53 * total / objective.m
    assert error <= rounding_allowance(objective, theta, gradient_norm=0.0)


# -- losses and models that fit, and others ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "model", "options", "said"),
    [
        (
            "values",
            "sgc",
            {"loss": "cross_entropy"},
            "the loss 'cross_entropy' is for classes, and the graph has values",
        ),
        (
            "labels",
            "sgc",
            {"loss": "squared_error"},
            "the loss 'squared_error' is for values, and the graph has labels",
        ),
        ("classes", "sgc", {"loss": "logistic"}, "the loss 'logistic' is for labels, and the graph has classes"),
        ("classes", "gcn", {"loss": nn.BCEWithLogitsLoss()}, "'logistic' is for labels"),
        ("values", "cgu", {}, "model 'cgu' has the loss 'one_vs_rest', and the graph has values"),
        ("labels", "sharded-gcn", {}, "an ensemble on shards votes on classes, and the graph has labels"),
        ("values", "sgc", {"loss": nn.MSELoss(reduction="none")}, "one loss a node is needed"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, model: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(gf.InputError) as caught:
        gf.train(people(kind), model, **options)
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["cgu", "ceu", "grapheraser", "ascent"])
def test_methods_for_classes_refuse(kind: str, method: str) -> None:
    edge = tuple(people(kind).edge_index[:, 9].tolist())
    with pytest.raises((gf.Refused, gf.InputError)) as caught:
        gf.unlearn(trained_on(kind), people(kind), gf.Request(edges=[edge]), method=method, level="empirical")
    assert "\n" not in str(caught.value)
    if method in ("ceu", "ascent"):
        assert f"the model predicts {kind}, and the method is made for classes" in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["gif", "idea"])
def test_influence_steps_come_close_to_the_optimum(kind: str, method: str) -> None:
    trained, graph = trained_on(kind), people(kind)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method=method, level="empirical")
    best = optimum(trained, outcome.graph)
    before, after = (float((theta - best).norm()) for theta in (trained.theta, outcome.trained.theta))
    assert after < before


@pytest.mark.parametrize("kind", KINDS)
def test_audits_are_for_classes(kind: str) -> None:
    with pytest.raises(gf.InputError, match=f"attacks the predicted class of a node, and the graph has {kind}"):
        gf.audit(trained_on(kind), people(kind), gf.Request(nodes=[4]))


def test_a_loss_of_ones_own_sees_the_targets_as_they_are() -> None:
    def absolute(outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs - y).abs().sum(dim=1)

    trained = gf.train(people("values"), "gcn", loss=absolute, hidden=3, epochs=2, polish_steps=0)
    assert trained.recipe.loss == "absolute"
    assert set(trained.scores(people("values"))) == {"r2", "rmse"}


def test_a_declared_convex_loss_of_values_is_tried_on_values() -> None:
    def concave(outputs: Tensor, y: Tensor) -> Tensor:
        return 1e3 - (outputs - y).square().sum(dim=1)

    with pytest.raises(gf.InputError, match="is declared convex and is not"):
        gf.train(people("values"), "sgc", loss=Loss(concave, convex=True))
    huber = Loss(lambda z, y: nn.functional.huber_loss(z, y, reduction="none").sum(dim=1), name="huber", convex=True)
    outcome = gf.unlearn(gf.train(people("values"), "sgc", loss=huber), people("values"), gf.Request(nodes=[4]))
    assert outcome.level == "conditional"


def fresh(data: Data) -> nn.Module:
    torch.manual_seed(0)
    return GCN(data.num_features, 4, num_layers=2, out_channels=data.num_classes)


def test_a_model_of_values_is_adopted() -> None:
    graph = people("values")
    trained = gf.adopt(fresh(graph.to_pyg()), graph.to_pyg(), retrain=fresh)
    assert trained.recipe.loss == "squared_error"
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    assert outcome.level == "exact"
    assert set(outcome.public()) >= {"test_r2", "test_rmse"}
    with pytest.raises(gf.InputError, match=r"gives 3 logits a node and the graph has 2 values$"):
        gf.adopt(GCN(graph.num_columns, 4, num_layers=2, out_channels=3), graph)


# -- scores, notes, floor ----------------------------------------------------------------------------------------------


def test_scores_by_name() -> None:
    values, labels, classes = (trained_on(kind) for kind in ("values", "labels", "classes"))
    assert list(values.scores(people("values"))) == ["r2", "rmse"]
    assert list(labels.scores(people("labels"))) == ["micro_f1", "macro_f1"]
    assert list(classes.scores(people("classes"))) == ["micro_f1"]
    assert values.utility(people("values")) == values.scores(people("values"))["r2"]
    assert labels.micro_f1(people("labels")) == labels.utility(people("labels"))
    with pytest.raises(gf.InputError, match="predicts values, which have r2 and rmse as scores"):
        values.micro_f1(people("values"))


def test_targets_that_are_far_from_one_are_noted() -> None:
    graph = people("values")
    large = gf.Graph.create(x=graph.x, edges=graph.edge_index, y=graph.y * 1e5, train_mask=graph.train_mask)
    notes = gf.train(large, "sgc").notes
    assert any("root mean square of the targets is" in note for note in notes)
    assert not any("root mean square" in note for note in trained_on("values").notes)


def test_a_negative_r2_is_under_every_floor() -> None:
    graph = people("values")
    trained = gf.train(graph, "sgc", floor=0.0, sigma=100.0)
    assert any("under its floor 0" in note for note in trained.notes)
    assert any("of R2" in note for note in trained.notes)
    with pytest.raises(gf.FloorMissed):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]))


@pytest.mark.parametrize("kind", KINDS)
def test_methods_are_compared_by_the_score_of_the_targets(kind: str) -> None:
    graph = people(kind)
    rows = list(gf.compare(graph, "sgc", gf.Request(nodes=[4])))
    by_name = {row.method: row for row in rows}
    name = {"labels": "micro_f1", "values": "r2"}[kind]
    assert by_name["newton"].score == name
    retained = graph.without(gf.Request(nodes=[4]))
    again = gf.train(retained, "sgc")
    assert by_name["retrain"].f1 == pytest.approx(again.scores(retained)[name], abs=1e-6)
    assert (by_name["newton"].agreement is None) == (kind == "values")
    assert "made for classes" in by_name["ascent"].note


def test_the_number_of_outputs_is_that_of_the_targets() -> None:
    one = people("values")
    single = gf.Graph.create(x=one.x, edges=one.edge_index, y=one.y[:, 0], train_mask=one.train_mask)
    trained = gf.train(single, "sgc")
    assert trained.logits(single).shape == (40, 1)
    assert trained.theta.numel() == sum(p.numel() for p in build("sgc", columns=4, classes=1).parameters())
