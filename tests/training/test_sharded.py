"""Ensembles on shards: parts of a graph, what each model is trained on, how they answer, what is kept of them."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import graphforget as gf
from cases import CLASSES, COLUMNS, graphs, present, random_graph, requests
from graphforget.cli import app as cli
from graphforget.ensembles.aggregation import AGGREGATIONS, learned_weights
from graphforget.ensembles.partition import PARTITIONS, kmeans_partition, random_partition
from graphforget.models.inputs import model_inputs
from graphforget.models.parameters import call_with, flatten
from graphforget.models.registry import build
from graphforget.models.sharded import Sharded
from graphforget.runs.history import read_history
from graphforget.runs.layout import DamagedRun
from graphforget.runs.write import rewrite_checksums
from graphforget.training.objective import Objective
from graphforget.training.sharded_objective import ShardedObjective, shard_nodes, shard_part
from graphforget.training.shards import _embedding
from sharded_cases import SHORT, alone, ensemble, same, short, small, trained_on

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = ("sharded-sgc", "sharded-gcn", "sharded-gat", "sharded-gin", "sharded-sage")


@pytest.mark.parametrize("model", MODELS)
def test_nodes_too_far_to_be_felt_are_left_out_of_a_shard_and_change_nothing(model: str) -> None:
    """A chain of nodes that do not train hangs on a pair that does: its far end weighs in no loss and no degree."""
    n = 12
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    x = torch.rand(n, COLUMNS, generator=torch.Generator().manual_seed(0)) + 0.1
    train = torch.arange(n) < 3
    graph = gf.Graph.create(
        x=x, edges=edges, y=torch.arange(n) % CLASSES, train_mask=train, test_mask=~train, num_classes=CLASSES
    )
    trained = gf.train(graph, model, seed=1, shards=1, epochs=3)
    module = ensemble(trained)
    part = shard_part(graph, module, 0)
    assert part.num_nodes == 3 + present(module.reach.hops) + (1 if module.reach.degree_normalised else 0) < n
    full, near = (Objective(module.models[0], each, mu=trained.recipe.mu, loss=trained.loss) for each in (graph, part))
    theta = flatten(module.models[0])
    (value, gradient), (other, also) = full.value_and_gradient(theta), near.value_and_gradient(theta)
    assert value == pytest.approx(other, rel=1e-13)
    torch.testing.assert_close(gradient, also, rtol=1e-11, atol=1e-14)


# -- a part of a graph -----------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(graph=graphs(), data=st.data())
def test_induced_against_a_loop(graph: gf.Graph, data: st.DataObject) -> None:
    n = graph.num_nodes
    names = tuple(f"who {row}" for row in range(n))
    graph = dataclasses.replace(graph, subject_ids=names, numbers=3 * torch.arange(n) + 5)
    keep = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    part = graph.induced(keep)
    rows = [row for row in range(n) if keep[row]]
    assert part.num_nodes == len(rows)
    assert part.subject_ids == tuple(names[row] for row in rows)
    assert part.numbers.tolist() == [3 * row + 5 for row in rows]
    assert part.x.layout == graph.x.layout
    dense = graph.x.to_dense()
    for new, old in enumerate(rows):
        assert torch.equal(part.x.to_dense()[new], dense[old])
        for name in ("y", "train_mask", "val_mask", "test_mask"):
            assert getattr(part, name)[new] == getattr(graph, name)[old]
    edges = [
        (rows.index(s), rows.index(t)) for s, t in graph.edge_index.T.tolist() if keep[s].item() and keep[t].item()
    ]
    assert [tuple(edge) for edge in part.edge_index.T.tolist()] == edges
    assert (part.directed, part.num_classes, part.num_columns) == (graph.directed, graph.num_classes, COLUMNS)
    assert graph.num_nodes == n


REACHES = [
    gf.Reach(hops, degree_normalised=normalised, both_ways=both)
    for hops in (None, 0, 1, 2, 3)
    for normalised in (False, True)
    for both in (False, True)
]


def restricted(request: gf.Request, keep: Tensor) -> gf.Request | None:
    """What it names on the kept nodes; the graph's numbers are its rows."""
    nodes = [node for node in request.nodes if keep[int(node)]]
    edges = [(u, v) for u, v in request.edges if keep[int(u)] and keep[int(v)]]
    attributes = {node: columns for node, columns in request.attributes.items() if keep[int(node)]}
    labels = [node for node in request.labels if keep[int(node)]]
    named = nodes or edges or attributes or labels
    return gf.Request(nodes, edges, attributes, labels=labels) if named else None


