"""A graph's digest: SHA-256 of everything that decides what a request means: content, names, numbers, split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphforget.graph.differences import kept_records
from graphforget.graph.edge_arrays import has_edge_arrays
from graphforget.graph.record_tree import HASH, RecordTree
from graphforget.graph.records import header, record_hashes
from graphforget.linalg.sparse import to_scipy

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph

DIGEST = "graphforget-graph-4"  # the algorithm of `digest`
DIGEST_OF_FORMAT_3 = "graphforget-graph-3"  # the algorithm in certificates of earlier versions
TREE = "digest_tree"  # the name of a cache on the graph
FOLLOWS = "digest_follows"  # and of a function that makes it from that of another graph


@dataclass(frozen=True, eq=False)
class GraphDigest:
    """A graph's digest with the tree of its records, from which the digest of a changed graph follows."""

    tree: RecordTree
    header: bytes

    @cached_property
    def hexdigest(self) -> str:
        """SHA-256 of the header and the root of the tree, in hex."""
        length = len(self.header).to_bytes(8, "little")
        return hashlib.sha256(DIGEST.encode() + length + self.header + self.tree.root).hexdigest()

    def updated(self, graph_after: Graph, changed_numbers: np.ndarray, gone_numbers: np.ndarray) -> GraphDigest:
        """The digest of a graph that differs at some nodes; the others cost nothing.

        Args:
            graph_after: The graph with the differences.
            changed_numbers: The numbers of nodes whose records may differ. A record holds a node's attributes, target,
                side of the split and in-neighbours.
            gone_numbers: The numbers of nodes that are no longer in the graph.

        Returns:
            The digest of `graph_after`.
        """
        gone = np.unique(np.asarray(gone_numbers, dtype=np.int64))
        changed = np.setdiff1d(np.asarray(changed_numbers, dtype=np.int64), gone)
        hashes = record_hashes(graph_after, np.searchsorted(graph_after.numbers.numpy(), changed))
        leaves = np.concatenate([hashes, np.zeros((len(gone), HASH), dtype=np.uint8)])
        return GraphDigest(self.tree.updated(np.concatenate([changed, gone]), leaves), header(graph_after))

    def of_next_state(self, graph_after: Graph, *, graph: Graph) -> GraphDigest:
        """The digest of the next state of `graph`, whose digest this is. Only records that differ are hashed."""
        kept, numbers = kept_records(graph, graph_after), graph_after.numbers.numpy()
        leaves = np.empty((graph_after.num_nodes, HASH), dtype=np.uint8)
        leaves[kept] = self.tree.leaves(numbers[kept])
        leaves[~kept] = record_hashes(graph_after, np.flatnonzero(~kept))
        return GraphDigest(RecordTree.of(numbers, leaves), header(graph_after))


def digest(graph: Graph) -> str:
    """The same for any order of nodes and edges, and for sparse or dense attributes."""
    return digest_tree(graph).hexdigest


def digest_tree(graph: Graph) -> GraphDigest:
    """The graph's digest with its tree. It is computed once a graph, where it can be from that of another one."""
    if TREE not in graph.__dict__:
        make = graph.__dict__.pop(FOLLOWS, _of_records)
        graph.__dict__[TREE] = make(graph)
    result: GraphDigest = graph.__dict__[TREE]
    return result


def _of_records(graph: Graph) -> GraphDigest:
    return GraphDigest(RecordTree.of(graph.numbers.numpy(), record_hashes(graph)), header(graph))


def follow(parent: Graph, graph_after: Graph, changed_numbers: np.ndarray, gone_numbers: np.ndarray) -> None:
    """Lets the digest of `graph_after` follow from that of the graph that it was made from, if that is known already.

    The arguments are as in `GraphDigest.updated`. Nothing is hashed before somebody asks for the digest.
    """
    tree = parent.__dict__.get(TREE)
    if tree is not None:
        graph_after.__dict__[FOLLOWS] = partial(
            tree.updated, changed_numbers=changed_numbers, gone_numbers=gone_numbers
        )


