"""A graph on disk in parts, a range of node numbers each: manifest.json, and a folder of arrays for each part."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphforget.distributed.part_files import PartFiles, part_folder, write_part
from graphforget.distributed.row_ranges import RowRanges
from graphforget.errors import InputError, OtherVersion
from graphforget.files import error_reason, write_atomic
from graphforget.graph.distributed_graph import GraphFacts, joined_digest
from graphforget.graph.edge_arrays import has_edge_arrays
from graphforget.graph.graph import Graph
from graphforget.graph.record_tree import HASH
from graphforget.graph.records import in_neighbours
from graphforget.graph.row_part import BOUNDARY, GONE, SUBJECTS, RowPart
from graphforget.graph.surgery import attributes_of
from graphforget.graph.targets import UNLABELLED
from graphforget.json_files import read_json
from graphforget.linalg.sparse import to_scipy
from graphforget.progress import Progress
from graphforget.validation import read_fields

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """manifest.json: the graph beside its rows, its parts, and the digests of the graph and of each part."""

    facts: GraphFacts
    parts: int
    starts: tuple[int, ...]
    digest: str
    digests: tuple[str, ...]  # of each part's part.json
    format: int = FORMAT
    audience: str = "private"

    def to_bytes(self) -> bytes:
        return (json.dumps(dataclasses.asdict(self), indent=2) + "\n").encode()


def is_sharded(path: str | Path) -> bool:
    """Whether there is a graph in parts at this path."""
    return (Path(path) / MANIFEST).is_file()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a graph in parts.

    Raises:
        InputError: There is none, or it cannot be read.
        OtherVersion: Another version wrote it.
    """
    try:
        content = read_json(folder / MANIFEST, name=str(folder / MANIFEST))
    except FileNotFoundError as error:
        message = f"{folder} is no graph in parts: {folder / MANIFEST} is missing"
        raise InputError(f"{message}; 'graphforget shard' writes one") from error
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error_reason(error)}") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise OtherVersion(f"{folder} has format {str(found)[:80]}, this version reads format {FORMAT}")
    manifest = read_fields(Manifest, content, MANIFEST)
    ranges = RowRanges(manifest.facts.nodes, manifest.parts)
    if manifest.starts != ranges.starts or len(manifest.digests) != manifest.parts:
        raise InputError(f"{folder / MANIFEST} is damaged: its parts do not fit its nodes")
    return manifest


def shard(graph: Graph, folder: str | Path, *, parts: int, progress: Progress | None = None) -> Manifest:
    """Writes a graph as parts for `torchrun`.

    Args:
        graph: An undirected graph. Sparse attributes become dense.
        folder: A folder that does not exist.
        parts: The number of parts: as many as there will be ranks.
        progress: The callback to report to.

    Returns:
        The manifest.

    Raises:
        InputError: The graph is directed, a collection or has edge weights, or the folder exists.
    """
    if graph.directed or graph.graph_numbers is not None:
        kind = "directed" if graph.directed else "a collection of graphs"
        raise InputError(f"the graph is {kind}, and only an undirected graph can be split over ranks")
    if has_edge_arrays(graph):
        raise InputError(
            "the graph has edge weights or relations, and only a graph without them can be split over ranks"
        )
    numbers = graph.numbers.numpy()
    facts = GraphFacts(
        nodes=int(numbers[-1]) + 1,
        num_columns=graph.num_columns,
        num_classes=graph.num_classes,
        targets=graph.target_kind,
        name=graph.name,
        digit_ids=graph.digit_ids,
        has_subjects=graph.subject_ids is not None,
        column_names=graph.column_names,
        class_names=graph.class_names,
        sparse_attributes=graph.has_sparse_attributes,
    )
    ranges = RowRanges(facts.nodes, parts)
    with new_folder(folder) as place:
        written = []
        for rank in range(parts):
            if progress is not None:
                progress("parts", rank, parts)
            written.append(write_row_part(place, ranges, rank, _arrays(graph, facts, ranges, rank)))
        return write_manifest(place, facts, ranges, written)


