"""Stacked models: their parts, their features against a dense oracle, and what a user's module may be."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv

import graphforget as gf
from cases import CLASSES, COLUMNS, OwnGCN, graphs, random_graph, requests
from graphforget.models.composite import inner_inputs
from graphforget.models.encoders import Encoders, embedding
from graphforget.models.inputs import model_inputs
from graphforget.models.stacked import Stacked
from graphforget.training.objective import MixedPrecision
from graphforget.training.training_input import training_input

SMALL: dict[str, Any] = {"hidden": 3, "epochs": 3, "parts": 3}


def train(graph: gf.Graph, name: str = "stacked-gcn", **more: Any) -> gf.Trained:
    return gf.train(graph, name, **SMALL | more)


class WithEmbedding(OwnGCN):
    """A user's module that says what its embedding is."""

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.first(x, edge_index).tanh()


class WithBatchNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = SAGEConv(COLUMNS, 5), nn.BatchNorm1d(5), SAGEConv(5, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)


def sized(columns: int, classes: int) -> nn.Module:
    module = OwnGCN()
    module.first, module.second = GCNConv(columns, 4), GCNConv(4, classes)
    return module


def dense_features(trained: gf.Trained, graph: gf.Graph) -> np.ndarray:
    """`[X, S X, ..., E_1, ..., 1]` by their definition."""
    module = trained.module
    assert isinstance(module, Stacked)
    x = graph.x.to_dense().double().numpy()
    norms = np.sqrt((x * x).sum(axis=1))
    rows = x / np.where(norms > 0, norms, 1)[:, None]
    a = np.eye(graph.num_nodes)
    for u, v in graph.edge_index.T.tolist():
        a[v, u] = 1
    degree = a.sum(axis=1)
    s = a / np.sqrt(np.outer(degree, degree))
    powers = [np.linalg.matrix_power(s, hop) @ rows for hop in module.fixed.powers]
    powers[0] = module.attribute_scale * powers[0]
    blocks = []
    assert module.encoders is not None
    for encoder, scale in zip(module.encoders.modules, module.encoders.scales, strict=True):
        hidden = embedding(encoder, *inner_inputs(encoder, graph.x.double(), graph.edge_index)).numpy()
        blocks.append(module.embedding_norm * s @ hidden / scale if scale else 0 * hidden)
    return np.concatenate([*blocks, *powers, np.ones((graph.num_nodes, 1))], axis=1)


def dense_weights(trained: gf.Trained) -> np.ndarray:
    module = trained.stacked
    bias = module.fixed.bias
    assert bias is not None
    parts = (module.weight, module.fixed.weight.flatten(0, 1), bias.unsqueeze(0))
    return torch.cat([part.detach() for part in parts]).numpy()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_logits_and_gradients_are_those_of_the_dense_features(sparse: bool, directed: bool) -> None:
    graph = random_graph(4, nodes=24, edges=40, sparse=sparse, directed=directed)
    trained = train(graph)
    generator = torch.Generator().manual_seed(0)
    drawn = trained.with_weights(torch.randn(trained.theta.numel(), generator=generator, dtype=torch.float64))
    z, w = dense_features(drawn, graph), dense_weights(drawn)
    np.testing.assert_allclose(drawn.logits(graph).numpy(), z @ w, rtol=0, atol=1e-12)
    objective = drawn.objective(graph)
    rows = graph.train_rows.numpy()
    p = np.exp(z[rows] @ w)
    p /= p.sum(axis=1, keepdims=True)
    r = p - np.eye(CLASSES)[graph.y.numpy()[rows]]
    expected = z[rows].T @ r / rows.size + drawn.recipe.mu * w
    value, gradient = objective.value_and_gradient(drawn.theta)
    ours = dense_weights(drawn.with_weights(gradient))
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-13)
    v = torch.randn(trained.theta.numel(), generator=generator, dtype=torch.float64)
    u = dense_weights(drawn.with_weights(v))
    moved = z[rows] @ u
    bent = p * moved - p * (p * moved).sum(axis=1, keepdims=True)
    product = dense_weights(drawn.with_weights(objective.hessian(drawn.theta)(v)))
    np.testing.assert_allclose(product, z[rows].T @ bent / rows.size + drawn.recipe.mu * u, rtol=0, atol=1e-13)
    single = objective.for_newton().hessian(drawn.theta)(v)
    np.testing.assert_allclose(dense_weights(drawn.with_weights(single)), product, rtol=0, atol=1e-5)
    assert not np.array_equal(dense_weights(drawn.with_weights(single)), product)  # it is another precision
    loss = -np.log(p[np.arange(rows.size), graph.y.numpy()[rows]]).mean()
    assert value == pytest.approx(loss + drawn.recipe.mu / 2 * (w**2).sum(), rel=1e-12)


