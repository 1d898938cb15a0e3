"""Graphs from PyG's HeteroData: numbers, names, relations, and what is refused."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToUndirected

import graphforget as gf
from graphforget.graph.schema import schema_of, target_type
from hetero_cases import TARGET, random_data, random_hetero


def test_the_nodes_of_all_types_are_in_one_graph() -> None:
    data = random_data(0)
    graph = gf.Graph.from_hetero(data, target=TARGET, subject_ids={"venue": ["kdd", "icml", "www"]})
    assert graph.num_nodes == 12 + 8 + 3
    assert graph.subject_ids is not None
    assert graph.subject_ids[:2] + graph.subject_ids[-2:] == ("paper:0", "paper:1", "venue:icml", "venue:www")
    assert graph.column_names == ("paper:0", "paper:1", "paper:2", "author:0", "author:1", "venue:present")
    x = graph.x.to_dense()
    assert torch.equal(x[:12, :3], data[TARGET].x)
    assert torch.equal(x[12:20, 3:5], data["author"].x)
    assert x[20:, 5].tolist() == [1, 1, 1]
    assert not x[12:, :3].any()
    assert not x[:12, 3:].any()
    assert graph.y[:12].tolist() == data[TARGET].y.tolist()
    assert set(graph.y[12:].tolist()) == {-1}
    assert torch.equal(graph.train_mask[:12], data[TARGET].train_mask)
    assert graph.has_sparse_attributes
    assert (schema_of(graph).types, target_type(graph)) == (("paper", "author", "venue"), TARGET)


def test_every_edge_type_is_a_relation() -> None:
    data = random_data(0)
    graph = gf.Graph.from_hetero(data, target=TARGET)
    assert graph.relation_names == ("author:writes:paper", "paper:cites:paper", "paper:in:venue")
    assert graph.edge_relations is not None
    starts = {"paper": 0, "author": 12, "venue": 20}
    expected = {}
    for number, (source, name, target) in enumerate(data.edge_types):
        for u, v in data[source, name, target].edge_index.T.tolist():
            expected[u + starts[source], v + starts[target]] = 1 << number
    expected |= {(v, u): mask for (u, v), mask in expected.items()}
    stored = dict(zip(map(tuple, graph.edge_index.T.tolist()), graph.edge_relations.tolist(), strict=True))
    assert stored == expected
    assert torch.equal(graph.to_pyg().edge_relations, graph.edge_relations)


@pytest.mark.parametrize("weighted", [False, True])
def test_reverse_relations_do_not_double(weighted: bool) -> None:
    data = random_data(1, weighted=weighted)
    plain = gf.Graph.from_hetero(data, target=TARGET)
    turned = gf.Graph.from_hetero(ToUndirected(merge=False)(copy.deepcopy(data)), target=TARGET)
    assert turned.digest == plain.digest
    same_name = copy.deepcopy(data)
    for key in ("edge_index", "edge_weight") if weighted else ("edge_index",):
        values = data["author", "writes", TARGET][key]
        same_name[TARGET, "writes", "author"][key] = values.flip(0) if key == "edge_index" else values
    assert gf.Graph.from_hetero(same_name, target=TARGET).digest == plain.digest


def test_directed_relations_go_one_way() -> None:
    data = random_data(1, reverse=True)
    graph = gf.Graph.from_hetero(data, target=TARGET, directed=True)
    assert graph.directed
    assert graph.relation_names == (*(random_hetero(1).relation_names or ()), "paper:rev_writes:author")
    assert graph.num_edges == sum(data[kind].edge_index.shape[1] for kind in data.edge_types)


def test_the_digest_knows_relations() -> None:
    first, second = random_data(2), random_data(2)
    second[TARGET, "extends", TARGET].edge_index = second[TARGET, "cites", TARGET].edge_index
    del second[TARGET, "cites", TARGET]
    digests = {gf.Graph.from_hetero(data, target=TARGET).digest for data in (first, second)}
    assert len(digests) == 2


def test_labels_of_other_types_are_left_out_with_a_note() -> None:
    data = random_data(0)
    data["author"].y = torch.zeros(8, dtype=torch.int64)
    graph = gf.Graph.from_hetero(data, target=TARGET)
    assert any("labels of type 'author' left out" in note for note in graph.notes)
    assert not (graph.y[12:] >= 0).any()


@pytest.mark.parametrize("kind", ["values", "labels"])
def test_other_targets_are_possible(kind: Any) -> None:
    data = random_data(0)
    numbers = torch.randn(12, 2, generator=torch.Generator().manual_seed(0)).double()
    data[TARGET].y = numbers if kind == "values" else (numbers > 0).long()
    graph = gf.Graph.from_hetero(data, target=TARGET, targets=kind)
    assert (graph.target_kind, graph.num_classes) == (kind, 2)
    outcome = gf.unlearn(gf.train(graph), graph, gf.Request(nodes=["author:1"]))
    assert outcome.level == "certified"


def _without_size(data: HeteroData) -> None:
    del data["venue"].num_nodes
    del data[TARGET, "in", "venue"]


def _far(data: HeteroData) -> None:
    data["author", "writes", TARGET].edge_index[0, 0] = 8


def _weights(data: HeteroData) -> None:
    edges = data[TARGET, "cites", TARGET].edge_index
    data[TARGET, "cites", TARGET].edge_weight = torch.ones(edges.shape[1])
    data[TARGET, "extends", TARGET].edge_index = edges[:, :1]
    data[TARGET, "extends", TARGET].edge_weight = torch.tensor([2.0])


def _many(data: HeteroData) -> None:
    for number in range(60):
        data["author", f"r{number}", TARGET].edge_index = torch.tensor([[0], [0]])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_without_size, "the type 'venue' has neither 'x' nor 'num_nodes', so its number of nodes is unknown"),
        (_far, "an edge of author:writes:paper names node 8, 'author' has 8 nodes"),
        (_weights, "an edge has two different weights"),
        (_many, "the data has 63 relations, up to 62 are possible"),
        (lambda data: data[TARGET].update({"y": torch.zeros(5)}), "the labels of type 'paper' have shape"),
        (lambda data: data["author"].update({"x": torch.zeros(8)}), "type 'author': the attributes have shape"),
        (
            lambda data: data[TARGET, "in", "venue"].update({"edge_attr": torch.zeros(9, 2)}),
            "the relation paper:in:venue has 'edge_attr'",
        ),
    ],
)
def test_malformed_data_is_refused_in_one_sentence(change: Callable[[HeteroData], Any], sentence: str) -> None:
    data = random_data(0)
    change(data)
    with pytest.raises(gf.InputError, match=f"^{sentence}"):
        gf.Graph.from_hetero(data, target=TARGET)


def test_wrong_arguments_are_refused() -> None:
    data: Any = random_data(0)
    for arguments, sentence in (
        ({"target": "reader"}, "the target is 'reader', one of the types 'paper', 'author', 'venue' is needed"),
        ({"target": TARGET, "subject_ids": {"reader": ["a"]}}, "there are subject ids for the type 'reader'"),
        (
            {"target": TARGET, "subject_ids": {"venue": ["a"]}},
            "there are 1 subject ids for the 3 nodes of type 'venue'",
        ),
        ({"target": TARGET, "column_names": {"author": ["a"]}}, "there are 1 column names for the 2 columns of type"),
    ):
        with pytest.raises(gf.InputError, match=f"^{sentence}"):
            gf.Graph.from_hetero(data, **arguments)
    homogeneous: Any = Data(x=torch.eye(2))
    with pytest.raises(gf.InputError, match=r"^the data is a Data, a PyG HeteroData is needed$"):
        gf.Graph.from_hetero(homogeneous, target=TARGET)
    named = HeteroData({"a:b": {"x": torch.eye(2)}})
    with pytest.raises(gf.InputError, match=r"^a type is named 'a:b', a name without ':' is needed$"):
        gf.Graph.from_hetero(named, target="a:b")


def test_several_labelled_types_cannot_be_trained_on() -> None:
    graph = random_hetero(0)
    y, train = graph.y.clone(), graph.train_mask.clone()
    y[12], train[12] = 1, True
    mixed = gf.Graph.create(
        x=graph.x,
        edges=graph.edge_index,
        y=y,
        train_mask=train,
        subject_ids=graph.subject_ids,
        column_names=graph.column_names,
        edge_relations=graph.edge_relations,
        relation_names=graph.relation_names,
    )
    with pytest.raises(gf.InputError, match=r"^nodes of the types author, paper have labels"):
        gf.train(mixed)


# -- CSV -------------------------------------------------------------------------------------------------------------


def write(folder: Path, nodes: str, edges: str) -> Path:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


NODES = """id,label,paper:words,author:age,author:papers
paper:1,a,3,,
paper:2,b,4,,
author:ada,,,36,2
author:bob,,0,0,1
"""


def test_a_csv_folder_can_have_types_and_relations(tmp_path: Path) -> None:
    edges = "author:ada,paper:1,2,writes\npaper:2,author:ada,1,writes\npaper:1,paper:2,1,cites\n"
    edges = f"source,target,weight,relation\n{edges}"
    graph = gf.Graph.from_csv(write(tmp_path, NODES, edges))
    assert graph.relation_names == ("author:writes:paper", "paper:cites:paper")
    assert graph.x.to_dense().tolist() == [[3, 0, 0], [4, 0, 0], [0, 36, 2], [0, 0, 1]]
    assert graph.edge_relations is not None
    assert graph.edge_weight is not None
    stored = zip(graph.edge_index.T.tolist(), graph.edge_relations.tolist(), graph.edge_weight.tolist(), strict=True)
    assert {(u, v): (mask, weight) for (u, v), mask, weight in stored if u < v} == {
        (0, 2): (1, 2.0),
        (1, 2): (1, 1.0),
        (0, 1): (2, 1.0),
    }
    trained = gf.train(graph)
    assert trained.recipe.options["target"] == "paper"
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=["author:ada"]))
    assert outcome.level == "certified"


def test_a_csv_folder_can_have_relations_without_types(tmp_path: Path) -> None:
    nodes = "id,label,age\na,x,1\nb,y,2\nc,x,3\n"
    graph = gf.Graph.from_csv(write(tmp_path, nodes, "source,target,relation\na,b,friend\nb,a,colleague\nb,c,friend\n"))
    assert graph.relation_names == ("colleague", "friend")
    assert graph.edge_relations is not None
    assert sorted(graph.edge_relations.tolist()) == [2, 2, 3, 3]
    assert len(gf.train(graph).module.paths) == 1 + 2 + 4  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "edges", "sentence"),
    [
        (NODES, "source,target\npaper:1,paper:2\n", "has empty cells, which needs a column 'relation' in edges.csv"),
        (NODES, "source,target,kind\n", "source,target and, if there are any, weight and relation are needed"),
        (NODES, "source,target,relation\npaper:1,paper:2,\n", "the relation is '', a name without ':' is needed"),
        (NODES, "source,target,relation\npaper:1,paper:2,a:b\n", "the relation is 'a:b', a name without ':' is needed"),
        (
            NODES + "venue:kdd,,0,0,0\n",
            "source,target,relation\npaper:1,venue:kdd,in\n",
            "of the type of node 'venue:kdd'",
        ),
        (
            NODES.replace("paper:1,a,3,,", "paper:1,a,,,"),
            "source,target,relation\n",
            "'paper:words' is '', a missing value",
        ),
    ],
)
def test_wrong_csv_files_are_refused_in_one_sentence(nodes: str, edges: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match=re.escape(sentence)):
        gf.Graph.from_csv(write(tmp_path, nodes, edges))
