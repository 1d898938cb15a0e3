"""Parquet files: what is read as in CSV files, what is refused in one sentence, and how much memory it takes."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphforget as gf
from cases import ENVIRONMENT, Run
from graphforget.datasets.parquet import shard_parquet
from graphforget.datasets.sharded_folder import read_manifest
from graphforget.distributed.part_files import open_part, part_folder

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

NODES = 30
IDS = [f"p{place}" for place in range(NODES)]


def written(folder: Path, *, edges: dict[str, Any] | None = None, **nodes: Any) -> Path:
    """A folder with thirty nodes and two edges. A column that is None is left out."""
    folder.mkdir(exist_ok=True)
    plain = {"id": IDS, "label": [0, 1] * 15, "a": np.arange(30.0)}
    columns = {name: column for name, column in (plain | nodes).items() if column is not None}
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    pq.write_table(pa.table(edges or {"source": ["p0", "p1"], "target": ["p1", "p2"]}), folder / "edges.parquet")
    return folder


def of_csv(folder: Path, labels: Sequence[str]) -> gf.Graph:
    """The same graph as CSV files, with these cells in the column of labels."""
    folder.mkdir(parents=True)
    rows = [f"{name},{label},{place}.0" for place, (name, label) in enumerate(zip(IDS, labels, strict=True))]
    (folder / "nodes.csv").write_text("\n".join(["id,label,a", *rows, ""]))
    (folder / "edges.csv").write_text("source,target\np0,p1\np1,p2\n")
    return gf.load(folder, split="given")


NAN = float("nan")
LABELS: dict[str, tuple[Any, list[str]]] = {
    "numbers with NaN": (np.array([10.0, 9.0, NAN] * 10), ["10", "9", ""] * 10),
    "numbers with null": (pa.array([10, 9, None] * 10), ["10", "9", ""] * 10),
    "whole floats with null": (pa.array([2.0, -1.0, None] * 10, type=pa.float32()), ["2", "-1", ""] * 10),
    "words with null": (["b", "a", None] * 10, ["b", "a", ""] * 10),
    "words with blanks": ([" b", "a ", "  "] * 10, ["b", "a", ""] * 10),
    "digits in words": (["10", "9", ""] * 10, ["10", "9", ""] * 10),
    "a dictionary": (pa.array(["b", "a", None] * 10).dictionary_encode(), ["b", "a", ""] * 10),
    "a dictionary of numbers": (pa.array([10, 9, None] * 10).dictionary_encode(), ["10", "9", ""] * 10),
    "yes and no": ([True, False, None] * 10, ["True", "False", ""] * 10),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_those_of_the_same_csv(kind: str, tmp_path: Path) -> None:
    """Null and NaN are no label, and classes have the order that they have in CSV files: the digest has it too."""
    column, cells = LABELS[kind]
    manifest = shard_parquet(written(tmp_path / "records", label=column), tmp_path / "s", parts=2, split="given")
    graph = of_csv(tmp_path / "csv" / "records", cells)
    assert manifest.facts.class_names == graph.class_names
    assert manifest.digest == graph.digest
    targets = [open_part(part_folder(tmp_path / "s", rank)).map("targets") for rank in range(2)]
    assert np.concatenate(targets).tolist() == graph.y.tolist()
    assert (graph.y < 0).sum() == 10


def test_files_of_one_graph_may_spell_a_class_in_several_ways(tmp_path: Path) -> None:
    """A whole number is the class of its digits, whatever the type of its column is."""
    folder = tmp_path / "records"
    written(folder)
    (folder / "nodes.parquet").unlink()
    (folder / "nodes").mkdir()
    labels = ([10, 9] * 5, [10.0, NAN] * 5, ["9", "10"] * 5)
    for number, label in enumerate(labels):
        table = pa.table({"id": IDS[10 * number : 10 * number + 10], "label": label, "a": np.arange(10.0)})
        pq.write_table(table, folder / "nodes" / f"{number}.parquet")
    manifest = shard_parquet(folder, tmp_path / "s", parts=1)
    assert manifest.facts.class_names == ("9", "10")
    targets = open_part(part_folder(tmp_path / "s", 0)).map("targets").tolist()
    assert targets == [1, 0] * 5 + [1, -1] * 5 + [0, 1] * 5


def test_no_file_loses_digits_because_another_has_fewer(tmp_path: Path) -> None:
    folder = written(tmp_path / "records")
    (folder / "nodes.parquet").unlink()
    (folder / "nodes").mkdir()
    for number, kind in enumerate((np.float32, np.float64, np.float32)):
        rows = slice(10 * number, 10 * number + 10)
        attribute = (np.arange(10.0) + 1 / 3).astype(kind)
        table = pa.table({"id": IDS[rows], "label": [0, 1] * 5, "a": attribute})
        pq.write_table(table, folder / "nodes" / f"{number}.parquet")
    shard_parquet(folder, tmp_path / "s", parts=1)
    attributes = open_part(part_folder(tmp_path / "s", 0)).map("attributes")
    assert attributes[10:20, 0].tolist() == (np.arange(10.0) + 1 / 3).tolist()


DAY = datetime.date(2026, 1, 1)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a label that is continuous": ({"label": np.arange(30) / 7}, "the column 'label' has the number 0.142857"),
    "an infinite label": ({"label": np.array([0.0, np.inf] * 15)}, "the column 'label' has the number inf"),
    "labels in lists": ({"label": [[0], [1, 2]] * 15}, "the column 'label' has the type list<"),
    "labels in records": ({"label": [{"x": 1}] * 30}, "the column 'label' has the type struct<"),
    "labels that are days": ({"label": [DAY] * 30}, "the column 'label' has the type date32"),
    "labels that are bytes": ({"label": [b"a", b"b"] * 15}, "the column 'label' has the type binary"),
    "decimal labels": ({"label": [Decimal("1.5")] * 30}, "the column 'label' has the type decimal128"),
    "no label at all": ({"label": pa.nulls(30)}, "has a label"),
    "labels that are all NaN": ({"label": np.full(30, NAN)}, "has a label"),
    "one class": ({"label": [7] * 30}, "name 1 class, at least 2 are needed"),
    "no column of labels": ({"label": None}, "need a column 'label'"),
    "no attribute": ({"a": None}, "at least one attribute"),
    "an attribute of words": ({"a": ["1.5"] * 30}, "the attribute 'a' has the type string"),
    "an attribute of moments": (
        {"a": [datetime.datetime(2026, 1, 1)] * 30},
        "the attribute 'a' has the type timestamp",
    ),
    "an attribute of lists": ({"a": [[1.0]] * 30}, "the attribute 'a' has the type list<"),
    "an attribute of decimals": ({"a": [Decimal("1.5")] * 30}, "the attribute 'a' has the type decimal128"),
    "an attribute of nothing": ({"a": pa.nulls(30)}, "the attribute 'a' has the type null"),
    "an attribute with null": ({"a": pa.array([1.0, None] * 15)}, "the attribute 'a' has a row without a value"),
    "a whole attribute with null": ({"a": pa.array([1, None] * 15)}, "the attribute 'a' has a row without a value"),
    "an attribute with NaN": ({"a": np.array([1.0, NAN] * 15)}, "the attribute 'a' has a value that is not finite"),
    "an attribute that is too large": ({"a": np.full(30, 1e16)}, "the attribute 'a' has the value 1e"),
    "a blank name": ({" ": np.arange(30.0)}, "column names is blank"),
    "a split of numbers": ({"split": [0, 1] * 15}, "the column 'split' has the type int64"),
    "a split of lists": ({"split": [["train"]] * 30}, "the column 'split' has the type list<"),
    "another side": ({"split": ["train", "left"] * 15}, "the split is 'left'"),
    "an id twice": ({"id": ["p0", *IDS[:29]]}, "not all different"),
    "ids in lists": ({"id": [[name] for name in IDS]}, "the column 'id' has the type list<"),
    "an edge to nobody": ({"edges": {"source": ["p0"], "target": ["p77"]}}, "an edge names an id that no node has"),
    "an edge to null": (
        {"edges": {"source": ["p0"], "target": pa.array([None], type=pa.string())}},
        "'target' has a row",
    ),
    "an edge of lists": ({"edges": {"source": ["p0"], "target": [["p1"]]}}, "the column 'target' has the type list<"),
    "an edge without an end": ({"edges": {"source": ["p0"]}}, "has no column 'target'"),
    "a number of nobody": ({"id": None, "edges": {"source": [0], "target": [30]}}, "an edge names a node that is no"),
    "a number that is null": (
        {"id": None, "edges": {"source": [0], "target": pa.array([None], type=pa.int64())}},
        "no whole",
    ),
    "a number in words": ({"id": None, "edges": {"source": [0], "target": ["1"]}}, "no whole number from 0 to 29"),
    "a number that is NaN": ({"id": None, "edges": {"source": [0], "target": [NAN]}}, "no whole number from 0 to 29"),
    "a number in lists": ({"id": None, "edges": {"source": [0], "target": [[1]]}}, "no whole number from 0 to 29"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_columns_are_refused_in_one_sentence(case: str, run: Run, tmp_path: Path) -> None:
    columns, words = REFUSED[case]
    ran = run("shard", written(tmp_path / "records", **columns), "--parts", "2", "--out", tmp_path / "s")
    assert ran.code == 2
    (sentence,) = ran.stderr.strip().splitlines()
    assert words in sentence
    assert not (tmp_path / "s").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["records"]


def test_two_columns_of_one_name_are_refused(run: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "records")
    table = pa.table(
        [pa.array(IDS), pa.array([0, 1] * 15), *[pa.array(np.arange(30.0))] * 2], ["id", "label", "a", "a"]
    )
    pq.write_table(table, folder / "nodes.parquet")
    ran = run("shard", folder, "--parts", "2", "--out", tmp_path / "s")
    assert (ran.code, len(ran.stderr.strip().splitlines())) == (2, 1)


def test_a_graph_without_edges_is_split_too(tmp_path: Path) -> None:
    nobody = {name: pa.array([], type=pa.string()) for name in ("source", "target")}
    manifest = shard_parquet(written(tmp_path / "records", edges=nobody), tmp_path / "s", parts=2)
    assert manifest == read_manifest(tmp_path / "s")


MEASURE = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from graphforget.datasets.parquet import shard_parquet

COLUMNS, PART, GROUP = 100, 20_000, 10_000
rng, place = np.random.default_rng(0), Path(sys.argv[1])

def written(parts):
    folder, n = place / str(parts), PART * parts
    folder.mkdir()
    schema = pa.schema([("label", pa.int64()), *((f"a{number}", pa.float32()) for number in range(COLUMNS))])
    with pq.ParquetWriter(folder / "nodes.parquet", schema) as file:
        for _ in range(0, n, GROUP):
            values = [rng.integers(0, 5, GROUP), *rng.random((COLUMNS, GROUP), dtype=np.float32)]
            file.write_table(pa.table(dict(zip(schema.names, values, strict=True))))
    edges = {name: rng.integers(0, n, 2 * n) for name in ("source", "target")}
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    return folder

def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*.bin"))

few, many = written(3), written(10)
shard_parquet(few, place / "few", parts=3)
before = peak()
shard_parquet(many, place / "many", parts=10)
part = size(place / "many" / "part-0000")
print((peak() - before) / part, (size(place / "many") - size(place / "few")) / part)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_a_larger_graph_in_parts_of_the_same_size_takes_no_more_memory(tmp_path: Path) -> None:
    """A graph that is larger by seven parts: the peak may grow by two, for what allocators keep."""
    command = [sys.executable, "-c", MEASURE, str(tmp_path)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    grown, larger = map(float, done.stdout.split())
    assert 6 < larger < 8
    assert grown < 2