def test_the_norms_of_the_rows_are_bounds() -> None:
    graph = random_graph(4, nodes=24, edges=40)
    trained = train(graph)
    module, rows = trained.stacked, graph.train_rows
    inputs = model_inputs(module, graph, dtype=torch.float64)
    total, squares = module.row_norm_sums(inputs, rows, module.logits_jacobian(inputs, rows, nodes=graph.num_nodes))
    norms = np.linalg.norm(np.abs(dense_features(trained, graph))[rows.numpy()], axis=1)
    assert total >= norms.sum() * (1 - 1e-12)
    assert squares >= (norms**2).sum() * (1 - 1e-12)
    assert total <= 2 * norms.sum()
    assert module.longest_sum(graph.num_nodes) > graph.num_nodes + dense_features(trained, graph).shape[1]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_node_decides_the_part_of_another(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    module = gf.MODELS["stacked-gcn"].build(COLUMNS, CLASSES, parts=3)
    assert isinstance(module, Stacked)
    after = graph.without(request)
    stays = torch.isin(graph.numbers, after.numbers)
    assert torch.equal(module.part_of(graph, seed=5)[stays], module.part_of(after, seed=5))


def test_parts_are_drawn_evenly_and_by_the_seed() -> None:
    graph = random_graph(0, nodes=3000, edges=10)
    module = gf.MODELS["stacked-gcn"].build(COLUMNS, CLASSES, parts=4)
    assert isinstance(module, Stacked)
    part_of = module.part_of(graph, seed=0)
    assert ((torch.bincount(part_of) - 750).abs() < 120).all()  # five standard deviations
    assert not torch.equal(part_of, module.part_of(graph, seed=1))


def test_given_parts_hold_the_given_nodes() -> None:
    graph = random_graph(4, nodes=24, edges=40)
    trained = train(graph, parts={"public": [1, 3, 5], "consented": range(10, 20)})
    assert trained.recipe.options["parts"] == ["public", "consented"]
    part_of = trained.stacked.part_of(graph, seed=0)
    assert part_of.tolist() == [0 if i in (1, 3, 5) else 1 if 10 <= i < 20 else -1 for i in range(24)]
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[12]))
    assert outcome.details["renewed"] == 1
    assert 12 not in outcome.trained.stacked.member_numbers.tolist()
    assert outcome.released.stacked.member_numbers.numel() == 0  # who is in which part is not released
    assert gf.unlearn(trained, graph, gf.Request(nodes=[8])).details["renewed"] == 0
    assert "consented" in str(outcome.certificate.model["options"])
    assert any("parts" in gap for gap in outcome.certificate.not_covered)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"a": [1], "b": [1]}, "node 1 is in two parts, a node can be in one"),
        ({"a": [99]}, "node 99 is not in the graph"),
        ({}, "one to 1000 different names are needed"),
        (0, "the number of parts is 0, a whole number from 1 to 1000 is needed"),
        (2.5, "the number of parts is 2.5, a whole number from 0 is needed"),
    ],
)
def test_bad_parts_are_refused(parts: Any, message: str) -> None:
    graph = random_graph(4, nodes=24, edges=40)
    with pytest.raises(gf.InputError, match=message):
        gf.train(graph, "stacked-gcn", parts=parts)
    with pytest.raises(gf.InputError, match=message):
        gf.train(graph, gf.stacked(OwnGCN, parts=parts))


def test_a_part_without_a_training_node_has_columns_of_zeros() -> None:
    graph = random_graph(4, nodes=24, edges=40)
    alone = int(graph.test_mask.nonzero()[0])
    trained = train(graph, parts={"few": [alone], "rest": [n for n in range(24) if n != alone]})
    assert trained.stacked.encoders is not None
    assert [scale == 0 for scale in trained.stacked.encoders.scales] == [True, False]
    inputs = model_inputs(trained.stacked, graph, dtype=torch.float64)[1]
    assert not inputs.embeddings[:, :3].any()
    assert inputs.embeddings[:, 3:].any()


