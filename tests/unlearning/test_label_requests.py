"""Forgetting a label: the node stays, and no loss depends on what its label was."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from array_cases import same_graph
from cases import Run, present, random_graph, with_targets
from collection_cases import random_collection
from graphforget.runs import arrays

MODELS: dict[str, dict[str, Any]] = {
    "sgc": {},
    "sign": {"hops": 2},
    "gcn": {"hidden": 5, "epochs": 5, "polish_steps": 2},
    "stacked-gcn": {"hidden": 3, "epochs": 5, "parts": 3},
    "boosted-gcn": {"hidden": 3, "epochs": 5},
    "sharded-gcn": {"hidden": 5, "epochs": 5, "shards": 2},
}


# The model for each method, if it is not SGC.
MODEL_OF: dict[str, tuple[str, dict[str, Any]]] = {
    "cgu": ("cgu", {"mu": 0.1, "objective_noise": 1.0}),
    "scalegun": ("scalegun", {"mu": 0.1, "objective_noise": 1.0}),
    "grapheraser": ("sharded-gcn", MODELS["sharded-gcn"]),
    "gnndelete": ("gcn", MODELS["gcn"]),
}
LEVELS: dict[str, Any] = {"newton": "certified", "retrain": "certified", "grapheraser": "exact", "idea": "empirical"}
LEVELS |= {"cgu": "conditional", "scalegun": "conditional", "ascent": "empirical"}
REFUSES = {"gif", "ceu", "gnndelete", "megu"}


def relabelled(graph: gf.Graph, row: int) -> gf.Graph:
    """The same graph with another class at one node."""
    y = graph.y.clone()
    y[row] = (y[row] + 1) % graph.num_classes
    return dataclasses.replace(graph, y=y)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_weights_are_those_of_training_without_the_label(model: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    node = int(graph.train_rows[5])
    request = gf.Request(labels=[node])
    trained = gf.train(graph, model, **MODELS[model])
    outcome = gf.unlearn(trained, graph, request)
    again = gf.train(graph.without(request), model, **MODELS[model])
    if outcome.level == "exact":
        assert torch.equal(outcome.trained.theta, again.theta)
    else:
        assert outcome.level == "certified"
        assert float((outcome.trained.theta - again.theta).norm()) <= 2 * trained.recipe.sigma
    assert outcome.graph.num_nodes == graph.num_nodes
    assert torch.equal(outcome.graph.edge_index, graph.edge_index)
    assert not outcome.graph.train_mask[node]
    other = relabelled(graph, node)
    assert other.without(request).digest == outcome.graph.digest


@pytest.mark.parametrize("method", gf.METHODS)
def test_every_method_forgets_a_label_or_refuses_in_one_sentence(method: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    row = int(graph.train_rows[5])
    request = gf.Request(labels=[row])
    model, options = MODEL_OF.get(method, ("sgc", {}))
    trained = gf.train(graph, model, **options)
    before = trained.theta.clone()
    if "labels" not in gf.METHODS[method].kinds:
        assert method in REFUSES
        with pytest.raises(gf.InputError, match=f"^method '{method}' cannot forget labels, only ") as refused:
            gf.unlearn(trained, graph, request, method=method, level="empirical")
        assert "\n" not in str(refused.value)
        assert torch.equal(trained.theta, before)
        return
    level = LEVELS[method]
    outcome = gf.unlearn(trained, graph, request, method=method, level=level)
    assert (outcome.level, outcome.method) == (level, method)
    touched = outcome.touched
    assert [one.tolist() for one in (touched.removed, touched.affected, touched.added)] == [[row], [], []]
    after = outcome.graph
    assert after.digest == graph.without(request).digest != graph.digest
    assert (after.num_nodes, int(after.y[row]), bool(after.train_mask[row])) == (graph.num_nodes, -1, False)
    assert torch.equal(after.x.to_dense(), graph.x.to_dense())
    assert torch.equal(after.edge_index, graph.edge_index)
    assert not torch.equal(outcome.centre, before)
    assert gf.verify(outcome.certificate, outcome.trained, after, annexes=[outcome.annex]).checks
    if level == "exact":
        assert torch.equal(outcome.trained.theta, gf.train(after, model, **options).theta)
    elif level == "certified":
        anew = gf.train(after, model, **options, tolerance=1e-7).theta
        assert float((outcome.centre - anew).norm()) <= present(outcome.certificate.tolerance) + 1e-6
    elif model == "sgc":  # nearer to retraining than the old weights are
        anew = gf.train(after, model, **options, tolerance=1e-7).theta
        assert float((outcome.centre - anew).norm()) < float((before - anew).norm())


@pytest.mark.parametrize("method", ["grapheraser", "retrain"])
def test_shards_are_those_of_a_partition_without_the_label(method: str) -> None:
    """A node without a label is in no shard, and every shard sees it."""
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sharded-gcn", **MODELS["sharded-gcn"])
    outcome = gf.unlearn(trained, graph, gf.Request(labels=[int(graph.train_rows[5])]), method=method)
    again = gf.train(outcome.graph, "sharded-gcn", **MODELS["sharded-gcn"])
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, again.theta)
    assert torch.equal(outcome.trained.ensemble.shard_of, again.ensemble.shard_of)


def test_the_encoder_of_the_nodes_part_is_trained_again_and_no_other() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "stacked-gcn", **MODELS["stacked-gcn"])
    node = int(graph.train_rows[5])
    part = int(trained.stacked.part_of(graph, seed=0)[node])
    plan = gf.plan(trained, graph, gf.Request(labels=[node]))
    assert (plan.renewed_encoders, plan.labels, plan.training_nodes, plan.affected) == (1, 1, 1, 0)
    outcome = gf.unlearn(trained, graph, gf.Request(labels=[node]))
    for number in range(3):
        before, after = (
            present(one.stacked.encoders).modules[number].state_dict() for one in (trained, outcome.trained)
        )
        same = all(torch.equal(value, after[name]) for name, value in before.items())
        assert same == (number != part)


@pytest.mark.parametrize("kind", ["labels", "values"])
def test_other_targets_are_forgotten_as_classes_are(kind: str) -> None:
    graph = with_targets(random_graph(3, nodes=40, edges=60), kind)
    node = int(graph.train_rows[5])
    outcome = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(labels=[node]))
    row = outcome.graph.y[node]
    assert bool(row.isnan().all()) if kind == "values" else row.tolist() == [-1, -1]
    assert outcome.level == "certified"


def test_a_label_in_a_collection_is_that_of_a_graph() -> None:
    graph = random_collection(0)
    with pytest.raises(gf.InputError, match="in a collection a label belongs to a graph"):
        gf.Request(labels=[int(graph.numbers[0])]).resolve(graph)


def test_the_last_training_label_is_not_forgotten() -> None:
    graph = random_graph(3, nodes=12, edges=16)
    with pytest.raises(gf.InputError, match="leaves no training node"):
        gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(labels=graph.train_rows.tolist()))


@pytest.mark.parametrize("large", [False, True])
def test_a_run_keeps_nothing_of_the_label(large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LARGE", 0 if large else 2**40)
    graph = random_graph(3, nodes=40, edges=60, sparse=False)
    node = int(graph.train_rows[5])
    run = gf.save_run(tmp_path / "run", gf.train(graph, "sgc", mu=1e-2), graph)
    requests = [gf.Request(labels=[node]), gf.Request(nodes=[node + 1]), gf.Request(labels=[node, node + 2])]
    for request in requests:
        graph = graph.without(request)
        gf.answer(run, request)
        assert same_graph(gf.load_run(run)[1], graph)
    if large:
        roles, targets = (run / "roles.bin").read_bytes(), (run / "targets.bin").read_bytes()
        assert roles[node] == 0
        assert targets[8 * node : 8 * node + 8] == b"\xff" * 8
    assert gf.verify_run(run).checks
    other = dataclasses.replace(graph, y=graph.y.clone().index_fill_(0, torch.tensor([node]), 0))
    assert gf.load_run(run)[1].digest != other.digest


def test_the_command_takes_labels(run: Run, tmp_path: Path) -> None:
    graph = gf.load("patients")
    folder = gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    (tmp_path / "r.csv").write_text("kind,node,target,column\nlabel,patient-0017,,\n")
    shown = run("plan", folder, tmp_path / "r.csv")
    assert "labels to forget" in shown.stdout, shown.stderr
    assert run("unlearn", folder, tmp_path / "r.csv", "--in-place").code == 0
    assert run("verify", folder).code == 0
    assert not gf.load_run(folder)[1].train_mask[gf.load_run(folder)[1].row("patient-0017")]
