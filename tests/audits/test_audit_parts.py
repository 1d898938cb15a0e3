"""The parts of an audit: items, populations of models, canaries, decoys, queries, distances."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import kstest
from torch import Tensor
from torch.nn.functional import cross_entropy

import graphforget as gf
from cases import graphs, present, random_graph, requests
from graphforget.audits import populations as populations
from graphforget.audits import queries as queries_module
from graphforget.audits.attributes import blanked_loss, with_decoys
from graphforget.audits.canaries import LINKS, plant
from graphforget.audits.items import Items, items_of, pairs_of, reduced_graph
from graphforget.audits.populations import ByMethod, Case, noised, population, sampled_part
from graphforget.audits.queries import Queries, retrained, with_canaries
from graphforget.audits.scores import confidence
from graphforget.graph.resolved import Resolved
from graphforget.linalg.newton import newton_cg
from graphforget.privacy.gaussian import epsilon_of
from graphforget.privacy.noise import with_noise
from graphforget.request.kinds import Kind
from graphforget.training.retraining import trained_anew
from graphforget.unlearning.distance import TIGHT, Distance, distance, noise_p_value, optimum, optimum_distance_bound

pytestmark = pytest.mark.usefixtures("one_thread")


def hand_made(*, directed: bool = False) -> gf.Graph:
    """Training nodes 0 to 4, test nodes 5 and 6, and 7, which is neither and has no label."""
    edges = [(0, 1), (1, 5), (5, 6), (2, 2), (3, 4), (4, 7)] + ([(1, 0)] if directed else [])
    trains = torch.arange(8) < 5
    return gf.Graph.create(
        x=torch.eye(8, dtype=torch.float64) + 1,
        edges=torch.tensor(edges).T,
        y=torch.tensor([0, 1, 0, 1, 0, 1, 0, -1]),
        train_mask=trains,
        test_mask=(torch.arange(8) == 5) | (torch.arange(8) == 6),
        directed=directed,
    )


def as_pairs(items: Items) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in items.ends.tolist()]


# -- items ---------------------------------------------------------------------------------------------------


def test_training_nodes_are_items_and_test_nodes_are_not() -> None:
    items = items_of(hand_made(), gf.Request(nodes=[4, 0, 5, 7]), seed=0)
    assert as_pairs(items) == [(0, 0), (4, 4)]
    assert len(items) == 2


def test_edges_are_items_by_their_training_ends() -> None:
    request = gf.Request(edges=[(1, 0), (1, 5), (5, 6), (2, 2), (7, 4)])
    assert sorted(as_pairs(items_of(hand_made(), request, seed=0))) == [(0, 1), (1, 1), (2, 2), (4, 4)]


def test_directed_edges_are_items_by_their_ends_whichever_way() -> None:
    graph = hand_made(directed=True)
    assert as_pairs(items_of(graph, gf.Request(edges=[(1, 0)]), seed=0)) == [(0, 1)]
    both = items_of(graph, gf.Request(edges=[(1, 0), (0, 1), (2, 2)]), seed=0)
    assert sorted(as_pairs(both)) == [(0, 1), (2, 2)]


def test_edges_that_come_down_to_one_end_are_no_items_of_their_own() -> None:
    request = gf.Request(nodes=[1], edges=[(1, 5), (2, 2)], attributes={2: [0]})
    assert as_pairs(items_of(hand_made(), request, seed=0)) == [(1, 1), (2, 2)]


def test_a_mixture_names_each_node_once() -> None:
    request = gf.Request([0], [(3, 4)], {0: "all", 2: [1, 3], 3: "all", 6: "all"})
    assert sorted(as_pairs(items_of(hand_made(), request, seed=0))) == [(0, 0), (2, 2), (3, 3), (3, 4)]


def test_nothing_may_be_left_to_look_at() -> None:
    items = items_of(hand_made(), gf.Request([5], [(5, 6)], {6: "all"}), seed=0)
    assert len(items) == 0
    assert items.values(torch.zeros(8, 2), hand_made().y).shape == (0,)


def test_more_than_the_limit_are_drawn_by_the_seed() -> None:
    graph = random_graph(0, nodes=60, edges=80)
    request = gf.Request(nodes=graph.train_rows[3:].tolist())
    every = as_pairs(items_of(graph, request, seed=0))
    drawn = [as_pairs(items_of(graph, request, seed=seed, limit=10)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(len(some) == len(set(some)) == 10 and set(some) < set(every) for some in drawn)
    assert as_pairs(items_of(graph, request, seed=7, limit=len(every))) == every


def test_an_items_value_is_the_mean_confidence_of_its_ends() -> None:
    graph = hand_made()
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(8, 2)))
    sure = confidence(logits[:7], graph.y[:7])
    items = Items(torch.tensor([[0, 0], [3, 4], [1, 1]]))
    np.testing.assert_allclose(items.values(logits, graph.y), [sure[0], (sure[3] + sure[4]) / 2, sure[1]])


@settings(deadline=None)
@given(graphs())
def test_an_undirected_edge_is_one_pair(graph: gf.Graph) -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    named = Resolved(none[0], graph.edge_index, none[0], none[0], none[0])
    pairs = [tuple(pair) for pair in pairs_of(graph, named).T.tolist()]
    assert len(pairs) == len(set(pairs)) == graph.num_edges
    if not graph.directed:
        assert all(u <= v for u, v in pairs)
    assert pairs_of(graph, dataclasses.replace(named, edges=none)).shape == (2, 0)


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_what_is_left_to_query_is_the_graph_without_the_request_and_lonely_rows(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    before = graph.digest
    left = reduced_graph(graph, request)
    removed = request.resolve(graph).node_rows
    keep = torch.ones(graph.num_nodes, dtype=torch.bool)
    keep[removed] = False
    assert left.num_nodes == graph.num_nodes
    part, retained = left.induced(keep), graph.without(request)
    assert torch.equal(part.edge_index, retained.edge_index)
    assert torch.equal(part.x.to_dense(), retained.x.to_dense())
    assert torch.equal(left.y, graph.y)  # a forgotten label is what an attack is scored by
    assert not torch.isin(left.edge_index, removed).any()
    unblanked = reduced_graph(graph, request, attributes=False)
    assert torch.equal(unblanked.x.to_dense(), graph.x.to_dense())
    assert torch.equal(unblanked.edge_index, left.edge_index)
    assert graph.digest == before


# -- populations ---------------------------------------------------------------------------------------------

ODD = tuple(range(0, 24, 4))


@functools.cache
def odd_ones(*, sparse: bool = False, subjects: bool = False) -> gf.Graph:
    """Two classes that a column tells apart, and six training nodes of a wrong label and a column of their own."""
    rng = np.random.default_rng(0)
    n = 48
    y = np.arange(n) % 2
    x = np.zeros((n, 2 + len(ODD)))
    x[np.arange(n), y] = 1 + 0.2 * rng.normal(size=n)
    y[list(ODD)] = 1 - y[list(ODD)]
    x[list(ODD), 2 + np.arange(len(ODD))] = 4
    edges = [(u, v) for u, v in rng.integers(0, n, size=(40, 2)).tolist() if u != v]
    attributes = torch.from_numpy(x)
    return gf.Graph.create(
        x=attributes.to_sparse_csr() if sparse else attributes,
        edges=torch.tensor(edges).T,
        y=torch.from_numpy(y),
        train_mask=torch.arange(n) < 36,
        test_mask=torch.arange(n) >= 36,
        subject_ids=[f"person-{row}" for row in range(n)] if subjects else None,
    )


@functools.cache
def sgc(sigma: float = 0.02) -> gf.Trained:
    return gf.train(odd_ones(), "sgc", sigma=sigma, mu=1e-3)


def case_of(request: gf.Request | None = None, **changes: Any) -> Case:
    request = gf.Request(nodes=list(ODD)) if request is None else request
    given: dict[str, Any] = {"forget": ByMethod("newton"), "share": 0.8, "seed": 0} | changes
    return Case(given.pop("trained", sgc()), odd_ones(), request, **given)


def test_a_part_keeps_what_is_named_and_a_share_of_the_others() -> None:
    graph = random_graph(1, nodes=2000, edges=2500, unlabelled=0)
    first, second = graph.edge_index[:, 0].tolist()
    named = [int(row) for row in graph.train_rows[:30]]
    request = gf.Request(named[:10], [(first, second)], {named[10]: "all", named[11]: [0]})
    case = Case(sgc(), graph, request, ByMethod(), share=0.7, seed=0)
    part = sampled_part(case, graph, 5)
    named_rows = {*named[:12], first, second} & set(graph.train_rows.tolist())
    assert named_rows <= set(part.train_rows.tolist()) < set(graph.train_rows.tolist())
    assert part.train_rows.numel() / graph.train_rows.numel() == pytest.approx(0.7, abs=0.04)
    same = dataclasses.replace(part, train_mask=graph.train_mask)
    assert same.digest == graph.digest
    assert torch.equal(sampled_part(case, graph, 5).train_mask, part.train_mask)
    assert not torch.equal(sampled_part(case, graph, 6).train_mask, part.train_mask)


def test_a_part_of_the_retained_graph_is_that_of_the_whole_without_the_request() -> None:
    case = case_of(share=0.5)
    full, left = sampled_part(case, case.graph, 3), sampled_part(case, case.retained, 3)
    assert left.digest == full.without(case.request).digest
    everyone = dataclasses.replace(case, share=1.0)
    assert sampled_part(everyone, case.graph, 3).digest == case.graph.digest


def test_seeds_of_pieces_do_not_meet() -> None:
    case, other = case_of(), case_of(seed=1)
    drawn = [*case.seeds("world", 0), *case.seeds("world", 1), *case.seeds("retrained", 0), *other.seeds("world", 0)]
    assert len(set(drawn)) == len(drawn)
    assert case.seeds("world", 0) == drawn[:4]


@functools.cache
def some_world(number: int, seed: int = 0) -> dict[str, np.ndarray]:
    case = case_of(seed=seed)
    return population(case, items_of(case.graph, case.request, seed=0), number)[0]


def test_unchanged_models_remember_and_the_others_do_not() -> None:
    """The label of an odd node is the wrong one for everybody who has not seen it."""
    for number in range(3):
        result = some_world(number)
        assert result["no_op"].shape == (len(ODD),)
        for which in ("", "released "):
            nothing, method, without = (result[f"{which}{name}"] for name in ("no_op", "method", "retrained"))
            remembered = nothing - without
            assert nothing.min() > 0
            assert remembered.min() > 0.5
            assert np.abs(method - without).mean() < 0.5 * remembered.mean()


def test_a_world_is_its_number_and_its_seed() -> None:
    again, outcome = population(case_of(), items_of(odd_ones(), case_of().request, seed=0), 0)
    assert (outcome.method, outcome.level) == ("newton", "certified")
    for name, values in some_world(0).items():
        np.testing.assert_array_equal(again[name], values)
        assert not np.allclose(some_world(1)[name], values)
        assert not np.allclose(some_world(0, seed=1)[name], values)


def test_noise_is_in_what_goes_out_alone() -> None:
    result = some_world(0)
    for name in ("no_op", "retrained", "method"):
        assert 0 < np.abs(result[f"released {name}"] - result[name]).max() < 1
    silent = case_of(trained=sgc(0.0), forget=ByMethod("retrain"))
    result, _ = population(silent, items_of(silent.graph, silent.request, seed=0), 0)
    for name in ("no_op", "retrained", "method"):
        np.testing.assert_array_equal(result[f"released {name}"], result[name])


def test_retrained_models_are_trained_on_another_draw_without_what_the_request_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[gf.Graph, int]] = []
    really = trained_anew

    def spied(old: gf.Trained, graph: gf.Graph, *, seed: int, **more: Any) -> gf.Trained:
        seen.append((graph, seed))
        return really(old, graph, seed=seed, **more)

    monkeypatch.setattr(populations, "trained_anew", spied)
    edge = tuple(odd_ones().edge_index[:, 5].tolist())
    case = case_of(gf.Request([0, 4], [edge], {9: "all", 11: [0]}))
    population(case, items_of(case.graph, case.request, seed=0), 2)
    (start, first), (other, second) = seen
    assert first != second
    assert dataclasses.replace(start, train_mask=case.graph.train_mask).digest == case.graph.digest
    assert dataclasses.replace(other, train_mask=case.retained.train_mask).digest == case.retained.digest
    assert other.num_nodes == start.num_nodes - 2
    assert {0, 4, 9, 11} <= set(start.train_rows.tolist())
    both = torch.isin(start.numbers, other.numbers)
    assert not torch.equal(start.train_mask[both], other.train_mask)


def test_forgetting_by_method_is_repeatable_by_the_seed_and_has_noise_of_the_claimed_size() -> None:
    case = case_of()
    first, again, other = (case.forget(case.trained, case.graph, case.request, seed) for seed in (1, 1, 2))
    assert torch.equal(first.released_theta, again.released_theta)
    assert not torch.equal(first.released_theta, other.released_theta)
    assert torch.equal(first.trained.theta, other.trained.theta)
    assert first.certificate.sigma == case.trained.recipe.sigma
    assert not torch.equal(first.centre, first.trained.theta)
    assert torch.equal(first.released_theta, with_noise(first.centre, sigma=case.trained.recipe.sigma, seed=1))
    draws = [case.forget(case.trained, case.graph, case.request, s).released_theta for s in range(3, 23)]
    spread = (torch.stack(draws) - first.trained.theta).std()
    assert float(spread) == pytest.approx(case.trained.recipe.sigma, rel=0.15)


def test_a_models_own_options_reach_the_method() -> None:
    case = case_of(forget=ByMethod("newton", {"epsilon": 3.0, "delta": 1e-3, "steps": 7}))
    outcome = case.forget(case.trained, case.graph, case.request, 0)
    assert (outcome.certificate.epsilon, outcome.certificate.delta) == (3.0, 1e-3)
    with pytest.raises(gf.InputError, match="'newton'"):
        ByMethod("newton", {"nonsense": 1})(case.trained, case.graph, case.request, 0)


def test_noised_weights_have_noise_of_that_size_and_none_if_it_is_0() -> None:
    assert noised(sgc(), odd_ones(), sigma=0.0, seed=1) is sgc()
    draws = torch.stack([noised(sgc(), odd_ones(), sigma=0.3, seed=seed).theta - sgc().theta for seed in range(30)])
    assert float(draws.std()) == pytest.approx(0.3, rel=0.1)
    assert torch.equal(noised(sgc(), odd_ones(), sigma=0.3, seed=4).theta, sgc().theta + draws[4])


# -- canaries ------------------------------------------------------------------------------------------------

KINDS = [
    pytest.param(directed, sparse, subjects, id=f"{directed=}-{sparse=}-{subjects=}")
    for directed in (False, True)
    for sparse in (False, True)
    for subjects in (None, "member-{}", "{}")
]
Ends = set[tuple[int, int]]


def club(directed: bool, sparse: bool, subjects: str | None) -> gf.Graph:
    """With gaps in its numbers, as after a deletion."""
    graph = random_graph(4, nodes=50, edges=70, directed=directed, sparse=sparse, unlabelled=0)
    if subjects is not None:
        names = tuple(subjects.format(row) for row in range(50))
        graph = dataclasses.replace(graph, subject_ids=names, digit_ids=subjects == "{}")
    removed = [graph.name_of(row) for row in graph.train_rows[-3:].tolist()]
    return graph.without(gf.Request(nodes=removed))


def ends_of(graph: gf.Graph) -> Ends:
    return {tuple(pair) for pair in graph.edge_index.T.tolist()}


@pytest.mark.parametrize(("directed", "sparse", "subjects"), KINDS)
def test_the_request_takes_every_canary_out_again(directed: bool, sparse: bool, subjects: str | None) -> None:
    graph = club(directed, sparse, subjects)
    before = graph.digest
    result = plant(graph, seed=0, count=6)
    back = result.planted.without(result.request)
    assert back.digest == before == graph.digest
    assert ends_of(back) == ends_of(graph)
    assert back.subject_ids == graph.subject_ids
    assert len(result.request.nodes) == 6


@pytest.mark.parametrize(("directed", "sparse", "subjects"), KINDS)
def test_planted_nodes_train_with_a_label_that_is_not_their_likenesss(
    directed: bool, sparse: bool, subjects: str | None
) -> None:
    graph = club(directed, sparse, subjects)
    result = plant(graph, seed=0, count=6)
    n, query, x = graph.num_nodes, result.query, graph.x.to_dense()
    assert (result.planted.num_nodes, query.num_nodes) == (n + 6, n + 12)
    assert as_pairs(result.nodes) == [(row, row) for row in range(n, n + 6)]
    assert as_pairs(result.node_decoys) == [(row, row) for row in range(n + 6, n + 12)]
    assert result.planted.train_mask[n:].all()
    assert torch.equal(result.planted.train_mask[:n], graph.train_mask)
    assert torch.equal(result.planted.y, query.y[: n + 6])
    assert torch.equal(result.planted.x.to_dense(), query.x.to_dense()[: n + 6])
    assert torch.equal(query.x.to_dense()[:n], x)
    for row in range(n, n + 12):
        same = [r for r in graph.train_rows.tolist() if torch.equal(x[r], query.x.to_dense()[row])]
        assert len(same) == 1
        likeness = int(graph.y[same[0]])
        assert int(query.y[row]) != likeness
        friends = {u for u, v in ends_of(query) if v == row}
        assert friends == {v for u, v in ends_of(query) if u == row}
        assert 1 <= len(friends) <= LINKS
        assert all(graph.train_mask[u] and int(graph.y[u]) == likeness for u in friends)


@pytest.mark.parametrize(("directed", "sparse", "subjects"), KINDS[::3])
def test_planted_edges_join_two_classes_and_were_none(directed: bool, sparse: bool, subjects: str | None) -> None:
    graph = club(directed, sparse, subjects)
    result = plant(graph, seed=1, count=6)
    old = {frozenset(pair) for pair in ends_of(graph)}
    planted, decoys = ([frozenset(pair) for pair in as_pairs(items)] for items in (result.edges, result.edge_decoys))
    assert len({*planted, *decoys}) == 12
    assert not old & {*planted, *decoys}
    for pair in (*planted, *decoys):
        u, v = pair
        assert graph.train_mask[u]
        assert graph.train_mask[v]
        assert graph.y[u] != graph.y[v]
    trained_on, named_rows = ({frozenset(pair) for pair in ends_of(g)} for g in (result.planted, result.query))
    assert set(planted) <= trained_on
    assert not set(decoys) & trained_on
    assert {*planted, *decoys} <= named_rows


def test_planting_is_repeatable_by_its_seed() -> None:
    graph = club(False, True, None)
    first, again, other = (plant(graph, seed=seed) for seed in (0, 0, 1))
    assert first.query.digest == again.query.digest != other.query.digest
    assert first.request == again.request


@pytest.mark.parametrize(("nodes", "count"), [(20, 2), (200, 7), (2000, 50)])
def test_by_default_one_canary_for_twenty_training_nodes(nodes: int, count: int) -> None:
    graph = random_graph(2, nodes=nodes, edges=nodes)
    result = plant(graph, seed=0)
    assert len(result.nodes) == len(result.edge_decoys) == count
    assert count == max(2, min(50, graph.train_rows.numel() // 20))


def test_canaries_need_two_classes_and_room_for_edges() -> None:
    y = torch.tensor([0, 0, 0, 1])
    same = gf.Graph.create(x=torch.eye(4), edges=torch.tensor([[0], [1]]), y=y, train_mask=y == 0, test_mask=y == 1)
    with pytest.raises(gf.InputError, match="^canaries need training nodes of two classes at least$"):
        plant(same, seed=0)
    full = torch.combinations(torch.arange(8)).T
    packed = gf.Graph.create(x=torch.eye(8), edges=full, y=torch.arange(8) % 2)
    with pytest.raises(gf.InputError, match="^the graph has no room for 4 canary edges"):
        plant(packed, seed=0)


@pytest.mark.parametrize("names", ["canary-{}", "canary--{}"])
def test_canaries_have_names_of_their_own_whatever_the_subjects_are_called(names: str) -> None:
    """The first of the names is free, the others are not."""
    graph = dataclasses.replace(
        random_graph(4, nodes=50, edges=70), subject_ids=tuple(names.format(row + 1) for row in range(50))
    )
    result = plant(graph, seed=0, count=3)
    assert len(set(result.query.subject_ids or ())) == 56
    assert not set(result.request.nodes) & set(graph.subject_ids or ())


# -- attributes ----------------------------------------------------------------------------------------------


def tagged(*, sparse: bool) -> gf.Graph:
    """Column 0 says which row it is and column 1 of which class. Of class 0 some nodes are in no training set, of
    class 1 none, and class 2 has one training node alone; 18 has no label."""
    y = torch.tensor([0, 1] * 6 + [0, 0, 0, 0, 2, 0, -1])
    x = torch.stack([torch.arange(19.0) + 1, y + 10.0, torch.arange(19.0) % 3], dim=1).double()
    trains = torch.arange(19) < 12
    trains[16] = True
    return gf.Graph.create(
        x=x.to_sparse_csr() if sparse else x,
        edges=torch.tensor([[0, 2, 5], [1, 3, 6]]),
        y=y,
        train_mask=trains,
        test_mask=torch.arange(19) == 13,
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sparse", [True, False])
def test_decoys_replace_what_is_named_by_another_nodes_values(sparse: bool, seed: int) -> None:
    graph = tagged(sparse=sparse)
    request = gf.Request([8], [(0, 1)], {3: "all", 4: [0, 2], 14: "all", 15: [0], 16: [0, 1]})
    before = graph.digest
    result, rows = with_decoys(graph, request, seed=seed)
    assert rows.tolist() == [3, 4, 16]
    x, new = graph.x.to_dense(), result.x.to_dense()
    named = torch.zeros_like(x, dtype=torch.bool)
    named[3] = True
    named[4, [0, 2]] = True
    named[16, :2] = True
    assert torch.equal(new[~named], x[~named])
    of_3, of_4, of_16 = (int(new[row, 0]) - 1 for row in (3, 4, 16))
    assert of_4 in {12, 13, 14, 15, 17}  # of the same class, and no model was trained on it
    assert of_3 in {1, 5, 7, 9, 11}  # there is none such, but another training node of the class
    assert of_16 in set(range(12))  # there is not even that
    assert torch.equal(new[3], x[of_3])
    assert new[4, 2] == x[of_4, 2]
    assert new[16, 1] == x[of_16, 1]
    assert dataclasses.replace(result, x=graph.x).digest == before == graph.digest


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(0, 50), st.data())
def test_decoys_are_the_same_for_sparse_and_dense_attributes(seed: int, data: st.DataObject) -> None:
    dense = random_graph(seed, nodes=14, edges=16, sparse=False)
    rows = data.draw(st.lists(st.sampled_from(dense.train_rows.tolist()), min_size=1, max_size=4, unique=True))
    request = gf.Request(attributes={row: data.draw(st.sampled_from(["all", (0, 2), (1,)])) for row in rows})
    sparse = dataclasses.replace(dense, x=dense.x.to_sparse_csr())
    one, other = (with_decoys(graph, request, seed=seed) for graph in (dense, sparse))
    assert one[0].digest == other[0].digest
    assert one[1].tolist() == other[1].tolist() == sorted(rows)
    assert with_decoys(sparse, request, seed=seed)[0].digest == other[0].digest


def test_decoys_need_attributes_of_a_training_node() -> None:
    with pytest.raises(gf.InputError, match="^the request names no attributes of a training node$"):
        with_decoys(tagged(sparse=True), gf.Request(attributes={14: "all", 18: [0]}), seed=0)


def test_the_blanked_loss_and_what_a_second_softmax_makes_of_it() -> None:
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 5)))
    labels = torch.arange(30) % 5
    p = torch.exp(logits) / torch.exp(logits).sum(dim=1, keepdim=True)
    twice = torch.exp(p) / torch.exp(p).sum(dim=1, keepdim=True)
    rows = torch.arange(30)
    result = blanked_loss(logits, labels)
    assert result.true == pytest.approx(float(-p[rows, labels].log().mean()))
    assert result.as_published == pytest.approx(float(-twice[rows, labels].log().mean()))


@pytest.mark.parametrize("classes", [2, 7])
def test_perfect_answers_still_have_a_published_loss(classes: int) -> None:
    labels = torch.arange(classes)
    perfect = blanked_loss(1000 * torch.eye(classes, dtype=torch.float64), labels)
    assert perfect.true == pytest.approx(0, abs=1e-12)
    assert perfect.as_published == pytest.approx(math.log(1 + (classes - 1) / math.e))
    wrong = blanked_loss(1000 * torch.eye(classes, dtype=torch.float64).roll(1, 0), labels)
    assert wrong.as_published == pytest.approx(math.log(math.e + classes - 1))


# -- distances -----------------------------------------------------------------------------------------------


def own_loss(trained: gf.Trained, graph: gf.Graph, theta: Tensor) -> float:
    """The objective, from the logits alone."""
    losses = cross_entropy(trained.with_weights(theta).logits(graph)[graph.train_mask], graph.y[graph.train_mask])
    return float(losses + trained.recipe.mu / 2 * theta.square().sum())


@pytest.mark.slow
def test_the_optimum_is_that_of_the_objective_on_the_graph_given() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    retained = graph.without(gf.Request(nodes=[4, 5]))
    trained = gf.train(graph, "sgc", mu=1e-2)
    best = optimum(trained, retained)
    assert float(trained.objective(retained).gradient(best).norm()) <= TIGHT * trained.recipe.mu
    tighter = newton_cg(trained.objective(retained), torch.zeros_like(best), gradient_tolerance=1e-13).theta
    assert float((best - tighter).norm()) <= TIGHT
    result = minimize(
        lambda theta: own_loss(trained, retained, torch.from_numpy(theta)),
        trained.theta.numpy(),
        method="BFGS",
        options={"gtol": 1e-7},
    )
    assert np.abs(result.x - best.numpy()).max() < 2e-3
    assert float((best - trained.theta).norm()) > 1e-2


def test_the_optimum_is_with_the_noise_that_is_in_the_objective() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    first, second = (gf.train(graph, "cgu", noise_seed=seed) for seed in (1, 2))
    for trained in (first, second):
        assert float((optimum(trained, graph) - trained.theta).norm()) <= trained.recipe.tolerance + TIGHT
    assert float((optimum(first, graph) - optimum(second, graph)).norm()) > 0.1


def test_a_distance_with_noise_has_the_epsilon_of_its_ratio() -> None:
    theta, reference = torch.tensor([3.0, 0.0]).double(), torch.tensor([0.0, 4.0]).double()
    result = distance(theta, reference, sigma=10.0, delta=1e-4)
    assert result == Distance(5.0, 0.5, epsilon_of(ratio=0.5, delta=1e-4))
    assert result.epsilon == pytest.approx(1.70, abs=0.01)
    slack = distance(theta, reference, sigma=10.0, delta=1e-4, slack=3.0)
    assert (slack.distance, slack.epsilon) == (5.0, pytest.approx(epsilon_of(ratio=0.2, delta=1e-4)))
    assert slack.ratio == pytest.approx(0.2)
    assert distance(theta, reference, sigma=10.0, delta=1e-4, slack=6.0) == Distance(5.0, 0.0, 0.0)
    assert distance(theta, reference, sigma=0.0, delta=1e-4) == Distance(5.0, None, None)


def test_how_far_weights_can_be_off_is_over_how_far_they_are() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", mu=1e-2)
    best = newton_cg(trained.objective(graph), torch.zeros_like(trained.theta), gradient_tolerance=1e-13).theta
    for step in (0.0, 1e-3, 1.0):
        theta = best + step * torch.ones_like(best)
        assert optimum_distance_bound(trained, graph, theta) >= float((theta - best).norm()) * (1 - 1e-9)
    assert optimum_distance_bound(trained, graph, best) < 1e-9
    assert optimum_distance_bound(trained, graph, trained.theta) == pytest.approx(trained.residual, rel=1e-6)


@pytest.mark.parametrize("sigma", [0.02, 0.7, 1.0])
def test_the_chance_of_noise_is_a_chance(sigma: float) -> None:
    theta = torch.from_numpy(np.random.default_rng(0).normal(size=300))
    result = np.array(
        [noise_p_value(with_noise(theta, sigma=sigma, seed=seed), theta, sigma=sigma) for seed in range(600)]
    )
    assert kstest(result, "uniform").pvalue > 1e-3
    assert result.min() > 1e-4


def test_too_little_and_too_much_noise_have_no_chance() -> None:
    theta = torch.from_numpy(np.random.default_rng(0).normal(size=300))
    for wrong in (0.0, 0.8, 1.25):
        released = theta + wrong * (with_noise(theta, sigma=0.1, seed=1) - theta)
        assert noise_p_value(released, theta, sigma=0.1) < 1e-3
    assert noise_p_value(theta, theta, sigma=0.0) == 1
    assert noise_p_value(theta + 1e-12, theta, sigma=0.0) == 0


# -- queries -------------------------------------------------------------------------------------------------

NODES_ALONE: tuple[Kind, ...] = ("nodes",)
MIXED = gf.Request([0, 4, 40], [(1, 39), (2, 21)], {8: "all", 12: [0], 41: "all"})


@functools.cache
def mixed() -> tuple[Case, Queries]:
    graph = odd_ones(sparse=True, subjects=True)
    more = torch.tensor([[1, 2], [39, 21]])
    graph = gf.Graph.create(
        x=graph.x,
        edges=torch.cat([graph.edge_index, more], dim=1),
        y=graph.y,
        train_mask=graph.train_mask,
        test_mask=graph.test_mask,
    )
    case = Case(gf.train(graph, "sgc", mu=1e-3, sigma=0.02), graph, MIXED, ByMethod("newton"), share=0.8, seed=0)
    return case, Queries.of(case)


def test_queries_ask_about_what_was_named() -> None:
    case, queries = mixed()
    assert queries.full is case.graph
    assert queries.reduced.digest == reduced_graph(case.graph, MIXED).digest
    assert queries.restored is not None
    assert queries.decoys is not None
    assert queries.restored.digest == reduced_graph(case.graph, MIXED, attributes=False).digest
    assert sorted(queries.attribute_rows.tolist()) == [8, 12]
    changed = (queries.decoys.x.to_dense() != queries.restored.x.to_dense()).any(dim=1).nonzero().flatten()
    assert set(changed.tolist()) <= {8, 12}
    assert torch.equal(queries.decoys.edge_index, queries.restored.edge_index)
    assert queries.removed.tolist() == [0, 4]
    assert set(queries.outsiders.tolist()) == set(range(36, 48)) - {40}
    assert sorted(map(tuple, queries.edges.T.tolist())) == [(1, 39), (2, 21)]
    planted = present(queries.canaries)
    assert planted.planted.without(planted.request).digest == case.retained.digest


def test_without_attributes_nothing_is_restored() -> None:
    queries = Queries.of(case_of())
    assert (queries.restored, queries.decoys) == (None, None)
    assert queries.attribute_rows.numel() == 0
    assert set(queries.answers(sgc())) == {"full", "reduced", "canaries"}
    only_tests = Queries.of(case_of(gf.Request(nodes=[0], attributes={41: "all"})))
    assert only_tests.restored is None


def test_answers_are_the_logits_on_every_graph() -> None:
    case, queries = mixed()
    result = queries.answers(case.trained)
    for name in ("full", "reduced", "restored", "decoys"):
        np.testing.assert_array_equal(result[name], case.trained.logits(getattr(queries, name)).numpy())
    np.testing.assert_array_equal(result["canaries"], case.trained.logits(present(queries.canaries).query).numpy())
    assert set(result) == {"full", "reduced", "restored", "decoys", "canaries"}
    assert not np.allclose(result["decoys"], result["restored"])
    assert not np.allclose(result["reduced"], result["restored"])


def test_retrained_models_are_the_optimum_of_the_retained_graph_and_answer_with_the_claims_noise() -> None:
    case, queries = mixed()
    best = optimum(case.trained, case.retained)
    silent = retrained(case, queries, 0, sigma=0.0)
    noisy = [retrained(case, queries, number, sigma=0.5) for number in range(3)]
    for result in (silent, *noisy):  # the weights themselves are kept without noise
        assert np.linalg.norm(result["theta"] - best.numpy()) <= case.trained.recipe.tolerance + TIGHT
    np.testing.assert_allclose(silent["full"], case.trained.with_weights(best).logits(case.graph).numpy(), atol=1e-2)
    again = retrained(case, queries, 1, sigma=0.5)
    for name in queries.answers(case.trained):
        np.testing.assert_array_equal(again[name], noisy[1][name])
        assert np.abs(noisy[0][name] - noisy[1][name]).max() > 0.1
        assert np.abs(noisy[0][name] - silent[name]).max() > 0.1


def test_links_to_steal_are_pairs_that_are_linked_no_more() -> None:
    """Neither loops nor edges whose other direction stays."""
    graph = hand_made(directed=True)
    case = Case(gf.train(graph, "sgc"), graph, gf.Request(edges=[(1, 0), (2, 2), (3, 4)]), ByMethod(), 0.8, 0)
    assert Queries.of(case, canaries=NODES_ALONE).edges.T.tolist() == [[3, 4]]
    both = dataclasses.replace(case, request=gf.Request(edges=[(1, 0), (0, 1)]))
    assert Queries.of(both, canaries=NODES_ALONE).edges.T.tolist() == [[0, 1]]


def test_of_very_many_items_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries_module, "MOST", 3)
    first, again, other = (Queries.of(case_of(seed=seed)) for seed in (0, 0, 1))
    for name, pool in (("removed", set(ODD)), ("outsiders", set(range(36, 48)))):
        drawn = [getattr(one, name).tolist() for one in (first, again, other)]
        assert all(len(set(some)) == 3 and set(some) <= pool for some in drawn)
        assert drawn[0] == drawn[1]
    assert first.outsiders.tolist() != other.outsiders.tolist()


@pytest.mark.parametrize("kinds", [("nodes",), ("edges",)])
def test_only_the_asked_kinds_of_canaries_are_planted(kinds: tuple[Any, ...]) -> None:
    graph = club(False, True, "member-{}")
    result = plant(graph, seed=0, count=5, kinds=kinds)
    for kind, items, decoys in (
        ("nodes", result.nodes, result.node_decoys),
        ("edges", result.edges, result.edge_decoys),
    ):
        assert len(items) == len(decoys) == (5 if kind in kinds else 0)
    assert result.request.kinds == kinds
    assert result.planted.without(result.request).digest == graph.digest


def test_a_method_that_will_not_forget_canaries_says_why() -> None:
    def refusing(*given: Any) -> gf.Outcome:
        raise gf.Refused("not today")

    case = case_of(forget=refusing)
    result = with_canaries(case, Queries.of(case), sigma=0.0)
    assert {name: str(value) for name, value in result.items()} == {"refused": "not today"}


def test_canaries_are_learned_and_forgotten() -> None:
    case = case_of()
    queries = Queries.of(case)
    result = with_canaries(case, queries, sigma=0.02)
    assert set(result) == {"before", "no_op", "method"}
    again = with_canaries(case, queries, sigma=0.02)
    planted = present(queries.canaries)
    sure = {}
    for name, logits in result.items():
        assert logits.shape == (planted.query.num_nodes, 2)
        np.testing.assert_array_equal(logits, again[name])
        sure[name] = planted.nodes.values(torch.from_numpy(logits), planted.query.y).mean()
    best = case.trained.with_weights(optimum(case.trained, case.retained)).logits(planted.query)
    clean = planted.nodes.values(best, planted.query.y).mean()
    assert sure["method"] == pytest.approx(clean, abs=0.5)
    assert sure["before"] - clean > 10 * abs(sure["method"] - clean)
    assert sure["no_op"] == pytest.approx(sure["before"], abs=0.5)
    assert not np.array_equal(result["no_op"], result["before"])
