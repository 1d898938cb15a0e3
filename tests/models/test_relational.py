"""SIGN over relations: its features by their definition, its paths, its reach, its bounds, its plain copy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphforget as gf
from cases import present, random_graph
from graphforget.graph.schema import schema_of
from graphforget.models.inputs import model_inputs
from graphforget.models.plain_copies import plain_copy
from graphforget.models.registry import build
from graphforget.models.relation_paths import MOST_PATHS
from graphforget.models.relational import RelationalSIGN
from graphforget.training.rounding import rounding_allowance
from hetero_cases import (
    CLASSES,
    TARGET,
    dense_features,
    dense_rows,
    random_hetero,
    random_hetero_request,
    structural_zero,
)


def module_for(graph: gf.Graph, *, seed: int = 0, hops: int = 2) -> RelationalSIGN:
    """With random weights everywhere: a weight of 0 would hide a dependence."""
    options = RelationalSIGN.options_for(graph)
    module = build("relational-sign", columns=graph.num_columns, classes=CLASSES, hops=hops, **options).double()
    assert isinstance(module, RelationalSIGN)
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=drawn, dtype=torch.float64))
    return module


def logits(module: RelationalSIGN, graph: gf.Graph) -> Tensor:
    with torch.no_grad():
        out: Tensor = module(*model_inputs(module, graph, dtype=torch.float64))
        return out


def theta_of(module: RelationalSIGN) -> Tensor:
    return torch.cat([module.weight.detach().flatten(), module.bias.detach()])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_the_logits_are_those_of_the_definition(hops: int, weighted: bool, directed: bool) -> None:
    for seed in range(3):
        graph = random_hetero(seed, weighted=weighted, directed=directed, reverse=bool(seed % 2))
        module = module_for(graph, hops=hops)
        expected = dense_rows(module, graph) @ theta_of(module).view(-1, CLASSES).numpy()
        torch.testing.assert_close(logits(module, graph), torch.from_numpy(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("directed", [False, True])
def test_its_blocks_are_those_that_are_not_structurally_zero(directed: bool) -> None:
    """From both sides: no block is left out that can be different from 0 on the target type, and none is there else."""
    graph = random_hetero(1, papers=40, authors=30, directed=directed, full=True)
    module, schema = module_for(graph), schema_of(graph)
    rows = [row for row in range(graph.num_nodes) if str(graph.name_of(row)).startswith(f"{TARGET}:")]
    expected = {
        (path, schema.columns(kind))
        for path, values in dense_features(graph, hops=2).items()
        for kind in schema.types
        if not structural_zero(graph, path, schema.columns(kind))
    }
    assert {(path.relations, (path.first, path.last)) for path in module.paths} == expected
    for path, values in dense_features(graph, hops=2).items():
        for kind in schema.types:
            first, last = schema.columns(kind)
            assert values[rows, first:last].any() == ((path, (first, last)) in expected)


def test_products_with_the_jacobian_are_adjoint() -> None:
    graph = random_hetero(3, weighted=True)
    module = module_for(graph, hops=3)
    inputs = model_inputs(module, graph, dtype=torch.float64)
    rows = graph.train_rows
    jacobian = module.logits_jacobian(inputs, rows, nodes=graph.num_nodes)
    drawn = torch.Generator().manual_seed(1)
    u = torch.randn(rows.numel(), CLASSES, generator=drawn, dtype=torch.float64)
    v = torch.randn(theta_of(module).numel(), generator=drawn, dtype=torch.float64)
    assert float((jacobian.apply(v) * u).sum()) == pytest.approx(float(jacobian.adjoint(u) @ v), rel=1e-12)
    torch.testing.assert_close(jacobian.apply(theta_of(module)), logits(module, graph)[rows])


def test_without_relations_it_is_sign_with_means() -> None:
    graph = random_graph(2, nodes=20, edges=30)
    trained = gf.train(graph, "relational-sign")
    assert (trained.recipe.options, len(trained.module.paths)) == ({}, 3)  # type: ignore[arg-type]
    expected = dense_rows(trained.module, graph) @ trained.theta.view(-1, CLASSES).numpy()
    torch.testing.assert_close(trained.logits(graph), torch.from_numpy(expected))


# -- reach -----------------------------------------------------------------------------------------------------------


def changed_rows(module: RelationalSIGN, graph: gf.Graph, request: gf.Request) -> set[int]:
    """The oracle: nodes of the target type that stay and whose logits are not bit for bit the same."""
    after = graph.without(request)
    stays = torch.isin(graph.numbers, after.numbers).nonzero().flatten()
    x = torch.zeros(graph.x.shape, dtype=graph.x.dtype)
    x[stays] = after.x.to_dense()  # the removed nodes as lone rows of zeros, so that every tensor keeps its shape
    ghosts = dataclasses.replace(
        graph,
        x=x.to_sparse_csr(),
        edge_index=stays[after.edge_index],
        edge_relations=after.edge_relations,
        edge_weight=after.edge_weight,
    )
    before, later = logits(module, graph)[stays], logits(module, ghosts)[stays]
    torch.testing.assert_close(logits(module, after), later, rtol=1e-9, atol=1e-11)
    return set(stays[(before != later).any(dim=1)].tolist())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_outside_the_footprint_logits_are_bit_for_bit_equal(directed: bool, weighted: bool) -> None:
    for seed in range(30):
        graph = random_hetero(seed, directed=directed, weighted=weighted)
        request, module = random_hetero_request(graph, seed), module_for(graph, seed=seed, hops=1 + seed % 3)
        reached = gf.footprint(graph, request, module.reach).reached
        assert changed_rows(module, graph, request) <= set(reached.tolist())


@pytest.mark.parametrize("directed", [False, True])
def test_the_footprint_is_not_needlessly_large(directed: bool) -> None:
    """With full attributes and random weights, every node that is said to be reached and that trains does change."""
    for seed in range(6):
        graph = random_hetero(seed, directed=directed, full=True)
        edge = [graph.name_of(row) for row in graph.edge_index[:, seed].tolist()]
        for request in (
            gf.Request(nodes=["author:1"]),
            gf.Request(nodes=["paper:4"]),
            gf.Request(attributes={"author:2": "all"}),
            gf.Request(edges=[(edge[0], edge[1])]),
        ):
            touched = gf.footprint(graph, request, gf.Reach(2, degree_normalised=False))
            changed: set[int] = set()
            for weights in range(4):
                changed |= changed_rows(module_for(graph, seed=weights), graph, request)
            assert set(touched.affected.tolist()) == changed & set(graph.train_rows.tolist())


# -- rounding --------------------------------------------------------------------------------------------------------


def exact_gradient(trained: gf.Trained, graph: gf.Graph, theta: Tensor) -> np.ndarray:
    """`grad F` in 80-bit arithmetic, from the definition."""
    long = np.longdouble
    z = dense_rows(trained.module, graph, long)[graph.train_rows.numpy()]
    scores = z @ theta.numpy().astype(long).reshape(-1, CLASSES)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(p)), graph.y[graph.train_rows].numpy()] -= 1
    return (z.T @ p / len(p)).ravel() + long(trained.recipe.mu) * theta.numpy().astype(long)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_allowance_covers_what_float64_does_to_the_gradient(weighted: bool) -> None:
    for seed in range(20):
        graph = random_hetero(seed, weighted=weighted)
        trained = gf.train(graph, mu=[1e-4, 1.0][seed % 2], tolerance=1.0, hops=1 + seed % 3)
        drawn = torch.Generator().manual_seed(seed)
        theta = 10.0 ** (seed % 8 - 3) * torch.randn(trained.theta.numel(), generator=drawn, dtype=torch.float64)
        objective = trained.objective(graph)
        computed = objective.gradient(theta)
        error = np.linalg.norm(
            (computed.numpy().astype(np.longdouble) - exact_gradient(trained, graph, theta)).astype(float)
        )
        allowance = rounding_allowance(objective, theta, gradient_norm=float(computed.norm()))
        assert error <= allowance <= 1e-9 * (1 + float(theta.norm()))
        lengths = np.sqrt((dense_rows(trained.module, graph) ** 2).sum(axis=1))
        norms = present(objective.data.affine_model).feature_norms(*objective.data.inputs)  # type: ignore[operator]
        assert (norms.numpy() >= lengths * (1 - 1e-12)).all()


def test_the_allowance_covers_a_sum_over_very_many_neighbours() -> None:
    """Each adds the same number, so that rounding errors add up as well."""
    n = 30_000
    ends = torch.stack([torch.arange(1, n + 1), torch.zeros(n, dtype=torch.int64)])
    train = torch.arange(n + 1) == 0
    x, y = torch.ones(n + 1, 1, dtype=torch.float64), train.long()
    graph = gf.Graph.create(x=x, edges=ends, y=y, train_mask=train, test_mask=~train, directed=True)
    trained = gf.train(graph, "relational-sign", hops=1, mu=1e-3, tolerance=1.0)
    theta = torch.tensor([0.3, -0.2, -1.0, 1.0, 0.4, 0.1], dtype=torch.float64)
    computed = trained.objective(graph).gradient(theta)
    weights = theta.numpy().astype(np.longdouble).reshape(3, 2)
    logits = weights.sum(axis=0)  # the features of the only training node are 1, its mean and the bias included
    shares = np.exp(logits) / np.exp(logits).sum() - np.array([0, 1])
    exact = np.tile(shares, 3) + np.longdouble(trained.recipe.mu) * weights.flatten()
    error = np.linalg.norm((computed.numpy() - exact).astype(float))
    assert 1e-13 < error <= rounding_allowance(trained.objective(graph), theta, gradient_norm=float(computed.norm()))


# -- what is refused, and serving ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_a_plain_copy_predicts_the_same(weighted: bool) -> None:
    graph = random_hetero(5, weighted=weighted)
    trained = gf.train(graph)
    copied = plain_copy(trained.module)
    with torch.no_grad():
        out = copied(graph.x.to_dense().double(), graph.edge_index, graph.edge_weight, graph.edge_relations)
    torch.testing.assert_close(out, trained.logits(graph), rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="the model has several relations"):
        copied(graph.x.to_dense().double(), graph.edge_index)


@pytest.mark.parametrize("model", ["sgc", "sign", "gcn", "stacked-gcn", "link-sign"])
def test_other_models_are_refused_in_one_sentence(model: str) -> None:
    with pytest.raises(gf.InputError, match="relations"):
        gf.train(random_hetero(1), model)


def test_relations_are_no_options() -> None:
    options: list[dict[str, Any]] = [{"relations": ["a"]}, {"target": "paper"}, {"widths": [3]}]
    for option in options:
        with pytest.raises(gf.InputError, match=r"follows from the graph, do not give it$"):
            gf.train(random_hetero(1), **option)


def test_too_many_compositions_are_refused() -> None:
    names = [f"r{number}" for number in range(20)]
    with pytest.raises(gf.InputError, match=f"more than {MOST_PATHS} compositions of up to 2: choose fewer hops"):
        build("relational-sign", columns=2, classes=2, relations=names)
    assert build("relational-sign", columns=2, classes=2, relations=names, hops=1) is not None
