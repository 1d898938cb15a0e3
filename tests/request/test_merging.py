"""Several requests as one: the same retained graph as one after the other, whatever the names are."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import CLASSES, graphs, random_graph, requests, weighted
from collection_cases import random_collection
from hetero_cases import random_hetero, random_hetero_request


def still_there(request: gf.Request, graph: gf.Graph) -> gf.Request | None:
    """The part of a request that an earlier one has left in the graph; names and numbers stay what they are."""
    names = [graph.name_of(row) for row in range(graph.num_nodes)]
    there = set(names)
    ends = {(names[u], names[v]) for u, v in graph.edge_index.T.tolist()}
    nodes = [node for node in request.nodes if node in there]
    edges, weights = ([edge for edge in listed if edge in ends] for listed in (request.edges, request.edge_weights))
    attributes: dict[Any, Any] = {node: c for node, c in request.attributes.items() if node in there}
    labels = [node for node in request.labels if node in there]
    if not (nodes or edges or attributes or labels or weights):
        return None
    return gf.Request(nodes, edges, attributes, labels=labels, edge_weights=weights)


def check_merge(graph: gf.Graph, listed: list[gf.Request]) -> None:
    if len({node for request in listed for node in request.nodes}) >= graph.num_nodes:
        return  # nothing would be left
    after = graph
    for request in listed:
        part = still_there(request, after)
        after = after if part is None else after.without(part)
    assert graph.without(gf.Request.merge(listed, graph)).digest == after.digest


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_retained_graph_is_that_of_one_request_after_the_other(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    check_merge(graph, [data.draw(requests(graph)) for _ in range(3)])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_edge_weights_are_merged_with_everything_else(data: st.DataObject) -> None:
    graph = weighted(data.draw(graphs()), data.draw(st.integers(0, 99)))
    check_merge(graph, [data.draw(requests(graph)) for _ in range(3)])


@pytest.mark.parametrize("seed", range(10))
def test_requests_on_nodes_of_any_type_are_merged(seed: int) -> None:
    graph = random_hetero(seed, papers=20, directed=bool(seed % 2))
    check_merge(graph, [random_hetero_request(graph, 10 * seed + number) for number in range(3)])


@pytest.mark.long
@settings(max_examples=2000, deadline=None)
@given(st.data())
def test_the_retained_graph_is_that_of_one_request_after_the_other_in_many_cases(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    if data.draw(st.booleans()):
        graph = weighted(graph, data.draw(st.integers(0, 99)))
    check_merge(graph, [data.draw(requests(graph)) for _ in range(data.draw(st.integers(1, 5)))])


@pytest.fixture
def named() -> gf.Graph:
    """Nodes and columns have names and numbers."""
    plain = random_graph(3, unlabelled=0, sparse=False)
    return gf.Graph.create(
        x=plain.x,
        edges=torch.tensor([[0, 1, 2], [1, 2, 3]]),
        y=plain.y,
        train_mask=plain.train_mask,
        num_classes=CLASSES,
        subject_ids=[f"person {row}" for row in range(plain.num_nodes)],
        column_names=[f"column {place}" for place in range(plain.num_columns)],
    )


def test_two_spellings_mean_the_same(named: gf.Graph) -> None:
    listed = [
        gf.Request([4], [(0, 1)], {5: [0], 6: ["column 1"]}),
        gf.Request(["person 4"], [("person 1", 0)], {"person 5": ["column 0", "column 2"], "person 6": [1]}),
    ]
    expected = named.without(gf.Request([4], [(0, 1)], {5: [0, 2], 6: [1]})).digest
    for order in permutations(listed):
        merged = gf.Request.merge(order, named)
        assert (len(merged.nodes), len(merged.edges), len(merged.attributes)) == (1, 1, 2)
        assert named.without(merged).digest == expected


def test_both_directions_of_a_directed_edge_stay_two_edges() -> None:
    graph = gf.Graph.create(
        x=torch.eye(3), edges=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0, 1, 0]), directed=True
    )
    merged = gf.Request.merge([gf.Request(edges=[(0, 1)]), gf.Request(edges=[(1, 0)])], graph)
    assert merged.edges == ((0, 1), (1, 0))


def test_all_attributes_include_single_ones(named: gf.Graph) -> None:
    listed = [gf.Request(attributes={4: [0]}), gf.Request(attributes={"person 4": "all"})]
    for order in permutations(listed):
        assert list(gf.Request.merge(order, named).attributes.values()) == ["all"]


def test_one_request_may_remove_the_node_of_another_s_edge_and_attributes(named: gf.Graph) -> None:
    merged = gf.Request.merge([gf.Request([1]), gf.Request(edges=[(0, 1)], attributes={1: "all"})], named)
    assert named.without(merged).digest == named.without(gf.Request([1])).digest


def test_graphs_of_a_collection_are_merged_with_their_nodes() -> None:
    collection = random_collection(1, ids=True)
    first, second = collection.graph_ids[:2]  # type: ignore[index]
    listed = [gf.Request(graphs=[first]), gf.Request(graphs=[second, first]), gf.Request(collection.nodes_of(first))]
    merged = gf.Request.merge(listed, collection)
    assert collection.without(merged).digest == collection.without(gf.Request(graphs=[first, second])).digest
    assert sorted(map(str, merged.graphs)) == sorted([first, second])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (gf.Request([4, "person 4"]), "node 'person 4' appears twice in the request"),
        (gf.Request(edges=[(0, 1), (1, 0)]), r"edge \(1, 0\) appears twice in the request"),
        (gf.Request(attributes={4: "all", "person 4": "all"}), "attributes of node 'person 4' appears twice"),
        (gf.Request(attributes={4: [0, "column 0"]}), "column 'column 0' appears twice in the request"),
        (gf.Request([99]), "node 99 is not in the graph"),
        (gf.Request(attributes={4: ["column 9"]}), "column 'column 9' is not in the graph"),
    ],
)
def test_a_request_that_is_refused_alone_is_refused_with_others(
    named: gf.Graph, request_: gf.Request, message: str
) -> None:
    with pytest.raises(gf.InputError, match=message):
        request_.resolve(named)
    with pytest.raises(gf.InputError, match=message):
        gf.Request.merge([gf.Request(attributes={4: "all"}), request_], named)
