"""The certified level: the measured bound against real retraining, its rounding, its noise, many requests in a row."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pickle
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import graphforget as gf
from cases import (
    CLASSES,
    COLUMNS,
    OwnGCN,
    claim_of,
    dense_rows,
    graphs,
    present,
    random_graph,
    requests,
    weighted,
)
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.certificates.residual import Residual, noise_centre, residual
from graphforget.graph import overlay as overlay_module
from graphforget.linalg.newton import newton_cg
from graphforget.linalg.preconditioner import LowRankPreconditioner
from graphforget.linalg.ritz import RitzPreconditioner
from graphforget.models import followed as followed_module
from graphforget.models.fixed import FixedPropagation
from graphforget.models.parameters import trainable
from graphforget.privacy.gaussian import delta_of, mu_gdp, noise_error_within_budget, tolerance
from graphforget.privacy.noise import grid, rounding_tv_bound, with_noise
from graphforget.privacy.rounding import rounded_up
from graphforget.training.rounding import rounding_allowance

MODELS: dict[str, dict[str, Any]] = {
    "sgc": {},
    "sign": {"hops": 2},
    "linearised-gcn": {"hidden": 4},
    "linearised-gat": {"hidden": 2, "heads": 2},
    "linearised-gin": {"hidden": 4},
    "linearised-sage": {"hidden": 4},
    "own linearised": {},
}


WEIGHTED = ("sgc", "sign", "linearised-gcn", "linearised-gat")  # models that read the weights of edges


def train(graph: gf.Graph, model: str, **settings_: Any) -> gf.Trained:
    if model == "own linearised":
        return gf.train(graph, gf.linearised(OwnGCN(), columns=COLUMNS), **settings_)
    return gf.train(graph, model, **MODELS[model], **settings_)


def optimum(trained: gf.Trained, graph: gf.Graph) -> Tensor:
    """Retrained from 0 in float64, as far as float64 goes, on a copy of the graph: its features follow nothing."""
    objective = trained.objective(pickle.loads(pickle.dumps(graph)))
    found = newton_cg(objective, torch.zeros_like(trained.theta), gradient_tolerance=1e-12)
    assert found.gradient_norm <= 1e-10
    return found.theta


# -- soundness -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_retrained_optimum_is_never_further_than_the_bound(data: st.DataObject) -> None:
    check_bound(data)


@pytest.mark.long
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_retrained_optimum_is_never_further_than_the_bound_in_many_cases(data: st.DataObject) -> None:
    check_bound(data)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_bound_holds_where_features_follow_by_differences(data: st.DataObject) -> None:
    with features_by_differences():
        check_bound(data, follows=True)


@pytest.mark.long
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_bound_holds_where_features_follow_by_differences_in_many_cases(data: st.DataObject) -> None:
    with features_by_differences():
        check_bound(data, follows=True)


@st.composite
def undirected_dense_graphs(draw: st.DrawFn) -> gf.Graph:
    edges = draw(st.integers(6, 40))
    return random_graph(draw(st.integers(0, 10**6)), nodes=14, edges=edges, directed=False, sparse=False)


@contextlib.contextmanager
def features_by_differences() -> Iterator[None]:
    """Features follow a deletion by differences wherever they can, as on large graphs."""
    with (
        mock.patch.object(followed_module, "FEW_ENTRIES", 0),
        mock.patch.object(followed_module, "CHEAP", 0),
        mock.patch.object(followed_module, "MOST", math.inf),
        mock.patch.object(overlay_module, "MOST_CHANGED", math.inf),
    ):
        yield


def check_bound(data: st.DataObject, *, follows: bool = False) -> None:
    """Random graphs, models, mixtures, mu, sigma, epsilon, delta and numbers of releases."""
    graph = data.draw(undirected_dense_graphs() if follows else graphs())
    model = data.draw(st.sampled_from(["sgc", "sign"] if follows else list(MODELS)))
    if not follows and model in WEIGHTED and data.draw(st.booleans()):
        graph = weighted(graph, 0)
    request = data.draw(requests(graph))
    mu, sigma = data.draw(st.sampled_from([1e-4, 1e-2, 1.0])), data.draw(st.sampled_from([1e-3, 0.1, 10.0]))
    epsilon, delta = data.draw(st.sampled_from([0.1, 1.0, 5.0])), data.draw(st.sampled_from([1e-6, 1e-2]))
    releases = data.draw(st.sampled_from([1, 4, 64, 1000]))
    promise: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "releases": releases}
    left = data.draw(st.sampled_from([1e-5, 10.0]))
    trained = train(graph, model, mu=mu, sigma=sigma, tolerance=left, **promise)
    try:
        outcome = gf.unlearn(trained, graph, request, method="newton")
    except gf.Refused as refusal:
        after = graph.without(request)
        if "below the rounding error" in str(refusal):  # messages of a directed graph with weights can be long
            objective, best = trained.objective(after), optimum(trained, after)
            rounding = rounding_allowance(objective, best, gradient_norm=0.0) / mu
            assert 1.1 * rounding >= tolerance(sigma=sigma, **promise)
            return
        # Weights of 1 with noise of 0.001: float64 has too few digits for this delta.
        assert "noise in float64" in str(refusal)
        error = rounding_tv_bound(optimum(trained, after), sigma=sigma)
        assert not noise_error_within_budget(1.5 * error, **promise)
        return
    certificate, claim, measured = outcome.certificate, claim_of(outcome, ResidualBall), outcome.measured
    away = float((outcome.centre - optimum(trained, outcome.graph)).norm())
    slack = 1e-10 / mu  # what the oracle itself may be off by
    assert (certificate.level, claim.kind) == ("certified", "residual-ball/1")
    assert (certificate.epsilon, certificate.delta, claim.releases) == (epsilon, delta, releases)
    assert claim.centred
    assert away <= measured["distance"] + slack
    assert measured["distance"] <= certificate.tolerance == tolerance(sigma=sigma, **promise)
    whole = mu_gdp(epsilon=epsilon, delta=15 / 16 * delta)
    assert certificate.tolerance * math.sqrt(releases) / sigma <= whole * (1 + 1e-12)
    assert away * math.sqrt(releases) / sigma <= whole + slack * math.sqrt(releases) / sigma
    assert delta_of(ratio=certificate.tolerance / sigma * math.sqrt(releases), epsilon=epsilon) <= delta
    assert measured["epsilon_measured"] <= epsilon
    ratio = measured["distance"] / sigma
    assert delta_of(ratio=ratio, epsilon=measured["epsilon_measured"]) <= 15 / 16 * delta * (1 + 1e-9)
    assert outcome.trained.residual / 2 <= measured["distance"]
    if outcome.details["retrained"]:
        assert outcome.trained.residual <= min(certificate.tolerance, left)
    else:
        reached = rounded_up(outcome.trained.gradient_norm / (2 * mu))
        assert outcome.details["distances"][-1] == reached
    assert outcome.trained.releases == pytest.approx((claim.ratio,))
    assert outcome.trained.releases_left == certificate.releases_left == releases - 1
    given_: dict[str, Any] = {"released": outcome.released_theta, "annexes": [outcome.annex]}
    found = gf.verify(certificate, outcome.trained, outcome.graph, **given_)
    assert f"within the tolerance {certificate.tolerance:.3g} " in " ".join(check.result for check in found.checks)


def chain_requests(graph: gf.Graph, seed: int) -> Iterator[gf.Request]:
    """One attribute value each, in any order: as many requests as there are values."""
    rng = np.random.default_rng(seed)
    for place in rng.permutation(graph.num_nodes * COLUMNS).tolist():
        yield gf.Request(attributes={place // COLUMNS: [place % COLUMNS]})


@pytest.mark.slow
@pytest.mark.parametrize("releases", [1, 4, 64])
@pytest.mark.parametrize("seed", [0, 1])
def test_as_many_releases_as_were_fixed_keep_what_was_promised_together(releases: int, seed: int) -> None:
    """The true distance of each from the true optimum, composed: at most mu_gdp, and no other release fits in."""
    graph = random_graph(seed, nodes=30, edges=40)
    sigma, epsilon, delta = 2.0, 1.0, 1e-5
    trained = gf.train(graph, "sgc", mu=0.05, sigma=sigma, epsilon=epsilon, delta=delta, releases=releases)
    requests_, ratios, bounds = chain_requests(graph, seed), [], []
    for number in range(releases):
        assert trained.releases_left == releases - number
        outcome = gf.unlearn(trained, graph, next(requests_))
        assert (outcome.method, outcome.level) == ("newton", "certified")
        trained, graph = outcome.trained, outcome.graph
        ratios.append(float((outcome.centre - optimum(trained, graph)).norm()) / sigma)
        bounds.append(present(outcome.certificate.claim.ratio))
    whole = mu_gdp(epsilon=epsilon, delta=15 / 16 * delta)
    assert 0 < math.hypot(*ratios) <= math.hypot(*bounds)
    assert math.hypot(*bounds) == pytest.approx(whole, rel=1e-9)
    assert delta_of(ratio=math.hypot(*bounds), epsilon=epsilon) <= delta
    assert trained.releases_left == 0
    assert gf.unlearn(trained, graph, next(requests_)).method == "retrain"


def test_the_oracle_would_notice_a_bound_that_is_too_small() -> None:
    """The bound is attained in the direction of all biases, which only the L2 term resists: nothing less would do."""
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", tolerance=1e-6)
    shift = torch.zeros_like(trained.theta)
    shift[-CLASSES:] = 0.01
    moved = trained.theta + shift
    found, best = residual(trained.objective(graph), moved), optimum(trained, graph)
    for point, bound in ((moved, found.distance), (found.centre, found.radius)):
        away = float((point - best).norm())
        assert away <= bound <= away * 1.001 + 2e-6
    assert found.radius == pytest.approx(found.distance / 2, rel=1e-4)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_wherever_the_gradient_is_taken_the_optimum_lies_in_both_balls(data: st.DataObject) -> None:
    """Not only where Newton's method ends: far away, near, and at the optimum itself."""
    graph = data.draw(graphs())
    model = data.draw(st.sampled_from(list(MODELS)))
    trained = train(graph, model, mu=data.draw(st.sampled_from([1e-4, 1e-2, 1.0])), tolerance=10.0)
    best = optimum(trained, graph)
    size = 10.0 ** data.draw(st.integers(-6, 2))
    seed = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    theta = best + size * torch.randn(best.numel(), generator=seed, dtype=torch.float64)
    found = residual(trained.objective(graph), theta)
    slack = 1e-10 / trained.recipe.mu
    assert float((theta - best).norm()) <= found.distance + slack
    assert float((found.centre - best).norm()) <= found.radius + slack


