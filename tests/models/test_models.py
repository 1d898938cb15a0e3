"""Built-in models against PyG's layers, the doctor for models, and linearisation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, SGConv
from torch_geometric.utils import add_remaining_self_loops

import graphforget as gf
from cases import CLASSES, COLUMNS, MODELS, OwnGCN, WithNorm, logits, make, random_graph
from graphforget.linalg.sparse import scale_rows_to_unit
from graphforget.models.gat import GATLayer
from graphforget.models.gin import GINLayer
from graphforget.models.linearised import Linearised, draw_weights
from graphforget.models.parameters import call_with, flatten
from graphforget.models.registry import MODELS as REGISTRY
from graphforget.models.registry import build, is_affine

CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}


@pytest.fixture(params=[False, True], ids=["undirected", "directed"])
def graph(request: pytest.FixtureRequest) -> gf.Graph:
    return random_graph(3, directed=request.param, sparse=False)


def unit_rows(graph: gf.Graph) -> Tensor:
    norms = graph.x.norm(dim=1, keepdim=True)
    return torch.where(norms > 0, graph.x / norms, graph.x)


def test_sgc_is_pygs(graph: gf.Graph) -> None:
    ours: Any = make("sgc")
    theirs = SGConv(COLUMNS, CLASSES, K=2).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.weight[0].T)
        theirs.lin.bias.copy_(ours.bias)
    expected = theirs(unit_rows(graph), graph.edge_index)
    torch.testing.assert_close(ours(graph.x, graph.edge_index), expected, **CLOSE)
    torch.testing.assert_close(ours(graph.x.to_sparse_csr(), graph.edge_index), expected, **CLOSE)


def test_sign_is_the_sum_of_its_powers(graph: gf.Graph) -> None:
    ours: Any = make("sign")
    n = graph.num_nodes
    a = torch.eye(n, dtype=torch.float64)
    a[graph.edge_index[1], graph.edge_index[0]] = 1
    s = a / (a.sum(1)[:, None] * a.sum(1)[None, :]).sqrt()
    x = unit_rows(graph)
    expected = x @ ours.weight[0] + s @ x @ ours.weight[1] + s @ s @ x @ ours.weight[2] + ours.bias
    torch.testing.assert_close(ours(graph.x, graph.edge_index), expected, **CLOSE)
    torch.testing.assert_close(ours(graph.x.to_sparse_csr(), graph.edge_index), expected, **CLOSE)


def test_gcn_is_pygs(graph: gf.Graph) -> None:
    ours: Any = make("gcn")
    first, second = GCNConv(COLUMNS, 5).double(), GCNConv(5, CLASSES).double()
    with torch.no_grad():
        first.lin.weight.copy_(ours.first.weight.T)
        first.bias.copy_(ours.first_bias)
        second.lin.weight.copy_(ours.second.weight.T)
        second.bias.copy_(ours.second_bias)
    expected = second(first(unit_rows(graph), graph.edge_index).relu(), graph.edge_index)
    torch.testing.assert_close(ours(graph.x, graph.edge_index), expected, **CLOSE)
    torch.testing.assert_close(ours(graph.x.to_sparse_csr(), graph.edge_index), expected, **CLOSE)


def test_gat_layer_is_pygs(graph: gf.Graph) -> None:
    ours = GATLayer(COLUMNS, 3, heads=2, dropout=0.0).double()
    theirs = GATConv(COLUMNS, 3, heads=2).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.linear.weight.T)
        theirs.att_src.copy_(ours.source[None])
        theirs.att_dst.copy_(ours.target[None])
    gat: Any = make("gat")
    edges = gat.propagation(graph.edge_index, graph.num_nodes, torch.float64)
    torch.testing.assert_close(ours(graph.x, edges), theirs(graph.x, graph.edge_index), **CLOSE)


def test_gin_layer_is_pygs(graph: gf.Graph) -> None:
    ours = GINLayer(COLUMNS, 5, 3, dropout=0.0).double()
    mlp: Any = nn.Sequential(nn.Linear(COLUMNS, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    theirs = GINConv(mlp, eps=0.25)  # resets the weights of mlp
    with torch.no_grad():
        ours.eps.fill_(0.25)
        mlp[0].weight.copy_(ours.first.weight.T)
        mlp[0].bias.copy_(ours.first_bias)
        mlp[2].weight.copy_(ours.second.weight.T)
        mlp[2].bias.copy_(ours.second.bias)
    gin: Any = make("gin")
    adjacency = gin.propagation(graph.edge_index, graph.num_nodes, torch.float64)
    torch.testing.assert_close(ours(graph.x, adjacency), theirs(graph.x, graph.edge_index), **CLOSE)


@pytest.mark.parametrize("include_self", [False, True])
def test_sage_is_pygs(include_self: bool, graph: gf.Graph) -> None:
    """With `include_self` it is PyG's on the graph with a self-loop at every node."""
    ours: Any = build("sage", columns=COLUMNS, classes=CLASSES, hidden=5, include_self=include_self).double().eval()
    first, second = SAGEConv(COLUMNS, 5).double(), SAGEConv(5, CLASSES).double()
    with torch.no_grad():
        for theirs, near, own in ((first, ours.near, ours.own), (second, ours.far, ours.out)):
            own.bias.copy_(torch.randn_like(own.bias))
            theirs.lin_l.weight.copy_(near.weight.T)
            theirs.lin_l.bias.copy_(own.bias)
            theirs.lin_r.weight.copy_(own.weight.T)
    edges = graph.edge_index
    if include_self:
        edges, _ = add_remaining_self_loops(edges, num_nodes=graph.num_nodes)
    expected = second(first(unit_rows(graph), edges).relu(), edges)
    torch.testing.assert_close(ours(graph.x, graph.edge_index), expected, **CLOSE)
    torch.testing.assert_close(ours(graph.x.to_sparse_csr(), graph.edge_index), expected, **CLOSE)


