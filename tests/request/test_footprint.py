"""The footprint: outside it nothing changes, inside it things do (docs/maths.md, section 2)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import (
    DEGREE_NORMALISED,
    MODELS,
    changed_rows,
    dense_cases,
    graphs,
    make,
    reach_of,
    requests,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_outside_the_footprint_logits_are_bit_for_bit_equal(name: str, data: st.DataObject) -> None:
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    module = make(name, seed=data.draw(st.integers(0, 99)))
    reach = reach_of(name)
    assert reach.hops is not None
    result = gf.footprint(graph, request, reach)
    assert changed_rows(module, graph, request) <= set(result.reached.tolist())
    train = set(graph.train_rows.tolist())
    resolved = request.resolve(graph)
    removed_rows, unlabelled = (set(rows.tolist()) for rows in (resolved.node_rows, resolved.label_rows))
    assert set(result.affected.tolist()) == (set(result.reached.tolist()) & train) - unlabelled
    assert set(result.removed.tolist()) == (removed_rows | unlabelled) & train
    assert not removed_rows & set(result.reached.tolist())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["sgc", "sgc-3", "sign", "relational-sign", "gcn", "gat", "gin", "sage", "own-gcn", "own-appnp", "own-mlp"]
)
@pytest.mark.parametrize("directed", [False, True])
def test_the_footprint_is_not_needlessly_large(name: str, directed: bool) -> None:
    """With full attributes and several random weights, every node that is said to be reached does change."""
    for seed in range(4):
        graph, requests_ = dense_cases(seed, directed=directed)
        for request in requests_:
            changed: set[int] = set()
            for weights in range(4):
                changed |= changed_rows(make(name, seed=weights), graph, request)
            assert changed == set(gf.footprint(graph, request, reach_of(name)).reached.tolist())


@pytest.fixture
def path() -> gf.Graph:
    """0 - 1 - 2 - 3 - 4 - 5 - 6, all training nodes."""
    edges = torch.stack([torch.arange(6), torch.arange(1, 7)])
    x = torch.arange(1.0, 29.0).reshape(7, 4)
    return gf.Graph.create(x=x, edges=edges, y=torch.tensor([0, 1, 2, 0, 1, 2, 0]))


@pytest.mark.parametrize("name", DEGREE_NORMALISED)
def test_the_papers_v1_is_one_hop_short_for_degree_normalised_layers(name: str, path: gf.Graph) -> None:
    """Node 0 goes: its neighbour's degree changes, so with two layers node 3 does change; the paper stops at 2."""
    module = make(name)
    request = gf.Request(nodes=[0])
    assert changed_rows(module, path, request) == {1, 2, 3}
    result = gf.footprint(path, request, gf.Reach(2, degree_normalised=True))
    assert result.affected.tolist() == [1, 2, 3]
    assert gf.paper_sets(path, request, layers=2).v1.tolist() == [1, 2]


