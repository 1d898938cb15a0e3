"""One class against the rest, noise in the objective, propagation by means: what CGU and CEU stand on."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from scipy import stats
from torch import Tensor
from torch.nn import functional

import graphforget as gf
from cases import CLASSES, COLUMNS, changed_rows, dense_cases, dense_rows, graphs, make, present, random_graph, requests
from graphforget.linalg.sparse import converted
from graphforget.models.fixed import SGC, SIGN, FixedPropagation, MeanSGC
from graphforget.models.inputs import model_inputs
from graphforget.models.parameters import call_with, flatten
from graphforget.models.propagation import mean_adjacency
from graphforget.privacy import noise as noise_module
from graphforget.privacy.noise import noise
from graphforget.runs.layout import DamagedRun
from graphforget.runs.write import rewrite_checksums
from graphforget.training.losses import BUILT_IN, CrossEntropy, Loss, OneVsRest, as_loss, is_convex
from graphforget.training.objective import Objective
from graphforget.training.rounding import rounding_allowance

pytestmark = pytest.mark.usefixtures("one_thread")

CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def binary(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss by its definition: a binary cross-entropy for every class, added up."""
    wanted = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    return functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(dim=1)


# -- one class against the rest --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("classes", [2, 7])
def test_the_loss_is_a_binary_cross_entropy_for_every_class(scale: float, classes: int) -> None:
    logits, labels = scale * draws(50, classes), torch.arange(50) % classes
    torch.testing.assert_close(OneVsRest()(logits, labels), binary(logits, labels), rtol=1e-13, atol=1e-13)


def test_the_loss_has_all_of_its_digits_where_it_is_small() -> None:
    """Against 80-bit arithmetic: `log(1 + exp(-|z|))` is neither given up nor lost in a difference."""
    z = np.linspace(-60, 60, 1201)
    logits = torch.from_numpy(np.stack([z, -z], axis=1))
    for label in (0, 1):
        signed = np.stack([z, -z], axis=1).astype(np.longdouble) * np.where(np.arange(2) == label, 1, -1)
        exact = np.where(signed > 0, np.log1p(np.exp(-signed)), -signed + np.log1p(np.exp(signed))).sum(axis=1)
        result = OneVsRest()(logits, torch.full((1201,), label)).numpy()
        assert float(np.abs(result / exact - 1).max()) < 1e-13


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_its_gradient_and_curvature_are_those_of_autograd(scale: float) -> None:
    loss, labels = OneVsRest(), torch.arange(9) % 4
    logits = scale * draws(9, 4)
    leaf = logits.clone().requires_grad_()
    torch.testing.assert_close(
        loss.gradient(logits, labels), torch.autograd.grad(binary(leaf, labels).sum(), leaf)[0], **CLOSE
    )
    dense = torch.autograd.functional.hessian(lambda z: binary(z.view(9, 4), labels).sum(), logits.flatten())
    product = loss.curvature(logits, labels)
    for seed in range(3):
        u = draws(9, 4, seed=seed)
        torch.testing.assert_close(product(u).flatten(), dense @ u.flatten(), **CLOSE)
        torch.testing.assert_close(Loss.curvature(loss, logits, labels)(u), product(u), **CLOSE)
    torch.testing.assert_close(Loss.gradient(loss, logits, labels), loss.gradient(logits, labels), **CLOSE)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 10.0, 1e3]), classes=st.integers(2, 8))
def test_smoothness_and_steepness_bound_its_derivatives(seed: int, scale: float, classes: int) -> None:
    loss, logits = OneVsRest(), scale * draws(20, classes, seed=seed)
    labels = torch.arange(20) % classes
    assert float(loss.gradient(logits, labels).norm(dim=1).max()) <= loss.steepness(classes)
    eigenvalues = loss.curvature(logits, labels)(torch.ones_like(logits))  # B is diagonal, as the test above shows
    assert float(eigenvalues.min()) >= 0
    assert float(eigenvalues.max()) <= loss.smoothness