def test_of_what_is_not_convex_nobody_knows_where_the_optimum_is() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "gcn", epochs=5, polish_steps=2)
    own = gf.train(graph, "sgc", loss=lambda z, y: z.gather(1, y[:, None]).squeeze(1).sin() + 1, epochs=5)
    shards = gf.train(graph, "sharded-gcn", epochs=2, polish_steps=0, shards=2)
    for model in (trained, own):
        with pytest.raises(gf.InputError, match="^the objective is not strongly convex"):
            residual(model.objective(graph), model.theta)
    for model in (trained, own, shards):
        assert torch.equal(noise_centre(model, graph, centred=False), model.theta)
        with pytest.raises(gf.InputError, match="^the objective is not strongly convex"):
            noise_centre(model, graph, centred=True)


# -- rounding --------------------------------------------------------------------------------------------------------


def exact_gradient(trained: gf.Trained, graph: gf.Graph, theta: Tensor) -> np.ndarray:
    """`grad F` of SGC or SIGN in 80-bit arithmetic, from the definition."""
    long = np.longdouble
    z = dense_rows(trained.module, graph, long)[graph.train_rows.numpy()]
    w = theta.numpy().astype(long).reshape(-1, CLASSES)
    logits = z @ w
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(p)), graph.y[graph.train_rows].numpy()] -= 1
    return (z.T @ p / len(p)).ravel() + long(trained.recipe.mu) * theta.numpy().astype(long)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_allowance_covers_what_float64_does_to_the_gradient(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    if data.draw(st.booleans()):
        graph = weighted(graph, 0, most=data.draw(st.sampled_from([1.0, 6.0])))
    model = data.draw(st.sampled_from(["sgc", "sign"]))
    trained = gf.train(graph, model, mu=data.draw(st.sampled_from([1e-4, 1.0])), tolerance=1.0)
    scale = 10.0 ** data.draw(st.integers(-3, 4))
    theta = scale * torch.randn(trained.theta.numel(), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    objective = trained.objective(graph)
    computed = objective.gradient(theta)
    exact = exact_gradient(trained, graph, theta)
    error = float(np.sqrt(((computed.numpy().astype(np.longdouble) - exact) ** 2).sum()))
    allowance = rounding_allowance(objective, theta, gradient_norm=float(computed.norm()))
    assert error <= allowance
    if graph.edge_weight is None or not graph.directed:  # messages of a directed graph with weights can be long
        assert allowance <= 1e-9 * (1 + float(theta.norm()))  # and is no excuse
    found, mu = residual(objective, theta), np.longdouble(trained.recipe.mu)
    centre = theta.numpy().astype(np.longdouble) - exact / (2 * mu)
    off = np.sqrt(((found.centre.numpy().astype(np.longdouble) - centre) ** 2).sum())
    assert off + np.sqrt((exact**2).sum()) / (2 * mu) <= found.radius


@pytest.mark.slow
@pytest.mark.parametrize("model", ["linearised-gcn", "linearised-gat", "linearised-gin", "linearised-sage"])
def test_for_linearised_models_the_allowance_is_far_above_what_another_order_of_sums_does(model: str) -> None:
    """No exact oracle there: the same nodes in another order round differently, and by how much is told."""
    graph = random_graph(3, nodes=60, edges=150)
    trained = train(graph, model)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))
    row_of = torch.empty_like(order)
    row_of[order] = torch.arange(graph.num_nodes)
    dense = graph.x.to_dense() if graph.x.layout == torch.sparse_csr else graph.x
    other = gf.Graph.create(
        x=dense[order],
        edges=row_of[graph.edge_index],
        y=graph.y[order],
        train_mask=graph.train_mask[order],
        test_mask=graph.test_mask[order],
        num_classes=CLASSES,
    )
    first, second = (trained.objective(g).gradient(trained.theta) for g in (graph, other))
    allowance = rounding_allowance(trained.objective(graph), trained.theta, gradient_norm=float(first.norm()))
    assert 0 < float((first - second).norm()) < allowance / 10
    assert allowance / trained.recipe.mu < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_certificate_says_in_words_where_rounding_is_estimated(model: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    outcome = gf.unlearn(train(graph, model), graph, gf.Request(nodes=[4]))
    assert outcome.level == "certified"
    estimated = any("which for this model is an estimate" in told for told in outcome.certificate.not_covered)
    assert estimated == (model not in ("sgc", "sign"))


def carried_error(graph: gf.Graph, lengths: Tensor, s: Tensor, powers: tuple[int, ...], q: Tensor) -> float:
    """docs/maths.md, section 16, by hand: the error of features that were propagated once."""
    u = 2.0**-53
    loops = torch.zeros(graph.num_nodes, dtype=torch.bool)
    loops[graph.edge_index[0][graph.edge_index[0] == graph.edge_index[1]]] = True
    senders = (s > 0).sum(dim=1) - (~loops).long()  # the row itself is in its list if it has a self-loop
    defects = [2 * (COLUMNS + 5) * u * math.sqrt(graph.num_nodes)]
    for hop in range(1, max(powers) + 1):
        bound = torch.linalg.matrix_power(s, hop) @ lengths
        rows = graph.train_rows if hop == max(powers) else torch.arange(graph.num_nodes)
        defects.append(float((2 * (senders + 8) * u * bound)[rows].norm()))
    blocks = [sum(defects[: hop + 1]) for hop in powers]
    size = math.sqrt(max(0.0, float((q.square() - 1).sum())))
    return 1.01 * math.sqrt(sum(block**2 for block in blocks)) + 2 * u * size


@pytest.mark.parametrize("model", ["sgc", "sign"])
@pytest.mark.parametrize("sparse", [True, False])
def test_the_allowance_is_the_formula(model: str, sparse: bool) -> None:
    """docs/maths.md, section 9, by hand: dense matrices, absolute values, one sum at a time."""
    graph = random_graph(5, nodes=30, edges=60, sparse=sparse)
    trained = gf.train(graph, model, mu=1e-3)
    theta, objective = trained.theta, trained.objective(graph)
    x = (graph.x.to_dense() if sparse else graph.x).double().abs()
    x = x / x.norm(dim=1, keepdim=True).clamp(min=1e-300)
    s = torch.eye(graph.num_nodes, dtype=torch.float64)
    s[graph.edge_index[1], graph.edge_index[0]] = 1
    root = s.sum(dim=1).sqrt()
    s = s / root[:, None] / root[None, :]
    assert isinstance(trained.module, FixedPropagation)
    powers = trained.module.powers
    lengths = [torch.linalg.matrix_power(s, hop) @ x.norm(dim=1) for hop in powers]
    q = (1 + sum(length**2 for length in lengths)).sqrt()[graph.train_rows]
    rows = torch.cat([*(torch.linalg.matrix_power(s, hop) @ x for hop in powers), torch.ones(30, 1)], dim=1)
    assert bool((rows.norm(dim=1)[graph.train_rows] <= q * (1 + 1e-12)).all())
    u = 2.0**-53
    k = (max(powers) + 3) * ((30 if sparse else q.numel()) + len(powers) * COLUMNS + 10)
    g = k * u / (1 - k * u)
    error = 0.0 if sparse else carried_error(graph, x.norm(dim=1), s, powers, q)
    for at in (theta, 10 * torch.ones_like(theta)):  # where the last terms are 1e-6 and where they are 1e-4 of it
        norm, gradient = float(at.norm()), float(objective.gradient(at).norm())
        sums = float((q * (g * (q * norm / 2 + math.sqrt(2)) + (CLASSES + 20) * u)).sum()) / q.numel()
        sums += error * (math.sqrt(2 * q.numel()) + norm / 2 * float(q.norm())) / q.numel()
        ends = 5 * u * (1e-3 * norm + gradient) + (theta.numel() + 2) * u * gradient
        found = rounding_allowance(objective, at, gradient_norm=gradient)
        assert found == pytest.approx(2 * (sums + ends), rel=1e-7, abs=0)


def test_rounding_counts_once_for_the_centre_and_once_for_the_radius() -> None:
    """The worst case: the true gradient is shorter or longer by all of it, and the optimum at the ball's far end."""
    theta, direction, mu, rounding = torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)[0], 0.1, 0.2
    found = Residual(theta, direction, rounding, mu)
    assert torch.equal(found.centre, theta - direction / (2 * mu))
    for true in (1 - rounding, 1 + rounding):
        ends = theta, theta - true * direction / mu  # of the ball that the true gradient tells
        assert all(float((found.centre - end).norm()) <= found.radius * (1 + 1e-12) for end in ends)
    assert float((found.centre - ends[1]).norm()) == pytest.approx(found.radius)


