"""Requests that name graphs of a collection: what they mean, their files, random ones, their digests."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import graphforget as gf
from cases import present
from collection_cases import random_collection
from graphforget.certificates.annex import Annex, request_digest
from graphforget.request.sampling import Drawing, draw_request
from graphforget.unlearning.serial_parts import serial_parts


def test_a_graph_means_all_its_nodes() -> None:
    graph = random_collection(3, mixed=True)
    first, second = graph.numbers_of_graphs[:2].tolist()
    by_graph = gf.Request(graphs=[first, str(second)])
    by_node = gf.Request(nodes=[*graph.nodes_of(first), *graph.nodes_of(second)])
    assert torch.equal(by_graph.resolve(graph).node_rows, by_node.resolve(graph).node_rows.sort().values)
    assert graph.without(by_graph).digest == graph.without(by_node).digest
    both = gf.Request(graphs=[first], nodes=graph.nodes_of(first)[:1])  # a node of a graph that goes anyway
    assert graph.without(both).digest == graph.without(gf.Request(graphs=[first])).digest


def test_graphs_with_ids_are_named_by_them() -> None:
    graph = random_collection(3, ids=True)
    assert graph.graph_ids is not None
    gone = graph.graph_ids[2]
    after = graph.without(gf.Request(graphs=[gone]))
    assert after.graph_ids == tuple(name for name in graph.graph_ids if name != gone)
    for unknown in (gone, int(graph.numbers_of_graphs[0])):
        with pytest.raises(gf.InputError, match=f"graph {unknown!r} is not in the collection"):
            after.without(gf.Request(graphs=[unknown]))


@pytest.mark.parametrize("graphs", [[1, 1], ["a", "a"], [-1], [""], [1.5], "all", 3, [True]])
def test_names_that_no_graph_has_are_refused(graphs: Any) -> None:
    with pytest.raises(gf.InputError):
        gf.Request(graphs=graphs)


def test_one_graph_under_two_names_is_refused() -> None:
    graph = random_collection(3)
    first = int(graph.numbers_of_graphs[0])
    with pytest.raises(gf.InputError, match="appears twice"):
        gf.Request(graphs=[first, str(first)]).resolve(graph)


def test_some_training_graph_has_to_remain() -> None:
    graph = random_collection(3)
    assert graph.graph_numbers is not None
    every = graph.graph_numbers[graph.train_mask].unique().tolist()
    trained = gf.train(graph, "wl", rounds=1, buckets=16)
    with pytest.raises(gf.InputError, match="leaves no training graph"):
        gf.unlearn(trained, graph, gf.Request(graphs=every))


def test_files_name_graphs(tmp_path: Path) -> None:
    request = gf.Request([3], [(0, 1)], {2: "all"}, ["g", 7])
    assert request.kinds == ("nodes", "edges", "attributes", "graphs")
    assert repr(request) == "Request(1 node, 1 edge, all attributes of 1 node, 2 graphs)"
    assert gf.Request.from_dict(json.loads(json.dumps(request.to_dict()))) == request
    assert pickle.loads(pickle.dumps(request)) == request
    assert hash(request) == hash(gf.Request([3], [(0, 1)], {2: "all"}, ["g", 7]))
    assert request != gf.Request([3], [(0, 1)], {2: "all"})
    assert request.only("graphs") == gf.Request(graphs=["g", 7])
    (tmp_path / "r.csv").write_text("kind,node,target,column\ngraph,g,,\nnode,3,,\ngraph,7,,\n")
    assert gf.Request.from_file(tmp_path / "r.csv") == gf.Request(nodes=["3"], graphs=["g", "7"])
    (tmp_path / "r.csv").write_text("kind,node,target,column\ngraph,g,1,\n")
    with pytest.raises(gf.InputError, match="no node, edge, attribute, label, graph or weight"):
        gf.Request.from_file(tmp_path / "r.csv")


def test_requests_without_graphs_have_the_files_and_digests_that_they_had() -> None:
    request, salt = gf.Request([3], [(0, 1)]), bytes(32)
    assert list(request.to_dict()) == ["nodes", "edges", "attributes"]
    parts = (salt, b"request", json.dumps([["3"], [["0", "1"]], []]).encode())
    framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    assert request_digest(request, salt) == hashlib.sha256(framed).hexdigest()
    named = {request_digest(gf.Request(graphs=graphs), salt) for graphs in ([3], [4], [3, 4])}
    assert len(named | {request_digest(gf.Request(nodes=[3]), salt)}) == 4
    assert request_digest(gf.Request(graphs=[3, 4]), salt) == request_digest(gf.Request(graphs=["4", "3"]), salt)


def test_an_annex_sees_a_graph_that_is_still_there() -> None:
    graph = random_collection(3)
    request = gf.Request(graphs=[int(graph.numbers_of_graphs[1])])
    annex = Annex.of(graph, request)
    assert annex.still_in(graph) == "a node that was to be forgotten"
    assert annex.still_in(graph.without(request)) is None
    assert Annex.from_dict(annex.to_dict()) == annex


def renumbered(graph: gf.Graph) -> gf.Graph:
    """The same graphs under the same ids; their nodes have numbers that no node had before."""
    return gf.Graph.create(
        x=graph.x,
        edges=graph.edge_index,
        y=graph.y,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
        num_classes=graph.num_classes,
        numbers=graph.numbers + 1000,
        graph_numbers=graph.graph_numbers,
        graph_ids=graph.graph_ids,
    )


def test_an_annex_sees_a_graph_that_was_put_back_with_fresh_nodes() -> None:
    graph = random_collection(3, ids=True)
    request = gf.Request(graphs=[present(graph.graph_ids)[1]])
    annex = Annex.from_dict(Annex.of(graph, request).to_dict())
    assert annex.still_in(renumbered(graph)) == "a graph that was to be forgotten"
    assert annex.still_in(renumbered(graph.without(request))) is None


@pytest.mark.parametrize("model", ["wl", "sign"])
def test_all_nodes_of_a_graph_are_the_graph(model: str) -> None:
    graph = random_collection(5, graphs=20)
    trained = gf.train(graph, model)
    items = trained.items(graph)
    for number in items.keys[items.train_mask][:2].tolist():
        whole, nodes = gf.Request(graphs=[number]), gf.Request(nodes=graph.nodes_of(number))
        first, second = (gf.unlearn(trained, graph, request) for request in (whole, nodes))
        assert first.graph.digest == second.graph.digest == graph.without(nodes).digest
        assert first.touched.removed.tolist() == second.touched.removed.tolist() != []
        for name in ("affected", "reached", "added"):
            assert torch.equal(getattr(first.touched, name), getattr(second.touched, name))
        assert (first.level, first.certificate.level) == (second.level, second.certificate.level)
        assert first.level == "certified"


def test_training_graphs_are_drawn() -> None:
    graph = random_collection(3, graphs=60, ids=True)
    request = draw_request(graph, Drawing.parse("graph:10%"), seed=0)
    assert graph.graph_numbers is not None
    training = graph.graph_numbers[graph.train_mask].unique().numel()
    assert len(request.graphs) == training // 10
    assert graph.train_mask[request.resolve(graph).node_rows].all()
    assert draw_request(graph, Drawing.parse("graph:3"), seed=1).graphs != request.graphs[:3]
    with pytest.raises(gf.InputError, match="no collection"):
        draw_request(gf.load("patients"), Drawing.parse("graph:3"), seed=0)


def test_the_papers_splitting_takes_graphs_last() -> None:
    graph = random_collection(3)
    first, second = graph.numbers_of_graphs[:2].tolist()
    request = gf.Request(nodes=graph.nodes_of(first)[:1], graphs=[first, second])
    parts = serial_parts(graph, request, gf.Reach(1))
    assert sum((part.kinds for part in parts), ()) == ("nodes", "graphs")
