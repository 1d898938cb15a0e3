"""GNNDelete: its operators against the formula, what it refuses, and what it cannot hide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from cases import weighted
from graphforget.models.deletion import DeletionModel
from graphforget.models.gcn import GCN
from graphforget.models.propagation import normalised_adjacency
from graphforget.testing import example_graph, example_requests

TRAINING: dict[str, Any] = {"hidden": 5, "epochs": 60, "dropout": 0.0}
QUICK: dict[str, Any] = {"method": "gnndelete", "level": "empirical", "epochs": 150, "learning_rate": 0.01}


def deleted(outcome: gf.Outcome) -> DeletionModel:
    module = outcome.trained.module
    assert isinstance(module, DeletionModel)
    return module


@pytest.fixture(scope="module")
def start() -> tuple[gf.Trained, gf.Graph]:
    graph = example_graph()
    return gf.train(graph, "gcn", seed=0, **TRAINING), graph


@pytest.mark.parametrize("kind", ["nodes", "edges", "attributes", "partial attributes"])
def test_the_model_is_the_old_one_with_a_matrix_for_the_nodes_within_reach(
    kind: str, start: tuple[gf.Trained, gf.Graph]
) -> None:
    trained, graph = start
    outcome = gf.unlearn(trained, graph, example_requests(graph)[kind], **QUICK)
    module, after = deleted(outcome), outcome.graph
    old = trained.module
    assert isinstance(old, GCN)
    x = after.x.to_dense()
    x = x / x.norm(dim=1, keepdim=True).clamp_min(1e-300)
    propagation = normalised_adjacency(after.edge_index, after.num_nodes, dtype=torch.float64).csr.to_dense()
    with torch.no_grad():
        first = propagation @ x @ old.first.weight.double() + old.first_bias
        rows = torch.isin(after.numbers, module.first_numbers)
        first[rows] = first[rows] @ module.first_operator
        second = propagation @ first.relu() @ old.second.weight.double() + old.second_bias
        rows = torch.isin(after.numbers, module.second_numbers)
        second[rows] = second[rows] @ module.second_operator
    assert torch.allclose(outcome.trained.logits(after), second, atol=1e-9)


def test_node_requests_reach_the_neighbours_of_the_deleted_nodes(start: tuple[gf.Trained, gf.Graph]) -> None:
    """In the released code they reach nobody, and nothing changes."""
    trained, graph = start
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), **QUICK)
    source, target = graph.edge_index
    neighbours = graph.numbers[target[(source == 4) & (target != 4)]]
    assert neighbours.numel()
    assert torch.isin(neighbours, deleted(outcome).first_numbers).all()
    before = trained.logits(graph)[torch.searchsorted(graph.numbers, outcome.graph.numbers)]
    rows = torch.isin(outcome.graph.numbers, neighbours)
    assert (outcome.trained.logits(outcome.graph) - before).abs()[rows].max() > 0.01


def test_both_losses_fall_and_far_nodes_stay(start: tuple[gf.Trained, gf.Graph]) -> None:
    trained, graph = start
    request = example_requests(graph)["edges"]
    short, long = (gf.unlearn(trained, graph, request, **QUICK | {"epochs": e}) for e in (1, 300))
    assert all(a > b for a, b in zip(short.details["losses"], long.details["losses"], strict=True))
    far = ~torch.isin(graph.numbers, deleted(long).second_numbers)
    assert far.any()
    untouched = trained.logits(long.graph)[far]
    assert torch.allclose(long.trained.logits(long.graph)[far], untouched, atol=1e-9)


def test_it_answers_for_links() -> None:
    graph = example_graph(7, nodes=60, edges=150)
    trained = gf.train(graph, "link-gcn", seed=0, hidden=6, epochs=40)
    outcome = gf.unlearn(trained, graph, example_requests(graph)["edges"], **QUICK)
    assert outcome.level == "empirical"
    assert outcome.trained.scores(outcome.graph)["auc"] > 0
    assert outcome.trained.logits(outcome.graph).shape == trained.logits(outcome.graph).shape


def test_where_nobody_is_near_nothing_is_forgotten(start: tuple[gf.Trained, gf.Graph]) -> None:
    trained, graph = start
    degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes)
    lonely = int((degrees == 0).nonzero().flatten()[0])
    with pytest.raises(gf.Refused, match="^no retained node is near the data to delete"):
        gf.unlearn(trained, graph, gf.Request(nodes=[lonely]), otherwise="refuse", **QUICK)


def test_it_is_not_stored_and_only_retraining_goes_on(start: tuple[gf.Trained, gf.Graph], tmp_path: Path) -> None:
    trained, graph = start
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), **QUICK)
    with pytest.raises(gf.InputError, match="^a model with operators of 'gnndelete' names nodes around deleted data"):
        gf.save_outcome(tmp_path / "run", outcome)
    assert list(tmp_path.iterdir()) == []
    for method in ("gnndelete", "idea", "gif", "ascent", "megu"):
        with pytest.raises(gf.InputError, match=f"^method '{method}' does not work here: the model has operators"):
            gf.unlearn(outcome.trained, outcome.graph, gf.Request(nodes=[5]), method=method, level="empirical")
    again = gf.unlearn(outcome.trained, outcome.graph, gf.Request(nodes=[5]), method="retrain")
    assert again.level == "exact"
    assert type(again.trained.module) is GCN
    with pytest.raises(gf.Refused, match="cannot be continued"):
        gf.unlearn(outcome.trained, outcome.graph, gf.Request(nodes=[5]), method="retrain", start="continued")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs is 0, at least 1 is needed"),
        ({"alpha": 2}, "alpha is 2, a number from 0 to 1 is needed"),
        ({"start": "zero"}, "start is 'zero', it must be published or identity"),
        ({"learning_rate": -1}, "learning_rate is -1, a positive number is needed"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str, start: tuple[gf.Trained, gf.Graph]) -> None:
    trained, graph = start
    with pytest.raises(gf.InputError, match=f"^{message}$"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="gnndelete", **options)


def test_models_without_its_two_layers_are_refused() -> None:
    graph = example_graph()
    for model in ("sgc", "gin"):
        options: dict[str, Any] = {} if model == "sgc" else {"hidden": 4, "epochs": 3}
        trained = gf.train(graph, model, **options)
        with pytest.raises(gf.InputError, match="^method 'gnndelete' does not work here: it needs two layers"):
            gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="gnndelete")


def test_graphs_with_edge_weights_are_refused_before_anything_is_trained() -> None:
    graph = weighted(example_graph(), 0)
    trained = gf.train(graph, "gcn", hidden=4, epochs=3)
    stages: list[str] = []
    with pytest.raises(gf.InputError, match="^method 'gnndelete' does not work here: the graph has edge weights"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), progress=lambda stage, *_: stages.append(stage), **QUICK)
    assert stages == []


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"learning_rate": 1e-300}])
def test_operators_that_stay_the_identity_are_no_success(
    options: dict[str, float], start: tuple[gf.Trained, gf.Graph]
) -> None:
    trained, graph = start
    given: Any = {**QUICK, "epochs": 3, "start": "identity", **options}
    with pytest.raises(gf.Refused, match="change no answer, so nothing was forgotten"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), **given)