def test_large_numbers_that_cancel_inside_of_a_linearised_model_are_seen() -> None:
    """Another order of the nodes moves the centre by more than norms tell, and by less than what is allowed for it."""
    nodes, size = 40, 1e8
    v = size * torch.randn(nodes // 2, COLUMNS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, edges = torch.cat([v, -v]), torch.combinations(torch.arange(nodes)).T
    y, train_mask = torch.arange(nodes) % CLASSES, torch.arange(nodes) % 4 > 0
    orders = [torch.randperm(nodes, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    first, second = (
        gf.Graph.create(
            x=x[order],
            edges=edges,
            y=y[order],
            train_mask=train_mask[order],
            test_mask=~train_mask[order],
            num_classes=CLASSES,
        )
        for order in orders
    )
    trained = gf.train(first, "linearised-gcn", hidden=4, scale_rows=False)
    found, other = (residual(trained.objective(graph), trained.theta) for graph in (first, second))
    moved = float((found.centre - other.centre).norm())
    by_norms = rounding_allowance(trained.objective(first), trained.theta, gradient_norm=found.gradient_norm)
    assert by_norms / found.mu < moved < found.rounding / found.mu


def test_a_tolerance_that_drowns_in_rounding_is_refused() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", sigma=1e-11, tolerance=1e-3)
    with pytest.raises(gf.Refused, match="is below the rounding error"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="newton")


# -- noise -----------------------------------------------------------------------------------------------------------


def violation(center: Tensor, other: Tensor, *, sigma: float, epsilon: float, draws: int, seed: int) -> float:
    """A lower bound, at 99.99 % confidence, on `P(S) - e^eps Q(S)` for the worst set S of one-dimensional projections.

    `P` and `Q` are the two releases. By the likelihood ratio the worst set is a half-space along the line between them.
    """
    gap = (center - other).double()
    away = float(gap.norm())
    line = gap / away
    p, q = (
        (with_noise(start.expand(draws, -1).flatten(), sigma=sigma, seed=number).view(draws, -1) - other) @ line
        for start, number in ((center, seed), (other, seed + 1))
    )
    edge = away / 2 + epsilon * sigma**2 / away
    over_p, over_q = int((p > edge).sum()), int((q > edge).sum())
    low = stats.beta.ppf(1e-4, over_p, draws - over_p + 1) if over_p else 0.0
    high = stats.beta.ppf(1 - 1e-4, over_q + 1, draws - over_q)
    return float(low - math.exp(epsilon) * high)


@pytest.mark.slow
def test_no_violation_of_epsilon_and_delta_is_found_and_less_noise_would_be() -> None:
    """Monte Carlo on a tiny model whose distance is close to its tolerance."""
    graph = random_graph(3, nodes=40, edges=60)
    epsilon, delta, draws = 0.5, 0.01, 200_000
    promise: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "releases": 1}
    trained = gf.train(graph, "sgc", mu=0.05, sigma=0.3, tolerance=1e-6, **promise)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="newton")
    target = optimum(trained, outcome.graph)
    # As far as the certificate allows, in the direction in which the unlearned weights are off.
    off = outcome.centre - target
    worst = target + off / off.norm() * outcome.certificate.tolerance
    sigma = trained.recipe.sigma
    for center in (outcome.centre, worst):
        assert violation(center, target, sigma=sigma, epsilon=epsilon, draws=draws, seed=1) <= delta
    assert violation(worst, target, sigma=0.6 * sigma, epsilon=epsilon, draws=draws, seed=1) > delta
    assert violation(worst, target, sigma=sigma, epsilon=epsilon / 2, draws=draws, seed=1) > delta


def test_released_weights_have_the_noise_and_another_one_each_time() -> None:
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc", sigma=0.2)
    request = gf.Request(nodes=["patient-0017"])
    first, second = (gf.unlearn(trained, graph, request) for _ in range(2))
    assert torch.equal(first.trained.theta, second.trained.theta)
    for outcome in (first, second):
        drawn = ((outcome.released_theta - outcome.centre) / 0.2).numpy()
        assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert not torch.equal(first.released_theta, second.released_theta)


def test_noise_from_a_seed_guarantees_nothing() -> None:
    """Two releases with one seed: their difference is that of the private weights, to the grid."""
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc")
    first = gf.unlearn(trained, graph, gf.Request(nodes=["patient-0017"]), noise_seed=1)
    second = gf.unlearn(first.trained, first.graph, gf.Request(nodes=["patient-0018"]), noise_seed=1)
    gap = (second.released_theta - first.released_theta) - (second.centre - first.centre)
    assert float(gap.abs().max()) <= grid(trained.recipe.sigma)
    for outcome in (first, second):
        assert outcome.level == "empirical"
        assert outcome.certificate.epsilon is None
        assert "from a seed" in outcome.certificate.statement
        assert outcome.certificate.claim.centred  # where the noise lies is a fact, whatever follows from it
        gf.verify(outcome.certificate, outcome.trained, outcome.graph, released=outcome.released_theta)


def test_released_weights_lie_on_a_grid_that_tells_nothing_of_the_sum() -> None:
    """Without it the last digits of theta + noise would tell which theta it was."""
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc")
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=["patient-0017"]))
    step = grid(trained.recipe.sigma)
    assert trained.recipe.sigma / 32 <= step <= trained.recipe.sigma / 16
    assert torch.equal((outcome.released_theta / step).round() * step, outcome.released_theta)


