"""Records of nodes, and a digest that follows a deletion at the cost of the records that it changes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import graphforget as gf
from cases import random_graph
from graphforget.graph import digest as digest_module
from graphforget.graph import records as records_module
from graphforget.graph.digest import digest_tree
from graphforget.graph.record_tree import RecordTree
from graphforget.graph.records import header, in_neighbours, record_hashes


def graphs() -> list[gf.Graph]:
    plain = random_graph(3, nodes=40, edges=80)
    named = dataclasses.replace(plain, subject_ids=tuple(f"person-{row}" for row in range(40)))
    sparse = plain.x if plain.x.layout == torch.sparse_csr else plain.x.to_sparse_csr()
    dense = plain.x.to_dense() if plain.x.layout == torch.sparse_csr else plain.x
    return [dataclasses.replace(named, x=sparse), dataclasses.replace(plain, x=dense)]


@pytest.mark.parametrize("graph", graphs(), ids=["named, sparse", "dense"])
def test_a_record_does_not_depend_on_which_others_are_hashed_with_it(
    graph: gf.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = record_hashes(graph)
    some = np.array([7, 0, 39, 8])
    assert (record_hashes(graph, some) == together[some]).all()
    assert record_hashes(graph, np.zeros(0, dtype=np.int64)).shape == (0, 32)
    monkeypatch.setattr(records_module, "MOST_ROWS", 3)
    assert (record_hashes(graph) == together).all()
    assert len(np.unique(together, axis=0)) == graph.num_nodes


def test_in_neighbours_are_the_senders_of_the_edges() -> None:
    graph = random_graph(4, nodes=30, edges=60, directed=True)
    rows = np.array([5, 2, 29, 3])
    counts, senders = in_neighbours(graph, rows)
    expected = [sorted(graph.edge_index[0][graph.edge_index[1] == row].tolist()) for row in rows.tolist()]
    assert counts.tolist() == [len(one) for one in expected]
    assert senders.tolist() == [sender for one in expected for sender in one]


@pytest.mark.parametrize("directed", [True, False])
def test_the_digest_sees_who_the_neighbours_are_and_not_only_how_many(directed: bool) -> None:
    """Two edges with their ends exchanged: every node has as many neighbours as before."""
    fields = {"x": torch.eye(4), "y": torch.tensor([0, 1, 0, 1]), "directed": directed}
    one = gf.Graph.create(edges=torch.tensor([[0, 2], [1, 3]]), **fields)  # type: ignore[arg-type]
    other = gf.Graph.create(edges=torch.tensor([[0, 2], [3, 1]]), **fields)  # type: ignore[arg-type]
    assert one.digest != other.digest
    assert (record_hashes(one) != record_hashes(other)).any(axis=1).tolist() == [not directed, True, not directed, True]


def touched(graph: gf.Graph, after: gf.Graph) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of nodes with other records, and of those that are gone, from records computed anew."""
    old = dict(zip(graph.numbers.tolist(), map(bytes, record_hashes(graph)), strict=True))
    new = dict(zip(after.numbers.tolist(), map(bytes, record_hashes(after)), strict=True))
    changed = [number for number, value in new.items() if old[number] != value]
    return np.array(changed, dtype=np.int64), np.array(sorted(old.keys() - new.keys()), dtype=np.int64)


def digest_of_all_records(graph: gf.Graph) -> str:
    tree = RecordTree.of(graph.numbers.numpy(), record_hashes(dataclasses.replace(graph)))
    return digest_module.GraphDigest(tree, header(graph)).hexdigest


@pytest.mark.parametrize("graph", graphs(), ids=["named, sparse", "dense"])
def test_the_digest_follows_any_sequence_of_deletions(graph: gf.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    first = graph.digest
    requests = [
        gf.Request(nodes=[graph.name_of(3), graph.name_of(20)]),
        gf.Request(edges=[tuple(graph.name_of(row) for row in graph.edge_index[:, 10].tolist())]),  # type: ignore[list-item]
        gf.Request(attributes={graph.name_of(5): "all", graph.name_of(6): [0]}),
        gf.Request(nodes=[graph.name_of(0), graph.name_of(39)]),
    ]
    before, hashed = graph, []
    real = record_hashes

    def counted(of: gf.Graph, rows: np.ndarray | None = None) -> np.ndarray:
        hashed.append(of.num_nodes if rows is None else len(rows))
        return real(of, rows)

    monkeypatch.setattr(digest_module, "record_hashes", counted)
    for request in requests:
        after = before.without(request)
        changed, gone = touched(before, after)
        assert after.digest == digest_of_all_records(after)
        assert digest_tree(after).tree.differences(digest_tree(before).tree).tolist() == sorted([*changed, *gone])
        before = after
    assert sum(hashed) < graph.num_nodes
    assert digest_tree(graph).tree.root == digest_tree(dataclasses.replace(graph)).tree.root  # the old version stays
    assert graph.digest == first
