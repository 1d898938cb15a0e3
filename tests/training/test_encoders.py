"""Encoders of stacked models: which of them a request trains again, and that training would give the others again."""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import CLASSES, COLUMNS, OwnGCN, claim_of, graphs, random_graph, requests
from graphforget.certificates.claims.combined import Combined
from graphforget.models.composite import made_by_seed
from graphforget.request.kinds import KINDS
from graphforget.request.sampling import Drawing, draw_request
from graphforget.training.recipe import derived_seed
from graphforget.training.state import same_tensors


class WithBatchNorm(OwnGCN):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.norm(super().forward(x, edge_index))


SMALL: dict[str, Any] = {"hidden": 3, "epochs": 3, "parts": 3}


@functools.cache
def example() -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=60, edges=140)
    return gf.train(graph, "stacked-gcn", **SMALL), graph


def encoders(trained: gf.Trained) -> tuple[torch.nn.Module, ...]:
    held = trained.stacked.encoders
    assert held is not None
    return held.modules


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "sage"])
def test_an_encoder_is_the_network_trained_on_its_part_alone(name: str) -> None:
    graph = random_graph(3, nodes=60, edges=140)
    options: Any = {"hidden": 3, **({"heads": 2} if name == "gat" else {})}
    trained = gf.train(graph, f"stacked-{name}", **options, epochs=4, parts=2)
    module, recipe = trained.stacked, trained.recipe
    for number, encoder in enumerate(encoders(trained)):
        part = graph.induced(module.part_of(graph, seed=0) == number)
        alone = gf.train(
            part,
            name,
            **options,
            seed=derived_seed(0, number),
            mu=module.encoder_mu,
            epochs=4,
            learning_rate=recipe.learning_rate,
            polish_steps=0,
        )
        assert same_tensors(encoder.state_dict(), alone.module.state_dict())


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_request_ends_with_the_encoders_of_training_on_the_retained_graph(data: st.DataObject) -> None:
    """Bit for bit, and those of untouched parts are the very same objects. The head ends within its tolerance."""
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    seed = data.draw(st.integers(0, 3))
    trained = gf.train(graph, "stacked-gcn", seed=seed, **SMALL)
    try:
        outcome = gf.unlearn(trained, graph, request)
    except gf.InputError as error:  # no training node is left
        assert "no training node" in str(error)
        return
    anew = gf.train(outcome.graph, "stacked-gcn", seed=seed, **SMALL, tolerance=1e-7)
    assert same_tensors(outcome.trained.released_state, anew.released_state)
    kept = sum(a is b for a, b in zip(encoders(trained), encoders(outcome.trained), strict=True))
    assert kept == 3 - outcome.details["renewed"]
    tolerance = outcome.certificate.tolerance
    assert tolerance is not None
    assert float((outcome.centre - anew.theta).norm()) <= tolerance + 1e-7


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_no_encoder_is_trained_again_in_vain(data: st.DataObject) -> None:
    """An encoder is trained again only if what it reads changes; then its part, its labels or its edges did."""
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    trained = gf.train(graph, "stacked-gcn", **SMALL)
    module, retained = trained.stacked, graph.without(request)
    try:
        renewed = gf.unlearn(trained, graph, request).details["renewed"]
    except gf.InputError:
        return
    changed = 0
    for number in range(3):
        before, after = (one.induced(module.part_of(one, seed=0) == number) for one in (graph, retained))
        changed += before.num_nodes != after.num_nodes or before.digest != after.digest
    assert renewed <= changed


def test_an_edge_between_two_parts_touches_no_encoder() -> None:
    trained, graph = example()
    part_of = trained.stacked.part_of(graph, seed=0)
    first, second = part_of[graph.edge_index]
    across = tuple(graph.edge_index[:, first != second].T[0].tolist())
    inside = tuple(graph.edge_index[:, (first == second) & graph.train_mask[graph.edge_index[0]]].T[0].tolist())
    assert gf.unlearn(trained, graph, gf.Request(edges=[across])).details["renewed"] == 0
    assert gf.unlearn(trained, graph, gf.Request(edges=[inside])).details["renewed"] == 1
    assert gf.plan(trained, graph, gf.Request(edges=[across])).renewed_encoders == 0