@pytest.mark.parametrize("classes", [2, 5])
def test_smoothness_and_steepness_are_attained(classes: int) -> None:
    loss, label = OneVsRest(), torch.tensor([1])
    worst = torch.full((1, classes), 1000.0, dtype=torch.float64)
    worst[0, 1] = -1000
    assert float(loss.gradient(worst, label).norm()) == pytest.approx(loss.steepness(classes))
    assert float(loss.curvature(0 * worst, label)(torch.ones_like(worst)).max()) == pytest.approx(loss.smoothness)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_leave_it_finite(dtype: torch.dtype) -> None:
    loss, labels = OneVsRest(), torch.tensor([0, 1])
    logits = torch.tensor([[1000.0, -1000.0, 1000.0], [1000.0, -1000.0, -1000.0]], dtype=dtype)
    assert loss(logits, labels).tolist() == [1000.0, 2000.0]
    assert loss.gradient(logits, labels).tolist() == [[0, 0, 1], [1, -1, 0]]
    assert loss.curvature(logits, labels)(torch.ones_like(logits)).tolist() == [[0] * 3] * 2


def test_it_is_convex_by_construction_and_nothing_that_claims_to_be_is() -> None:
    class Mine(OneVsRest):
        pass

    assert is_convex(OneVsRest())
    assert is_convex(as_loss("one_vs_rest"))
    assert not is_convex(Mine())
    assert not is_convex(Loss(binary, name="mine"))
    assert (type(as_loss(None)), type(as_loss("cross_entropy"))) == (CrossEntropy, CrossEntropy)


def test_a_loss_of_ones_own_cannot_take_its_name() -> None:
    def one_vs_rest(logits: Tensor, labels: Tensor) -> Tensor:
        return binary(logits, labels) ** 2

    assert as_loss(one_vs_rest).name == "own one_vs_rest"
    renamed = CrossEntropy()
    renamed.name = "one_vs_rest"
    for taken in (Loss(binary, name="one_vs_rest"), renamed):
        with pytest.raises(gf.InputError, match="^a loss of one's own cannot be named 'one_vs_rest'$"):
            as_loss(taken)
    with pytest.raises(gf.InputError, match="^there is no loss 'hinge', only cross_entropy, .* or a function"):
        as_loss("hinge")
    assert set(BUILT_IN) == {"cross_entropy", "one_vs_rest", "logistic", "squared_error"}


def dense_gradient(trained: gf.Trained, graph: gf.Graph, theta: Tensor, dtype: Any = np.float64) -> np.ndarray:
    """`grad F` of fixed propagation with one class against the rest, noise included, from the definition."""
    rows = graph.train_rows.numpy()
    z, w = dense_rows(trained.module, graph, dtype)[rows], theta.numpy().astype(dtype).reshape(-1, CLASSES)
    logits = z @ w
    small = np.exp(-np.abs(logits))
    slopes = np.where(logits > 0, 1, small) / (1 + small)
    slopes[np.arange(len(rows)), graph.y[graph.train_rows].numpy()] -= 1
    objective_noise_vector = (
        0 if trained.objective_noise_vector is None else trained.objective_noise_vector.numpy().astype(dtype)
    )
    return ((z.T @ slopes).ravel() + objective_noise_vector) / len(rows) + dtype(trained.recipe.mu) * w.ravel()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", "sign", "cgu", "linearised-gcn", "linearised-gat"])
@pytest.mark.parametrize("objective_noise", [0.0, 2.0])
def test_it_is_trained_to_the_one_optimum(model: str, objective_noise: float) -> None:
    graph = random_graph(4, nodes=30, edges=50)
    options: dict[str, Any] = {"hidden": 3} if model.startswith("linearised") else {}
    trained = gf.train(
        graph, model, loss="one_vs_rest", mu=0.01, tolerance=1e-8, objective_noise=objective_noise, **options
    )
    assert trained.strongly_convex
    assert trained.converged
    assert trained.recipe.loss == "one_vs_rest"
    if isinstance(trained.module, FixedPropagation):
        assert float(np.linalg.norm(dense_gradient(trained, graph, trained.theta))) <= 1e-8 * 0.01
    x, labels = graph.x.to_dense(), graph.y[graph.train_rows]
    leaf = trained.theta.clone().requires_grad_()
    logits = call_with(trained.module, leaf, x, graph.edge_index)[graph.train_rows]
    noisy = 0 if trained.objective_noise_vector is None else trained.objective_noise_vector @ leaf
    value = (binary(logits, labels).sum() + noisy) / labels.numel() + 0.005 * leaf @ leaf
    assert float(torch.autograd.grad(value, leaf)[0].norm()) <= 2e-10
    assert trained.objective_value == pytest.approx(float(value.detach()), rel=1e-12)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_allowance_covers_what_float64_does_to_the_gradient(data: st.DataObject) -> None:
    """Against 80-bit arithmetic, with and without noise in the objective."""
    graph = data.draw(graphs())
    trained = gf.train(
        graph,
        data.draw(st.sampled_from(["cgu", "sgc", "sign"])),
        loss="one_vs_rest",
        mu=data.draw(st.sampled_from([1e-4, 1.0])),
        tolerance=1.0,
        objective_noise=data.draw(st.sampled_from([0.0, 1.0, 1e4])),
        noise_seed=3,
    )
    theta = 10.0 ** data.draw(st.integers(-3, 4)) * draws(trained.theta.numel())
    objective = trained.objective(graph)
    computed = objective.gradient(theta)
    exact = dense_gradient(trained, graph, theta, np.longdouble)
    error = float(np.sqrt(((computed.numpy().astype(np.longdouble) - exact) ** 2).sum()))
    allowance = rounding_allowance(objective, theta, gradient_norm=float(computed.norm()))
    assert error <= allowance
    objective_noise_vector = (
        0.0 if trained.objective_noise_vector is None else float(trained.objective_noise_vector.norm())
    )
    assert allowance <= 1e-9 * (1 + float(theta.norm()) + objective_noise_vector)  # and is no excuse


