"""A graph that grows, is corrected and loses data: the model follows, and its certificate is against the new graph."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphforget as gf
from adopted_cases import PlainGCN, plain_loop, retrain_gcn
from cases import changed_rows, graphs, make, present, random_graph, reach_of, requests, weighted, with_targets
from collection_cases import random_collection
from graphforget.graph import digest as digest_module
from graphforget.graph.differences import equal_records
from graphforget.graph.records import record_hashes
from graphforget.request.change import change_footprint
from graphforget.training.state import same_tensors
from hetero_cases import random_hetero, random_hetero_request

LINKS = {"test": 0.3, "messages": 0.5, "negatives": 4}
MODELS: dict[str, dict[str, Any]] = {
    "sgc": {},
    "sign": {"hops": 2},
    "linearised-gcn": {"hidden": 5},
    "stacked-gcn": {"hidden": 3, "epochs": 5, "parts": 3},
    "boosted-gcn": {"hidden": 3, "epochs": 5},
    "gcn": {"hidden": 5, "epochs": 5, "polish_steps": 2},
    "sharded-gcn": {"hidden": 5, "epochs": 5, "shards": 2},
    "link-sign": LINKS,
}
WEIGHTED: dict[str, dict[str, Any]] = {"gat": {"hidden": 2, "heads": 2, "epochs": 5, "polish_steps": 2}}


def named(graph: gf.Graph) -> gf.Graph:
    return dataclasses.replace(graph, subject_ids=tuple(f"person-{number}" for number in graph.numbers.tolist()))


def grown(*, sparse: bool = True) -> tuple[gf.Graph, gf.Graph]:
    """A graph, and the same with two nodes more."""
    whole = named(random_graph(3, nodes=40, edges=60, sparse=sparse))
    return whole.without(gf.Request(nodes=["person-5", "person-20"])), whole


def corrected(graph: gf.Graph) -> gf.Graph:
    """Another label, another value, another edge."""
    y, x = graph.y.clone(), graph.x.to_dense().clone()
    first, second = graph.train_rows[:2].tolist()
    y[first] = (y[first] + 1) % graph.num_classes
    x[second, 1] += 1.5
    edges = torch.cat([graph.edge_index[:, 4:], torch.tensor([[0], [graph.num_nodes - 1]])], dim=1)
    sides = {name: getattr(graph, name) for name in ("train_mask", "test_mask", "numbers", "subject_ids")}
    sparse = graph.has_sparse_attributes
    return gf.Graph.create(x=x, edges=edges, y=y, num_classes=graph.num_classes, sparse=sparse, **sides)


def check_answer(outcome: gf.Outcome, model: str) -> None:
    """The weights are those of training on the new graph, as far as the level says."""
    again = gf.train(outcome.graph, model, **MODELS[model])
    if outcome.level == "exact":
        assert torch.equal(outcome.trained.theta, again.theta)
        return
    assert outcome.level == "certified"
    closely = gf.train(outcome.graph, model, **MODELS[model], tolerance=1e-7)
    assert float((outcome.centre - closely.theta).norm()) <= present(outcome.certificate.tolerance) + 1e-6
    if model.startswith("stacked"):
        assert same_tensors(outcome.trained.released_state, again.released_state)


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_it_ends_where_training_on_the_new_graph_ends(model: str, sparse: bool) -> None:
    before, whole = grown(sparse=sparse)
    trained = gf.train(before, model, **MODELS[model])
    outcome = gf.update(trained, before, whole)
    check_answer(outcome, model)
    assert outcome.trained.graph_digest == outcome.graph.digest
    assert outcome.certificate.chosen == {"update": True}
    if trained.releases_left is not None:
        assert outcome.trained.releases_left == trained.releases_left - 1 or outcome.method == "retrain"
    again = gf.update(outcome.trained, outcome.graph, corrected(outcome.graph))
    check_answer(again, model)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", "sign", "linearised-gcn", "stacked-gcn", "boosted-gcn"])
def test_graphs_with_directions_and_weights_grow_and_shrink_at_once(model: str) -> None:
    for seed in range(4):
        whole = random_graph(seed, nodes=40, edges=70, directed=bool(seed % 2), sparse=seed < 2)
        whole = named(weighted(whole, seed, most=1.0) if seed != 1 else whole)
        rng = np.random.default_rng(seed)
        absent = [[f"person-{row}" for row in rng.choice(np.arange(3, 40), 4, replace=False)] for _ in range(2)]
        before, new = (whole.without(gf.Request(nodes=nodes)) for nodes in absent)
        new = new.without(gf.Request(labels=[name for name in ("person-2",) if name in present(new.subject_ids)]))
        outcome = gf.update(gf.train(before, model, **MODELS[model]), before, new)
        check_answer(outcome, model)
        gf.verify(outcome.certificate, outcome.trained, outcome.graph, annexes=[outcome.annex])


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_nothing_but_removals_is_a_request(model: str, sparse: bool) -> None:
    graph = named(random_graph(3, nodes=40, edges=60, sparse=sparse))
    edge = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]][:, 3].tolist()
    request = gf.Request(
        nodes=["person-5"],
        edges=[(graph.name_of(edge[0]), graph.name_of(edge[1]))],
        attributes={"person-7": "all", "person-8": [0]},
        labels=["person-9"],
    )
    trained = gf.train(graph, model, **MODELS[model])
    asked = gf.unlearn(trained, graph, request)
    updated = gf.update(trained, graph, graph.without(request))
    assert float((asked.trained.theta - updated.trained.theta).abs().max()) <= 1e-9
    assert float((asked.centre - updated.centre).abs().max()) <= 1e-9
    assert (asked.level, asked.certificate.claim.kind) == (updated.level, updated.certificate.claim.kind)
    assert asked.graph.digest == updated.graph.digest
    if not model.startswith("link"):
        for name in ("removed", "affected", "reached", "added"):
            assert torch.equal(getattr(asked.touched, name), getattr(updated.touched, name))


def same_answer(trained: gf.Trained, graph: gf.Graph, request: gf.Request) -> None:
    """An update to the graph without what a request names, and the request itself."""
    asked = gf.unlearn(trained, graph, request)
    updated = gf.update(trained, graph, graph.without(request))
    assert asked.graph.digest == updated.graph.digest != graph.digest
    assert float((asked.trained.theta - updated.trained.theta).abs().max()) <= 1e-9
    assert float((asked.centre - updated.centre).abs().max()) <= 1e-9
    assert (asked.level, asked.certificate.claim.kind) == (updated.level, updated.certificate.claim.kind)
    for name in ("removed", "affected", "reached", "added"):
        assert torch.equal(getattr(asked.touched, name), getattr(updated.touched, name)), name


@pytest.mark.slow
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("model", ["sgc", "sign", "relational-sign", "gcn", "gat", "stacked-gcn", "boosted-gcn"])
def test_removals_from_a_graph_with_weights_are_a_request(model: str, directed: bool) -> None:
    """Weights of edges are among what goes: they become 1."""
    graph = named(weighted(random_graph(3, nodes=40, edges=60, directed=directed), 3))
    first, second = ((graph.name_of(int(u)), graph.name_of(int(v))) for u, v in graph.edge_index[:, [3, 20]].T)
    request = gf.Request(
        nodes=["person-5"],
        edges=[first],
        edge_weights=[second],
        attributes={"person-7": "all", "person-8": [0]},
        labels=["person-9"],
    )
    same_answer(gf.train(graph, model, **WEIGHTED.get(model, MODELS.get(model, {}))), graph, request)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_removals_from_a_graph_with_relations_are_a_request(seed: int) -> None:
    """Nodes of every type, edges of every relation, attributes and labels; half of the graphs have weights too."""
    graph = random_hetero(seed, papers=20, directed=seed % 3 == 0, weighted=bool(seed % 2))
    same_answer(gf.train(graph, "relational-sign"), graph, random_hetero_request(graph, seed))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_footprint_of_a_deletion_is_that_of_its_request(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    hops, normalised = data.draw(st.integers(0, 3)), data.draw(st.booleans())
    reach = gf.Reach(hops, degree_normalised=normalised, both_ways=data.draw(st.booleans()))
    asked, found = gf.footprint(graph, request, reach), change_footprint(graph, graph.without(request), reach)
    for name in ("removed", "affected", "reached", "added"):
        assert torch.equal(getattr(asked, name), getattr(found, name)), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgc", "gcn", "gat", "gin", "sage"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_outside_the_footprint_of_a_growth_nothing_changes(name: str, data: st.DataObject) -> None:
    whole = data.draw(graphs())
    request = data.draw(requests(whole))
    before = whole.without(request)
    found = change_footprint(before, whole, reach_of(name))
    changed = {int(whole.numbers[row]) for row in changed_rows(make(name), whole, request)}
    assert changed <= set(before.numbers[found.reached].tolist())
    added = set(whole.numbers[found.added].tolist())
    assert added == set(whole.numbers[whole.train_mask].tolist()) - set(before.numbers[before.train_mask].tolist())
    assert found.removed.numel() == 0


def reversed_rows(graph: gf.Graph) -> gf.Graph:
    """The same records, the last first."""
    order = torch.arange(graph.num_nodes - 1, -1, -1)
    arrays: dict[str, Any] = {n: getattr(graph, n)[order] for n in ("y", "train_mask", "val_mask", "test_mask")}
    arrays |= {} if graph.edge_weight is None else {"edge_weight": graph.edge_weight}
    assert graph.subject_ids is not None
    return gf.Graph.create(
        x=graph.x.to_dense()[order],
        edges=graph.num_nodes - 1 - graph.edge_index,
        num_classes=graph.num_classes,
        sparse=graph.has_sparse_attributes,
        directed=graph.directed,
        subject_ids=graph.subject_ids[::-1],
        **arrays,
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_digest_of_the_next_state_is_that_of_its_records(data: st.DataObject) -> None:
    whole = named(data.draw(graphs()))
    more, less = (whole.without(data.draw(requests(whole))) for _ in range(2))
    assert more.digest  # so that the next digest may follow from it
    others = [less, corrected(less) if less.num_nodes > 3 and not less.directed else less]
    others += [dataclasses.replace(less, subject_ids=(*(less.subject_ids or ())[:-1], "somebody else"))]
    others += [reversed_rows(less)] if less.edge_relations is None and less.graph_numbers is None else []
    for new in others:
        after = more.next_state(new)
        assert after.digest == dataclasses.replace(after).digest


def test_numbers_stay_and_new_ones_follow_the_highest_that_stays() -> None:
    graph = named(random_graph(3, nodes=12, edges=16))
    trained = gf.train(graph, "sgc")
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=["person-11"]))  # the highest number goes
    newer = dataclasses.replace(graph, subject_ids=("someone", *graph.subject_ids[1:11], "another"))  # type: ignore[index]
    later = gf.update(outcome.trained, outcome.graph, newer)
    names = dict(zip(present(later.graph.subject_ids), later.graph.numbers.tolist(), strict=True))
    assert (names["someone"], names["another"]) == (11, 12)
    assert all(names[f"person-{number}"] == number for number in range(1, 11))
    assert later.graph.numbers.diff().min() > 0
    last = gf.unlearn(later.trained, later.graph, gf.Request(nodes=["another"]))
    assert last.graph.next_state(newer).row_of_subject["another"] == last.graph.num_nodes
    assert int(last.graph.next_state(newer).numbers[-1]) == 12


@pytest.mark.parametrize("model", ["sgc", "stacked-gcn", "gcn", "link-sign"])
def test_a_new_node_may_have_the_number_of_one_that_leaves(model: str) -> None:
    graph = named(random_graph(3, nodes=40, edges=60, unlabelled=0))
    newer = dataclasses.replace(corrected(graph), subject_ids=(*present(graph.subject_ids)[:39], "another"))
    after = graph.next_state(newer)
    assert int(after.numbers[-1]) == 39
    check_answer(gf.update(gf.train(graph, model, **MODELS[model]), graph, newer), model)


def test_an_adopted_model_is_trained_on_the_new_graph_by_its_own_function() -> None:
    """Whatever it was trained on before."""
    before, whole = grown(sparse=False)
    states = []
    for past in (before, corrected(before)):
        trained = gf.adopt(plain_loop(PlainGCN(), past.to_pyg()), past, retrain=retrain_gcn)
        outcome = gf.update(trained, past, whole)
        assert (outcome.method, outcome.level, outcome.graph.num_nodes) == ("retrain", "exact", whole.num_nodes)
        assert not torch.equal(outcome.trained.theta, trained.theta)
        assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, annexes=[outcome.annex]).checks
        states.append(outcome.trained.theta)
    assert torch.equal(*states)


@pytest.mark.parametrize("method", ["auto", "retrain"])
def test_a_new_node_with_the_number_of_one_that_leaves_is_not_in_its_part(method: str) -> None:
    """Or the encoders would tell in which part the one who left was."""
    graph = named(random_graph(3, nodes=40, edges=60, unlabelled=0))
    newer = dataclasses.replace(corrected(graph), subject_ids=(*present(graph.subject_ids)[:39], "another"))
    states = []
    for part in (0, 1):
        members = {"few": ["person-1", "person-2", "person-5"], "rest": ["person-4", "person-7", "person-9"]}
        members[("few", "rest")[part]].append("person-39")
        trained = gf.train(graph, "stacked-gcn", parts=members, hidden=3, epochs=5)
        outcome = gf.update(trained, graph, newer, method=method)
        assert int(outcome.graph.numbers[outcome.graph.row("another")]) == 39
        assert 39 not in outcome.trained.stacked.member_numbers.tolist()
        assert 39 in trained.stacked.member_numbers.tolist()
        states.append(outcome.trained.released_state)
    assert same_tensors(*states)


def test_records_in_another_order_are_the_same_update() -> None:
    before, whole = grown()
    order = torch.from_numpy(np.random.default_rng(0).permutation(whole.num_nodes))
    back = order.argsort()
    shuffled = gf.Graph.create(
        x=whole.x.to_dense()[order],
        edges=back[whole.edge_index],
        y=whole.y[order],
        train_mask=whole.train_mask[order],
        test_mask=whole.test_mask[order],
        num_classes=whole.num_classes,
        subject_ids=[present(whole.subject_ids)[row] for row in order.tolist()],
        sparse=False,
    )
    first, second = before.next_state(whole), before.next_state(shuffled)
    numbers = {name: int(second.numbers[row]) for name, row in second.row_of_subject.items()}
    known = set(before.subject_ids or ())
    assert all(numbers[name] == int(first.numbers[first.row(name)]) for name in known)
    assert {numbers[name] for name in set(whole.subject_ids or ()) - known} == {40, 41}
    assert second.x.layout == before.x.layout


def test_known_nodes_keep_their_side() -> None:
    before, whole = grown()
    all_train = dataclasses.replace(
        whole, train_mask=whole.y >= 0, test_mask=torch.zeros_like(whole.test_mask), subject_ids=whole.subject_ids
    )
    kept = all_train.with_sides_of(before)
    known = torch.tensor([name in before.row_of_subject for name in present(whole.subject_ids)])
    assert torch.equal(kept.test_mask[known], before.test_mask)
    assert torch.equal(kept.train_mask[known], before.train_mask)
    assert not kept.test_mask[~known].any()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda g: dataclasses.replace(g, directed=True),
            "the new graph is directed, and the graph of the model is und",
        ),
        (
            lambda g: dataclasses.replace(g, x=g.x.to_dense()[:, :3]),
            "the new graph has 3 columns, and the model knows 4",
        ),
        (
            lambda g: dataclasses.replace(g, subject_ids=None),
            "the graph of the model has subject ids and the new graph h",
        ),
        (
            lambda g: dataclasses.replace(g, y=g.y + 1, num_classes=4),
            "label 3 is out of range for the 3 classes of the m",
        ),
        (lambda g: with_targets(g, "values"), "the new graph has values to predict, and the model predicts classes"),
        (lambda g: random_collection(0), "a collection of graphs cannot be updated"),
        (lambda g: dataclasses.replace(g, digit_ids=True), "a subject id of the new graph is a number"),
        (lambda g: dataclasses.replace(g, class_names=("a", "b", "c")), "the classes of the new graph have names, and"),
        (lambda g: None, "the new graph is a NoneType"),
    ],
)
def test_another_kind_of_graph_is_refused_in_one_sentence(change: Any, told: str) -> None:
    graph = named(random_graph(3, nodes=20, edges=30))
    with pytest.raises(gf.InputError, match=f"^{told}") as caught:
        gf.update(gf.train(graph, "sgc"), graph, change(graph))
    assert "\n" not in str(caught.value)


def test_methods_whose_bounds_do_not_cover_growth_are_refused() -> None:
    before, whole = grown()
    trained = gf.train(before, "sgc")
    with pytest.raises(gf.InputError, match=r"^method 'idea' cannot update a graph, only 'newton' and 'retrain' can$"):
        gf.update(trained, before, whole, method="idea")
    outcome = gf.update(trained, before, whole)
    with pytest.raises(gf.InputError, match="the graph was updated since training"):
        gf.unlearn(outcome.trained, outcome.graph, gf.Request(nodes=["person-7"]), method="idea", level="empirical")
    assert gf.unlearn(outcome.trained, outcome.graph, gf.Request(nodes=["person-7"])).level == "certified"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_digest_of_the_next_state_follows_from_the_records_that_differ(data: st.DataObject) -> None:
    """Against the same graph hashed anew. Its nodes come in another order, and some have numbers of those that left."""
    whole = data.draw(graphs())
    if data.draw(st.booleans()):
        whole = weighted(whole, data.draw(st.integers(0, 99)))
    if data.draw(st.booleans()):
        whole = named(whole)
    before, new = (whole.without(data.draw(requests(whole))) for _ in range(2))
    if whole.subject_ids is not None and data.draw(st.booleans()):
        new = dataclasses.replace(new, subject_ids=(*present(new.subject_ids)[:-1], "somebody"))
    y = new.y.clone()
    y[-1] = (y[-1] + data.draw(st.integers(0, 1))) % new.num_classes
    new = dataclasses.replace(new, y=y, test_mask=new.test_mask & data.draw(st.booleans()), x=_sometimes(data, new.x))
    assert before.digest
    after = before.next_state(new)
    fresh = dataclasses.replace(after)
    kept = np.isin(np.arange(after.num_nodes), equal_records(before, after)[1])
    assert after.digest == fresh.digest
    old = dict(zip(before.numbers.tolist(), map(bytes, record_hashes(before)), strict=True))
    same = [
        old.get(number) == bytes(value)
        for number, value in zip(after.numbers.tolist(), record_hashes(fresh), strict=True)
    ]
    assert kept.tolist() == same


def _sometimes(data: st.DataObject, x: torch.Tensor) -> torch.Tensor:
    """The attributes, or others at one node."""
    if data.draw(st.booleans()):
        return x
    changed = x.to_dense().clone()
    changed[0, 1] += 1
    return changed if x.layout == torch.strided else changed.to_sparse_csr()


def test_an_update_hashes_what_changed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before, whole = grown()
    trained = gf.train(before, "sgc")
    hashed: list[int] = []

    def counted(of: gf.Graph, rows: np.ndarray | None = None) -> np.ndarray:
        hashed.append(of.num_nodes if rows is None else len(rows))
        return record_hashes(of, rows)

    monkeypatch.setattr(digest_module, "record_hashes", counted)
    gf.update(trained, before, dataclasses.replace(whole))
    lists = {int(v) for u, v in whole.edge_index.T.tolist() if {u, v} & {5, 20}}
    assert hashed == [len(lists | {5, 20})]


def test_an_update_verifies_as_a_request_does() -> None:
    before, whole = grown()
    outcome = gf.update(gf.train(before, "sgc"), before, whole)
    checked = gf.verify(
        outcome.certificate, outcome.trained, outcome.graph, released=outcome.released_theta, annexes=[outcome.annex]
    )
    assert checked.checks
    assert outcome.annex.request == outcome.certificate.digests["request"]


@pytest.mark.parametrize(
    "model", [pytest.param("sgc", marks=pytest.mark.slow), pytest.param("sign", marks=pytest.mark.long)]
)
@pytest.mark.usefixtures("raw_data")
def test_fifty_alternating_growths_and_requests_on_cora_stay_certified(model: str) -> None:
    """They end within the tolerance of training on the last graph."""
    cora = gf.load("cora")
    whole = dataclasses.replace(cora, subject_ids=tuple(f"paper-{number}" for number in cora.numbers.tolist()))
    rng = np.random.default_rng(0)
    names = np.array(whole.subject_ids)[rng.permutation(whole.num_nodes)].tolist()
    waiting, deleted = names[:500], names[500:525]
    graph = whole.without(gf.Request(nodes=waiting))
    trained = gf.train(graph, model)
    gone: list[str] = []
    for number in range(25):
        waiting = waiting[20:]
        next_graph = whole.without(gf.Request(nodes=[*waiting, *gone]))
        grown_ = gf.update(trained, graph, next_graph)
        assert (grown_.level, grown_.method) == ("certified", "newton")
        request = gf.Request(nodes=[deleted[number]])
        gone.append(deleted[number])
        outcome = gf.unlearn(grown_.trained, grown_.graph, request)
        assert (outcome.level, outcome.method) == ("certified", "newton")
        trained, graph = outcome.trained, outcome.graph
    assert trained.releases_left == 14
    anew = gf.train(graph, model, tolerance=1e-8)
    assert float((outcome.centre - anew.theta).norm()) <= present(outcome.certificate.tolerance)