def test_the_encoder_of_a_users_module_is_trained_again_whatever_its_reach_seems_to_be() -> None:
    """A node that no message of the counted reach carries to a training node."""
    graph = random_graph(3, nodes=60, edges=140)
    lonely = gf.Graph.create(
        x=torch.cat([graph.x.to_dense(), torch.ones(1, COLUMNS)]),
        edges=graph.edge_index,
        y=torch.cat([graph.y, torch.tensor([-1])]),
        train_mask=torch.cat([graph.train_mask, torch.tensor([False])]),
    )
    request = gf.Request(nodes=[60])
    built_in = gf.unlearn(gf.train(lonely, "stacked-gcn", **SMALL), lonely, request)
    own = gf.unlearn(gf.train(lonely, gf.stacked(OwnGCN, parts=3, epochs=3)), lonely, request)
    assert (built_in.details["renewed"], own.details["renewed"]) == (0, 1)


def test_another_environment_trains_all_encoders_again() -> None:
    trained, graph = example()
    elsewhere = dataclasses.replace(trained.recipe, environment=trained.recipe.environment | {"threads": 99})
    outcome = gf.unlearn(dataclasses.replace(trained, recipe=elsewhere), graph, gf.Request(nodes=[4]))
    assert outcome.details["renewed"] == 3
    assert outcome.trained.recipe.environment == trained.recipe.environment
    assert same_tensors(
        outcome.trained.released_state, gf.unlearn(trained, graph, gf.Request(nodes=[4])).trained.released_state
    )


def test_every_path_ends_in_the_same_claim() -> None:
    trained, graph = example()
    request = gf.Request(nodes=[4], attributes={6: "all"})
    stepped, retrained = gf.unlearn(trained, graph, request), gf.unlearn(trained, graph, request, method="retrain")
    assert claim_of(stepped, Combined).to_dict() == claim_of(retrained, Combined).to_dict()
    assert same_tensors(stepped.trained.released_state, retrained.trained.released_state)
    assert stepped.level == retrained.level == "certified"
    assert stepped.certificate.statement.startswith("encoders: ")


def test_retraining_gives_the_same_encoders_also_with_a_polish_and_a_loose_head() -> None:
    """Retraining trains the head to a smaller tolerance, which must not reach the encoders."""
    graph = random_graph(3, nodes=60, edges=140)
    trained = gf.train(graph, "stacked-gcn", **SMALL, polish_steps=200, tolerance=2.0)
    request = gf.Request(nodes=[4])
    stepped, retrained = (gf.unlearn(trained, graph, request, method=name) for name in ("newton", "retrain"))
    assert same_tensors(stepped.trained.released_state, retrained.trained.released_state)
    assert gf.verify(retrained.certificate, retrained.trained, retrained.graph, replay=True).checks


GIVEN = {"a": range(20), "b": range(20, 60)}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("sigma", "method"), [(0.05, "newton"), (0.05, "retrain"), (0.0, "auto")])
def test_given_parts_stay_with_the_model_on_every_path(own: bool, sigma: float, method: str) -> None:
    graph = random_graph(3, nodes=60, edges=140)
    trained = given_parts(graph, own, sigma)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method=method)
    assert trained.stacked.encoders is not None
    assert all(trained.stacked.encoders.scales)
    anew = given_parts(outcome.graph, own, sigma)
    assert same_tensors(outcome.trained.released_state, anew.released_state)
    given: Any = {"released": outcome.released, "replay": True}
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, **given).checks