def test_both_forms_of_sage_have_their_own_inputs(graph: gf.Graph) -> None:
    """The prepared graph is stored by model, and the two forms have different means."""
    one, other = (build("sage", columns=COLUMNS, classes=CLASSES, include_self=form) for form in (False, True))
    before = [logits(module.double().eval(), graph) for module in (one, other)]
    fresh = [logits(module, dataclasses.replace(graph)) for module in (other, one)]
    assert torch.equal(before[0], fresh[1])
    assert torch.equal(before[1], fresh[0])


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "sage"])
def test_the_last_layer_reads_the_embedding(name: str, graph: gf.Graph) -> None:
    """Another embedding gives the logits that belong to it; a row of zeros gives the biases alone."""
    module: Any = make(name)
    inputs = module.prepare(graph.x, graph.edge_index)
    embedding = module.embed(*inputs)
    assert embedding.shape[0] == graph.num_nodes
    biases = {
        "gcn": lambda: module.second_bias,
        "gat": lambda: module.second.bias,
        "gin": lambda: module.second.first_bias.relu() @ module.second.second.weight + module.second.second.bias,
        "sage": lambda: module.out.bias,
    }[name]()
    readout = module.read_input(inputs[0]) if name == "gin" else 0
    module.embed = lambda x, propagation: torch.zeros_like(embedding)
    torch.testing.assert_close(module.logits(*inputs), (biases + readout).expand(graph.num_nodes, -1), **CLOSE)


@pytest.mark.parametrize("name", MODELS)
def test_sparse_and_dense_attributes_give_the_same_logits(name: str, graph: gf.Graph) -> None:
    module = make(name)
    dense, sparse = module(graph.x, graph.edge_index), module(graph.x.to_sparse_csr(), graph.edge_index)
    torch.testing.assert_close(dense, sparse, **CLOSE)


@pytest.mark.slow
def test_gat_can_be_differentiated_twice(graph: gf.Graph) -> None:
    module: Any = make("gat")
    theta = flatten(module).requires_grad_()
    inputs = module.prepare(graph.x.to_sparse_csr(), graph.edge_index)
    assert torch.autograd.gradcheck(lambda t: call_with(module, t, *inputs), theta)
    assert torch.autograd.gradgradcheck(lambda t: call_with(module, t, *inputs), theta)


def test_forgetting_a_column_also_changes_the_length_of_its_row() -> None:
    """Scaled before the deletion, the row would still tell how large the forgotten value was."""
    x = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    graph = gf.Graph.create(x=x, edges=torch.zeros(2, 0), y=torch.tensor([0, 1]))
    after = graph.without(gf.Request(attributes={0: [1]}))
    assert scale_rows_to_unit(after.x)[0].tolist() == [1.0, 0.0]


# -- linearised ------------------------------------------------------------------------------------------------------


def test_public_weights_depend_on_the_seed_and_on_nothing_else() -> None:
    one, other = OwnGCN(), OwnGCN()
    draw_weights(one, seed=7)
    draw_weights(other, seed=7)
    assert torch.equal(flatten(one), flatten(other))
    draw_weights(other, seed=8)
    assert not torch.equal(flatten(one), flatten(other))


def test_linearising_forgets_trained_weights() -> None:
    base = OwnGCN()
    with torch.no_grad():
        base.first.bias.fill_(123.0)
    module = gf.linearised(base, seed=0, columns=COLUMNS)
    assert torch.equal(module.origin, gf.linearised(OwnGCN(), seed=0, columns=COLUMNS).origin)
    assert base.first.bias.tolist() == [123.0] * 5


@pytest.mark.slow
@pytest.mark.parametrize("base", ["gcn", "gat", "gin", "sage", "own-gcn", "own-mixture"])
def test_linearised_logits_are_value_plus_jacobian(base: str, graph: gf.Graph) -> None:
    """Against the dense Jacobian."""
    module = Linearised(MODELS[base](), seed=1, columns=COLUMNS).double()
    with torch.no_grad():
        module.delta.copy_(torch.randn_like(module.delta))
    inputs = (graph.x, graph.edge_index)
    value = call_with(module.base, module.origin, *inputs)
    jacobian = torch.autograd.functional.jacobian(lambda t: call_with(module.base, t, *inputs), module.origin)
    expected = value + jacobian @ module.delta
    torch.testing.assert_close(module(graph.x, graph.edge_index), expected, rtol=1e-9, atol=1e-11)


def test_a_model_with_batchnorm_cannot_be_linearised() -> None:
    with pytest.raises(gf.InputError, match="cannot be linearised: layer 'norm'"):
        gf.linearised(WithNorm(nn.BatchNorm1d(CLASSES)), seed=0, columns=COLUMNS)


# -- the registry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
def test_weights_come_from_the_seed(name: str) -> None:
    state = torch.random.get_rng_state()
    one, same = (build(name, columns=COLUMNS, classes=CLASSES, seed=3) for _ in range(2))
    assert torch.equal(flatten(one), flatten(same))
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("name", REGISTRY)
def test_the_registry_knows_what_is_convex(name: str) -> None:
    assert REGISTRY[name].affine == is_affine(build(name, columns=COLUMNS, classes=CLASSES))


def test_unknown_models_and_options_are_refused() -> None:
    with pytest.raises(gf.InputError, match="there is no model 'gnc'"):
        build("gnc", columns=COLUMNS, classes=CLASSES)
    with pytest.raises(gf.InputError, match="'sgc' has no option"):
        build("sgc", columns=COLUMNS, classes=CLASSES, hidden=3)
