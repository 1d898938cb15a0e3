"""Links: certificates hold against retraining, exact means equal, and one can ask for any pair."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import graphforget as gf
from cases import COLUMNS, claim_of, random_graph, requests
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.linalg.newton import newton_cg
from graphforget.linalg.sparse import BoundedMatrix
from graphforget.models.link import LinkFixed
from graphforget.models.pair_features import FLOOR
from graphforget.models.registry import build
from graphforget.privacy.gaussian import tolerance
from graphforget.training.losses import as_loss
from graphforget.training.rounding import rounding_allowance

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL: dict[str, Any] = {"test": 0.2, "validation": 0.1, "messages": 0.6}


def optimum(trained: gf.Trained, graph: gf.Graph) -> Tensor:
    found = newton_cg(trained.objective(graph), torch.zeros_like(trained.theta), gradient_tolerance=1e-12)
    assert found.gradient_norm <= 1e-10
    return found.theta


def check_bound(data: st.DataObject) -> None:
    """Random graphs, models, splits, mixtures, mu and sigma: the optimum of full retraining is in the ball."""
    graph = random_graph(
        data.draw(st.integers(0, 10**6)),
        nodes=data.draw(st.integers(8, 30)),
        edges=data.draw(st.integers(4, 90)),
        sparse=data.draw(st.booleans()),
    )
    request = data.draw(requests(graph))
    mu, sigma = data.draw(st.sampled_from([1e-4, 1e-2, 1.0])), data.draw(st.sampled_from([1e-3, 0.05, 1.0]))
    options: dict[str, Any] = SMALL | {
        "hops": data.draw(st.integers(0, 3)),
        "negatives": data.draw(st.integers(1, 4)),
        "split_seed": data.draw(st.integers(0, 99)),
        "learn_messages": data.draw(st.booleans()),
    }
    promise: dict[str, Any] = {"epsilon": data.draw(st.sampled_from([0.1, 1.0])), "delta": 1e-5, "releases": 4}
    name = data.draw(st.sampled_from(["sgc", "sign"]))
    left = data.draw(st.sampled_from([1e-5, 10.0]))
    try:
        trained = gf.train(graph, name, task="link", mu=mu, sigma=sigma, tolerance=left, **promise, **options)
        outcome = gf.unlearn(trained, graph, request, method="newton")
    except gf.InputError as error:
        assert "no training link" in str(error)
        assume(False)
    except gf.Refused as refusal:
        rounds = "below the rounding error" in str(refusal) and (mu, sigma) == (1e-4, 1e-3)  # the least of both
        assert rounds or "noise in float64" in str(refusal)
        return
    best = optimum(trained, outcome.graph)
    again = gf.train(outcome.graph, name, task="link", mu=mu, sigma=sigma, **promise, **trained.recipe.options)
    assert float((again.theta - best).norm()) <= again.residual + 1e-10 / mu
    away = float((outcome.centre - best).norm())
    assert (outcome.level, claim_of(outcome, ResidualBall).kind) == ("certified", "residual-ball/1")
    assert away <= outcome.measured["distance"] + 1e-10 / mu
    assert outcome.measured["distance"] <= outcome.certificate.tolerance == tolerance(sigma=sigma, **promise)
    given_: dict[str, Any] = {"released": outcome.released_theta, "annexes": [outcome.annex]}
    gf.verify(outcome.certificate, outcome.trained, outcome.graph, **given_)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_retrained_optimum_is_in_the_ball(data: st.DataObject) -> None:
    check_bound(data)


@pytest.mark.long
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_retrained_optimum_is_in_the_ball_in_many_cases(data: st.DataObject) -> None:
    check_bound(data)


def exact_gradient(module: LinkFixed, graph: gf.Graph, theta: Tensor, mu: float) -> np.ndarray:
    """`grad F` in 80-bit arithmetic, by dense matrices from the definitions of the features."""
    long, n = np.longdouble, graph.num_nodes
    x = graph.x.to_dense().numpy().astype(long)
    if module.scale_rows:
        sizes = np.sqrt((x * x).sum(axis=1, keepdims=True))
        x = x / np.where(sizes > 0, sizes, 1)
    a = np.zeros((n, n), dtype=long)
    for u, v in module.view.edges(graph, held_out=False).tolist():
        a[u, v] = a[v, u] = 1
    degree = a.sum(axis=1)
    s = (a + np.eye(n, dtype=long)) / np.sqrt(np.outer(degree + 1, degree + 1))
    some = np.maximum(degree, 1)
    tables = []
    for hop in range(max(module.powers) + 1):
        x = s @ x if hop else x
        length = np.sqrt((x * x).sum(axis=1)) + long(FLOOR)
        tables += [x @ x.T, x @ x.T / np.outer(length, length)] if hop in module.powers else []
    common, paths = a @ a, a / np.sqrt(some) @ a @ (a / np.sqrt(some)).T
    logs = np.log1p(degree)
    tables += [np.log1p(common), np.log1p(a / np.log(np.maximum(degree, 2)) @ a), np.sqrt(a / some @ a)]
    tables += [common / np.maximum(degree[:, None] + degree - common, 1), np.log1p(paths), np.sqrt(paths)]
    tables += [logs[:, None] + logs, np.outer(logs, logs), abs(logs[:, None] - logs)]
    tables += [(degree == 0)[:, None] + (degree == 0).astype(long), np.ones((n, n), dtype=long)]
    pairs, items = module.view.pairs(graph), module.view.items(graph)
    u, v = pairs.rows[items.train_rows].numpy().T
    phi = np.stack([table[u, v] for table in tables], axis=1)
    w = theta.numpy().astype(long)
    y = items.y[items.train_rows, 0].numpy()
    return phi.T @ (1 / (1 + np.exp(-phi @ w)) - y) / len(y) + long(mu) * w


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_allowance_covers_what_float64_does_to_the_gradient(data: st.DataObject) -> None:
    graph = random_graph(data.draw(st.integers(0, 10**6)), nodes=20, edges=50, sparse=data.draw(st.booleans()))
    trained = gf.train(graph, "sign", task="link", tolerance=1.0, hops=data.draw(st.integers(0, 3)), **SMALL)
    scale = 10.0 ** data.draw(st.integers(-3, 2))
    theta = scale * torch.randn(trained.theta.numel(), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    objective = trained.objective(graph)
    assert isinstance(trained.module, LinkFixed)
    computed, exact = objective.gradient(theta), exact_gradient(trained.module, graph, theta, trained.recipe.mu)
    error = float(np.sqrt(((computed.numpy().astype(np.longdouble) - exact) ** 2).sum()))
    allowance = rounding_allowance(objective, theta, gradient_norm=float(computed.norm()))
    assert error <= allowance <= 1e-8 * (1 + float(theta.norm()))


def lengths_without_cancellation(module: LinkFixed, graph: gf.Graph) -> np.ndarray:
    """`q_i` of each training pair, from attributes that are not scaled (docs/maths.md, section 15)."""
    n, x = graph.num_nodes, graph.x.to_dense().numpy()
    a = np.zeros((n, n))
    for u, v in module.view.edges(graph, held_out=False).tolist():
        a[u, v] = a[v, u] = 1
    degree = a.sum(axis=1)
    s = (a + np.eye(n)) / np.sqrt(np.outer(degree + 1, degree + 1))
    sizes = np.linalg.norm(x, axis=1)
    u, v = module.view.pairs(graph).rows[module.view.items(graph).train_rows].numpy().T
    features = module.features(graph, dtype=torch.float64)
    assert isinstance(features, BoundedMatrix)
    structural = features.values.numpy()[module.view.items(graph).train_rows.numpy(), 2 * len(module.powers) :]
    squares = (structural**2).sum(axis=1) + 1
    for hop in range(max(module.powers) + 1):
        x, sizes = (s @ x, s @ sizes) if hop else (x, sizes)
        if hop in module.powers:
            t = sizes / (np.linalg.norm(x, axis=1) + FLOOR)
            squares += (sizes[u] * sizes[v]) ** 2 + (t[u] * t[v] + t[u] + t[v]) ** 2
    return np.sqrt(squares)


@pytest.mark.parametrize("size", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("name", ["sgc", "sign"])
@pytest.mark.parametrize("seed", range(4))
def test_allowance_is_at_least_the_bound_of_the_proof_where_attributes_cancel(
    name: str, size: float, seed: int
) -> None:
    """Attributes of both signs that are not scaled; the bound is computed here from the formula of section 9."""
    rng = np.random.default_rng(seed)
    plain = random_graph(seed, nodes=24, edges=90, sparse=False)
    x = size * (1 - 2 * (np.arange(24) % 2))[:, None] + rng.normal(size=tuple(plain.x.shape))
    graph = dataclasses.replace(plain, x=torch.from_numpy(x))
    hops = 1 + seed % 3
    module = build(f"link-{name}", columns=COLUMNS, classes=1, hops=hops, scale_rows=False, **SMALL).double()
    assert isinstance(module, LinkFixed)
    mu, u = 1e-3, 2.0**-53
    objective = gf.Objective(module, graph, mu=mu, loss=as_loss("logistic"))
    theta = torch.from_numpy(rng.normal(size=module.weight.numel() + 1))
    theta[: 2 * len(module.powers) : 2] /= size**2  # so that the logits are of order 1
    computed = objective.gradient(theta)
    slope, norm = float(computed.norm()), float(theta.norm())
    error = float(np.linalg.norm((computed.numpy() - exact_gradient(module, graph, theta, mu)).astype(np.float64)))
    allowance = rounding_allowance(objective, theta, gradient_norm=slope)
    q = lengths_without_cancellation(module, graph)
    k = 2 * hops * graph.num_nodes + COLUMNS + len(theta) + len(q)  # both ends, their product, the logits, the sum
    g = k * u / (1 - k * u)
    bound = float((q * (g * (q * norm / 4 + 1) + (1 + 20) * u)).mean())
    bound = 2 * (bound + 5 * u * (mu * norm + slope) + (len(theta) + 2) * u * slope)
    assert 0 < error <= bound * (1 + 1e-9) <= allowance * (1 + 1e-6)
    assert allowance <= 40 * bound


def check_exact(seed: int, request: gf.Request, graph: gf.Graph) -> None:
    trained = gf.train(graph, "sign", task="link", seed=seed, sigma=0.0, **SMALL)
    outcome = gf.unlearn(trained, graph, request, method="retrain")
    recipe = trained.recipe
    fresh = gf.train(outcome.graph, "sign", task="link", seed=seed, sigma=0.0, **recipe.options)
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, fresh.theta)
    gf.verify(outcome.certificate, outcome.trained, outcome.graph, replay=True)


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_retraining_is_training_on_the_retained_graph(data: st.DataObject) -> None:
    graph = random_graph(data.draw(st.integers(0, 10**6)), nodes=25, edges=60)
    check_exact(data.draw(st.integers(0, 9)), data.draw(requests(graph)), graph)


def test_test_edge_leaves_the_weights_unchanged() -> None:
    graph = random_graph(3, nodes=40, edges=100)
    trained = gf.train(graph, "sign", task="link", **SMALL)
    items = trained.items(graph)
    u, v = items.keys[items.test_mask & (items.y[:, 0] == 1)][0].tolist()
    outcome = gf.unlearn(trained, graph, gf.Request(edges=[(u, v)]))
    assert torch.equal(outcome.trained.theta, trained.theta)
    assert outcome.touched.empty
    assert outcome.level == "certified"  # as every other request: what was needed is private


def test_deleted_edge_becomes_an_absent_link() -> None:
    """The retained graph says of a pair that is a candidate what any graph without this edge says."""
    graph = random_graph(11, nodes=12, edges=60)
    trained = gf.train(graph, "sign", task="link", negatives=10, **SMALL)
    items = trained.items(graph)
    for u, v in items.keys[items.train_mask & (items.y[:, 0] == 1)].tolist():
        outcome = gf.unlearn(trained, graph, gf.Request(edges=[(u, v)]))
        if outcome.touched.added.numel():
            break
    (row,) = outcome.touched.added.tolist()
    later = trained.items(outcome.graph)
    assert (later.keys[row].tolist(), later.y[row].item()) == ([u, v], 0)
    plan = gf.plan(trained, graph, gf.Request(edges=[(u, v)]))
    assert (plan.item, plan.training_nodes, plan.added) == ("link", 1, 1)


def test_scores_of_links_are_auc_and_average_precision() -> None:
    graph = random_graph(5, nodes=60, edges=200)
    trained = gf.train(graph, "sign", task="link", **SMALL)
    items = trained.items(graph)
    scores = trained.scores(graph)
    logits, on = trained.logits(graph)[items.test_mask, 0], items.y[items.test_mask, 0] == 1
    wins = (logits[on].unsqueeze(1) > logits[~on]).double() + 0.5 * (logits[on].unsqueeze(1) == logits[~on])
    assert scores["auc"] == pytest.approx(float(wins.mean()))
    assert trained.utility(graph) == scores["auc"]
    assert set(scores) == {"auc", "average_precision"}


def test_any_pair_has_a_logit() -> None:
    graph = random_graph(5, nodes=60, edges=200).without(gf.Request(nodes=[0, 7]))
    trained = gf.train(graph, "sign", task="link", **SMALL)
    items = trained.items(graph)
    pairs = items.keys[items.test_mask]
    torch.testing.assert_close(trained.link_logits(graph, pairs.tolist()), trained.logits(graph)[items.test_mask][:, 0])
    with pytest.raises(gf.InputError, match="7"):
        trained.link_logits(graph, [(3, 7)])
    with pytest.raises(gf.InputError, match="different"):
        trained.link_logits(graph, [(3, 3)])
    with pytest.raises(gf.InputError, match="links"):
        gf.train(graph, "sgc").link_logits(graph, [(3, 4)])


def test_directed_graphs_and_collections_are_refused() -> None:
    with pytest.raises(gf.InputError, match="undirected"):
        gf.train(random_graph(0, directed=True), "sign", task="link")
    with pytest.raises(gf.InputError, match="sgc, sign"):
        gf.train(random_graph(0), "gat", task="link")


@pytest.mark.parametrize("labelled", [False, True])
def test_the_label_of_a_deleted_node_decides_nothing(labelled: bool) -> None:
    """The retained nodes have no label and no role. The node that goes may have been the last one with a label."""
    plain = random_graph(3, nodes=30, edges=90)
    none = torch.zeros_like(plain.train_mask)
    goes = torch.arange(30) == 7
    y, train = torch.where(goes & labelled, 0, -1), goes & labelled
    graph = dataclasses.replace(plain, y=y, train_mask=train, val_mask=none, test_mask=none)
    trained = gf.train(graph, "sign", task="link", **SMALL)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[7]))
    assert outcome.level == "certified"
    for ask in (gf.plan, gf.unlearn):
        with pytest.raises(gf.InputError, match="^the request leaves no training link$"):
            ask(trained, graph, gf.Request(nodes=range(29)))
