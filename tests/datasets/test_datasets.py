"""Datasets have the published size and content, own files are read right, and nothing bad gets in."""

from __future__ import annotations

import builtins
import math
import os
import pickle
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.datasets import HeterophilousGraphDataset
from torch_geometric.io import read_planetoid_data

from graphforget.datasets.locate import RAW_FILES, raw_folder
from graphforget.datasets.patients import RANGES
from graphforget.datasets.planetoid import read_pickle
from graphforget.datasets.registry import DATASETS, load
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.targets import UNLABELLED
from graphforget.request.request import Request

PUBLISHED = {  # nodes, undirected edges, columns, classes
    "cora": (2_708, 5_278, 1_433, 7),
    "citeseer": (3_327, 4_552, 3_703, 6),
    "pubmed": (19_717, 44_324, 500, 3),
    "cs": (18_333, 81_894, 6_805, 15),
    "physics": (34_493, 247_962, 8_415, 5),
    "tolokers": (11_758, 519_000, 10, 2),
    "minesweeper": (10_000, 39_402, 7, 2),
    "facebook-large": (22_470, 170_823, 4_714, 4),
}
DENSE = ("tolokers", "minesweeper")


def size(graph: Graph) -> tuple[int, int, int, int]:
    return graph.num_nodes, graph.num_edges, graph.num_columns, graph.num_classes


def need(raw_data: Path, name: str) -> None:
    """Skips the test if the raw files are absent of a dataset that is not one of the paper's five."""
    folder = raw_data / RAW_FILES[name].folder / "raw"
    if not folder.is_dir():
        pytest.skip(f"the raw files of {name} are not in {folder}")


def no_self_loops(graph: Graph) -> bool:
    return not bool((graph.edge_index[0] == graph.edge_index[1]).any())


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty home, and no $GRAPHFORGET_DATA; gives the cache folder."""
    monkeypatch.delenv("GRAPHFORGET_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home" / ".cache" / "graphforget"


class Evil:
    """Unpickling this without restriction makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.folder),)


# -- the registry and the names --------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_public_datasets_have_their_published_size(raw_data: Path, name: str) -> None:
    need(raw_data, name)
    graph = load(name)
    assert size(graph) == PUBLISHED[name]
    assert graph.x.layout == (torch.strided if name in DENSE else torch.sparse_csr)
    assert graph.x.dtype == torch.float32
    assert graph.name == name
    assert not graph.directed
    assert no_self_loops(graph)
    labelled = graph.y != UNLABELLED
    count = int(labelled.sum())
    assert abs(int(graph.test_mask.sum()) - count / 10) < 4 * math.sqrt(0.09 * count)  # every node is drawn by itself
    assert torch.equal(graph.train_mask | graph.test_mask, labelled)
    assert not (graph.train_mask & graph.test_mask).any()
    reduced = graph.without(Request(nodes=[int(graph.test_mask.nonzero()[0]), int(graph.train_rows[0])]))
    assert torch.equal(reduced.split().test_mask, graph.test_mask[reduced.numbers])  # one that goes moves no other
    assert torch.unique(graph.y[graph.y != UNLABELLED]).tolist() == list(range(graph.num_classes))


@pytest.mark.parametrize("name", ["patients", *PUBLISHED])
def test_registry_tells_the_size(name: str) -> None:
    entry = DATASETS[name]
    sizes = (entry.nodes, entry.edges, entry.columns, entry.classes)
    assert sizes == (size(load("patients")) if name == "patients" else PUBLISHED[name])
    assert entry.title
    assert entry.source


def test_registry_is_in_order() -> None:
    assert [name for name, dataset in DATASETS.items() if dataset.graphs == 1] == ["patients", *PUBLISHED]


def test_names_are_read_in_any_case(raw_data: Path) -> None:
    assert load("CoRa").digest == load("cora").digest


def test_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(InputError, match=r"'corra' is neither .*patients, cora, .*physics.*nodes\.csv"):
        load("corra")


