"""Values, gradients and curvature products against dense oracles in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import graphforget as gf
from cases import MODELS, make, random_graph, reach_of, weighted
from graphforget.linalg.newton import newton_cg
from graphforget.linalg.sparse import SparseMatrix
from graphforget.models.gcn import GCN
from graphforget.models.inputs import model_inputs
from graphforget.models.parameters import call_with, flatten
from graphforget.models.propagation import mean_adjacency
from graphforget.training.objective import Objective, minimise

MU = 0.03
CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}


def squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    """A loss of one's own, neither closed-form nor known to be convex."""
    targets = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    return (logits.sigmoid() - targets).square().sum(dim=1)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {"cross-entropy": None, "own": squared_error}


def oracle(module: nn.Module, graph: gf.Graph, loss: Callable | None) -> Callable[[Tensor], Tensor]:
    """`F` by its definition, on dense attributes, one node at a time."""
    x = graph.x.to_dense()

    def value(theta: Tensor) -> Tensor:
        logits = call_with(module, theta, x, graph.edge_index)
        losses = [
            functional.cross_entropy(logits[i], graph.y[i])
            if loss is None
            else loss(logits[i : i + 1], graph.y[i : i + 1])[0]
            for i in graph.train_rows.tolist()
        ]
        return sum(losses) / len(losses) + MU / 2 * theta @ theta

    return value


@pytest.fixture(params=MODELS)
def module(request: pytest.FixtureRequest) -> nn.Module:
    return make(request.param)


