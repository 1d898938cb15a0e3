"""Graphs, models and requests that the tests share: one list of cases for everything."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import APPNP, GATv2Conv, GCNConv, SAGEConv

import graphforget as gf
from graphforget.certificates.claims.base import Claim
from graphforget.models.fixed import FixedPropagation, MeanSGC
from graphforget.models.inputs import model_inputs
from graphforget.models.registry import build

COLUMNS, CLASSES = 4, 3
T = TypeVar("T")
C = TypeVar("C", bound=Claim)

idea = functools.partial(gf.unlearn, method="idea")
# Without a sigma of the model's own IDEA sizes the noise to the request, as in the paper.
train_without_noise = functools.partial(gf.train, sigma=0.0)


# For a process in another folder: this package, one thread.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(gf.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


class Ran(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    stdout: str
    stderr: str


Run = Callable[..., Ran]
RunJson = Callable[..., dict[str, Any]]


class OwnGCN(nn.Module):
    """A user's module on PyG's layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(COLUMNS, 5), GCNConv(5, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).tanh(), edge_index)


class OwnMixture(nn.Module):
    """Layers of both kinds and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(COLUMNS, 5), GATv2Conv(5, CLASSES)
        self.skip = nn.Linear(COLUMNS, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x.to_dense() if x.layout == torch.sparse_csr else x
        return self.second(self.first(x, edge_index).relu(), edge_index) + self.skip(x)


class OwnAPPNP(nn.Module):
    """Three propagations by one layer object."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.propagate = nn.Linear(COLUMNS, CLASSES), APPNP(K=3, alpha=0.2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x.to_dense() if x.layout == torch.sparse_csr else x
        return self.propagate(self.linear(x), edge_index)


class OwnMLP(nn.Module):
    """No messages at all; its reach has to be declared."""

    reach = gf.Reach(0, degree_normalised=False)

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(COLUMNS, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.linear(x.to_dense() if x.layout == torch.sparse_csr else x)


def present(value: T | None) -> T:
    """`value`, which is not None."""
    assert value is not None
    return value


def claim_of(outcome: gf.Outcome, kind: type[C]) -> C:
    """The claim of an outcome, which is of this kind."""
    claim = outcome.certificate.claim
    assert isinstance(claim, kind)
    return claim


def any_values(*values: Any) -> tuple[Any, ...]:
    """`values` without their types, for calls that have to refuse them."""
    return values


def built_in(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: build(name, columns=COLUMNS, classes=CLASSES, **options)


# Small widths: the oracles form dense Hessians.
MODELS: dict[str, Callable[[], nn.Module]] = {
    "sgc": built_in("sgc"),
    "sgc-3": built_in("sgc", hops=3, scale_rows=False),
    "sign": built_in("sign", hops=2),
    "relational-sign": built_in("relational-sign"),
    "gcn": built_in("gcn", hidden=5),
    "gat": built_in("gat", hidden=2, heads=2),
    "gin": built_in("gin", hidden=5),
    "sage": built_in("sage", hidden=5),
    "linearised-gcn": built_in("linearised-gcn", hidden=5),
    "linearised-gat": built_in("linearised-gat", hidden=2, heads=2),
    "own-gcn": OwnGCN,
    "own-mixture": OwnMixture,
    "own-appnp": OwnAPPNP,
    "own-mlp": OwnMLP,
}
DEGREE_NORMALISED = ("sgc", "gcn")


def make(name: str, *, seed: int = 0) -> nn.Module:
    """One of `MODELS` in float64, with random weights everywhere (a zero weight would hide a dependence)."""
    torch.manual_seed(seed)
    module: Any = MODELS[name]().double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter))
    module.case = name
    return module


@functools.cache
def reach_of(name: str) -> gf.Reach:
    return gf.inspect(make(name), columns=COLUMNS).reach


def random_graph(
    seed: int,
    *,
    nodes: int = 12,
    edges: int = 16,
    directed: bool = False,
    sparse: bool = True,
    unlabelled: int = 2,
) -> gf.Graph:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(nodes, COLUMNS)) * (rng.random((nodes, COLUMNS)) < 0.7))
    y = torch.from_numpy(rng.permutation(np.arange(nodes) % CLASSES))
    train = torch.from_numpy(rng.random(nodes) < 0.7)
    train[:CLASSES] = True
    y[:CLASSES] = torch.arange(CLASSES)
    test = ~train
    outside = test.nonzero().flatten()[:unlabelled]
    y[outside] = -1
    test[outside] = False
    ends = torch.from_numpy(rng.integers(0, nodes, size=(2, edges)))
    ends = ends[:, (ends[0] != ends[1]) | (ends[0] == seed % nodes)]  # a few self-loops
    return gf.Graph.create(
        x=x.to_sparse_csr() if sparse else x,
        edges=ends,
        y=y,
        train_mask=train,
        test_mask=test,
        directed=directed,
        num_classes=CLASSES,
    )


