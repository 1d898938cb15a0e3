"""GraphEraser: which shards are trained anew, what becomes of the others, and what may be claimed of it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
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
from cases import CLASSES, COLUMNS, graphs, random_graph, requests
from graphforget.certificates.claims.exact import Exact
from graphforget.ensembles.aggregation import AGGREGATIONS, learned_weights
from graphforget.ensembles.partition import PARTITIONS
from graphforget.models import sharded
from graphforget.models.registry import build
from graphforget.models.sharded import Sharded
from graphforget.runs.write import rewrite_checksums
from graphforget.training import shards as ensembles
from graphforget.training.loss_sum import LossSum
from graphforget.training.losses import CrossEntropy
from graphforget.unlearning.methods.grapheraser import touched_shards
from graphforget.unlearning.task import Task
from sharded_cases import SHORT, alone, ensemble, same, short, small, trained_on

pytestmark = pytest.mark.usefixtures("one_thread")
ERASE: dict[str, Any] = {"method": "grapheraser"}
KINDS = (
    *("training node", "other node", "edge in one shard", "edge across shards", "training-other edge"),
    *("other-other edge", "training attributes", "other attributes", "training value", "mixture"),
)


def full_graph(seed: int, *, nodes: int = 24, edges: int = 26, directed: bool = False) -> gf.Graph:
    """No value is 0 and there are no self-loops, so that every dependence shows."""
    graph = random_graph(seed, nodes=nodes, edges=edges, directed=directed, sparse=False)
    rng = np.random.default_rng(seed)
    source, target = graph.edge_index
    x = torch.from_numpy(rng.uniform(0.2, 1.0, size=(nodes, COLUMNS)))
    return dataclasses.replace(graph, x=x, edge_index=graph.edge_index[:, source != target])


def edges_by_kind(graph: gf.Graph, shard_of: Tensor) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {kind: [] for kind in KINDS if "edge" in kind}
    for source, target in graph.edge_index.T.tolist():
        if not graph.directed and source > target:
            continue
        a, b = int(shard_of[source]), int(shard_of[target])
        if a >= 0 and b >= 0:
            kind = "edge in one shard" if a == b else "edge across shards"
        else:
            kind = "other-other edge" if a < 0 and b < 0 else "training-other edge"
        found[kind].append((source, target))
    return found


def drawn_request(data: st.DataObject, graph: gf.Graph, shard_of: Tensor, kind: str) -> gf.Request:
    training, others = graph.train_rows.tolist(), (~graph.train_mask).nonzero().flatten().tolist()
    if kind == "mixture":
        return data.draw(requests(graph))
    if "edge" in kind:
        pool: list[Any] = edges_by_kind(graph, shard_of)[kind]
        assume(pool)
        return gf.Request(edges=[data.draw(st.sampled_from(pool))])
    pool = training if kind.startswith("training") else others
    assume(pool)
    node = data.draw(st.sampled_from(pool))
    if kind.endswith("node"):
        rows = torch.tensor([row for row in training if row != node])
        assume(graph.y[rows].unique().numel() == CLASSES)  # no class may lose its last node
        assume(graph.y[node] < 0 or int((graph.y == graph.y[node]).sum()) > 1)
        return gf.Request(nodes=[node])
    return gf.Request(attributes={node: "all" if kind.endswith("attributes") else [data.draw(st.integers(0, 3))]})


def part_of(graph: gf.Graph, shard_of: Tensor, shard: int) -> gf.Graph:
    return graph.induced((shard_of == shard) | (shard_of < 0))


def losses_of(one: nn.Module, part: gf.Graph) -> dict[int, float]:
    """The loss of every training node of a shard, by the node's number."""
    if not part.train_mask.any():
        return {}
    theta = torch.cat([p.detach().reshape(-1) for p in one.parameters()])
    losses = LossSum(one, part, part.train_rows, loss=CrossEntropy()).losses(theta)
    return dict(zip(part.numbers[part.train_rows].tolist(), losses.tolist(), strict=True))


def changed(one: nn.Module, before: gf.Graph, after: gf.Graph) -> bool:
    old, new = losses_of(one, before), losses_of(one, after)
    return old.keys() != new.keys() or any(abs(old[node] - new[node]) > 1e-12 for node in old)