@pytest.mark.parametrize("objective_noise", [0.0, 50.0])
def test_the_allowance_is_the_formula(objective_noise: float) -> None:
    """docs/maths.md, section 9, with 1/4 and sqrt(C) for 1/2 and sqrt(2), and `b / m` beside the ends."""
    graph = random_graph(5, nodes=30, edges=60)
    trained = gf.train(graph, "cgu", mu=1e-3, objective_noise=objective_noise)
    theta, objective = trained.theta, trained.objective(graph)
    x = graph.x.to_dense().double()
    p = torch.eye(30, dtype=torch.float64)
    p[graph.edge_index[1], graph.edge_index[0]] = 1
    p = p / p.sum(dim=1, keepdim=True)
    q = (p @ p @ (x.norm(dim=1) > 0).double())[graph.train_rows]
    u, k = 2.0**-53, 5 * (30 + COLUMNS + 10)
    g, m = k * u / (1 - k * u), q.numel()
    norm, gradient = float(theta.norm()), float(objective.gradient(theta).norm())
    sums = float((q * (g * (q * norm / 4 + math.sqrt(CLASSES)) + (CLASSES + 20) * u)).sum()) / m
    objective_noise_vector = (
        0.0 if trained.objective_noise_vector is None else float(trained.objective_noise_vector.norm()) / m
    )
    ends = 5 * u * (1e-3 * norm + gradient + objective_noise_vector) + (theta.numel() + 2) * u * gradient
    result = rounding_allowance(objective, theta, gradient_norm=gradient)
    assert result == pytest.approx(2 * (sums + ends), rel=1e-6, abs=0)


# -- noise in the objective ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgc", "sign", "linearised-gcn", "gcn", "gat", "own-gcn"])
@pytest.mark.parametrize("loss", ["cross_entropy", "one_vs_rest"])
def test_value_gradient_and_hessian_with_noise_are_those_of_the_formula(name: str, loss: str) -> None:
    module, graph, mu = make(name), random_graph(1, directed=True, sparse=False), 0.03
    theta, objective_noise_vector = draws(flatten(module).numel(), seed=1), 5 * draws(flatten(module).numel(), seed=2)
    labels = graph.y[graph.train_rows]
    losses: dict[str, Callable[..., Tensor]] = {"cross_entropy": functional.cross_entropy, "one_vs_rest": binary}

    def value(at: Tensor) -> Tensor:
        logits = call_with(module, at, graph.x, graph.edge_index)[graph.train_rows]
        kind: dict[str, Any] = {"reduction": "sum"} if loss == "cross_entropy" else {}
        return (
            losses[loss](logits, labels, **kind).sum() + objective_noise_vector @ at
        ) / labels.numel() + mu / 2 * at @ at

    objective = Objective(module, graph, mu=mu, loss=as_loss(loss), objective_noise_vector=objective_noise_vector)
    assert objective.value(theta) == pytest.approx(float(value(theta)), rel=1e-11)
    assert objective.value_and_gradient(theta)[0] == pytest.approx(float(value(theta)), rel=1e-11)
    leaf = theta.clone().requires_grad_()
    torch.testing.assert_close(
        objective.gradient(theta), torch.autograd.grad(value(leaf), leaf)[0], rtol=1e-9, atol=1e-11
    )
    hessian, v = torch.autograd.functional.hessian(value, theta), draws(theta.numel(), seed=3)
    torch.testing.assert_close(objective.hessian(theta)(v), hessian @ v, rtol=1e-8, atol=1e-10)
    single = objective.in_single_precision()
    assert single.objective_noise_vector is not None
    assert single.objective_noise_vector.dtype == torch.float32
    torch.testing.assert_close(single.gradient(theta.float()).double(), objective.gradient(theta), rtol=1e-3, atol=1e-3)


