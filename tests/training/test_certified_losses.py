"""What is claimed with other losses: class weights and smoothing are certified, a declared convexity is a condition."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import graphforget as gf
from cases import CLASSES, dense_rows, random_graph
from graphforget.certificates.claims.residual_ball import DECLARED_CONVEX, ResidualBall
from graphforget.certificates.levels import Level
from graphforget.certificates.residual import residual
from graphforget.models.fixed import SGC
from graphforget.training.losses import CrossEntropy
from graphforget.training.objective import Objective
from graphforget.training.rounding import rounding_allowance

REQUEST = gf.Request(nodes=[4])
WEIGHTS = (0.5, 4.0, 20.0)


@functools.cache
def people() -> gf.Graph:
    return random_graph(3, nodes=40, edges=60)


def verified(outcome: gf.Outcome) -> gf.Verification:
    return gf.verify(
        outcome.certificate, outcome.trained, outcome.graph, released=outcome.released, annexes=[outcome.annex]
    )


# -- class weights and label smoothing ---------------------------------------------------------------------------------


def of_torch(weight: tuple[float, ...] | None, smoothing: float) -> nn.CrossEntropyLoss:
    given = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    return nn.CrossEntropyLoss(weight=given, label_smoothing=smoothing)


WEIGHTED = [(WEIGHTS, 0.0), (None, 0.2), (WEIGHTS, 0.1)]


@pytest.mark.parametrize(("weight", "smoothing"), WEIGHTED)
def test_class_weights_and_smoothing_are_certified(weight: tuple[float, ...] | None, smoothing: float) -> None:
    trained = gf.train(people(), "sgc", loss=of_torch(weight, smoothing))
    assert trained.proven_convex
    assert trained.certifiable
    assert trained.converged
    outcome = gf.unlearn(trained, people(), REQUEST)
    assert (outcome.method, outcome.level, outcome.certificate.conditions) == ("newton", "certified", ())
    assert outcome.certificate.objective["loss"] == CrossEntropy(weight, smoothing).name
    assert not torch.equal(outcome.trained.theta, trained.theta)
    checks = {check.name for check in verified(outcome).checks}
    assert {"claim", "weights", "released weights", "noise", "deleted data"} <= checks
    measured = residual(outcome.trained.objective(outcome.graph), outcome.trained.theta)
    assert outcome.certificate.tolerance is not None
    assert measured.radius <= outcome.certificate.tolerance


@pytest.mark.parametrize(("weight", "smoothing"), WEIGHTED)
def test_the_weighted_optimum_is_that_of_torchs_loss(weight: tuple[float, ...] | None, smoothing: float) -> None:
    """The gradient of torch's own loss, a mean over nodes, and of the L2 term is as small there as training says."""
    graph, theirs = people(), of_torch(weight, smoothing)
    trained = gf.train(graph, "sgc", loss=theirs, tolerance=1e-7)
    module = trained.module
    losses = functional.cross_entropy(
        module(graph.x, graph.edge_index)[graph.train_rows],
        graph.y[graph.train_rows],
        weight=theirs.weight,
        label_smoothing=smoothing,
        reduction="none",
    )
    parameters = list(module.parameters())
    penalty = sum((p.square().sum() for p in parameters), torch.zeros(())) * trained.recipe.mu / 2
    gradient = torch.autograd.grad(losses.mean() + penalty, parameters)
    assert float(torch.cat([part.flatten() for part in gradient]).norm()) <= 1.01e-7 * trained.recipe.mu + 1e-13


def test_retraining_with_class_weights_ends_at_the_weights_of_training_on_the_retained_graph() -> None:
    loss = of_torch(WEIGHTS, 0.1)
    outcome = gf.unlearn(gf.train(people(), "sgc", loss=loss), people(), REQUEST, method="retrain")
    again = gf.train(people().without(REQUEST), "sgc", loss=loss)
    assert torch.equal(outcome.trained.theta, again.theta)
    assert outcome.level == "certified"
    verified(outcome)


