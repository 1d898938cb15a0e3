"""What the plan of an update counts, that it says what the update does, and that it changes nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import Run, graphs, random_graph, requests, weighted
from graphforget.request.change import change_footprint


def corrected(graph: gf.Graph, seed: int) -> gf.Graph:
    """The graph with other attributes of some nodes and other labels of some."""
    draw = np.random.default_rng(seed)
    x, y = graph.x.to_dense().clone(), graph.y.clone()
    for row in draw.choice(graph.num_nodes, size=min(3, graph.num_nodes), replace=False):
        x[row, draw.integers(graph.num_columns)] += 1.0
    labelled = (y >= 0).nonzero().flatten().tolist()
    for row in labelled[: int(draw.integers(3))]:
        y[row] = (y[row] + 1) % graph.num_classes
    stored = x.to_sparse_csr() if graph.has_sparse_attributes else x
    again: dict[str, Any] = {} if graph.edge_weight is None else {"edge_weight": reweighted(graph, draw)}
    return dataclasses.replace(graph, x=stored, y=y, **again)


def reweighted(graph: gf.Graph, draw: np.random.Generator) -> torch.Tensor:
    """The weights of the edges, of which those at some pairs of nodes are other ones."""
    assert graph.edge_weight is not None
    low, high = graph.edge_index.sort(dim=0).values
    factor = torch.from_numpy(draw.choice([1.0, 2.0], size=(graph.num_nodes, graph.num_nodes)))
    return graph.edge_weight * factor[low, high]


def edges_of(graph: gf.Graph) -> dict[tuple[int, int], float]:
    """The edges, by the numbers of their ends, with their weights; an undirected one once, as the graph counts it."""
    weights = [1.0] * graph.edge_index.shape[1] if graph.edge_weight is None else graph.edge_weight.tolist()
    pairs = ((int(graph.numbers[u]), int(graph.numbers[v])) for u, v in graph.edge_index.T.tolist())
    listed = {(u, v): w for (u, v), w in zip(pairs, weights, strict=True) if graph.directed or u <= v}
    assert len(listed) == graph.num_edges
    return listed


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_counts_are_those_of_a_comparison_by_hand(data: st.DataObject) -> None:
    whole = data.draw(graphs())
    if data.draw(st.booleans()):
        whole = weighted(whole, data.draw(st.integers(0, 100)))
    smaller = whole.without(data.draw(requests(whole)))
    new = corrected(smaller, data.draw(st.integers(0, 100)))
    before, after = (smaller, whole) if data.draw(st.booleans()) else (whole, new)
    trained = gf.train(before, "sgc", tolerance=1.0)
    theta = trained.theta.clone()
    plan = gf.plan_update(trained, before, after, trust_ids=True)
    first, second = (set(graph.numbers.tolist()) for graph in (before, after))
    assert (plan.new_nodes, plan.lost_nodes) == (len(second - first), len(first - second))
    there, later = edges_of(before), edges_of(after)
    assert (plan.new_edges, plan.lost_edges) == (len(later.keys() - there), len(there.keys() - later))
    assert plan.changed_edges == sum(there[pair] != later[pair] for pair in there.keys() & later)
    attributes = labels = 0
    for number in first & second:
        row, later_row = before.row(number), after.row(number)
        attributes += not torch.equal(before.x.to_dense()[row], after.x.to_dense()[later_row])
        labels += not torch.equal(before.y[row], after.y[later_row])
    assert (plan.changed_attributes, plan.changed_labels) == (attributes, labels)
    touched = change_footprint(before, after, trained.reach)
    assert (plan.removed, plan.affected, plan.added) == (
        touched.removed.numel(),
        touched.affected.numel(),
        touched.added.numel(),
    )
    assert plan.removed + plan.affected + plan.untouched == before.train_rows.numel()
    assert (plan.method, plan.level, plan.deleted_again) == ("newton", "certified", {})
    assert torch.equal(trained.theta, theta)
    assert json.loads(json.dumps(plan.to_dict()))["audience"] == "private"


@pytest.mark.parametrize("model", ["sgc", "stacked-gcn", "gcn"])
def test_the_update_does_what_the_plan_says(model: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    smaller = graph.without(gf.Request(nodes=[38, 39]))
    options: dict[str, Any] = {} if model == "sgc" else {"epochs": 3}
    trained = gf.train(smaller, model, **options)
    plan = gf.plan_update(trained, smaller, graph, trust_ids=True)
    outcome = gf.update(trained, smaller, graph, trust_ids=True)
    assert (plan.method, plan.level) == (outcome.method, outcome.level)
    assert (plan.new_nodes, plan.added) == (2, outcome.touched.added.numel())
    if model == "stacked-gcn":
        assert plan.renewed_encoders == outcome.details["renewed"] > 0
    assert plan.seconds is not None
    assert plan.seconds >= 0


def test_edges_that_change_their_weight_or_relations_are_counted() -> None:
    """They are neither new nor gone, and training losses change with them."""
    graph = weighted(random_graph(3, nodes=40, edges=60), 3)
    assert graph.edge_weight is not None
    weight = graph.edge_weight.clone()
    u, v = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]][:, 0].tolist()
    both = ((graph.edge_index == torch.tensor([[u], [v]])) | (graph.edge_index == torch.tensor([[v], [u]]))).all(dim=0)
    weight[both] *= 2
    plan = gf.plan_update(gf.train(graph, "sgc"), graph, dataclasses.replace(graph, edge_weight=weight), trust_ids=True)
    assert (plan.changed_edges, plan.new_edges, plan.lost_edges) == (1, 0, 0)
    assert plan.affected > 0
    named: dict[str, Any] = {"edge_weight": None, "relation_names": ("knows", "pays")}
    masks = torch.ones(graph.edge_index.shape[1], dtype=torch.int64)
    before, after = (
        dataclasses.replace(graph, edge_relations=torch.where(both, mask, masks), **named) for mask in (1, 3)
    )
    other = gf.plan_update(gf.train(before, "relational-sign"), before, after, trust_ids=True)
    assert (other.changed_edges, other.new_edges, other.lost_edges) == (1, 0, 0)


def test_what_was_deleted_is_counted_and_the_update_would_be_refused() -> None:
    people = tuple(f"patient-{row}" for row in range(40))
    graph = dataclasses.replace(random_graph(3, nodes=40, edges=60, unlabelled=0), subject_ids=people)
    first = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(nodes=[people[7]], labels=[people[8]]))
    plan = gf.plan_update(first.trained, first.graph, graph)
    assert (plan.level, plan.deleted_again) == (None, {"node": 1, "label": 1})
    assert plan.meaning.startswith("would be refused: the new graph would bring back 2 deleted items")
    assert "patient" not in json.dumps(plan.to_dict())
    readmitted = gf.plan_update(first.trained, first.graph, graph, readmit="consent of 3 May")
    assert (readmitted.level, readmitted.deleted_again) == ("certified", {"node": 1, "label": 1})
    with pytest.raises(gf.InputError, match="cannot update a graph"):
        gf.plan_update(first.trained, first.graph, graph, method="idea")


def test_the_command_shows_the_plan_and_writes_nothing(tmp_path: Path, run: Run) -> None:
    graph = gf.load("patients")
    folder = gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    gf.answer(folder, gf.Request(nodes=["patient-0017"]))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shown = run("update", folder, "--data", "patients", "--plan")
    assert shown.code == 0, shown.stderr
    assert "1 deleted item (1 node) would come back" in " ".join(shown.stdout.split())
    plan = json.loads(run("update", folder, "--data", "patients", "--plan", "--json").stdout)
    assert (plan["audience"], plan["new_nodes"], plan["deleted_again"]) == ("private", 1, {"node": 1})
    assert plan["level"] is None
    for more in (["--in-place"], ["--out", tmp_path / "out"], ["--id", "1"]):
        refused = run("update", folder, "--data", "patients", "--plan", *more)
        assert refused.code == 2
        assert "--plan changes nothing" in refused.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