def weighted(graph: gf.Graph, seed: int, *, most: float = 3.0) -> gf.Graph:
    """The same graph with weights from 10^-most to 10^most, the same both ways if it is undirected."""
    source, target = graph.edge_index
    rng = np.random.default_rng([seed, 7])
    table = rng.uniform(-most, most, size=(graph.num_nodes, graph.num_nodes))
    low, high = (source, target) if graph.directed else (torch.minimum(source, target), torch.maximum(source, target))
    weight = torch.from_numpy(10 ** table[low.numpy(), high.numpy()])
    return dataclasses.replace(graph, edge_weight=weight)


def with_targets(graph: gf.Graph, kind: str) -> gf.Graph:
    """The same graph with two labels or two values a node, which follow from its class and its number."""
    if kind == "classes":
        return graph
    angle = 2.0 * graph.y + 0.7 * graph.numbers
    values = torch.stack([angle.sin(), angle.cos() + 0.1 * graph.y], dim=1).double()
    absent = graph.y < 0
    values[absent] = torch.nan
    y = values if kind == "values" else torch.where(absent[:, None], -1, (values > 0).to(torch.int8))
    return gf.Graph.create(
        x=graph.x,
        edges=graph.edge_index,
        y=y,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
        directed=graph.directed,
        numbers=graph.numbers,
    )


def island() -> gf.Graph:
    """Nodes 0 and 1 have no edge but their own and do not train, so no training loss depends on them."""
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    inside = (graph.edge_index > 1).all(dim=0)
    edges = torch.cat([graph.edge_index[:, inside], torch.tensor([[0], [1]])], dim=1)
    train, test = graph.train_mask.clone(), graph.test_mask.clone()
    train[:2], test[:2] = False, True
    return gf.Graph.create(x=graph.x, edges=edges, y=graph.y, train_mask=train, test_mask=test)


def dense_cases(seed: int, *, directed: bool) -> tuple[gf.Graph, list[gf.Request]]:
    """A graph without a zero among its attributes, and requests of every kind."""
    graph = random_graph(seed, nodes=16, edges=18, directed=directed, sparse=False)
    x = torch.from_numpy(np.random.default_rng(seed).uniform(0.5, 1.5, size=tuple(graph.x.shape)))
    graph = gf.Graph.create(x=x, edges=graph.edge_index, y=graph.y, train_mask=graph.train_mask, directed=directed)
    edge = tuple(graph.edge_index[:, seed].tolist())
    return graph, [
        gf.Request(nodes=[5]),
        gf.Request(edges=[edge]),
        gf.Request(attributes={7: "all", 8: [1]}),
        gf.Request(nodes=[6], edges=[edge], attributes={9: [0, 2]}),
    ]


@st.composite
def graphs(draw: st.DrawFn) -> gf.Graph:
    return random_graph(
        draw(st.integers(0, 10**6)),
        nodes=draw(st.integers(6, 14)),
        edges=draw(st.integers(0, 24)),
        directed=draw(st.booleans()),
        sparse=draw(st.booleans()),
    )


@st.composite
def requests(draw: st.DrawFn, graph: gf.Graph) -> gf.Request:
    """Any mixture that the graph can forget."""
    n = graph.num_nodes
    some = st.lists(st.integers(0, n - 1), max_size=2, unique=True)
    nodes = draw(some)
    count = graph.edge_index.shape[1]
    places = draw(st.lists(st.integers(0, count - 1), max_size=2, unique=True)) if count else []
    pairs = {tuple(graph.edge_index[:, i].tolist()) for i in places}
    edges = [p for p in pairs if graph.directed or p[::-1] not in pairs or p[0] <= p[1]]
    columns = st.lists(st.integers(0, COLUMNS - 1), min_size=1, max_size=COLUMNS, unique=True)
    attributes: dict[int | str, Any] = {node: draw(st.one_of(st.just("all"), columns)) for node in draw(some)}
    labels = draw(some)
    weights: list[Any] = []
    if graph.edge_weight is not None and count:
        named = {tuple(sorted(graph.edge_index[:, i].tolist())) for i in draw(st.lists(st.integers(0, count - 1)))}
        weights = sorted(named) if not graph.directed else [tuple(graph.edge_index[:, 0].tolist())]
    assume(nodes or edges or attributes or labels or weights)
    request = gf.Request(nodes, edges, attributes, labels=labels, edge_weights=weights)
    try:
        request.resolve(graph)
    except gf.InputError:
        assume(False)
    left = graph.train_mask.clone()
    left[[*nodes, *labels]] = False
    assume(left.any())
    return request


