"""Proofs of absence of a run whose graph is in parts: ranks hash the slots of their rows, rank 0 has keys and roots."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from graphforget.certificates.audit_trees import node_number
from graphforget.certificates.issue import roots_of
from graphforget.certificates.keyed_hashes import KeyedHashes
from graphforget.certificates.slot_tree import SlotOpening, slot_root
from graphforget.certificates.subject_tree import SubjectOpening, SubjectTree, height_for
from graphforget.errors import Mismatch
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.graph.record_tree import BITS, RecordTree
from graphforget.privacy.salt import new_salt
from graphforget.runs.history import History
from graphforget.runs.proofs import (
    OTHER_TREES,
    arrays_bytes,
    check_all_taken,
    last_certificate,
    taken_keys,
    taken_subjects,
    trees_check,
)
from graphforget.verification.verify import Check

PURPOSE = "proofs"


@dataclass(frozen=True, eq=False)
class RankTrees:
    """The keys of the slots, whose salts the ranks have, and the tree of subjects if nodes have names."""

    key: bytes
    salt: bytes  # of the root, another one in every release
    subjects: SubjectTree | None

    @classmethod
    def of(cls, graph: DistributedGraph) -> RankTrees:
        """New keys for a graph."""
        return cls(new_salt(), new_salt(), _subjects(graph) if graph.facts.has_subjects else None)

    def next(self, gone: list[str]) -> RankTrees:
        """Those of the next release, after these subjects went."""
        subjects = None if self.subjects is None else self.subjects.without(gone)
        return dataclasses.replace(self, salt=new_salt(), subjects=subjects)

    def roots(self, graph: DistributedGraph) -> dict[str, str]:
        """The digests for the certificate. Every rank hashes its slots."""
        subjects = {} if self.subjects is None else {"subjects": self.subjects.root.hex()}
        return {"slots": slot_root(self.salt, self._upper(graph).root).hex()} | subjects

    def _upper(self, graph: DistributedGraph) -> RecordTree:
        replies = graph.call("slots", {"key": self.key.hex()}, purpose=PURPOSE)
        prefixes, hashes = (np.concatenate([one.array(name) for one in replies]) for name in ("prefixes", "hashes"))
        return RecordTree.above(int(replies[0].fields["level"]), prefixes, hashes, empty=KeyedHashes(self.key))

    def opening(self, graph: DistributedGraph, subject: str) -> SlotOpening | SubjectOpening | None:
        """What shows that a subject is not there; None if they are. Without subject ids, a subject is a number."""
        if self.subjects is not None:
            return self.subjects.opening(subject)
        number, upper = node_number(subject), self._upper(graph)
        reached = upper.lowest_level(number)
        split = next(level for level, prefixes in enumerate(upper.prefixes) if prefixes.size)
        level, path = reached, upper.path(number, level=max(reached, split))
        if reached < split:  # the lower end is in a rank's subtree
            replies = graph.call("slot path", {"key": self.key.hex(), "number": number}, purpose=PURPOSE)
            lower = next(reply.fields for reply in replies if "present" in reply.fields)
            if lower["present"]:
                return None
            level, path = int(lower["level"]), (*map(bytes.fromhex, lower["path"]), *path)
        seed = KeyedHashes(self.key).seed(level, number >> (BITS * level))
        return SlotOpening(self.salt, seed, path)

    def fits(self, graph: DistributedGraph) -> bool:
        """Whether the tree of subjects holds those of this graph and no others. Their positions are computed anew."""
        if (self.subjects is None) == graph.facts.has_subjects:
            return False
        if self.subjects is None:
            return True
        places = _positions(graph, self.subjects.seed, self.subjects.tree.height)
        return np.array_equal(places, self.subjects.positions[self.subjects.present])

    def to_bytes(self) -> bytes:
        """The content of the file with the trees."""
        return arrays_bytes({}, key=self.key, salt=self.salt, subjects=self.subjects)


class RankCommit:
    """The trees of a run while it answers requests. Without stored ones, they start with the retained graph."""

    def __init__(self, stored: RankTrees | None, gone: list[str]) -> None:
        self._trees, self._gone = stored, gone

    def commit(self, retained: Graph) -> dict[str, str]:
        """Updates the trees to the retained graph, and gives their roots for the certificate."""
        assert isinstance(retained, DistributedGraph)
        self._trees = RankTrees.of(retained) if self._trees is None else self._trees.next(self._gone)
        return self._trees.roots(retained)

    def to_bytes(self) -> bytes:
        """The content of the file with the trees. They have been committed to."""
        assert self._trees is not None
        return self._trees.to_bytes()


def rank_trees_of(tensors: dict[str, Tensor], history: History, graph: DistributedGraph) -> RankTrees | None:
    """The trees of a run whose file has these tensors; None if its last certificate was issued without them.

    Raises `Mismatch` unless they lead to the roots in the last certificate. All hashes are computed.
    """
    certificate = last_certificate(history)
    stated, left = {} if certificate is None else roots_of(certificate), dict(tensors)
    trees = None
    if tensors:
        key, salt = taken_keys(left)
        trees = RankTrees(key, salt, taken_subjects(left))
        check_all_taken(left)
    if (trees.roots(graph) if trees else {}) != stated:
        raise Mismatch(OTHER_TREES)
    return trees


def check_rank_trees(stored: dict[str, Tensor], history: History, graph: DistributedGraph) -> Check | None:
    """Raises `Mismatch` unless the trees hold the retained graph and nobody else; None without trees."""
    trees = rank_trees_of(stored, history, graph)
    return None if trees is None else trees_check(trees.fits(graph), trees.subjects, graph)


def _subjects(graph: DistributedGraph) -> SubjectTree:
    """The tree of all subjects. Each rank computes the positions of its own."""
    while True:
        seed = new_salt()
        places = _positions(graph, seed, height_for(graph.num_nodes))
        if np.unique(places).size == places.size:  # otherwise two share a position
            return SubjectTree.made(seed, new_salt(), new_salt(), places, np.ones(places.size, dtype=bool))


def _positions(graph: DistributedGraph, seed: bytes, height: int) -> np.ndarray:
    replies = graph.call("positions", {"seed": seed.hex(), "height": height}, purpose=PURPOSE)
    return np.sort(np.concatenate([reply.array("positions") for reply in replies]))