def test_a_delta_that_no_digits_can_keep_is_refused() -> None:
    """Where float64 cannot tell how noise is to be rounded more digits do, and they have an end too."""
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc", releases=1)
    request = gf.Request(nodes=["patient-0017"])
    assert gf.unlearn(trained, graph, request, delta=1e-13, otherwise="refuse").level == "certified"
    told = r"^delta = 1e-47 is too small for epsilon = 1, noise in float64 is .* from Gaussian"
    with pytest.raises(gf.Refused, match=told):
        gf.unlearn(trained, graph, request, delta=1e-47, otherwise="refuse")


def test_the_noise_depends_on_no_request() -> None:
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc")
    sizes = {
        gf.unlearn(trained, graph, gf.Request(nodes=graph.train_rows[:count].tolist())).certificate.sigma
        for count in (1, 50, 200)
    }
    assert sizes == {trained.recipe.sigma}


# -- the step --------------------------------------------------------------------------------------------------------


def test_a_better_step_gives_a_tighter_claim() -> None:
    graph = gf.load("patients")
    request = gf.Request(nodes=graph.train_rows[:50].tolist())
    loose, tight = (
        gf.unlearn(gf.train(graph, "sgc", sigma=1.0, tolerance=1e-3, epsilon=epsilon), graph, request)
        for epsilon in (5.0, 0.01)
    )
    assert tight.details["steps"] >= loose.details["steps"]
    assert tight.measured["distance"] < loose.measured["distance"]
    assert tight.measured["epsilon_measured"] < loose.measured["epsilon_measured"]


