"""The search for deleted data by an annex: as a search that hashes everything, and without a hash of every edge."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import graphs, requests
from graphforget.certificates import deleted_data, edge_tags
from graphforget.certificates.annex import Annex
from graphforget.certificates.salted import framed, salted_digests, salted_hash

SALT = b"s" * 32


def name_of(graph: gf.Graph, row: int) -> str:
    return str(graph.name_of(row))


def by_hashing_everything(annex: Annex, graph: gf.Graph) -> str | None:
    """The oracle: every node, edge and attribute on its own."""
    names = [name_of(graph, row) for row in range(graph.num_nodes)]
    if any(salted_hash(annex.salt, "node", name) in annex.nodes for name in names):
        return "a node that was to be forgotten"
    for u, v in graph.edge_index.T.tolist():
        ends = (names[u], names[v]) if graph.directed else sorted((names[u], names[v]))
        if salted_hash(annex.salt, "edge", *ends) in annex.edges:
            return "an edge that was to be forgotten"
    labelled = [name for row, name in enumerate(names) if graph.y[row] >= 0]
    if any(salted_hash(annex.salt, "label", name) in annex.labels for name in labelled):
        return "a label that was to be forgotten"
    for row, name in enumerate(names):
        columns = annex.attributes.get(salted_hash(annex.salt, "attributes", name))
        values = graph.x[row].to_dense()
        if columns is not None and (values if columns == "all" else values[list(columns)]).any():
            return "an attribute value that was to be forgotten"
    return None


@given(data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_as_a_search_that_hashes_everything(data: st.DataObject) -> None:
    """On the graph from before, on that without the request, and on one that lost only a part of it."""
    graph = data.draw(graphs())
    if data.draw(st.booleans()):
        ids = [f"person {19 * row % 23} {row}" for row in range(graph.num_nodes)]
        graph = dataclasses.replace(graph, subject_ids=tuple(ids))
    if data.draw(st.booleans()):
        graph = dataclasses.replace(graph, x=graph.x.to_dense())
    request = data.draw(requests(graph))
    annex = Annex.of(graph, request)
    earlier = dataclasses.replace(annex, edge_tags=frozenset())
    kept = [graph, graph.without(request), *(graph.without(request.only(kind)) for kind in request.kinds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deleted_data, "EDGES_AT_ONCE", 3)
        patch.setattr(deleted_data, "VALUES_AT_ONCE", 5)
        patch.setattr(edge_tags, "TAGS_AT_ONCE", 2)
        patch.setattr(deleted_data, "MOST_HASHED", data.draw(st.sampled_from([0, 10**6])))
        for one in kept:
            assert annex.still_in(one) == earlier.still_in(one) == by_hashing_everything(annex, one)


def counted_hashes(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many things of each kind are hashed from now on."""
    counts: dict[str, int] = {}

    def counting(salt: bytes, kind: str, things: Iterable[bytes]) -> Iterator[bytes]:
        for digest in salted_digests(salt, kind, things):
            counts[kind] = counts.get(kind, 0) + 1
            yield digest

    for module in (deleted_data, edge_tags):
        monkeypatch.setattr(module, "salted_digests", counting)
    return counts


