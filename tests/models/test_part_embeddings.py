"""Embeddings on ranks, against those of one machine: any number of ranks gives the same bits."""

from __future__ import annotations

import dataclasses
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
from graphforget.graph.row_part import Deletion, RowPart
from graphforget.models.composite import made_by_seed
from graphforget.models.encoders import Encoders
from graphforget.models.part_embeddings import EncoderSet, embed_part, stacked_on_ranks
from graphforget.models.registry import build
from graphforget.models.stacked import Stacked
from thread_ranks import on_threads

NODES, COLUMNS, CLASSES = 100, 7, 3  # seven blocks
RANKS = (1, 2, 3, 4)
NETWORKS = ("gcn", "gat", "gin", "sage")


def random_graph() -> gf.Graph:
    """Hubs, nodes without neighbours, self-loops, rows of zeros."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 90, size=(2, 200))
    ends[1, :50] = rng.integers(0, 4, size=50)
    ends[:, 50:60] = ends[0, 50:60]
    x = rng.normal(size=(NODES, COLUMNS)).astype(np.float32)
    x[rng.random(NODES) < 0.1] = 0
    train = torch.from_numpy(rng.random(NODES) < 0.6)
    return gf.Graph.create(
        x=torch.from_numpy(x),
        edges=torch.from_numpy(ends),
        y=torch.from_numpy(rng.integers(0, CLASSES, NODES)),
        train_mask=train,
        test_mask=~train,
        num_classes=CLASSES,
    )


def stacked(network: str, **options: Any) -> Stacked:
    """A stacked model whose encoders have fresh weights that nobody trained; one part has none."""
    module = build(f"stacked-{network}", columns=COLUMNS, classes=CLASSES, parts=3, **options)
    assert isinstance(module, Stacked)
    encoders = tuple(made_by_seed(module.make, seed).double().eval() for seed in range(3))
    module.encoders = Encoders(encoders, (0.7, 0.0, 1.3))
    return module


def on_ranks(graph: gf.Graph, module: Stacked, number: int, folder: Path, rows_at: slice, gone: list[int]) -> Any:
    """The embeddings of some rows of every rank after a deletion of nodes, with what was sent."""
    shard(graph, folder / str(number), parts=number)
    ranges = RowRanges(NODES, number)
    given = EncoderSet.of(module)
    sent = EncoderSet.from_message(given.fields, given.tensors, columns=COLUMNS, classes=CLASSES)

    def work(group: Group) -> tuple[np.ndarray, np.ndarray, int]:
        files = open_part(part_folder(folder / str(number), group.rank))
        arrays = {name: np.array(files.map(name)) for name in files.files}
        part = RowPart(ranges, group.rank, arrays)
        none = np.zeros(0, dtype=np.int64)
        part.remove(Deletion(np.array(gone, dtype=np.int64), np.zeros((2, 0), dtype=np.int64), *[none] * 4), group)
        rows = np.flatnonzero(part.there)[rows_at]
        values = embed_part(part, sent, rows, group)
        return rows + part.start, values, group.traffic.sent["embeddings"]

    return on_threads(number, work)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("gone", [[], [1, 33, 64, 99]])
def test_embeddings_are_those_of_one_machine_for_any_number_of_ranks(
    network: str, gone: list[int], tmp_path: Path
) -> None:
    graph, module = random_graph(), stacked(network)
    retained = graph.without(gf.Request(nodes=gone)) if gone else graph
    expected = module.embedded(retained.x.double(), retained.edge_index).numpy()
    joined = []
    for number in RANKS:
        results = on_ranks(graph, module, number, tmp_path, slice(None), gone)
        numbers, values = (np.concatenate([result[place] for result in results]) for place in (0, 1))
        assert numbers.tolist() == retained.numbers.tolist()
        assert (sum(result[2] for result in results) > 0) == (number > 1)
        joined.append(values)
    assert np.abs(joined[0] - expected).max() <= 1e-13
    assert np.abs(expected).max() > 0.1
    width = module.width
    assert not joined[0][:, width : 2 * width].any()  # an encoder without a part
    for values in joined[1:]:
        assert np.array_equal(values, joined[0])


@pytest.mark.parametrize("network", NETWORKS)
def test_a_row_does_not_depend_on_which_rows_are_asked_for(network: str, tmp_path: Path) -> None:
    graph, module = random_graph(), stacked(network, scale_rows=False)
    every = on_ranks(graph, module, 2, tmp_path / "all", slice(None), [])
    some = on_ranks(graph, module, 2, tmp_path / "some", slice(None, None, 3), [])
    for (_, whole, _), (_, part, _) in zip(every, some, strict=True):
        assert np.array_equal(whole[::3], part)


def test_an_edge_between_ranks_counts(tmp_path: Path) -> None:
    """What is sent matters: without the attributes of other ranks the embeddings would be others."""
    graph, module = random_graph(), stacked("gcn")
    x = graph.x.clone()
    x[1] = x[1].flip(0)  # a hub on rank 0
    other = dataclasses.replace(graph, x=x)
    before, after = (
        on_ranks(one, module, 2, tmp_path / str(place), slice(None), []) for place, one in enumerate((graph, other))
    )
    assert not np.array_equal(before[1][1], after[1][1])


@pytest.mark.parametrize("options", [{"parts": ("a", "b")}, {"batch_size": 4}])
def test_ranks_refuse_given_parts_and_mini_batches(options: dict[str, Any]) -> None:
    module = build("stacked-gcn", columns=COLUMNS, classes=CLASSES, **options)
    with pytest.raises(gf.InputError, match="several ranks"):
        stacked_on_ranks(module)


def test_ranks_refuse_networks_of_a_user() -> None:
    def make_module(columns: int, classes: int) -> torch.nn.Module:
        from torch_geometric.nn import GraphSAGE

        return GraphSAGE(columns, 4, num_layers=2, out_channels=classes)

    module = gf.stacked(make_module, attribute_scale=1.0).build(columns=COLUMNS, classes=CLASSES)
    with pytest.raises(gf.InputError, match="several ranks"):
        stacked_on_ranks(module)
    assert stacked_on_ranks(build("sgc", columns=COLUMNS, classes=CLASSES)) is None