def test_the_scale_is_the_mean_row_norm_at_the_training_nodes_of_the_part() -> None:
    graph = random_graph(4, nodes=24, edges=40)
    trained = train(graph)
    module = trained.stacked
    assert module.encoders is not None
    part_of = module.part_of(graph, seed=0)
    for number in range(3):
        part = training_input(graph.induced(part_of == number), gf.Reach(2))
        alone = copy.deepcopy(trained)
        alone.stacked.encoders = Encoders((module.encoders.modules[number],) * 3, (module.encoders.scales[number],) * 3)
        block = dense_features(alone, part)[part.train_rows.numpy(), :3]
        assert np.linalg.norm(block, axis=1).mean() == pytest.approx(module.embedding_norm, rel=1e-9)


# -- modules of a user -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [OwnGCN, WithEmbedding, WithBatchNorm, sized], ids=lambda make: make.__name__)
def test_a_users_module_is_certified(make: Any) -> None:
    graph = random_graph(4, nodes=40, edges=80)
    trained = gf.train(graph, gf.stacked(make, parts=2, epochs=3))
    assert trained.certifiable
    assert trained.stacked.width == (5 if make is WithEmbedding else CLASSES)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4], attributes={6: "all"}))
    assert outcome.level == "certified"
    checks: Any = {"released": outcome.released, "annexes": [outcome.annex], "replay": True}
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, **checks).checks


def captured(module: nn.Module) -> nn.Module:
    module.kept = torch.zeros(40, 3)
    return module


class DrawsInEvaluation(OwnGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + torch.rand(1)


class DrawsInTraining(OwnGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) * (1 + torch.rand(1) * self.training)


class RandomEmbedding(OwnGCN):
    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return nn.functional.dropout(self.first(x, edge_index))


class CachingEmbedding(OwnGCN):
    """Gives its last result again for a graph of the same size."""

    last: Tensor | None = None

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.last is None or self.last.shape[0] != x.shape[0]:
            self.last = self.first(x, edge_index)
        return self.last


def test_an_embedding_cannot_remember_another_graph() -> None:
    graph = random_graph(4, nodes=40, edges=80)
    trained = gf.train(graph, gf.stacked(CachingEmbedding, parts=2, epochs=3))
    request = gf.Request(attributes={4: "all", 6: "all"})
    if trained.certifiable:
        outcome = gf.unlearn(trained, graph, request)
        anew = gf.train(outcome.graph, gf.stacked(CachingEmbedding, parts=2, epochs=3), tolerance=1e-7)
        assert outcome.certificate.tolerance is not None
        assert float((outcome.centre - anew.theta).norm()) <= outcome.certificate.tolerance + 1e-7
    else:
        assert gf.unlearn(trained, graph, request).level == "empirical"


@pytest.mark.parametrize(
    ("make", "blocker"),
    [
        (lambda: captured(OwnGCN()), "holds a tensor"),
        (DrawsInEvaluation, "the same input gives different outputs in eval mode"),
        (RandomEmbedding, "the same input gives different outputs in eval mode"),
        (DrawsInTraining, "draws random numbers that are not keyed by node number"),
    ],
)
def test_what_rules_out_a_certificate_is_found(make: Any, blocker: str) -> None:
    graph = random_graph(4, nodes=40, edges=80)
    trained = gf.train(graph, gf.stacked(make, parts=2, epochs=3))
    assert not trained.certifiable
    assert any(blocker in one for one in trained.certification_blockers)
    assert gf.unlearn(trained, graph, gf.Request(nodes=[4])).level == "empirical"
    with pytest.raises(gf.Refused):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), level="certified")


DATA = torch.zeros(50, 3)
TRAINED = OwnGCN()


def with_data() -> nn.Module:
    module = OwnGCN()
    with torch.no_grad():
        module.first.bias.add_(DATA.sum())
    return module


def with_statistics() -> nn.Module:
    module = WithBatchNorm()
    module.norm.running_mean.fill_(0.3)  # type: ignore[union-attr]
    return module