def test_even_where_nothing_had_to_be_done_a_step_is_taken() -> None:
    """The old weights are within the tolerance of the new optimum, and still they are not handed back."""
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc", mu=1.0, sigma=100.0)
    request = gf.Request(attributes={"patient-0017": ["mean radius"]})
    old = residual(trained.objective(graph.without(request)), trained.theta).radius
    outcome = gf.unlearn(trained, graph, request)
    assert old < present(outcome.certificate.tolerance)
    assert outcome.private()["changed"]
    assert not torch.equal(outcome.trained.theta, trained.theta)
    assert outcome.details["distances"][-1] < old


@pytest.mark.parametrize("model", ["gcn", "gat", "gin"])
def test_what_is_not_convex_is_never_certified(model: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, model, epochs=5, polish_steps=2, sigma=10.0)
    request = gf.Request(nodes=[4])
    with pytest.raises(gf.InputError, match="not strongly convex by construction"):
        gf.unlearn(trained, graph, request, method="newton")
    outcome = gf.unlearn(trained, graph, request)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    certified = gf.unlearn(gf.train(graph, "sgc", sigma=10.0, mu=trained.recipe.mu), graph, request)
    about: dict[str, Any] = {"model": outcome.certificate.model, "objective": outcome.certificate.objective}
    forged = dataclasses.replace(certified.certificate, **about)
    same = {name: getattr(certified.trained, name) for name in ("graph_salt", "releases")}
    posing = dataclasses.replace(outcome.trained, strongly_convex=True, **same)
    with pytest.raises(gf.Mismatch, match="the objective is not strongly convex by construction"):
        gf.verify(forged, posing, outcome.graph)