def test_the_noise_of_a_training_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    first, second = (present(gf.train(graph, "cgu").objective_noise_vector) for _ in range(2))
    assert not torch.equal(first, second)
    monkeypatch.setattr(os, "urandom", bytes)
    first, second = (present(gf.train(graph, "cgu").objective_noise_vector) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("model", ["cgu", "sgc", "gcn"])
def test_every_training_has_noise_of_its_own(model: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    options: dict[str, Any] = {"hidden": 5, "epochs": 3, "polish_steps": 2} if model == "gcn" else {}
    first, second = (gf.train(graph, model, objective_noise=0.5, **options) for _ in range(2))
    assert first.objective_noise_vector is not None
    assert second.objective_noise_vector is not None
    assert not (first.objective_noise_vector == second.objective_noise_vector).any()
    assert not torch.equal(first.theta, second.theta)
    assert (first.recipe.objective_noise, first.recipe.noise_seed) == (0.5, None)
    assert first.objective_noise_vector.shape == first.theta.shape
    seeded = [gf.train(graph, model, objective_noise=0.5, noise_seed=seed, **options) for seed in (7, 7, 8)]
    assert torch.equal(present(seeded[0].objective_noise_vector), present(seeded[1].objective_noise_vector))
    assert torch.equal(seeded[0].theta, seeded[1].theta)
    assert not torch.equal(present(seeded[0].objective_noise_vector), present(seeded[2].objective_noise_vector))
    assert torch.equal(present(seeded[0].objective_noise_vector), noise(size=first.theta.numel(), sigma=0.5, seed=7))
    assert seeded[0].recipe.noise_seed == 7


def test_the_noise_is_gaussian_of_the_standard_deviation_that_was_asked_for() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "linearised-gcn", hidden=200, objective_noise=0.25)
    assert trained.objective_noise_vector is not None
    assert trained.objective_noise_vector.numel() > 1000
    assert stats.kstest(trained.objective_noise_vector.numpy() / 0.25, "norm").pvalue > 1e-6
    assert (
        stats.kstest(trained.objective_noise_vector.numpy() / 0.5, "norm").pvalue < 1e-6
    )  # and another one would be noticed


def test_without_it_nothing_is_drawn() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    for trained in (gf.train(graph, "sgc"), gf.train(graph, "cgu", objective_noise=0)):
        assert trained.objective_noise_vector is None
        assert trained.recipe.objective_noise == 0
        assert "noise" not in gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="retrain").certificate.objective


def test_a_model_with_noise_in_the_objective_has_none_in_its_weights_by_default() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    assert gf.train(graph, "cgu").recipe.sigma == 0
    assert gf.train(graph, "sgc", objective_noise=1.0).recipe.sigma == 0
    assert gf.train(graph, "sgc").recipe.sigma > 0
    assert gf.train(graph, "sgc", objective_noise=1.0, sigma=0.2).recipe.sigma == 0.2


@pytest.mark.slow
@pytest.mark.parametrize("polish_steps", [0, 200])
def test_a_network_trained_by_adam_feels_it(polish_steps: int) -> None:
    """Large noise pulls the weights to `-b / (m mu)`, in Adam's single precision and in the polish."""
    graph = random_graph(3, nodes=40, edges=60)
    options: dict[str, Any] = {"hidden": 5, "dropout": 0.0, "epochs": 300, "polish_steps": polish_steps}
    trained = gf.train(graph, "gcn", mu=10.0, objective_noise=1000.0, noise_seed=1, learning_rate=0.05, **options)
    assert trained.objective_noise_vector is not None
    pull = -trained.objective_noise_vector / graph.train_rows.numel() / 10
    away = float((trained.theta - pull).norm() / pull.norm())
    assert away < 0.1
    still = gf.train(graph, "gcn", mu=10.0, learning_rate=0.05, **options)
    assert float((still.theta - pull).norm() / pull.norm()) > 0.9
    value, gradient = trained.objective(graph).value_and_gradient(trained.theta)
    assert (trained.objective_value, trained.gradient_norm) == pytest.approx((value, float(gradient.norm())))


