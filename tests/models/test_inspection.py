"""The doctor for models: what it finds, and what it does not let pass."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import ChebConv, DirGNNConv, GCNConv, GraphNorm, SAGEConv, global_mean_pool
from torch_geometric.utils import sort_edge_index

import graphforget as gf
from cases import CLASSES, COLUMNS, OwnGCN, WithNorm, make
from graphforget.linalg.sparse import Matrix
from graphforget.models.gcn import GCN
from graphforget.models.parameters import flatten


class WithPooling(OwnGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = super().forward(x, edge_index)
        return out + global_mean_pool(out, torch.zeros(len(out), dtype=torch.int64))


class ByRow(OwnGCN):
    """A table indexed by the row, which a deletion shifts."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + self.table(torch.arange(len(x)))


class BySize(OwnGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) * len(x)


class Gated(OwnGCN):
    """Global, behind a gate that starts closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = super().forward(x, edge_index)
        return out + self.gate * out.mean(dim=0)


class Standardised(OwnGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward((x - x.amin(0)) / (x.amax(0) - x.amin(0)), edge_index)


class Sorted(nn.Module):
    """PyG's LSTM aggregation pads every neighbourhood to the largest of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SAGEConv(COLUMNS, CLASSES, aggr="lstm")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, sort_edge_index(edge_index, sort_by_row=False))


class WithBuffer(OwnGCN):
    def __init__(self, buffer: Tensor) -> None:
        super().__init__()
        self.register_buffer("of_the_data", buffer)


class WithAttribute(OwnGCN):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.hidden = value


class WithPrivateAttribute(OwnGCN):
    def __init__(self) -> None:
        super().__init__()
        self._mean = torch.zeros(3)


class Remembers(OwnGCN):
    """Keeps the first graph it sees: a deletion would be a silent no-op."""

    def __init__(self) -> None:
        super().__init__()
        self._first: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self._first is None:
            self._first = edge_index
        return super().forward(x, self._first)


