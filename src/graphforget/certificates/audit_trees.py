"""The two trees from which an auditor is shown, without the graph, that somebody is not in it.

Their roots stand in the certificate. The trees are the operator's: they hold salts and secret keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphforget.certificates.slot_tree import SLOTS, SlotOpening, SlotTree
from graphforget.certificates.subject_tree import SUBJECTS, SubjectOpening, SubjectTree
from graphforget.errors import InputError
from graphforget.graph.digest import digest_tree
from graphforget.graph.graph import Graph
from graphforget.privacy.salt import new_salt
from graphforget.progress import Progress
from graphforget.validation import is_digits

LARGEST_NUMBER = 2**63  # node numbers are smaller
ROOT_ALGORITHMS = {"slots": f"salted root of {SLOTS}", "subjects": f"keyed root of {SUBJECTS}"}  # by name of the digest


@dataclass(frozen=True, eq=False)
class AuditTrees:
    """The slots of all nodes, and the tree of their subjects if they have names."""

    slots: SlotTree
    subjects: SubjectTree | None

    @classmethod
    def of(cls, graph: Graph, *, progress: Progress | None = None) -> AuditTrees:
        """New trees for a graph, with new keys and salts."""
        names = graph.subject_ids
        subjects = None if names is None else SubjectTree.of(names, new_salt(), progress=progress)
        return cls(SlotTree.of(digest_tree(graph).tree, new_salt()), subjects)

    @property
    def roots(self) -> dict[str, str]:
        """The digests for the certificate."""
        subjects = {} if self.subjects is None else {"subjects": self.subjects.root.hex()}
        return {"slots": self.slots.root.hex()} | subjects

    def updated(self, before: Graph, after: Graph) -> AuditTrees:
        """The trees after a deletion or an update. Only what it changes is hashed again; the roots are always new.

        An update that brings nodes which the trees never held makes new trees. Raises `Mismatch` if somebody who goes
        was not in them.
        """
        if not np.isin(after.numbers.numpy(), self.slots.tree.numbers).all():
            return AuditTrees.of(after)
        if self.subjects is not None and not set(after.subject_ids or ()) <= set(before.subject_ids or ()):
            return AuditTrees.of(after)
        slots = self.slots.updated(digest_tree(before).tree, digest_tree(after).tree)
        if self.subjects is None:
            return AuditTrees(slots, None)
        gone = set(before.subject_ids or ()) - set(after.subject_ids or ())
        return AuditTrees(slots, self.subjects.without(sorted(gone)))

    def fits(self, graph: Graph) -> bool:
        """Whether the trees hold the nodes and subjects of this graph and no others. Everything is hashed again."""
        slots = self.slots.rebuilt(digest_tree(graph).tree)
        if slots is None or slots.root != self.slots.root or (self.subjects is None) != (graph.subject_ids is None):
            return False
        if self.subjects is None:
            return True
        subjects = self.subjects.rebuilt(graph.subject_ids or ())
        return subjects is not None and subjects.root == self.subjects.root

    def opening(self, subject: str) -> SlotOpening | SubjectOpening | None:
        """What shows that a subject is not there; None if they are. Without subject ids, a subject is a node number.

        Raises:
            InputError: The subject is no text in Unicode; or nodes have no subject ids here, and it is no node number.
        """
        check_text(subject)
        return self.slots.opening(node_number(subject)) if self.subjects is None else self.subjects.opening(subject)


def check_text(subject: str) -> None:
    """Raises `InputError` if a subject is no text, is blank, or holds half of a character, which no file can."""
    if not isinstance(subject, str) or not subject.strip():
        raise InputError(f"the subject is {subject!r}, a subject id or a node number as a text is needed")
    try:
        subject.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the subject is {subject[:80]!r}, which is no text in Unicode") from error


def node_number(subject: str) -> int:
    """The node number that a text spells, in the one form that there is. Raises `InputError` if it spells none."""
    if not is_digits(subject) or str(int(subject)) != subject or int(subject) >= LARGEST_NUMBER:
        message = f"the subject is {subject[:80]!r}, and the nodes of this graph have no subject ids"
        raise InputError(f"{message}: give a node number from 0")
    return int(subject)
