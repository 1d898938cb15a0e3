"""The generator of graphs of any size."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

import graphforget as gf

generator = sys.modules[gf.synthetic.__module__]  # `graphforget.datasets.synthetic` may also name the function

SIZE: dict[str, Any] = {"nodes": 3000, "edges": 20_000, "columns": 16, "classes": 5}


def test_sizes_are_those_asked_for() -> None:
    graph = gf.synthetic(**SIZE)
    assert (graph.num_nodes, graph.num_edges, graph.num_columns, graph.num_classes) == (3000, 20_000, 16, 5)
    source, target = graph.edge_index
    assert not graph.directed
    assert not (source == target).any()


def test_the_seed_decides() -> None:
    first, again, other = (gf.synthetic(**SIZE, seed=seed) for seed in (1, 1, 2))
    assert first.digest == again.digest != other.digest


def test_degrees_have_a_long_tail() -> None:
    degrees = np.bincount(gf.synthetic(**SIZE).edge_index[1].numpy(), minlength=3000)
    assert degrees.max() > 15 * np.median(degrees)


def test_edges_stay_in_communities_more_often_than_by_chance() -> None:
    graph = gf.synthetic(**SIZE)
    source, target = graph.edge_index
    inside = (graph.y[source] == graph.y[target]).double().mean()
    assert 0.5 < float(inside) < 0.8  # 0.6, and a fifth of the others by chance


def test_labels_can_be_learned_better_from_the_graph_than_from_attributes() -> None:
    graph = gf.synthetic(**SIZE, signal=1.0)
    alone, propagated = (gf.train(graph, "sgc", hops=hops, sigma=0.0).micro_f1(graph) for hops in (0, 2))
    assert 0.3 < alone < propagated
    assert propagated > 0.6


def test_the_share_of_training_nodes() -> None:
    graph = gf.synthetic(**SIZE, train=0.08)
    assert 0.06 < float(graph.train_mask.double().mean()) < 0.1
    assert torch.equal(graph.test_mask, ~graph.train_mask)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": 1}, "nodes is 1, at least 2 is needed"),
        ({"classes": 1}, "classes is 1, at least 2 is needed"),
        ({"columns": 0}, "columns is 0, at least 1 is needed"),
        ({"edges": 3_000_000}, "3,000,000 edges are over half of all pairs of 3,000 nodes"),
        ({"train": 0.0}, "train is 0.0, a share over 0 and up to 1 is needed"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_sizes_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(gf.InputError, match=message):
        gf.synthetic(**(SIZE | change))


def test_the_size_of_blocks_does_not_change_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gf.synthetic(**SIZE).digest
    for block in (1000, 777):
        monkeypatch.setattr(generator, "BLOCK", block)
        assert gf.synthetic(**SIZE).digest == expected


def test_the_edges_take_few_bytes_each_while_they_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """62 million edges are to be drawn on an ordinary machine."""
    monkeypatch.setattr(generator, "BLOCK", 10_000)
    rng, count = np.random.default_rng(0), 300_000
    community = rng.integers(0, 5, size=20_000)
    tracemalloc.start()
    pairs = generator._edges(community, count, rng)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs.shape == (2, count)
    assert peak < 50 * count
