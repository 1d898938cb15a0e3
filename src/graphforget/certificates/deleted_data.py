"""The search for deleted data in a graph by the salted hashes of an annex.

It takes one hash a node for each kind of data that the annex names. If it names edges, it takes one hash an edge, or
one tag an edge in large graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphforget.certificates.edge_tags import edge_tags, node_keys
from graphforget.certificates.salted import framed, salted_digests
from graphforget.graph.targets import has_target
from graphforget.linalg.ranges import row_blocks
from graphforget.linalg.sparse import to_scipy
from graphforget.request.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphforget.certificates.annex import Annex, Columns
    from graphforget.graph.graph import Graph

MOST_HASHED = 5_000_000  # edges; in larger graphs the tags decide which are hashed
EDGES_AT_ONCE = 1 << 20
VALUES_AT_ONCE = 1 << 24


def find_deleted(annex: Annex, graph: Graph) -> str | None:
    """Which kind of data that `annex` names is in `graph`, in words that name nobody, or None."""
    names = node_names(graph)
    identities = [framed(name.encode()) for name in names]
    if annex.nodes and not _as_bytes(annex.nodes).isdisjoint(salted_digests(annex.salt, "node", identities)):
        return "a node that was to be forgotten"
    if annex.graphs and graph.graph_numbers is not None:
        of_graphs = (framed(str(graph.name_of_graph(number)).encode()) for number in graph.numbers_of_graphs.tolist())
        if not _as_bytes(annex.graphs).isdisjoint(salted_digests(annex.salt, "graph", of_graphs)):
            return "a graph that was to be forgotten"
    if annex.edges and _has_edge(annex, graph, names, identities):
        return "an edge that was to be forgotten"
    if annex.labels and _has_label(annex, graph, identities):
        return "a label that was to be forgotten"
    return _attributes_left(annex.salt, annex.attributes, graph, identities) if annex.attributes else None


def without_readmitted(graph: Graph, later: Sequence[Annex]) -> Graph:
    """The graph without what was deleted once and came back for a reason, by the annexes of later updates."""
    lists = (annex.readmitted for annex in later if annex.released and annex.readmitted is not None)
    found = [request for hashed in lists if (request := hashed.found_in(graph)) is not None]
    return graph.without(Request.merge(found, graph)) if found else graph


def _has_label(annex: Annex, graph: Graph, identities: Sequence[bytes]) -> bool:
    """Whether a node whose label was to be forgotten has one."""
    wanted = _as_bytes(annex.labels)
    labelled = has_target(graph.y).tolist()
    named = (identity for identity, has_label in zip(identities, labelled, strict=True) if has_label)
    return not wanted.isdisjoint(salted_digests(annex.salt, "label", named))


def node_names(graph: Graph, rows: Sequence[int] | None = None) -> Sequence[str]:
    """The permanent names of nodes: their subject ids, or their numbers if the graph has no subject ids."""
    if graph.subject_ids is None:
        return list(map(str, (graph.numbers if rows is None else graph.numbers[rows]).tolist()))
    return graph.subject_ids if rows is None else [graph.subject_ids[row] for row in rows]


def edge_hashes(salt: bytes, graph: Graph, edges: Tensor) -> tuple[frozenset[str], frozenset[str]]:
    """The hashes of edges (2 x k rows of their ends) and their tags."""
    rows, ends = edges.unique(return_inverse=True)
    names = node_names(graph, rows.tolist())
    identities = [framed(name.encode()) for name in names]
    hashes = salted_digests(salt, "edge", _framed_pairs(names, identities, ends.T.tolist(), directed=graph.directed))
    tags = edge_tags(salt, *node_keys(salt, identities)[ends.numpy()])
    return frozenset(map(bytes.hex, hashes)), frozenset(f"{tag:016x}" for tag in tags.tolist())


def _framed_pairs(
    names: Sequence[str], identities: Sequence[bytes], pairs: Iterable[Sequence[int]], *, directed: bool
) -> Iterator[bytes]:
    """The framed names of both ends of each edge, in their order; those of an undirected edge in alphabetical order.

    Args:
        names: The names of nodes.
        identities: The same names, framed.
        pairs: The places of the ends of each edge among the names.
        directed: Whether the edges are directed.
    """
    if directed:
        return (identities[u] + identities[v] for u, v in pairs)
    ends = ((u, v) if names[u] <= names[v] else (v, u) for u, v in pairs)
    return (identities[u] + identities[v] for u, v in ends)


def _has_edge(annex: Annex, graph: Graph, names: Sequence[str], identities: Sequence[bytes]) -> bool:
    """Every edge is hashed, about a microsecond each. Of a large graph, those are whose tag is in the annex.

    An operator could write a false tag beside the true hash of an edge, and a search by tags would miss the edge.
    Annexes of an earlier format have no tags.
    """
    hashes = _as_bytes(annex.edges)
    trusted = annex.edge_tags if graph.num_edges > MOST_HASHED else ()
    tags = np.array(sorted(int(tag, 16) for tag in trusted), dtype=np.uint64)
    keys = node_keys(annex.salt, identities) if tags.size else None
    for senders, receivers in _edge_blocks(graph):
        if keys is not None:
            tagged = np.isin(edge_tags(annex.salt, keys[senders], keys[receivers]), tags)
            senders, receivers = senders[tagged], receivers[tagged]
        pairs = zip(senders.tolist(), receivers.tolist(), strict=True)
        messages = _framed_pairs(names, identities, pairs, directed=graph.directed)
        if not hashes.isdisjoint(salted_digests(annex.salt, "edge", messages)):
            return True
    return False


def _edge_blocks(graph: Graph) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The senders and receivers of all edges, some at a time; an undirected edge once."""
    for first, last in row_blocks(graph.adjacency.indptr, EDGES_AT_ONCE):
        counts, senders = graph.adjacency.lists(np.arange(first, last))
        receivers = np.repeat(np.arange(first, last), counts)
        if not graph.directed:
            once = senders <= receivers
            senders, receivers = senders[once], receivers[once]
        yield senders, receivers


