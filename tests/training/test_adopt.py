"""A model that was trained elsewhere comes in as it is, or is refused with one sentence."""

from __future__ import annotations

import copy
import functools
import re
from typing import Any

import pytest
import torch
from matplotlib import pyplot
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import BatchNorm, GCNConv

import graphforget as gf
from adopted_cases import RETRAIN, Normalised, PlainGCN, TwoLayers, half_loss, plain_loop, retrain_gcn
from cases import CLASSES, COLUMNS, any_values, random_graph
from graphforget.models.registry import build
from graphforget.training.own_training import retrained_by_own_function

pytestmark = pytest.mark.usefixtures("one_thread")


def pyg_data(*, loops: bool = True, directed: bool = False) -> Data:
    """A plain `Data` in float32, whose edges are in no special order."""
    data = random_graph(3, nodes=40, edges=60, directed=directed, sparse=False, unlabelled=0).to_pyg()
    edges = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    edges = torch.cat([edges, torch.arange(8).expand(2, 8)], dim=1) if loops else edges
    edges = edges[:, torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(1))]
    masks = {name: data[name] for name in ("train_mask", "val_mask", "test_mask")}
    return Data(x=data.x.float(), edge_index=edges, y=data.y, **masks)


def predictions(module: nn.Module, data: Data) -> Tensor:
    with torch.no_grad():
        return copy.deepcopy(module).eval()(data.x, data.edge_index)


@functools.cache
def trained_gcn() -> nn.Module:
    data = pyg_data()
    data.num_classes = CLASSES
    torch.manual_seed(0)
    return plain_loop(PlainGCN(), data)


# -- what comes in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", RETRAIN)
def test_predictions_are_those_of_the_module(name: str, directed: bool) -> None:
    data = pyg_data(directed=directed)
    assert (data.edge_index[0] == data.edge_index[1]).any()  # self-loops are honoured
    module = RETRAIN[name](data)
    before = {key: value.clone() for key, value in module.state_dict().items()}

    trained = gf.adopt(module, data)

    graph = gf.Graph.from_pyg(data)
    assert graph.directed == directed
    assert trained.graph_digest == graph.digest
    torch.testing.assert_close(trained.logits(graph).float(), predictions(module, data), rtol=1e-6, atol=1e-6)
    assert module.training  # it was in training mode, in float32, and still is
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert trained.recipe.adopted
    assert (trained.recipe.epochs, trained.recipe.polish_steps, trained.recipe.environment) == (0, 0, {})
    assert not trained.certifiable


def test_self_loops_of_the_data_change_the_predictions_and_are_kept() -> None:
    data = pyg_data()
    module = RETRAIN["sage"](data)
    without = pyg_data(loops=False)
    assert not torch.allclose(predictions(module, data), predictions(module, without), atol=1e-3)
    for one in (data, without):
        logits = gf.adopt(module, one).logits(gf.Graph.from_pyg(one)).float()
        torch.testing.assert_close(logits, predictions(module, one), rtol=1e-6, atol=1e-6)


def test_a_graph_comes_in_as_its_data_does() -> None:
    data = pyg_data()
    first, second = gf.adopt(trained_gcn(), data), gf.adopt(trained_gcn(), gf.Graph.from_pyg(data))
    assert first.graph_digest == second.graph_digest
    assert torch.equal(first.theta, second.theta)
    assert first.summary() == second.summary()


def test_the_settings_of_influence_steps_are_the_callers() -> None:
    trained = gf.adopt(trained_gcn(), pyg_data(), loss=half_loss, mu=0.01, seed=7, floor=0.1)
    recipe = trained.recipe
    assert (recipe.mu, recipe.seed, recipe.floor, recipe.sigma) == (0.01, 7, 0.1, 0.0)
    default = gf.adopt(trained_gcn(), pyg_data())
    assert default.recipe.mu == 5e-4
    graph = gf.Graph.from_pyg(pyg_data())
    gradient = trained.objective(graph).gradient(trained.theta)
    expected = 0.5 * (default.objective(graph).gradient(default.theta) - 5e-4 * default.theta) + 0.01 * default.theta
    torch.testing.assert_close(gradient, expected)
    assert trained.gradient_norm == pytest.approx(float(gradient.norm()))


