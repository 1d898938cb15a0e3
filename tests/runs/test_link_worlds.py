"""Nothing that is published of a model of links tells which numbers the deleted nodes had."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_two_worlds as worlds
import torch

import graphforget as gf
from cases import Run, random_graph


def world(number: int, label: int) -> worlds.World:
    """One node more than the retained graph, of this number, with neighbours of its own."""
    graph = random_graph(2, nodes=40, edges=160, unlabelled=0, sparse=False)
    n = graph.num_nodes
    ends = torch.tensor([[n] * label, list(range(label))])
    trains = torch.tensor([label % 2 == 1])
    grown = gf.Graph.create(
        x=torch.cat([graph.x, torch.full((1, graph.num_columns), float(label))]),
        edges=torch.cat([graph.edge_index, ends], dim=1),
        y=torch.cat([graph.y, torch.tensor([label % 3])]),
        train_mask=torch.cat([graph.train_mask, trains]),
        test_mask=torch.cat([graph.test_mask, ~trains]),
        num_classes=graph.num_classes,
        numbers=torch.cat([graph.numbers, torch.tensor([number])]),
    )
    return worlds.World(grown, gf.Request(nodes=[number]))


def test_a_deleted_node_of_a_very_large_number_leaves_no_trace(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worlds, "MODELS", {"links": ("link-sign", {}, [])})  # with its default options
    monkeypatch.setattr(worlds, "NOISED", {"links"})
    gf.make_keys(tmp_path / "key")
    documents = []
    populations = [world(40, 3), world(5000, 8)]
    for number, population in enumerate(populations):
        place = tmp_path / str(number)
        place.mkdir()
        documents.append(worlds.published(population, place, "links", run, tmp_path / "key"))
    first, second = (population.graph.without(population.request).digest for population in populations)
    assert first == second
    assert worlds.differences(documents[0], documents[1]) == []