def test_a_subclass_of_a_convex_model_is_not_convex_by_name() -> None:
    from graphforget.models.fixed import SGC

    class Bent(SGC):
        def logits(self, x: Any, propagation: object) -> Tensor:
            return super().logits(x, propagation).sin()

    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, Bent(COLUMNS, CLASSES), epochs=3, polish_steps=1)
    assert not trained.strongly_convex
    assert trainable(trained.module)
    with pytest.raises(gf.InputError, match="not strongly convex by construction"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="newton")


@pytest.mark.slow
def test_a_hundred_requests_in_a_row_stay_certified_and_do_not_drift() -> None:
    graph = gf.load("patients")
    trained = gf.train(graph, "sgc", releases=100)
    first, unmoved = trained, 0
    for number in range(100):
        rows = graph.train_rows.tolist()
        kind = number % 4
        name = present(graph.subject_ids)[rows[(7 * number) % len(rows)]]
        if kind == 0:
            request = gf.Request(nodes=[name])
        elif kind == 1:
            edge = graph.edge_index[:, (11 * number) % graph.edge_index.shape[1]].tolist()
            request = gf.Request(edges=[tuple(present(graph.subject_ids)[row] for row in edge)])
        elif kind == 2:
            request = gf.Request(attributes={name: "all"})
        else:
            request = gf.Request(attributes={name: [number % 30]})
        outcome = gf.unlearn(trained, graph, request)
        assert (outcome.method, outcome.level) == ("newton", "certified")
        assert outcome.certificate.releases_left == 99 - number
        unmoved += torch.equal(outcome.trained.theta, trained.theta)
        trained, graph = outcome.trained, outcome.graph
    away = float((outcome.centre - optimum(first, graph)).norm())
    assert away <= outcome.measured["distance"] <= outcome.certificate.tolerance
    assert len(trained.history) == 100 - unmoved >= 95
    assert len(trained.releases) == 100