def random_model(base: str, seed: int) -> nn.Module:
    options = {"sgc": {}, "gat": {"hidden": 4, "heads": 2}}.get(base, {"hidden": 12})
    one = build(base, columns=COLUMNS, classes=CLASSES, **options).double().eval()
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return one


def standing(graph: gf.Graph, shard_of: Tensor, *, base: str) -> gf.Trained:
    """An ensemble that stands on the graph; its weights do not matter."""
    module = build(f"sharded-{base}", columns=COLUMNS, classes=CLASSES, shards=int(shard_of.max()) + 1)
    assert isinstance(module, Sharded)
    module.shard_of = shard_of
    like = trained_on()
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    changes: dict[str, Any] = {"module": module, "theta": theta, "graph_digest": graph.digest, "reach": module.reach}
    return dataclasses.replace(like, **changes)


def shards_drawn(graph: gf.Graph, seed: int, shards: int) -> Tensor:
    shard_of = torch.full((graph.num_nodes,), -1)
    rng = np.random.default_rng(seed)
    shard_of[graph.train_rows] = torch.from_numpy(rng.integers(0, shards, size=graph.train_rows.numel()))
    return shard_of


def shards_left(graph: gf.Graph, retained: gf.Graph, shard_of: Tensor) -> Tensor:
    """The shards of the retained nodes. A node that lost its label is in none."""
    return shard_of[torch.isin(graph.numbers, retained.numbers)].masked_fill(~retained.train_mask, -1)


# -- isolation -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("base", ["sgc", "gcn", "gat", "gin", "sage"])
@settings(max_examples=14, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6), directed=st.booleans(), kind=st.sampled_from(KINDS))
def test_a_shard_is_touched_if_and_only_if_its_losses_change(
    base: str, data: st.DataObject, seed: int, directed: bool, kind: str
) -> None:
    graph = full_graph(seed, directed=directed)
    shard_of = shards_drawn(graph, seed, 3)
    request = drawn_request(data, graph, shard_of, kind)
    found = touched_shards(Task.of(standing(graph, shard_of, base=base), graph, request))
    retained = graph.without(request)
    left = shards_left(graph, retained, shard_of)
    models = [random_model(base, seed) for seed in range(4)]  # ReLUs may be shut in one of them
    for shard in range(int(shard_of.max()) + 1):
        before, after = part_of(graph, shard_of, shard), part_of(retained, left, shard)
        assert (shard in found) == any(changed(one, before, after) for one in models), shard


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(data=st.data(), graph=graphs(), seed=st.integers(0, 10**6))
def test_an_untouched_shard_has_seen_nothing_of_it(data: st.DataObject, graph: gf.Graph, seed: int) -> None:
    """With values that are 0, self-loops and sparse attributes as well."""
    shard_of = shards_drawn(graph, seed, 3)
    request = data.draw(requests(graph))
    found = touched_shards(Task.of(standing(graph, shard_of, base="gcn"), graph, request))
    retained = graph.without(request)
    left = shards_left(graph, retained, shard_of)
    for shard in set(range(int(shard_of.max()) + 1)) - set(found):
        before, after = part_of(graph, shard_of, shard), part_of(retained, left, shard)
        assert not changed(random_model("gcn", 0), before, after)


@pytest.mark.slow
@pytest.mark.parametrize("partition", PARTITIONS)
@settings(max_examples=6, deadline=None)
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_touched_shards_are_trained_anew_and_no_others(partition: str, data: st.DataObject, kind: str) -> None:
    trained, graph = trained_on("sharded-gcn", partition), small()
    module = ensemble(trained)
    request = drawn_request(data, graph, module.shard_of, kind)
    plan = gf.plan(trained, graph, request, **ERASE)
    touched = touched_shards(Task.of(trained, graph, request))
    saw = partition != "random"  # whatever the request: which shards were touched must not show in the level
    if saw and not touched:
        assert plan.level is None
        assert plan.meaning.startswith("would be refused: no shard was trained on the data to delete")
        with pytest.raises(gf.Refused, match="keeps a trace"):
            gf.unlearn(trained, graph, request, **ERASE)
        return
    old = copy.deepcopy(module)
    outcome = gf.unlearn(trained, graph, request, **ERASE)
    new = ensemble(outcome.trained)
    assert same(module, old)
    assert plan.level == outcome.level == ("empirical" if saw else "exact")
    assert outcome.details["retrained"] == len(touched)
    assert torch.equal(new.shard_of, shards_left(graph, outcome.graph, module.shard_of))
    for shard in range(module.shards):
        if shard in touched:
            assert same(new.models[shard], alone(outcome.trained, outcome.graph, shard, seed=2))
        else:
            assert same(new.models[shard], module.models[shard])
    assert torch.equal(outcome.released_theta, outcome.trained.theta)
    assert outcome.graph.digest == graph.without(request).digest == outcome.trained.graph_digest
    assert len(outcome.trained.history) == (1 if saw else 0)
    assert (outcome.certificate.claim == Exact()) == (not saw)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("model", ["sharded-sgc", "sharded-gcn"])