def test_no_more_is_hashed_than_nodes_and_the_edges_in_question(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gf.synthetic(nodes=500, edges=4000, columns=3, classes=2)
    edges = [(int(u), int(v)) for u, v in graph.edge_index[:, [10, 500, 2000]].T]
    annex = Annex.of(graph, gf.Request(edges=edges))
    monkeypatch.setattr(deleted_data, "MOST_HASHED", 0)
    counts = counted_hashes(monkeypatch)
    assert annex.still_in(graph.without(gf.Request(edges=edges))) is None
    assert counts == {"edge end": 500}
    counts.clear()
    assert annex.still_in(graph.without(gf.Request(edges=edges[1:]))) == "an edge that was to be forgotten"
    assert counts == {"edge end": 500, "edge": 1}


def test_a_column_that_the_graph_does_not_have_is_reported() -> None:
    graph = gf.synthetic(nodes=20, edges=30, columns=3, classes=2)
    annex = Annex.of(graph, gf.Request(attributes={4: [2]}))
    fewer = dataclasses.replace(graph, x=graph.x[:, :2].contiguous())
    assert annex.still_in(fewer) == "the attribute of a column that the graph does not have"


def test_a_false_tag_hides_no_edge_of_an_ordinary_graph() -> None:
    graph = gf.synthetic(nodes=50, edges=100, columns=3, classes=2)
    annex = Annex.of(graph, gf.Request(edges=[tuple(graph.edge_index[:, 4].tolist())]))
    cheat = dataclasses.replace(annex, edge_tags=frozenset({"0" * 16}))
    assert cheat.still_in(graph) == "an edge that was to be forgotten"


# -- tags ------------------------------------------------------------------------------------------------------------


def keys(count: int, salt: bytes = SALT) -> np.ndarray:
    return edge_tags.node_keys(salt, (framed(str(number).encode()) for number in range(count)))


def test_a_tag_belongs_to_the_pair_and_the_salt_alone() -> None:
    first, second = keys(300)[:-1], keys(300)[1:]
    tags = edge_tags.edge_tags(SALT, first, second)
    assert np.array_equal(tags, edge_tags.edge_tags(SALT, second, first))
    order = np.random.default_rng(0).permutation(tags.size)
    assert np.array_equal(tags[order], edge_tags.edge_tags(SALT, first[order], second[order]))
    other = b"t" * 32
    assert not set(tags.tolist()) & set(edge_tags.edge_tags(other, first, second).tolist())  # another key
    assert not set(keys(300).tolist()) & set(keys(300, other).tolist())


def test_edges_with_a_common_end_have_unrelated_tags() -> None:
    """Nothing can be learned of one end alone: every bit differs as often as it does not."""
    ends = keys(2001)
    tags = edge_tags.edge_tags(SALT, np.repeat(ends[:1], 2000), ends[1:])
    bits = np.unpackbits(tags.view(np.uint8).reshape(2000, 8), axis=1)
    assert len(set(tags.tolist())) == 2000
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(2000)


def test_a_tag_is_half_of_a_block_so_that_the_key_opens_nothing() -> None:
    tags = edge_tags.edge_tags(SALT, keys(2)[:1], keys(2)[1:])
    assert tags.nbytes == edge_tags.BLOCK // 2


def test_both_directions_of_a_directed_edge_survive_json() -> None:
    x, y = torch.ones(3, 2), torch.tensor([0, 1, 0])
    graph = gf.Graph.create(x=x, edges=torch.tensor([[0, 1, 1], [1, 0, 2]]), y=y, directed=True)
    annex = Annex.of(graph, gf.Request(edges=[(0, 1), (1, 0)]))
    assert (len(annex.edges), len(annex.edge_tags)) == (2, 1)
    assert Annex.from_dict(json.loads(json.dumps(annex.to_dict()))) == annex


def test_an_annex_without_edges_and_one_of_an_earlier_format_have_no_tags_in_the_document() -> None:
    graph = gf.synthetic(nodes=20, edges=30, columns=3, classes=2)
    assert "edge_tags" not in Annex.of(graph, gf.Request(nodes=[3])).to_dict()
    edge = (int(graph.edge_index[0, 0]), int(graph.edge_index[1, 0]))
    content = Annex.of(graph, gf.Request(edges=[edge])).to_dict()
    del content["edge_tags"]
    assert Annex.from_dict(content).to_dict() == content  # its digest is what it was


@pytest.mark.parametrize("tags", [["0" * 15], ["0" * 64], ["x" * 16], ["0" * 16, "1" * 16], [5], None])
def test_tags_that_do_not_fit_are_refused(tags: object) -> None:
    graph = gf.synthetic(nodes=20, edges=30, columns=3, classes=2)
    edge = (int(graph.edge_index[0, 0]), int(graph.edge_index[1, 0]))
    content = Annex.of(graph, gf.Request(edges=[edge])).to_dict()
    with pytest.raises(gf.InputError, match="^this is no annex of a certificate: "):
        Annex.from_dict(content | {"edge_tags": tags})
