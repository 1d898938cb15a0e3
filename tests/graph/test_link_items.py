"""Sides and negatives of pairs: those of sets and dictionaries, and unchanged by what happens to other pairs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphforget as gf
from cases import random_graph, requests
from graphforget.graph.hashing import pair_hashes, salt, salted, uniform
from graphforget.graph.links import (
    MESSAGE,
    SUPERVISED,
    TEST,
    VALIDATION,
    LinkSettings,
    edge_pairs,
    edge_sides,
    link_items,
    link_sides,
)

Pair = tuple[int, int]


def draw(first: int, second: int, purpose: str, seed: int) -> float:
    hashes = pair_hashes(torch.tensor([first]), torch.tensor([second]))
    return float(uniform(salted(hashes, salt(purpose, seed))))


def word(first: int, second: int, purpose: str, seed: int) -> int:
    hashes = pair_hashes(torch.tensor([first]), torch.tensor([second]))
    return int(salted(hashes, salt(purpose, seed)))


def side_of(pair: Pair, chosen: LinkSettings) -> int:
    """The oracle, one pair at a time."""
    low, high = min(pair), max(pair)
    position = draw(low, high, "link side", chosen.split_seed)
    if position < chosen.test:
        return TEST
    if position < chosen.test + chosen.validation:
        return VALIDATION
    return MESSAGE if draw(low, high, "link message", chosen.split_seed) < chosen.messages else SUPERVISED


def expected_items(graph: gf.Graph, chosen: LinkSettings) -> dict[Pair, tuple[int, int]]:
    """Label and side of every item by the numbers of its nodes, from dictionaries and sets."""
    numbers = graph.numbers.tolist()
    edges = {tuple(sorted((numbers[u], numbers[v]))) for u, v in graph.edge_index.T.tolist() if u != v}
    items: dict[Pair, tuple[int, int]] = {}
    ring = {word(u, u, "link ring", chosen.split_seed): u for u in numbers}
    for u in numbers:
        for turn in range(max(chosen.negatives, chosen.held_out_negatives)):
            start = word(u, turn, "link negative", chosen.split_seed)
            v = ring[min((place for place in ring if place >= start), default=min(ring))]
            side = max(side_of((u, v), chosen), SUPERVISED)
            most = chosen.negatives if side == SUPERVISED else chosen.held_out_negatives
            pair = (min(u, v), max(u, v))
            if turn < most and u != v and pair not in edges:
                items[pair] = (0, side)
    for u, v in edges:
        side = side_of((u, v), chosen)
        if side != MESSAGE or chosen.learn_messages:
            items[u, v] = (1, max(side, SUPERVISED))
    return items


def found_items(graph: gf.Graph, chosen: LinkSettings) -> dict[Pair, tuple[int, int]]:
    items = link_items(graph, chosen)
    pairs = [tuple(pair) for pair in graph.numbers[items.rows].tolist()]
    assert pairs == sorted(set(pairs))
    return dict(zip(pairs, zip(items.y.tolist(), items.sides.tolist(), strict=True), strict=True))


@st.composite
def choices(draw: st.DrawFn) -> LinkSettings:
    return LinkSettings(
        split_seed=draw(st.integers(0, 99)),
        test=draw(st.sampled_from([0.0, 0.1, 0.3])),
        validation=draw(st.sampled_from([0.0, 0.2])),
        messages=draw(st.sampled_from([0.0, 0.5, 0.8])),
        learn_messages=draw(st.booleans()),
        negatives=draw(st.integers(0, 4)),
        held_out_negatives=draw(st.integers(0, 4)),
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 14), edges=st.integers(0, 40), chosen=choices(), data=st.data())
def test_items_are_those_of_sets_and_stay_when_others_go(
    seed: int, nodes: int, edges: int, chosen: LinkSettings, data: st.DataObject
) -> None:
    graph = random_graph(seed, nodes=max(nodes, 6), edges=edges)
    before = found_items(graph, chosen)
    assert before == expected_items(graph, chosen)
    retained = graph.without(data.draw(requests(graph)))
    after = found_items(retained, chosen)
    assert after == expected_items(retained, chosen)
    lost = before.keys() - after.keys()
    left = set(retained.numbers.tolist())
    pairs = {tuple(pair) for pair in retained.numbers[edge_pairs(retained)].tolist()}
    for pair in lost:  # none goes without a reason of its own
        assert not set(pair) <= left or (before[pair][0] == 1 and pair not in pairs)
    for pair in before.keys() & after.keys():
        assert before[pair][1] == after[pair][1]


def test_training_does_not_depend_on_held_out_edges() -> None:
    graph = random_graph(5, nodes=60, edges=400)
    chosen = LinkSettings(negatives=5)
    pairs, sides = edge_sides(graph, chosen)
    held_out = sides > SUPERVISED
    assert held_out.sum() > 10
    without = dataclasses.replace(graph, edge_index=_both(pairs[~held_out]))
    first, second = (
        {pair: item for pair, item in found_items(g, chosen).items() if item[1] == SUPERVISED} for g in (graph, without)
    )
    assert first == second
    negatives = {pair for pair, item in first.items() if item[0] == 0}
    assert negatives.isdisjoint(tuple(pair) for pair in graph.numbers[pairs].tolist())


def _both(pairs: torch.Tensor) -> torch.Tensor:
    both = torch.cat([pairs, pairs.flip(1)])
    return both[(both[:, 1] * 1000 + both[:, 0]).argsort()].T


def test_shares_are_those_asked_for() -> None:
    numbers = torch.arange(200)
    pairs = torch.combinations(numbers)
    chosen = LinkSettings(test=0.1, validation=0.05, messages=0.8)
    counts = Counter(link_sides(pairs, chosen).tolist())
    for side, share in {TEST: 0.1, VALIDATION: 0.05, MESSAGE: 0.85 * 0.8, SUPERVISED: 0.85 * 0.2}.items():
        assert counts[side] / len(pairs) == pytest.approx(share, abs=4 * (share * (1 - share) / len(pairs)) ** 0.5)
    assert torch.equal(link_sides(pairs.flip(1), chosen), link_sides(pairs, chosen))
    other = link_sides(pairs, dataclasses.replace(chosen, split_seed=1))
    assert not torch.equal(other, link_sides(pairs, chosen))


def test_directed_graphs_are_refused() -> None:
    with pytest.raises(gf.InputError, match="undirected"):
        link_items(random_graph(0, directed=True), LinkSettings())


@pytest.mark.parametrize(
    "wrong",
    [
        {"test": 1.5},
        {"test": -0.1},
        {"messages": "half"},
        {"validation": True},
        {"test": 0.6, "validation": 0.4},
        {"messages": 1},
        {"negatives": -1},
        {"split_seed": 0.5},
        {"negatives": 2000},
        {"held_out_negatives": 10**6},
        {"learn_messages": "false"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(gf.InputError):
        LinkSettings(**wrong)  # type: ignore[arg-type]


def test_a_graph_without_labels_is_there_for_links(tmp_path: Path) -> None:
    labelled = random_graph(3, nodes=30, edges=90)
    given: Any = {"x": labelled.x, "edges": labelled.edge_index}
    graph = gf.Graph.create(**given, y=None)
    assert not graph.train_mask.any()
    trained = gf.train(graph, task="link")
    assert trained.certifiable
    gf.save_run(tmp_path / "run", trained, graph)
    _, same = gf.load_run(tmp_path / "run")
    assert same.digest == graph.digest
    assert gf.unlearn(trained, graph, gf.Request(nodes=[3])).level == "certified"
    with pytest.raises(gf.InputError, match=r"there is no training node: .*task 'link'"):
        gf.train(graph)
    with pytest.raises(gf.InputError, match="no node has a label"):
        graph.split()