def test_random_split_depends_on_the_seed_alone() -> None:
    assert torch.equal(load("patients", seed=3).test_mask, load("patients", seed=3).test_mask)
    assert not torch.equal(load("patients", seed=3).test_mask, load("patients", seed=4).test_mask)


@pytest.mark.parametrize(
    ("name", "split", "said"),
    [
        ("patients", "public", "only 'random'"),
        ("cs", "public", "only 'random'"),
        ("cora", "given", "'random' and 'public'"),
        ("patients", "half", "random, public, given"),
    ],
)
def test_splits_that_a_dataset_lacks(name: str, split: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(name, split=split)


# -- Planetoid -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_planetoid_agrees_with_pyg(raw_data: Path, name: str) -> None:
    graph = load(name, split="public")
    theirs = read_planetoid_data(str(raw_data / DATASETS[name].title / "raw"), name)
    absent = graph.y == UNLABELLED
    assert int(absent.sum()) == (15 if name == "citeseer" else 0)
    assert torch.equal(graph.x.to_dense(), theirs.x)
    assert torch.equal(graph.y[~absent], theirs.y[~absent])
    keys = [edges[1] * graph.num_nodes + edges[0] for edges in (graph.edge_index, theirs.edge_index)]
    assert torch.equal(keys[0], keys[1].sort().values)
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(graph, mask), getattr(theirs, mask))


def test_citeseer_has_15_nodes_of_which_nothing_is_known(raw_data: Path) -> None:
    graph = load("citeseer")
    absent = graph.y == UNLABELLED
    assert int(absent.sum()) == 15
    assert not graph.x.to_dense()[absent].any()
    assert not (absent & (graph.train_mask | graph.test_mask)).any()


def test_public_split_of_pubmed(raw_data: Path) -> None:
    graph = load("pubmed", split="public")
    assert [int(m.sum()) for m in (graph.train_mask, graph.val_mask, graph.test_mask)] == [60, 500, 1000]


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_unpickler_refuses_a_malicious_file_without_running_it(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "trap"
    (tmp_path / "evil").write_bytes(pickle.dumps([1, Evil(trap)], protocol=protocol))
    with pytest.raises(InputError, match=r"it needs \w+\.mkdir"):
        read_pickle(tmp_path / "evil")
    assert not trap.exists()


@pytest.mark.parametrize("function", [builtins.eval, getattr, np.load, np.frombuffer])
def test_unpickler_refuses_every_other_name(tmp_path: Path, function: Callable[..., Any]) -> None:
    (tmp_path / "evil").write_bytes(pickle.dumps(function, protocol=2))
    with pytest.raises(InputError, match="which is not allowed"):
        read_pickle(tmp_path / "evil")


@pytest.mark.parametrize("content", [b"", b"hello", pickle.dumps([1, 2])[:-1], b"cnumpy\ndtype\n(S'O8'\ntR."])
def test_unpickler_refuses_damaged_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "damaged").write_bytes(content)
    with pytest.raises(InputError, match="is not the file that Planetoid published"):
        read_pickle(tmp_path / "damaged")


def rewritten(raw_data: Path, target: Path, suffix: str, content: bytes) -> None:
    """A copy of Cora's raw files under `target` in which one file has other content."""
    copy = target / "Cora" / "raw"
    shutil.copytree(raw_data / "Cora" / "raw", copy, copy_function=shutil.copyfile)
    copy.chmod(0o755)
    (copy / f"ind.cora.{suffix}").write_bytes(content)


