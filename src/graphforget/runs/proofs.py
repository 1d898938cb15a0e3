"""The trees of a run directory from which absence is shown, and proofs of absence from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as save_bytes
from torch import Tensor

from graphforget.certificates.absence import AbsenceProof
from graphforget.certificates.audit_trees import AuditTrees
from graphforget.certificates.document import Certificate
from graphforget.certificates.issue import roots_of
from graphforget.certificates.keyed_hashes import KeyedHashes
from graphforget.certificates.slot_tree import SlotTree
from graphforget.certificates.subject_tree import CELL_BITS, HIGHEST, SubjectTree
from graphforget.errors import InputError, Mismatch, Refused
from graphforget.graph.graph import Graph
from graphforget.graph.record_tree import BITS, HASH, HEIGHT, RecordTree
from graphforget.linalg.versioned import VersionedRows
from graphforget.progress import Progress
from graphforget.runs.history import History, history_of
from graphforget.runs.layout import LIMITS, PROOFS, DamagedRun, checksum, open_run
from graphforget.runs.run_file import read_run_file
from graphforget.runs.tensors import read_tensors
from graphforget.verification.absence import verify_absence
from graphforget.verification.verify import Check

LEVEL = ".level."  # before the level, in the names of hashes


def prove_absence(run: str | Path, subject: str) -> AbsenceProof:
    """Proves to somebody without the graph that a subject is not in the retained graph of a run directory.

    Args:
        run: The run directory. It has answered a request.
        subject: The subject id; the node number where nodes have no subject ids.

    Returns:
        The proof, which `verify_absence` checks. It tells nothing of anybody else.

    Raises:
        Refused: The subject is in the graph.
        InputError: The run has no certificate from which absence can be shown, or there can be no such subject.
        Mismatch: The run does not fit its last certificate.
    """
    with open_run(run) as place:
        sums = read_run_file(place).sha256
        history = history_of(place)
        trees, certificate = stored_trees(place, history, sums), _last_certificate(history)
        if trees is None or certificate is None:
            raise InputError(
                f"{run} has no certificate from which absence can be shown: 'graphforget unlearn {run} REQUEST "
                "--in-place' issues one with its next answer"
            )
    try:
        subject.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the subject is {subject[:80]!r}, which is no text in Unicode") from error
    opening = trees.opening(subject)
    if opening is None:
        raise Refused(f"{subject[:80]!r} is in the graph, so their absence cannot be shown")
    proof = AbsenceProof(subject, opening, certificate)
    verify_absence(proof, certificate=certificate)
    return proof


class RunTrees:
    """The trees of a run directory while it answers a request. Without stored ones, they start with the graph."""

    def __init__(self, graph: Graph, stored: AuditTrees | None, progress: Progress | None) -> None:
        self._graph, self._trees, self._progress = graph, stored, progress

    def commit(self, retained: Graph) -> dict[str, str]:
        """Updates the trees to the retained graph, and gives their roots for the certificate."""
        trees = self._trees or AuditTrees.of(self._graph, progress=self._progress)
        self._trees, self._graph = trees.updated(self._graph, retained), retained
        return self._trees.roots

    def to_bytes(self) -> bytes:
        """The content of the file with the trees. They have been committed to."""
        assert self._trees is not None
        return trees_bytes(self._trees)


def stored_trees(place: Path, history: History, sums: dict[str, Any] | None = None) -> AuditTrees | None:
    """The trees of a run directory; None if its last certificate was issued without them.

    Raises `Mismatch` unless they are those of the last certificate, and `DamagedRun` if they are not of the checksum
    in `sums`, for a caller that has not checked them yet.
    """
    certificate = _last_certificate(history)
    stated = {} if certificate is None else roots_of(certificate)
    trees = _read_trees(place / PROOFS, sums) if os.path.lexists(place / PROOFS) else None
    if (trees.roots if trees else {}) != stated:
        raise Mismatch(f"{PROOFS}: does not match the last certificate")
    return trees


def _last_certificate(history: History) -> Certificate | None:
    last = history.ledger.last_release
    return None if last is None else history.ledger.certificates[last]


def check_trees(trees: AuditTrees, graph: Graph) -> Check:
    """Raises `Mismatch` unless the trees hold the retained graph and nobody else."""
    if not trees.fits(graph):
        raise Mismatch("the trees from which absence is shown are not those of the retained graph")
    who = "nodes" if trees.subjects is None else "nodes and their subject ids"
    return Check("proofs of absence", f"the certified trees hold the {graph.num_nodes:,} {who}, and nobody else")


def trees_bytes(trees: AuditTrees) -> bytes:
    """The content of the file with the trees."""
    slots, subjects = trees.slots, trees.subjects
    arrays = {"slots.numbers": slots.tree.numbers, "slots.salts": slots.salts.array(), "slots.key": _row(slots.key)}
    arrays |= _levels("slots", slots.tree)
    if subjects is not None:
        arrays |= {"subjects.positions": subjects.positions, "subjects.present": subjects.present}
        arrays |= {"subjects.seed": _row(subjects.seed), "subjects.key": _row(subjects.key)}
        arrays |= _levels("subjects", subjects.tree)
    return save_bytes({name: torch.tensor(array) for name, array in arrays.items()})


def _read_trees(path: Path, sums: dict[str, Any] | None) -> AuditTrees:
    try:
        tensors, content = read_tensors(path, largest=LIMITS[PROOFS])
        if sums is not None and sums.get(PROOFS) != checksum(content):
            raise DamagedRun(f"{PROOFS} is not the file that was written")
        slots, subjects = _slots(tensors), _subjects(tensors)
        if tensors:
            raise DamagedRun(f"{PROOFS} has the tensor {next(iter(tensors))[:80]!r}, which it should not have")
    except InputError as error:
        raise DamagedRun(f"{path.parent} is damaged: {error}") from error
    return AuditTrees(slots, subjects)


def _slots(tensors: dict[str, Tensor]) -> SlotTree:
    numbers = _ascending(tensors, "slots.numbers")
    key, salts = _bytes(tensors, "slots.key", 1).tobytes(), _bytes(tensors, "slots.salts", len(numbers))
    return SlotTree(key, VersionedRows(salts), _tree(tensors, "slots", numbers, HEIGHT, key))


def _subjects(tensors: dict[str, Tensor]) -> SubjectTree | None:
    if "subjects.seed" not in tensors:
        return None
    positions = _ascending(tensors, "subjects.positions")
    present = _taken(tensors, "subjects.present", torch.bool, positions.shape)
    seed, key = (_bytes(tensors, f"subjects.{name}", 1).tobytes() for name in ("seed", "key"))
    height = sum(name.startswith(f"subjects{LEVEL}") for name in tensors) - 1
    if not 1 <= height <= HIGHEST or int(positions[-1]) >> (CELL_BITS + BITS * height):
        raise DamagedRun(f"{PROOFS} has positions that do not fit its levels")
    tree = _tree(tensors, "subjects", np.unique(positions >> CELL_BITS), height, key)
    return SubjectTree(seed, key, positions, present, tree)


def _tree(tensors: dict[str, Tensor], name: str, numbers: np.ndarray, height: int, key: bytes) -> RecordTree:
    prefixes = [numbers]
    for _ in range(height):
        prefixes.append(np.unique(prefixes[-1] >> BITS))
    hashes = [_bytes(tensors, f"{name}{LEVEL}{level}", len(part)) for level, part in enumerate(prefixes)]
    return RecordTree(tuple(prefixes), tuple(map(VersionedRows, hashes)), KeyedHashes(key))


def _levels(name: str, tree: RecordTree) -> dict[str, np.ndarray]:
    return {f"{name}{LEVEL}{level}": rows.array() for level, rows in enumerate(tree.hashes)}


def _row(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=np.uint8)[None]


def _ascending(tensors: dict[str, Tensor], name: str) -> np.ndarray:
    tensor = tensors.get(name, torch.zeros(0))
    values = _taken(tensors, name, torch.int64, (tensor.numel(),))
    if not len(values) or values[0] < 0 or (values[1:] <= values[:-1]).any():
        raise DamagedRun(f"{PROOFS} has {name} that are not ascending")
    return values


def _bytes(tensors: dict[str, Tensor], name: str, rows: int) -> np.ndarray:
    return _taken(tensors, name, torch.uint8, (rows, HASH))


def _taken(tensors: dict[str, Tensor], name: str, kind: torch.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Takes a tensor out of the file's, as an array that can be written to."""
    tensor = tensors.pop(name, None)
    if tensor is None or tensor.dtype != kind or tuple(tensor.shape) != tuple(shape):
        raise DamagedRun(f"{PROOFS} lacks {name}, or has it in another shape")
    array: np.ndarray = tensor.numpy().copy()
    return array
