"""A graph in Parquet files, split into parts without ever being in memory as a whole.

A folder with nodes.parquet and edges.parquet, or with folders of these names that hold several files. Nodes have the
columns `label` (words or whole numbers; null, NaN or nothing for a node without a class), `split` (train, val, test or
nothing) if there is one, `id` if nodes have subject ids, and attributes. A node's number is its place in the files.
Edges have the columns `source` and `target`: ids, or numbers if there are no ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphforget.datasets.parquet_columns import TEXT, WHOLE, ids_of, labels_of, numbers_of, roles_of, type_name
from graphforget.datasets.sharded_folder import Manifest, new_folder, write_manifest, write_row_part
from graphforget.distributed.row_ranges import RowRanges
from graphforget.errors import InputError
from graphforget.graph.csv_targets import ordered_classes
from graphforget.graph.distributed_graph import GraphFacts
from graphforget.graph.hashing import node_hashes, salt, salted, uniform
from graphforget.graph.row_part import SUBJECTS, TEST, TRAIN
from graphforget.graph.targets import UNLABELLED
from graphforget.graph.validation import FEWEST_CLASSES, checked_names
from graphforget.progress import Progress
from graphforget.validation import is_number

SPECIAL = ("id", "label", "split")
ROWS, CELLS = 2**16, 2**20  # of a batch, at most
BUFFER = 2**16  # bytes of a column that are read at once: without it, pyarrow reads all row groups ahead
WORDS = ("id", "label", "split", "source", "target")  # columns that may hold text
LONGEST_WORD = 2**10  # bytes; ids are kept at the length of the longest
TEST_SHARE = 0.1
SINGLE = ("float", "halffloat", "int8", "int16", "uint8", "uint16", "bool")  # types that float32 holds exactly


def is_parquet(path: str | Path) -> bool:
    """Whether there are nodes and edges in Parquet files at this path."""
    return (
        any((Path(path) / name).exists() for name in ("nodes.parquet", "nodes"))
        and not (Path(path) / "nodes.csv").exists()
    )


@dataclass(frozen=True, eq=False)
class _Nodes:
    """What the first pass over the nodes finds out: small numbers, and the ids if there are any."""

    count: int
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    ids: np.ndarray | None  # as bytes, in the order of the files
    has_split: bool
    dtype: str  # of the attributes


# Longer than 50 lines because of its documentation.
def shard_parquet(
    folder: str | Path,
    out: str | Path,
    *,
    parts: int,
    seed: int = 0,
    split: str | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Splits a graph in Parquet files into parts, batch by batch. In memory there is one part, and the ids.

    Args:
        folder: The folder with the files.
        out: A folder that does not exist.
        parts: The number of parts.
        seed: Decides the random split.
        split: "given" or "random"; by default "given" if there is a column `split`.
        progress: The callback to report to.

    Returns:
        The manifest.

    Raises:
        InputError: A file is missing or malformed, or pyarrow is not installed.
    """
    source = Path(folder)
    if split not in (None, "given", "random"):
        raise InputError(f"split is {split!r}, Parquet files have 'given' and 'random'")
    nodes = _scan(source)
    facts = GraphFacts(
        nodes=nodes.count,
        num_columns=len(nodes.columns),
        num_classes=len(nodes.classes),
        targets="classes",
        name=source.resolve().name,
        digit_ids=nodes.ids is not None and any(is_number(name.decode()) for name in nodes.ids.tolist()),
        has_subjects=nodes.ids is not None,
        column_names=nodes.columns,
        class_names=nodes.classes,
    )
    ranges = RowRanges(facts.nodes, parts)
    random = split == "random" or (split is None and not nodes.has_split)
    with new_folder(out) as place:
        scratch = place / "scratch"
        scratch.mkdir()
        _spread_edges(source, nodes, ranges, scratch)
        written = []
        for rank in range(parts):
            if progress is not None:
                progress("parts", rank, parts)
            rows = ranges.range_of(rank)
            arrays = _lists(scratch / f"{rank}.bin", *rows, nodes=facts.nodes)
            arrays |= _rows(source, nodes, *rows, seed=seed if random else None)
            written.append(write_row_part(place, ranges, rank, arrays))
            del arrays  # before the next part is read
            (scratch / f"{rank}.bin").unlink()
        scratch.rmdir()
        return write_manifest(place, facts, ranges, written)