def test_a_run_with_class_weights_is_answered_and_verified_without_its_loss(tmp_path: Path) -> None:
    gf.save_run(tmp_path / "before", gf.train(people(), "sgc", loss=of_torch(WEIGHTS, 0.1)), people())
    answered = gf.answer(tmp_path / "before", REQUEST, out=tmp_path / "after")
    assert answered.outcome is not None
    assert answered.outcome.level == "certified"
    gf.verify_run(tmp_path / "after")
    loaded, _ = gf.load_run(tmp_path / "after")
    assert isinstance(loaded.loss, CrossEntropy)
    assert (loaded.loss.weight, loaded.loss.label_smoothing) == (WEIGHTS, 0.1)


def test_other_class_weights_do_not_match_the_certificate() -> None:
    outcome = gf.unlearn(gf.train(people(), "sgc", loss=of_torch(WEIGHTS, 0.1)), people(), REQUEST)
    lighter = CrossEntropy((0.5, 4.0, 19.0), 0.1)
    recipe = dataclasses.replace(outcome.trained.recipe, loss=lighter.name)
    with pytest.raises(gf.Mismatch, match="states the objective"):
        gf.verify(outcome.certificate, dataclasses.replace(outcome.trained, loss=lighter, recipe=recipe), outcome.graph)


# -- rounding with large class weights ---------------------------------------------------------------------------------


