"""`graphforget shard` from every source: the manifest has the digest of the graph on one machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import graphforget as gf
from cases import Run
from graphforget.datasets.sharded_folder import read_manifest
from graphforget.distributed.part_files import open_part, part_folder


def as_csv(folder: Path) -> Path:
    folder.mkdir(parents=True)
    rows = [f"p{place},{place}.5,{'x' if place % 3 else 'y'}" for place in range(40)]
    (folder / "nodes.csv").write_text("\n".join(["id,age,label", *rows, ""]))
    pairs = [f"p{place},p{(7 * place + 1) % 40}" for place in range(40)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *pairs, ""]))
    return folder


def as_pyg(folder: Path) -> Path:
    graph = gf.synthetic(nodes=60, edges=150, columns=4, classes=3, train=0.7)
    folder.mkdir()
    torch.save(graph.to_pyg(), folder / "graph.pt")
    return folder / "graph.pt"


def as_parquet(folder: Path) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    graph = gf.load(as_csv(folder), split="given")
    table = {"id": graph.subject_ids, "age": graph.x.to_dense()[:, 0].double().numpy()}
    names = np.array(graph.class_names)
    pq.write_table(pa.table(table | {"label": names[graph.y.numpy()]}), folder / "nodes.parquet")
    ids = np.array(graph.subject_ids)
    ends = {name: ids[row.numpy()] for name, row in zip(("source", "target"), graph.edge_index, strict=True)}
    pq.write_table(pa.table(ends), folder / "edges.parquet")
    for name in ("nodes.csv", "edges.csv"):
        (folder / name).unlink()
    return folder


SOURCES = {"CSV": as_csv, "PyG": as_pyg, "Parquet": as_parquet}


@pytest.mark.parametrize("source", SOURCES)
def test_the_manifest_has_the_digest_of_the_graph(source: str, run: Run, tmp_path: Path) -> None:
    data = SOURCES[source](tmp_path / "records")
    ran = run("shard", data, "--parts", "3", "--out", tmp_path / "shards", "--split", "given", "--json")
    assert ran.code == 0, ran.stderr
    answer, manifest = json.loads(ran.stdout), read_manifest(tmp_path / "shards")
    whole = gf.load(as_csv(tmp_path / "csv" / "records") if source == "Parquet" else data, split="given")
    assert answer["digest"] == manifest.digest == whole.digest
    assert (answer["parts"], answer["columns"], answer["classes"]) == (3, whole.num_columns, whole.num_classes)
    parts = [open_part(part_folder(tmp_path / "shards", rank), digest=manifest.digests[rank]) for rank in range(3)]
    assert np.concatenate([part.map("targets") for part in parts]).tolist() == whole.y.tolist()
    again = run("shard", data, "--parts", "3", "--out", tmp_path / "shards")
    assert (again.code, "exists already" in again.stderr) == (2, True)


@pytest.mark.parametrize("source", SOURCES)
def test_the_random_split_is_that_of_one_machine(source: str, run: Run, tmp_path: Path) -> None:
    data = SOURCES[source](tmp_path / "records")
    command = ("shard", data, "--parts", "2", "--out", tmp_path / "shards", "--split", "random", "--seed", "5")
    assert run(*command).code == 0
    whole = gf.load(as_csv(tmp_path / "csv" / "records") if source == "Parquet" else data, split="random", seed=5)
    assert read_manifest(tmp_path / "shards").digest == whole.digest
    assert whole.test_mask.any()


def test_what_is_no_graph_is_one_sentence(run: Run, tmp_path: Path) -> None:
    for data, parts in ((tmp_path / "nowhere", "2"), (as_csv(tmp_path / "records"), "99")):
        ran = run("shard", data, "--parts", parts, "--out", tmp_path / "shards")
        assert (ran.code, len(ran.stderr.strip().splitlines())) == (2, 1)
        assert not (tmp_path / "shards").exists()