def test_parts_of_the_data_that_a_graph_does_not_hold_are_named() -> None:
    data = pyg_data()
    data.pos = torch.rand(data.num_nodes, 2)
    data.edge_time = torch.rand(data.edge_index.shape[1])
    notes = gf.adopt(trained_gcn(), data).notes
    assert [name for note in notes for name in ("edge_time", "pos") if f"'{name}'" in note] == ["edge_time", "pos"]
    assert len(notes) == 2
    assert gf.adopt(trained_gcn(), pyg_data()).notes == ()


def test_a_batch_norm_is_a_certification_blocker_and_its_statistics_come_in() -> None:
    module = RETRAIN["normalised"](pyg_data())
    trained = gf.adopt(module, pyg_data())
    assert any("BatchNorm1d) carries statistics" in blocker for blocker in trained.certification_blockers)
    assert float(trained.module.norm.running_mean.abs().max()) > 0  # type: ignore[union-attr, operator]


# -- what is refused -------------------------------------------------------------------------------------------------


def refused(match: str, module: Any = None, data: Any = None, **options: Any) -> None:
    with pytest.raises(gf.InputError, match=match) as caught:
        gf.adopt(trained_gcn() if module is None else module, pyg_data() if data is None else data, **options)
    assert "\n" not in str(caught.value)


def test_repeated_edges_are_refused() -> None:
    data = pyg_data()
    data.edge_index = torch.cat([data.edge_index, data.edge_index[:, :3]], dim=1)
    refused("^the Data repeats 3 of its edges", data=data)
    data.edge_index = torch.unique(data.edge_index, dim=1)
    assert gf.adopt(trained_gcn(), data).notes == ()


def test_weights_that_the_module_does_not_take_are_refused() -> None:
    data = pyg_data()
    data.edge_weight = torch.ones(data.edge_index.shape[1])
    refused("has no parameter 'edge_weight' in its place", data=data)


def test_attributes_of_edges_are_refused() -> None:
    data = pyg_data()
    data.edge_attr = torch.ones(data.edge_index.shape[1])
    refused("has 'edge_attr'", data=data)


def test_another_number_of_classes_is_refused() -> None:
    data = pyg_data()
    data.num_classes = CLASSES + 1
    refused(f"^the module gives {CLASSES} logits a node and the graph has {CLASSES + 1} classes", data=data)


def test_another_number_of_columns_is_refused() -> None:
    refused("^the model does not run as model\\(x, edge_index\\) on 4 columns", PlainGCN(columns=COLUMNS + 1))


def test_a_reach_that_is_too_small_is_refused() -> None:
    refused("^the model's declared reach .* is too small", reach=gf.Reach(1))
    assert gf.adopt(trained_gcn(), pyg_data(), reach=gf.Reach(3)).reach.hops == 3


