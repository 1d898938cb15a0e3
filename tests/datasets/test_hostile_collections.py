"""Small files that name large collections are refused in one sentence, or read without the memory they ask for."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import graphforget as gf
from graphforget.datasets.tu import read_deezer_egos
from graphforget.models.graph_features import sign_features
from hostile import in_time

PAIR = torch.tensor([[0, 1], [1, 0]])


def refused(read: Callable[[], object], words: str) -> None:
    with in_time(10), pytest.raises(gf.InputError, match=words) as raised:
        read()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


# -- folders in TU format --------------------------------------------------------------------------------------------


def many_labels(folder: Path, nodes: int = 60_000, **files: str) -> Path:
    half = nodes // 2
    numbers = "\n".join(map(str, range(nodes)))
    content = {"A": "1, 2\n", "graph_indicator": "1\n" * half + "2\n" * half, "graph_labels": "0\n1\n"}
    for part, text in (content | {"node_labels": numbers} | files).items():
        (folder / f"MANY_{part}.txt").write_text(text)
    return folder


def test_as_many_node_labels_as_nodes_are_sparse_columns(tmp_path: Path) -> None:
    graph = gf.load(many_labels(tmp_path), split="given")
    assert graph.x.layout == torch.sparse_csr
    assert torch.equal(graph.x.col_indices(), torch.arange(60_000))
    assert torch.equal(graph.x.crow_indices(), torch.arange(60_001))
    assert torch.equal(graph.x.values(), torch.ones(60_000))
    assert graph.column_names is not None
    assert graph.column_names[17] == "label = 17"
    refused(lambda: sign_features(graph, hops=2), "graph-sign makes the attributes dense.* use graph-wl")


def test_sparse_and_dense_columns_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).integers(0, 30, (60, 2))
    two = "".join(f"{first}, {second}\n" for first, second in rows)
    folder = many_labels(tmp_path, 60, node_labels=two, node_attributes="0.5, -3\n" * 60)
    dense = gf.load(folder, split="given")
    monkeypatch.setattr("graphforget.datasets.tu.DENSE", 0)
    sparse = gf.load(folder, split="given")
    assert (dense.x.layout, sparse.x.layout) == (torch.strided, torch.sparse_csr)
    assert torch.equal(dense.x, sparse.x.to_dense())
    assert dense.digest == sparse.digest


# -- files of PyG ----------------------------------------------------------------------------------------------------


def listed(**changes: Any) -> list[Data]:
    return [Data(**{"edge_index": PAIR, "y": torch.tensor([place]), **changes}) for place in range(2)]


@pytest.mark.parametrize(
    ("graphs", "words"),
    [
        (listed(num_nodes=10**11), "200,000,000,000 nodes without attributes"),
        (listed(edge_index=torch.tensor([[0], [10**11]])), "nodes without attributes"),
        ([Data(edge_index=PAIR, num_nodes=2**24, y=place % 2) for place in range(200)], "nodes without attributes"),
        (listed(num_nodes=-5), "graph 0 has a 'num_nodes' that is no whole number from 0"),
        (listed(num_nodes=2.5), "graph 0 has a 'num_nodes'"),
        (listed(x=torch.zeros(1, 0).expand(10**12, 0)), "is not a tensor of its size|attributes of shape"),
    ],
)
def test_numbers_of_nodes_that_no_memory_holds(tmp_path: Path, graphs: list[Data], words: str) -> None:
    refused(lambda: gf.Graph.from_pyg_list(graphs), words)
    for data in graphs:
        data.y = torch.as_tensor(data.y)
    torch.save(graphs, tmp_path / "graphs.pt")
    refused(lambda: gf.load(tmp_path / "graphs.pt"), words)


@pytest.mark.parametrize("name", ["x", "edge_index"])
def test_one_tensor_that_many_graphs_name(tmp_path: Path, name: str) -> None:
    shape = (2**24, 1) if name == "x" else (2, 2**23)
    wide = torch.zeros(1, 1, dtype=torch.float32 if name == "x" else torch.int64).expand(shape)
    given = {"x": torch.ones(1, 1), "edge_index": torch.zeros(2, 0, dtype=torch.int64), name: wide}
    graphs = [Data(**given, y=torch.tensor([place % 2])) for place in range(200)]
    torch.save(graphs, tmp_path / "graphs.pt")
    assert (tmp_path / "graphs.pt").stat().st_size < 2**17
    refused(lambda: gf.load(tmp_path / "graphs.pt"), f"'{name}' is not a tensor of its size")


FORMS = [Tensor.to_sparse, Tensor.to_sparse_csr, Tensor.to_sparse_csc]


@pytest.mark.parametrize("form", FORMS)
def test_sparse_attributes_of_a_list_stay_sparse(tmp_path: Path, form: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    none = torch.zeros(2, 0, dtype=torch.int64)
    sparse = [*listed(x=form(x)), Data(x=x.half(), edge_index=PAIR, y=0), Data(x=form(x[:0]), edge_index=none, y=1)]
    graph = gf.Graph.from_pyg_list(sparse)
    assert graph.x.layout == torch.sparse_csr
    dense = gf.Graph.from_pyg_list([*listed(x=x), Data(x=x, edge_index=PAIR, y=0)])
    assert dense.x.layout == torch.strided
    assert torch.equal(graph.x.to_dense(), dense.x)
    assert graph.digest == dense.digest


def test_large_sparse_attributes_take_no_memory(tmp_path: Path) -> None:
    x = torch.sparse_coo_tensor(torch.tensor([[3], [5]]), torch.ones(1), (10**6, 10**6))
    torch.save(listed(x=x), tmp_path / "graphs.pt")
    with in_time(20):
        graph = gf.load(tmp_path / "graphs.pt", split="given")
    assert (graph.x.layout, tuple(graph.x.shape)) == (torch.sparse_csr, (2 * 10**6, 10**6))
    assert graph.x.values().tolist() == [1, 1]


# -- the archive of Deezer -------------------------------------------------------------------------------------------


def archive(path: Path, edges: bytes, *, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as content:
        content.writestr("deezer_egos/deezer_edges.json", edges)
        content.writestr("deezer_egos/deezer_target.csv", "id,target\n0,0\n1,1\n")
    return path


def test_an_archive_of_ego_networks(tmp_path: Path) -> None:
    edges = json.dumps({"1": [[0, 1]], "0": [[0, 1], [1, 2]]}).encode()
    graph = read_deezer_egos(archive(tmp_path / "deezer_egos.zip", edges), "deezer-egos")
    assert (graph.num_nodes, graph.num_edges, graph.y.tolist()) == (5, 3, [0, 0, 0, 1, 1])


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (b'{"0": [[0, 1000000000000]], "1": [[0, 1]]}', "a node has no edge"),
        (b'{"0": [[0, 4]], "1": [[0, 1]]}', "a node has no edge"),
        (b'{"0": [[0, 1' + b"0" * 40 + b']], "1": [[0, 1]]}', "not the file that was published"),
        (b"[" * 10**6, "not the file that was published"),
        (b"[]", "not the file that was published"),
        (b" " * (2**24 + 1), "has 16,777,217 bytes"),
    ],
)
def test_an_archive_that_asks_for_much(tmp_path: Path, edges: bytes, words: str) -> None:
    path = archive(tmp_path / "deezer_egos.zip", edges)
    refused(lambda: read_deezer_egos(path, "deezer-egos"), words)


def test_an_archive_that_unfolds_to_more_than_it_says(tmp_path: Path) -> None:
    """Both headers say 100 bytes, and the content would be 2^26 and more."""
    path = archive(tmp_path / "deezer_egos.zip", b" " * (2**26 + 12_345))
    size = (2**26 + 12_345).to_bytes(4, "little")
    content = path.read_bytes()
    assert content.count(size) == 2
    path.write_bytes(content.replace(size, (100).to_bytes(4, "little")))
    tracemalloc.start()
    refused(lambda: read_deezer_egos(path, "deezer-egos"), "not the file that was published")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**24
    path = archive(tmp_path / "deezer_egos.zip", b" " * 100, method=zipfile.ZIP_BZIP2)
    refused(lambda: read_deezer_egos(path, "deezer-egos"), "compressed in another way")


def test_a_named_archive_is_the_published_one(tmp_path: Path) -> None:
    folder = tmp_path / "deezer_egos" / "raw"
    folder.mkdir(parents=True)
    archive(folder / "deezer_egos.zip", b'{"0": [[0, 1]], "1": [[0, 1]]}')
    refused(lambda: gf.load("deezer-egos", root=tmp_path), "not the file that was published: its SHA-256 is")