def test_it_is_training_from_scratch_on_what_is_retained(model: str, kind: str) -> None:
    """The strongest form of exactness, for random shards: the same shards, and the same weights in each of them."""
    graph = full_graph(6, nodes=40, edges=34)
    options = short(model) | {"shards": 4}
    trained = gf.train(graph, model, seed=3, aggregation="learned", **options)
    if "edge" in kind:
        request = gf.Request(edges=edges_by_kind(graph, ensemble(trained).shard_of)[kind][:1])
    else:
        pool = graph.train_mask if kind.startswith("training") else ~graph.train_mask
        node = int((pool & (torch.bincount(graph.edge_index[0], minlength=40) > 0)).nonzero()[3])
        whole = "all" if kind.endswith("attributes") else [1]
        request = gf.Request(nodes=[node]) if "node" in kind else gf.Request(attributes={node: whole})
    outcome = gf.unlearn(trained, graph, request, **ERASE)
    scratch = gf.train(graph.without(request), model, seed=3, aggregation="learned", **options)
    assert outcome.level == "exact"
    assert torch.equal(ensemble(outcome.trained).shard_of, ensemble(scratch).shard_of)
    assert torch.equal(outcome.trained.theta, scratch.theta)
    assert outcome.trained.objective_value == scratch.objective_value
    assert outcome.trained.recipe == scratch.recipe
    if kind != "edge across shards":
        assert float((trained.theta - scratch.theta).norm()) > 1e-3  # and there was something to forget


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_deletion_that_empties_a_shard(aggregation: str) -> None:
    graph = small()
    trained = gf.train(graph, "sharded-gcn", aggregation=aggregation, **(SHORT | {"shards": 6}))
    sizes = torch.bincount(ensemble(trained).shard_of[graph.train_rows], minlength=6)
    shard = int(torch.where(sizes > 0, sizes, 99).argmin())
    nodes = (ensemble(trained).shard_of == shard).nonzero().flatten().tolist()
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=nodes), **ERASE)
    module = ensemble(outcome.trained)
    assert module.weights[shard] == 0
    assert float(module.weights.detach().sum()) == pytest.approx(1)
    untrained = build("gcn", columns=COLUMNS, classes=CLASSES, seed=shard, hidden=3).double()
    assert same(module.models[shard], untrained)  # nothing of its nodes is left
    assert torch.isfinite(outcome.trained.logits(outcome.graph)).all()
    assert outcome.level == "exact"
    later = gf.unlearn(outcome.trained, outcome.graph, gf.Request(nodes=outcome.graph.numbers[:1].tolist()), **ERASE)
    assert same(ensemble(later.trained).models[shard], untrained)


# -- levels ----------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(data=st.data(), graph=graphs(), seed=st.integers(0, 99))
def test_a_random_partition_is_the_same_without_what_goes(data: st.DataObject, graph: gf.Graph, seed: int) -> None:
    request = drawn_request(data, graph, shards_drawn(graph, seed, 3), data.draw(st.sampled_from(KINDS)))
    module = build("sharded-gcn", columns=COLUMNS, classes=CLASSES, partition="random", shards=3, hidden=2)
    assert isinstance(module, Sharded)
    retained = graph.without(request)
    assume(retained.train_rows.numel() >= module.shards)  # fewer are refused, see tests/training/test_sharded.py
    before, after = (ensembles.partition(g, module, seed=seed, progress=lambda *_: None) for g in (graph, retained))
    assert torch.equal(after, shards_left(graph, retained, before))


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["blpa", "bekm"])
def test_a_partition_that_saw_it_may_be_another_without_it(partition: str) -> None:
    """Why the level is no better then."""
    moved = 0
    for seed in range(6):
        graph = random_graph(seed, nodes=20, edges=30)
        module = build("sharded-gcn", columns=COLUMNS, classes=CLASSES, partition=partition, shards=3, hidden=2)
        assert isinstance(module, Sharded)
        retained = graph.without(gf.Request(nodes=graph.train_rows[-1:].tolist()))
        before, after = (ensembles.partition(g, module, seed=0, progress=lambda *_: None) for g in (graph, retained))
        moved += int((before[torch.isin(graph.numbers, retained.numbers)] != after).any())
    assert moved > 0


