"""The three partitions: balance, determinism, and the fast forms against slow ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from torch import Tensor

from graphforget.ensembles import partition
from graphforget.ensembles.partition import (
    PARTITIONS,
    adjacency_matrix,
    balanced_assignment,
    capacity,
    kmeans_partition,
    label_propagation_partition,
    moved_labels,
    preferred_labels,
    random_partition,
    shard_means,
)
from graphforget.errors import InputError

NODES, SHARDS = 300, 7
SEEDS = st.integers(0, 10**6)


def some_edges(seed: int = 0, nodes: int = NODES, count: int = 900) -> Tensor:
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(seed))


def some_points(seed: int = 0, nodes: int = NODES, columns: int = 3) -> Tensor:
    return torch.randn(nodes, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def planted(groups: int, size: int, seed: int) -> Tensor:
    """Ten edges a node within its group and one to anywhere."""
    generator = np.random.default_rng(seed)
    nodes = groups * size
    first = np.repeat(np.arange(nodes), 11)
    second = first // size * size + generator.integers(0, size, first.size)
    second[::11] = generator.integers(0, nodes, nodes)
    names = generator.permutation(nodes)  # a node's number tells nothing of its group
    return torch.from_numpy(np.stack([names[first], names[second]]))


def cut(edges: Tensor, labels: Tensor) -> float:
    """The part of the edges whose ends are in two shards."""
    return float((labels[edges[0]] != labels[edges[1]]).double().mean())


def sizes(labels: Tensor, shards: int) -> Tensor:
    return torch.bincount(labels, minlength=shards)


def chi_square(observed: Tensor) -> float:
    """Against equal frequencies."""
    expected = observed.sum().double() / observed.numel()
    return float(((observed - expected).square() / expected).sum())


def by_random(seed: int) -> Tensor:
    return random_partition(torch.arange(NODES), shards=SHARDS, seed=seed)


def by_kmeans(seed: int) -> Tensor:
    return kmeans_partition(some_points(), shards=SHARDS, seed=seed)


def by_label_propagation(seed: int) -> Tensor:
    return label_propagation_partition(some_edges(), nodes=NODES, shards=SHARDS, seed=seed)


PARTITIONERS = {"random": by_random, "bekm": by_kmeans, "blpa": by_label_propagation}


def test_the_names() -> None:
    assert tuple(PARTITIONERS) == PARTITIONS


@pytest.mark.parametrize(
    ("count", "shards", "most"),
    [(2437, 10, 255), (2994, 10, 313), (17745, 30, 678), (16499, 30, 630), (31043, 100, 465)],
)
def test_capacities_of_the_paper(count: int, shards: int, most: int) -> None:
    assert capacity(count, shards=shards) == most


def test_capacities_at_the_edges() -> None:
    assert capacity(10, shards=5, slack=0) == 2
    assert capacity(11, shards=5, slack=0) == 3
    assert capacity(10, shards=3, slack=0.1) == 4  # 10 / 3 + 2 / 3, where floats are a little over
    assert capacity(9, shards=1) == 9
    assert capacity(3, shards=10) == 1
    assert capacity(0, shards=4) == 0
    assert capacity(10, shards=5, slack=1) == 10
    assert capacity(10, shards=5, slack=1e308) > 10


@given(count=st.integers(0, 10**6), shards=st.integers(1, 1000), slack=st.floats(0, 2))
def test_the_capacity_always_suffices(count: int, shards: int, slack: float) -> None:
    most = capacity(count, shards=shards, slack=slack)
    mean = count / shards
    assert most >= -(-count // shards)
    assert math.isclose(most, mean + slack * (count - mean), rel_tol=1e-9, abs_tol=1.001)


@pytest.mark.parametrize("partitioner", PARTITIONERS.values(), ids=PARTITIONERS)
def test_one_shard_a_node_by_the_seed_alone(partitioner: Callable[[int], Tensor]) -> None:
    legacy, ours = np.random.get_state(legacy=False)["state"]["key"].copy(), torch.get_rng_state()  # noqa: NPY002
    first = partitioner(3)
    assert first.dtype == torch.int64
    assert first.shape == (NODES,)
    assert set(first.tolist()) == set(range(SHARDS))
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], legacy)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), ours)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    assert torch.equal(partitioner(3), first)
    assert not torch.equal(partitioner(4), first)


@pytest.mark.parametrize("partitioner", [by_kmeans, by_label_propagation])
def test_no_shard_is_over_capacity(partitioner: Callable[[int], Tensor]) -> None:
    for seed in range(5):
        counts = sizes(partitioner(seed), SHARDS)
        assert int(counts.sum()) == NODES
        assert counts.numel() == SHARDS
        assert int(counts.max()) <= capacity(NODES, shards=SHARDS) == 45


def test_inputs_stay_as_they_are() -> None:
    numbers, edges, points = torch.arange(NODES), some_edges(), some_points()
    copies = [part.clone() for part in (numbers, edges, points)]
    random_partition(numbers, shards=SHARDS, seed=0)
    label_propagation_partition(edges, nodes=NODES, shards=SHARDS, seed=0)
    kmeans_partition(points, shards=SHARDS, seed=0)
    for part, copy in zip((numbers, edges, points), copies, strict=True):
        assert torch.equal(part, copy)


@pytest.mark.parametrize("shards", [1, 20])
def test_one_shard_and_one_node_a_shard(shards: int) -> None:
    edges, points = some_edges(nodes=20, count=60), some_points(nodes=20)
    for labels in (
        label_propagation_partition(edges, nodes=20, shards=shards, seed=0, slack=0),
        kmeans_partition(points, shards=shards, seed=0, slack=0),
    ):
        assert sizes(labels, shards).tolist() == [20 // shards] * shards
    assert int(random_partition(torch.arange(20), shards=shards, seed=0).max()) < shards


# the random partition


def test_a_node_s_shard_depends_on_itself_alone() -> None:
    numbers = torch.randperm(5000, generator=torch.Generator().manual_seed(1)) * 7
    full = random_partition(numbers, shards=9, seed=2)
    keep = torch.rand(5000, generator=torch.Generator().manual_seed(2)) < 0.8
    assert torch.equal(random_partition(numbers[keep], shards=9, seed=2), full[keep])
    for place in (0, 17, 4999):
        assert torch.equal(random_partition(numbers[place : place + 1], shards=9, seed=2), full[place : place + 1])
    assert torch.equal(random_partition(numbers.to(torch.int32), shards=9, seed=2), full)
    assert random_partition(numbers[:0], shards=9, seed=2).shape == (0,)


def test_the_hash_is_the_same_for_ever() -> None:
    assert random_partition(torch.arange(12), shards=10, seed=0).tolist() == [2, 3, 3, 2, 4, 9, 9, 4, 3, 7, 0, 0]


def test_the_random_partition_is_even_and_its_seeds_are_independent() -> None:
    numbers = torch.arange(20_000)
    first, second = (random_partition(numbers, shards=10, seed=seed) for seed in (0, 1))
    for labels in (first, second):  # 9 degrees of freedom: beyond 35 once in 16,000, under 1 once in 1,700
        assert 1 < chi_square(sizes(labels, 10)) < 35
        assert 1 < chi_square(sizes(labels[::2], 10)) < 35
    assert 50 < chi_square(sizes(first * 10 + second, 100)) < 170  # 99 of freedom
    assert 50 < chi_square(sizes(first[:-1] * 10 + first[1:], 100)) < 170  # nor do neighbours' numbers tell anything


# balanced label propagation


def test_planted_communities_are_found() -> None:
    edges = planted(8, 100, seed=0)
    for seed in range(3):
        start = label_propagation_partition(edges.new_zeros(2, 0), nodes=800, shards=8, seed=seed)
        result = label_propagation_partition(edges, nodes=800, shards=8, seed=seed, slack=0.02)
        assert cut(edges, start) > 0.8
        assert cut(edges, result) < 0.5


def test_capacity_holds_after_every_iteration() -> None:
    edges = planted(5, 40, seed=1)
    for slack in (0.0, 0.005, 0.05):
        most = capacity(200, shards=5, slack=slack)
        for iterations in range(1, 15):
            labels = label_propagation_partition(edges, nodes=200, shards=5, seed=0, slack=slack, iterations=iterations)
            counts = sizes(labels, 5)
            assert int(counts.sum()) == 200
            assert int(counts.max()) <= most


def test_nodes_without_neighbours_stay() -> None:
    edges = some_edges(nodes=150, count=600)  # of 300: the second half is isolated
    edges = torch.cat([edges, torch.arange(150, 300).repeat(2, 1)], dim=1)  # loops are no neighbours
    start = label_propagation_partition(edges[:, :0], nodes=300, shards=6, seed=4, slack=0.5)
    labels = label_propagation_partition(edges, nodes=300, shards=6, seed=4, slack=0.5)
    assert sizes(start, 6).tolist() == [50] * 6
    assert torch.equal(labels[150:], start[150:])
    assert int((labels[:150] != start[:150]).sum()) > 50


def test_direction_loops_and_duplicates_do_not_count() -> None:
    edges = some_edges()
    plain = label_propagation_partition(edges, nodes=NODES, shards=SHARDS, seed=0)
    loops = torch.arange(NODES).repeat(2, 1)
    for same in (edges.flip(0), edges.flip(1), torch.cat([edges, edges.flip(0), edges, loops], dim=1)):
        assert torch.equal(label_propagation_partition(same, nodes=NODES, shards=SHARDS, seed=0), plain)


def test_it_stops_when_less_than_a_thousandth_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[int] = []

    def scripted(labels: Any, *_: Any, **__: Any) -> Any:
        changes.append([900, 5, 4, 900][len(changes)])
        moved = labels.copy()
        moved[: changes[-1]] = (moved[: changes[-1]] + 1) % 3
        return moved

    monkeypatch.setattr(partition, "moved_labels", scripted)
    label_propagation_partition(some_edges(nodes=5000), nodes=5000, shards=3, seed=0)
    assert changes == [900, 5, 4]
    changes.clear()
    label_propagation_partition(some_edges(nodes=5000), nodes=5000, shards=3, seed=0, iterations=2)
    assert changes == [900, 5]


def test_those_with_most_neighbours_to_join_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    supports: list[Any] = []

    def recorded(*args: Any, **options: Any) -> Any:
        preferred, support = preferred_labels(*args, **options)
        supports.append(support)
        return preferred, support

    def compared(labels: Any, preferred: Any, order: Any, **options: Any) -> Any:
        movers = np.flatnonzero(preferred != labels)
        expected = sorted(movers.tolist(), key=lambda node: (-supports[-1][node], node))
        assert order.tolist() == expected
        assert len(set(supports[-1][movers].tolist())) > 1
        return moved_labels(labels, preferred, order, **options)

    monkeypatch.setattr(partition, "preferred_labels", recorded)
    monkeypatch.setattr(partition, "moved_labels", compared)
    label_propagation_partition(some_edges(), nodes=NODES, shards=SHARDS, seed=0, iterations=3)
    assert len(supports) == 3


def test_wishes_are_the_most_frequent_labels_of_the_neighbours() -> None:
    edges = some_edges(count=700)
    adjacency = adjacency_matrix(edges, NODES)
    assert (adjacency != adjacency.T).nnz == 0
    assert adjacency.diagonal().sum() == 0
    assert adjacency.max() == 1
    labels = np.random.default_rng(0).integers(0, 4, NODES)
    neighbours = [labels[np.flatnonzero(row)] for row in adjacency.toarray()]
    assert any(held.size == 0 for held in neighbours)
    chosen: list[set[int]] = [set() for _ in range(NODES)]
    for seed in range(60):
        generator = np.random.default_rng(seed)
        preferred, support = preferred_labels(adjacency, labels, shards=4, generator=generator)
        for node, held in enumerate(neighbours):
            most = np.bincount(held, minlength=4).max()
            assert support[node] == most
            assert preferred[node] == labels[node] if most == 0 else (held == preferred[node]).sum() == most
            chosen[node].add(int(preferred[node]))
    for node, held in enumerate(neighbours):  # every tied label has its turn
        counts = np.bincount(held, minlength=4)
        best = {int(labels[node])} if not held.size else set(np.flatnonzero(counts == counts.max()).tolist())
        assert chosen[node] == best


def test_a_free_place_goes_to_the_first_who_waits_and_so_on() -> None:
    labels = np.array([0, 0, 1, 1, 2])  # room for two: shards 0 and 1 are full
    preferred = np.array([1, 0, 2, 0, 2])
    # 3 waits for 0, 0 waits for 1, then 2 goes to 2: its place in 1 goes to 0, whose place in 0 goes to 3
    moved = moved_labels(labels, preferred, np.array([3, 0, 2]), shards=3, max_size=2)
    assert moved.tolist() == [1, 0, 2, 0, 2]
    assert labels.tolist() == [0, 0, 1, 1, 2]
    first = moved_labels(np.array([0, 1, 1, 2]), np.array([3, 0, 0, 2]), np.array([2, 1, 0]), shards=4, max_size=1)
    assert first.tolist() == [3, 1, 0, 2]  # 2 stood before 1


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, shards=st.integers(1, 6), spare=st.integers(0, 3))
def test_who_does_not_move_found_no_place(seed: int, shards: int, spare: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(40) % shards)
    preferred = generator.integers(0, shards, 40)
    max_size = -(-40 // shards) + spare
    order = generator.permutation(np.flatnonzero(preferred != labels))
    moved = moved_labels(labels, preferred, order, shards=shards, max_size=max_size)
    counts = np.bincount(moved, minlength=shards)
    assert counts.max() <= max_size
    stayed = moved == labels
    assert (moved[~stayed] == preferred[~stayed]).all()
    assert (counts[preferred[stayed & (preferred != labels)]] == max_size).all()


# balanced k-means


def greedy_sweep(distances: np.ndarray, max_size: int) -> np.ndarray:
    """All (distance, node, centroid) in order, each taken if the node is free and the centroid has a place."""
    nodes, shards = distances.shape
    pairs = sorted((distances[node, shard], node, shard) for node in range(nodes) for shard in range(shards))
    labels, places = np.full(nodes, -1), [max_size] * shards
    for _, node, shard in pairs:
        if labels[node] < 0 and places[shard]:
            labels[node] = shard
            places[shard] -= 1
    return labels


@settings(max_examples=120, deadline=None)
@given(
    seed=SEEDS, nodes=st.integers(1, 40), shards=st.integers(1, 8), spare=st.integers(0, 4), values=st.integers(1, 9)
)
def test_deferred_acceptance_is_the_greedy_sweep(seed: int, nodes: int, shards: int, spare: int, values: int) -> None:
    generator = np.random.default_rng(seed)
    max_size = -(-nodes // shards) + spare
    for distances in (
        generator.random((nodes, shards)),
        generator.integers(0, values, (nodes, shards)).astype(float),  # full of ties
        np.sort(generator.random((nodes, shards)), axis=1),  # every node ranks the centroids alike
        cdist(generator.integers(0, 3, (nodes, 2)), generator.integers(0, 3, (shards, 2)), "sqeuclidean"),
    ):
        before = distances.copy()
        assert np.array_equal(balanced_assignment(distances, max_size=max_size), greedy_sweep(distances, max_size))
        assert np.array_equal(distances, before)


@pytest.mark.parametrize("seed", range(4))
def test_balanced_kmeans_is_the_slow_one(seed: int) -> None:
    points = some_points(seed, nodes=60, columns=2)
    if seed % 2:
        points = points.round()  # duplicate points
    places, max_size = points.numpy(), capacity(60, shards=5, slack=0.02)
    centroids = places[np.random.default_rng(seed).choice(60, size=5, replace=False)]
    expected = np.zeros(60)
    for _ in range(20):
        expected = greedy_sweep(((places[:, None] - centroids) ** 2).sum(axis=2), max_size)
        centroids = np.stack([places[expected == s].mean(axis=0) if s in expected else centroids[s] for s in range(5)])
    result = kmeans_partition(points, shards=5, seed=seed, slack=0.02)
    assert (result.numpy() == expected).mean() == 1


def test_separate_clusters_become_shards() -> None:
    group = torch.arange(90) % 3
    points = some_points(nodes=90) * 0.1 + 100 * torch.eye(3, dtype=torch.float64)[group]
    result = [kmeans_partition(points, shards=3, seed=seed, slack=0.0) for seed in range(3)]
    for labels in result:  # a permutation of the groups
        assert sizes(group * 3 + labels, 9).sort().values.tolist() == [0] * 6 + [30] * 3


def test_it_stops_when_the_centroids_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    def counted(places: Any, labels: Any, centroids: Any) -> Any:
        means = shard_means(places, labels, centroids)
        calls.append(np.array_equal(means, centroids))
        return means

    monkeypatch.setattr(partition, "shard_means", counted)
    kmeans_partition(some_points(nodes=40), shards=2, seed=0, iterations=100)
    assert calls == [False] * (len(calls) - 1) + [True]
    assert 1 < len(calls) < 100
    calls.clear()
    kmeans_partition(some_points(nodes=40), shards=2, seed=0, iterations=1)
    assert calls == [False]


def test_means_of_shards_and_of_empty_ones() -> None:
    places = np.array([[1.0, 0.0], [3.0, 4.0], [5.0, 5.0]])
    means = shard_means(places, np.array([2, 2, 0]), np.array([[9.0, 9.0], [8.0, 7.0], [6.0, 6.0]]))
    assert means.tolist() == [[5.0, 5.0], [8.0, 7.0], [2.0, 2.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
def test_equal_points_fill_the_shards_in_order(dtype: torch.dtype) -> None:
    labels = kmeans_partition(torch.ones(10, 2, dtype=dtype), shards=4, seed=0, slack=0)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_gradients_do_not_matter() -> None:
    points = some_points().requires_grad_()
    assert torch.equal(kmeans_partition(points, shards=SHARDS, seed=0), by_kmeans(0))


# what is refused


EDGES, POINTS = some_edges(nodes=20, count=40), some_points(nodes=20)
BALANCED: dict[str, Callable[..., Tensor]] = {
    "bekm": lambda **options: kmeans_partition(POINTS, **{"shards": 4, "seed": 0} | options),
    "blpa": lambda **options: label_propagation_partition(EDGES, nodes=20, **{"shards": 4, "seed": 0} | options),
}


@pytest.mark.parametrize("partitioner", BALANCED.values(), ids=BALANCED)
@pytest.mark.parametrize(
    "options",
    [
        {"shards": 0},
        {"shards": -1},
        {"shards": 2.5},
        {"shards": True},
        {"shards": 21},
        {"slack": -0.01},
        {"slack": math.nan},
        {"slack": math.inf},
        {"iterations": 0},
        {"iterations": -3},
        {"seed": -1},
        {"seed": 0.5},
    ],
    ids=str,
)
def test_bad_numbers_are_refused(partitioner: Callable[..., Tensor], options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        partitioner(**options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: capacity(-1, shards=2), "number of nodes is -1"),
        (lambda: capacity(4, shards=0), "number of shards is 0"),
        (lambda: capacity(4, shards=2, slack=-1.0), "slack is -1.0"),
        (lambda: random_partition(torch.arange(4), shards=0, seed=0), "number of shards is 0"),
        (lambda: random_partition(torch.arange(4), shards=2, seed=-1), "seed is -1"),
        (lambda: random_partition(torch.arange(4.0), shards=2, seed=0), "whole number a node"),
        (lambda: random_partition(torch.zeros(2, 2, dtype=torch.int64), shards=2, seed=0), "whole number a node"),
        (lambda: random_partition(torch.tensor([3, -2]), shards=2, seed=0), "node number -2 is negative"),
        (lambda: label_propagation_partition(EDGES, nodes=0, shards=1, seed=0), "more than the 0 nodes"),
        (lambda: label_propagation_partition(EDGES, nodes=5, shards=2, seed=0), "an edge names node"),
        (lambda: kmeans_partition(POINTS[0], shards=2, seed=0), "nodes x columns"),
        (lambda: kmeans_partition(POINTS[:, :0], shards=2, seed=0), "nodes x columns"),
        (lambda: kmeans_partition(POINTS.to_sparse_csr(), shards=2, seed=0), "dense"),
        (lambda: kmeans_partition(POINTS / 0, shards=2, seed=0), "NaN or infinity"),
        (lambda: kmeans_partition(POINTS * math.nan, shards=2, seed=0), "NaN or infinity"),
        (lambda: kmeans_partition(POINTS * 1e200, shards=2, seed=0), "values up to"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_the_size_of_physics() -> None:
    nodes, shards = 31_043, 100
    edges = some_edges(nodes=nodes, count=200_000)
    most = capacity(nodes, shards=shards)
    for labels in (
        label_propagation_partition(edges, nodes=nodes, shards=shards, seed=0, iterations=10),
        kmeans_partition(some_points(nodes=nodes, columns=5), shards=shards, seed=0, iterations=10),
    ):
        assert labels.shape == (nodes,)
        assert int(sizes(labels, shards).max()) <= most
    assert random_partition(torch.arange(nodes), shards=shards, seed=0).unique().numel() == shards