def exact_gradient(graph: gf.Graph, theta: Tensor, loss: CrossEntropy, *, mu: float) -> np.ndarray:
    """`grad F` of SGC with two hops in 80-bit arithmetic, from the definition."""
    long = np.longdouble
    z = dense_rows(SGC(graph.num_columns, CLASSES), graph, long)[graph.train_rows.numpy()]
    logits = z @ theta.numpy().astype(long).reshape(-1, CLASSES)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    smoothing = long(loss.label_smoothing)
    q = np.full((CLASSES, CLASSES), smoothing / CLASSES) + (1 - smoothing) * np.eye(CLASSES, dtype=long)
    weight = np.ones(CLASSES) if loss.weight is None else np.array(loss.weight)
    v = (q * weight.astype(long))[graph.y[graph.train_rows].numpy()]
    r = v.sum(axis=1, keepdims=True) * p - v
    return (z.T @ r / len(r)).ravel() + long(mu) * theta.numpy().astype(long)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [None, (1e6, 1e-3, 37.5), (1e6, 1e6, 1e6), (0.0, 1e9, 1.0)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_rounding_allowance_covers_large_class_weights(weight: tuple[float, ...] | None, smoothing: float) -> None:
    mu, loss, largest, over_plain = 1e-3, CrossEntropy(weight, smoothing), 0.0, 0
    for seed in range(6):
        graph = random_graph(seed, nodes=14, edges=24)
        module = SGC(graph.num_columns, CLASSES).double()
        objective, plain = (Objective(module, graph, mu=mu, loss=each) for each in (loss, CrossEntropy()))
        size = objective.data.size
        for scale in (1e-3, 1.0, 1e3):
            noise = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            theta = scale * noise
            computed, exact = objective.gradient(theta), exact_gradient(graph, theta, loss, mu=mu)
            error = float(np.sqrt(((computed.numpy().astype(np.longdouble) - exact) ** 2).sum()))
            allowance = rounding_allowance(objective, theta, gradient_norm=float(computed.norm()))
            assert error <= allowance
            assert allowance <= 1e-9 * max(1.0, loss.gradient_scale) * (1 + float(theta.norm()))  # and is no excuse
            largest = max(largest, error / allowance)
            unweighted = rounding_allowance(plain, theta, gradient_norm=float(plain.gradient(theta).norm()))
            over_plain += error > unweighted
    assert largest > 1e-4
    assert bool(over_plain) == (weight is not None)  # the allowance of the plain loss would not do


# -- declared convexity ------------------------------------------------------------------------------------------------


def squared(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits - functional.one_hot(labels, logits.shape[1])).square().sum(dim=1)


def saturating(logits: Tensor, labels: Tensor) -> Tensor:
    return 1 - logits.softmax(dim=1).gather(1, labels[:, None])[:, 0]


DECLARED = gf.Loss(squared, convex=True)
AFFINE: dict[str, dict[str, Any]] = {"sgc": {}, "linearised-gcn": {"hidden": 5}}


@functools.cache
def declared(model: str = "sgc", **changes: Any) -> gf.Trained:
    return gf.train(people(), model, loss=DECLARED, **AFFINE[model], **changes)


@pytest.mark.slow
@pytest.mark.parametrize("model", AFFINE)
@pytest.mark.parametrize("method", ["auto", "newton", "retrain"])
def test_a_declared_convexity_is_a_condition_of_the_claim(model: str, method: str) -> None:
    outcome = gf.unlearn(declared(model), people(), REQUEST, method=method)
    assert outcome.method == ("retrain" if method == "retrain" else "newton")
    assert (outcome.level, outcome.certificate.conditions) == ("conditional", ("convex loss",))
    assert isinstance(outcome.certificate.claim, ResidualBall)
    assert (outcome.certificate.epsilon, outcome.certificate.sigma) == (1.0, declared(model).recipe.sigma)
    assert outcome.certificate.objective["strongly_convex"] is False
    assert "if the loss is convex" in outcome.certificate.statement
    verified(outcome)


def test_a_claim_without_its_condition_is_too_high() -> None:
    outcome = gf.unlearn(declared(), people(), REQUEST)
    claim = dataclasses.replace(outcome.certificate.claim, conditions=())  # type: ignore[call-arg]
    forged = dataclasses.replace(outcome.certificate, claim=claim)
    assert forged.level == "certified"
    with pytest.raises(
        gf.Mismatch, match="^the level is too high: the objective is not strongly convex by construction"
    ):
        gf.verify(forged, outcome.trained, outcome.graph)


@pytest.mark.parametrize("conditions", [("secret noise",), (DECLARED_CONVEX, "known reach")])
def test_no_other_condition_makes_it_hold(conditions: tuple[str, ...]) -> None:
    outcome = gf.unlearn(declared(), people(), REQUEST)
    claim = dataclasses.replace(outcome.certificate.claim, conditions=conditions)  # type: ignore[call-arg]
    with pytest.raises(gf.Mismatch, match="lists conditions that it cannot have"):
        gf.verify(dataclasses.replace(outcome.certificate, claim=claim), outcome.trained, outcome.graph)


def test_a_declared_convex_model_that_moved_away_is_caught() -> None:
    outcome = gf.unlearn(declared(), people(), REQUEST)
    moved = outcome.trained.with_weights(outcome.trained.theta + 0.1)
    with pytest.raises(gf.Mismatch, match="over the tolerance"):
        gf.verify(outcome.certificate, moved, outcome.graph)


@pytest.mark.parametrize("level", ["certified", "exact"])
def test_a_higher_level_cannot_be_had(level: Level) -> None:
    with pytest.raises(gf.Refused, match=f"not '{level}'"):
        gf.unlearn(declared(), people(), REQUEST, level=level)


def test_a_declared_convex_model_is_not_called_certifiable() -> None:
    assert declared().strongly_convex
    assert not declared().certifiable
    assert not declared().proven_convex
    assert declared().summary()["certifiable"] is False


def test_conditional_releases_are_counted_too() -> None:
    """The claim is about so many releases together, so another one may not go out under it."""
    trained, graph = declared(releases=2), people()
    assert trained.releases_left == 2
    for left, row in ((1, 4), (0, 5)):
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[row]))
        trained, graph = outcome.trained, outcome.graph
        assert (trained.releases_left, outcome.certificate.releases_left) == (left, left)
        verified(outcome)
    with pytest.raises(gf.Refused, match="the guarantee for 2 releases together covers no further one"):
        gf.unlearn(trained, graph, gf.Request(nodes=[6]), otherwise="refuse")
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[6]))
    assert (outcome.method, outcome.level, outcome.trained.releases_left) == ("retrain", "conditional", 1)


