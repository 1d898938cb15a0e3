"""Models on graphs with edge weights: the numbers of PyG, footprints from both sides, and plain copies."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import graphforget as gf
from cases import (
    COLUMNS,
    OwnGCN,
    changed_rows,
    dense_cases,
    graphs,
    logits,
    make,
    random_graph,
    reach_of,
    requests,
    weighted,
)
from graphforget.models.fixed import FixedPropagation
from graphforget.models.gat import GATLayer
from graphforget.models.gcn import GCN
from graphforget.models.plain_copies import plain_copy
from graphforget.models.propagation import normalised_adjacency
from graphforget.training.objective import Objective
from graphforget.training.rounding import rounding_allowance

WEIGHTED = ("sgc", "sgc-3", "sign", "gcn", "gat", "linearised-gcn", "own weighted")
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class OwnWeighted(nn.Module):
    """Two of PyG's GCNConv, with the weights of the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(COLUMNS, 6), GCNConv(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = self.first(x, edge_index, edge_weight).tanh()
        out: Tensor = self.second(hidden, edge_index, edge_weight)
        return out


def made(name: str, seed: int = 0) -> nn.Module:
    if name != "own weighted":
        return make(name, seed=seed)
    torch.manual_seed(seed)
    return OwnWeighted().double().eval()


def reach(name: str) -> gf.Reach:
    return gf.Reach(2) if name == "own weighted" else reach_of(name)


