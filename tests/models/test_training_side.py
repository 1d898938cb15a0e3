"""What training reads of a graph is its training side, bit for bit; and a view that was altered proves nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import graphforget as gf
from cases import COLUMNS, random_graph
from collection_cases import COLUMNS as GRAPH_COLUMNS
from collection_cases import random_collection
from graphforget.graph.links import SUPERVISED, LinkSettings, edge_sides
from graphforget.models.graph_items import GraphView
from graphforget.models.items import ItemModel, ItemView
from graphforget.models.link import LinkSIGN
from graphforget.models.link_view import LinkView
from graphforget.models.registry import build
from graphforget.request.footprint import Footprint
from graphforget.training.losses import as_loss

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS: dict[str, dict[str, Any]] = {
    "link-sign": {"test": 0.2, "validation": 0.1, "messages": 0.6},
    "graph-wl": {"rounds": 2, "buckets": 64},
    "graph-sign": {"hops": 2},
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("model", OPTIONS)
def test_the_objective_is_that_of_the_training_side(model: str, seed: int) -> None:
    links = model.startswith("link")
    graph = random_graph(seed, nodes=40, edges=120) if links else random_collection(seed, graphs=20)
    columns = COLUMNS if links else GRAPH_COLUMNS
    module = build(model, columns=columns, classes=2, **OPTIONS[model]).double()
    assert isinstance(module, ItemModel)
    part = module.view.training_graph(graph)
    assert (part.num_nodes, part.num_edges) != (graph.num_nodes, graph.num_edges)
    loss = as_loss("logistic" if links else "cross_entropy")
    whole, learned = (gf.Objective(module, one, mu=1e-3, loss=loss) for one in (graph, part))
    theta = torch.randn(whole.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert whole.m == learned.m > 0
    assert whole.value(theta) == learned.value(theta)
    assert torch.equal(whole.gradient(theta), learned.gradient(theta))


@pytest.mark.parametrize("seed", range(10))
def test_encoders_of_links_take_no_supervised_edge_for_an_absent_link(seed: int) -> None:
    graph = random_graph(seed, nodes=30, edges=200)
    view = LinkView(LinkSettings(split_seed=seed, messages=0.4, negatives=10)).encoder_view()
    pairs, sides = edge_sides(graph, view.settings)
    supervised = {tuple(pair) for pair in graph.numbers[pairs[sides == SUPERVISED]].tolist()}
    part = view.training_graph(graph)
    here, there = view.items(graph), view.items(part)
    absent = {tuple(pair) for pair in there.keys[there.y[:, 0] == 0].tolist()}
    assert len(supervised) > 10
    assert len(absent) > 10
    assert not absent & supervised
    assert torch.equal(here.keys[here.train_mask], there.keys[there.train_mask])
    assert torch.equal(here.y[here.train_mask], there.y[there.train_mask])


class OtherLinks(LinkView):
    pass


class OtherGraphs(GraphView):
    pass


class OtherSettings(LinkSettings):
    pass


NONE = torch.zeros(0, dtype=torch.int64)


def with_attribute(view: ItemView, name: str, value: Any) -> ItemView:
    altered = copy.copy(view)
    object.__setattr__(altered, name, value)
    return altered


VIEWS: dict[str, Any] = {
    "a subclass": lambda view: (OtherLinks if isinstance(view, LinkView) else OtherGraphs)(**vars(view)),
    "its own items": lambda view: with_attribute(view, "items", view.items),
    "no footprint": lambda view: with_attribute(view, "touched", lambda *_: Footprint(NONE, NONE, NONE, NONE)),
    "other settings": lambda view: with_attribute(view, "settings", OtherSettings()),
}


@pytest.mark.parametrize("how", VIEWS)
@pytest.mark.parametrize("task", ["link", "graph"])
def test_a_model_with_another_view_proves_nothing(task: str, how: str) -> None:
    """It is refused, or a model with a view of the package is trained in its place; its weights never stay."""
    graph = random_graph(1, nodes=60, edges=200) if task == "link" else random_collection(1, graphs=20)
    request = gf.Request(nodes=[0, 1, 2])
    for sigma in (None, 0.0):
        trained = gf.train(graph, "sign", task=task, sigma=sigma)
        module: Any = trained.module
        assert trained.proven_convex
        assert trained.reach_is_proven
        module.view = VIEWS[how](module.view)
        assert not trained.proven_convex
        assert not trained.reach_is_proven
        if sigma is None:
            with pytest.raises(gf.InputError, match="not strongly convex|other settings than its recipe says"):
                gf.unlearn(trained, graph, request)
        try:
            outcome = gf.unlearn(trained, graph, request, method="retrain")
        except gf.InputError as error:
            assert "other settings than its recipe says" in str(error)
            continue
        fresh = gf.train(outcome.graph, "sign", task=task, sigma=sigma, **trained.recipe.options)
        assert torch.equal(outcome.trained.theta, fresh.theta)
        assert type(outcome.trained.module.view) in (LinkView, GraphView)
        with pytest.raises(gf.Mismatch):  # and its old weights are not what is certified
            gf.verify(outcome.certificate, trained, outcome.graph, annexes=[outcome.annex])


def test_a_module_for_links_is_not_taken_in_place_of_its_name() -> None:
    graph = random_graph(1, nodes=60, edges=200)
    for module in (LinkSIGN(COLUMNS, 1), build("graph-sign", columns=COLUMNS, classes=3)):
        with pytest.raises(gf.InputError, match="give the name of a model"):
            gf.train(graph, module)
        with pytest.raises(gf.InputError, match="give the name of a model"):
            gf.train(graph, module, task="link")
