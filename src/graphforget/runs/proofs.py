"""The trees of a run directory from which absence is shown, and proofs of absence from them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as save_bytes
from torch import Tensor

from graphforget.certificates.absence import AbsenceProof
from graphforget.certificates.audit_trees import AuditTrees, check_text
from graphforget.certificates.document import Certificate
from graphforget.certificates.issue import roots_of
from graphforget.certificates.slot_tree import SlotOpening, SlotTree
from graphforget.certificates.subject_tree import CELL_BITS, SubjectOpening, SubjectTree, height_for
from graphforget.errors import InputError, Mismatch, Refused
from graphforget.graph.digest import digest_tree
from graphforget.graph.graph import Graph
from graphforget.graph.record_tree import BITS, HASH, RecordTree
from graphforget.progress import Progress
from graphforget.runs.history import History, history_of
from graphforget.runs.layout import LIMITS, PROOFS, DamagedRun, open_run
from graphforget.runs.read import read_graph
from graphforget.runs.tensors import read_tensors
from graphforget.verification.absence import verify_absence
from graphforget.verification.verify import Check

OTHER_TREES = f"{PROOFS}: does not match the last certificate"


def prove_absence(run: str | Path, subject: str) -> AbsenceProof:
    """Proves to somebody without the graph that a subject is not in the retained graph of a run directory.

    Args:
        run: The run directory. It has answered a request.
        subject: The subject id; the node number where nodes have no subject ids.

    Returns:
        The proof, which `verify_absence` checks. It names nobody else; what several proofs together tell of others is
        in docs/certificates.md, "Proof of absence".

    Raises:
        Refused: The subject is in the graph.
        InputError: The run has no certificate from which absence can be shown, or there can be no such subject.
        Mismatch: The run does not fit its last certificate.
    """
    check_text(subject)
    with open_run(run) as place:
        history = history_of(place)
        trees, certificate = stored_trees(place, history, read_graph(place)), last_certificate(history)
        if trees is None or certificate is None:
            raise no_trees(run)
    return proof_of(subject, trees.opening(subject), certificate)


def no_trees(run: str | Path) -> InputError:
    """The error for a run whose last certificate was issued without trees."""
    return InputError(
        f"{run} has no certificate from which absence can be shown: 'graphforget unlearn {run} REQUEST "
        "--in-place' issues one with its next answer"
    )


def proof_of(subject: str, opening: SlotOpening | SubjectOpening | None, certificate: Certificate) -> AbsenceProof:
    """The checked proof with an opening. Raises `Refused` without one: the subject is in the graph."""
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


def stored_trees(place: Path, history: History, graph: Graph) -> AuditTrees | None:
    """The trees of a run directory with this graph; None if its last certificate was issued without them.

    Raises `Mismatch` unless they lead to the roots in the last certificate.
    """
    return trees_of(read_trees(place), history, graph)


def read_trees(place: Path) -> dict[str, Tensor]:
    """The content of the file with the trees, for `trees_of`; empty if there is no such file."""
    if not os.path.lexists(place / PROOFS):
        return {}
    try:
        return read_tensors(place / PROOFS, largest=LIMITS[PROOFS])[0]
    except InputError as error:
        raise DamagedRun(f"{place} is damaged: {error}") from error


def trees_of(tensors: dict[str, Tensor], history: History, graph: Graph) -> AuditTrees | None:
    """What `stored_trees` does, for a caller that has read the file.

    No hash is taken from the file: all are computed from what they stand for. So who can write the file, and has not
    the key, cannot make the next certificate state what the last one did not.
    """
    certificate = last_certificate(history)
    stated = {} if certificate is None else roots_of(certificate)
    trees = _made(dict(tensors), digest_tree(graph).tree) if tensors else None
    if (trees.roots if trees else {}) != stated:
        raise Mismatch(OTHER_TREES)
    return trees


def last_certificate(history: History) -> Certificate | None:
    """The certificate of the last release, if there is one."""
    last = history.ledger.last_release
    return None if last is None else history.ledger.certificates[last]


def check_stored_trees(stored: dict[str, Tensor], history: History, graph: Graph) -> Check | None:
    """Raises `Mismatch` unless the trees of the file hold the retained graph and nobody else; None without a file."""
    trees = trees_of(stored, history, graph)
    return None if trees is None else trees_check(trees.fits(graph), trees.subjects, graph)


def trees_check(fits: bool, subjects: SubjectTree | None, graph: Graph) -> Check:
    """The check of trees that fit the graph, or not."""
    if not fits:
        raise Mismatch("the trees from which absence is shown are not those of the retained graph")
    who = "nodes" if subjects is None else "nodes and their subject ids"
    return Check("proofs of absence", f"the certified trees hold the {graph.num_nodes:,} {who}, and nobody else")


def trees_bytes(trees: AuditTrees) -> bytes:
    """The content of the file with the trees: what their hashes are computed from, and no hash."""
    slots, subjects = trees.slots, trees.subjects
    arrays = {"slots.numbers": slots.tree.numbers, "slots.salts": slots.salts.array()}
    return arrays_bytes(arrays, key=slots.key, salt=slots.salt, subjects=subjects)


def arrays_bytes(arrays: dict[str, np.ndarray], *, key: bytes, salt: bytes, subjects: SubjectTree | None) -> bytes:
    """The content of the file: these arrays, the key and the salt of the slots, and the tree of subjects."""
    arrays = arrays | {"slots.key": _row(key), "slots.salt": _row(salt)}
    if subjects is not None:
        arrays |= {"subjects.positions": subjects.positions, "subjects.present": subjects.present}
        arrays |= {f"subjects.{name}": _row(getattr(subjects, name)) for name in ("seed", "key", "salt")}
    return save_bytes({name: torch.tensor(array) for name, array in arrays.items()})


def _made(tensors: dict[str, Tensor], records: RecordTree) -> AuditTrees:
    slots, subjects = _slots(tensors, records), taken_subjects(tensors)
    check_all_taken(tensors)
    if slots is None:
        raise Mismatch(OTHER_TREES)
    return AuditTrees(slots, subjects)


def _slots(tensors: dict[str, Tensor], records: RecordTree) -> SlotTree | None:
    numbers = _ascending(tensors, "slots.numbers")
    key, salt = taken_keys(tensors)
    return SlotTree.again(key, salt, numbers, _bytes(tensors, "slots.salts", len(numbers)), records)


def check_all_taken(tensors: dict[str, Tensor]) -> None:
    """Raises `DamagedRun` if the file has more than was taken out of it."""
    if tensors:
        raise DamagedRun(f"{PROOFS} has the tensor {next(iter(tensors))[:80]!r}, which it should not have")


def taken_keys(tensors: dict[str, Tensor]) -> tuple[bytes, bytes]:
    """Takes the key and the salt of the slots out of the file's tensors."""
    key, salt = (_bytes(tensors, f"slots.{name}", 1).tobytes() for name in ("key", "salt"))
    return key, salt


def taken_subjects(tensors: dict[str, Tensor]) -> SubjectTree | None:
    """Takes the tree of subjects out of the file's tensors; None if nodes have no subject ids."""
    if "subjects.seed" not in tensors:
        return None
    positions = _ascending(tensors, "subjects.positions")
    present = _taken(tensors, "subjects.present", torch.bool, positions.shape)
    seed, key, salt = (_bytes(tensors, f"subjects.{name}", 1).tobytes() for name in ("seed", "key", "salt"))
    if int(positions[-1]) >> (CELL_BITS + BITS * height_for(len(positions))):
        raise DamagedRun(f"{PROOFS} has positions that are too large for their number")
    return SubjectTree.made(seed, key, salt, positions, present)


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
