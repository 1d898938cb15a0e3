"""Small files that stand for more than memory holds: one sentence, before memory is taken."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import graphforget as gf
from graphforget.cli.own_code import load_checkpoint
from graphforget.datasets.parquet import shard_parquet

LONG = 2**20


def compress(path: Path) -> None:
    """Compresses an archive of `torch.save`, as torch never does and reads all the same."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in content.items():
            archive.writestr(name, part)


def test_a_compressed_file_of_torch_is_refused(tmp_path: Path) -> None:
    tensors = {"x": torch.ones(4, 2), "edge_index": torch.tensor([[0, 1], [2, 3]]), "y": torch.tensor([0, 1, 0, 1])}
    file, checkpoint = tmp_path / "data.pt", tmp_path / "weights.pt"
    torch.save(Data(**tensors), file)
    assert gf.load(file).num_nodes == 4
    torch.save(Data(**tensors, unused=torch.zeros(LONG)), file)
    torch.save({"weight": torch.zeros(2, LONG), "bias": torch.zeros(2)}, checkpoint)
    for path in (file, checkpoint):
        compress(path)
        assert path.stat().st_size < LONG / 50
    with pytest.raises(gf.InputError, match="in memory"):
        gf.load(file)
    with pytest.raises(gf.InputError, match="in memory"):
        load_checkpoint(torch.nn.Linear(LONG, 2), checkpoint)


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    torch.save(Data(x=torch.ones(4, 2)), tmp_path / "data.pt")
    os.truncate(tmp_path / "data.pt", 300)
    with pytest.raises(gf.InputError, match="damaged archive"):
        gf.load(tmp_path / "data.pt")


def write_parquet(folder: Path, **columns: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    nodes = {"id": [f"s{row}" for row in range(30)], "label": [0, 1] * 15, "a": np.arange(30.0)} | columns
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    pq.write_table(pa.table({"source": ["s0", "s1"], "target": ["s1", "s2"]}), folder / "edges.parquet")


@pytest.mark.parametrize("name", ["id", "label", "split"])
def test_a_word_of_a_parquet_file_has_a_length_that_one_can_keep(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    words = [f"s{row}" for row in range(29)]
    write_parquet(tmp_path, **{name: [*words, "s" * LONG]})
    assert (tmp_path / "nodes.parquet").stat().st_size < LONG / 10
    with pytest.raises(gf.InputError, match=f"a word of 1,048,576 bytes in the column '{name}'"):
        shard_parquet(tmp_path, tmp_path / "parts", parts=1)


def test_an_edge_names_no_endless_id(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    write_parquet(tmp_path)
    pq.write_table(pa.table({"source": ["s0", "s" * LONG], "target": ["s1", "s2"]}), tmp_path / "edges.parquet")
    with pytest.raises(gf.InputError, match="a word of 1,048,576 bytes in the column 'source'"):
        shard_parquet(tmp_path, tmp_path / "parts", parts=1)
