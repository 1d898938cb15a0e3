"""A part of a stacked model whose nodes lie on all ranks: the graph that one machine induces, number for number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphforget as gf
from graphforget.datasets.sharded_folder import shard
from graphforget.distributed.group import Group
from graphforget.distributed.part_files import open_part, part_folder
from graphforget.distributed.row_ranges import RowRanges
from graphforget.graph.gathered import induced_on
from graphforget.graph.reach import Reach
from graphforget.graph.row_part import Deletion, RowPart
from graphforget.training.training_input import input_digest, same_training_input
from thread_ranks import on_threads

NODES = 90
TARGETS: dict[str, torch.Tensor] = {
    "classes": torch.randint(0, 3, (NODES,), generator=torch.Generator().manual_seed(0)),
    "labels": torch.randint(0, 2, (NODES, 3), generator=torch.Generator().manual_seed(0)),
    "values": torch.randn(NODES, 2, generator=torch.Generator().manual_seed(0)),
}


def random_graph(kind: str = "classes", *, sparse: bool = False, dtype: Any = np.float32) -> gf.Graph:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, NODES, size=(2, 250))
    ends[:, :9] = ends[0, :9]  # self-loops
    x = rng.normal(size=(NODES, 5)).astype(dtype) * (rng.random((NODES, 5)) < 0.4)
    train = torch.from_numpy(rng.random(NODES) < 0.5)
    test = ~train & torch.from_numpy(rng.random(NODES) < 0.5)
    return gf.Graph.create(
        x=torch.from_numpy(x),
        edges=torch.from_numpy(ends),
        y=TARGETS[kind],
        train_mask=train,
        val_mask=~train & ~test,
        test_mask=test,
        num_classes=TARGETS[kind].shape[1] if TARGETS[kind].dim() > 1 else 3,
        sparse=sparse,
    )


def parts_on_ranks(graph: gf.Graph, folder: Path, *, ranks: int, gone: list[int], number: int) -> list[Any]:
    """The graph of the nodes whose number has this remainder modulo 3, as each rank gets it."""
    shard(graph, folder, parts=ranks)

    def work(group: Group) -> gf.Graph | None:
        files = open_part(part_folder(folder, group.rank))
        arrays = {name: np.array(files.map(name)) for name in files.files}
        part = RowPart(RowRanges(NODES, ranks), group.rank, arrays)
        none = np.zeros(0, dtype=np.int64)
        part.remove(Deletion(np.array(gone, dtype=np.int64), np.zeros((2, 0), dtype=np.int64), *[none] * 4), group)
        given: Any = {"classes": graph.num_classes, "sparse": graph.has_sparse_attributes}
        return induced_on(ranks - 1, part, lambda numbers: numbers % 3 == number, group, **given)

    return on_threads(ranks, work)


@pytest.mark.parametrize("kind", list(TARGETS))
@pytest.mark.parametrize(("ranks", "gone", "sparse"), [(1, [], False), (2, [4, 60], False), (3, [0, 4, 89], True)])
def test_it_is_the_induced_graph(kind: str, ranks: int, gone: list[int], sparse: bool, tmp_path: Path) -> None:
    graph = random_graph(kind, sparse=sparse, dtype=np.float64 if sparse else np.float32)
    retained = graph.without(gf.Request(nodes=gone)) if gone else graph
    expected = retained.induced(retained.numbers % 3 == 0)
    *others, got = parts_on_ranks(graph, tmp_path / "shards", ranks=ranks, gone=gone, number=0)
    assert others == [None] * (ranks - 1)
    assert got.num_edges == expected.num_edges > 10
    for reach in (Reach(2, degree_normalised=True), Reach(2), Reach(None)):
        assert same_training_input(got, expected, reach)
        assert input_digest(got, reach) == input_digest(expected, reach)
    for name in ("val_mask", "test_mask"):
        assert torch.equal(getattr(got, name), getattr(expected, name))


def test_a_part_may_have_no_node(tmp_path: Path) -> None:
    (got,) = parts_on_ranks(random_graph(), tmp_path / "shards", ranks=1, gone=[], number=5)
    assert (got.num_nodes, got.num_edges, got.num_columns) == (0, 0, 5)


@pytest.mark.parametrize("kind", ["nodes", "attributes", "labels"])
def test_a_digest_tells_what_training_reads(kind: str) -> None:
    graph, reach = random_graph(), Reach(2, degree_normalised=True)
    trains, others = (int(graph.numbers[mask][0]) for mask in (graph.train_mask, ~graph.train_mask))

    def without(node: int) -> gf.Graph:
        requests: dict[str, Any] = {"nodes": [node], "attributes": {node: "all"}, "labels": [node]}
        return graph.without(gf.Request(**{kind: requests[kind]}))

    for retained in (without(trains), without(others)):
        same = same_training_input(graph, retained, reach)
        assert (input_digest(graph, reach) == input_digest(retained, reach)) == same
    assert input_digest(graph, reach) != input_digest(without(trains), reach)


def test_labels_that_no_training_reads_are_not_in_a_digest() -> None:
    graph, reach = random_graph(), Reach(2, degree_normalised=True)
    named = graph.numbers[~graph.train_mask][:3].tolist()
    assert input_digest(graph, reach) == input_digest(graph.without(gf.Request(labels=named)), reach)