class DependsOnEdgeOrder(PlainGCN):
    """It reads the edge list as a list, so it predicts something else on the sorted one."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + 0.01 * edge_index[0, 0]


class Pair(PlainGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return super().forward(x, edge_index), x


def test_predictions_that_differ_on_the_graph_are_refused() -> None:
    refused("^the module's predictions on the Data and on its Graph differ by", DependsOnEdgeOrder())


def test_outputs_that_are_not_a_row_of_logits_are_refused() -> None:
    refused("^the model does not run as model", Pair())
    broken = copy.deepcopy(trained_gcn())
    with torch.no_grad():
        next(broken.parameters()).fill_(float("inf"))
    refused("not finite", broken)


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (nn.Identity(), "^the model has no trainable parameter"),
        (build("gcn", columns=COLUMNS, classes=CLASSES), "^the module is a GCN of graphforget, which gf.train trains"),
        (build("sgc", columns=COLUMNS, classes=CLASSES), "^the module is a SGC of graphforget"),
        ("gcn", "^the model is a str, a trained torch.nn.Module is needed"),
        (PlainGCN, "^the model is a type"),
        (TwoLayers(GCNConv(COLUMNS, 8, cached=True), GCNConv(8, CLASSES)), "cached=True"),
    ],
)
def test_what_is_no_trained_module_is_refused(module: Any, match: str) -> None:
    refused(match, module)


@pytest.mark.parametrize("data", any_values(5, "cora", torch.eye(3), HeteroData()))
def test_what_is_no_graph_is_refused(data: Any) -> None:
    refused("Data", data=data)


@pytest.mark.parametrize(
    "options",
    [{"mu": 0.0}, {"mu": -1.0}, {"mu": "much"}, {"mu": float("nan")}, {"seed": -1}, {"floor": 2.0}, {"floor": True}],
)
def test_a_setting_out_of_its_range_is_refused(options: dict[str, Any]) -> None:
    refused(next(iter(options)), **options)


# -- the training function -------------------------------------------------------------------------------------------

GLOBAL_DATA = pyg_data()


def reads_a_global(data: Data) -> nn.Module:
    return plain_loop(PlainGCN(), GLOBAL_DATA)


class Trainer:
    def __init__(self, **kept: Any) -> None:
        self.kept = kept

    def retrain(self, data: Data) -> nn.Module:
        return plain_loop(PlainGCN(), data)


def closure_over(value: Any) -> Any:
    return lambda data: plain_loop(PlainGCN(), data) if value is not None else None


@pytest.mark.parametrize(
    ("retrain", "match"),
    [
        (reads_a_global, "^retrain reaches a tensor in 'GLOBAL_DATA"),
        (closure_over(torch.ones(3)), "^retrain reaches a tensor in 'value'"),
        (closure_over(PlainGCN()), "^retrain reaches a model .* in 'value'"),
        (closure_over(random_graph(1)), "^retrain reaches a tensor in 'value.x'"),
        (functools.partial(plain_loop, PlainGCN()), "^retrain reaches a model .* in 'args"),
        (Trainer(rows=[0.123456, 0.654321]).retrain, "^retrain reaches a dict of numbers in '__self__.kept'"),
        (PlainGCN(), "^retrain is a PlainGCN, a function"),
        (5, "^retrain is a int, a function"),
    ],
)
def test_a_function_that_reaches_data_is_refused(retrain: Any, match: str) -> None:
    refused(match, retrain=retrain)


PATTERN = re.compile("[a-z]+")


def uses_other_libraries(data: Data) -> nn.Module:
    if PATTERN.match("plot"):
        pyplot.plot([1.0])
    return plain_loop(PlainGCN(), data)


@pytest.mark.parametrize(
    "retrain",
    [retrain_gcn, Trainer(lr=0.01).retrain, closure_over(0.3), closure_over("adam"), uses_other_libraries],
)
def test_a_function_with_settings_is_accepted(retrain: Any) -> None:
    assert gf.adopt(trained_gcn(), pyg_data(), retrain=retrain).retrain is retrain


def test_the_function_receives_the_graph_and_draws_by_the_seed_alone() -> None:
    graph = gf.Graph.from_pyg(pyg_data())
    trained = gf.adopt(trained_gcn(), graph, retrain=retrain_gcn)
    state = torch.random.get_rng_state()
    with torch.no_grad():
        one, same, other = (retrained_by_own_function(trained, graph, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(one.theta, same.theta)
    assert not torch.equal(one.theta, other.theta)
    assert one.recipe.environment
    assert one.seconds > 0


def test_the_data_of_the_function_names_nobody_and_is_its_own() -> None:
    graph = random_graph(3, nodes=40, edges=60, sparse=False)
    names = [f"person-{row}" for row in range(graph.num_nodes)]
    fields: Any = {"x": graph.x, "y": graph.y, "train_mask": graph.train_mask, "test_mask": graph.test_mask}
    graph = gf.Graph.create(edges=graph.edge_index, subject_ids=names, **fields)

    def spoils_its_input(data: Data) -> nn.Module:
        assert set(data.keys()) == {
            *("x", "edge_index", "y", "train_mask", "val_mask", "test_mask", "node_numbers", "num_classes")
        }
        module = plain_loop(PlainGCN(), data)
        data.x.zero_()
        data.edge_index.zero_()
        return module

    digest = graph.digest
    trained = gf.adopt(trained_gcn(), graph, retrain=spoils_its_input)
    retrained_by_own_function(trained, graph, seed=0)
    assert gf.Graph.create(edges=graph.edge_index, subject_ids=names, **fields).digest == digest


# -- what the function returns ---------------------------------------------------------------------------------------


def other_class(data: Data) -> nn.Module:
    return plain_loop(Normalised(), data)


def other_shape(data: Data) -> nn.Module:
    return plain_loop(PlainGCN(hidden=5), data)


def no_module(data: Data) -> Any:
    return plain_loop(PlainGCN(), data).state_dict()


def fails(data: Data) -> Any:
    raise KeyError("no such column")


def more_buffers(data: Data) -> nn.Module:
    module = plain_loop(PlainGCN(), data)
    module.register_buffer("mean", data.x.mean(dim=0))
    return module


@pytest.mark.parametrize(
    ("retrain", "match"),
    [
        (other_class, "^retrain returned a Normalised, a trained PlainGCN is needed$"),
        (other_shape, r"^retrain returned a PlainGCN whose 'first.bias' has shape \(5,\), \(8,\) is needed$"),
        (more_buffers, r"^retrain returned a PlainGCN whose 'mean' has shape \(4,\), None is needed$"),
        (no_module, "^retrain returned a OrderedDict, a trained PlainGCN is needed$"),
        (fails, "^retrain failed with KeyError: 'no such column'$"),
    ],
)
def test_a_module_that_does_not_fit_is_refused(retrain: Any, match: str) -> None:
    graph = gf.Graph.from_pyg(pyg_data())
    trained = gf.adopt(trained_gcn(), graph, retrain=retrain)
    with pytest.raises(gf.InputError, match=match):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]))


def frozen_after_training(data: Data) -> nn.Module:
    return plain_loop(PlainGCN(), data).requires_grad_(False).half()


def diverges(data: Data) -> nn.Module:
    module = plain_loop(PlainGCN(), data)
    with torch.no_grad():
        next(module.parameters()).fill_(float("nan"))
    return module


def test_a_module_that_was_frozen_or_rounded_still_fits() -> None:
    graph = gf.Graph.from_pyg(pyg_data())
    outcome = gf.unlearn(gf.adopt(trained_gcn(), graph, retrain=frozen_after_training), graph, gf.Request(nodes=[4]))
    assert outcome.level == "exact"
    assert outcome.trained.theta.numel() == sum(p.numel() for p in trained_gcn().parameters())
    assert outcome.trained.theta.dtype == torch.float64


def test_a_module_that_diverged_is_refused() -> None:
    graph = gf.Graph.from_pyg(pyg_data())
    trained = gf.adopt(trained_gcn(), graph, retrain=diverges)
    with pytest.raises(gf.Refused, match="not finite, so nothing was released"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]))


def test_a_batch_norm_of_pyg_is_a_blocker_too() -> None:
    module = TwoLayers(GCNConv(COLUMNS, 8), nn.Sequential())
    module.second = _Normed()
    trained = gf.adopt(module, pyg_data())
    assert any("carries statistics of the training data" in blocker for blocker in trained.certification_blockers)


class _Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = BatchNorm(8), GCNConv(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(self.norm(x), edge_index)