def _attributes_left(
    salt: bytes, attributes: Mapping[str, Columns], graph: Graph, identities: Sequence[bytes]
) -> str | None:
    wanted = {bytes.fromhex(digest): columns for digest, columns in attributes.items()}
    present = map(wanted.get, salted_digests(salt, "attributes", identities))
    named = [(row, columns) for row, columns in enumerate(present) if columns is not None]
    single = [(row, columns) for row, columns in named if columns != "all"]
    if any(columns[-1] >= graph.num_columns for _, columns in single):
        return "the attribute of a column that the graph does not have"
    rows = np.repeat([row for row, _ in single], [len(columns) for _, columns in single]).astype(np.int64)
    places = np.fromiter(chain.from_iterable(columns for _, columns in single), dtype=np.int64, count=rows.size)
    full = np.array([row for row, columns in named if columns == "all"], dtype=np.int64)
    if _any_in_rows(graph.x, full) or _any_at(graph.x, rows, places):
        return "an attribute value that was to be forgotten"
    return None


def _any_in_rows(x: Tensor, rows: np.ndarray) -> bool:
    """Whether any value in these rows is not 0."""
    matrix: Any = to_scipy(x) if x.layout == torch.sparse_csr else x.numpy()
    step = max(1, VALUES_AT_ONCE // x.shape[1])
    parts = (matrix[rows[start : start + step]] for start in range(0, rows.size, step))
    return any((part if isinstance(part, np.ndarray) else part.data).any() for part in parts)


def _any_at(x: Tensor, rows: np.ndarray, columns: np.ndarray) -> bool:
    """Whether any of these single values is not 0."""
    if not rows.size:
        return False
    matrix: Any = to_scipy(x) if x.layout == torch.sparse_csr else x.numpy()
    return bool(np.asarray(matrix[rows, columns]).any())


def _as_bytes(hashes: Iterable[str]) -> set[bytes]:
    return set(map(bytes.fromhex, hashes))