def request_of(kind: str) -> gf.Request:
    graph = small()
    source, target = graph.edge_index
    train = graph.train_mask
    both = graph.edge_index[:, train[source] & train[target] & (source < target)].T.tolist()
    mixed = graph.edge_index[:, (train[source] != train[target]) & (source < target)].T.tolist()
    row, other = int(graph.train_rows[4]), int((~train).nonzero()[2])
    return {
        "training node": gf.Request(nodes=[row]),
        "other node": gf.Request(nodes=[other]),
        "training edge": gf.Request(edges=[tuple(edge) for edge in both]),
        "other edge": gf.Request(edges=[tuple(mixed[0])]),
        "training attributes": gf.Request(attributes={row: "all"}),
        "training value": gf.Request(attributes={row: [0, 1]}),
        "other attributes": gf.Request(attributes={other: "all"}),
    }[kind]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        *("training node", "other node", "training edge", "other edge"),
        *("training attributes", "training value", "other attributes"),
    ],
)
@pytest.mark.parametrize("partition", PARTITIONS)
def test_levels(partition: str, kind: str) -> None:
    trained, graph, request = trained_on("sharded-gcn", partition), small(), request_of(kind)
    outcome = gf.unlearn(trained, graph, request, **ERASE)
    expected = "exact" if partition == "random" else "empirical"  # whatever goes
    assert outcome.level == gf.plan(trained, graph, request, **ERASE).level == expected
    assert (outcome.certificate.epsilon == 0) == (expected == "exact")
    assert bool(outcome.trained.history) == (expected == "empirical")
    if expected == "exact":
        assert outcome.certificate.claim == Exact()
    else:
        assert f"({partition})" in outcome.certificate.statement
    gf.verify(outcome.certificate, outcome.trained, outcome.graph, released=outcome.released_theta)


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["blpa", "bekm"])
def test_after_an_empirical_outcome_no_later_one_is_exact(partition: str) -> None:
    trained, graph = trained_on("sharded-gcn", partition), small()
    first = gf.unlearn(trained, graph, request_of("training node"), **ERASE)
    assert first.level == "empirical"
    later = gf.unlearn(first.trained, first.graph, request_of("other node"), **ERASE)
    assert later.level == gf.plan(first.trained, first.graph, request_of("other node"), **ERASE).level == "empirical"
    assert len(later.trained.history) == 2
    again = gf.unlearn(first.trained, first.graph, request_of("other node"), method="retrain")
    assert again.level == "exact"
    assert again.trained.history == ()


def lone_pair() -> gf.Graph:
    """Ten pairs of training nodes and a test node that nobody knows."""
    n = 21
    pairs = torch.arange(20).reshape(10, 2).T
    train = torch.arange(n) < 20
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(n, COLUMNS)))
    y = torch.arange(n) % CLASSES
    return gf.Graph.create(x=x, edges=pairs, y=y, train_mask=train, test_mask=~train, num_classes=CLASSES)


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["mean", "learned"])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_an_edge_that_no_shard_has_seen(partition: str, aggregation: str) -> None:
    graph = lone_pair()
    trained = gf.train(graph, "sharded-gcn", partition=partition, aggregation=aggregation, **SHORT)
    shard_of = ensemble(trained).shard_of
    across = [(2 * i, 2 * i + 1) for i in range(10) if shard_of[2 * i] != shard_of[2 * i + 1]]
    request = gf.Request(edges=across[:1])
    plan = gf.plan(trained, graph, request, **ERASE)
    if partition != "random":
        assert plan.level is None
        with pytest.raises(gf.Refused, match="no shard was trained on the data to delete, but nothing is guaranteed"):
            gf.unlearn(trained, graph, request, **ERASE)
        target = gf.unlearn(trained, graph, request, level="exact", **ERASE)
        assert (target.method, target.level) == ("retrain", "exact")
        return
    outcome = gf.unlearn(trained, graph, request, **ERASE)
    assert plan.level == outcome.level == "exact"
    assert outcome.details["untouched"]
    assert torch.equal(outcome.trained.theta[3:], trained.theta[3:])
    assert outcome.certificate.claim == Exact()
    assert torch.equal(outcome.trained.theta, trained.theta) == (aggregation == "mean")
    gf.verify(outcome.certificate, outcome.trained, outcome.graph, released=outcome.released_theta)
    isolated = gf.unlearn(trained, graph, gf.Request(nodes=[20]), **ERASE)
    assert isolated.level == "exact"
    assert torch.equal(isolated.trained.theta, trained.theta)
    assert isolated.trained.recipe == trained.recipe