def test_training_leaves_vectors_that_save_products_and_stay_in_memory() -> None:
    """Requests end within the same tolerance with them, and neither a pickle nor what is released has them."""
    graph = gf.synthetic(nodes=600, edges=3000, columns=40, classes=4, seed=0)
    trained = gf.train(graph, "sgc", seed=0)
    assert trained.preconditioner is not None
    assert trained.preconditioner.size == trained.theta.numel()
    without = dataclasses.replace(trained, preconditioner=None)
    request = gf.Request(nodes=graph.numbers[graph.train_rows][:3].tolist())
    faster, slower = (gf.unlearn(one, graph, request) for one in (trained, without))
    assert faster.level == slower.level == "certified"
    assert faster.details["products"] < slower.details["products"]
    best = optimum(trained, faster.graph)
    for outcome in (faster, slower):
        assert float((outcome.trained.theta - best).norm()) <= 2 * tolerance(
            sigma=trained.recipe.sigma, epsilon=1.0, delta=1e-5, releases=64
        )
    assert faster.trained.preconditioner is trained.preconditioner
    assert pickle.loads(pickle.dumps(trained)).preconditioner is None
    assert faster.released is not None
    assert faster.released.preconditioner is None


def test_training_spends_no_products_on_vectors_where_solves_are_easy() -> None:
    """With many classes and few columns, the preconditioner of low rank leaves next to nothing to learn."""
    graph = gf.synthetic(nodes=4000, edges=28_000, columns=64, classes=30, signal=1.2, seed=0)
    trained = gf.train(graph, "sgc", seed=0)
    assert trained.converged
    assert isinstance(trained.preconditioner, LowRankPreconditioner)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=graph.numbers[graph.train_rows][:3].tolist()))
    assert outcome.level == "certified"
    assert outcome.details["products"] <= 5


