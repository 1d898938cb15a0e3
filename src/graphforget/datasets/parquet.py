"""A graph in Parquet files, split into parts without ever being in memory as a whole.

A folder with nodes.parquet and edges.parquet, or with folders of these names that hold several files. Nodes have the
columns `label` (a whole number or a word; nothing for a node without a class), `split` (train, val, test or nothing) if
there is one, `id` if nodes have subject ids, and attributes. A node's number is its place in the files. Edges have the
columns `source` and `target`: ids, or numbers if there are no ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphforget.datasets.sharded_folder import Manifest, new_folder, write_manifest, write_row_part
from graphforget.distributed.row_ranges import RowRanges
from graphforget.errors import InputError
from graphforget.graph.distributed_graph import GraphFacts
from graphforget.graph.hashing import node_hashes, salt, salted, uniform
from graphforget.graph.row_part import SUBJECTS, TEST, TRAIN, VALIDATION
from graphforget.graph.targets import UNLABELLED
from graphforget.progress import Progress
from graphforget.validation import is_number

SPECIAL = ("id", "label", "split")
ROLES = {"train": TRAIN, "val": VALIDATION, "test": TEST, "": 0, None: 0}
ROWS = 2**16  # of a batch
WORDS = ("id", "label", "split", "source", "target")  # columns that may hold text
LONGEST_WORD = 2**10  # bytes; ids are kept at the length of the longest
TEST_SHARE = 0.1
SINGLE = ("float", "halffloat", "int8", "int16", "uint8", "uint16", "bool")  # types that float32 holds exactly

ID_TYPES = (
    "string",
    "large_string",
    "string_view",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


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
            arrays = _rows(source, nodes, *ranges.range_of(rank), seed=seed if random else None)
            arrays |= _lists(scratch / f"{rank}.bin", *ranges.range_of(rank), nodes=facts.nodes)
            written.append(write_row_part(place, ranges, rank, arrays))
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
    single, several = folder / f"{name}.parquet", folder / name
    files = [single] if single.is_file() else sorted(several.glob("*.parquet")) if several.is_dir() else []
    if not files:
        raise InputError(f"{folder} has no {name}.parquet, and no folder {name} with Parquet files")
    for path in files:
        try:
            # As dictionaries: a page of text that repeats one word would be millions of copies.
            with pq.ParquetFile(path, read_dictionary=_text_columns(pq.read_schema(path))) as file:
                present = set(file.schema_arrow.names)
                missing = [column for column in columns or () if column not in present]
                if missing:
                    raise InputError(f"{path} has no column {missing[0]!r}")
                if name == "edges" and present & {"weight", "relation"}:
                    column = min(present & {"weight", "relation"})
                    rule = "a graph on ranks has no edge weights and no relations"
                    raise InputError(f"{path} has a column {column!r}, and {rule}")
                for batch in file.iter_batches(batch_size=ROWS, columns=columns):
                    _check_words(batch, path)
                    yield batch
        except InputError:
            raise
        except Exception as error:  # pyarrow has many errors for damaged files
            raise InputError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())[:200]}") from error


def _is_text(kind: Any) -> bool:
    return str(getattr(kind, "value_type", kind)) in ("string", "large_string", "string_view")  # or a dictionary of it


def _text_columns(schema: Any) -> list[str]:
    return [name for name in WORDS if name in schema.names and _is_text(schema.field(name).type)]


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
    count, labels, ids = 0, set(), []
    for batch in _batches(folder, "nodes", [name for name in ("id", "label") if name in names]):
        count += batch.num_rows
        labels |= {one for one in batch.column("label").unique().to_pylist() if one not in (None, "")}
        more = _ids(batch.column("id"), "id") if "id" in names else []
        if len(set(more)) < len(more):
            raise InputError(f"the ids in {folder} are not all different")
        ids += more
    if not labels:
        raise InputError(f"no node of {folder} has a label")
    ordered = sorted(labels, key=lambda one: (isinstance(one, str), one))
    known = np.array(ids) if "id" in names else None
    if known is not None and (np.unique(known).size != count or (known == b"").any()):
        raise InputError(f"the ids in {folder} are not all different, or one is empty")
    single = all(str(first.schema.field(name).type) in SINGLE for name in columns)
    return _Nodes(count, tuple(map(str, ordered)), columns, known, "split" in names, "<f4" if single else "<f8")


def _ids(column: Any, name: str) -> list[bytes]:
    """The ids in a column of text or whole numbers. A floating-point number has no one spelling, so it is none."""
    kind = str(getattr(column.type, "value_type", column.type))  # of a dictionary: that of its words
    if kind not in ID_TYPES:
        raise InputError(f"the column {name!r} has the type {kind}, ids are text or whole numbers")
    if column.null_count:
        raise InputError(f"the column {name!r} has a row without an id")
    return [str(one).encode() for one in column.to_pylist()]


def _rows(folder: Path, nodes: _Nodes, first: int, last: int, *, seed: int | None) -> dict[str, np.ndarray]:
    """Attributes, targets, roles and names of the nodes with these numbers; with a seed, a random split."""
    n, at = last - first, 0
    attributes = np.empty((n, len(nodes.columns)), dtype=nodes.dtype)
    targets, roles = np.full(n, UNLABELLED, dtype="<i8"), np.zeros(n, dtype=np.uint8)
    class_of = {name: place for place, name in enumerate(nodes.classes)}
    wanted = ["label", *(["split"] if nodes.has_split else []), *nodes.columns]
    for batch in _batches(folder, "nodes", wanted):
        low, high = max(first - at, 0), min(last - at, batch.num_rows)
        if low < high:
            rows, some = slice(at + low - first, at + high - first), batch.slice(low, high - low)
            for place, name in enumerate(nodes.columns):
                attributes[rows, place] = _numbers(some.column(name), name, nodes.dtype)
            labels = some.column("label").to_pylist()
            targets[rows] = [UNLABELLED if one in (None, "") else class_of[str(one)] for one in labels]
            if nodes.has_split and seed is None:
                roles[rows] = [_role(one) for one in some.column("split").to_pylist()]
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


def _numbers(column: Any, name: str, dtype: str) -> np.ndarray:
    try:
        values = column.to_numpy(zero_copy_only=False).astype(dtype)
    except (ValueError, TypeError) as error:
        raise InputError(f"the attribute {name!r} is not a column of numbers") from error
    if not np.isfinite(values).all():
        raise InputError(f"the attribute {name!r} has a value that is missing or not finite")
    result: np.ndarray = values
    return result


def _role(name: Any) -> int:
    if name not in ROLES:
        raise InputError(f"the split is {name!r}, it must be train, val, test or nothing")
    return ROLES[name]


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
        numbers = column.to_numpy(zero_copy_only=False)
        if numbers.dtype.kind not in "iu" or (numbers.size and (numbers.min() < 0 or numbers.max() >= nodes.count)):
            raise InputError(f"an edge names a node that is no whole number from 0 to {nodes.count - 1}")
        result: np.ndarray = numbers.astype(np.int64)
        return result
    names = np.array(_ids(column, name))
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