@settings(max_examples=80, deadline=None)
@given(data=st.data(), reach=st.sampled_from(REACHES))
def test_a_footprint_inside_is_that_of_the_part(data: st.DataObject, reach: gf.Reach) -> None:
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    keep = torch.tensor(data.draw(st.lists(st.booleans(), min_size=graph.num_nodes, max_size=graph.num_nodes)))
    result = gf.footprint(graph, request, reach, inside=keep)
    rows, part, on_part = keep.nonzero().flatten(), graph.induced(keep), restricted(request, keep)
    if on_part is None:
        assert result.empty
        assert not result.reached.numel()
        return
    try:
        on_part.resolve(part)
    except gf.InputError:  # no training node would be left in the part
        assume(False)
    expected = gf.footprint(part, on_part, reach)
    for name in ("removed", "affected", "reached"):
        assert torch.equal(getattr(result, name), rows[getattr(expected, name)]), name


# -- the ensemble ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("model", MODELS)
def test_it_answers_as_its_models_one_by_one(model: str, aggregation: str, sparse: bool) -> None:
    graph = random_graph(5, sparse=sparse)
    torch.manual_seed(1)
    options = {k: v for k, v in short(model).items() if k != "epochs"}
    module = build(model, columns=COLUMNS, classes=CLASSES, aggregation=aggregation, **options).double().eval()
    assert isinstance(module, Sharded)
    with torch.no_grad():
        for parameter in module.models.parameters():
            parameter.copy_(torch.randn_like(parameter))
        module.weights.copy_(torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64))
        answers = [one(graph.x, graph.edge_index).softmax(dim=1) for one in module.models]
        result = module(graph.x, graph.edge_index)
        prepared = module(*module.prepare(graph.x, graph.edge_index))
        from_inputs = module(*model_inputs(module, graph, dtype=torch.float64))
    assert torch.equal(result, prepared)
    assert torch.equal(result, from_inputs)
    assert result.shape == (graph.num_nodes, CLASSES)
    for node in range(graph.num_nodes):
        mean = [sum(w * float(a[node, c]) for w, a in zip((0.5, 0.2, 0.3), answers, strict=True)) for c in range(3)]
        if aggregation == "majority":
            votes = [0.0] * CLASSES
            for weight, answer in zip((0.5, 0.2, 0.3), answers, strict=True):
                votes[int(answer[node].argmax())] += weight
            best = max(range(CLASSES), key=lambda c: (round(votes[c], 9), mean[c]))
            assert int(result[node].argmax()) == best
            torch.testing.assert_close(result[node].exp(), torch.tensor(votes).double(), rtol=0, atol=2e-6)
        else:
            torch.testing.assert_close(result[node].exp(), torch.tensor(mean, dtype=torch.float64))


def test_weights_that_noise_has_spoilt_still_answer() -> None:
    module = build("sharded-gcn", columns=COLUMNS, classes=CLASSES, shards=3, hidden=3).double().eval()
    assert isinstance(module, Sharded)
    graph = small()
    with torch.no_grad():
        module.weights.copy_(torch.tensor([-1.0, 2.0, 0.0]))
        only = module.models[1](graph.x, graph.edge_index).log_softmax(dim=1)
        torch.testing.assert_close(module(graph.x, graph.edge_index), only)
        module.weights.copy_(torch.tensor([-1.0, -2.0, 0.0]))
        spoilt = module(graph.x, graph.edge_index)
        module.weights.fill_(1 / 3)
        torch.testing.assert_close(module(graph.x, graph.edge_index), spoilt)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "the number of shards is 0, a whole number from 1 is needed"),
        ({"shards": -2}, "the number of shards is -2"),
        ({"shards": 2.5}, "the number of shards is 2.5"),
        ({"shards": "3"}, "the number of shards is '3'"),
        ({"shards": True}, "the number of shards is True"),
        ({"shards": None}, "the number of shards is None"),
        ({"partition": "metis"}, "there is no partition 'metis', only random, bekm, blpa"),
        ({"aggregation": "median"}, "there is no aggregation 'median', only mean, majority, learned"),
        ({"aggregation": ["mean"]}, r"there is no aggregation \['mean'\]"),
        ({"shards": 99, "partition": "blpa"}, "there are 99 shards and only 27 training nodes"),
        ({"shards": 99, "partition": "bekm"}, "there are 99 shards and only 27 training nodes"),
        ({"objective_noise": 1.0}, "an ensemble on shards takes no noise in its objective"),
    ],
)
def test_bad_options_are_told_in_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(gf.InputError, match=message) as caught:
        gf.train(small(), "sharded-gcn", **(SHORT | options))
    assert "\n" not in str(caught.value)