def test_noise_of_the_operating_system_from_training_to_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way that everybody takes: other tests replace the draws by seeded ones."""
    monkeypatch.setattr("graphforget.training.fit.noise", noise)
    drawn: list[int] = []
    random_words = noise_module._random_words

    def counted(count: int) -> np.ndarray:
        drawn.append(count)
        return random_words(count)

    monkeypatch.setattr(noise_module, "_random_words", counted)
    graph = random_graph(3, nodes=40, edges=60)
    trained, other = (gf.train(graph, "cgu", mu=0.1, tolerance=1e-6) for _ in range(2))
    assert trained.recipe.noise_seed is None
    assert trained.objective_noise_vector is not None
    assert other.objective_noise_vector is not None
    assert drawn == [2 * trained.theta.numel()] * 2
    assert not torch.equal(trained.objective_noise_vector, other.objective_noise_vector)
    assert not torch.equal(trained.theta, other.theta)
    request = gf.Request(nodes=[4])
    for epsilon, retrained in ((1e9, False), (1e-9, True)):
        outcome = gf.unlearn(trained, graph, request, method="cgu", epsilon=epsilon)
        assert (outcome.level, outcome.certificate.epsilon) == ("conditional", epsilon)
        assert outcome.details["retrained"] == retrained
        assert outcome.trained.objective_noise_vector is not None
        assert torch.equal(outcome.trained.objective_noise_vector, trained.objective_noise_vector) == (not retrained)
        assert outcome.measured["refuted"] == []
        given: dict[str, Any] = {"released": outcome.released, "annexes": [outcome.annex]}
        checks = {
            check.name for check in gf.verify(outcome.certificate, outcome.trained, outcome.graph, **given).checks
        }
        assert {"model and objective", "claim", "released weights", "noise", "deleted data"} <= checks
    assert len(drawn) == 3


def test_retraining_draws_anew_and_the_certificate_names_the_noise() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "cgu", noise_seed=5, objective_noise=0.5)
    request = gf.Request(nodes=[4])
    outcome = gf.unlearn(trained, graph, request, method="retrain")
    assert outcome.certificate.objective["noise"] == 0.5
    assert outcome.trained.recipe.noise_seed is None
    assert outcome.trained.objective_noise_vector is not None
    assert not torch.equal(present(outcome.trained.objective_noise_vector), present(trained.objective_noise_vector))
    again = gf.unlearn(trained, graph, request, method="retrain")
    assert not torch.equal(
        present(outcome.trained.objective_noise_vector), present(again.trained.objective_noise_vector)
    )
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph).checks
    seeded = [gf.unlearn(trained, graph, request, method="retrain", noise_seed=1).trained for _ in range(2)]
    assert torch.equal(seeded[0].theta, seeded[1].theta)
    assert seeded[0].recipe.noise_seed == 1
    silent = dataclasses.replace(outcome.certificate, objective={**outcome.certificate.objective, "noise": 0.1})
    with pytest.raises(gf.Mismatch, match="states the objective"):
        gf.verify(silent, outcome.trained, outcome.graph)


@pytest.mark.parametrize(
    ("model", "given_", "message"),
    [
        ("cgu", {"objective_noise": -1}, "objective_noise is -1, a finite number from 0 is needed"),
        ("cgu", {"objective_noise": math.nan}, "objective_noise is nan, a finite number from 0"),
        ("cgu", {"objective_noise": math.inf}, "objective_noise is inf, a finite number from 0"),
        ("cgu", {"objective_noise": "x"}, "objective_noise is 'x', a finite number from 0 is needed$"),
        ("cgu", {"objective_noise": [1]}, r"objective_noise is \[1\], a finite number from 0 is needed$"),
        ("sgc", {"objective_noise": True}, "objective_noise is True, a finite number from 0 is needed$"),
        ("sgc", {"sigma": "x"}, "sigma is 'x', a finite number from 0 is needed$"),
        ("sgc", {"sigma": [1]}, r"sigma is \[1\], a finite number from 0 is needed$"),
        ("sgc", {"sigma": True}, "sigma is True, a finite number from 0 is needed$"),
        ("cgu", {"noise_seed": -1}, "noise_seed is -1"),
        ("cgu", {"noise_seed": 1.5}, "noise_seed is 1.5"),
        ("sharded-sgc", {"objective_noise": 1.0, "shards": 2}, "an ensemble on shards takes no noise in its objective"),
    ],
)
def test_bad_noise_is_refused_in_one_sentence(model: str, given_: dict[str, Any], message: str) -> None:
    with pytest.raises(gf.InputError, match=f"^{message}") as caught:
        gf.train(random_graph(3, nodes=40, edges=60), model, **given_)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sigma", [None, 0.1])
@pytest.mark.parametrize("method", ["cgu", "retrain"])
def test_what_is_released_leaves_it_behind(method: str, sigma: float | None) -> None:
    """With it `-(b + grad) / (m mu)` would tell what it was to hide."""
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "cgu", mu=0.1)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method=method, epsilon=1e9, sigma=sigma)
    released = outcome.released
    assert outcome.trained.objective_noise_vector is not None
    assert released.objective_noise_vector is None
    assert released.noise == (sigma or 0.0)
    assert torch.equal(released.theta, outcome.released_theta)
    assert torch.equal(released.theta, outcome.trained.theta) == (sigma is None)
    plain = dataclasses.replace(outcome.trained, objective_noise_vector=None).objective(outcome.graph)
    value, gradient = plain.value_and_gradient(outcome.released_theta)
    assert (released.objective_value, released.gradient_norm) == pytest.approx((value, float(gradient.norm())))
    assert released.gradient_norm > 100 * outcome.trained.gradient_norm
    message = (
        "these are released weights with" if sigma else "these are released weights, without their objective's noise"
    )
    for again in ("cgu", "retrain", "auto"):
        with pytest.raises(gf.InputError, match=f"^{message}"):
            gf.unlearn(released, outcome.graph, gf.Request(nodes=[9]), method=again)


def test_a_model_with_it_is_not_certifiable() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", objective_noise=0.5, sigma=0.1)
    assert trained.strongly_convex
    assert not trained.certifiable
    assert gf.train(graph, "sgc").certifiable
    with pytest.raises(
        gf.InputError, match="^method 'newton' does not work here: .*trained with noise in its objective"
    ):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="newton")
    with pytest.raises(gf.Refused):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), level="certified", otherwise="refuse", method="ascent")


# -- in a run directory ----------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    graph = random_graph(3, nodes=40, edges=60)
    gf.save_run(tmp_path / "run", gf.train(graph, "cgu"), graph)
    return tmp_path / "run"


def rewritten(run: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    """Changes the weights' file as somebody would who knows how the run directory's checksums are made."""
    file = run / "weights.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    message = json.loads((run / "run.json").read_text())
    message["sha256"][file.name] = sha256(file.read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(message))


@pytest.mark.parametrize("model", ["cgu", "sgc", "gcn"])
def test_a_run_keeps_it(model: str, tmp_path: Path) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    options: dict[str, Any] = {"hidden": 5, "epochs": 3, "polish_steps": 2} if model == "gcn" else {}
    trained = gf.train(graph, model, objective_noise=0.5, noise_seed=4, **options)
    gf.save_run(tmp_path / "run", trained, graph)
    loaded, _ = gf.load_run(tmp_path / "run")
    assert torch.equal(present(loaded.objective_noise_vector), present(trained.objective_noise_vector))
    assert loaded.recipe == trained.recipe
    assert loaded.objective(graph).value(loaded.theta) == pytest.approx(trained.objective_value, rel=1e-12)
    assert (tmp_path / "run" / "weights.safetensors").stat().st_mode & 0o077 == 0
    others = [file.read_bytes() for file in (tmp_path / "run").iterdir() if file.name != "weights.safetensors"]
    assert others
    assert not any(present(trained.objective_noise_vector).numpy().tobytes()[:8] in content for content in others)
    assert not any(str(float(present(trained.objective_noise_vector)[0])).encode() in content for content in others)


def test_it_goes_on_through_a_deletion_and_out_with_no_release(tmp_path: Path) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "cgu")
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="cgu", epsilon=1e9)  # no draw spends that
    assert torch.equal(present(outcome.trained.objective_noise_vector), present(trained.objective_noise_vector))
    gf.save_outcome(tmp_path / "run", outcome)
    loaded, _ = gf.load_run(tmp_path / "run")
    assert torch.equal(present(loaded.objective_noise_vector), present(trained.objective_noise_vector))
    assert loaded.history == outcome.trained.history
    assert gf.verify_run(tmp_path / "run").checks
    held = {path.name for path in (tmp_path / "run").iterdir() if path.suffix == ".safetensors"}
    for name in held - {"weights.safetensors"}:
        assert "tilt" not in load_file(tmp_path / "run" / name)
    assert "tilt" not in json.dumps(outcome.answer())


def test_one_that_was_swapped_after_the_certificate_is_noticed(tmp_path: Path) -> None:
    """By a vector that is orthogonal to the weights, so that the objective is as it was: only the digest tells."""
    graph = random_graph(3, nodes=40, edges=60)
    outcome = gf.unlearn(gf.train(graph, "cgu"), graph, gf.Request(nodes=[4]), method="retrain")
    run, theta = tmp_path / "run", outcome.trained.theta
    gf.save_outcome(run, outcome)
    assert gf.verify_run(run).checks
    away = draws(theta.numel())
    away = 1e-3 * (away - (away @ theta) / (theta @ theta) * theta)
    file = run / "weights.safetensors"
    save_file(load_file(file) | {"tilt": present(outcome.trained.objective_noise_vector) + away}, file)
    with pytest.raises((DamagedRun, gf.Mismatch), match="is not the file that was written"):
        gf.verify_run(run)
    rewrite_checksums(run)
    swapped, _ = gf.load_run(run)  # no checksum and no objective gives it away
    message = "^recipe, reach or history of the model do not match the certificate$"
    with pytest.raises(gf.Mismatch, match=message):
        gf.verify_run(run)
    with pytest.raises(gf.Mismatch, match=message):
        gf.verify(outcome.certificate, swapped, outcome.graph, annexes=[outcome.annex])
    assert gf.verify(outcome.certificate, swapped, outcome.graph).checks  # who has no annex cannot tell


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("tilt"), "noise in the objective"),
        (lambda tensors: tensors.update(tilt=tensors["tilt"][1:].clone()), "noise in the objective"),
        (lambda tensors: tensors.update(tilt=torch.zeros(0, dtype=torch.float64)), "noise in the objective"),
        (lambda tensors: tensors.update(tilt=tensors["tilt"] + 1), "is inconsistent"),
        (lambda tensors: tensors.update(tilt=tensors["tilt"] * math.nan), "is inconsistent"),
    ],
    ids=["missing", "short", "empty", "another", "nan"],
)
def test_a_damaged_one_is_told_in_one_sentence(
    change: Callable[[dict[str, Tensor]], None], message: str, run: Path
) -> None:
    assert gf.load_run(run)[0].objective_noise_vector is not None
    rewritten(run, change)
    with pytest.raises(DamagedRun, match=message) as caught:
        gf.load_run(run)
    assert "\n" not in str(caught.value)


def test_one_that_does_not_belong_there_is_noticed(tmp_path: Path) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    rewritten(tmp_path / "run", lambda tensors: tensors.update(tilt=torch.ones_like(tensors["theta"])))
    with pytest.raises(DamagedRun, match="the noise in the objective is not that of these weights"):
        gf.load_run(tmp_path / "run")


# -- propagation by means --------------------------------------------------------------------------------------------


def mean_model(*, hops: int = 2, scale_rows: bool = True, seed: int = 0) -> MeanSGC:
    module = MeanSGC(COLUMNS, CLASSES, hops=hops, scale_rows=scale_rows).double()
    with torch.no_grad():
        module.weight.copy_(draws(*module.weight.shape, seed=seed))
    return module


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_every_row_of_the_propagation_is_a_mean(graph: gf.Graph) -> None:
    n = graph.num_nodes
    p = mean_adjacency(graph.edge_index, n, dtype=torch.float64).csr.to_dense()
    torch.testing.assert_close(p.sum(dim=1), torch.ones(n, dtype=torch.float64), rtol=1e-14, atol=0)
    a = torch.eye(n, dtype=torch.float64)
    a[graph.edge_index[1], graph.edge_index[0]] = 1
    torch.testing.assert_close(p, a / a.sum(dim=1, keepdim=True), rtol=1e-14, atol=0)
    order = torch.randperm(graph.edge_index.shape[1], generator=torch.Generator().manual_seed(0))
    shuffled = mean_adjacency(graph.edge_index[:, order], n, dtype=torch.float64).csr.to_dense()
    assert torch.equal(p, shuffled)


@settings(max_examples=40, deadline=None)
@given(graph=graphs(), hops=st.integers(0, 3), scale_rows=st.booleans())
def test_its_logits_are_the_dense_formula(graph: gf.Graph, hops: int, scale_rows: bool) -> None:
    module = mean_model(hops=hops, scale_rows=scale_rows)
    rows = torch.from_numpy(dense_rows(module, graph))
    with torch.no_grad():
        result = module(*model_inputs(module, graph, dtype=torch.float64))
        torch.testing.assert_close(result, rows @ module.weight[0], **CLOSE)
        torch.testing.assert_close(module(graph.x.double(), graph.edge_index), result, **CLOSE)
    if scale_rows:
        assert float(rows.norm(dim=1).max()) <= 1 + 1e-12


@settings(max_examples=40, deadline=None)
@given(
    graph=graphs(),
    kind=st.sampled_from(["mean", "sgc", "sign", "without bias"]),
    scale_rows=st.booleans(),
    seed=st.integers(0, 99),
)
def test_transposed_is_the_adjoint_of_at(graph: gf.Graph, kind: str, scale_rows: bool, seed: int) -> None:
    given_: dict[str, Any] = {"scale_rows": scale_rows}
    module: FixedPropagation = {
        "mean": lambda: MeanSGC(COLUMNS, CLASSES, hops=2, **given_),
        "sgc": lambda: SGC(COLUMNS, CLASSES, **given_),
        "sign": lambda: SIGN(COLUMNS, CLASSES, hops=2, **given_),
        "without bias": lambda: FixedPropagation(COLUMNS, CLASSES, powers=(0, 2), bias=False, **given_),
    }[kind]().double()
    assert (module.bias is None) == (kind in ("mean", "without bias"))
    inputs = module.prepare(converted(graph.x, dtype=torch.float64, device="cpu"), graph.edge_index)
    theta, u = draws(flatten(module).numel(), seed=seed), draws(graph.num_nodes, CLASSES, seed=seed + 1)
    image, back = module.at(theta, *inputs), module.transposed(u, *inputs)
    assert back.shape == theta.shape
    assert float((image * u).sum()) == pytest.approx(float(theta @ back), rel=1e-10, abs=1e-10)
    torch.testing.assert_close(image, torch.from_numpy(dense_rows(module, graph)) @ theta.view(-1, CLASSES), **CLOSE)


@settings(max_examples=40, deadline=None)
@given(graph=graphs(), hops=st.integers(0, 3), scale_rows=st.booleans())
def test_feature_norms_bound_the_rows(graph: gf.Graph, hops: int, scale_rows: bool) -> None:
    module = mean_model(hops=hops, scale_rows=scale_rows)
    norms = module.feature_norms(*model_inputs(module, graph, dtype=torch.float64))
    absolute = torch.from_numpy(np.abs(dense_rows(module, graph))).norm(dim=1)
    assert bool((absolute <= norms * (1 + 1e-12)).all())
    if hops == 0:
        torch.testing.assert_close(absolute, norms, **CLOSE)
    if scale_rows:
        assert float(norms.max()) <= 1 + 1e-12


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_outside_the_footprint_logits_are_bit_for_bit_equal(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    module = mean_model(hops=data.draw(st.integers(0, 3)), seed=data.draw(st.integers(0, 99)))
    assert changed_rows(module, graph, request) <= set(gf.footprint(graph, request, module.reach).reached.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("directed", [False, True])
def test_the_footprint_is_not_needlessly_large(directed: bool, hops: int) -> None:
    for seed in range(8):
        graph, requests_ = dense_cases(seed, directed=directed)
        for request in requests_:
            changed: set[int] = set()
            for weights in range(3):
                changed |= changed_rows(mean_model(hops=hops, seed=weights), graph, request)
            assert changed == set(gf.footprint(graph, request, mean_model(hops=hops).reach).reached.tolist())


def test_an_edge_is_felt_one_step_less_far_than_in_sgc() -> None:
    """0 - 1 - 2 - 3 - 4 - 5 - 6: a lost edge changes what its ends are, not how others weigh them."""
    edges = torch.stack([torch.arange(6), torch.arange(1, 7)])
    path = gf.Graph.create(x=torch.arange(1.0, 29.0).reshape(7, 4), edges=edges, y=torch.tensor([0, 1, 2, 0, 1, 2, 0]))
    request = gf.Request(edges=[(0, 1)])
    assert changed_rows(mean_model(), path, request) == {0, 1, 2}
    assert changed_rows(make("sgc"), path, request) == {0, 1, 2, 3}
    assert gf.footprint(path, request, mean_model().reach).reached.tolist() == [0, 1, 2]


def test_a_copy_of_it_with_another_bias_is_no_model_of_this_package() -> None:
    class Mine(MeanSGC):
        pass

    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, Mine(COLUMNS, CLASSES), loss="one_vs_rest", epochs=3, polish_steps=1, objective_noise=1.0)
    assert not trained.strongly_convex
    assert gf.METHODS["cgu"].unsupported(trained) is not None
    assert gf.METHODS["cgu"].unsupported(gf.train(graph, copy.deepcopy(mean_model()), loss="one_vs_rest")) is not None