# -- reading ---------------------------------------------------------------------------------------------------------


def _batches(folder: Path, name: str, columns: list[str] | None = None) -> Iterator[Any]:
    """Batches of the rows of a file, or of all files of a folder in the order of their names."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'graphforget[parquet]'") from error
    for path in _files(folder, name):
        try:
            # As dictionaries: a page of text that repeats one word would be millions of copies.
            words = _text_columns(pq.read_schema(path))
            with pq.ParquetFile(path, read_dictionary=words, buffer_size=BUFFER, pre_buffer=False) as file:
                present = set(file.schema_arrow.names)
                rows = max(1, min(ROWS, CELLS // max(1, len(columns or present))))
                missing = [column for column in columns or () if column not in present]
                if missing:
                    raise InputError(f"{path} has no column {missing[0]!r}")
                if name == "edges" and present & {"weight", "relation"}:
                    column = min(present & {"weight", "relation"})
                    rule = "a graph on ranks has no edge weights and no relations"
                    raise InputError(f"{path} has a column {column!r}, and {rule}")
                for batch in file.iter_batches(batch_size=rows, columns=columns):
                    _check_words(batch, path)
                    yield batch
        except InputError:
            raise
        except Exception as error:  # pyarrow has many errors for damaged files
            raise InputError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())[:200]}") from error


def _files(folder: Path, name: str) -> list[Path]:
    single, several = folder / f"{name}.parquet", folder / name
    files = [single] if single.is_file() else sorted(several.glob("*.parquet")) if several.is_dir() else []
    if not files:
        raise InputError(f"{folder} has no {name}.parquet, and no folder {name} with Parquet files")
    return files


def _needs_double(folder: Path, columns: tuple[str, ...]) -> bool:
    """Whether some file has attributes that float32 does not hold exactly."""
    import pyarrow.parquet as pq

    schemas = map(pq.read_schema, _files(folder, "nodes"))
    return any(field.name in columns and str(field.type) not in SINGLE for schema in schemas for field in schema)


def _text_columns(schema: Any) -> list[str]:
    return [name for name in WORDS if name in schema.names and type_name(schema.field(name).type) in TEXT]


def _check_words(batch: Any, path: Path) -> None:
    """Raises `InputError` for a word that is too long: a few bytes of a file can stand for a very long one."""
    import pyarrow.compute as pc

    for name in _text_columns(batch.schema):
        column = batch.column(name)
        longest = pc.max(pc.binary_length(getattr(column, "dictionary", column))).as_py() or 0
        if longest > LONGEST_WORD:
            message = f"{path} has a word of {longest:,} bytes in the column {name!r}"
            raise InputError(f"{message}, up to {LONGEST_WORD:,} are possible")


def _scan(folder: Path) -> _Nodes:
    """The first pass: how many nodes, which classes, which ids."""
    first = next(iter(_batches(folder, "nodes")), None)
    if first is None:
        raise InputError(f"{folder} has no node")
    names = list(first.schema.names)
    columns = tuple(name for name in names if name not in SPECIAL)
    if "label" not in names or not columns:
        raise InputError(f"the nodes of {folder} need a column 'label' and at least one attribute")
    checked_names(columns, len(columns), "column names")
    count, labels, ids = 0, set(), []
    for batch in _batches(folder, "nodes", [name for name in ("id", "label") if name in names]):
        count += batch.num_rows
        labels |= {label for label in labels_of(batch.column("label")) if label}
        more = ids_of(batch.column("id"), "id") if "id" in names else []
        if len(set(more)) < len(more):
            raise InputError(f"the ids in {folder} are not all different")
        ids += more
    if not count:
        raise InputError(f"{folder} has no node")
    if not labels:
        raise InputError(f"no node of {folder} has a label")
    if len(labels) < FEWEST_CLASSES:
        raise InputError(f"the labels of {folder} name {len(labels)} class, at least {FEWEST_CLASSES} are needed")
    known = np.array(ids) if "id" in names else None
    if known is not None and (np.unique(known).size != count or (known == b"").any()):
        raise InputError(f"the ids in {folder} are not all different, or one is empty")
    kind = "<f8" if _needs_double(folder, columns) else "<f4"
    return _Nodes(count, tuple(ordered_classes(labels)), columns, known, "split" in names, kind)


def _rows(folder: Path, nodes: _Nodes, first: int, last: int, *, seed: int | None) -> dict[str, np.ndarray]:
    """Attributes, targets, roles and names of the nodes with these numbers; with a seed, a random split."""
    n, at = last - first, 0
    attributes = np.empty((n, len(nodes.columns)), dtype=nodes.dtype)
    targets, roles = np.full(n, UNLABELLED, dtype="<i8"), np.zeros(n, dtype=np.uint8)
    class_of = {name: place for place, name in enumerate(nodes.classes)} | {"": UNLABELLED}
    wanted = ["label", *(["split"] if nodes.has_split else []), *nodes.columns]
    for batch in _batches(folder, "nodes", wanted):
        low, high = max(first - at, 0), min(last - at, batch.num_rows)
        if low < high:
            rows, some = slice(at + low - first, at + high - first), batch.slice(low, high - low)
            for place, name in enumerate(nodes.columns):
                attributes[rows, place] = numbers_of(some.column(name), name, nodes.dtype)
            targets[rows] = [class_of[label] for label in labels_of(some.column("label"))]
            if nodes.has_split and seed is None:
                roles[rows] = roles_of(some.column("split"))
        at += batch.num_rows
    labelled = targets != UNLABELLED
    if seed is not None:
        drawn = uniform(salted(node_hashes(torch.arange(first, last)), salt("test", seed))).numpy() < TEST_SHARE
        roles = np.where(labelled, np.where(drawn, TEST, TRAIN), 0).astype(np.uint8)
    elif not nodes.has_split:
        roles = np.where(labelled, TRAIN, 0).astype(np.uint8)
    if (roles[~labelled] != 0).any():
        raise InputError("a node without a label has a side of the split")
    arrays = {"attributes": attributes, "targets": targets, "roles": roles}
    if nodes.ids is not None:
        width = nodes.ids.dtype.itemsize
        arrays[SUBJECTS] = np.ascontiguousarray(nodes.ids[first:last]).view(np.uint8).reshape(n, width)
    return arrays


# -- edges -----------------------------------------------------------------------------------------------------------


def _spread_edges(folder: Path, nodes: _Nodes, ranges: RowRanges, scratch: Path) -> None:
    """Writes both directions of every edge into the file of the part of its receiver."""
    order = None if nodes.ids is None else nodes.ids.argsort()
    files = [(scratch / f"{rank}.bin").open("wb") for rank in range(ranges.parts)]
    try:
        for batch in _batches(folder, "edges", ["source", "target"]):
            ends = [_places(batch.column(name), name, nodes, order) for name in ("source", "target")]
            pairs = np.stack([np.concatenate(ends), np.concatenate(ends[::-1])], axis=1)  # receiver, sender
            owners = ranges.owners(pairs[:, 0])
            for rank, file in enumerate(files):
                pairs[owners == rank].astype("<i8").tofile(file)
    finally:
        for file in files:
            file.close()


def _places(column: Any, name: str, nodes: _Nodes, order: np.ndarray | None) -> np.ndarray:
    """The numbers of the nodes that a column of edges names."""
    if nodes.ids is None or order is None:
        whole = type_name(column.type) in WHOLE and not column.null_count
        numbers = column.to_numpy(zero_copy_only=False) if whole else np.array([-1])
        if numbers.size and (numbers.min() < 0 or numbers.max() >= nodes.count):
            raise InputError(f"an edge names a node that is no whole number from 0 to {nodes.count - 1}")
        result: np.ndarray = numbers.astype(np.int64)
        return result
    names = np.array(ids_of(column, name), dtype="S")
    place = np.minimum(np.searchsorted(nodes.ids, names, sorter=order), nodes.count - 1)
    found = order[place]
    if (nodes.ids[found] != names).any():
        raise InputError("an edge names an id that no node has")
    return found


def _lists(path: Path, first: int, last: int, *, nodes: int) -> dict[str, np.ndarray]:
    """The lists of neighbours of a part, each neighbour once, ascending."""
    pairs = np.fromfile(path, dtype="<i8").reshape(-1, 2)
    keys = np.unique((pairs[:, 0] - first) * nodes + pairs[:, 1])
    counts = np.bincount(keys // nodes, minlength=last - first)
    indptr = np.concatenate([[0], counts.cumsum()]).astype("<i8")
    indices = (keys % nodes).astype("<i4" if nodes < 2**31 else "<i8")
    return {"counts": counts.astype("<i4"), "indptr": indptr, "indices": indices}