def follow_state(graph: Graph, graph_after: Graph) -> None:
    """Lets the digest of the next state of a graph follow from that of the graph, if that is known already."""
    tree = graph.__dict__.get(TREE)
    if tree is not None:
        graph_after.__dict__[FOLLOWS] = partial(tree.of_next_state, graph=graph)


def remember(graph: Graph, leaves: np.ndarray) -> None:
    """Takes these as the hashes of the graph's records, n x 32, so that its digest needs no hashing of records."""
    graph.__dict__[TREE] = GraphDigest(RecordTree.of(graph.numbers.numpy(), leaves), header(graph))


def digest_of_format_3(graph: Graph) -> str | None:
    """As earlier versions computed it: one hash over everything. None for a graph that they could not have."""
    return _sha256(graph, DIGEST_OF_FORMAT_3, graph.numbers.numpy().astype("<i8"), [graph.digit_ids])


def digest_of_format_2(graph: Graph) -> str | None:
    """As earlier versions computed it: without numbers where there are subject ids. None as in format 3."""
    return _sha256(graph, "graphforget-graph-2", None, [])


def _sha256(graph: Graph, name: str, numbers: np.ndarray | None, more: list[Any]) -> str | None:
    if has_edge_arrays(graph):
        return None  # no graph of an earlier version had them
    if graph.subject_ids is None:
        order = np.arange(graph.num_nodes)
        identities = graph.numbers.numpy().astype("<i8").tobytes()
    else:
        order = np.argsort(np.array(graph.subject_ids, dtype=object), kind="stable")
        identities = "\n".join(f"{len(s)}:{s}" for s in sorted(graph.subject_ids)).encode()
    rank = np.empty(graph.num_nodes, dtype=np.int64)
    rank[order] = np.arange(graph.num_nodes)
    edges = rank[graph.edge_index.numpy()]
    keys = edges[1] * graph.num_nodes + edges[0]
    if (keys[1:] <= keys[:-1]).any():
        keys.sort()
    sha = hashlib.sha256(name.encode())
    header = [
        graph.num_nodes,
        graph.num_columns,
        graph.num_classes,
        graph.directed,
        graph.column_names,
        graph.class_names,
        *more,
        *([] if graph.target_kind == "classes" else [graph.target_kind]),
        *([] if graph.graph_numbers is None else [("graphs", graph.graph_ids)]),
    ]
    columns = _attribute_parts(graph, order)
    masks = (m.numpy()[order] for m in (graph.train_mask, graph.val_mask, graph.test_mask))
    parts = [
        repr(header).encode(),
        identities,
        *([] if numbers is None or graph.subject_ids is None else [numbers[order]]),
        keys.astype("<i8"),
        graph.y.numpy()[order].astype("<f8" if graph.y.dtype.is_floating_point else "<i8"),
    ]
    graphs = [] if graph.graph_numbers is None else [graph.graph_numbers.numpy()[order].astype("<i8")]
    for part in (*parts, *columns, *masks, *graphs):
        content = part if isinstance(part, bytes) else np.ascontiguousarray(part).data.cast("B")
        sha.update(len(content).to_bytes(8, "little"))
        sha.update(content)
    return sha.hexdigest()


def _attribute_parts(graph: Graph, order: np.ndarray) -> tuple[np.ndarray, ...]:
    """The attributes as the arrays of a CSR matrix without zeros, rows in this order."""
    if graph.subject_ids is None and graph.x.layout == torch.sparse_csr:  # canonical already
        parts = (graph.x.crow_indices(), graph.x.col_indices(), graph.x.values())
        return tuple(part.numpy().astype(kind) for part, kind in zip(parts, ("<i8", "<i4", "<f8"), strict=True))
    x = to_scipy(graph.x).astype(np.float64)[order]
    x.eliminate_zeros()
    x.sort_indices()
    return x.indptr.astype("<i8"), x.indices.astype("<i4"), x.data.astype("<f8")
