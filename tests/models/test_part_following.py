"""Features that follow deletions on ranks, against a propagation of the retained graph in extended precision."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphforget as gf
from graphforget.datasets.sharded_folder import shard
from graphforget.distributed.group import Group
from graphforget.distributed.part_files import open_part, part_folder
from graphforget.distributed.row_ranges import RowRanges
from graphforget.graph.reach import Reach
from graphforget.graph.row_part import TRAIN, Deletion, RowPart
from graphforget.models import part_following
from graphforget.models.part_features import PartFeatures, propagate_part
from graphforget.models.part_following import follow_part
from graphforget.models.propagated import Settings, summed_defects
from graphforget.request.footprint import footprint
from thread_ranks import on_threads

NODES = 80  # five blocks


@dataclasses.dataclass
class Held:
    """What all ranks hold together after some deletions."""

    powers: list[np.ndarray]  # H_1 .. H_{K-1}, all rows
    defects: list[np.ndarray]
    train: np.ndarray  # numbers
    training: np.ndarray
    bounds: np.ndarray
    squares: list[float]
    footprints: list[tuple[int, int]]  # of each deletion: training nodes that go, and others that it affects
    sent: int


def random_graph(seed: int, *, edges: int = 160, spread: int = 0, columns: int = 3) -> gf.Graph:
    """A graph whose attributes have sizes over so many powers of ten, with some self-loops."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, NODES, size=(2, edges))
    ends[1, : edges // 4] = rng.integers(0, 6, size=edges // 4)  # hubs
    x = rng.normal(size=(NODES, columns)) * 10.0 ** rng.integers(-spread, spread + 1, size=(NODES, 1))
    x[rng.random(NODES) < 0.1] = 0
    train = torch.from_numpy(rng.random(NODES) < 0.6)
    return gf.Graph.create(
        x=torch.from_numpy(x),
        edges=torch.from_numpy(ends),
        y=torch.from_numpy(rng.integers(0, 3, NODES)),
        train_mask=train,
        test_mask=~train,
        directed=False,
        num_classes=3,
    )


def random_request(graph: gf.Graph, rng: np.random.Generator) -> gf.Request:
    """A mixture of nodes, edges, all attributes of a node and single ones."""
    numbers = graph.numbers.tolist()
    kinds = rng.random(4) < [0.5, 0.6, 0.5, 0.5]
    kinds[rng.integers(0, 4)] = True
    nodes = rng.choice(numbers, 2, replace=False).tolist() if kinds[0] else []
    pairs = graph.numbers[graph.edge_index].T.tolist()
    chosen = rng.choice(len(pairs), min(3, len(pairs)) if kinds[1] else 0, replace=False)
    edges = {tuple(sorted(pairs[place])) for place in chosen}
    named: dict[int | str, Any] = {}
    for kind, what in ((2, "all"), (3, [0])):
        if kinds[kind]:
            named[int(rng.choice(numbers))] = what
    labels = rng.choice(numbers, 2, replace=False).tolist() if rng.random() < 0.3 else []
    return gf.Request(nodes=nodes, edges=sorted(edges), attributes=named, labels=labels)


def deletion_of(graph: gf.Graph, request: gf.Request) -> Deletion:
    resolved, numbers = request.resolve(graph), graph.numbers
    return Deletion(
        nodes=numbers[resolved.node_rows].numpy(),
        edges=numbers[resolved.edges].numpy().reshape(2, -1),
        full=numbers[resolved.full_rows].numpy(),
        partial=numbers[resolved.partial_rows].numpy(),
        columns=resolved.partial_columns.numpy(),
        labels=numbers[resolved.label_rows].numpy(),
    )


def held_after(graph: gf.Graph, deletions: list[Deletion], ranks: int, how: Settings) -> Held:
    """Propagates on so many ranks, and follows the deletions."""
    with TemporaryDirectory() as place:
        shard(graph, Path(place) / "shards", parts=ranks)

        def work(group: Group) -> tuple[RowPart, PartFeatures, list[tuple[int, int]], int]:
            files = open_part(part_folder(Path(place) / "shards", group.rank))
            part = RowPart(RowRanges(NODES, ranks), group.rank, {name: files.map(name) for name in files.files})
            features = propagate_part(part, how, group)
            counted = []
            for deletion in deletions:
                change = part.remove(deletion, group)
                counted.append((change.removed, follow_part(part, features, change, group).affected))
            return part, features, counted, group.traffic.sent["request"]

        done = on_threads(ranks, work)
        parts, features = [one[0] for one in done], [one[1] for one in done]
        stays = [part.roles[one.train_rows] == TRAIN for part, one in zip(parts, features, strict=True)]
        trained = list(zip(parts, features, stays, strict=True))
        return Held(
            [np.concatenate([np.asarray(one.hops[hop]) for one in features]) for hop in range(how.hops - 1)],
            [np.concatenate([one.defects[hop] for one in features]) for hop in range(how.hops - 1)]
            + [np.concatenate([one.defects[-1][mask] for _, one, mask in trained])],
            np.concatenate([one.train_rows[mask] + part.start for part, one, mask in trained]),
            np.concatenate([one.training[mask] for _, one, mask in trained]),
            np.concatenate([one.bounds[mask] for _, one, mask in trained]),
            [sum(some) for some in zip(*(one.squared_defects(part) for part, one, _ in trained), strict=True)],
            [tuple(map(sum, zip(*some, strict=True))) for some in zip(*(one[2] for one in done), strict=True)],  # type: ignore[misc]
            sum(one[3] for one in done),
        )


def oracle(graph: gf.Graph, how: Settings) -> tuple[np.ndarray, list[np.ndarray]]:
    """`S` and `H_0 .. H_K` of a graph in extended precision, in rows of all numbers."""
    a = np.zeros((NODES, NODES), dtype=np.longdouble)
    senders, receivers = graph.numbers[graph.edge_index].numpy()
    a[receivers, senders] = 1
    there = graph.numbers.numpy()
    a[there, there] = 1
    scale = np.zeros(NODES, dtype=np.longdouble)
    scale[there] = 1 / np.sqrt(a.sum(axis=1)[there])
    s = scale[:, None] * a * scale
    x = np.zeros((NODES, graph.num_columns), dtype=np.longdouble)
    x[there] = graph.x.double().numpy()
    norms = np.sqrt((x * x).sum(axis=1, keepdims=True))
    powers = [x / np.where(norms > 0, norms, 1) if how.scale_rows else x]
    for _ in range(how.hops):
        powers.append(s @ powers[-1])
    return s, powers


def check_against_oracle(held: Held, graph: gf.Graph, how: Settings) -> None:
    """Each row's defect is within its bound, and all features are within the bound of the sum."""
    s, exact = oracle(graph, how)
    assert held.train.tolist() == graph.numbers[graph.train_mask].tolist()
    before: np.ndarray = exact[0].astype(np.float64).astype(np.longdouble) if how.scale_rows else exact[0]
    tiny = 1e-300
    for hop, values in enumerate(held.powers, start=1):
        if hop > 1 or not how.scale_rows:  # scaled attributes as the ranks hold them are not known here
            off = np.sqrt(np.square(values[:, :-1] - s @ before).sum(axis=1))
            assert (off <= held.defects[hop - 1] + tiny).all()
        before = values[:, :-1].astype(np.longdouble)
    columns, last = graph.num_columns, how.powers[-1]
    if how.hops > 1:
        block = held.training[:, -columns:] - how.scales[-1] * (s @ before)[held.train]
        allowed = abs(how.scales[-1]) * (held.defects[-1] + 4 * 2.0**-53 * np.abs(held.bounds[:, -1]))
        assert (np.sqrt(np.square(block).sum(axis=1)) <= allowed + tiny).all()
    features = np.concatenate(
        [scale * exact[hop][held.train] for hop, scale in zip(how.powers, how.scales, strict=True)], axis=1
    )
    error = summed_defects(how, [float(np.sqrt(square)) for square in held.squares])
    error += 2 * 2.0**-53 * float(np.linalg.norm(held.bounds * np.abs(how.scales)))
    assert float(np.sqrt(np.square(held.training - features).sum())) <= error + tiny
    assert last == how.hops


HOW = st.sampled_from(
    [
        Settings((2,), (1.0,), True),
        Settings((2,), (1.0,), False),
        Settings((0, 1, 2), (0.5, 1.0, 0.7), True),
        Settings((0, 1, 2, 3), (0.5, 1.0, 0.7, 0.3), False),
        Settings((1,), (1.0,), True),
    ]
)


def check_following(seed: int, how: Settings, requests: int, ranks: int, spread: int, carried: float) -> None:
    graph, rng = random_graph(seed, spread=spread), np.random.default_rng(seed)
    deletions, footprints, retained = [], [], graph
    for _ in range(requests):
        request = random_request(retained, rng)
        deletions.append(deletion_of(retained, request))
        touched = footprint(retained, request, Reach(how.hops, degree_normalised=True))
        footprints.append((touched.num_removed, touched.num_affected))
        retained = retained.without(request)
    before = part_following.MOST_CARRIED
    part_following.MOST_CARRIED = carried  # type: ignore[assignment]
    try:
        held = held_after(graph, deletions, ranks, how)
        alone = held_after(graph, deletions, 1, how)
    finally:
        part_following.MOST_CARRIED = before
    check_against_oracle(held, retained, how)
    assert np.array_equal(held.training, alone.training)  # to the bit
    assert np.array_equal(held.bounds, alone.bounds)
    for mine, other in zip([*held.powers, *held.defects], [*alone.powers, *alone.defects], strict=True):
        assert np.array_equal(mine, other)
    assert held.footprints == alone.footprints == footprints


CASES: Any = {
    "seed": st.integers(0, 10**6),
    "how": HOW,
    "requests": st.integers(1, 4),
    "ranks": st.integers(1, 4),
    "spread": st.sampled_from([0, 3, 8]),
    "carried": st.sampled_from([0.5, 32, 1e9]),
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**CASES)
def test_features_that_follow_are_those_of_the_retained_graph(
    seed: int, how: Settings, requests: int, ranks: int, spread: int, carried: float
) -> None:
    check_following(seed, how, requests, ranks, spread, carried)


@pytest.mark.long
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**CASES)
def test_features_that_follow_in_many_cases(
    seed: int, how: Settings, requests: int, ranks: int, spread: int, carried: float
) -> None:
    check_following(seed, how, requests, ranks, spread, carried)