@QUICK
@given(graph=graphs(), seed=st.integers(0, 99), most=st.sampled_from([1.0, 6.0]))
def test_the_propagation_is_that_of_pyg(graph: gf.Graph, seed: int, most: float) -> None:
    graph = weighted(graph, seed, most=most)
    assert graph.edge_weight is not None
    ours = normalised_adjacency(
        graph.edge_index, graph.num_nodes, dtype=torch.float64, edge_weight=graph.edge_weight
    ).csr.to_dense()
    edges, values = gcn_norm(graph.edge_index, graph.edge_weight, graph.num_nodes)
    theirs = torch.zeros_like(ours).index_put_((edges[1], edges[0]), values, accumulate=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    if not graph.directed:
        assert torch.equal(ours, ours.T)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("powers", [(2,), (0, 1, 2, 3)])
@pytest.mark.parametrize("sparse", [False, True])
def test_sgc_and_sign_are_powers_of_pygs_propagation(directed: bool, powers: tuple[int, ...], sparse: bool) -> None:
    graph = weighted(random_graph(3, directed=directed, sparse=sparse), 3)
    module = FixedPropagation(COLUMNS, 3, powers=powers).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(0))
    assert graph.edge_weight is not None
    edges, values = gcn_norm(graph.edge_index, graph.edge_weight, graph.num_nodes)
    s = torch.zeros(12, 12, dtype=torch.float64).index_put_((edges[1], edges[0]), values, accumulate=True)
    x = torch.nn.functional.normalize(graph.x.to_dense(), dim=1)
    expected = sum(
        torch.linalg.matrix_power(s, power) @ x @ weight for power, weight in zip(powers, module.weight, strict=True)
    )
    torch.testing.assert_close(logits(module, graph), expected + module.bias, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("directed", [False, True])
def test_gcn_is_two_of_pygs_gcnconv(directed: bool) -> None:
    graph = weighted(random_graph(5, directed=directed, sparse=False), 5)
    ours = GCN(COLUMNS, 3, hidden=6, scale_rows=False).double().eval()
    first, second = GCNConv(COLUMNS, 6).double(), GCNConv(6, 3).double()
    with torch.no_grad():
        first.lin.weight.copy_(ours.first.weight.T)
        second.lin.weight.copy_(ours.second.weight.T)
        hidden = first(graph.x, graph.edge_index, graph.edge_weight).relu()
        theirs = second(hidden, graph.edge_index, graph.edge_weight)
        assert float((ours(graph.x, graph.edge_index, graph.edge_weight) - theirs).abs().max()) <= 1e-6
        assert float((logits(ours, graph) - theirs).abs().max()) <= 1e-6
        plain = second(first(graph.x, graph.edge_index).relu(), graph.edge_index)
        assert float((plain - theirs).abs().max()) > 1e-2  # the weights matter


def test_an_edge_of_weight_three_counts_in_gat_as_three_edges() -> None:
    """PyG's GATConv on repeated edges is the oracle: attention is shared among them."""
    graph = random_graph(5, sparse=False)
    inside = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]]
    copies = 1 + torch.arange(inside.shape[1]) % 3
    layer = GATLayer(COLUMNS, 4, heads=2, dropout=0.0).double()
    theirs = GATConv(COLUMNS, 4, heads=2).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(layer.linear.weight.T)
        theirs.att_src.copy_(layer.source[None])
        theirs.att_dst.copy_(layer.target[None])
        module = make("gat")
        pattern = module.propagation(inside, graph.num_nodes, torch.float64, copies.double())  # type: ignore[operator]
        expected = theirs(graph.x, inside.repeat_interleave(copies, dim=1))
        torch.testing.assert_close(layer(graph.x, pattern), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_one_are_no_weights(name: str) -> None:
    graph = random_graph(7)
    ones = dataclasses.replace(graph, edge_weight=torch.ones(graph.edge_index.shape[1], dtype=torch.float64))
    torch.testing.assert_close(logits(made(name), ones), logits(made(name), graph), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(logits(made(name), weighted(graph, 7)), logits(made(name), graph))


@pytest.mark.parametrize("name", ["gin", "sage", "own-gcn", "cgu", "link-sgc", "sharded-gin", "stacked-sage"])
def test_models_that_take_no_weights_refuse_in_one_sentence(name: str) -> None:
    graph = weighted(random_graph(7, nodes=40), 7)
    with pytest.raises(gf.InputError, match="edge weights") as error:
        gf.train(graph, make(name) if name.startswith("own") else name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("construction", [gf.stacked, gf.boosted])
def test_a_class_of_the_user_in_a_construction_takes_no_weights_whatever_its_arguments(construction: Any) -> None:
    """The refusal must not advise a parameter that would be of no use."""
    for own in (OwnGCN, OwnWeighted):
        with pytest.raises(gf.InputError, match="leave the weights out"):
            gf.train(weighted(random_graph(7, nodes=40), 7), construction(own))


class NeedsWeights(OwnWeighted):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index, edge_weight)


class Rescaled(OwnWeighted):
    """It divides all weights by the largest one, so a weight reaches every node."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if edge_weight is not None:
            edge_weight = edge_weight / edge_weight.max()
        return super().forward(x, edge_index, edge_weight)


def test_a_module_is_tried_with_weights_too() -> None:
    for module in (OwnWeighted(), NeedsWeights()):
        found = gf.inspect(module, columns=COLUMNS)
        assert found.reach == gf.Reach(2)
        assert not found.certification_blockers
    assert any("more than" in blocker for blocker in gf.inspect(Rescaled(), columns=COLUMNS).certification_blockers)


def test_a_module_that_needs_weights_is_trained_on_graphs_with_weights_alone() -> None:
    graph = random_graph(7, nodes=40)
    trained = gf.train(weighted(graph, 7), NeedsWeights(), epochs=3)
    outcome = gf.unlearn(trained, weighted(graph, 7), gf.Request(nodes=[4]))
    assert outcome.level == "exact"
    with pytest.raises(gf.InputError, match="the graph has no edge weights"):
        gf.train(graph, NeedsWeights(), epochs=3)


# -- footprints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WEIGHTED)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_outside_the_footprint_logits_are_bit_for_bit_equal(name: str, data: st.DataObject) -> None:
    graph = weighted(data.draw(graphs()), data.draw(st.integers(0, 99)))
    request = data.draw(requests(graph))
    touched = gf.footprint(graph, request, reach(name))
    assert changed_rows(made(name, data.draw(st.integers(0, 99))), graph, request) <= set(touched.reached.tolist())


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("directed", [False, True])
def test_the_footprint_of_a_weight_is_not_needlessly_large(name: str, directed: bool) -> None:
    for seed in range(4):
        plain, others = dense_cases(seed, directed=directed)
        graph = weighted(plain, seed, most=1.0)
        edge = next((u, v) for u, v in graph.edge_index.T.tolist() if u != v)
        for request in (gf.Request(edge_weights=[edge]), *others):
            changed: set[int] = set()
            for weights in range(4):
                changed |= changed_rows(made(name, weights), graph, request)
            assert changed == set(gf.footprint(graph, request, reach(name)).reached.tolist())


def test_a_weight_reaches_as_far_as_a_removed_edge() -> None:
    """0 - 1 - 2 - 3 - 4 - 5 - 6, all training nodes."""
    edges = torch.stack([torch.arange(6), torch.arange(1, 7)])
    y = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    path = gf.Graph.create(x=torch.ones(7, 4), edges=edges, y=y, edge_weight=torch.tensor([2.0, 1, 3, 1, 1, 1]))
    request = gf.Request(edge_weights=[(1, 0)])
    assert gf.footprint(path, request, gf.Reach(2)).reached.tolist() == [0, 1, 2, 3]
    assert gf.footprint(path, request, gf.Reach(2, degree_normalised=False)).reached.tolist() == [0, 1, 2]
    nothing = gf.Request(edge_weights=[(1, 2)])  # it is 1 already
    assert gf.footprint(path, nothing, gf.Reach(2)).empty
    assert path.without(nothing).digest == path.digest
    later = path.without(request)
    assert later.edge_weight is not None
    assert later.edge_weight.tolist() == [1, 1, 1, 1, 3, 3, 1, 1, 1, 1, 1, 1]
    assert gf.footprint(later, request, gf.Reach(2)).empty


# -- plain copies ----------------------------------------------------------------------------------------------------

PLAIN: dict[str, dict[str, Any]] = {
    "sgc": {},
    "sign": {},
    "gcn": {"epochs": 3, "hidden": 5},
    "gat": {"epochs": 3, "hidden": 2, "heads": 2},
    "linearised-gcn": {"hidden": 5},
    "stacked-gcn": {"epochs": 3, "hidden": 4, "parts": 2},
    "stacked-gat": {"epochs": 3, "hidden": 2, "heads": 2, "parts": 2},
    "boosted-gcn": {"epochs": 3, "hidden": 4},
    "sharded-gcn": {"epochs": 3, "hidden": 4, "shards": 2},
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("directed", [False, True])
def test_a_plain_copy_gives_the_same_logits(name: str, directed: bool) -> None:
    graph = weighted(random_graph(5, nodes=30, edges=60, directed=directed, sparse=not directed), 5)
    trained = gf.train(graph, name, **PLAIN[name])
    copied = plain_copy(trained.module)
    with torch.no_grad():
        theirs = copied(graph.x.to_dense(), graph.edge_index, graph.edge_weight)
        unweighted = copied(graph.x.to_dense(), graph.edge_index)
    torch.testing.assert_close(theirs, trained.logits(graph), rtol=1e-8, atol=1e-8)
    assert not torch.allclose(unweighted, theirs)


def test_the_allowance_covers_weights_that_a_sum_loses() -> None:
    """A degree of 1e12 takes in weights below half of its last digit one by one, so that all of them are lost."""
    leaves, mu = 20_000, 1e-4
    edges = torch.stack([torch.arange(leaves + 1), torch.zeros(leaves + 1, dtype=torch.int64)])  # a loop, and a star
    weight = torch.full((leaves + 1,), 6e-5, dtype=torch.float64)
    weight[0] = 1e12
    x = torch.rand(leaves + 1, COLUMNS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given: dict[str, Any] = {"x": x, "y": torch.arange(leaves + 1) % 3, "train_mask": torch.arange(leaves + 1) == 0}
    graph = gf.Graph.create(edges=edges, edge_weight=weight, directed=True, num_classes=3, **given)
    module = FixedPropagation(COLUMNS, 3, powers=(1,), scale_rows=False).double()
    objective = Objective(module, graph, mu=mu)
    theta = torch.randn(objective.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    long = np.longdouble
    w, rows, t = weight.numpy().astype(long), x.numpy().astype(long), theta.numpy().astype(long)
    degree = long(1e12) + leaves * w[1]  # a leaf has its own loop of weight 1
    entries = np.concatenate([w[:1] / degree, w[1:] / np.sqrt(degree)])
    z = np.append(entries @ rows, long(1))
    p = np.exp(z @ t.reshape(-1, 3))
    p /= p.sum()
    p[0] -= 1
    exact = np.outer(z, p).ravel() + long(mu) * t
    computed = objective.gradient(theta)
    error = float(np.sqrt(((computed.numpy().astype(long) - exact) ** 2).sum()))
    allowance = rounding_allowance(objective, theta, gradient_norm=float(computed.norm()))
    assert 1000 * 2.0**-53 < error <= allowance  # far over what a few roundings do


@pytest.mark.parametrize("hops", [1, 4])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_allowance_counts_a_hop_twice_where_weights_are_summed_up(hops: int, sparse: bool) -> None:
    """docs/maths.md, section 9: `2n + 10` in place of `n` terms, because an entry of `S` comes from sums itself."""
    nodes, powers = 30, tuple(range(hops + 1))
    graph = random_graph(3, nodes=nodes, edges=60, sparse=sparse, directed=True)
    module = FixedPropagation(COLUMNS, 3, powers=powers).double()
    terms = [Objective(module, one, mu=1e-3).data.longest_sum for one in (graph, weighted(graph, 3))]
    assert terms == [(hops + 3) * (summed + len(powers) * COLUMNS + 10) for summed in (nodes, 2 * nodes + 10)]