def test_a_model_that_carries_data_gets_no_guarantee() -> None:
    trained = dataclasses.replace(trained_on(), certification_blockers=("layer 'norm' keeps statistics of the data",))
    outcome = gf.unlearn(trained, small(), request_of("training node"), **ERASE)
    assert outcome.level == gf.plan(trained, small(), request_of("training node"), **ERASE).level == "empirical"
    lone = lone_pair()
    untouched = dataclasses.replace(
        gf.train(lone, "sharded-gcn", **SHORT), certification_blockers=trained.certification_blockers
    )
    assert gf.plan(untouched, lone, gf.Request(nodes=[20]), **ERASE).level is None
    with pytest.raises(gf.Refused, match="may carry data past its weights"):
        gf.unlearn(untouched, lone, gf.Request(nodes=[20]), **ERASE)


# -- the weights of the shards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", ["random", "blpa"])
def test_learned_weights_are_fitted_on_what_is_retained_alone(partition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, graph = trained_on("sharded-gcn", partition, "learned"), small()
    given: list[tuple[Tensor, Tensor]] = []

    def spied(answers: Tensor, labels: Tensor, **more: Any) -> Tensor:
        given.append((answers, labels))
        return learned_weights(answers, labels, **more)

    monkeypatch.setattr(sharded, "learned_weights", spied)
    outcome = gf.unlearn(trained, graph, request_of("training node"), **ERASE)
    ((answers, labels),) = given
    retained = outcome.graph
    assert torch.equal(labels, retained.y[retained.train_rows])
    assert labels.numel() == graph.train_rows.numel() - 1
    with torch.no_grad():
        expected = torch.stack(
            [m(retained.x, retained.edge_index).log_softmax(dim=1) for m in ensemble(outcome.trained).models]
        )
    torch.testing.assert_close(answers, expected[:, retained.train_rows])
    assert torch.equal(ensemble(outcome.trained).weights.detach(), learned_weights(answers, labels))
    assert not torch.equal(ensemble(outcome.trained).weights, ensemble(trained).weights)


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("partition", ["random", "blpa"])
def test_nothing_of_a_removed_node_is_left(partition: str, aggregation: str) -> None:
    """Whatever its label and attributes were, the outcome is the same bit for bit (BLPA sees neither)."""
    graph, row = small(), int(small().train_rows[4])
    x, y = graph.x.to_dense().clone(), graph.y.clone()
    x[row] = torch.tensor([5.0, -1.0, 3.0, 2.0])
    y[row] = (y[row] + 1) % CLASSES
    other = dataclasses.replace(graph, x=x.to_sparse_csr(), y=y)
    how: dict[str, Any] = {"partition": partition, "aggregation": aggregation, "seed": 2} | SHORT
    trained = [gf.train(g, "sharded-gcn", **how) for g in (graph, other)]
    assert not torch.equal(trained[0].theta, trained[1].theta)
    if aggregation == "learned":
        assert not torch.equal(ensemble(trained[0]).weights, ensemble(trained[1]).weights)
    first, second = (
        gf.unlearn(t, g, gf.Request(nodes=[row]), **ERASE) for t, g in zip(trained, (graph, other), strict=True)
    )
    assert first.graph.digest == second.graph.digest
    assert torch.equal(first.trained.theta, second.trained.theta)
    assert torch.equal(ensemble(first.trained).shard_of, ensemble(second.trained).shard_of)


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [name for name in gf.METHODS if name not in ("grapheraser", "retrain")])
def test_other_methods_refuse_an_ensemble(method: str) -> None:
    trained, graph, request = trained_on(), small(), request_of("training node")
    for act in (gf.unlearn, gf.plan):
        with pytest.raises(gf.InputError, match=f"^method '{method}' does not work here: ") as caught:
            act(trained, graph, request, method=method)
        assert "\n" not in str(caught.value)
        if method in ("idea", "gif", "ceu", "ascent"):
            assert str(caught.value).endswith("an ensemble on shards, which only 'grapheraser' and 'retrain' support")