@pytest.mark.parametrize("name", ["gat", "gin", "sage"])
def test_plain_layers_reach_k_hops_from_a_removed_node(name: str, path: gf.Graph) -> None:
    request = gf.Request(nodes=[0])
    assert set().union(*(changed_rows(make(name, seed=s), path, request) for s in range(4))) == {1, 2}
    assert gf.footprint(path, request, gf.Reach(2, degree_normalised=False)).affected.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("request_", "normalised", "plain"),
    [
        (gf.Request(attributes={3: "all"}), [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
        (gf.Request(edges=[(0, 1)]), [0, 1, 2, 3], [0, 1, 2]),
        (gf.Request(nodes=[6]), [3, 4, 5], [4, 5]),
    ],
)
def test_the_table_of_distances(path: gf.Graph, request_: gf.Request, normalised: list[int], plain: list[int]) -> None:
    assert gf.footprint(path, request_, gf.Reach(2, degree_normalised=True)).reached.tolist() == normalised
    assert gf.footprint(path, request_, gf.Reach(2, degree_normalised=False)).reached.tolist() == plain


def test_a_value_that_is_zero_already_has_an_empty_footprint(path: gf.Graph) -> None:
    blank = path.without(gf.Request(attributes={3: [1, 2]}))
    again = gf.footprint(blank, gf.Request(attributes={3: [1, 2]}), gf.Reach(2))
    assert again.empty
    assert blank.digest == blank.without(gf.Request(attributes={3: [1, 2]})).digest
    assert not gf.footprint(blank, gf.Request(attributes={3: [0, 1]}), gf.Reach(2)).empty


def test_an_isolated_test_node_has_an_empty_footprint() -> None:
    graph = gf.Graph.create(
        x=torch.eye(4),
        edges=torch.tensor([[0], [1]]),
        y=torch.tensor([0, 1, 0, 1]),
        test_mask=torch.tensor([False, False, False, True]),
    )
    assert gf.footprint(graph, gf.Request(nodes=[3]), gf.Reach(2)).empty
    assert not gf.footprint(graph, gf.Request(nodes=[2]), gf.Reach(2)).empty


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_training_nodes_and_labels_change_by_the_footprint_alone(data: st.DataObject) -> None:
    """From both sides: every training item of the footprint goes or changes, and no other one does."""
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    after, touched = graph.without(request), gf.footprint(graph, request, gf.Reach(2))
    train, later = (set(one.numbers[one.train_mask].tolist()) for one in (graph, after))
    removed = set(graph.numbers[touched.removed].tolist())
    assert train - later == removed
    assert later <= train
    assert not removed & set(graph.numbers[touched.affected].tolist())
    kept = torch.isin(after.numbers, graph.numbers[request.resolve(graph).label_rows])
    assert not (after.train_mask | after.val_mask | after.test_mask)[kept].any()
    assert (after.y[kept] == -1).all()
    row_of = torch.searchsorted(graph.numbers, after.numbers)
    assert torch.equal(after.y[~kept], graph.y[row_of][~kept])


def test_a_label_alone_changes_no_other_loss(path: gf.Graph) -> None:
    touched = gf.footprint(path, gf.Request(labels=[3]), gf.Reach(2))
    assert (touched.removed.tolist(), touched.affected.tolist(), touched.reached.tolist()) == ([3], [], [])
    again = path.without(gf.Request(labels=[3]))
    assert gf.footprint(again, gf.Request(labels=[3]), gf.Reach(2)).empty
    both = gf.footprint(path, gf.Request(labels=[3], edges=[(3, 4)]), gf.Reach(1, degree_normalised=False))
    assert (both.removed.tolist(), both.affected.tolist(), both.reached.tolist()) == ([3], [4], [3, 4])


def test_an_unknown_reach_touches_every_training_node(path: gf.Graph) -> None:
    assert gf.footprint(path, gf.Request(attributes={0: [0]}), gf.Reach(None)).affected.tolist() == list(range(7))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_paper_sets_by_shortest_paths(data: st.DataObject) -> None:
    """Against the paper's formulas read literally, with distances from a dense oracle."""
    graph = data.draw(graphs())
    request = data.draw(requests(graph))
    layers = data.draw(st.integers(1, 3))
    n = graph.num_nodes
    distance = np.full((n, n), np.inf)
    np.fill_diagonal(distance, 0)
    distance[graph.edge_index[0], graph.edge_index[1]] = 1
    np.fill_diagonal(distance, 0)
    for via in range(n):
        distance = np.minimum(distance, distance[:, [via]] + distance[[via], :])
    resolved = request.resolve(graph)
    train = set(graph.train_rows.tolist())

    def phi(rows: set[int]) -> set[int]:
        return {i for j in rows for i in range(n) if i != j and distance[j, i] <= layers} & train

    nodes, full, partial = (set(t.tolist()) for t in (resolved.node_rows, resolved.full_rows, resolved.partial_rows))
    ends = set(resolved.edges.flatten().tolist())
    expected = {
        "v1": phi(nodes),
        "v2": phi(full) | full,
        "v3": phi(partial) | partial,
        "v4": phi(ends),
        "v1_tilde": phi(nodes) | nodes,
        "v2_tilde": phi(full) | full,
        "v3_tilde": phi(partial) | partial,
        "v4_tilde": phi(ends),
        "v_tilde": phi(nodes) | phi(ends) | phi(full | partial),
    }
    result = gf.paper_sets(graph, request, layers=layers)
    assert {name: set(getattr(result, name).tolist()) for name in expected} == expected


def test_paper_sets_count_no_paths() -> None:
    """Node 1 is reached from node 0 in 256 ways."""
    middle = torch.arange(2, 258)
    edges = torch.cat(
        [torch.stack([torch.zeros(256, dtype=torch.int64), middle]), torch.stack([middle, torch.ones_like(middle)])], 1
    )
    graph = gf.Graph.create(x=torch.ones(258, 1), edges=edges, y=torch.arange(258) % 2)
    assert 1 in gf.paper_sets(graph, gf.Request(nodes=[0]), layers=2).v1.tolist()