@pytest.mark.parametrize("seed", range(3))
def test_many_requests_carry_a_limited_error(seed: int) -> None:
    """The bound of a row grows, and stays under a multiple of that of a new row, however many requests reach it."""
    graph, rng, how = random_graph(seed, edges=260), np.random.default_rng(seed), Settings((2,), (1.0,), True)
    deletions, retained = [], graph
    for _ in range(60):  # without the rule, bounds grow to about 100 times those of new rows
        pair = retained.numbers[retained.edge_index[:, int(rng.integers(retained.edge_index.shape[1]))]].tolist()
        request = gf.Request(edges=[tuple(pair)])
        deletions.append(deletion_of(retained, request))
        retained = retained.without(request)
    held = held_after(graph, deletions, 2, how)
    check_against_oracle(held, retained, how)
    fresh = held_after(retained, [], 2, how)  # edges went, all nodes are there
    for carried, new in zip(held.defects, fresh.defects, strict=True):
        ratio = carried[new > 0] / new[new > 0]
        assert 1.5 < ratio.max() < 2 * part_following.MOST_CARRIED


def test_unchanged_rows_do_not_travel() -> None:
    """One attribute changes one row of `H_0`: its difference goes to other ranks once, and no neighbour's row does."""
    graph = random_graph(1, edges=400, columns=200)
    how = Settings((1,), (1.0,), False)
    number = int(graph.numbers[(graph.x != 0).all(dim=1)][0])
    deletion = deletion_of(graph, gf.Request(attributes={number: "all"}))
    held = held_after(graph, [deletion], 4, how)
    row = 8 * 201
    assert row <= held.sent <= 3 * row + 2000  # at most once to each other rank, and numbers of neighbours
