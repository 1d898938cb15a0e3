"""Collections of graphs: what is checked, what stays after a deletion, where they come from."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import graphforget as gf
from collection_cases import random_collection, random_request
from graphforget.training.training_input import same_training_input, training_input


def small(**changes: Any) -> gf.Graph:
    """Graphs 4 (a triangle), 7 (an edge) and 9 (a single node)."""
    given: dict[str, Any] = {
        "x": torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3),
        "edges": torch.tensor([[0, 1, 2, 3], [1, 2, 0, 4]]),
        "y": torch.tensor([0, 0, 0, 1, 1, 0]),
        "graph_numbers": torch.tensor([4, 4, 4, 7, 7, 9]),
    }
    return gf.Graph.create(**given | changes)


# -- checks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": torch.tensor([0, 0, 1, 1, 1, 0])}, "graph 4 has nodes with different labels"),
        ({"train_mask": torch.tensor([1, 1, 1, 1, 0, 1]).bool()}, "graph 7 has nodes with different sides"),
        ({"edges": torch.tensor([[0], [5]])}, "an edge joins graph"),
        ({"graph_numbers": torch.tensor([4, 4, 4, 7, 7])}, "graph numbers"),
        ({"graph_numbers": torch.tensor([4, 4, 4, 7, 7, -1])}, "graph numbers"),
        ({"graph_numbers": torch.tensor([4.0, 4, 4, 7, 7, 9])}, "graph numbers"),
        ({"graph_ids": ["a", "b"]}, "there are 2 graph ids for 3"),
        ({"graph_ids": ["a", "b", "a"]}, "'a' appears twice among the graph ids"),
        ({"graph_numbers": None, "graph_ids": ["a"]}, "graph ids and no graph numbers"),
    ],
)
def test_what_is_no_collection_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(gf.InputError, match=message):
        small(**changes)


def test_a_plain_graph_has_no_graphs() -> None:
    graph = gf.load("patients")
    with pytest.raises(gf.InputError, match="no collection"):
        graph.nodes_of(0)
    with pytest.raises(gf.InputError, match="no collection"):
        graph.without(gf.Request(graphs=[0]))


def test_nodes_are_named_over_the_whole_collection() -> None:
    graph = small()
    assert (graph.nodes_of(7), graph.nodes_of("9")) == ([3, 4], [5])
    assert small(subject_ids=list("abcdef"), graph_ids=["x", "y", "z"]).nodes_of("y") == ["d", "e"]
    for name in (3, "x", -1, 1.5):
        with pytest.raises(gf.InputError, match="is not in the collection"):
            graph.nodes_of(name)  # type: ignore[arg-type]


# -- after a deletion ------------------------------------------------------------------------------------------------


def test_a_removed_graph_leaves_neither_number_nor_id() -> None:
    graph = small(graph_ids=["x", "y", "z"])
    after = graph.without(gf.Request(graphs=["y"]))
    assert after.graph_numbers is not None
    assert (after.graph_numbers.tolist(), after.graph_ids) == ([4, 4, 4, 9], ("x", "z"))
    one_by_one = graph.without(gf.Request(nodes=[3, 4]))
    assert one_by_one.digest == after.digest
    assert graph.without(gf.Request(nodes=[3])).graph_ids == ("x", "y", "z")


@pytest.mark.parametrize("seed", range(20))
def test_a_retained_collection_is_one(seed: int) -> None:
    """It passes every check again, and every graph keeps its number, its label and its side."""
    graph = random_collection(
        seed, sparse=seed % 2 == 0, directed=seed % 3 == 0, ids=seed % 4 == 0, mixed=seed % 5 == 0
    )
    after = graph.without(random_request(graph, seed))
    fields = {f.name: getattr(after, f.name) for f in dataclasses.fields(after)}
    edges = fields.pop("edge_index")
    del fields["digit_ids"], fields["next_number"]
    assert gf.Graph.create(edges=edges, **fields).digest == after.digest
    assert graph.graph_numbers is not None
    rows = torch.isin(graph.numbers, after.numbers)
    for name in ("graph_numbers", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(after, name), getattr(graph, name)[rows])


def test_the_digest_follows_numbers_and_ids_of_graphs() -> None:
    plain = small(graph_numbers=None)
    others = [small(), small(graph_numbers=torch.tensor([4, 4, 4, 7, 7, 8])), small(graph_ids=["x", "y", "z"])]
    assert len({graph.digest for graph in (plain, *others)}) == 4
    assert dataclasses.replace(others[0], graph_numbers=None).digest == plain.digest


def test_records_from_elsewhere_get_the_numbers_of_the_same_graphs() -> None:
    graph = small(subject_ids=list("abcdef"), graph_ids=["x", "y", "z"])
    order = torch.tensor([5, 4, 3, 2, 1, 0])
    elsewhere = gf.Graph.create(
        x=graph.x[order],
        edges=5 - graph.edge_index,
        y=graph.y[order],
        subject_ids=list("fedcba"),
        graph_numbers=torch.tensor([0, 1, 1, 2, 2, 2]),
        graph_ids=["z", "y", "x"],
    )
    assert elsewhere.digest != graph.digest
    assert elsewhere.numbered_as(graph).digest == graph.digest


# -- the split -------------------------------------------------------------------------------------------------------


def test_a_split_draws_graphs() -> None:
    graph = random_collection(1, graphs=400).split(seed=3, test=0.3).hold_out(seed=1, share=0.2)
    assert graph.graph_numbers is not None
    sides = torch.stack([graph.train_mask, graph.val_mask, graph.test_mask]).double()
    shares = []
    for number in graph.numbers_of_graphs.tolist():
        own = sides[:, graph.graph_numbers == number]
        assert torch.equal(own, own[:, :1].expand_as(own))
        shares.append(own[:, 0])
    assert torch.stack(shares).mean(dim=0).numpy() == pytest.approx([0.56, 0.14, 0.3], abs=0.07)


def test_removing_graphs_moves_no_other_to_another_side() -> None:
    graph = random_collection(1, graphs=100).split(seed=3)
    gone = graph.numbers_of_graphs[::3].tolist()
    first = graph.without(gf.Request(graphs=gone))
    assert torch.equal(first.test_mask, first.split(seed=3).test_mask)


def test_no_side_of_two_graphs_is_empty() -> None:
    graph = small().without(gf.Request(graphs=[9]))
    for seed in range(20):
        for share in (0.01, 0.99):
            parts = graph.split(seed=seed, test=share)
            assert int(parts.train_mask.sum()) in (2, 3)


# -- training --------------------------------------------------------------------------------------------------------


def test_the_training_input_knows_which_node_is_in_which_graph() -> None:
    graph = small()
    part = training_input(graph, gf.Reach(1))
    assert part.graph_numbers is not None
    assert part.graph_numbers.tolist() == [4, 4, 4, 7, 7, 9]
    moved = dataclasses.replace(graph, graph_numbers=torch.tensor([4, 4, 4, 7, 7, 8]))
    assert same_training_input(graph, graph, gf.Reach(1))
    assert not same_training_input(graph, moved, gf.Reach(1))
    assert not same_training_input(graph, dataclasses.replace(graph, graph_numbers=None), gf.Reach(1))


# -- from and to other forms -----------------------------------------------------------------------------------------


def test_a_list_of_pyg_data() -> None:
    triangle = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    none = torch.zeros(2, 0, dtype=torch.int64)
    listed = [
        Data(x=torch.eye(3), edge_index=triangle, y=torch.tensor([1])),
        Data(x=torch.zeros(0, 3), edge_index=none, y=torch.tensor([1])),
        Data(x=torch.ones(1, 3), edge_index=none, y=torch.tensor(0)),
    ]
    graph = gf.Graph.from_pyg_list(listed)
    assert graph.graph_numbers is not None
    assert (graph.graph_numbers.tolist(), graph.y.tolist()) == ([0, 0, 0, 2], [1, 1, 1, 0])
    assert (graph.num_edges, graph.directed, graph.notes) == (3, False, ("1 graph without nodes left out",))
    assert gf.Graph.from_pyg_list(listed, graph_ids=["a", "b", "c"]).graph_ids == ("a", "c")
    assert gf.Graph.from_pyg(graph.to_pyg()).digest == graph.digest


def test_graphs_without_attributes_get_a_column_of_ones() -> None:
    pair = torch.tensor([[0, 1], [1, 0]])
    graph = gf.Graph.from_pyg_list([Data(edge_index=pair, num_nodes=3, y=1), Data(edge_index=pair, num_nodes=2, y=0)])
    assert graph.x.tolist() == [[1.0]] * 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": None}, "graph 1 has no 'edge_index'"),
        ({"edge_attr": torch.ones(2, 1)}, "graph 1 has 'edge_attr'"),
        ({"y": torch.tensor([0, 1])}, "graph 1 has 2 labels"),
        ({"x": torch.ones(2, 4)}, "not the same columns"),
        ({"x": None, "num_nodes": 2}, "not the same columns|some have none"),
        ({"edge_index": torch.tensor([[0], [2]])}, "an edge names node 2"),
    ],
)
def test_a_list_that_is_no_collection_is_refused(changes: dict[str, Any], message: str) -> None:
    good = {"x": torch.ones(2, 3), "edge_index": torch.tensor([[0, 1], [1, 0]]), "y": torch.tensor([1])}
    with pytest.raises(gf.InputError, match=message):
        gf.Graph.from_pyg_list([Data(**good), Data(**good | changes)])
    no_lists: tuple[Any, ...] = ([], "graphs", 3)
    for no_list in no_lists:
        with pytest.raises(gf.InputError, match="a list of one or more"):
            gf.Graph.from_pyg_list(no_list)


def test_a_file_with_a_list_of_pyg_data(tmp_path: Path) -> None:
    pair = torch.tensor([[0, 1], [1, 0]])
    listed = [Data(x=torch.eye(2), edge_index=pair, y=torch.tensor([place % 2])) for place in range(8)]
    torch.save(listed, tmp_path / "graphs.pt")
    graph = gf.load(tmp_path / "graphs.pt")
    assert len(graph.numbers_of_graphs) == 8
    assert graph.test_mask.any()
    torch.save([*listed, "graph"], tmp_path / "graphs.pt")
    with pytest.raises(gf.InputError, match="holds a list, one PyG Data is needed"):
        gf.load(tmp_path / "graphs.pt")


def test_a_csv_folder_with_a_column_of_graphs(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,graph,label,age\na,m1,yes,1\nb,m1,yes,2\nc,m2,no,3\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    graph = gf.Graph.from_csv(tmp_path)
    assert (graph.graph_ids, graph.column_names, graph.nodes_of("m1")) == (("m1", "m2"), ("age",), ["a", "b"])
    (note,) = graph.notes
    assert note == "the column 'graph' of nodes.csv makes it a collection (2 graphs), and is no attribute"
    assert graph.without(gf.Request(graphs=["m2"])).notes == ()
    (tmp_path / "nodes.csv").write_text("id,graph,label\na,m1,yes\nb,m1,yes\nc,m2,no\n")
    assert gf.Graph.from_csv(tmp_path).x.tolist() == [[1.0]] * 3
    (tmp_path / "nodes.csv").write_text("id,graph,label,age\na,m1,yes,1\nb,,yes,2\nc,m2,no,3\n")
    with pytest.raises(gf.InputError, match=r"line 3 of .*the graph of node 'b' is empty"):
        gf.Graph.from_csv(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,graph,label,age\na,m1,yes,1\nb,m1,no,2\nc,m2,no,3\n")
    with pytest.raises(gf.InputError, match="different labels"):
        gf.Graph.from_csv(tmp_path)


def tu_folder(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    content = {"A": "1, 2\n2, 1\n4, 4\n", "graph_indicator": "1\n1\n2\n2\n", "graph_labels": "-1\n1\n"} | files
    for part, text in content.items():
        (folder / f"PETS_{part}.txt").write_text(text)
    return folder


def test_a_folder_in_tu_format(tmp_path: Path) -> None:
    more = {"node_labels": "0\n2\n2\n0\n", "node_attributes": "1.5, 2\n0, 0\n1, 1\n3, 4\n"}
    graph = gf.load(tu_folder(tmp_path / "pets", **more), split="given")
    assert graph.column_names == ("attribute 0", "attribute 1", "label = 0", "label = 2")
    assert graph.x.tolist() == [[1.5, 2, 1, 0], [0, 0, 0, 1], [1, 1, 0, 1], [3, 4, 1, 0]]
    assert (graph.y.tolist(), graph.class_names, graph.num_edges) == ([0, 0, 1, 1], ("-1", "1"), 1)
    assert graph.notes == ("1 self-loop was dropped",)
    assert gf.load(tu_folder(tmp_path / "plain"), split="given").x.tolist() == [[1.0]] * 4


@pytest.mark.parametrize(
    "files",
    [
        {"graph_labels": "1\n"},
        {"graph_indicator": "0\n1\n2\n2\n"},
        {"A": "1, 9\n"},
        {"A": "1, x\n"},
        {"A": "1, 3\n"},
        {"A": "1, 2, 3\n4\n"},
        {"node_labels": "0\n"},
        {"graph_labels": "0.5\n1\n"},
    ],
)
def test_a_damaged_tu_folder_is_refused(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(gf.InputError):
        gf.load(tu_folder(tmp_path / "pets", **files))


COLLECTIONS = [name for name, dataset in gf.DATASETS.items() if dataset.graphs > 1]


@pytest.mark.parametrize("name", [n if n == "mutag" else pytest.param(n, marks=pytest.mark.slow) for n in COLLECTIONS])
def test_the_named_collections_have_the_published_sizes(name: str, raw_data: Path) -> None:
    dataset, graph = gf.DATASETS[name], gf.load(name)
    sizes = (len(graph.numbers_of_graphs), graph.num_nodes, graph.num_edges, graph.num_columns, graph.num_classes)
    assert sizes == (dataset.graphs, dataset.nodes, dataset.edges, dataset.columns, dataset.classes)
    assert graph.test_mask.any()


def test_mutag_is_the_one_of_pyg(raw_data: Path, tmp_path: Path) -> None:
    from torch_geometric.datasets import TUDataset

    shutil.copytree(raw_data / "MUTAG", tmp_path / "MUTAG")
    theirs = TUDataset(str(tmp_path), "MUTAG")
    ours = gf.load("mutag", split="random")
    stripped = [Data(x=data.x, edge_index=data.edge_index, y=data.y) for data in theirs]
    same = gf.Graph.from_pyg_list(stripped, column_names=ours.column_names, class_names=ours.class_names)
    assert same.split(seed=0).digest == ours.digest
    assert np.bincount(ours.y.numpy()).tolist() == np.bincount(same.y.numpy()).tolist()
