"""Arrays of edges: every path of a graph carries the weight and the relations of each edge, or refuses."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import graphforget as gf
from cases import random_graph, requests

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = ("cites", "knows", "sells")

ByNumber = dict[tuple[int, int], tuple[float, int]]


def dressed(graph: gf.Graph, seed: int, **other: Any) -> gf.Graph:
    """The graph with random weights and relations, the same both ways if it is undirected, and subject ids."""
    rng = np.random.default_rng(seed)
    source, target = graph.edge_index
    once = torch.ones_like(source, dtype=torch.bool) if graph.directed else source <= target
    edges = graph.edge_index[:, once]
    count = edges.shape[1]
    given: dict[str, Any] = {
        "edge_weight": torch.from_numpy(10 ** rng.uniform(-3, 3, count)),
        "edge_relations": torch.from_numpy(rng.integers(1, 2 ** len(NAMES), count)),
        "relation_names": NAMES,
        "subject_ids": [f"person-{7 * row % graph.num_nodes}-{row}" for row in range(graph.num_nodes)],
    }
    return gf.Graph.create(
        x=graph.x,
        edges=edges,
        y=graph.y,
        train_mask=graph.train_mask,
        test_mask=graph.test_mask,
        directed=graph.directed,
        num_classes=graph.num_classes,
        **given | other,
    )


def by_number(graph: gf.Graph) -> ByNumber:
    """Weight and relations of every edge by the numbers of its ends."""
    assert graph.edge_weight is not None
    assert graph.edge_relations is not None
    ends = graph.numbers[graph.edge_index].T.tolist()
    values = zip(graph.edge_weight.tolist(), graph.edge_relations.tolist(), strict=True)
    return {(u, v): pair for (u, v), pair in zip(ends, values, strict=True)}


@QUICK
@given(st.data(), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_every_edge_keeps_its_values_through_surgery(data: Any, seed: int, directed: bool, sparse: bool) -> None:
    plain = random_graph(seed, directed=directed, sparse=sparse)
    graph = dressed(plain, seed)
    request = data.draw(requests(plain))
    before = by_number(graph)
    named = {(u, v) for u, v in request.edges} | (set() if directed else {(v, u) for u, v in request.edges})
    expected = {
        ends: values for ends, values in before.items() if ends not in named and not set(ends) & set(request.nodes)
    }
    after = graph.without(request)
    assert by_number(after) == expected
    assert after.relation_names == NAMES
    assert after.digest == dataclasses.replace(after).digest  # the one that follows is the one that is computed anew
    keep = torch.arange(graph.num_nodes) % 3 > 0
    kept = set(keep.nonzero().flatten().tolist())
    assert by_number(graph.induced(keep)) == {ends: values for ends, values in before.items() if set(ends) <= kept}
    part, _ = graph.neighbourhood(torch.tensor([0]), hops=1)
    assert by_number(part).items() <= before.items()
    assert by_number(pickle.loads(pickle.dumps(graph))) == before
    assert by_number(graph.split(seed=1)) == before


def test_reordered_graphs_keep_the_values_at_their_edges() -> None:
    graph = dressed(random_graph(5), 5)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    place = order.argsort()
    shuffled = gf.Graph.create(
        x=graph.x.to_dense()[order].to_sparse_csr(),
        edges=place[graph.edge_index],
        y=graph.y[order],
        train_mask=graph.train_mask[order],
        test_mask=graph.test_mask[order],
        num_classes=graph.num_classes,
        subject_ids=[(graph.subject_ids or ())[row] for row in order.tolist()],
        edge_weight=graph.edge_weight,
        edge_relations=graph.edge_relations,
        relation_names=NAMES,
    )
    assert by_number(shuffled.numbered_as(graph)) == by_number(graph)
    assert shuffled.numbered_as(graph).digest == graph.digest
    assert graph.next_state(shuffled).digest == graph.digest


@QUICK
@given(st.integers(0, 10**6), st.booleans())
def test_the_digest_sees_one_weight_and_one_bit(seed: int, directed: bool) -> None:
    plain = random_graph(seed, directed=directed, edges=20)
    graph = dressed(plain, seed)
    assert graph.edge_weight is not None
    assert graph.edge_relations is not None
    source, target = graph.edge_index
    other = (source == source[0]) & (target == target[0])
    other |= (source == target[0]) & (target == source[0]) & (not directed)
    weight, relations = graph.edge_weight.clone(), graph.edge_relations.clone()
    weight[other] *= 1 + 1e-15
    relations[other] ^= 4
    relations[other] |= 1
    digests = {graph.digest, dataclasses.replace(graph, edge_weight=weight).digest}
    digests |= {dataclasses.replace(graph, edge_relations=relations).digest}
    digests |= {dataclasses.replace(graph, relation_names=NAMES[::-1]).digest}
    digests |= {dataclasses.replace(graph, edge_weight=None).digest}
    digests |= {dataclasses.replace(graph, edge_relations=None, relation_names=None).digest}
    digests |= {dataclasses.replace(graph, edge_weight=torch.ones_like(weight)).digest}
    assert len(digests) == 7


def test_a_graph_without_arrays_has_the_digest_that_it_always_had() -> None:
    assert random_graph(3).digest == "4d034e4fefaed3a2dc1e3ecbaa257b471450b0a9372facd124879e9bbfcf64f9"
    assert (
        random_graph(4, directed=True, sparse=False).digest
        == "0d986f78349848bae46d08d9697547664eba49a5bc561a2a93baacbdf2a0dc13"
    )


def test_repeated_edges_agree_on_their_weight_and_join_their_relations() -> None:
    given: dict[str, Any] = {"x": torch.eye(3), "y": torch.tensor([0, 1, 0])}
    edges = torch.tensor([[0, 1, 1, 0], [1, 0, 2, 1]])
    graph = gf.Graph.create(
        **given,
        edges=edges,
        edge_weight=torch.tensor([0.5, 0.5, 2, 0.5]),
        edge_relations=torch.tensor([1, 2, 4, 1]),
        relation_names=NAMES,
    )
    assert by_number(graph) == {(1, 0): (0.5, 3), (0, 1): (0.5, 3), (2, 1): (2.0, 4), (1, 2): (2.0, 4)}
    assert any("repeated" in note for note in graph.notes)
    with pytest.raises(gf.InputError, match="two different weights"):
        gf.Graph.create(**given, edges=edges, edge_weight=torch.tensor([0.5, 0.5, 2, 0.25]))
    with pytest.raises(gf.InputError, match="two different weights"):
        gf.Graph.create(**given, edges=edges, edge_weight=torch.tensor([0.5, 0.25, 2, 0.5]))
    one_way: dict[str, Any] = {"edges": edges[:, :3], "edge_weight": torch.tensor([0.5, 0.25, 2]), "directed": True}
    directed = gf.Graph.create(**given, **one_way)
    assert directed.edge_weight is not None
    assert directed.edge_weight.tolist() == [0.25, 0.5, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"edge_weight": torch.tensor([1.0, 0.0])}, "an edge weight is 0"),
        ({"edge_weight": torch.tensor([1.0, -2.0])}, "an edge weight is -2"),
        ({"edge_weight": torch.tensor([1.0, torch.nan])}, "an edge weight is nan"),
        ({"edge_weight": torch.tensor([1.0, torch.inf])}, "an edge weight is inf"),
        ({"edge_weight": torch.tensor([1.0])}, "one number for each of the 2 edges"),
        ({"edge_relations": torch.tensor([1, 2])}, "relation_names"),
        ({"relation_names": ["a"]}, "edge_relations"),
        ({"edge_relations": torch.tensor([1, 4]), "relation_names": ["a", "b"]}, "out of range"),
        ({"edge_relations": torch.tensor([1, 0]), "relation_names": ["a", "b"]}, "out of range"),
        ({"edge_relations": torch.tensor([1, 1]), "relation_names": ["a", "a"]}, "appears twice"),
    ],
)
def test_malformed_arrays_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(gf.InputError, match=message):
        gf.Graph.create(x=torch.eye(3), y=torch.tensor([0, 1, 0]), edges=torch.tensor([[0, 1], [1, 2]]), **given)


def test_other_edges_cannot_be_put_under_the_arrays() -> None:
    graph = dressed(random_graph(5), 5)
    with pytest.raises(ValueError, match="edge_weight has"):
        dataclasses.replace(graph, edge_index=graph.edge_index[:, 1:])


def test_an_update_keeps_the_kind_of_the_edges() -> None:
    plain = random_graph(5)
    weighted = dressed(plain, 5)
    without = dataclasses.replace(weighted, edge_weight=None)
    with pytest.raises(gf.InputError, match="has edge weights"):
        weighted.next_state(without)
    with pytest.raises(gf.InputError, match="has edge weights"):
        without.next_state(weighted)
    with pytest.raises(gf.InputError, match="the relation 'other', which the model does not know"):
        weighted.next_state(dataclasses.replace(weighted, relation_names=("other", *NAMES[1:])))


def test_a_collection_and_links_refuse_the_arrays() -> None:
    graph = dressed(random_graph(5), 5)
    with pytest.raises(gf.InputError, match="collection"):
        dressed(random_graph(5), 5, graph_numbers=torch.zeros(12, dtype=torch.int64))
    with pytest.raises(gf.InputError, match="weights"):
        gf.train(graph, "link-sgc", seed=0)


@pytest.mark.parametrize("repeated", [[0], [0, 2, 2], [1, 4]])
def test_edges_that_pyg_data_repeats_stay_undirected(repeated: list[int]) -> None:
    """Each edge weighs the same both ways, however often one direction is listed."""
    pairs = [(0, 1), (1, 0), (0, 2), (2, 0), (2, 1), (1, 2)]
    weights = [2.0, 2.0, 5.0, 5.0, 3.0, 3.0]
    columns = [*range(6), *repeated]
    data = Data(x=torch.rand(3, 2), edge_index=torch.tensor([pairs[place] for place in columns]).T)
    data.edge_weight = torch.tensor([weights[place] for place in columns])
    graph = gf.Graph.from_pyg(data)
    assert not graph.directed
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [2, 5, 2, 3, 5, 3]
    data.edge_weight[[place for place, column in enumerate(columns) if column == 1]] = 4.0
    assert gf.Graph.from_pyg(data).directed  # one way it weighs something else
