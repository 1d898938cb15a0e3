"""The search for deleted data in a graph by the salted hashes of an annex.

It takes one hash a node for each kind of data that the annex names. If it names edges, it takes one hash an edge, or
one tag an edge in large graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphforget.certificates.edge_tags import edge_tags, node_keys
from graphforget.certificates.salted import framed, salted_digests
from graphforget.graph.edge_arrays import FORGOTTEN_WEIGHT
from graphforget.graph.targets import has_target
from graphforget.linalg.ranges import row_blocks
from graphforget.linalg.sparse import to_scipy
from graphforget.request.request import Request

if TYPE_CHECKING:
    from graphforget.certificates.annex import Annex
    from graphforget.graph.graph import Graph

MOST_HASHED = 5_000_000  # edges; in larger graphs the tags decide which are hashed
EDGES_AT_ONCE = 1 << 20
VALUES_AT_ONCE = 1 << 24


def find_deleted(annex: Annex, graph: Graph) -> str | None:
    """Which kind of data that `annex` names is in `graph`, in words that name nobody, or None."""
    names = node_names(graph)
    identities = [framed(name.encode()) for name in names]
    if has_node(annex, identities):
        return "a node that was to be forgotten"
    if annex.graphs and graph.graph_numbers is not None:
        of_graphs = (framed(str(graph.name_of_graph(number)).encode()) for number in graph.numbers_of_graphs.tolist())
        if not _as_bytes(annex.graphs).isdisjoint(salted_digests(annex.salt, "graph", of_graphs)):
            return "a graph that was to be forgotten"
    by_tags = graph.num_edges > MOST_HASHED
    if annex.edges and has_edge(annex, names, _edge_blocks(graph), directed=graph.directed, by_tags=by_tags):
        return "an edge that was to be forgotten"
    if annex.edge_weights and _has_weight(annex, graph):
        return "the weight of an edge that was to be forgotten"
    if annex.labels and has_label(annex, graph.y, identities):
        return "a label that was to be forgotten"
    return attributes_left(annex, identities, graph.num_columns, _rows_of(graph)) if annex.attributes else None


def has_node(annex: Annex, identities: Sequence[bytes]) -> bool:
    """Whether the annex names a node with one of these framed names."""
    if not annex.nodes:
        return False
    return not _as_bytes(annex.nodes).isdisjoint(salted_digests(annex.salt, "node", identities))


def without_readmitted(graph: Graph, later: Sequence[Annex]) -> Graph:
    """The graph without what was deleted once and came back for a reason, by the annexes of later updates."""
    lists = (annex.readmitted for annex in later if annex.released and annex.readmitted is not None)
    found = [request for hashed in lists if (request := hashed.found_in(graph)) is not None]
    return graph.without(Request.merge(found, graph)) if found else graph


def has_label(annex: Annex, targets: Tensor, identities: Sequence[bytes]) -> bool:
    """Whether a node whose label was to be forgotten has one. Targets and framed names are in the same order."""
    wanted = _as_bytes(annex.labels)
    labelled = has_target(targets).tolist()
    named = (identity for identity, has_label in zip(identities, labelled, strict=True) if has_label)
    return not wanted.isdisjoint(salted_digests(annex.salt, "label", named))


def node_names(graph: Graph, rows: Sequence[int] | None = None) -> Sequence[str]:
    """The permanent names of nodes: their subject ids, or their numbers if the graph has no subject ids."""
    if rows is not None:
        return [str(graph.name_of(row)) for row in rows]
    return list(map(str, graph.numbers.tolist())) if graph.subject_ids is None else graph.subject_ids


def edge_hashes(
    salt: bytes, graph: Graph, edges: Tensor, *, kind: str = "edge"
) -> tuple[frozenset[str], frozenset[str]]:
    """The hashes of edges (2 x k rows of their ends) and their tags."""
    rows, ends = edges.unique(return_inverse=True)
    names = node_names(graph, rows.tolist())
    identities = [framed(name.encode()) for name in names]
    hashes = salted_digests(salt, kind, _framed_pairs(names, identities, ends.T.tolist(), directed=graph.directed))
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


def has_edge(
    annex: Annex,
    names: Sequence[str],
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    *,
    directed: bool,
    by_tags: bool,
) -> bool:
    """Every edge is hashed, about a microsecond each. Of a large graph, those are whose tag is in the annex.

    An operator could write a false tag beside the true hash of an edge, and a search by tags would miss the edge.
    Annexes of an earlier format have no tags.

    Args:
        annex: The annex.
        names: The names of nodes.
        blocks: Senders and receivers of edges as places among the names, some at a time.
        directed: Whether the edges are directed.
        by_tags: Whether to search by tags.

    Returns:
        Whether one of the edges is among those that the annex names.
    """
    identities = [framed(name.encode()) for name in names]
    hashes = _as_bytes(annex.edges)
    tags = np.array(sorted(int(tag, 16) for tag in (annex.edge_tags if by_tags else ())), dtype=np.uint64)
    keys = node_keys(annex.salt, identities) if tags.size else None
    for senders, receivers in blocks:
        if keys is not None:
            tagged = np.isin(edge_tags(annex.salt, keys[senders], keys[receivers]), tags)
            senders, receivers = senders[tagged], receivers[tagged]
        pairs = zip(senders.tolist(), receivers.tolist(), strict=True)
        messages = _framed_pairs(names, identities, pairs, directed=directed)
        if not hashes.isdisjoint(salted_digests(annex.salt, "edge", messages)):
            return True
    return False


def _has_weight(annex: Annex, graph: Graph) -> bool:
    """Whether an edge whose weight was to be forgotten weighs something else than 1."""
    if graph.edge_weight is None:
        return False
    weighted = graph.edge_index[:, graph.edge_weight != FORGOTTEN_WEIGHT]
    hashes, _ = edge_hashes(annex.salt, graph, weighted, kind="edge weight")
    return not annex.edge_weights.isdisjoint(hashes)


def _edge_blocks(graph: Graph) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The senders and receivers of all edges, some at a time; an undirected edge once."""
    for first, last in row_blocks(graph.adjacency.indptr, EDGES_AT_ONCE):
        counts, senders = graph.adjacency.lists(np.arange(first, last))
        receivers = np.repeat(np.arange(first, last), counts)
        if not graph.directed:
            once = senders <= receivers
            senders, receivers = senders[once], receivers[once]
        yield senders, receivers


