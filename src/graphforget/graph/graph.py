"""The graph a model is trained on: nodes, edges, attributes, labels, a split. Immutable."""
# Longer than 350 lines because everything that can be asked of a graph is a method, with its documentation.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph import collection, digest, growth, hetero, naming, pyg, surgery
from graphforget.graph.adjacency import Adjacency
from graphforget.graph.canonical import canonical_adjacency
from graphforget.graph.csv_folder import read_csv_folder
from graphforget.graph.edge_arrays import check_aligned, checked_edge_arrays
from graphforget.graph.lazy_fields import LazyFields
from graphforget.graph.split import hold_out, split
from graphforget.graph.targets import UNLABELLED, TargetKind, checked_targets, note_of_whole_values, target_kind
from graphforget.graph.validation import (
    checked_attributes,
    checked_classes,
    checked_names,
    checked_numbers,
    checked_split,
    is_symmetric,
    note_of_repeated_edges,
)
from graphforget.validation import is_number

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from graphforget.graph.overlay import Overlay, SlotChange
    from graphforget.graph.resolved import Resolvable, Resolved
    from graphforget.graph.row_change import RowChange


@dataclass(frozen=True, eq=False, repr=False)
class Graph(LazyFields):
    """A graph with attributes, labels and a split. Make one with `load`, `from_pyg`, `from_csv` or `create`.

    Rows are where a node lies in the tensors; numbers are its name. A removed node leaves no row behind, and the
    other nodes keep their numbers, so a request that names node 17 means the same node before and after any deletion.
    After an update of a graph with subject ids, a new node may have the number of a last node that is gone.
    """

    x: Tensor  # n x d attributes, sparse CSR or dense
    edge_index: Tensor  # 2 x E, messages flow from row 0 to row 1; sorted by (target, source), no duplicates
    y: Tensor  # n classes, n x L labels or n x T values (`target_kind`); -1 or NaN for a node without a target
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    num_classes: int  # or labels, or values: the number of outputs of a model
    directed: bool  # False: every edge is stored in both directions
    numbers: Tensor  # n stable node numbers, ascending
    subject_ids: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    name: str = "graph"
    digit_ids: bool = False  # some subject id was a number, so a whole number means a subject id, also later
    notes: tuple[str, ...] = ()  # what was dropped of the input; no part of the digest, gone after a deletion
    graph_numbers: Tensor | None = None  # of a collection: n, the stable number of the graph that each node is in
    graph_ids: tuple[str, ...] | None = None  # one name a graph, in ascending order of the graphs' numbers
    next_number: int = 0  # numbers below it were given to nodes, some of which are gone; no part of the digest
    edge_weight: Tensor | None = None  # E numbers over 0, aligned with `edge_index`; None: every edge weighs 1
    edge_relations: Tensor | None = None  # E masks, aligned with `edge_index`: bit r says that it is in relation r
    relation_names: tuple[str, ...] | None = None  # of the bits of `edge_relations`

    def __post_init__(self) -> None:
        check_aligned(self)

    # -- its edges and attributes, shared with other graphs ------------------------------------------------------

    @cached_property
    def overlay(self) -> Overlay | None:
        """The graph as what deletions left of a base; None if it is directed, sparse, weighted or a collection."""
        return surgery.overlay_of(self)

    @cached_property
    def adjacency(self) -> Adjacency:
        """For each row the rows that send to it."""
        overlay: Overlay | None = self.__dict__.get("overlay")
        if overlay is not None and overlay.slots is None:
            return overlay.adjacency
        return Adjacency.of_edges(self.edge_index, self.num_nodes)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every edge is there in both directions. Of an undirected graph that `create` made it is."""
        return is_symmetric(self.edge_index, self.num_nodes)

    @property
    def change(self) -> SlotChange | RowChange | None:
        """How the deletion that made this graph changed the overlay or the rows of the graph before it, if known."""
        change: SlotChange | RowChange | None = self.__dict__.get("_change")
        return change

    # -- making one ----------------------------------------------------------------------------------------------

    # Longer than 50 lines because of the documentation of its parameters.
    @classmethod
    def create(
        cls,
        *,
        x: Tensor | sp.spmatrix,
        edges: Tensor,
        y: Tensor | None,
        train_mask: Tensor | None = None,
        val_mask: Tensor | None = None,
        test_mask: Tensor | None = None,
        directed: bool = False,
        targets: TargetKind | None = None,
        num_classes: int | None = None,
        numbers: Tensor | None = None,
        subject_ids: Sequence[str] | None = None,
        column_names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        name: str = "graph",
        notes: Sequence[str] = (),
        graph_numbers: Tensor | None = None,
        graph_ids: Sequence[str] | None = None,
        sparse: bool | None = None,
        edge_weight: Tensor | None = None,
        edge_relations: Tensor | None = None,
        relation_names: Sequence[str] | None = None,
    ) -> Graph:
        """Checks its input and makes a graph of a copy of it.

        Args:
            x: n x d attributes, dense or sparse.
            edges: 2 x E rows of the nodes that the edges connect.
            y: What is to be predicted. n classes, -1 for a node without one; or n x L labels that are 0 or 1, with a
                row of -1 for a node without labels; or n or n x T floating-point numbers, NaN for a node without them.
            train_mask: The training nodes; by default every labelled node outside the other masks.
            val_mask: The validation nodes, none by default.
            test_mask: The test nodes, none by default.
            directed: Whether messages flow only from `edges[0]` to `edges[1]`, and not in both directions.
            targets: "classes", "labels" or "values", if the type and shape of `y` do not say which.
            num_classes: The number of classes; by default it follows from the labels and the class names.
            numbers: Stable node numbers in ascending order, 0 to n - 1 by default.
            subject_ids: A unique name for each node.
            column_names: A unique name for each attribute.
            class_names: A unique name for each class, label or value.
            name: The name of the graph.
            notes: What the caller dropped of its input; a note on repeated edges is added.
            graph_numbers: For a collection of graphs, the number of the graph that each node is in. The nodes of a
                graph have one label, that of the graph, and are on one side of the split.
            graph_ids: A unique name for each graph, in ascending order of the graph numbers.
            sparse: Whether dense attributes become sparse; by default if they are mostly zeros. This is a setting: it
                stays when data is deleted, because it decides the last digits of what is computed.
            edge_weight: A number over 0 for each column of `edges`. Columns for one edge must agree, also those of
                the two directions of an undirected edge.
            edge_relations: For each column of `edges` a mask of the relations that the edge is in: bit r for relation
                r. The masks of columns for one edge are joined.
            relation_names: A unique name for each relation.

        Raises:
            InputError: A part is malformed or does not fit the others.
        """
        x = checked_attributes(x, sparse=sparse)
        n = x.shape[0]
        y = torch.full((n,), UNLABELLED) if y is None else checked_targets(y, n, kind=targets)
        notes = (*notes, *(() if targets else note_of_whole_values(y)))
        classes = checked_classes(y, num_classes, class_names)
        train, val, test = checked_split(y, train_mask, val_mask, test_mask)
        subjects = checked_names(subject_ids, n, "subject ids")
        in_graph = collection.checked_graph_numbers(graph_numbers, n)
        listed = canonical_adjacency(edges, n, directed=directed)
        adjacency = Adjacency(listed.indptr.numpy(), listed.indices.numpy())
        graph = cls.lazy(
            {"edge_index": adjacency.edge_index},
            adjacency=adjacency,
            is_symmetric=not directed,
            x=x,
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
            notes=(*notes, *note_of_repeated_edges(listed.repeated)),
            graph_numbers=in_graph,
            graph_ids=collection.checked_graph_ids(graph_ids, in_graph),
            next_number=0,
            **checked_edge_arrays(
                edges, listed, weight=edge_weight, relations=edge_relations, relation_names=relation_names
            ),
        )
        collection.check_collection(graph)
        return graph

    @classmethod
    def from_pyg(
        cls,
        data: Data,
        *,
        name: str = "graph",
        directed: bool | None = None,
        targets: TargetKind | None = None,
        subject_ids: Sequence[str] | None = None,
        column_names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        num_classes: int | None = None,
        sparse: bool | None = None,
    ) -> Graph:
        """From a PyG `Data` with `x`, `edge_index`, `y` and, if it has them, masks, `node_numbers` and `edge_weight`.

        Without `directed` the graph is undirected if every edge is there both ways, with one weight. `targets`,
        `num_classes` and `sparse` are as in `create`: give "labels" if labels that are 0 or 1 come as floating-point
        numbers. Without `num_classes`, the number is `data.num_classes` if there is one.

        Example:
            >>> import torch
            >>> from torch_geometric.data import Data
            >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
            >>> graph = Graph.from_pyg(Data(x=torch.eye(3), edge_index=edge_index, y=torch.tensor([0, 1, 0])))
            >>> graph.num_nodes, graph.num_edges, graph.directed
            (3, 2, False)
        """
        names: Any = {"subject_ids": subject_ids, "column_names": column_names, "class_names": class_names}
        given: Any = {"name": name, "targets": targets, "sparse": sparse, **names}
        arguments = pyg.read_pyg(data, directed=directed)
        return cls.create(**given, **arguments | ({} if num_classes is None else {"num_classes": num_classes}))

    @classmethod
    def from_pyg_list(
        cls,
        graphs: Sequence[Data],
        *,
        name: str = "graphs",
        directed: bool | None = None,
        graph_ids: Sequence[str] | None = None,
        column_names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> Graph:
        """A collection from PyG `Data` with `edge_index`, one label `y` each and, if they have them, attributes `x`.

        Graph i of the list has number i, and its nodes follow one another. Graphs without `x` get one column of ones.
        """
        names: Any = {"column_names": column_names, "class_names": class_names}
        return cls.create(name=name, **names, **pyg.read_pyg_list(graphs, directed=directed, graph_ids=graph_ids))

    @classmethod
    def from_hetero(
        cls,
        data: HeteroData,
        *,
        target: str,
        name: str = "graph",
        directed: bool = False,
        targets: TargetKind | None = None,
        subject_ids: Mapping[str, Sequence[str]] | None = None,
        column_names: Mapping[str, Sequence[str]] | None = None,
        class_names: Sequence[str] | None = None,
        num_classes: int | None = None,
    ) -> Graph:
        """From a PyG `HeteroData`: the nodes of all types in one graph, and each edge type as a relation.

        Node 17 of type "author" has the subject id "author:17", and requests name it so. The columns of the types lie
        side by side, as "author:0"; a type without `x` has one column of ones, "author:present". An edge type is the
        relation "author:writes:paper". Messages flow both ways, and a reverse edge type (`rev_writes`, or the same name
        with the types exchanged) is part of the relation that it reverses.

        Args:
            data: The data. `x`, `y`, `edge_index`, `edge_weight` and boolean masks are read.
            target: The type whose nodes have labels and are predicted. Labels of other types are left out.
            name: The name of the graph.
            directed: Whether messages flow only as the edges point. Then every edge type is a relation of its own.
            targets: As in `create`.
            subject_ids: For some types the names of their nodes, instead of numbers: "author:ada".
            column_names: For some types the names of their columns, instead of numbers.
            class_names: As in `create`.
            num_classes: As in `create`.

        Raises:
            InputError: A part is malformed, there are more than 62 relations, or an edge has two weights.

        Example:
            >>> import torch
            >>> from torch_geometric.data import HeteroData
            >>> data = HeteroData()
            >>> data["paper"].x, data["paper"].y, data["author"].num_nodes = torch.eye(3), torch.tensor([0, 1, 0]), 2
            >>> data["author", "writes", "paper"].edge_index = torch.tensor([[0, 0, 1], [0, 1, 2]])
            >>> graph = Graph.from_hetero(data, target="paper")
            >>> graph.relation_names, graph.name_of(4), graph.column_names[-1]
            (('author:writes:paper',), 'author:1', 'author:present')
        """
        given: Any = {"name": name, "targets": targets, "class_names": class_names, "num_classes": num_classes}
        names: Any = {"subject_ids": subject_ids, "column_names": column_names}
        return cls.create(**given, **hetero.read_hetero(data, target, directed=directed, **names))

    @classmethod
    def from_csv(cls, folder: str | Path, *, directed: bool = False, class_names: Sequence[str] = ()) -> Graph:
        """From a folder with `nodes.csv` (id, label or target, attributes...) and `edges.csv` (source, target).

        `edges.csv` may have further columns, `weight` and `relation`. `class_names` are classes that exist although
        no node may be in one, such as those of a model; other classes in the file come after them.
        """
        arguments = read_csv_folder(Path(folder), directed=directed, class_names=class_names)
        try:
            return cls.create(directed=directed, **arguments)
        except InputError as error:
            raise InputError(f"{folder}: {error}") from error

    def to_pyg(self) -> Data:
        """As a PyG `Data`; `node_numbers` holds each row's stable number, `num_classes` how many classes there are."""
        return pyg.to_pyg(self)

    # -- what it holds -------------------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        return self.numbers.shape[0]

    @property
    def free_number(self) -> int:
        """The lowest number that no node has or had."""
        return max(self.next_number, int(self.numbers[-1]) + 1 if self.num_nodes else 0)

    @cached_property
    def num_columns(self) -> int:
        return self.x.shape[1]

    @cached_property
    def has_sparse_attributes(self) -> bool:
        return self.x.layout == torch.sparse_csr

    @cached_property
    def num_edges(self) -> int:
        """The number of edges; an undirected edge counts once."""
        overlay = self.overlay
        adjacency = self.adjacency if overlay is None else overlay.adjacency
        return adjacency.num_entries if self.directed else (adjacency.num_entries + int(adjacency.loops.sum())) // 2

    def has_edges(self, ends: Tensor) -> Tensor:
        """Whether there is an edge from `ends[0]` to `ends[1]`, rows both, for each column."""
        overlay = self.overlay
        source, target = ends.numpy()
        if overlay is None:
            return torch.from_numpy(self.adjacency.holds(target, source))
        return torch.from_numpy(overlay.adjacency.holds(overlay.slots_of(target), overlay.slots_of(source)))

    @property
    def target_kind(self) -> TargetKind:
        """What is predicted for a node: "classes" (one of several), "labels" (each on or off) or "values" (numbers)."""
        return target_kind(self.y)

    @cached_property
    def train_rows(self) -> Tensor:
        return self.train_mask.nonzero().flatten()

    @cached_property
    def numbers_of_graphs(self) -> Tensor:
        """The numbers of the graphs of a collection, ascending."""
        return collection.numbers_of_graphs(self)

    def numbers_by_name(self, graphs: Iterable[int | str]) -> list[int]:
        """The numbers of graphs of a collection, which are named as in a request."""
        return collection.graphs_by_name(self, graphs)

    def name_of_graph(self, number: int) -> int | str:
        """The name of a graph of a collection in a request: its id if it has one, otherwise its number."""
        return collection.name_of_graph(self, number)

    def nodes_of(self, graph: int | str) -> list[int | str]:
        """The names of a graph's nodes in a request, in their order: node numbers run over the whole collection."""
        return [self.name_of(row) for row in collection.rows_of_graphs(self, [graph]).tolist()]

    @cached_property
    def row_of_subject(self) -> dict[str, int]:
        """The row of each subject id."""
        return {subject: row for row, subject in enumerate(self.subject_ids or ())}

    def row(self, node: int | str) -> int:
        """The row of a node named by its number or its subject id.

        A string is a subject id if the graph has subject ids; otherwise it may spell a number. An integer is a node
        number, unless subject ids are numbers themselves: then it is a subject id, so that 5 and "5" mean the same.

        Raises:
            InputError: The node is not in the graph.
        """
        return naming.row(self, node)

    def name_of(self, row: int) -> int | str:
        """The name of this row's node in a request: its subject id if it has one, otherwise its number."""
        return int(self.numbers[row]) if self.subject_ids is None else self.subject_ids[row]

    def column(self, column: int | str) -> int:
        """The position of a column named by its position or its name, by the same rules as `row`.

        Raises:
            InputError: The column is not in the graph.
        """
        return naming.column(self, column)

    def __repr__(self) -> str:
        kind = "weighted " * (self.edge_weight is not None) + ("directed" if self.directed else "undirected")
        outputs = f"{self.num_classes} {self.target_kind}"
        graphs = "" if self.graph_numbers is None else f"{len(self.numbers_of_graphs)} graphs, "
        return (
            f"Graph({self.name!r}: {graphs}{self.num_nodes} nodes, {self.num_edges} {kind} edges, "
            f"{self.num_columns} columns, {outputs}, "
            f"{int(self.train_mask.sum())} train / {int(self.test_mask.sum())} test)"
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides what a request means: content, names, numbers, split.

        The same for any order of nodes and edges, and for sparse or dense attributes.
        """
        return digest.digest(self)

    def numbered_as(self, other: Graph) -> Graph:
        """The same graph with the node numbers that `other` has for the same subjects.

        Use it for records from another source, which have subject ids but not the node numbers of `other`.

        Raises:
            InputError: A subject is not in `other`.
        """
        return surgery.numbered_as(self, other)

    def next_state(self, new: Graph) -> Graph:
        """New records as the next state of this graph, for `update`.

        Nodes are matched by their subject ids, or by their numbers if there are no subject ids. Known nodes keep their
        numbers, and new ones get those after the highest that stays. Classes, columns and the way of storing
        attributes are those of this graph.

        Raises:
            InputError: The records are of another kind: other columns, another class, other targets.
        """
        return growth.next_state(self, new)

    def with_sides_of(self, graph: Graph) -> Graph:
        """The same records with the split of `graph`: known nodes keep their side, other labelled nodes train."""
        return growth.with_sides_of(self, graph)

    # -- other graphs made from it -------------------------------------------------------------------------------

    def without(self, request: Resolvable) -> Graph:
        """`G (-) dG`: the graph as if it had never held what `request` names (docs/maths.md, section 1)."""
        return surgery.without(self, request.resolve(self))

    def induced(self, keep: Tensor) -> Graph:
        """The nodes where `keep`, and the edges among them."""
        return surgery.induced(self, keep)

    def neighbourhood(self, rows: Tensor, *, hops: int) -> tuple[Graph, Tensor]:
        """The part of the graph that decides what `hops` rounds of messages bring to `rows`, and their rows in it.

        It holds every node within `hops + 1` steps, whichever way the edges point, and all edges among those: one
        step more than messages travel, so that the degrees that weigh them are those of the whole graph.
        """
        return surgery.neighbourhood(self, rows, hops=hops)

    def changed_attribute_rows(self, resolved: Resolved) -> Tensor:
        """Rows whose attributes really change: a value that is 0 already is not changed by setting it to 0."""
        return surgery.changed_attribute_rows(self, resolved)

    def count_named_values(self, resolved: Resolved) -> int:
        """How many attribute values are not 0 and will be."""
        return surgery.count_named_values(self, resolved)

    def split(self, *, seed: int = 0, test: float = 0.1) -> Graph:
        """Labelled nodes split at random into training and test nodes, 90/10 by default as in the paper.

        A keyed hash of its own number decides on which side a node is, so removing a node moves no other. The sizes
        are those of independent draws. Where these would leave a side without any node, as may happen in small
        graphs, the node with the lowest hash tests, or the one with the highest trains. Of a collection, graphs are
        drawn in this way, each with all its nodes.

        Raises:
            InputError: There are fewer than two labelled nodes, or the share is out of range.
        """
        return split(self, seed=seed, test=test)

    def hold_out(self, *, seed: int = 0, share: float = 0.1) -> Graph:
        """A share of the training nodes becomes validation nodes: to choose settings without looking at test nodes.

        Drawn as by `split`; with a share of 0 there are none.
        """
        return hold_out(self, seed=seed, share=share)
