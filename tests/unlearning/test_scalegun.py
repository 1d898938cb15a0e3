"""ScaleGUN: its push against dense propagation, and both counts of the error against the gradient itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphforget as gf
from cases import present, random_graph, weighted
from graphforget.certificates.claims.objective_noise import ObjectiveNoise, gradient_residual_bound
from graphforget.linalg.forward_push import PushState, push_anew
from graphforget.linalg.sparse import DenseMatrix
from graphforget.models.fixed import FixedPropagation
from graphforget.models.lazy_propagation import features_after, pushed_features
from graphforget.training.objective import Objective
from graphforget.unlearning.methods.scalegun import gradient_error, published_error

pytestmark = pytest.mark.usefixtures("repeatable_objective_noise")
TRAINING: dict[str, Any] = {"mu": 0.1, "objective_noise": 1.0}


def module_of(trained: gf.Trained) -> FixedPropagation:
    assert isinstance(trained.module, FixedPropagation)
    return trained.module


def exact_features(graph: gf.Graph, *, hops: int = 2) -> np.ndarray:
    """`S^K X` with dense matrices."""
    n, (source, target) = graph.num_nodes, graph.edge_index.numpy()
    adjacency = np.eye(n)
    adjacency[target, source] = 1
    scale = 1 / np.sqrt(adjacency.sum(axis=1))
    x = graph.x.to_dense().double().numpy()
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    z = np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
    for _ in range(hops):
        z = scale[:, None] * (adjacency @ (scale[:, None] * z))
    return np.asarray(z)


def broken_invariant(state: PushState, x: np.ndarray) -> float:
    """The largest difference between what a layer holds and what the layer before it gives."""
    dense, degrees = state.adjacency.toarray(), state.degrees[:, None]
    worst = float(np.abs(state.reserves[0] + state.residues[0] - np.sqrt(degrees) * x).max())
    for layer in range(1, len(state.reserves)):
        held = state.reserves[layer] + (state.residues[layer] if layer < len(state.residues) else 0)
        worst = max(worst, float(np.abs(held - dense @ (state.reserves[layer - 1] / degrees)).max()))
    return worst


def some_removal(graph: gf.Graph, rng: np.random.Generator) -> gf.Request:
    """Nodes, edges and attributes of a graph, drawn at random."""
    numbers = rng.permutation(graph.numbers.numpy())
    source, target = graph.edge_index
    pairs = graph.numbers[graph.edge_index[:, source <= target].T].tolist()
    edges = [tuple(pairs[i]) for i in rng.permutation(len(pairs))[: rng.integers(1, 4)]]
    kind = rng.integers(4)
    nodes = [int(one) for one in numbers[: rng.integers(1, 3)]]
    edges = [edge for edge in edges if not set(edge) & set(nodes)]
    attributes: dict[int | str, Any] = {int(numbers[3]): "all", int(numbers[4]): [0, 2]}
    if kind == 0:
        return gf.Request(nodes=nodes)
    if kind == 1 and edges:
        return gf.Request(edges=edges)
    return (
        gf.Request(attributes=attributes) if kind == 2 else gf.Request(nodes=nodes, edges=edges, attributes=attributes)
    )


@pytest.mark.parametrize("rmax", [1e-12, 1e-2, 0.3])
@pytest.mark.parametrize("seed", range(8))
def test_the_push_keeps_its_invariant_and_its_error_is_within_the_residues(seed: int, rmax: float) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(seed, nodes=30, edges=60)
    module = FixedPropagation(4, 3, powers=(2,), bias=False)
    held_back = False
    for _ in range(5):
        request = some_removal(graph, rng)
        before = pushed_features(module, graph, rmax=rmax)
        unchanged = [each.copy() for each in (*before.reserves, *before.residues)]
        retained = graph.without(request)
        state = features_after(module, graph, retained, request, rmax=rmax)
        x = exact_features(retained, hops=0)
        assert broken_invariant(state, x) < 1e-12
        assert all(np.abs(each).max(initial=0) <= state.threshold for each in state.residues)
        error = np.abs(exact_features(retained) - state.features).sum(axis=0)
        assert (error <= state.absolute_residues + 1e-12).all()
        held_back |= bool(error.max() > 1e-6)
        now = (*before.reserves, *before.residues)
        assert all(np.array_equal(a, b) for a, b in zip(unchanged, now, strict=True))
        graph = retained
    assert held_back == (rmax > 1e-6)  # else nothing was lazy, and the bound was not tested


@pytest.mark.parametrize("seed", range(6))
def test_the_error_of_the_gradient_is_within_the_corrected_bound(seed: int) -> None:
    graph = random_graph(seed, nodes=30, edges=60)
    trained = gf.train(graph, "scalegun", **TRAINING)
    module, generator = module_of(trained), torch.Generator().manual_seed(seed)
    largest = 0.0
    for rmax in (1e-3, 0.05, 0.5):
        state = pushed_features(module, graph, rmax=rmax)
        lazy = torch.from_numpy(state.features)
        inputs = DenseMatrix(lazy), lazy.norm(dim=1)
        approximate = Objective(module, graph, mu=0.1, loss=trained.loss, inputs=inputs)
        exact = Objective(module, graph, mu=0.1, loss=trained.loss)
        for scale in (0.1, 1.0, 20.0):
            theta = scale * torch.randn(trained.theta.numel(), dtype=torch.float64, generator=generator)
            error = exact.m * float((exact.gradient(theta) - approximate.gradient(theta)).norm())
            assert error <= gradient_error(module, state, theta) + 1e-12
            largest = max(largest, error)
    assert largest > 0.01  # something was held back


def test_the_bound_counts_what_a_small_error_does_to_a_slope() -> None:
    """The second column is held back, and a large weight turns it into another slope for the first one."""
    x = torch.tensor([[1.0, 0.01], [1.0, 0.01]], dtype=torch.float64)
    edges, y = torch.zeros(2, 0, dtype=torch.int64), torch.tensor([0, 1])
    graph = gf.Graph.create(x=x, edges=edges, y=y, sparse=False)
    trained = gf.train(graph, "scalegun", hops=1, scale_rows=False, **TRAINING)
    state = push_anew(sp.eye(2, format="csr"), x.numpy(), layers=1, threshold=0.1)
    lazy = torch.from_numpy(state.features)
    inputs = DenseMatrix(lazy), lazy.norm(dim=1)
    approximate = Objective(trained.module, graph, mu=0.1, loss=trained.loss, inputs=inputs)
    exact = Objective(trained.module, graph, mu=0.1, loss=trained.loss)
    theta = torch.tensor([[0.0, 0.0], [1000.0, 1000.0]], dtype=torch.float64).flatten()
    error = 2 * float((exact.gradient(theta) - approximate.gradient(theta)).norm())
    assert error > 10 * np.linalg.norm(state.absolute_residues)  # far more than the slope times the error of a row
    assert error <= gradient_error(module_of(trained), state, theta)


def test_the_claims_bound_counts_the_errors_of_the_features_before_and_after() -> None:
    graph = random_graph(5, nodes=40, edges=80)
    given: dict[str, Any] = {"method": "scalegun", "epsilon": 1e6, "rmax": 0.02}
    trained = gf.train(graph, "scalegun", **TRAINING)
    module, request = module_of(trained), gf.Request(labels=[4])
    outcome = gf.unlearn(trained, graph, request, **given)
    states = pushed_features(module, graph, rmax=0.02), pushed_features(module, outcome.graph, rmax=0.02)
    thetas = trained.theta, outcome.trained.theta
    errors = [gradient_error(module, state, theta) for state, theta in zip(states, thetas, strict=True)]
    assert not outcome.details["retrained"]
    assert errors[0] > 0.4 * outcome.details["bound"]
    assert outcome.details["bound"] >= sum(errors)


def test_the_published_count_can_be_below_the_error_that_it_is_to_bound() -> None:
    """Residues of both signs cancel in a signed sum, and the error does not."""
    adjacency = sp.csr_matrix(np.array([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]))
    x = np.array([[0.5], [0.5], [-0.5], [-0.5]])
    state = push_anew(adjacency, x, layers=1, threshold=1.0)
    assert published_error(state, classes=3) == 0.0
    exact = np.array([[0.5], [0.5], [-0.5], [-0.5]])
    assert np.abs(exact - state.features).sum() == pytest.approx(2.0)
    assert state.absolute_residues[0] >= 2.0


@pytest.mark.parametrize("rmax", [1e-9, 1e-3])
def test_the_gradient_after_several_requests_is_within_the_claims_bound(rmax: float) -> None:
    graph = random_graph(5, nodes=40, edges=80)
    trained = gf.train(graph, "scalegun", **TRAINING)
    for node in (4, 9, 17):
        given: Any = {"method": "scalegun", "epsilon": 1e6, "rmax": rmax}
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[node]), **given)
        assert outcome.level == "conditional"
        assert not outcome.details["retrained"]
        trained, graph = outcome.trained, outcome.graph
        m = graph.train_rows.numel()
        left = m * float(trained.objective(graph).gradient(trained.theta).norm())
        assert left <= gradient_residual_bound(trained, m=m)
        assert gf.verify(outcome.certificate, trained, graph).checks


def test_lazier_features_take_more_of_the_budget() -> None:
    graph = random_graph(5, nodes=40, edges=80)
    trained = gf.train(graph, "scalegun", **TRAINING)
    given: Any = {"method": "scalegun", "epsilon": 1e6}
    bounds = [gf.unlearn(trained, graph, gf.Request(nodes=[4]), rmax=r, **given).details["bound"] for r in (1e-9, 1e-2)]
    assert bounds[1] > 2 * bounds[0]


def test_without_laziness_it_is_the_step_of_cgu() -> None:
    graph = random_graph(5, nodes=40, edges=80)
    trained = gf.train(graph, "scalegun", **TRAINING)
    steps = [
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method=method, epsilon=1e6).trained.theta
        for method in ("scalegun", "cgu")
    ]
    assert torch.allclose(steps[0], steps[1], atol=1e-7)
    assert not torch.allclose(steps[0], trained.theta, atol=1e-4)


def test_the_published_count_states_the_epsilon_that_its_budget_implies() -> None:
    graph = random_graph(5, nodes=40, edges=80)
    trained = gf.train(graph, "scalegun", **TRAINING)
    given: Any = {"method": "scalegun", "epsilon": 1.0}
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), certificate="published", **given)
    claim = outcome.certificate.claim
    assert isinstance(claim, ObjectiveNoise)
    assert present(claim.epsilon) > 1.0  # as many budgets as classes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"certificate": "mine"}, "the certificate is 'mine', it must be corrected or published"),
        ({"rmax": 0}, "rmax is 0, a positive number is needed"),
        ({"rmax": "x"}, "rmax is 'x', a positive number is needed"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    graph = random_graph(5, nodes=40, edges=80)
    trained = gf.train(graph, "scalegun", **TRAINING)
    with pytest.raises(gf.InputError, match=f"^{message}$"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="scalegun", **options)


def test_it_refuses_directed_graphs_and_other_models() -> None:
    graph = random_graph(5, nodes=40, edges=80, directed=True)
    trained = gf.train(graph, "scalegun", **TRAINING)
    with pytest.raises(gf.InputError, match="^method 'scalegun' does not work here: the graph is directed"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="scalegun")
    undirected = random_graph(5, nodes=40, edges=80)
    for model in ("sgc", "cgu"):
        with pytest.raises(gf.InputError, match="^method 'scalegun' does not work here: it needs"):
            gf.unlearn(gf.train(undirected, model), undirected, gf.Request(nodes=[4]), method="scalegun")


def test_it_refuses_a_model_without_hops() -> None:
    """There is no layer to push along, so a state of the push would hold nothing."""
    graph = random_graph(5, nodes=40, edges=80)
    trained = gf.train(graph, "scalegun", hops=0, **TRAINING)
    with pytest.raises(gf.InputError, match="^method 'scalegun' does not work here: the model has 0 hops"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="scalegun")
    assert gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="cgu", epsilon=1e6).level == "conditional"


def test_it_refuses_graphs_with_edge_weights() -> None:
    """Its push would leave the weights out, so that its bound would be that of another graph."""
    graph = weighted(random_graph(5, nodes=40, edges=80), 0)
    trained = gf.train(graph, "scalegun", **TRAINING)
    pair = tuple(graph.edge_index[:, 0].tolist())
    for request in (gf.Request(nodes=[4]), gf.Request(edge_weights=[pair])):
        with pytest.raises(gf.InputError, match="^method 'scalegun' does not work here: the graph has edge weights"):
            gf.unlearn(trained, graph, request, method="scalegun")
        assert gf.unlearn(trained, graph, request, method="cgu", epsilon=1e6).level == "conditional"