def given_parts(graph: gf.Graph, own: bool, sigma: float) -> gf.Trained:
    numbers = set(graph.numbers.tolist())
    parts = {name: [number for number in nodes if number in numbers] for name, nodes in GIVEN.items()}
    if own:
        return gf.train(graph, gf.stacked(OwnGCN, parts=parts, epochs=3), sigma=sigma)
    return gf.train(graph, "stacked-gcn", hidden=3, epochs=3, parts=parts, sigma=sigma)


def test_a_part_that_is_left_with_one_node_has_no_encoder() -> None:
    """BatchNorm, for one, cannot be trained on one node."""
    graph = random_graph(3, nodes=60, edges=140)
    pair = graph.train_rows[:2].tolist()
    rest = [number for number in range(60) if number not in pair]
    model = gf.stacked(WithBatchNorm, parts={"pair": pair, "rest": rest}, epochs=3)
    outcome = gf.unlearn(gf.train(graph, model), graph, gf.Request(nodes=pair[:1]))
    assert outcome.level == "certified"
    assert outcome.trained.stacked.encoders is not None
    assert [bool(scale) for scale in outcome.trained.stacked.encoders.scales] == [False, True]


def test_without_noise_a_stacked_model_is_exact() -> None:
    graph = random_graph(3, nodes=60, edges=140)
    trained = gf.train(graph, "stacked-gcn", sigma=0.0, **SMALL)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    anew = gf.train(outcome.graph, "stacked-gcn", sigma=0.0, **SMALL)
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, anew.theta)
    assert same_tensors(outcome.trained.released_state, anew.released_state)
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, released=outcome.released, replay=True).checks


def test_other_methods_do_not_take_it() -> None:
    trained, graph = example()
    for method in ("idea", "gif", "ascent", "ceu", "grapheraser", "cgu"):
        with pytest.raises(gf.InputError, match=f"method '{method}' does not work here"):
            gf.unlearn(trained, graph, gf.Request(edges=[tuple(graph.edge_index[:, 0].tolist())]), method=method)


def test_fresh_encoders_do_not_change_the_random_state_of_the_caller() -> None:
    trained, _ = example()
    torch.manual_seed(7)
    random.seed(7)
    expected = torch.rand(3), random.random()
    torch.manual_seed(7)
    random.seed(7)
    made_by_seed(trained.stacked.make, 1)
    assert torch.equal(torch.rand(3), expected[0])
    assert random.random() == expected[1]


@pytest.mark.slow
def test_requests_in_a_row_stay_certified_and_end_where_the_pipeline_ends() -> None:
    trained, graph = example()
    rng, kinds = np.random.default_rng(0), [one for one in KINDS if one not in ("graphs", "edge weights")]
    for number in range(12):
        kind = kinds[number % len(kinds)]
        request = draw_request(graph, Drawing(kind, count=1), seed=int(rng.integers(1000)))
        outcome = gf.unlearn(trained, graph, request)
        assert outcome.level == "certified"
        trained, graph = outcome.trained, outcome.graph
    anew = gf.train(graph, "stacked-gcn", **SMALL, tolerance=1e-7)
    assert same_tensors(trained.released_state, anew.released_state)
    assert outcome.certificate.tolerance is not None
    assert float((outcome.centre - anew.theta).norm()) <= outcome.certificate.tolerance + 1e-7


def test_a_plan_says_how_many_encoders_are_trained_again() -> None:
    trained, graph = example()
    plan = gf.plan(trained, graph, gf.Request(nodes=[4]))
    assert (plan.method, plan.level, plan.encoders, plan.renewed_encoders) == ("newton", "certified", 3, 1)
    assert plan.seconds is not None
    assert plan.seconds > 0
    everything = gf.plan(trained, graph, gf.Request(nodes=[4]), method="retrain")
    assert everything.renewed_encoders == 3
    sgc = gf.train(graph, "sgc")
    assert gf.plan(sgc, graph, gf.Request(nodes=[4])).encoders is None