def by_the_clock() -> nn.Module:
    module = OwnGCN()
    generator = torch.Generator()
    generator.seed()
    with torch.no_grad():
        module.first.bias.uniform_(generator=generator)
    return module


def by_its_own_seed() -> nn.Module:
    torch.manual_seed(5)
    return OwnGCN()


def by_numpy() -> nn.Module:
    module = OwnGCN()
    with torch.no_grad():
        module.first.bias.copy_(torch.from_numpy(np.random.rand(5)))  # noqa: NPY002
    return module


@pytest.mark.parametrize("construction", [gf.stacked, gf.boosted])
def test_fresh_weights_may_come_from_any_generator(construction: Any) -> None:
    graph, model = random_graph(4, nodes=40, edges=80), construction(by_numpy, epochs=3)
    outcome = gf.unlearn(gf.train(graph, model), graph, gf.Request(nodes=[4]))
    given: Any = {"released": outcome.released, "replay": True}
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, **given).checks


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (OwnGCN(), "a function that makes a fresh module is needed"),
        ("gcn", "a function that makes a fresh module is needed"),
        (lambda: copy.deepcopy(TRAINED), "holds a model that is not a registered submodule"),
        (by_its_own_seed, "makes the same parameter '.*' whatever the seed"),
        (lambda: 3, "the function made a int, a torch.nn.Module is needed"),
        (lambda a, b, c: OwnGCN(), "must take no arguments, or \\(columns, classes\\)"),
        (lambda: nn.ReLU(), "the module has no trainable parameter"),
        (with_data, "holds a tensor"),
        (with_statistics, "has statistics already"),
        (by_the_clock, "makes different modules by the same seed"),
        (lambda: GCNConv(COLUMNS, CLASSES, cached=True), "cached=True"),
        (lambda: sized(COLUMNS, 5), "an output of shape .* is needed"),
        (lambda: sized(7, CLASSES), "does not run as model\\(x, edge_index\\) on 4 columns"),
    ],
)
def test_a_function_that_makes_no_fresh_module_is_refused(make: Any, message: str) -> None:
    graph = random_graph(4, nodes=40, edges=80)
    for construction in (gf.stacked, gf.boosted):
        with pytest.raises(gf.InputError, match=message):
            gf.train(graph, construction(make))


def test_noise_in_the_objective_and_continued_training_are_refused() -> None:
    graph = random_graph(4, nodes=40, edges=80)
    for name in ("stacked-gcn", "boosted-gcn"):
        with pytest.raises(gf.InputError, match="takes no noise in its objective"):
            gf.train(graph, name, objective_noise=1.0)
        trained = gf.train(graph, name, hidden=3, epochs=2)
        with pytest.raises(gf.Refused, match="cannot be continued"):
            gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="retrain", start="continued", level="empirical")


def test_features_come_from_the_cache_while_encoders_are_the_same() -> None:
    graph = random_graph(4, nodes=24, edges=40)
    trained = train(graph)
    first = model_inputs(trained.stacked, graph, dtype=torch.float64)
    assert model_inputs(copy.deepcopy(trained.stacked), graph, dtype=torch.float64) is first
    other = train(graph, seed=1)
    assert model_inputs(other.stacked, graph, dtype=torch.float64) is not first


@pytest.mark.parametrize(
    "options", [{"scale_rows": False}, {"embedding_norm": 1e6}, {"mu": 1e-7}], ids=lambda options: next(iter(options))
)
def test_long_rows_and_little_curvature_keep_float64_products(options: dict[str, Any]) -> None:
    graph = random_graph(4, nodes=24, edges=40)
    graph = dataclasses.replace(graph, x=(graph.x.to_dense() * 1e4).to_sparse_csr())
    objective = train(graph, tolerance=10.0, **options).objective(graph)
    assert objective.for_newton() is objective
    objective = train(graph).objective(graph)
    assert isinstance(objective.for_newton(), MixedPrecision)


def test_steps_that_do_not_converge_in_float32_go_on_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(4, nodes=24, edges=40)
    monkeypatch.setattr(MixedPrecision, "hessian", lambda self, theta: lambda v: v * float("nan"))
    assert train(graph).converged