def attributes_left(
    annex: Annex, identities: Sequence[bytes], columns: int, rows_of: Callable[[np.ndarray], np.ndarray]
) -> str | None:
    """Whether an attribute that the annex names is not 0, in words.

    Args:
        annex: The annex.
        identities: The framed names of nodes.
        columns: The number of attributes.
        rows_of: Gives the attributes of nodes by their places among the names.

    Returns:
        What is left, or None.
    """
    wanted = {bytes.fromhex(digest): named for digest, named in annex.attributes.items()}
    present = map(wanted.get, salted_digests(annex.salt, "attributes", identities))
    named = [(row, listed) for row, listed in enumerate(present) if listed is not None]
    if any(listed != "all" and listed[-1] >= columns for _, listed in named):
        return "the attribute of a column that the graph does not have"
    step = max(1, VALUES_AT_ONCE // columns)
    for start in range(0, len(named), step):
        some = named[start : start + step]
        values = rows_of(np.array([row for row, _ in some], dtype=np.int64))
        for place, (_, listed) in enumerate(some):
            if (values[place] if listed == "all" else values[place, list(listed)]).any():
                return "an attribute value that was to be forgotten"
    return None


def _rows_of(graph: Graph) -> Callable[[np.ndarray], np.ndarray]:
    """A function that gives the attributes of some rows, dense."""
    if graph.x.layout != torch.sparse_csr:
        dense: np.ndarray = graph.x.numpy()
        return lambda rows: dense[rows]
    matrix = to_scipy(graph.x)
    return lambda rows: matrix[rows].toarray()


def _as_bytes(hashes: Iterable[str]) -> set[bytes]:
    return set(map(bytes.fromhex, hashes))