class ByHand(nn.Module):
    """Passes messages without PyG, so that nobody can count them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(COLUMNS, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.linear(x)
        return h.index_add(0, edge_index[1], h[edge_index[0]])


class Noisy(OwnGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + torch.rand(len(x), CLASSES)


class One(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, edge_index)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hops", "normalised"),
    [
        ("sgc", 2, True),
        ("sgc-3", 3, True),
        ("sign", 2, True),
        ("gcn", 2, True),
        ("gat", 2, False),
        ("gin", 2, False),
        ("sage", 2, False),
        ("own-gcn", 2, True),
        ("own-mixture", 2, False),
        ("own-appnp", 3, True),
        ("own-mlp", 0, False),
    ],
)
def test_the_reach_is_found(name: str, hops: int, normalised: bool) -> None:
    result = gf.inspect(make(name), columns=COLUMNS)
    assert result.reach == gf.Reach(hops, degree_normalised=normalised)
    assert result.certification_blockers == ()


FAR = "a change reaches nodes more than"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (WithNorm(nn.BatchNorm1d(CLASSES)), "layer 'norm' (BatchNorm1d) carries statistics"),
        (WithNorm(GraphNorm(CLASSES)), FAR),
        (WithPooling(), FAR),
        (ByRow(), FAR),
        (BySize(), FAR),
        (Gated(), FAR),
        (Standardised(), FAR),
        (Sorted(), FAR),
        (WithBuffer(torch.zeros(CLASSES)), "buffer 'of_the_data' may carry"),
        (WithBuffer(torch.zeros(2, 3, dtype=torch.int64)), "buffer 'of_the_data' may carry"),
        (WithAttribute(torch.zeros(3)), "attribute 'hidden' of the module (WithAttribute) holds a tensor"),
        (WithAttribute([{"a": nn.Linear(1, 1)}]), "attribute 'hidden' of the module"),
        (WithPrivateAttribute(), "attribute '_mean' of the module"),
        (OwnGCN().requires_grad_(False), "parameter 'first.bias' is frozen"),
        (Noisy(), "different outputs in eval mode"),
        (Remembers(), "depends on a graph it has seen before"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_rules_out_a_certificate_is_named_and_not_linearised(module: nn.Module, words: str) -> None:
    assert words in gf.inspect(module, columns=COLUMNS).certification_blockers[0]
    with pytest.raises(gf.InputError, match="cannot be linearised"):
        gf.linearised(copy.deepcopy(module), seed=0, columns=COLUMNS)


def test_hooks_are_named() -> None:
    module = OwnGCN()
    module.first.register_forward_hook(lambda *_: None)
    assert "has hooks" in gf.inspect(module, columns=COLUMNS).certification_blockers[0]


def test_a_subclass_of_a_built_in_model_is_not_believed() -> None:
    class Pooled(GCN):
        def logits(self, x: Matrix, propagation: object) -> Tensor:
            out = super().logits(x, propagation)
            return out + out.mean(dim=0)

    with pytest.raises(gf.InputError, match="declared reach .* is too small"):
        gf.inspect(Pooled(COLUMNS, CLASSES), columns=COLUMNS)


def test_global_models_reach_everything() -> None:
    assert gf.inspect(WithPooling(), columns=COLUMNS).reach == gf.Reach(None)


def test_messages_that_cannot_be_counted_reach_everything_unless_declared() -> None:
    assert gf.inspect(ByHand(), columns=COLUMNS).reach == gf.Reach(None)
    declared = gf.Reach(1, degree_normalised=False)
    assert gf.inspect(ByHand(), columns=COLUMNS, declared=declared).reach == declared


@pytest.mark.parametrize(
    ("module", "reach"),
    [
        (ByHand(), gf.Reach(0)),
        (OwnGCN(), gf.Reach(2, degree_normalised=False)),
    ],
)
def test_a_declared_reach_that_is_too_small_is_refused(module: nn.Module, reach: gf.Reach) -> None:
    with pytest.raises(gf.InputError, match="declared reach .* is too small"):
        gf.inspect(module, columns=COLUMNS, declared=reach)


def test_a_declared_reach_is_widened_where_messages_go_against_the_edges() -> None:
    module = One(GCNConv(COLUMNS, CLASSES, flow="target_to_source"))
    assert gf.inspect(module, columns=COLUMNS, declared=gf.Reach(1)).reach == gf.Reach(1, both_ways=True)


def test_the_reach_of_built_in_models_is_not_declared() -> None:
    with pytest.raises(gf.InputError, match="the reach of SGC is known"):
        gf.inspect(make("sgc"), columns=COLUMNS, declared=gf.Reach(0))


@pytest.mark.parametrize("hops", [-1, 2.0, True, "2"])
def test_a_reach_is_a_whole_number_or_none(hops: object) -> None:
    with pytest.raises(gf.InputError, match="hops is"):
        gf.Reach(hops)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "layer",
    [
        GCNConv(COLUMNS, CLASSES, flow="target_to_source"),
        DirGNNConv(SAGEConv(COLUMNS, CLASSES)),
        ChebConv(COLUMNS, CLASSES, K=3),
        ChebConv(COLUMNS, CLASSES, K=2, normalization="rw"),
    ],
    ids=["reversed", "both", "cheb", "cheb-rw"],
)
def test_layers_that_look_against_the_edges_reach_both_ways(layer: nn.Module) -> None:
    result = gf.inspect(One(layer), columns=COLUMNS)
    assert result.reach.both_ways
    assert result.certification_blockers == ()


def test_a_layer_that_caches_the_graph_is_refused() -> None:
    module = OwnGCN()
    module.first.cached = True
    with pytest.raises(gf.InputError, match="'first' .* cached=True"):
        gf.inspect(module, columns=COLUMNS)


def test_a_module_that_does_not_run_is_refused_in_one_sentence() -> None:
    with pytest.raises(gf.InputError, match=r"does not run as model\(x, edge_index\)"):
        gf.inspect(nn.Linear(COLUMNS, CLASSES), columns=COLUMNS)


def test_a_wrong_number_of_outputs_is_refused() -> None:
    with pytest.raises(gf.InputError, match="output of shape .* x 9 is needed"):
        gf.inspect(OwnGCN(), columns=COLUMNS, classes=9)


def test_inspecting_leaves_the_module_as_it_was() -> None:
    module = OwnGCN().train()
    before = flatten(module)
    gf.inspect(module, columns=COLUMNS)
    assert module.training
    assert torch.equal(before, flatten(module))
    assert not module.first._propagate_forward_pre_hooks