@pytest.mark.parametrize("model", ["gcn", "sgc"])
def test_it_refuses_a_model_without_shards(model: str) -> None:
    options: dict[str, Any] = {"hidden": 3, "epochs": 2, "polish_steps": 0} if model == "gcn" else {}
    trained = gf.train(small(), model, **options)
    for act in (gf.unlearn, gf.plan):
        with pytest.raises(gf.InputError, match="the model was not trained on shards"):
            act(trained, small(), request_of("training node"), **ERASE)


def test_it_has_no_options() -> None:
    with pytest.raises(gf.InputError, match="method 'grapheraser' has no option 'shards'"):
        gf.unlearn(trained_on(), small(), request_of("training node"), shards=3, **ERASE)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_auto_retrains_an_ensemble_or_refuses(partition: str) -> None:
    trained, graph, request = trained_on("sharded-gcn", partition), small(), request_of("training node")
    plan, outcome = gf.plan(trained, graph, request), gf.unlearn(trained, graph, request)
    assert (plan.method, plan.level) == (outcome.method, outcome.level) == ("retrain", "exact")
    assert gf.plan(trained, graph, request, otherwise="refuse").level is None
    with pytest.raises(gf.Refused, match="no method but retraining has a guarantee that holds for this model"):
        gf.unlearn(trained, graph, request, otherwise="refuse")


def test_a_level_that_it_does_not_reach_is_had_by_retraining() -> None:
    trained, graph, request = trained_on("sharded-gcn", "blpa"), small(), request_of("training node")
    outcome = gf.unlearn(trained, graph, request, level="exact", **ERASE)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    with pytest.raises(gf.Refused, match="retraining was ruled out"):
        gf.unlearn(trained, graph, request, level="exact", otherwise="refuse", **ERASE)


@pytest.mark.slow
@pytest.mark.parametrize("partition", PARTITIONS)
def test_retraining_splits_anew(partition: str) -> None:
    trained, graph, request = trained_on("sharded-gcn", partition, "learned"), small(), request_of("training node")
    outcome = gf.unlearn(trained, graph, request, method="retrain", seed=9)
    how: dict[str, Any] = {"partition": partition, "aggregation": "learned", "seed": 9} | SHORT
    scratch = gf.train(graph.without(request), "sharded-gcn", **how)
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, scratch.theta)
    assert torch.equal(ensemble(outcome.trained).shard_of, ensemble(scratch).shard_of)
    stays = torch.isin(graph.numbers, outcome.graph.numbers)
    assert not torch.equal(ensemble(outcome.trained).shard_of, ensemble(trained).shard_of[stays])


def test_an_ensemble_cannot_be_continued() -> None:
    how: dict[str, Any] = {"method": "retrain", "start": "continued"}
    told = "the training of an ensemble on shards cannot be continued, its shards can only be retrained"
    with pytest.raises(gf.Refused, match=f"^{told}$"):
        gf.unlearn(trained_on(), small(), request_of("training node"), **how)
    plan = gf.plan(trained_on(), small(), request_of("training node"), **how)
    assert (plan.level, plan.meaning) == (None, f"would be refused: {told}")
    assert gf.plan(trained_on(), small(), request_of("training node"), method="retrain").level == "exact"


# -- what a certificate covers of it ---------------------------------------------------------------------------------


STATE = "^recipe, reach or history of the model do not match the certificate$"


def moved_node(trained: gf.Trained) -> gf.Trained:
    """A training node said to be in another shard than it was trained in."""
    changed = copy.deepcopy(trained)
    shard_of = ensemble(changed).shard_of
    row = int((shard_of >= 0).nonzero()[0])
    shard_of[row] = (shard_of[row] + 1) % ensemble(changed).shards
    return changed


