"""Stacked models that answer for links and graphs: features, encoders on parts, certificates, runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import graphforget as gf
from cases import claim_of, random_graph
from collection_cases import random_collection
from graphforget.certificates.claims.combined import Combined
from graphforget.graph.links import MESSAGE, edge_sides
from graphforget.linalg.newton import newton_cg
from graphforget.models.encoders import Encoders
from graphforget.models.inputs import model_inputs
from graphforget.models.item_networks import ItemNetwork
from graphforget.models.items import items_of
from graphforget.models.stacked_items import StackedOnItems
from graphforget.training.encoders import with_replayed_encoders
from graphforget.training.state import same_tensors

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL: dict[str, Any] = {"hidden": 3, "epochs": 4, "parts": 3}
CASES = ("link", "graph")


def example(task: str, *, seed: int = 0) -> tuple[gf.Trained, gf.Graph]:
    if task == "link":
        graph = random_graph(seed, nodes=60, edges=220)
        return gf.train(graph, "stacked-gcn", task="link", messages=0.6, test=0.1, validation=0.1, **SMALL), graph
    graph = random_collection(seed, graphs=24)
    return gf.train(graph, "stacked-gin", rounds=2, buckets=32, **SMALL), graph


def requests_of(task: str, graph: gf.Graph) -> list[gf.Request]:
    edge, another = (tuple(graph.edge_index[:, at].tolist()) for at in (0, -3))
    if task == "graph":
        graphs = graph.numbers_of_graphs.tolist()
        return [
            gf.Request(graphs=graphs[2:3]),
            gf.Request(edges=[edge]),
            gf.Request(attributes={int(graph.numbers[-1]): "all"}),
            gf.Request([int(graph.numbers[-2])], [another], {int(graph.numbers[-1]): [0]}, graphs[3:4]),
        ]
    nodes = graph.numbers.tolist()
    alone = [gf.Request(nodes=nodes[7:8]), gf.Request(edges=[edge]), gf.Request(attributes={nodes[9]: "all"})]
    return [*alone, gf.Request(nodes[20:22], [another], {nodes[23]: [0, 2]})]


def optimum(trained: gf.Trained, graph: gf.Graph) -> Tensor:
    found = newton_cg(trained.objective(graph), torch.zeros_like(trained.theta), gradient_tolerance=1e-12)
    assert found.gradient_norm <= 1e-10
    return found.theta


def held_encoders(trained: gf.Trained) -> Encoders:
    held = trained.stacked.encoders
    assert held is not None
    return held


@pytest.mark.parametrize("task", CASES)
def test_logits_are_those_of_the_features_side_by_side(task: str) -> None:
    trained, graph = example(task)
    module = trained.module
    assert isinstance(module, StackedOnItems)
    features, stacked = model_inputs(module, graph, dtype=torch.float64)
    dense = features.values if hasattr(features, "values") else features.csr.to_dense()
    fixed = module.fixed
    expected = dense @ fixed.weight + fixed.bias + stacked.embeddings @ module.weight
    assert stacked.embeddings.shape == (len(trained.items(graph)), 3 * 3)
    torch.testing.assert_close(trained.logits(graph), expected.detach())


@pytest.mark.parametrize("task", CASES)
def test_gradients_and_curvature_are_those_of_autograd(task: str) -> None:
    trained, graph = example(task)
    objective, generator = trained.objective(graph), torch.Generator().manual_seed(0)
    theta = trained.theta + 0.1 * torch.randn(trained.theta.shape, generator=generator, dtype=torch.float64)
    step = torch.randn(theta.shape, generator=generator, dtype=torch.float64)
    leaf = theta.clone().requires_grad_()
    data = objective.data
    total = data.loss(data.logits(leaf), data.labels).mean() + 0.5 * objective.mu * leaf @ leaf
    (gradient,) = torch.autograd.grad(total, leaf, create_graph=True)
    torch.testing.assert_close(objective.gradient(theta), gradient.detach())
    (product,) = torch.autograd.grad(gradient @ step, leaf)
    torch.testing.assert_close(objective.hessian(theta)(step), product)


@pytest.mark.parametrize("task", CASES)
def test_the_norms_of_the_rows_are_bounds(task: str) -> None:
    trained, graph = example(task)
    data = trained.objective(graph).data
    jacobian = data.jacobian(trained.theta)
    outputs = jacobian.value.shape[1]
    rows = []
    for row in range(data.rows.numel()):
        unit = torch.zeros(data.rows.numel(), outputs, dtype=torch.float64)
        unit[row, 0] = 1
        rows.append(float(jacobian.adjoint(unit).norm()))
    total, squares = data.row_norm_sums
    assert sum(rows) <= total * (1 + 1e-12)
    assert sum(row**2 for row in rows) <= squares * (1 + 1e-12)


@pytest.mark.parametrize("task", CASES)
def test_an_encoder_is_the_network_trained_on_its_part_alone(task: str) -> None:
    trained, graph = example(task)
    module, recipe = trained.stacked, trained.recipe
    assert module.encoders is not None
    for number, encoder in enumerate(module.encoders.modules):
        part = graph.induced(module.part_of(graph, seed=recipe.seed) == number)
        elsewhere = with_replayed_encoders(trained, part).stacked  # the other parts are empty there
        assert elsewhere.encoders is not None
        assert same_tensors(encoder.state_dict(), elsewhere.encoders.modules[number].state_dict())
        assert isinstance(encoder, ItemNetwork)


@pytest.mark.parametrize("task", CASES)
def test_encoders_of_untouched_parts_stay_and_the_others_are_those_of_the_retained_graph(task: str) -> None:
    trained, graph = example(task)
    changed = 0
    for request in requests_of(task, graph):
        outcome = gf.unlearn(trained, graph, request)
        assert outcome.level == "certified"
        claim_of(outcome, Combined)
        replayed = with_replayed_encoders(outcome.trained, outcome.graph)
        before, after, again = (held_encoders(model) for model in (trained, outcome.trained, replayed))
        assert same_tensors(after.state(), again.state())
        same = [
            same_tensors(a.state_dict(), b.state_dict()) for a, b in zip(before.modules, after.modules, strict=True)
        ]
        assert same.count(False) <= 1 or sum(map(bool, (request.nodes, request.edges, request.attributes))) > 1
        assert outcome.details["renewed"] >= same.count(False)
        changed += same.count(False)
        away = float((outcome.centre - optimum(outcome.trained, outcome.graph)).norm())
        assert away <= outcome.measured["distance"] + 1e-10 / trained.recipe.mu
        gf.verify(
            outcome.certificate,
            outcome.trained,
            outcome.graph,
            released=outcome.released_theta,
            annexes=[outcome.annex],
            replay=True,
        )
        trained, graph = outcome.trained, outcome.graph
    assert changed


def test_encoders_of_links_never_see_a_supervised_edge() -> None:
    trained, graph = example("link")
    module = trained.module
    assert isinstance(module, StackedOnItems)
    view = module.encoder_view
    part = view.training_graph(graph)
    pairs, sides = edge_sides(graph, view.settings)  # type: ignore[attr-defined]
    learned = {tuple(pair) for pair in graph.numbers[pairs[sides == MESSAGE]].tolist()}
    assert part.num_edges == len(learned)
    items = view.items(part)
    assert {tuple(pair) for pair in items.keys[items.y.flatten() > 0].tolist()} == learned


def test_the_nodes_of_a_graph_are_in_one_part() -> None:
    trained, graph = example("graph")
    parts = trained.stacked.part_of(graph, seed=trained.recipe.seed)
    assert graph.graph_numbers is not None
    for number in graph.numbers_of_graphs.tolist():
        assert len(parts[graph.graph_numbers == number].unique()) == 1
    assert len(parts.unique()) == 3


@pytest.mark.parametrize("task", CASES)
def test_a_run_is_read_as_it_was_written(task: str, tmp_path: Path) -> None:
    trained, graph = example(task)
    gf.save_run(tmp_path / "run", trained, graph)
    again, same = gf.load_run(tmp_path / "run")
    assert same.digest == graph.digest
    assert torch.equal(again.logits(same), trained.logits(graph))
    assert same_tensors(again.released_state, trained.released_state)
    outcome = gf.unlearn(again, same, requests_of(task, same)[0])
    assert outcome.level == "certified"


@pytest.mark.parametrize("task", CASES)
def test_parts_are_given_by_their_number(task: str) -> None:
    _, graph = example(task)
    name = "stacked-gcn" if task == "link" else "stacked-gin"
    with pytest.raises(gf.InputError, match=f"a model that answers for {task}s"):
        gf.train(graph, name, task=task, **SMALL | {"parts": {"mine": [0, 1]}})


@pytest.mark.parametrize(("task", "name"), [("link", "gcn"), ("graph", "gin"), ("graph", "gcn")])
def test_a_network_on_items_is_forgotten_exactly(task: str, name: str) -> None:
    _, graph = example(task)
    trained = gf.train(graph, name, task=task, hidden=4, epochs=5)
    assert trained.logits(graph).shape[0] == len(items_of(trained.module, graph))
    outcome = gf.unlearn(trained, graph, requests_of(task, graph)[0])
    assert (outcome.level, outcome.method) == ("exact", "retrain")
    fresh = gf.train(outcome.graph, name, task=task, **trained.recipe.options | {"epochs": 5})
    assert torch.equal(fresh.theta, outcome.trained.theta)
