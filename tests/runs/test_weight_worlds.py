"""Two worlds that differ in a weight that is forgotten: nothing that is published tells what it was."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import test_two_worlds as worlds
import torch

import graphforget as gf
from cases import Run, present, random_graph, weighted


@pytest.fixture
def key(tmp_path: Path) -> Path:
    gf.make_keys(tmp_path / "key")
    return tmp_path / "key"


def pair(seed: int) -> list[worlds.World]:
    """The same graph but for two weights, one of which is 1 already in one world; a node goes with any weights."""
    graph = weighted(random_graph(seed, nodes=16, edges=30, directed=seed % 2 == 1, unlabelled=0), seed, most=1.0)
    source, target = graph.edge_index
    columns = (source != target) & (source != 15) & (target != 15)
    named = list(dict.fromkeys(tuple(sorted(edge)) for edge in graph.edge_index[:, columns].T.tolist()))[:2]
    if graph.directed:
        named = [tuple(edge) for edge in graph.edge_index[:, columns].T.tolist()[:2]]
    request = gf.Request(nodes=[15], edge_weights=named)
    made = []
    for values in ((7.0, 1.0), (0.2, 30.0)):
        weight = present(graph.edge_weight).clone()
        weight[(source == 15) | (target == 15)] = values[1]
        for (u, v), value in zip(named, values, strict=True):
            both = (source == u) & (target == v)
            both = both if graph.directed else both | (source == v) & (target == u)
            weight[both] = value
        made.append(worlds.World(dataclasses.replace(graph, edge_weight=weight), request))
    assert len({world.graph.digest for world in made}) == 2
    assert len({world.graph.without(request).digest for world in made}) == 1
    return made


@pytest.mark.parametrize("model", ["sgc", "gcn", "stacked", "boosted", "retrained sgc", "sgc without noise"])
def test_what_is_published_is_the_same_whatever_the_weight_was(model: str, tmp_path: Path, run: Run, key: Path) -> None:
    for seed in range(2):
        documents = []
        for number, world in enumerate(pair(seed)):
            place = tmp_path / f"{seed}-{number}"
            place.mkdir()
            documents.append(worlds.published(world, place, model, run, key))
        assert worlds.differences(documents[0], documents[1]) == []


def test_the_worlds_differ_in_what_is_private() -> None:
    one, other = (gf.train(world.graph, "sgc").theta for world in pair(0))
    assert not torch.equal(one, other)
