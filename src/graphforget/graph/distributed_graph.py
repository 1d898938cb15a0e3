"""A graph whose rows lie on several ranks, as rank 0 sees it: what is true of the whole graph, and no row of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphforget.distributed.checkpoint import Checkpoint
from graphforget.distributed.group import Message
from graphforget.distributed.ranks import Ranks
from graphforget.distributed.row_ranges import RowRanges
from graphforget.errors import InputError
from graphforget.graph.digest import DIGEST
from graphforget.graph.graph import Graph
from graphforget.graph.record_tree import RecordTree
from graphforget.graph.records import encoded_header
from graphforget.graph.resolved import Resolvable, Resolved
from graphforget.graph.row_part import TEST, TRAIN, VALIDATION, Deletion
from graphforget.graph.targets import TargetKind
from graphforget.validation import as_whole_number, is_digits

MOST_SCORED = 50_000  # nodes
COUNTED = ("nodes", "edge_ends", "loops", "training", "validation", "test")
EMPTY_TARGETS = {"classes": (torch.int64, False), "labels": (torch.int8, True), "values": (torch.float64, True)}


@dataclass(frozen=True)
class GraphFacts:
    """What a graph holds beside its rows. It does not change when data is deleted."""

    nodes: int  # numbers that nodes have, or had
    num_columns: int
    num_classes: int
    targets: TargetKind
    name: str
    digit_ids: bool
    has_subjects: bool
    column_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    sparse_attributes: bool = False  # whether one machine keeps them sparse, which decides last digits of a training


def _fields_without_rows(facts: GraphFacts) -> dict[str, Any]:
    """The fields of a graph of which no row is in this process."""
    kind, wide = EMPTY_TARGETS[facts.targets]
    none = torch.zeros(0, dtype=torch.bool)
    return {
        "x": torch.zeros(0, facts.num_columns),
        "edge_index": torch.zeros(2, 0, dtype=torch.int64),
        "y": torch.zeros((0, facts.num_classes) if wide else (0,), dtype=kind),
        "train_mask": none,
        "val_mask": none,
        "test_mask": none,
        "num_classes": facts.num_classes,
        "directed": False,
        "is_symmetric": True,
        "overlay": None,
        "numbers": torch.zeros(0, dtype=torch.int64),
        "next_number": facts.nodes,
        "subject_ids": () if facts.has_subjects else None,
        "column_names": facts.column_names,
        "class_names": facts.class_names,
        "name": facts.name,
        "digit_ids": facts.digit_ids,
        "notes": (),
        "graph_numbers": None,
        "graph_ids": None,
        "edge_weight": None,
        "edge_relations": None,
        "relation_names": None,
        "has_sparse_attributes": False,
    }


def without_rows(facts: GraphFacts) -> Graph:
    """A graph with the columns and classes of these facts, and without any node: enough to build a model for it."""
    return Graph.lazy({}, **_fields_without_rows(facts))


@dataclass(frozen=True, eq=False, repr=False)
class DistributedGraph(Graph):
    """A graph on the ranks. Its tensors have no row, and its rows are node numbers. Make one with `of`."""

    facts: GraphFacts = field(kw_only=True)
    ranks: Ranks = field(kw_only=True)
    ranges: RowRanges = field(kw_only=True)
    counts: dict[str, int] = field(kw_only=True)  # by the names in `COUNTED`, over all ranks
    stored_digest: str = field(kw_only=True)
    checkpoint: Checkpoint | None = field(kw_only=True)  # of a minimisation on this graph
    place: int = field(kw_only=True)  # of this graph among those that the ranks have had in memory

    @classmethod
    def of(cls, facts: GraphFacts, ranks: Ranks, replies: list[Message]) -> DistributedGraph:
        """From what the ranks answer about their parts: counts, and hashes of subtrees of records."""
        return cls.lazy(
            {},
            **_fields_without_rows(facts),
            facts=facts,
            ranks=ranks,
            ranges=RowRanges(facts.nodes, ranks.group.size),
            counts={name: sum(reply.fields["counts"][name] for reply in replies) for name in COUNTED},
            stored_digest=joined_digest(
                facts,
                int(replies[0].fields["level"]),
                *([reply.array(name) for reply in replies] for name in ("prefixes", "hashes")),
            ),
            checkpoint=None,
            place=ranks.graphs,
            _known={},
        )

    def with_checkpoint(self, checkpoint: Checkpoint | None) -> DistributedGraph:
        """The same graph, with a place for the checkpoint of a minimisation."""
        same: dict[str, Any] = {"overlay": None, "is_symmetric": True, "has_sparse_attributes": False, "_known": {}}
        return DistributedGraph.lazy({}, like=self, checkpoint=checkpoint, **same)

    # -- what is true of the whole graph ---------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        return self.counts["nodes"]

    @property
    def num_edges(self) -> int:
        return (self.counts["edge_ends"] + self.counts["loops"]) // 2

    @property
    def num_columns(self) -> int:
        return self.facts.num_columns

    @property
    def num_training(self) -> int:
        return self.counts["training"]

    @property
    def target_kind(self) -> TargetKind:
        return self.facts.targets

    @property
    def digest(self) -> str:
        return self.stored_digest

    def __repr__(self) -> str:
        size = f"{self.num_nodes:,} nodes, {self.num_edges:,} edges"
        return f"DistributedGraph({self.name!r}, {size}, {self.ranges.parts} ranks)"

    def call(self, name: str, *given: Any, **more: Any) -> list[Message]:
        """What the ranks answer about this graph. Raises `RuntimeError` if another one has replaced it there."""
        if self.place != self.ranks.graphs:
            raise RuntimeError("the ranks have another graph in memory than the one that is asked about")
        return self.ranks.call(name, *given, **more)

    # -- names -----------------------------------------------------------------------------------------------------

    def look_up(self, names: Iterable[int | str]) -> None:
        """Asks the ranks for these nodes, all at once. `row` and `name_of` know them then."""
        keys = [self._key(name) for name in names]
        numbers = [key for key in keys if isinstance(key, int) and key < self.facts.nodes]
        subjects = [key for key in keys if isinstance(key, str)]
        replies = self.call(
            "find", {"subjects": subjects}, {"numbers": torch.tensor(numbers, dtype=torch.int64)}, purpose="request"
        )
        known: dict[int | str, int] = vars(self)["_known"]
        named: dict[int, str] = vars(self).setdefault("_names", {})
        for reply in replies:
            known.update(reply.fields["subjects"])
            known.update({number: number for number in reply.array("numbers").tolist()})
            named.update({int(number): name for number, name in reply.fields["names"]})

    def _key(self, node: int | str) -> int | str | None:
        """A number, or a subject id, by the rules of `Graph.row`."""
        name = node if isinstance(node, str) else as_whole_number(node)
        if self.subject_ids is None and isinstance(name, str) and is_digits(name):
            name = int(name)
        return str(name) if isinstance(name, int) and self.digit_ids else name

    def row(self, node: int | str) -> int:
        key = self._key(node)
        known: dict[int | str, int] = vars(self)["_known"]
        if key not in known:
            self.look_up([node])
        if key is None or key not in known:
            raise InputError(f"node {node!r} is not in the graph")
        return known[key]

    def name_of(self, row: int) -> int | str:
        if self.subject_ids is None:
            return row
        named: dict[int, str] = vars(self).setdefault("_names", {})
        if row not in named:
            self.look_up([row])
        return named[row]

    def has_edges(self, ends: Tensor) -> Tensor:
        replies = self.call("has edges", None, {"ends": ends}, purpose="request")
        return torch.stack([reply.tensors["present"] for reply in replies]).any(dim=0)

    def search(self, annex: dict[str, Any]) -> str | None:
        """Which kind of data that an annex names is on some rank, in words, or None."""
        replies = self.call("search", {"annex": annex, "num_edges": self.num_edges}, purpose="names")
        return next((reply.fields["found"] for reply in replies if reply.fields["found"]), None)

    # -- scores ----------------------------------------------------------------------------------------------------

    @property
    def scored_role(self) -> int | None:
        """The role of the nodes that are scored: test nodes, else validation or training nodes."""
        roles = {TEST: "test", VALIDATION: "validation", TRAIN: "training"}
        return next((role for role, name in roles.items() if self.counts[name]), None)

    def scored_outputs(
        self, theta: Tensor, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Outputs and targets of the scored nodes, at most `MOST_SCORED` of them by the hashes of their numbers.

        `fields` and `tensors` are what the ranks need of the model beside its weights.
        """
        replies = self.call("sample", {"role": self.scored_role, "most": MOST_SCORED}, purpose="score")
        hashes = torch.cat([reply.tensors["hashes"] for reply in replies]).sort().values
        if not hashes.numel():
            raise InputError("there is no node to score")
        last = int(hashes[:MOST_SCORED][-1])
        named = {"role": self.scored_role, "last": last, "classes": self.facts.num_classes, **fields}
        replies = self.call("outputs", named, {"theta": theta, **tensors}, purpose="score")
        return tuple(torch.cat([reply.tensors[name] for reply in replies]) for name in ("logits", "targets"))  # type: ignore[return-value]

    # -- deletions -------------------------------------------------------------------------------------------------

    def without(self, request: Resolvable) -> DistributedGraph:
        """The graph after a deletion. Every rank makes it in its memory, where it replaces the graph before."""
        resolved = request.resolve(self)
        deletion = Deletion(
            nodes=resolved.node_rows.numpy(),
            edges=resolved.edges.numpy(),
            full=resolved.full_rows.numpy(),
            partial=resolved.partial_rows.numpy(),
            columns=resolved.partial_columns.numpy(),
            labels=resolved.label_rows.numpy(),
        )
        given = {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in vars(deletion).items()}
        replies = self.call("remove", None, given, purpose="request")
        vars(self)["_named_values"] = sum(reply.fields["values"] for reply in replies)
        after = DistributedGraph.of(self.facts, self.ranks, replies).with_checkpoint(self.checkpoint)
        changed = {name: sum(reply.fields[name] for reply in replies) for name in ("removed", "affected")}
        vars(after)["_changed"] = changed
        return after

    @property
    def changed(self) -> dict[str, int]:
        """How many training nodes the deletion that made this graph removed, and how many more it may affect."""
        changed: dict[str, int] = vars(self).get("_changed", {"removed": 0, "affected": 0})
        return changed

    def count_named_values(self, resolved: Resolved) -> int:
        """How many attribute values were not 0 and are, after `without`."""
        return int(vars(self).get("_named_values", 0))


def joined_digest(facts: GraphFacts, level: int, prefixes: list[np.ndarray], hashes: list[np.ndarray]) -> str:
    """The digest of a graph from the subtrees of all its parts: the same as on one machine."""
    root = RecordTree.above(level, np.concatenate(prefixes), np.concatenate(hashes)).root
    content = encoded_header(
        columns=facts.num_columns,
        classes=facts.num_classes,
        directed=False,
        column_names=facts.column_names,
        class_names=facts.class_names,
        digit_ids=facts.digit_ids,
        subject_ids=facts.has_subjects,
        targets=facts.targets,
        collection=False,
        graph_ids=None,
    )
    return hashlib.sha256(DIGEST.encode() + len(content).to_bytes(8, "little") + content + root).hexdigest()