class new_folder:
    """A folder that appears complete or not at all: a context, which gives the place to write to."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        if self._folder.exists():
            raise InputError(f"{folder} exists already, choose another place")
        self._staged = self._folder.with_name(f".{self._folder.name}.new")

    def __enter__(self) -> Path:
        shutil.rmtree(self._staged, ignore_errors=True)
        try:
            self._staged.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise InputError(f"{self._folder} cannot be written: {error_reason(error)}") from error
        return self._staged

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._staged.rename(self._folder)
        else:
            shutil.rmtree(self._staged, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class WrittenPart:
    """A part on disk, and the hashes of its subtrees of records."""

    files: PartFiles
    level: int
    prefixes: np.ndarray
    hashes: np.ndarray


def write_row_part(folder: Path, ranges: RowRanges, rank: int, arrays: Mapping[str, np.ndarray]) -> WrittenPart:
    """Writes a part with the hashes of its records and its boundary list."""
    first, last = ranges.range_of(rank)
    leaves = np.zeros((last - first, HASH), dtype=np.uint8)
    part = RowPart(ranges, rank, {**arrays, "leaves": leaves})
    rows = np.flatnonzero(part.there)
    leaves[rows] = part.record_hashes(rows)
    outside = np.unique(arrays["indices"])
    outside = outside[(outside < first) | (outside >= last)].astype("<i8")
    files = write_part(part_folder(folder, rank), {**arrays, "leaves": leaves, BOUNDARY: outside})
    return WrittenPart(files, *part.subtree_hashes())


def write_manifest(folder: Path, facts: GraphFacts, ranges: RowRanges, parts: list[WrittenPart]) -> Manifest:
    """Writes the manifest, with the digest that the graph has on one machine."""
    subtrees = ([getattr(one, name) for one in parts] for name in ("prefixes", "hashes"))
    digest = joined_digest(facts, parts[0].level, *subtrees)
    digests = tuple(one.files.digest for one in parts)
    manifest = Manifest(facts=facts, parts=ranges.parts, starts=ranges.starts, digest=digest, digests=digests)
    write_atomic(folder / MANIFEST, manifest.to_bytes(), mode=0o600)
    return manifest


def _arrays(graph: Graph, facts: GraphFacts, ranges: RowRanges, rank: int) -> dict[str, np.ndarray]:
    """The arrays of a part, a row a number; a number that no node has is that of a deleted one."""
    first, last = ranges.range_of(rank)
    numbers = graph.numbers.numpy()
    rows = np.arange(*np.searchsorted(numbers, [first, last]))
    places, n = numbers[rows] - first, last - first
    counts, senders = in_neighbours(graph, rows)
    arrays: dict[str, np.ndarray] = {"counts": np.zeros(n, dtype="<i4"), "roles": np.full(n, GONE, dtype=np.uint8)}
    arrays["counts"][places] = counts
    arrays["indptr"] = np.concatenate([[0], arrays["counts"].cumsum(dtype=np.int64)]).astype("<i8")
    arrays["indices"] = numbers[senders].astype("<i4" if facts.nodes < 2**31 else "<i8")
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    arrays["roles"][places] = sum((mask.numpy()[rows].astype(np.uint8) << bit) for bit, mask in enumerate(masks))
    y = graph.y.numpy()
    arrays["targets"] = np.full((n, *y.shape[1:]), np.nan if y.dtype.kind == "f" else UNLABELLED, dtype=y.dtype)
    arrays["targets"][places] = y[rows]
    values = to_scipy(graph.x)[rows].toarray() if graph.has_sparse_attributes else _dense(graph, rows)
    arrays["attributes"] = np.zeros((n, facts.num_columns), dtype=values.dtype)
    arrays["attributes"][places] = values
    if graph.subject_ids is not None:
        width = max(len(name.encode()) for name in graph.subject_ids)
        arrays[SUBJECTS] = np.zeros((n, width), dtype=np.uint8)
        arrays[SUBJECTS][places] = subject_bytes([graph.subject_ids[row] for row in rows.tolist()], width)
    return arrays


def _dense(graph: Graph, rows: np.ndarray) -> np.ndarray:
    import torch

    values: np.ndarray = attributes_of(graph, torch.from_numpy(rows)).numpy()
    return values


def subject_bytes(names: list[str], width: int) -> np.ndarray:
    """Names as rows of bytes of one width, filled with zeros."""
    if any("\0" in name for name in names):
        raise InputError("a subject id holds the character 0, which no part of a graph can hold")
    flat = np.array([name.encode() for name in names], dtype=f"S{width}")
    return flat.view(np.uint8).reshape(len(names), width)
