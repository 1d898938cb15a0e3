"""Graphs in parts: the digest is that of one machine, from every source, and damage is found."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphforget as gf
from graphforget.datasets.parquet import is_parquet, shard_parquet
from graphforget.datasets.sharded_folder import read_manifest, shard
from graphforget.distributed.part_files import open_part, part_folder


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_the_digest_does_not_depend_on_the_parts(tmp_path: Path, parts: int) -> None:
    graph = gf.load("patients")
    retained = graph.without(gf.Request(nodes=["patient-0017"], attributes={"patient-0042": "all"}))
    for number, one in enumerate((graph, retained)):
        manifest = shard(one, tmp_path / str(number), parts=parts)
        assert manifest.digest == one.digest
        assert read_manifest(tmp_path / str(number)) == manifest


def test_sparse_attributes_have_the_same_digest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    import torch

    x = torch.from_numpy((rng.random((200, 50)) < 0.03).astype(np.float32))
    edges = torch.from_numpy(rng.integers(0, 200, size=(2, 400)))
    graph = gf.Graph.create(x=x, edges=edges, y=torch.from_numpy(rng.integers(0, 3, size=200)), sparse=True)
    assert shard(graph, tmp_path / "s", parts=2).digest == graph.digest


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    shard(gf.load("patients"), tmp_path / "s", parts=2)
    folder = part_folder(tmp_path / "s", 1)
    content = bytearray((folder / "attributes.bin").read_bytes())
    content[77] ^= 1
    (folder / "attributes.bin").write_bytes(bytes(content))
    with pytest.raises(gf.InputError, match="attributes.bin is not the file that was written"):
        open_part(folder)


def replaced(path: Path, put: Callable[[Path], None]) -> None:
    """Something else in its place; the file stays beside it."""
    path.rename(path.with_suffix(".x"))
    put(path)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "flipped": flipped,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "a folder": lambda path: replaced(path, Path.mkdir),
    "a pipe": lambda path: replaced(path, os.mkfifo),
    "a link to it": lambda path: replaced(path, lambda place: place.symlink_to(f"{place.stem}.x")),
    "a broken link": lambda path: replaced(path, lambda place: place.symlink_to("nowhere")),
    "other bytes": lambda path: path.write_bytes(b"\xff\xfe\x00" * 10),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_any_damage_to_any_file_of_a_part_is_one_sentence(tmp_path: Path, damage: str) -> None:
    manifest = shard(gf.load("patients"), tmp_path / "s", parts=2)
    names = sorted(path.name for path in part_folder(tmp_path / "s", 1).iterdir())
    assert len(names) == 10
    for name in names:
        shutil.copytree(tmp_path / "s", tmp_path / name)
        folder = part_folder(tmp_path / name, 1)
        DAMAGES[damage](folder / name)
        with pytest.raises(gf.InputError) as refused:
            open_part(folder, digest=manifest.digests[1])
        assert "\n" not in str(refused.value)
        assert "part-0001" in str(refused.value)
    DAMAGES[damage](tmp_path / "s" / "manifest.json")
    with pytest.raises(gf.InputError):
        read_manifest(tmp_path / "s")


def test_directed_graphs_and_existing_folders_are_refused(tmp_path: Path) -> None:
    import torch

    edges = torch.tensor([[0, 1], [1, 2]])
    directed = gf.Graph.create(x=torch.eye(20), edges=edges, y=torch.arange(20) % 2, directed=True)
    with pytest.raises(gf.InputError, match="directed"):
        shard(directed, tmp_path / "s", parts=1)
    with pytest.raises(gf.InputError, match="exists already"):
        shard(gf.load("patients"), tmp_path, parts=1)
    with pytest.raises(gf.InputError, match="the number of parts is 99"):
        shard(gf.load("patients"), tmp_path / "s", parts=99)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("with_ids", [True, False])
def test_parquet_gives_the_graph_of_the_same_csv(tmp_path: Path, with_ids: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    graph = gf.synthetic(nodes=120, edges=300, columns=3, classes=3, train=0.7)
    names = [f"p{number:03d}" for number in range(120)]
    sides = np.where(graph.train_mask.numpy(), "train", "test")
    table = {"id": names, "label": [f"c{y}" for y in graph.y.tolist()], "split": sides.tolist()}
    table |= {f"a{place}": (graph.x[:, place] * 64).round().double().numpy() / 64 for place in range(3)}
    once = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    ends = {name: row.numpy() for name, row in zip(("source", "target"), once, strict=True)}
    folder = tmp_path / "records"
    folder.mkdir()
    nodes = table if with_ids else {name: column for name, column in table.items() if name != "id"}
    pq.write_table(pa.table(nodes), folder / "nodes.parquet", row_group_size=50)
    listed = {name: [names[row] for row in rows.tolist()] for name, rows in ends.items()} if with_ids else ends
    pq.write_table(pa.table(listed), folder / "edges.parquet")
    assert is_parquet(folder)
    manifest = shard_parquet(folder, tmp_path / "s", parts=3)
    expected = _of_csv(tmp_path / "csv" / "records", table, ends, names)
    if with_ids:
        assert manifest.digest == expected.digest
    else:
        assert manifest.facts.has_subjects is False
    assert open_part(part_folder(tmp_path / "s", 2)).map("attributes").shape[1] == 3


def _of_csv(folder: Path, table: dict[str, list[str]], ends: dict[str, np.ndarray], names: list[str]) -> gf.Graph:
    folder.mkdir(parents=True)
    with (folder / "nodes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([list(table), *zip(*table.values(), strict=True)])
    with (folder / "edges.csv").open("w", newline="") as file:
        rows = zip(*([names[row] for row in column.tolist()] for column in ends.values()), strict=True)
        csv.writer(file).writerows([["source", "target"], *rows])
    return gf.Graph.from_csv(folder)


@pytest.mark.parametrize(
    ("edges", "words"), [([0, 500], "no whole number from 0 to 29"), ([-1, 0], "no whole number from 0 to 29")]
)
def test_parquet_refuses_edges_to_nobody(tmp_path: Path, edges: list[int], words: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"label": [0, 1] * 15, "a": np.arange(30.0)}), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": edges, "target": [1, 2]}), tmp_path / "edges.parquet")
    with pytest.raises(gf.InputError, match=words):
        shard_parquet(tmp_path, tmp_path / "s", parts=1)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("ids", "source", "words"),
    [
        ([f"p{place}" for place in range(29)] + [None], "p0", "'id' has a row without an id"),
        ([None] * 30, "p0", "'id' has the type null"),
        (np.arange(30.0), 0.0, "'id' has the type double"),
        ([True, False] * 15, True, "'id' has the type bool"),
        ([f"p{place}" for place in range(29)] + ["None"], None, "'source' has a row without an id"),
        (list(range(30)), 0.0, "'source' has the type double"),
    ],
)
def test_parquet_refuses_ids_that_are_none(tmp_path: Path, ids: list[Any], source: Any, words: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    nodes = {"id": ids, "label": [0, 1] * 15, "a": np.arange(30.0)}
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    sources = [source, "p1"] if source is None else [source, source]
    pq.write_table(pa.table({"source": sources, "target": [ids[1], ids[2]]}), tmp_path / "edges.parquet")
    with pytest.raises(gf.InputError, match=words):
        shard_parquet(tmp_path, tmp_path / "s", parts=1)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("kind", ["whole numbers", "dictionary"])
def test_parquet_ids_may_be_whole_numbers_or_words_of_a_dictionary(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    words = pa.array([f"p{place}" for place in range(30)]).dictionary_encode()
    ids = words if kind == "dictionary" else pa.array(range(100, 130))
    pq.write_table(pa.table({"id": ids, "label": [0, 1] * 15, "a": np.arange(30.0)}), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": ids[:5], "target": ids[5:10]}), tmp_path / "edges.parquet")
    assert shard_parquet(tmp_path, tmp_path / "s", parts=1).facts.has_subjects is True
