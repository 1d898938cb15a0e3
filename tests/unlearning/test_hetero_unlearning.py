"""Forgetting in heterogeneous graphs: what relations are worth, the certificate's ball, chains, growth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

import graphforget as gf
from cases import claim_of, present
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.linalg.newton import newton_cg
from graphforget.request.change import change_footprint
from graphforget.training.objective import Objective
from hetero_cases import random_data, random_hetero, random_hetero_request, two_signals


def test_a_graph_with_relations_is_learned_and_forgotten_by_default() -> None:
    """Two relations that mean different things: with one propagation each the model is far better than on the union."""
    graph = two_signals(0)
    union = dataclasses.replace(graph, edge_relations=None, relation_names=None)
    trained, mixed = gf.train(graph), gf.train(union, "sign", hops=2)
    assert trained.recipe.model == "relational-sign"
    assert trained.utility(graph, graph.test_mask) >= mixed.utility(union, union.test_mask) + 0.1
    request = gf.Request(
        nodes=["person:17", "person:99"], edges=[edge_of(graph, 5)], attributes={"person:40": ["person:1"]}
    )
    plan = gf.plan(trained, graph, request)
    assert (plan.level, plan.nodes, plan.item) == ("certified", 2, "node")
    outcome = gf.unlearn(trained, graph, request)
    assert outcome.level == "certified"
    assert "person:17" not in (outcome.graph.subject_ids or ())
    gf.verify(outcome.certificate, outcome.trained, outcome.graph, released=outcome.released_theta)
    assert (
        outcome.released.utility(outcome.graph, outcome.graph.test_mask)
        >= trained.utility(graph, graph.test_mask) - 0.05
    )


def edge_of(graph: gf.Graph, place: int) -> tuple[int | str, int | str]:
    source, target = graph.edge_index[:, place].tolist()
    return graph.name_of(source), graph.name_of(target)


def test_an_edge_goes_in_all_its_relations() -> None:
    data = random_data(0)
    pair = data["paper", "cites", "paper"].edge_index[:, :1]
    data["paper", "extends", "paper"].edge_index = pair
    graph = gf.Graph.from_hetero(data, target="paper")
    names = [f"paper:{node}" for node in pair.flatten().tolist()]
    both = [graph.edge_relations[place] for place, edge in enumerate(named(graph)) if set(edge) == set(names)]  # type: ignore[index]
    assert [int(mask).bit_count() for mask in both] == [2, 2]
    after = graph.without(gf.Request(edges=[(names[0], names[1])]))
    assert not any(set(edge) == set(names) for edge in named(after))
    assert after.relation_names == graph.relation_names


def named(graph: gf.Graph) -> list[list[int | str]]:
    return [[graph.name_of(row) for row in edge] for edge in graph.edge_index.T.tolist()]


# -- the ball --------------------------------------------------------------------------------------------------------


def optimum(trained: gf.Trained, graph: gf.Graph) -> Tensor:
    """Trained from 0 on the retained graph, as far as float64 goes; a module of its own, nothing shared."""
    fresh = gf.train(graph, mu=trained.recipe.mu, hops=trained.reach.hops)
    objective = Objective(fresh.module, graph, mu=trained.recipe.mu)
    found = newton_cg(objective, torch.zeros_like(trained.theta), gradient_tolerance=1e-12)
    assert found.gradient_norm <= 1e-10
    return found.theta


def check(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_hetero(
        seed,
        papers=int(rng.integers(8, 20)),
        authors=int(rng.integers(2, 12)),
        directed=bool(rng.integers(2)),
        weighted=bool(rng.integers(2)),
        reverse=bool(rng.integers(2)),
    )
    mu, sigma = float(rng.choice([1e-4, 1e-2, 1.0])), float(rng.choice([0.02, 0.5, 10.0]))
    left = float(rng.choice([1e-5, 10.0]))
    trained = gf.train(graph, mu=mu, sigma=sigma, tolerance=left, hops=int(rng.integers(1, 4)))
    for number in range(2):
        outcome = gf.unlearn(trained, graph, random_hetero_request(graph, seed + 10**6 * number), method="newton")
        assert outcome.level in ("certified", "exact")
        if outcome.level == "certified":
            claim_of(outcome, ResidualBall)
            away = float((outcome.centre - optimum(trained, outcome.graph)).norm())
            assert away <= outcome.measured["distance"] + 1e-10 / mu  # what the oracle may be off by
            assert outcome.measured["distance"] <= present(outcome.certificate.tolerance)
        gf.verify(outcome.certificate, outcome.trained, outcome.graph, annexes=[outcome.annex])
        trained, graph = outcome.trained, outcome.graph


@pytest.mark.parametrize("part", range(3))
def test_the_ball_holds_the_optimum_of_the_retained_graph(part: int, one_thread: None) -> None:
    for seed in range(10 * part, 10 * part + 10):
        check(seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_the_ball_holds_the_optimum_in_three_hundred_cases(part: int, one_thread: None) -> None:
    for seed in range(1000 + 30 * part, 1030 + 30 * part):
        check(seed)


def test_retraining_is_training_on_what_remains() -> None:
    graph = random_hetero(2, papers=30, authors=20)
    request = gf.Request(nodes=["author:3", "paper:7"], attributes={"author:4": "all"})
    trained = gf.train(graph, sigma=0.0)
    outcome = gf.unlearn(trained, graph, request, method="retrain")
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, gf.train(graph.without(request), sigma=0.0).theta)
    gf.verify(outcome.certificate, outcome.trained, outcome.graph, annexes=[outcome.annex], replay=True)


def test_an_author_of_no_training_paper_leaves_the_weights_as_they_are() -> None:
    data = random_data(2)
    data["author"].x = torch.cat([data["author"].x, torch.ones(1, 2, dtype=torch.float64)])
    graph = gf.Graph.from_hetero(data, target="paper")
    trained = gf.train(graph, sigma=0.0)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=["author:8"]))
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, trained.theta)


def test_a_chain_of_requests_stays_certified() -> None:
    graph = two_signals(1, nodes=200)
    trained = gf.train(graph)
    for number in range(10):
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[f"person:{7 * number}"], edges=[edge_of(graph, 300)]))
        assert outcome.level == "certified"
        trained, graph = outcome.trained, outcome.graph
    away = float((outcome.centre - optimum(trained, graph)).norm())
    assert away <= present(outcome.certificate.tolerance)


# -- growth ----------------------------------------------------------------------------------------------------------


def grown(seed: int) -> tuple[gf.Graph, gf.Graph]:
    """A graph, and the same with more authors, another relation between two papers and other attributes."""
    data = random_data(seed, papers=20)
    graph = gf.Graph.from_hetero(data, target="paper")
    data["author"].x = torch.cat([data["author"].x, torch.ones(2, 2, dtype=torch.float64)])
    data["paper"].x[3] += 1
    written = data["author", "writes", "paper"]
    written.edge_index = torch.cat([written.edge_index, torch.tensor([[8, 8, 9], [0, 1, 2]])], dim=1)
    known = {tuple(edge) for edge in data["paper", "cites", "paper"].edge_index.T.tolist()}
    new = next((u, v) for u in range(20) for v in range(u + 1, 20) if (u, v) not in known)
    cited = data["paper", "cites", "paper"]
    cited.edge_index = torch.cat([cited.edge_index, torch.tensor(new).unsqueeze(1)], dim=1)
    return graph, gf.Graph.from_hetero(data, target="paper")


def test_an_update_brings_new_nodes_of_any_type() -> None:
    graph, new = grown(3)
    trained = gf.train(graph)
    outcome = gf.update(trained, graph, new)
    assert outcome.level == "certified"
    assert "author:9" in (outcome.graph.subject_ids or ())
    away = float((outcome.centre - optimum(trained, outcome.graph)).norm())
    assert away <= present(outcome.certificate.tolerance)
    gf.verify(outcome.certificate, outcome.trained, outcome.graph)


def test_an_update_of_the_relations_of_an_edge_alone_is_seen() -> None:
    data = random_data(4)
    graph = gf.Graph.from_hetero(data, target="paper")
    pair = data["paper", "cites", "paper"].edge_index[:, :1]
    data["paper", "extends", "paper"].edge_index = pair.flip(1)[:, :0]
    graph = gf.Graph.from_hetero(data, target="paper")
    data["paper", "extends", "paper"].edge_index = pair
    new = gf.Graph.from_hetero(data, target="paper")
    touched = change_footprint(graph, new, gf.Reach(2, degree_normalised=False))
    trains = {graph.row(f"paper:{node}") for node in pair.flatten().tolist()} & set(graph.train_rows.tolist())
    assert trains
    assert trains <= set(touched.affected.tolist())
    outcome = gf.update(gf.train(graph), graph, new)
    assert outcome.level == "certified"
    away = float((outcome.centre - optimum(outcome.trained, new)).norm())
    assert away <= present(outcome.certificate.tolerance)


def test_a_relation_may_lose_its_last_edge() -> None:
    """Also in records that no longer know it, or list the relations in another order."""
    graph, _ = grown(3)
    data = random_data(3, papers=20)
    cited = data["paper", "cites", "paper"].edge_index
    del data["paper", "cites", "paper"]
    new = gf.Graph.from_hetero(data, target="paper")
    outcome = gf.update(gf.train(graph), graph, new)
    assert outcome.graph.relation_names == graph.relation_names
    asked = gf.Request(edges=[(f"paper:{u}", f"paper:{v}") for u, v in cited.T.tolist()])
    assert graph.without(asked).digest == outcome.graph.digest == new.numbered_as(graph).digest


def test_other_relations_are_refused() -> None:
    graph, _ = grown(3)
    data = random_data(3, papers=20)
    data["author", "reads", "paper"].edge_index = torch.tensor([[0], [0]])
    with pytest.raises(gf.InputError, match="has the relation 'author:reads:paper', which the model does not know"):
        gf.update(gf.train(graph), graph, gf.Graph.from_hetero(data, target="paper"))


def test_another_target_is_refused() -> None:
    graph, _ = grown(3)
    data = random_data(3, papers=20)
    data["author"].y = torch.arange(8) % 3
    with pytest.raises(gf.InputError, match=r"^the nodes with labels of the new graph are of type 'author'"):
        gf.update(gf.train(graph), graph, gf.Graph.from_hetero(data, target="author"))


def test_a_public_reason_names_nobody_without_their_type_either() -> None:
    graph = gf.Graph.from_hetero(
        random_data(4, papers=20), target="paper", subject_ids={"author": ["Zelda", *map(str, range(7))]}
    )
    outcome = gf.unlearn(gf.train(graph), graph, gf.Request(nodes=["author:Zelda"]))
    for reason in ("author:Zelda came back", "zelda came back"):
        with pytest.raises(gf.InputError, match="names somebody"):
            gf.update(outcome.trained, outcome.graph, graph, readmit=reason)
    assert gf.update(outcome.trained, outcome.graph, graph, readmit="a new contract").level == "certified"