def test_a_refused_release_under_a_condition_is_counted(tmp_path: Path) -> None:
    trained = declared(floor=1.0)
    gf.save_run(tmp_path / "before", trained, people())
    with pytest.raises(gf.Refused, match="under the floor 1"):
        gf.answer(tmp_path / "before", REQUEST, loss=DECLARED)
    loaded, _ = gf.load_run(tmp_path / "before", loss=DECLARED)
    assert trained.releases_left is not None
    assert loaded.releases_left == trained.releases_left - 1


def test_a_run_is_verified_with_the_declared_loss_handed_over(tmp_path: Path) -> None:
    gf.save_run(tmp_path / "before", declared(), people())
    gf.answer(tmp_path / "before", REQUEST, out=tmp_path / "after", loss=DECLARED)
    gf.verify_run(tmp_path / "after", loss=DECLARED)
    with pytest.raises(gf.InputError, match="give it as loss="):
        gf.verify_run(tmp_path / "after")
    with pytest.raises(gf.Mismatch, match="the field 'strongly_convex' is not right"):  # nobody declares it any more
        gf.verify_run(tmp_path / "after", loss=squared)


def test_retraining_with_a_declared_loss_ends_at_the_weights_of_training_on_the_retained_graph() -> None:
    outcome = gf.unlearn(declared(), people(), REQUEST, method="retrain")
    assert torch.equal(outcome.trained.theta, gf.train(people().without(REQUEST), "sgc", loss=DECLARED).theta)


def test_a_refuted_declaration_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(gf.InputError, match="'saturating' is declared convex and is not"):
        gf.train(people(), "sgc", loss=gf.Loss(saturating, convex=True))


def weighted_by(counts: object) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        values = squared(logits, labels)
        return values if counts is None else values.clone()

    return loss


def test_data_in_a_declared_loss_rules_the_claim_out() -> None:
    trained = gf.train(people(), "sgc", loss=gf.Loss(weighted_by(torch.ones(3)), convex=True))
    (obstacle,) = trained.certification_blockers
    assert obstacle == "the loss 'loss' holds a tensor, which may carry data"
    with pytest.raises(gf.Refused, match="the loss 'loss' holds a tensor"):
        gf.unlearn(trained, people(), REQUEST, method="newton")
    assert gf.unlearn(trained, people(), REQUEST, level="empirical").level == "empirical"


def test_data_in_a_loss_that_is_handed_over_later_is_named(tmp_path: Path) -> None:
    gf.save_run(tmp_path / "run", gf.train(people(), "sgc", loss=gf.Loss(weighted_by(None), convex=True)), people())
    clean, _ = gf.load_run(tmp_path / "run", loss=gf.Loss(weighted_by(None), convex=True))
    assert clean.certification_blockers == ()
    spoilt, _ = gf.load_run(tmp_path / "run", loss=gf.Loss(weighted_by(torch.ones(3)), convex=True))
    assert spoilt.certification_blockers == ("the loss 'loss' holds a tensor, which may carry data",)


# -- half precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_in_half_precision_leaves_a_note_and_is_certified(dtype: torch.dtype, tmp_path: Path) -> None:
    module = SGC(people().num_columns, CLASSES)
    trained = gf.train(people(), module.to(dtype), sigma=0.01)
    assert [str(dtype).removeprefix("torch.") in note for note in trained.notes] == [True]
    assert torch.equal(trained.theta, gf.train(people(), SGC(people().num_columns, CLASSES), sigma=0.01).theta)
    outcome = gf.unlearn(trained, people(), REQUEST)
    assert outcome.level == "certified"
    verified(outcome)
    gf.save_run(tmp_path / "run", trained, people())
    assert gf.load_run(tmp_path / "run", model=module)[0].notes == trained.notes