def test_the_command_line_trains_an_ensemble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["graphforget", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    folder = str(tmp_path / "run")
    assert run("train", "--model", "sharded-gcn", "--epochs", "1", "--hidden", "2", "--out", folder) == 0
    trained, graph = gf.load_run(folder)
    assert ensemble(trained).shards == 10
    assert (ensemble(trained).shard_of >= 0).equal(graph.train_mask)
    capsys.readouterr()
    assert run("train", "--model", "sharded-sgc", "--hidden", "2") == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "model 'sharded-sgc' has no option" in message
    assert "Traceback" not in message


@pytest.mark.slow
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_trained_on_its_own_shard_alone(model: str, partition: str) -> None:
    trained, graph = trained_on(model, partition), small()
    module = ensemble(trained)
    for shard in range(module.shards):
        assert same(module.models[shard], alone(trained, graph, shard, seed=2)), shard
    assert not same(module.models[0], module.models[1])
    assert not same(module.models[1], module.models[2])
    assert torch.equal((module.shard_of >= 0), graph.train_mask)
    assert int(module.shard_of.max()) < 3
    assert torch.equal(trained.theta, flatten(module))
    assert not trained.strongly_convex
    assert trained.recipe.sigma == 0


def test_another_shards_node_has_no_influence() -> None:
    """Whatever becomes of a training node, the models of the other shards are as they were."""
    graph, trained = small(), trained_on()
    row = int(graph.train_rows[5])
    x = graph.x.to_dense().clone()
    x[row] = torch.tensor([9.0, -3.0, 2.0, 7.0])
    y = graph.y.clone()
    y[row] = (y[row] + 1) % CLASSES
    other = gf.train(dataclasses.replace(graph, x=x.to_sparse_csr(), y=y), "sharded-gcn", seed=2, **SHORT)
    own = int(ensemble(trained).shard_of[row])
    unchanged = [same(a, b) for a, b in zip(ensemble(trained).models, ensemble(other).models, strict=True)]
    assert unchanged == [shard != own for shard in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("partition", PARTITIONS)
def test_by_seed_and_without_touching_the_random_state(partition: str) -> None:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    settings: dict[str, Any] = {"partition": partition, "aggregation": "learned"} | SHORT
    first = gf.train(small(), "sharded-gcn", seed=4, **settings)
    assert torch.equal(state, torch.random.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state(legacy=False)["state"]["key"])  # noqa: NPY002
    torch.manual_seed(77)
    second, other = (gf.train(small(), "sharded-gcn", seed=s, **settings) for s in (4, 5))
    assert torch.equal(first.theta, second.theta)
    assert torch.equal(ensemble(first).shard_of, ensemble(second).shard_of)
    assert not torch.equal(first.theta, other.theta)
    assert not torch.equal(ensemble(first).shard_of, ensemble(other).shard_of)


@pytest.mark.parametrize("seed", [2**62, 2**63 - 1])
def test_every_seed_that_other_models_take(seed: int) -> None:
    for model in ("gcn", "sharded-gcn"):
        options = {k: v for k, v in SHORT.items() if k != "shards" or model != "gcn"}
        assert gf.train(small(), model, seed=seed, **options).recipe.seed == seed


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_empty_shards_count_for_nothing(aggregation: str) -> None:
    graph = random_graph(1, nodes=10)
    trained = gf.train(graph, "sharded-gcn", aggregation=aggregation, **(SHORT | {"shards": 10}))
    module = ensemble(trained)
    filled = set(module.shard_of[graph.train_rows].tolist())
    assert 0 < len(filled) < 10
    empty = [shard for shard in range(10) if shard not in filled]
    assert not module.weights[empty].any()
    assert float(module.weights.detach().sum()) == pytest.approx(1)
    if aggregation != "learned":
        torch.testing.assert_close(module.weights[sorted(filled)], torch.full((len(filled),), 1 / len(filled)).double())
    before = trained.logits(graph)
    assert not before.isnan().any()
    with torch.no_grad():
        for parameter in module.models[empty[0]].parameters():
            parameter.fill_(3.0)
    assert torch.equal(trained.logits(graph), before)


@pytest.mark.slow
@pytest.mark.parametrize("partition", PARTITIONS)
def test_there_are_at_most_as_many_shards_as_training_nodes(partition: str) -> None:
    graph = random_graph(1, nodes=10)
    m = graph.train_rows.numel()
    assert gf.train(graph, "sharded-gcn", partition=partition, **(SHORT | {"shards": m})).recipe.options["shards"] == m
    for shards in (m + 1, 1000):
        with pytest.raises(gf.InputError, match=f"^there are {shards} shards and only {m} training nodes$"):
            gf.train(graph, "sharded-gcn", partition=partition, **(SHORT | {"shards": shards}))


def test_the_weights_of_the_shards() -> None:
    graph = small()
    rows = graph.train_rows
    for aggregation in AGGREGATIONS:
        module = ensemble(trained_on(aggregation=aggregation))
        if aggregation == "learned":
            with torch.no_grad():
                answers = torch.stack([m(graph.x, graph.edge_index).log_softmax(dim=1) for m in module.models])
            torch.testing.assert_close(module.weights.detach(), learned_weights(answers[:, rows], graph.y[rows]))
            assert float(module.weights.detach().std()) > 1e-3
        else:
            torch.testing.assert_close(module.weights.detach(), torch.full((3,), 1 / 3, dtype=torch.float64))


def test_a_loss_that_holds_a_tensor_is_an_obstacle() -> None:
    weights = torch.bincount(small().y[small().train_rows]).double()

    def weighted(logits: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, labels, weight=weights.to(logits), reduction="none")

    trained = gf.train(small(), "sharded-gcn", loss=weighted, **SHORT)
    assert trained.certification_blockers == ("the loss 'weighted' holds a tensor, which may carry data",)
    for method in ("grapheraser", "retrain"):
        node = int(small().train_rows[4])
        outcome = gf.unlearn(trained, small(), gf.Request(nodes=[node]), method=method)
        assert outcome.level == "empirical"
        assert gf.plan(trained, small(), gf.Request(nodes=[node]), method=method).level == "empirical"


# -- which node goes where -------------------------------------------------------------------------------------------


def test_the_random_shard_of_a_node_is_that_of_its_number() -> None:
    graph = small()
    numbers = 7 * torch.arange(40) + 3
    trained = gf.train(dataclasses.replace(graph, numbers=numbers), "sharded-gcn", seed=2, **SHORT)
    for row in graph.train_rows.tolist():
        expected = random_partition(numbers[row : row + 1], shards=3, seed=2)
        assert ensemble(trained).shard_of[row] == expected[0]


def shuffled_clusters() -> tuple[gf.Graph, dict[int, int]]:
    """Two cliques of training nodes that lie late and mixed among the rows, with a test node before each of them."""
    rng = np.random.default_rng(0)
    n, members = 40, list(range(1, 40, 2))
    side = {row: int(s) for row, s in zip(members, rng.permutation(np.arange(20) % 2), strict=True)}
    edges = [(u, v) for u in members for v in members if u < v and side[u] == side[v]]
    edges += [(row - 1, row) for row in members]
    x = torch.from_numpy(rng.normal(size=(n, COLUMNS)) * 0.05)
    y = torch.zeros(n, dtype=torch.int64)
    for row in members:
        x[row, side[row]] += 1
        y[row] = side[row]
    train = torch.zeros(n, dtype=torch.bool)
    train[members] = True
    given: dict[str, Any] = {"train_mask": train, "test_mask": ~train, "num_classes": CLASSES}
    return gf.Graph.create(x=x, edges=torch.tensor(edges).T, y=y, **given), side


@pytest.mark.parametrize("seed", range(3))
def test_bekm_splits_nodes_and_not_positions(seed: int) -> None:
    """The released code takes positions in the list of training nodes for node ids: test nodes would be in shards."""
    graph, side = shuffled_clusters()
    shard_of = ensemble(gf.train(graph, "sharded-gcn", partition="bekm", seed=seed, **(SHORT | {"shards": 2}))).shard_of
    assert (shard_of[~graph.train_mask] == -1).all()
    together = {s: {int(shard_of[row]) for row in side if side[row] == s} for s in (0, 1)}
    assert sorted(map(len, together.values())) == [1, 1]
    assert together[0] != together[1]


def test_blpa_splits_nodes_and_not_positions() -> None:
    """Two cliques, half in either shard at first: where a whole clique has come together it is a clique's nodes."""
    graph, side = shuffled_clusters()
    cut = []
    for seed in range(6):
        options = SHORT | {"shards": 2, "epochs": 1}
        shard_of = ensemble(gf.train(graph, "sharded-gcn", partition="blpa", seed=seed, **options)).shard_of
        assert (shard_of[~graph.train_mask] == -1).all()
        assert (shard_of[graph.train_mask] >= 0).all()
        for s in (0, 1):
            inside = [int(shard_of[row]) for row in side if side[row] == s]
            cut.append(max(inside.count(0), inside.count(1)) / len(inside))
    assert np.mean(cut) > 0.75  # a split that knows nothing of the edges: about 0.6


def test_bekm_on_the_patients() -> None:
    graph = gf.load("patients")
    trained = gf.train(graph, "sharded-gcn", partition="bekm", shards=4, hidden=4, epochs=2)
    shard_of = ensemble(trained).shard_of
    assert torch.equal(shard_of >= 0, graph.train_mask)
    m = graph.train_rows.numel()
    sizes = torch.bincount(shard_of[graph.train_rows], minlength=4)
    assert int(sizes.sum()) == m
    assert int(sizes.max()) <= math.ceil(m / 4 + 0.005 * (m - m / 4)) + 1
    points = _embedding(graph.induced(graph.train_mask), seed=0, progress=lambda *_: None)
    assert torch.equal(shard_of[graph.train_rows], kmeans_partition(points, shards=4, seed=0))
    # alike in the embedding, whose classes the labels are: far purer than a random split
    purity = [int(torch.bincount(graph.y[shard_of == s]).max()) for s in range(4)]
    assert sum(purity) / m > 0.8 > 0.7 > float(torch.bincount(graph.y[graph.train_rows]).max()) / m


# -- its objective ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sharded-sgc", "sharded-gcn"])
@pytest.mark.parametrize("shards", [1, 3, 10])
def test_the_objective_is_the_sum_over_the_shards(model: str, shards: int) -> None:
    graph = random_graph(1, nodes=10)  # 10 shards: some are empty
    trained = gf.train(graph, model, aggregation="learned", **(short(model) | {"shards": shards}))
    module, mu = ensemble(trained), trained.recipe.mu
    objective = trained.objective(graph)
    assert isinstance(objective, ShardedObjective)
    torch.manual_seed(0)
    theta = trained.theta + 0.3 * torch.randn_like(trained.theta)
    assert objective.size == theta.numel()

    leaf, at, total = theta.clone().requires_grad_(), shards, torch.zeros((), dtype=torch.float64)
    for shard in range(shards):
        one = module.models[shard]
        size = flatten(one).numel()
        own = leaf[at : at + size]
        at += size
        part = graph.induced(shard_nodes(graph, module.shard_of, shard))
        if part.train_mask.any():
            logits = call_with(one, own, part.x, part.edge_index)[part.train_rows]
            losses = nn.functional.cross_entropy(logits, part.y[part.train_rows])
            total = total + losses + 0.5 * mu * own.square().sum()
    assert at == theta.numel()
    (expected,) = torch.autograd.grad(total, leaf)
    value, gradient = objective.value_and_gradient(theta)
    assert value == pytest.approx(float(total.detach()), rel=1e-12)
    assert objective.value(theta) == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(objective.gradient(theta), gradient)
    assert not gradient[:shards].any()
    assert gradient[shards:].any()
    value, gradient = objective.value_and_gradient(trained.theta)
    assert trained.objective_value == pytest.approx(value, rel=1e-12)
    assert trained.gradient_norm == pytest.approx(float(gradient.norm()), rel=1e-9)


def test_an_objective_on_a_graph_of_another_size() -> None:
    with pytest.raises(gf.InputError, match="trained on a graph with another number of nodes"):
        trained_on().objective(random_graph(1))


# -- run directories -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_it_survives_a_run_directory(partition: str, aggregation: str, tmp_path: Path) -> None:
    trained, graph = trained_on("sharded-gcn", partition, aggregation), small()
    result, _ = gf.load_run(gf.save_run(tmp_path / "run", trained, graph))
    old, new = ensemble(trained), ensemble(result)
    assert torch.equal(new.shard_of, old.shard_of)
    assert new.shard_of.dtype == torch.int64
    assert torch.equal(new.weights, old.weights)
    assert (new.partition, new.aggregation, new.shards) == (partition, aggregation, 3)
    assert torch.equal(result.logits(graph), trained.logits(graph))
    assert torch.equal(result.theta, trained.theta)
    assert result.summary() == trained.summary()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return gf.save_run(tmp_path / "run", trained_on(aggregation="learned"), small())


def spoil(run: Path, change: Any) -> None:
    path = run / "weights.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def one_elsewhere(tensors: dict[str, Tensor]) -> None:
    row = int(small().train_rows[0])
    tensors["state.shard_of"][row] = (tensors["state.shard_of"][row] + 1) % 3


def in_no_shard(tensors: dict[str, Tensor]) -> None:
    tensors["state.shard_of"][int(small().train_rows[0])] = 7


def too_short(tensors: dict[str, Tensor]) -> None:
    tensors["state.shard_of"] = tensors["state.shard_of"][:-1].clone()


def missing(tensors: dict[str, Tensor]) -> None:
    del tensors["state.shard_of"]


@pytest.mark.parametrize("change", [one_elsewhere, in_no_shard, too_short, missing])
def test_a_damaged_partition_is_caught(run: Path, change: Any) -> None:
    spoil(run, change)
    with pytest.raises(DamagedRun, match=r"weights\.safetensors is not the file that was written"):
        gf.load_run(run)
    rewrite_checksums(run)  # and where the checksums fit, the objective does not
    with pytest.raises(gf.InputError):
        gf.load_run(run)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grapheraser", "retrain"])
def test_deletions_in_a_run_directory(run: Path, method: str) -> None:
    graph = small()
    trained, _ = gf.load_run(run)
    nodes = graph.train_rows[[3, 9]].tolist()
    answers = []
    for turn, node in enumerate(nodes):
        answers.append(gf.answer(run, gf.Request(nodes=[node]), request_id=f"id {turn}", method=method))
        assert gf.verify_run(run).checks
    result, retained = gf.load_run(run)
    stays = [row for row in range(40) if row not in nodes]
    assert retained.numbers.tolist() == stays
    unchanged = load_file(run / "weights.safetensors")
    assert unchanged["state.shard_of"].shape == (38,)
    assert {name for name in unchanged if name.startswith("state.")} == {"state.shard_of"}
    assert torch.equal(unchanged["state.shard_of"], ensemble(result).shard_of)
    if method == "grapheraser":
        assert torch.equal(ensemble(result).shard_of, ensemble(trained).shard_of[stays])
    else:
        own = random_partition(retained.numbers[retained.train_rows], shards=3, seed=result.recipe.seed)
        assert torch.equal(ensemble(result).shard_of[retained.train_rows], own)
    assert [entry.level for entry in read_history(run).entries] == ["exact", "exact"]
    assert gf.answer(run, gf.Request(nodes=nodes[:1]), request_id="id 0", method=method).repeated
    released, _ = gf.load_released(run)
    assert torch.equal(released.theta, result.theta)
    assert torch.equal(released.logits(retained), result.logits(retained))
    outcome = answers[-1].outcome
    assert outcome is not None
    assert torch.equal(outcome.released_theta, outcome.trained.theta)
    assert torch.equal(ensemble(outcome.released).shard_of, ensemble(result).shard_of)


def test_noise_that_is_asked_for(run: Path) -> None:
    answer = gf.answer(run, gf.Request(nodes=small().train_rows[:1].tolist()), method="grapheraser", sigma=0.1)
    assert answer.outcome is not None
    added = answer.outcome.released_theta - answer.outcome.trained.theta
    assert 0.05 < float(added.std()) < 0.2
    assert gf.verify_run(run).checks
    released, graph = gf.load_released(run)
    assert released.noise == 0.1
    assert torch.isfinite(released.logits(graph)).all()


def test_weights_that_were_changed_do_not_verify(run: Path) -> None:
    gf.answer(run, gf.Request(nodes=small().train_rows[:1].tolist()), method="grapheraser")

    def nudge(tensors: dict[str, Tensor]) -> None:
        tensors["theta"][0] += 1e-3  # the weight of a shard, which the objective does not see

    spoil(run, nudge)
    rewrite_checksums(run)
    with pytest.raises(gf.Mismatch, match="the weights do not match the certificate"):
        gf.verify_run(run)
