"""Nothing that is published of a collection depends on what was deleted, other than through the noised weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_two_worlds as worlds
import torch

import graphforget as gf
from cases import Run
from collection_cases import CLASSES, COLUMNS

MODELS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "wl": ("graph-wl", {"rounds": 2, "buckets": 64}, []),
    "sign": ("graph-sign", {"hops": 1}, []),
    "retrained wl": ("graph-wl", {"rounds": 2, "buckets": 64}, ["--method", "retrain"]),
    "stacked": ("graph-stacked-gin", {"rounds": 2, "buckets": 32, "hidden": 3, "epochs": 3, "parts": 2}, []),
    "wl without noise": ("graph-wl", {"rounds": 2, "buckets": 64, "sigma": 0.0}, []),
}
NOISED = ("wl", "sign", "retrained wl", "stacked")


def two_collections(seed: int) -> tuple[worlds.World, worlds.World]:
    """With the same retained graphs. Whole graphs go, or nodes, edges and values of graphs that stay."""
    rng = np.random.default_rng([seed, 5])
    graphs = 12
    sizes = rng.integers(2, 6, size=graphs)
    in_graph = np.repeat(np.arange(graphs), sizes)
    n = len(in_graph)
    y, trains = np.arange(graphs) % CLASSES, np.arange(graphs) < 9
    x = rng.choice([0.0, 1.0, 2.5], size=(n, COLUMNS))
    pairs = {tuple(sorted(rng.choice(np.flatnonzero(in_graph == g), 2, replace=False).tolist())) for g in range(graphs)}
    forgotten = rng.choice(n, size=2, replace=False).tolist()
    x[forgotten] = 0
    populations = []
    for world in range(2):
        own = np.random.default_rng([seed, 5, world])
        extra = int(own.integers(0, 3))  # nodes of graphs that stay
        whole = np.repeat(graphs + np.arange(int(own.integers(1, 4))), 2)  # graphs that go, of two nodes each
        more = extra + len(whole)
        in_world = np.concatenate([in_graph, own.integers(0, graphs, extra), whole])
        labels = np.concatenate([y, own.integers(0, CLASSES, 3)])[in_world]
        train = np.concatenate([trains, own.random(3) < 0.7])[in_world]
        values = np.vstack([x, own.normal(size=(more, COLUMNS))])
        if own.random() < 0.7:  # otherwise what is forgotten was 0 before
            values[forgotten] = own.normal(size=(2, COLUMNS))
        edges = {(int(np.flatnonzero(in_world == g)[0]), n + at) for at, g in enumerate(in_world[n:])}
        edges = {(u, v) for u, v in edges if u != v and own.random() < 0.7}
        candidates = {(u, v) for u in range(n) for v in range(u + 1, n) if in_graph[u] == in_graph[v]} - pairs
        gone = [tuple(pair) for pair in own.permutation(sorted(candidates))[: int(own.integers(0, 3))].tolist()]
        graph = gf.Graph.create(
            x=torch.from_numpy(values).to_sparse_csr() if seed % 2 else torch.from_numpy(values),
            edges=torch.tensor(sorted(pairs | edges | set(gone))).T,
            y=torch.from_numpy(labels),
            train_mask=torch.from_numpy(train),
            test_mask=torch.from_numpy(~train),
            num_classes=CLASSES,
            graph_numbers=torch.from_numpy(in_world),
        )
        request = gf.Request(range(n, n + extra), gone, dict.fromkeys(forgotten, "all"), np.unique(whole).tolist())
        populations.append(worlds.World(graph, request))
    first, second = populations
    assert first.graph.without(first.request).digest == second.graph.without(second.request).digest
    return first, second


def check(seed: int, model: str, tmp_path: Path, run: Run) -> None:
    gf.make_keys(tmp_path / f"key-{seed}")
    documents = []
    for number, world in enumerate(two_collections(seed)):
        place = tmp_path / f"{seed}-{number}"
        place.mkdir()
        documents.append(worlds.published(world, place, model, run, tmp_path / f"key-{seed}"))
    assert worlds.differences(documents[0], documents[1]) == [], (seed, model)


@pytest.fixture(autouse=True)
def models_of_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "MODELS", MODELS)
    monkeypatch.setattr(worlds, "NOISED", NOISED)


@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=() if model == "wl" else pytest.mark.slow) for model in MODELS]
)
def test_what_is_published_of_a_collection_is_the_same_in_two_worlds(model: str, tmp_path: Path, run: Run) -> None:
    for seed in range(2):
        check(seed, model, tmp_path, run)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_what_is_published_of_collections_is_the_same_in_many_pairs_of_worlds(
    model: str, tmp_path: Path, run: Run
) -> None:
    for seed in range(100, 120):
        check(seed, model, tmp_path, run)