def test_load_refuses_a_planted_file(raw_data: Path, tmp_path: Path) -> None:
    rewritten(raw_data, tmp_path, "graph", pickle.dumps(Evil(tmp_path / "trap"), protocol=2))
    with pytest.raises(InputError, match=r"ind\.cora\.graph"):
        load("cora", root=tmp_path)
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        ("allx", pickle.dumps([1, 2], protocol=2)),
        ("ally", pickle.dumps({}, protocol=2)),
        ("graph", pickle.dumps([1, 2], protocol=2)),
        ("graph", pickle.dumps({0: ["x"]}, protocol=2)),
        ("test.index", b"1\nx\n"),
        ("test.index", b""),
        ("test.index", b"5\n" * 1000),
        ("test.index", b"1708\n"),
    ],
)
def test_load_refuses_raw_files_of_another_kind(raw_data: Path, tmp_path: Path, suffix: str, content: bytes) -> None:
    rewritten(raw_data, tmp_path, suffix, content)
    with pytest.raises(InputError, match=r"ind\.cora\."):
        load("cora", root=tmp_path)


# -- Coauthor ------------------------------------------------------------------------------------------------


def test_coauthor_attributes_are_zero_or_one(raw_data: Path) -> None:
    assert load("cs").x.values().unique().tolist() == [1]


def npz(folder: Path, **changes: Any) -> None:
    """A small Coauthor file with counts, a self-loop and an edge in one direction only."""
    content: dict[str, Any] = {
        "adj_data": np.ones(3, dtype=np.float32),
        "adj_indices": np.array([0, 1, 2], dtype=np.int32),
        "adj_indptr": np.array([0, 2, 3, 3], dtype=np.int32),
        "adj_shape": np.array([3, 3]),
        "attr_data": np.array([3, 0, 1], dtype=np.float32),
        "attr_indices": np.array([1, 0, 0], dtype=np.int32),
        "attr_indptr": np.array([0, 1, 2, 3], dtype=np.int32),
        "attr_shape": np.array([3, 2]),
        "labels": np.array([0, 1, 1]),
        "class_names": np.array({"a": 1}, dtype=object),
    }
    raw = folder / "CS" / "raw"
    raw.mkdir(parents=True)
    content = {name: value for name, value in (content | changes).items() if value is not None}
    np.savez(raw / "ms_academic_cs.npz", **content)


def test_coauthor_reader(tmp_path: Path) -> None:
    npz(tmp_path)
    graph = load("cs", root=tmp_path)
    assert graph.x.to_dense().tolist() == [[0, 1], [0, 0], [1, 0]]
    assert graph.edge_index.T.tolist() == [[1, 0], [0, 1], [2, 1], [1, 2]]


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": None},
        {"labels": np.array([{}, 1, 1], dtype=object)},
        {"adj_indices": np.array([0, 1, 7], dtype=np.int32)},
        {"attr_indices": np.array([1, 0, 9], dtype=np.int32)},
        {"attr_indptr": np.array([0, 9], dtype=np.int32)},
    ],
)
def test_coauthor_reader_refuses_other_files(tmp_path: Path, changes: dict[str, Any]) -> None:
    npz(tmp_path, **changes)
    with pytest.raises(InputError, match="is not the file that gnn-benchmark published"):
        load("cs", root=tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more"])
def test_coauthor_reader_refuses_damaged_files(tmp_path: Path, content: bytes) -> None:
    npz(tmp_path)
    (tmp_path / "CS" / "raw" / "ms_academic_cs.npz").write_bytes(content)
    with pytest.raises(InputError, match="is not the file that gnn-benchmark published"):
        load("cs", root=tmp_path)


# -- Tolokers and Minesweeper ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DENSE)
def test_heterophilous_agrees_with_pyg(raw_data: Path, tmp_path: Path, name: str) -> None:
    need(raw_data, name)
    shutil.copytree(raw_data / name / "raw", tmp_path / name / "raw", copy_function=shutil.copyfile)
    (tmp_path / name).chmod(0o755)
    theirs = HeterophilousGraphDataset(str(tmp_path), name)[0]
    graph = load(name, split="public")
    assert torch.equal(graph.x, theirs.x)
    assert torch.equal(graph.y, theirs.y)
    keys = [edges[1] * graph.num_nodes + edges[0] for edges in (graph.edge_index, theirs.edge_index)]
    assert torch.equal(keys[0], keys[1].sort().values)
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(graph, mask), getattr(theirs, mask)[:, 0])  # the first of ten


