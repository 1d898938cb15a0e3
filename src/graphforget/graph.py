"""The graph a model is trained on: nodes, edges, attributes, labels, a split. Immutable."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.checks import (
    UNLABELLED,
    as_whole_number,
    canonical_edges,
    check_split,
    checked_attributes,
    checked_edges,
    checked_labels,
    checked_mask,
    checked_names,
    checked_numbers,
    count_repeated_edges,
    is_digits,
    is_number,
    is_symmetric,
    whole_number,
)
from graphforget.errors import InputError
from graphforget.hashing import node_hashes, salt, salted, uniform
from graphforget.linalg.sparse import entry_rows, from_scipy, keep_entries, masked, to_scipy, without_rows

DIGEST = "graphforget-graph-3"  # the algorithm of `Graph.digest`

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from graphforget.request import Request, Resolved


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A graph with attributes, labels and a split. Make one with `load`, `from_pyg`, `from_csv` or `create`.

    Rows are where a node lies in the tensors; numbers are its name. A removed node leaves no row behind, and the
    other nodes keep their numbers, so a request that names node 17 means the same node before and after any deletion.
    """

    x: Tensor  # n x d attributes, sparse CSR or dense
    edge_index: Tensor  # 2 x E, messages flow from row 0 to row 1; sorted by (target, source), no duplicates
    y: Tensor  # n labels, UNLABELLED where unknown
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    num_classes: int
    directed: bool  # False: every edge is stored in both directions
    numbers: Tensor  # n stable node numbers, ascending
    subject_ids: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    name: str = "graph"
    digit_ids: bool = False  # some subject id was a number, so a whole number means a subject id, also later
    notes: tuple[str, ...] = ()  # what was dropped of the input; no part of the digest, gone after a deletion

    # -- making one ----------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        *,
        x: Tensor | sp.spmatrix,
        edges: Tensor,
        y: Tensor,
        train_mask: Tensor | None = None,
        val_mask: Tensor | None = None,
        test_mask: Tensor | None = None,
        directed: bool = False,
        num_classes: int | None = None,
        numbers: Tensor | None = None,
        subject_ids: Sequence[str] | None = None,
        column_names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        name: str = "graph",
        notes: Sequence[str] = (),
    ) -> Graph:
        """A checked graph. `edges` is 2 x E; unless `directed`, each edge counts in both directions. Copies its input.

        Every labelled node trains unless masks say otherwise. `numbers` are stable node numbers, 0 to n - 1 by default.
        `notes` say what the caller dropped of its input; repeated edges are counted here.
        """
        x = checked_attributes(x)
        n = x.shape[0]
        y = checked_labels(y, n)
        classes = int(y.max()) + 1 if n and num_classes is None else int(num_classes or 0)
        if class_names is not None:
            classes = max(classes, len(class_names))
        if classes < 2:
            raise InputError(f"the labels name {classes} class(es), at least 2 are needed")
        if int(y.max()) >= classes:
            raise InputError(f"label {int(y.max())} is out of range for {classes} classes")
        none = torch.zeros(n, dtype=torch.bool)
        val = checked_mask(none if val_mask is None else val_mask, n, "val_mask")
        test = checked_mask(none if test_mask is None else test_mask, n, "test_mask")
        rest = (y != UNLABELLED) & ~val & ~test
        train = checked_mask(rest if train_mask is None else train_mask, n, "train_mask")
        check_split(y, train, val, test)
        subjects = checked_names(subject_ids, n, "subject ids")
        repeated = count_repeated_edges(edges, n)
        if repeated:
            entries = "entry of the edge list was" if repeated == 1 else "entries of the edge list were"
            notes = (*notes, f"{repeated:,} repeated {entries} dropped, each edge counts once")
        return cls(
            x=x,
            edge_index=canonical_edges(edges, n, directed=directed),
            y=y,
            train_mask=train,
            val_mask=val,
            test_mask=test,
            num_classes=classes,
            directed=directed,
            numbers=torch.arange(n) if numbers is None else checked_numbers(numbers, n),
            subject_ids=subjects,
            column_names=checked_names(column_names, x.shape[1], "column names"),
            class_names=checked_names(class_names, classes, "class names"),
            name=name,
            digit_ids=any(map(is_number, subjects or ())),
            notes=tuple(notes),
        )

    @classmethod
    def from_pyg(
        cls,
        data: Data,
        *,
        name: str = "graph",
        directed: bool | None = None,
        subject_ids: Sequence[str] | None = None,
        column_names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> Graph:
        """From a PyG `Data` with `x`, `edge_index`, `y` and, if it has them, boolean masks and `node_numbers`.

        Undirected if every edge is there in both directions, unless `directed` says otherwise.
        """
        from torch_geometric.data import HeteroData

        if isinstance(data, HeteroData):
            raise InputError(
                "a HeteroData was given, and several types of nodes or edges are not supported: a homogeneous Data "
                "with x, edge_index and y is needed (data.to_homogeneous() may help)"
            )
        for needed in ("x", "edge_index", "y"):
            if getattr(data, needed, None) is None:
                raise InputError(f"the PyG data has no '{needed}', which a Graph needs")
        for unsupported in ("edge_weight", "edge_attr"):
            if getattr(data, unsupported, None) is not None:
                raise InputError(f"the PyG data has '{unsupported}', and only unweighted edges are supported")
        given: dict[str, Any] = {m: getattr(data, m, None) for m in ("train_mask", "val_mask", "test_mask")}
        given["numbers"] = getattr(data, "node_numbers", None)
        classes = getattr(data, "num_classes", None)  # a class may have lost its last node
        given["num_classes"] = classes if isinstance(classes, int) else None
        given |= {"subject_ids": subject_ids, "column_names": column_names, "class_names": class_names}
        if directed is None:
            n = checked_attributes(data.x).shape[0]
            directed = not is_symmetric(checked_edges(data.edge_index, n), n)
        return cls.create(x=data.x, edges=data.edge_index, y=data.y, directed=directed, name=name, **given)

    @classmethod
    def from_csv(cls, folder: str | Path, *, directed: bool = False) -> Graph:
        """From a folder with `nodes.csv` (id, label, attributes...) and `edges.csv` (source, target)."""
        from graphforget.datasets.files import read_csv_folder

        return read_csv_folder(Path(folder), directed=directed)

    def to_pyg(self) -> Data:
        """As a PyG `Data`; `node_numbers` holds each row's stable number, `num_classes` how many classes there are."""
        from torch_geometric.data import Data

        return Data(
            x=self.x.clone(),
            edge_index=self.edge_index.clone(),
            y=self.y.clone(),
            train_mask=self.train_mask.clone(),
            val_mask=self.val_mask.clone(),
            test_mask=self.test_mask.clone(),
            node_numbers=self.numbers.clone(),
            num_classes=self.num_classes,
        )

    # -- what it holds -------------------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_columns(self) -> int:
        return self.x.shape[1]

    @cached_property
    def num_edges(self) -> int:
        """Edges as people count them: an undirected edge once."""
        if self.directed:
            return self.edge_index.shape[1]
        source, target = self.edge_index
        return int((source <= target).sum())

    @cached_property
    def train_rows(self) -> Tensor:
        return self.train_mask.nonzero().flatten()

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {subject: row for row, subject in enumerate(self.subject_ids or ())}

    def _row_of_number(self, number: int) -> int | None:
        row = int(np.searchsorted(self.numbers.numpy(), number))
        return row if row < self.num_nodes and int(self.numbers[row]) == number else None

    def row(self, node: int | str) -> int:
        """The row of a node named by its number or its subject id.

        A string is a subject id if the graph has those, and may otherwise spell a number. A whole number is a node
        number, unless subject ids are numbers themselves: then it is one of them, lest 5 mean somebody other than "5".
        """
        name = node if isinstance(node, str) else as_whole_number(node)
        if self.subject_ids is None and isinstance(name, str) and is_digits(name):
            name = int(name)
        if name is None:
            raise InputError(f"node {node!r} is not in the graph")
        if isinstance(name, int) and not self.digit_ids:
            found = self._row_of_number(name)
        else:
            found = self._row_of.get(str(name))
        if found is None:
            raise InputError(f"node {name!r} is not in the graph")
        return found

    def name_of(self, row: int) -> int | str:
        """What a request calls the node of this row: its subject id if it has one, else its number."""
        return int(self.numbers[row]) if self.subject_ids is None else self.subject_ids[row]

    def column(self, column: int | str) -> int:
        """The position of a column named by its position or its name, by the same rules as `row`."""
        names = self.column_names
        name = column if isinstance(column, str) else as_whole_number(column)
        if name is None:
            raise InputError(f"column {column!r} is neither a whole number nor a name")
        if names is not None and (isinstance(name, str) or any(map(is_number, names))):
            if str(name) not in names:
                raise InputError(f"column {column!r} is not in the graph")
            return names.index(str(name))
        if isinstance(name, str) and not is_digits(name):
            raise InputError(f"column {column!r} is not in the graph, whose columns have no names")
        position = int(name)
        if not 0 <= position < self.num_columns:
            raise InputError(f"column {position} is out of range, the graph has columns 0 to {self.num_columns - 1}")
        return position

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        return (
            f"Graph({self.name!r}: {self.num_nodes} nodes, {self.num_edges} {kind} edges, {self.num_columns} columns, "
            f"{self.num_classes} classes, {int(self.train_mask.sum())} train / {int(self.test_mask.sum())} test)"
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides what a request means: content, names, numbers, split.

        The same for any order of nodes and edges, and for sparse or dense attributes.
        """
        return self._digest(DIGEST, self.numbers.numpy().astype("<i8"), [self.digit_ids])

    @property
    def digest_of_format_2(self) -> str:
        """As earlier versions computed it: without numbers where there are subject ids."""
        return self._digest("graphforget-graph-2", None, [])

    def _digest(self, name: str, numbers: np.ndarray | None, more: list[Any]) -> str:
        if self.subject_ids is None:
            order = np.arange(self.num_nodes)
            identities = self.numbers.numpy().astype("<i8").tobytes()
        else:
            order = np.argsort(np.array(self.subject_ids, dtype=object), kind="stable")
            identities = "\n".join(f"{len(s)}:{s}" for s in sorted(self.subject_ids)).encode()
        rank = np.empty(self.num_nodes, dtype=np.int64)
        rank[order] = np.arange(self.num_nodes)
        edges = rank[self.edge_index.numpy()]
        keys = edges[1] * self.num_nodes + edges[0]
        if (keys[1:] <= keys[:-1]).any():
            keys.sort()
        sha = hashlib.sha256(name.encode())
        header = [
            self.num_nodes,
            self.num_columns,
            self.num_classes,
            self.directed,
            self.column_names,
            self.class_names,
            *more,
        ]
        columns = self._attribute_parts(order)
        masks = (m.numpy()[order] for m in (self.train_mask, self.val_mask, self.test_mask))
        parts = [
            repr(header).encode(),
            identities,
            *([] if numbers is None or self.subject_ids is None else [numbers[order]]),
            keys.astype("<i8"),
            self.y.numpy()[order].astype("<i8"),
        ]
        for part in (*parts, *columns, *masks):
            content = part if isinstance(part, bytes) else np.ascontiguousarray(part).data.cast("B")
            sha.update(len(content).to_bytes(8, "little"))
            sha.update(content)
        return sha.hexdigest()

    def numbered_as(self, other: Graph) -> Graph:
        """The same graph with the node numbers that `other` has for the same subjects.

        For records of one's own, which know subjects and not the numbers that they were given here. A subject that
        `other` does not know is an `InputError`.
        """
        if self.subject_ids is None or other.subject_ids is None:
            return self
        if self.class_names != other.class_names and set(self.class_names or ()) == set(other.class_names or ()):
            return self._with_classes(other.class_names or ()).numbered_as(other)
        known = {subject: int(number) for subject, number in zip(other.subject_ids, other.numbers, strict=True)}
        unknown = [subject for subject in self.subject_ids if subject not in known]
        if unknown:
            raise InputError(f"subject {unknown[0]!r} is not in the other graph")
        numbers = torch.tensor([known[subject] for subject in self.subject_ids])
        if (numbers.diff() > 0).all():
            return dataclasses.replace(self, numbers=numbers, digit_ids=other.digit_ids)
        order = numbers.argsort()
        there = torch.empty_like(order)
        there[order] = torch.arange(order.numel())
        keys = (there[self.edge_index[1]] * self.num_nodes + there[self.edge_index[0]]).sort().values
        rows: dict[str, Any] = {
            name: getattr(self, name)[order] for name in ("y", "train_mask", "val_mask", "test_mask")
        }
        return dataclasses.replace(
            self,
            x=from_scipy(to_scipy(self.x)[order.numpy()]) if self.x.layout == torch.sparse_csr else self.x[order],
            edge_index=torch.stack([keys % self.num_nodes, keys // self.num_nodes]),
            numbers=numbers[order],
            subject_ids=tuple(self.subject_ids[row] for row in order.tolist()),
            digit_ids=other.digit_ids,
            **rows,
        )

    def _with_classes(self, names: tuple[str, ...]) -> Graph:
        """The same labels where the classes stand in another order."""
        place = torch.tensor([names.index(name) for name in self.class_names or ()])
        y = torch.where(self.y >= 0, place[self.y.clamp_min(0)], self.y)
        return dataclasses.replace(self, y=y, class_names=names)

    def _attribute_parts(self, order: np.ndarray) -> tuple[np.ndarray, ...]:
        """The attributes as the arrays of a CSR matrix without zeros, rows in this order."""
        if self.subject_ids is None and self.x.layout == torch.sparse_csr:  # canonical already
            parts = (self.x.crow_indices(), self.x.col_indices(), self.x.values())
            return tuple(part.numpy().astype(kind) for part, kind in zip(parts, ("<i8", "<i4", "<f8"), strict=True))
        x = to_scipy(self.x).astype(np.float64)[order]
        x.eliminate_zeros()
        x.sort_indices()
        return x.indptr.astype("<i8"), x.indices.astype("<i4"), x.data.astype("<f8")

    # -- other graphs made from it -------------------------------------------------------------------------------

    def without(self, request: Request) -> Graph:
        """`G (-) dG`: the graph as if it had never held what `request` names (docs/maths.md, section 1)."""
        what = request.resolve(self)
        keep = torch.ones(self.num_nodes, dtype=torch.bool)
        keep[what.node_rows] = False
        edges = ~what.edge_mask & self._among(keep)
        kept = self._rows(keep, self._blanked(what, keep))
        return dataclasses.replace(kept, edge_index=_renumbered(masked(self.edge_index, edges), keep))

    def induced(self, keep: Tensor) -> Graph:
        """The nodes where `keep`, and the edges among them."""
        edges = masked(self.edge_index, self._among(keep))
        return dataclasses.replace(self._rows(keep, _select(self.x, keep)), edge_index=_renumbered(edges, keep))

    def neighbourhood(self, rows: Tensor, *, hops: int) -> tuple[Graph, Tensor]:
        """The part of the graph that decides what `hops` rounds of messages bring to `rows`, and their rows in it.

        It holds every node within `hops + 1` steps, whichever way the edges point, and all edges among those: one
        step more than messages travel, so that the degrees that weigh them are those of the whole graph.
        """
        source, target = self.edge_index
        keep = torch.zeros(self.num_nodes, dtype=torch.bool)
        keep[rows] = True
        for _ in range(hops + 1):
            sends, receives = keep[source], keep[target]
            keep[source[receives]] = True
            keep[target[sends]] = True
        return self.induced(keep), _renumbered(rows, keep)

    def changed_attribute_rows(self, what: Resolved) -> Tensor:
        """Rows whose attributes really change: a value that is 0 already is not changed by setting it to 0."""
        if not what.names_attributes:
            return torch.zeros(0, dtype=torch.int64)
        if self.x.layout == torch.sparse_csr:
            changed = self._named_entries(what) & (self.x.values() != 0)
            return entry_rows(self.x)[changed].unique()
        whole = what.full_rows[(self.x[what.full_rows] != 0).any(dim=1)]
        single = what.partial_rows[self.x[what.partial_rows, what.partial_columns] != 0]
        return torch.cat([whole, single]).unique()

    def count_named_values(self, what: Resolved) -> int:
        """How many attribute values are not 0 and will be."""
        if self.x.layout == torch.sparse_csr:
            return int((self._named_entries(what) & (self.x.values() != 0)).sum())
        named = torch.zeros(self.x.shape, dtype=torch.bool)
        named[what.full_rows] = True
        named[what.partial_rows, what.partial_columns] = True
        return int((self.x[named] != 0).sum())

    def split(self, *, seed: int = 0, test: float = 0.1) -> Graph:
        """Labelled nodes split at random into training and test nodes, 90/10 by default as in the paper.

        A keyed hash of its own number decides on which side a node is, so removing a node moves no other. The sizes
        are those of independent draws. Where these would leave a side without any node, as may happen in small
        graphs, the node with the lowest hash tests, or the one with the highest trains.

        Raises:
            InputError: There are fewer than two labelled nodes, or the share is out of range.
        """
        if not 0 < test < 1:
            raise InputError(f"the test share is {test}, it must lie between 0 and 1")
        labelled = self.y != UNLABELLED
        test_mask = self._drawn(labelled, share=test, purpose="test", seed=seed)
        train_mask = labelled & ~test_mask
        none = torch.zeros_like(test_mask)
        if not train_mask.any():
            raise InputError(f"a test share of {test} leaves no training node")
        return dataclasses.replace(self, train_mask=train_mask, val_mask=none, test_mask=test_mask)

    def hold_out(self, *, seed: int = 0, share: float = 0.1) -> Graph:
        """A share of the training nodes becomes validation nodes: to choose settings without looking at test nodes.

        Drawn as by `split`; with a share of 0 there are none.
        """
        if not 0 <= share < 1:
            raise InputError(f"the validation share is {share}, it must lie between 0 and 1")
        val_mask = self._drawn(self.train_mask, share=share, purpose="validation", seed=seed)
        if torch.equal(val_mask, self.train_mask):
            raise InputError(f"a validation share of {share} leaves no training node")
        return dataclasses.replace(self, train_mask=self.train_mask & ~val_mask, val_mask=self.val_mask | val_mask)

    def _drawn(self, among: Tensor, *, share: float, purpose: str, seed: int) -> Tensor:
        """A mask of about this share of the nodes: if the share is not 0, at least one; all only of a single node."""
        key = salt(purpose, whole_number(seed, "the seed"))
        positions = uniform(salted(node_hashes(self.numbers), key))
        drawn = among & (positions < share)
        if share > 0 and among.any() and not drawn.any():
            drawn[torch.where(among, positions, 1.0).argmin()] = True
        elif int(among.sum()) > 1 and torch.equal(drawn, among):
            drawn[torch.where(among, positions, -1.0).argmax()] = False
        return drawn

    def _among(self, keep: Tensor) -> Tensor:
        """Which edges have both of their ends where `keep`."""
        ends = keep.numpy()[self.edge_index.numpy()]
        return torch.from_numpy(ends[0] & ends[1])

    def _rows(self, keep: Tensor, x: Tensor) -> Graph:
        """The kept rows with attributes `x`; the caller sets the edges."""
        subjects = self.subject_ids
        if subjects is not None:
            subjects = tuple(s for s, kept in zip(subjects, keep.tolist(), strict=True) if kept)
        names = ("y", "train_mask", "val_mask", "test_mask", "numbers")
        rows: dict[str, Any] = {name: masked(getattr(self, name), keep) for name in names}
        return dataclasses.replace(self, x=x, subject_ids=subjects, notes=(), **rows)  # notes would tell of a deletion

    def _blanked(self, what: Resolved, keep: Tensor) -> Tensor:
        """The attributes of the kept rows, with what the request names set to 0."""
        if self.x.layout == torch.sparse_csr:
            if not what.names_attributes:
                return without_rows(self.x, keep)
            return keep_entries(self.x, ~self._named_entries(what), keep)
        x = self.x.clone()
        x[what.full_rows] = 0
        x[what.partial_rows, what.partial_columns] = 0
        return x[keep]

    def _named_entries(self, what: Resolved) -> Tensor:
        """Which stored entries of sparse attributes the request names."""
        if not what.names_attributes:
            return torch.zeros(self.x.values().numel(), dtype=torch.bool)
        rows, d = entry_rows(self.x), self.num_columns
        whole = torch.zeros(self.num_nodes, dtype=torch.bool)
        whole[what.full_rows] = True
        named = whole[rows]
        if what.partial_rows.numel():
            named |= torch.isin(rows * d + self.x.col_indices(), what.partial_rows * d + what.partial_columns)
        return named


def _renumbered(rows: Tensor, keep: Tensor) -> Tensor:
    """Rows of a graph as rows of what is kept of it."""
    return torch.from_numpy((keep.numpy().cumsum() - 1)[rows.numpy()])


def _select(x: Tensor, keep: Tensor) -> Tensor:
    if x.layout != torch.sparse_csr:
        return x[keep]
    return without_rows(x, keep)
