"""Edges in canonical form: against the plain definition, from lists in any order, and within bounds of memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

import graphforget as gf
from cases import ENVIRONMENT
from graphforget.graph import canonical
from graphforget.graph.canonical import CanonicalEdges, canonical_adjacency, edge_list, receiver_blocks
from graphforget.graph.validation import canonical_edges, count_repeated_edges, is_symmetric

ORDERS = ("as drawn", "by receiver", "by sender")


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Random pairs with repetitions and self-loops, none, some or all of them both ways, in one of several orders."""
    n = draw(st.integers(1, 7))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    back = draw(st.sampled_from([0, len(pairs) // 2, len(pairs)]))
    pairs = pairs + [(v, u) for u, v in pairs[:back]]
    order = draw(st.sampled_from(ORDERS))
    if order != "as drawn":
        pairs.sort(key=lambda pair: pair if order == "by sender" else pair[::-1])
    dtype = draw(st.sampled_from([torch.int64, torch.int32, torch.uint8]))
    return torch.tensor(pairs, dtype=dtype).reshape(-1, 2).T, n


def pairs_of(edges: CanonicalEdges) -> list[tuple[int, int]]:
    """Receivers and senders, read from the CSR one by one."""
    starts, senders = edges.indptr.tolist(), edges.indices.tolist()
    ranges = [range(starts[row], starts[row + 1]) for row in range(len(starts) - 1)]
    return [(row, senders[place]) for row, places in enumerate(ranges) for place in places]


@pytest.mark.parametrize("block", [1, 3, canonical.BLOCK])
@given(case=edge_lists(), directed=st.sampled_from([True, False, None]))
@settings(max_examples=150, deadline=None)
def test_against_the_definition(block: int, case: tuple[Tensor, int], directed: bool | None) -> None:
    edges, n = case
    listed = [(int(v), int(u)) for u, v in edges.T]
    one_way = set(listed)
    symmetric = one_way == {(u, v) for v, u in one_way}
    expected = one_way if directed or (directed is None and not symmetric) else one_way | {(u, v) for v, u in one_way}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "BLOCK", block)
        result = canonical_adjacency(edges, n, directed=directed)
        assert torch.equal(
            edge_list(result.indptr, result.indices), torch.tensor(sorted(expected)).reshape(-1, 2).T.flip(0)
        )
    assert pairs_of(result) == sorted(expected)
    assert result.repeated == len(listed) - len(one_way)
    assert result.directed == (not symmetric if directed is None else directed)
    assert (result.indptr.dtype, result.indices.dtype) == (torch.int64, torch.int32)
    assert is_symmetric(edges, n) == symmetric
    assert count_repeated_edges(edges, n) == result.repeated


@pytest.mark.parametrize("order", ORDERS)
def test_a_symmetric_list_is_not_doubled(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The union of both directions is for lists that lack some."""
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 50, size=(400, 2)), axis=0)
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    arranged = {"as drawn": rng.permutation(pairs), "by sender": pairs, "by receiver": pairs[:, ::-1]}[order]
    monkeypatch.setattr(sp.csr_matrix, "__add__", None)
    result = canonical_adjacency(torch.from_numpy(arranged.T.copy()), 50, directed=False)
    assert np.array_equal(edge_list(result.indptr, result.indices), pairs[:, ::-1].T)


def test_a_sorted_list_is_not_sorted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted by receiver or by sender, with each edge once or in both directions."""
    edges = gf.synthetic(nodes=200, edges=900, columns=1, classes=2).edge_index
    once = edges[:, edges[0] < edges[1]]
    monkeypatch.setattr(canonical, "_from_unsorted", None)
    for listed, directed in ((edges, True), (edges.flip(0), True), (edges, None), (once, False), (once.flip(0), False)):
        result = canonical_adjacency(listed, 200, directed=directed)
        assert torch.equal(edge_list(result.indptr, result.indices), edges)
    with pytest.raises(TypeError):
        canonical_adjacency(edges[:, torch.randperm(edges.shape[1])], 200, directed=True)


@pytest.mark.parametrize("directed", [True, False])
def test_the_input_is_neither_changed_nor_shared(directed: bool) -> None:
    for dtype in (torch.int64, torch.int32):
        edges = torch.tensor([[0, 1, 2], [1, 2, 0]], dtype=dtype)
        before = edges.clone()
        result = canonical_adjacency(edges, 3, directed=directed)
        assert torch.equal(edges, before)
        kept = result.indices.clone()
        edges.zero_()
        assert torch.equal(result.indices, kept)


def test_canonical_edges_pass_unchanged() -> None:
    edges = canonical_adjacency(torch.tensor([[0, 0, 1], [1, 1, 0]]), 2, directed=None)
    assert canonical_adjacency(edges, 2, directed=False) is edges
    assert count_repeated_edges(edges, 2) == 1
    assert canonical_edges(edges, 2, directed=False).tolist() == [[1, 0], [0, 1]]


def test_receivers_come_in_blocks_that_join_without_gap() -> None:
    indptr = torch.tensor([0, 0, 5, 5, 6, 9, 9])
    for size in (1, 2, 4, 100):
        parts = list(receiver_blocks(indptr, size))
        assert [span[0] for span, _ in parts] == [0, *(span[1] for span, _ in parts[:-1])]
        assert np.concatenate([block for _, block in parts]).tolist() == [1] * 5 + [3] + [4] * 3
    assert list(receiver_blocks(torch.zeros(4, dtype=torch.int64), 2)) == []


@pytest.mark.parametrize("edges", [[[0, 3], [1, 0]], [[0, -1], [1, 0]]])
def test_nodes_out_of_range_are_refused(edges: list[list[int]]) -> None:
    for dtype in (torch.int64, torch.int32):
        with pytest.raises(gf.InputError, match=r"an edge names node (3|-1), the graph has nodes 0 to 2"):
            canonical_adjacency(torch.tensor(edges, dtype=dtype), 3, directed=True)


def test_pyg_data_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, plain = [], canonical._adjacency

    def counting(senders: np.ndarray, receivers: np.ndarray, n: int) -> tuple[Any, Any]:
        calls.append(n)
        return plain(senders, receivers, n)

    monkeypatch.setattr(canonical, "_adjacency", counting)
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = gf.Graph.from_pyg(Data(x=torch.eye(3), edge_index=edges, y=torch.tensor([0, 1, 0])))
    assert not graph.directed
    assert len(calls) == 1


MEASURE = """
import sys, torch
from torch_geometric.data import Data
import graphforget as gf

def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

small = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0, 1, 0]))
gf.Graph.from_pyg(small)
before, n, count = peak(), 200_000, 3_000_000
edges = torch.empty(2, 2 * count, dtype=torch.int64)
edges[:, :count] = torch.randint(n, (2, count))
edges[0, count:], edges[1, count:] = edges[1, :count], edges[0, :count]
data = Data(x=torch.randn(n, 100), edge_index=edges, y=torch.randint(5, (n,)))
graph = gf.Graph.from_pyg(data)
assert not graph.directed
size = sum(part.numel() * part.element_size() for part in (data.x, data.edge_index, data.y))
print((peak() - before) / size)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_reading_pyg_data_takes_two_and_a_half_times_their_memory() -> None:
    """The data themselves included, for edges in random order."""
    done = subprocess.run([sys.executable, "-c", MEASURE], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert 1 < float(done.stdout) < 2.5