@pytest.fixture(params=[(False, True), (True, False)], ids=["undirected-sparse", "directed-dense"])
def graph(request: pytest.FixtureRequest) -> gf.Graph:
    directed, sparse = request.param
    return random_graph(1, directed=directed, sparse=sparse)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_value_gradient_and_hessian_are_the_dense_ones(module: nn.Module, graph: gf.Graph, loss: str) -> None:
    objective = Objective(module, graph, mu=MU, loss=LOSSES[loss])
    value = oracle(module, graph, LOSSES[loss])
    torch.manual_seed(5)
    theta = torch.randn(objective.size, dtype=torch.float64)
    assert objective.value(theta) == pytest.approx(float(value(theta)), rel=1e-12)
    leaf = theta.clone().requires_grad_()
    gradient = torch.autograd.grad(value(leaf), leaf)[0]
    torch.testing.assert_close(objective.gradient(theta), gradient, **CLOSE)
    hessian = torch.autograd.functional.hessian(value, theta)
    product = objective.hessian(theta)
    for _ in range(3):
        v = torch.randn_like(theta)
        torch.testing.assert_close(product(v), hessian @ v, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_gauss_newton_is_the_dense_one(module: nn.Module, graph: gf.Graph, loss: str) -> None:
    objective = Objective(module, graph, mu=MU, loss=LOSSES[loss])
    torch.manual_seed(6)
    theta = torch.randn(objective.size, dtype=torch.float64)
    rows, x = graph.train_rows, graph.x.to_dense()

    def logits(t: Tensor) -> Tensor:
        return call_with(module, t, x, graph.edge_index)[rows].reshape(-1)

    def summed(z: Tensor) -> Tensor:
        z = z.reshape(len(rows), -1)
        own = LOSSES[loss]
        return (own(z, graph.y[rows]) if own else functional.cross_entropy(z, graph.y[rows], reduction="none")).sum()

    jacobian = torch.autograd.functional.jacobian(logits, theta)
    curvature = torch.autograd.functional.hessian(summed, logits(theta))
    dense = jacobian.T @ curvature @ jacobian / len(rows) + MU * torch.eye(len(theta), dtype=torch.float64)
    product = objective.gauss_newton(theta)
    for _ in range(3):
        v = torch.randn_like(theta)
        torch.testing.assert_close(product(v), dense @ v, **CLOSE)
    if loss == "cross-entropy":
        assert float(torch.linalg.eigvalsh(dense)[0]) >= MU * (1 - 1e-9)


@pytest.mark.slow
def test_on_some_nodes_only_the_neighbourhood_is_needed(module: nn.Module, graph: gf.Graph) -> None:
    """The sum over some nodes, evaluated on their neighbourhood, against differences on the whole graph."""
    reach = reach_of(module.case)
    objective = Objective(module, graph, mu=MU)
    rows = graph.train_rows[torch.tensor([0, 3, 4])]
    part = objective.on(rows, reach=reach)
    torch.manual_seed(7)
    theta, v = torch.randn(2, objective.size, dtype=torch.float64)
    inputs = model_inputs(module, graph, dtype=torch.float64)

    def summed(t: Tensor) -> Tensor:
        return functional.cross_entropy(call_with(module, t, *inputs)[rows], graph.y[rows], reduction="sum")

    leaf = theta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(summed(leaf), leaf, create_graph=not part.affine)
    assert part.value(theta) == pytest.approx(float(summed(theta).detach()), rel=1e-11)
    torch.testing.assert_close(part.gradient(theta), gradient.detach(), **CLOSE)
    if not part.affine:
        (image,) = torch.autograd.grad(gradient, leaf, v)
        torch.testing.assert_close(part.hessian(theta)(v), image, **CLOSE)


def test_the_neighbourhood_of_few_nodes_is_smaller_than_the_graph() -> None:
    edges = torch.stack([torch.arange(49), torch.arange(1, 50)])
    path = gf.Graph.create(x=torch.ones(50, 4), edges=edges, y=torch.arange(50) % 3)
    part = Objective(make("sgc"), path, mu=MU).on(torch.tensor([0]), reach=gf.Reach(2))
    assert part.inputs[0].propagated.overlay.num_slots == 4  # node 0 and three hops


@pytest.mark.slow
def test_parts_add_up_to_the_whole(module: nn.Module, graph: gf.Graph) -> None:
    reach = reach_of(module.case)
    objective = Objective(module, graph, mu=MU)
    torch.manual_seed(8)
    theta, v = torch.randn(2, objective.size, dtype=torch.float64)
    halves = [objective.on(half, reach=reach) for half in graph.train_rows.chunk(2)]
    torch.testing.assert_close(sum(h.gradient(theta) for h in halves), objective.data.gradient(theta), **CLOSE)
    for kind in ("hessian", "gauss_newton"):
        total = sum(getattr(h, kind)(theta)(v) for h in halves)
        torch.testing.assert_close(total, getattr(objective.data, kind)(theta)(v), **CLOSE)


def test_dropout_is_off_and_the_module_is_left_alone() -> None:
    graph = random_graph(2)
    module = make("gcn").train()
    before = flatten(module)
    objective = Objective(module, graph, mu=MU)
    theta = torch.ones(objective.size, dtype=torch.float64)
    assert torch.equal(objective.gradient(theta), objective.gradient(theta))
    assert module.training
    assert torch.equal(before, flatten(module))


@pytest.mark.parametrize("mu", [0.0, -1.0, float("nan")])
def test_mu_must_be_positive(mu: float) -> None:
    with pytest.raises(gf.InputError, match="must be positive"):
        Objective(make("sgc"), random_graph(0), mu=mu)


@pytest.mark.parametrize("directed", [False, True])
def test_the_way_back_is_the_transpose_of_the_way_there(module: nn.Module, directed: bool) -> None:
    _, propagation = model_inputs(module, random_graph(2, directed=directed, sparse=True), dtype=torch.float64)
    if not isinstance(propagation, SparseMatrix):
        pytest.skip("this model keeps its edges in another form")
    assert torch.equal(propagation.T.csr.to_dense(), propagation.csr.to_dense().T)


def test_a_subclass_that_weighs_messages_otherwise_gets_its_own_gradient() -> None:
    class OneWay(GCN):
        def propagation(  # type: ignore[override]
            self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype
        ) -> SparseMatrix:
            return mean_adjacency(edge_index, num_nodes, dtype=dtype)

    graph = random_graph(3, sparse=True)
    with pytest.raises(gf.InputError, match="propagation has no parameter 'edge_weight'"):
        model_inputs(OneWay(graph.num_columns, graph.num_classes), weighted(graph, 0), dtype=torch.float64)
    torch.manual_seed(0)
    module = OneWay(graph.num_columns, graph.num_classes, dropout=0.0).double()
    theta = flatten(module)
    expected = torch.autograd.functional.jacobian(oracle(module, graph, None), theta)
    torch.testing.assert_close(Objective(module, graph, mu=MU).gradient(theta), expected, **CLOSE)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("model", ["sgc", "sign", "stacked-gcn", "linearised-gcn", "link-sign"])
def test_outputs_share_their_features_where_the_jacobian_says_so(model: str, sparse: bool) -> None:
    """`J v` is `Z W` with one `Z` for all outputs, and the preconditioner relies on it."""
    graph = random_graph(3, sparse=sparse)
    graph = dataclasses.replace(graph, y=graph.y % 2, num_classes=2) if model == "link-sign" else graph
    options: dict[str, Any] = {"hidden": 4} if "gcn" in model else {}
    trained = gf.train(graph, model, **options)
    jacobian = trained.objective(graph).data.jacobian(trained.theta)
    dense = torch.stack([jacobian.apply(row) for row in torch.eye(trained.theta.numel(), dtype=torch.float64)], dim=2)
    outputs = dense.shape[1]
    if model == "linearised-gcn":
        assert not jacobian.has_shared_features
        return
    by_output = dense.view(*dense.shape[:2], -1, outputs)  # row, output, feature, column of the weights
    assert jacobian.has_shared_features
    assert all(
        torch.allclose(by_output[:, c, :, d], by_output[:, 0, :, 0] * (c == d))
        for c in range(outputs)
        for d in range(outputs)
    )


def test_many_classes_are_minimised_with_fewer_products() -> None:
    """With five outputs or more there is a preconditioner, and the optimum is the same."""
    graph = gf.synthetic(nodes=600, edges=3000, columns=40, classes=6, seed=0)
    objective = gf.train(graph, "sgc").objective(graph)
    start = torch.zeros(objective.size, dtype=torch.float64)
    function = objective.for_newton()
    plain = newton_cg(function, start, gradient_tolerance=1e-7)
    faster = minimise(objective, start, gradient_tolerance=1e-7)
    assert faster.products < 0.8 * plain.products
    assert float((faster.theta - plain.theta).norm()) <= 2e-7 / objective.mu