def grid(folder: Path, **changes: Any) -> None:
    """A small file with each edge once, a self-loop, and two splits."""
    masks = np.eye(4, dtype=bool)
    content: dict[str, Any] = {
        "node_features": np.array([[0.5, 1], [0, 0], [1, 0], [2, 3]], dtype=np.float32),
        "node_labels": np.array([0, 1, 1, 0]),
        "edges": np.array([[0, 1], [2, 2], [3, 1]]),
        "train_masks": np.stack([masks[0] | masks[1], masks[2] | masks[3]]),
        "val_masks": np.stack([masks[2], masks[1]]),
        "test_masks": np.stack([masks[3], masks[0]]),
    }
    raw = folder / "minesweeper" / "raw"
    raw.mkdir(parents=True)
    content = {name: value for name, value in (content | changes).items() if value is not None}
    np.savez(raw / "minesweeper.npz", **content)


def test_heterophilous_reader(tmp_path: Path) -> None:
    grid(tmp_path)
    graph = load("minesweeper", root=tmp_path, split="public")
    assert graph.x.tolist() == [[0.5, 1], [0, 0], [1, 0], [2, 3]]
    assert graph.edge_index.T.tolist() == [[1, 0], [0, 1], [3, 1], [1, 3]]
    assert [mask.tolist().index(True) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [0, 2, 3]
    assert int(graph.train_mask.sum()) == 2
    assert any("self-loop" in note for note in graph.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"node_labels": None},
        {"node_labels": np.array([{}, 1, 1, 0], dtype=object)},
        {"edges": np.array([[0.5, 1.0]])},
        {"edges": np.array([0, 1, 2])},
        {"edges": np.array([[0, 9]])},
        {"train_masks": np.zeros((0, 4), dtype=bool)},
        {"val_masks": np.ones((1, 4), dtype=bool)},
        {"node_features": np.array(["a", "b", "c", "d"])},
    ],
)
def test_heterophilous_reader_refuses_other_files(tmp_path: Path, changes: dict[str, Any]) -> None:
    grid(tmp_path, **changes)
    with pytest.raises(InputError, match="is not the file that heterophilous-graphs published"):
        load("minesweeper", root=tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more"])
def test_heterophilous_reader_refuses_damaged_files(tmp_path: Path, content: bytes) -> None:
    grid(tmp_path)
    (tmp_path / "minesweeper" / "raw" / "minesweeper.npz").write_bytes(content)
    with pytest.raises(InputError, match="is not the file that heterophilous-graphs published"):
        load("minesweeper", root=tmp_path)


# -- where the files come from -------------------------------------------------------------------------------


def test_the_variable_comes_before_the_cache(no_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npz(no_data)
    assert raw_folder("cs") == no_data / "CS" / "raw"
    npz(tmp_path / "mine")
    monkeypatch.setenv("GRAPHFORGET_DATA", str(tmp_path / "mine"))
    assert raw_folder("cs") == tmp_path / "mine" / "CS" / "raw"
    npz(tmp_path / "root")
    assert raw_folder("cs", root=tmp_path / "root") == tmp_path / "root" / "CS" / "raw"


@pytest.mark.parametrize("name", [name for name, raw in RAW_FILES.items() if raw.publisher])
def test_published_files_are_downloaded_into_the_cache(
    raw_data: Path, no_data: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    need(raw_data, name)
    urls: list[str] = []

    def fetch(url: str, folder: str) -> str:
        urls.append(url)
        source = raw_data / RAW_FILES[name].folder / "raw" / url.rpartition("/")[2]
        return str(shutil.copyfile(source, Path(folder) / source.name))

    monkeypatch.setattr("torch_geometric.data.download_url", fetch)
    folder = raw_folder(name)
    assert folder == no_data / RAW_FILES[name].folder / "raw"
    assert sorted(file.name for file in folder.iterdir()) == sorted(RAW_FILES[name].checksums)
    assert [entry.name for entry in no_data.iterdir()] == [RAW_FILES[name].folder]
    assert all("//" not in url.removeprefix("https://") for url in urls)
    raw_folder(name)
    assert len(urls) == len(RAW_FILES[name].checksums)


def test_a_failed_download_leaves_nothing(no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(url: str, folder: str) -> str:
        (Path(folder) / "half").write_text("half")
        raise OSError("no network")

    monkeypatch.setattr("torch_geometric.data.download_url", fetch)
    with pytest.raises(InputError, match=r"no network.*Cora/raw and set GRAPHFORGET_DATA"):
        load("cora")
    assert list(no_data.iterdir()) == []


def test_a_truncated_download_is_refused(no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(url: str, folder: str) -> str:
        path = Path(folder) / url.rpartition("/")[2]
        path.write_text("half")
        return str(path)

    monkeypatch.setattr("torch_geometric.data.download_url", fetch)
    with pytest.raises(InputError, match="other content than the published file"):
        load("physics")
    assert list(no_data.iterdir()) == []


# -- patients ------------------------------------------------------------------------------------------------


def test_ranges_are_those_of_the_description() -> None:
    row = re.compile(r"^[a-z ]+\((?:mean|standard error|worst)\):\s+(\S+)\s+(\S+)$", re.MULTILINE)
    printed = [(float(low), float(high)) for low, high in row.findall(load_breast_cancer().DESCR)]
    assert printed == list(RANGES)


def test_patients() -> None:
    graph = load("patients")
    table = load_breast_cancer()
    assert size(graph) == (569, 2_140, 30, 2)
    assert graph.x.dtype == torch.float64
    assert graph.x.layout == torch.strided
    assert float(graph.x.abs().max()) < 1.02  # the printed ranges are rounded
    low, high = np.array(RANGES).T
    np.testing.assert_allclose((graph.x.numpy() + 1) / 2 * (high - low) + low, table.data, atol=1e-10)
    assert graph.y.tolist() == table.target.tolist()
    assert graph.subject_ids is not None
    assert graph.subject_ids[0] == "patient-0000"
    assert graph.subject_ids[-1] == "patient-0568"
    assert graph.column_names == tuple(table.feature_names)
    assert graph.class_names == ("malignant", "benign")
    assert no_self_loops(graph)
    assert int(torch.bincount(graph.edge_index[1]).min()) >= 5


def test_neighbours_of_a_patient_are_the_nearest() -> None:
    graph = load("patients")
    nearest = torch.cdist(graph.x[17:18], graph.x)[0].argsort()[1:6]
    neighbours = graph.edge_index[0, graph.edge_index[1] == 17]
    assert set(nearest.tolist()) <= set(neighbours.tolist())


def test_removing_a_patient_changes_no_other() -> None:
    graph = load("patients")
    after = graph.without(Request(nodes=["patient-0017"]))
    others = torch.arange(569) != 17
    assert torch.equal(after.x, graph.x[others])
    assert torch.equal(after.y, graph.y[others])


# -- CSV -----------------------------------------------------------------------------------------------------

NODES = """id,label,age,height,split
ann,well,0.5,-1,train
bob,ill,1e-3,0,train
cid,,3,2,
dan,ill,0,4,test
"""
EDGES = """source,target
ann,bob
bob,cid
bob,ann
"""


def folder_with(path: Path, nodes: str | bytes = NODES, edges: str | bytes = EDGES) -> Path:
    path.mkdir(exist_ok=True)
    for name, content in (("nodes.csv", nodes), ("edges.csv", edges)):
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv_folder(tmp_path: Path) -> None:
    graph = load(folder_with(tmp_path / "clinic"))
    assert graph.name == "clinic"
    assert graph.subject_ids == ("ann", "bob", "cid", "dan")
    assert graph.column_names == ("age", "height")
    assert graph.class_names == ("ill", "well")
    assert graph.x.dtype == torch.float64
    assert graph.x.tolist() == [[0.5, -1], [1e-3, 0], [3, 2], [0, 4]]
    assert graph.y.tolist() == [1, 0, UNLABELLED, 0]
    assert graph.num_edges == 2
    assert graph.train_mask.tolist() == [True, True, False, False]
    assert graph.test_mask.tolist() == [False, False, False, True]


def test_csv_folder_may_be_directed(tmp_path: Path) -> None:
    graph = Graph.from_csv(folder_with(tmp_path), directed=True)
    assert graph.directed
    assert graph.edge_index.T.tolist() == [[1, 0], [0, 1], [1, 2]]


def test_csv_dialects_read_the_same(tmp_path: Path) -> None:
    plain = load(folder_with(tmp_path / "plain"))
    excel = load(folder_with(tmp_path / "excel", b"\xef\xbb\xbf" + NODES.replace("\n", "\r\n").encode()))
    lines = [line.split(",") for line in NODES.split()]
    moved = "\n" + "\n".join(f'{e},{c},"{a}",{d},{b}' for a, b, c, d, e in lines) + "\n\n"
    spaced = load(folder_with(tmp_path / "moved", moved, EDGES.replace(",", " , ")))
    assert excel.digest == plain.digest
    assert spaced.digest == plain.digest


def test_csv_labels_that_are_numbers_keep_their_order(tmp_path: Path) -> None:
    nodes = "id,label,a\nu,10,1\nv,9,1\nw,-1,1\n"
    graph = load(folder_with(tmp_path, nodes, "source,target\n"), split="given")
    assert graph.class_names == ("-1", "9", "10")
    assert graph.y.tolist() == [2, 1, 0]
    assert graph.num_edges == 0
    assert graph.train_mask.all()


def test_csv_attributes_are_sparse_if_few_are_filled(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random((40, 50)) < 0.05, rng.normal(size=(40, 50)), 0)
    x[:, 7] = 0
    lines = ["id,label," + ",".join(f"c{j}" for j in range(50))]
    lines += [f"n{i},{i % 2}," + ",".join(map(repr, row.tolist())) for i, row in enumerate(x)]
    lines[1] = lines[1].replace(",0.0", ",0.00")
    graph = load(folder_with(tmp_path, "\n".join(lines), "source,target\nn0,n1\n"))
    assert graph.x.layout == torch.sparse_csr
    assert graph.x.values().numel() == np.count_nonzero(x)
    assert np.array_equal(graph.x.to_dense().numpy(), x)


def test_csv_split_by_default_and_by_name(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    assert load(folder).test_mask.tolist() == load(folder, split="given").test_mask.tolist()
    assert int(load(folder, split="random").train_mask.sum()) == 2
    folder_with(tmp_path, NODES.replace("test", "train"))
    assert int(load(str(folder)).test_mask.sum()) == 1
    assert int(load(folder, split="given").test_mask.sum()) == 0
    with pytest.raises(InputError, match="no 'public' split"):
        load(folder, split="public")


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        ("", EDGES, r"line 1 of .*nodes.csv: the header has no column 'id'"),
        (NODES.replace("label", "class"), EDGES, r"line 1 of .*nodes.csv: the header has no column 'label'"),
        (NODES.replace("height", "age"), EDGES, r"line 1 of .*nodes.csv: column 'age' appears twice"),
        (NODES.replace("height", ""), EDGES, r"line 1 of .*nodes.csv: column 4 of the header has no name"),
        ("id,label\nann,1\n", EDGES, r"line 1 of .*nodes.csv: the header names no attribute"),
        ("id,label,a\n", EDGES, r"nodes.csv holds no node"),
        (NODES + "eve,ill,1\n", EDGES, r"line 6 of .*nodes.csv: there are 3 cells, the header has 5"),
        (NODES + "ann,ill,1,1,\n", EDGES, r"line 6 of .*nodes.csv: id 'ann' stands on line 2 already"),
        (NODES + " ,ill,1,1,\n", EDGES, r"line 6 of .*nodes.csv: the id is empty"),
        (NODES.replace("0.5", "nan"), EDGES, r"line 2 of .*nodes.csv: 'age' is 'nan'"),
        (NODES.replace("0.5", "-inf"), EDGES, r"line 2 of .*nodes.csv: 'age' is '-inf'"),
        (NODES.replace("0.5", ""), EDGES, r"line 2 of .*nodes.csv: 'age' is ''"),
        (NODES.replace("0.5", "old"), EDGES, r"line 2 of .*nodes.csv: 'age' is 'old', it must be a finite"),
        (NODES.replace("test", "exam"), EDGES, r"line 5 of .*nodes.csv: split is 'exam'"),
        (
            NODES.replace("dan,ill", "dan,"),
            EDGES,
            r"line 5 of .*nodes.csv: node 'dan' is a test node",
        ),
        (NODES.replace("train", "val"), EDGES, r"no training node"),
        (NODES.replace("well", "ill"), EDGES, r"1 class\(es\)"),
        (b"id,label,a\n\xff\xfe,1,1\n", EDGES, r"nodes.csv is not UTF-8"),
        (NODES + '"eve,ill,1,1,\n', EDGES, r"line 6 of .*nodes.csv is not CSV"),
        (NODES, "", r"line 1 of .*edges.csv: the header is ''"),
        (
            NODES,
            "source,target,kind\nann,bob,1\n",
            r"line 1 of .*edges.csv: .*source,target and, if there are any, weight and relation are needed",
        ),
        (NODES, "source,target,weight\nann,bob,x\n", r"line 2 of .*edges.csv: the weight is 'x', a number over 0"),
        (NODES, "source,target,weight\nann,bob,0\n", r"an edge weight is 0, numbers over 0 from"),
        (NODES, EDGES + "ann,eve\n", r"line 5 of .*edges.csv: node 'eve' is not in nodes.csv"),
        (NODES, EDGES + "ann\n", r"line 5 of .*edges.csv: there are 1 cells"),
    ],
)
def test_bad_csv_is_told_in_one_sentence(tmp_path: Path, nodes: str | bytes, edges: str | bytes, said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        load(folder_with(tmp_path, nodes, edges))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["nodes.csv", "edges.csv"])
def test_missing_csv_file(tmp_path: Path, name: str) -> None:
    (folder_with(tmp_path) / name).unlink()
    with pytest.raises(InputError, match=f"{name} does not exist"):
        load(tmp_path)


# -- PyG files -----------------------------------------------------------------------------------------------


def small(**changes: Any) -> Data:
    fields: dict[str, Any] = {
        "x": torch.tensor([[1.0, 0], [0, 2], [0, 0]]),
        "edge_index": torch.tensor([[0, 1], [1, 0]]),
        "y": torch.tensor([0, 1, 1]),
        "train_mask": torch.tensor([True, True, False]),
        "test_mask": torch.tensor([False, False, True]),
    }
    return Data(**(fields | changes))


def saved(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


def test_pyg_file_round_trip(tmp_path: Path) -> None:
    graph = load("patients").without(Request(nodes=[3, 77]))
    again = load(saved(tmp_path / "clinic.pt", graph.to_pyg()))
    assert again.name == "clinic"
    assert not again.directed
    for name in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(again, name), getattr(graph, name))


@pytest.mark.parametrize("form", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_pyg_file_with_sparse_attributes(tmp_path: Path, form: Callable[[torch.Tensor], torch.Tensor]) -> None:
    graph = load(saved(tmp_path / "s.pt", small(x=form(small().x), title="a word", years=[1, 2])))
    assert graph.x.layout == torch.sparse_csr
    assert torch.equal(graph.x.to_dense(), small().x)


def test_pyg_file_without_test_nodes_is_split(tmp_path: Path) -> None:
    graph = load(str(saved(tmp_path / "s.pt", small(test_mask=None, train_mask=None))))
    assert int(graph.test_mask.sum()) == 1


@pytest.mark.parametrize("protocol", [2, 4])
def test_pyg_file_with_code_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    torch.save(small(extra=Evil(tmp_path / "trap")), tmp_path / "evil.pt", pickle_protocol=protocol)
    told = pytest.raises(InputError, match=r"evil\.pt is not a PyG Data of tensors")
    with told, warnings.catch_warnings(action="error"):  # nothing but that sentence is said
        load(tmp_path / "evil.pt")
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize("content", [b"", b"hello", pickle.dumps(Evil(Path("/nowhere/trap")), protocol=2)])
def test_damaged_pyg_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.pt is not a PyG Data"):
        load(tmp_path / "bad.pt")


def out_of_range() -> torch.Tensor:
    parts = torch.tensor([0, 1, 1, 1]), torch.tensor([999_999]), torch.ones(1)
    return torch.sparse_csr_tensor(*parts, size=(3, 2), check_invariants=False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ((small(), {"x": 1}), "holds a tuple, one PyG Data is needed"),
        ({"weight": torch.ones(2)}, "holds a dict"),
        (small(x=None), "no 'x'"),
        (small(y=[0, 1, 1]), "'y' is not a tensor"),
        (small(edge_index=torch.tensor([[0, 1]])), r"edges of shape \(1, 2\)"),
        (small(edge_index=torch.tensor([[0], [9]])), "names node 9"),
        (small(edge_attr=torch.ones(2)), "has 'edge_attr'"),
        (small(x=torch.full((3, 2), float("nan"))), "NaN"),
        (small(x=out_of_range()), "or it is damaged"),
        (HeteroData(), "it holds a HeteroData, so the target is needed"),
    ],
)
def test_pyg_file_with_other_content(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        load(saved(tmp_path / "other.pt", content))
    assert "other.pt" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_processed_dataset_of_pyg_is_refused(tmp_path: Path) -> None:
    InMemoryDataset.save([small()], str(tmp_path / "data.pt"))
    with pytest.raises(InputError, match=r"save dataset\[0\]"):
        load(tmp_path / "data.pt")


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("hello")
    with pytest.raises(InputError, match=r"ends in \.pt"):
        load(tmp_path / "data.txt")


def test_a_split_that_keeps_people_out_of_training_is_kept(tmp_path: Path) -> None:
    rows = "".join(f"p{i},{i % 2},{i},{'train' if i < 6 else 'val' if i < 8 else ''}\n" for i in range(12))
    (tmp_path / "nodes.csv").write_text("id,label,a,split\n" + rows)
    (tmp_path / "edges.csv").write_text("source,target\np0,p1\n")
    graph = load(tmp_path)
    assert (int(graph.train_mask.sum()), int(graph.val_mask.sum()), int(graph.test_mask.sum())) == (6, 2, 0)


def test_counts_agree_with_the_papers_table_of_statistics() -> None:
    """It counts directed edges for the larger three and duplicates for Cora and CiteSeer."""
    paper = {
        "cora": (2_708, 5_429, 1_433, 7),
        "citeseer": (3_327, 4_723, 3_703, 6),
        "pubmed": (19_717, 88_648, 500, 3),
        "cs": (18_333, 163_788, 6_805, 15),
        "physics": (34_493, 495_924, 8_415, 5),
    }
    for name, (nodes, edges, columns, classes) in paper.items():
        ours = DATASETS[name]
        assert (ours.nodes, ours.columns, ours.classes) == (nodes, columns, classes)
        if name in ("pubmed", "cs", "physics"):
            assert 2 * ours.edges == edges
        else:
            assert 0 <= edges - ours.edges < 200