@pytest.mark.parametrize("kind", ["of another size", "of another graph", "of nothing"])
def test_stale_vectors_change_no_guarantee_and_are_dropped_if_they_are_of_no_use(kind: str) -> None:
    graph = gf.synthetic(nodes=600, edges=3000, columns=40, classes=6, seed=0)
    trained = gf.train(graph, "sgc", seed=0)
    assert isinstance(trained.preconditioner, RitzPreconditioner)
    other = gf.synthetic(nodes=400, edges=900, columns=30 if kind == "of another size" else 40, classes=6, seed=1)
    stale = gf.train(other, "sgc", seed=0).preconditioner
    if kind == "of nothing":
        noise = torch.randn(trained.theta.numel(), 20, generator=torch.Generator().manual_seed(0))
        stale = RitzPreconditioner(torch.linalg.qr(noise).Q.T.contiguous(), trained.preconditioner.shrinkage)
    assert stale is not None
    request = gf.Request(nodes=graph.numbers[graph.train_rows][:5].tolist())
    outcome = gf.unlearn(dataclasses.replace(trained, preconditioner=stale), graph, request)
    assert outcome.level == "certified"
    assert not outcome.details["retrained"]
    away = float((outcome.centre - optimum(trained, outcome.graph)).norm())
    assert away <= outcome.measured["distance"]
    if kind != "of another graph":
        assert outcome.trained.preconditioner is not stale