@st.composite
def chains(draw: st.DrawFn, *, sparse: bool = False) -> list[gf.Graph]:
    """A graph, and what is left of it after each of several requests."""
    nodes = draw(st.integers(8, 30))
    seed, edges = draw(st.integers(0, 10**6)), draw(st.integers(0, 3 * nodes))
    graph = random_graph(seed, nodes=nodes, edges=edges, sparse=sparse)
    chain = [graph]
    for _ in range(draw(st.integers(1, 4))):
        named = draw(requests(chain[-1]))  # rows, which are numbers in a graph that has lost no node
        numbers = chain[-1].numbers.tolist()
        request = gf.Request(
            [numbers[int(row)] for row in named.nodes],
            [(numbers[int(u)], numbers[int(v)]) for u, v in named.edges],
            {numbers[int(row)]: columns for row, columns in named.attributes.items()},
            labels=[numbers[int(row)] for row in named.labels],
        )
        left = chain[-1].without(request)
        if left.num_nodes < 6 or not left.train_mask.any():
            break
        chain.append(left)
    return chain


def judged_without_annex(
    outcome: gf.Outcome,
    change: Callable[[gf.Trained], gf.Trained] = lambda trained: trained,
    rewrite: Callable[[gf.Certificate], dict[str, Any]] = lambda certificate: {},
) -> gf.Verification:
    """An outcome verified by somebody who has no annex, so that no digest gives a cheat away."""
    certificate = dataclasses.replace(outcome.certificate, **rewrite(outcome.certificate))
    return gf.verify(certificate, change(outcome.trained), outcome.graph)


def with_lowered_leftover(trained: gf.Trained, factor: float) -> gf.Trained:
    """Whose history says less than it should of what the steps left of the gradient."""
    history = tuple(
        dataclasses.replace(
            entry,
            gradient_residual_bound=factor * present(entry.gradient_residual_bound),
            gradient_norm=factor * entry.gradient_norm,
        )
        for entry in trained.history
    )
    return dataclasses.replace(trained, history=history)


class WithNorm(OwnGCN):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.norm(super().forward(x, edge_index))


def changed_rows(module: nn.Module, graph: gf.Graph, request: gf.Request) -> set[int]:
    """The oracle: rows that stay and whose logits are not bit for bit the same."""
    after = graph.without(request)
    stays = torch.isin(graph.numbers, after.numbers).nonzero().flatten()
    before_logits, after_logits = (
        logits(module, graph)[stays],
        logits(module, with_ghosts(graph, after))[stays],
    )
    torch.testing.assert_close(logits(module, after), after_logits, rtol=1e-9, atol=1e-11)
    return set(stays[(before_logits != after_logits).any(dim=1)].tolist())


def logits(module: nn.Module, graph: gf.Graph) -> Tensor:
    with torch.no_grad():
        return module(*model_inputs(module, graph, dtype=torch.float64))


def dense_rows(module: nn.Module, graph: gf.Graph, dtype: Any = np.float64) -> np.ndarray:
    """`[P^h x, ...]`, with a 1 for the bias, of every node: fixed propagation by its definition."""
    assert isinstance(module, FixedPropagation)
    x = graph.x.to_dense().double().numpy().astype(dtype)
    if module.scale_rows:
        norms = np.sqrt((x * x).sum(axis=1))
        x = x / np.where(norms > 0, norms, 1)[:, None]
    n = graph.num_nodes
    a = np.eye(n, dtype=dtype)
    weights = [1.0] * graph.edge_index.shape[1] if graph.edge_weight is None else graph.edge_weight.tolist()
    for (u, v), weight in zip(graph.edge_index.T.tolist(), weights, strict=True):
        a[v, u] = weight
    degree = a.sum(axis=1)
    p = a / degree[:, None]
    if not isinstance(module, MeanSGC):
        p = a / np.sqrt(degree)[:, None] / np.sqrt(degree)[None, :]
    parts, power = [], x
    for hop in range(max(module.powers) + 1):
        power = p @ power if hop else power
        parts += [power] if hop in module.powers else []
    ones = [] if module.bias is None else [np.ones((n, 1), dtype=dtype)]
    return np.concatenate([*parts, *ones], axis=1)


def with_ghosts(graph: gf.Graph, after: gf.Graph) -> gf.Graph:
    """`after` with the removed nodes put back as isolated rows of zeros.

    They send nothing to anybody, but every tensor keeps its shape: a dense product may round the same row
    differently at another place, and "bit for bit" should mean the graph, not that.
    """
    rows = torch.isin(graph.numbers, after.numbers).nonzero().flatten()
    x = torch.zeros(graph.x.shape, dtype=graph.x.dtype)
    x[rows] = after.x.to_dense()
    x = x if graph.x.layout == torch.strided else x.to_sparse_csr()
    return dataclasses.replace(graph, x=x, edge_index=rows[after.edge_index], edge_weight=after.edge_weight)