@pytest.mark.parametrize("method", ["grapheraser", "retrain"])
def test_another_shard_for_a_node_is_noticed(method: str) -> None:
    found = gf.unlearn(trained_on(), small(), request_of("training node"), method=method)
    assert gf.verify(found.certificate, found.trained, found.graph, annexes=[found.annex]).checks
    with pytest.raises(gf.Mismatch, match=STATE):
        gf.verify(found.certificate, moved_node(found.trained), found.graph, annexes=[found.annex])


def test_another_shard_for_a_node_is_noticed_in_a_run_directory(tmp_path: Path) -> None:
    """With the objective of that split and all checksums written down to fit."""
    found = gf.unlearn(trained_on(), small(), request_of("training node"), **ERASE)
    run = tmp_path / "run"
    gf.save_outcome(run, found)
    assert gf.verify_run(run).checks
    changed = moved_node(found.trained)
    weights, told = load_file(run / "weights.safetensors"), json.loads((run / "run.json").read_text())
    save_file(weights | {"state.shard_of": ensemble(changed).shard_of}, run / "weights.safetensors")
    told["objective"] = changed.objective(found.graph).value(changed.theta)
    (run / "run.json").write_text(json.dumps(told))
    rewrite_checksums(run)
    loaded, _ = gf.load_run(run)
    assert not torch.equal(ensemble(loaded).shard_of, ensemble(found.trained).shard_of)
    with pytest.raises(gf.Mismatch, match=STATE):
        gf.verify_run(run)


# -- one after the other ---------------------------------------------------------------------------------------------


@functools.cache
def ten() -> tuple[gf.Request, ...]:
    graph = small()
    rows, others = graph.train_rows.tolist(), (~graph.train_mask).nonzero().flatten().tolist()
    gone = {rows[3], rows[8], rows[12], rows[15], others[1]}
    edges = [(u, v) for u, v in graph.edge_index.T.tolist() if u < v and not {u, v} & gone]
    return (
        gf.Request(nodes=[rows[3]]),
        gf.Request(edges=edges[:1]),
        gf.Request(attributes={rows[5]: "all"}),
        gf.Request(nodes=[others[1]]),
        gf.Request(attributes={others[3]: [0, 1]}),
        gf.Request(nodes=[rows[8], rows[12]]),
        gf.Request(edges=edges[1:4]),
        gf.Request(nodes=[rows[15]], edges=edges[4:5], attributes={rows[6]: [2]}),
        gf.Request(attributes={others[4]: "all"}),
        gf.Request(edges=edges[5:6], attributes={rows[7]: "all"}),
    )


@pytest.mark.slow
@pytest.mark.parametrize(("partition", "level"), [("random", "exact"), ("blpa", "empirical"), ("bekm", "empirical")])
def test_ten_requests_in_a_row(partition: str, level: str) -> None:
    trained, graph = trained_on("sharded-gcn", partition, "learned"), small()
    first, where = trained, graph
    for request in ten():
        touched = touched_shards(Task.of(trained, graph, request))
        if not touched and level == "empirical":
            with pytest.raises(gf.Refused):
                gf.unlearn(trained, graph, request, **ERASE)
            continue
        state = torch.random.get_rng_state()
        outcome = gf.unlearn(trained, graph, request, **ERASE)
        assert torch.equal(state, torch.random.get_rng_state())
        assert outcome.level == level
        assert outcome.trained.recipe.seed == 2
        for shard in touched:
            assert same(ensemble(outcome.trained).models[shard], alone(outcome.trained, outcome.graph, shard, seed=2))
        trained, graph = outcome.trained, outcome.graph
    stays = torch.isin(where.numbers, graph.numbers)
    assert int((~stays).sum()) == 5
    assert torch.equal(ensemble(trained).shard_of, ensemble(first).shard_of[stays])
    assert bool(trained.history) == (level == "empirical")
    for shard in range(3):  # touched by ten requests or by none, it is what training on the shard as it now is gives
        assert same(ensemble(trained).models[shard], alone(trained, graph, shard, seed=2))
    objective = trained.objective(graph)
    assert trained.gradient_norm == pytest.approx(float(objective.gradient(trained.theta).norm()))
    assert trained.objective_value == pytest.approx(objective.value(trained.theta))
