"""Published scores of values on ranks: their last digits tell nothing of what was deleted."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import graphforget as gf
from graphforget.datasets.sharded_folder import shard
from graphforget.distributed.ranks import Ranks
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.runs.on_ranks import open_graph
from graphforget.runs.part_server import PartServer
from graphforget.training.scores import without_last_digits
from graphforget.training.train import train
from graphforget.unlearning.unlearn import unlearn
from thread_ranks import ThreadGroup

GOES = 17


def opened(graph: gf.Graph, folder: Path) -> DistributedGraph:
    """The graph on one rank, in this process."""
    shard(graph, folder, parts=1)
    group = ThreadGroup(0, 1, threading.Barrier(1), {})
    return open_graph(Ranks(group, PartServer(group)), folder)


def world(seed: int, neighbours: int) -> gf.Graph:
    """A graph with values to predict. The node that goes has so many neighbours, the rest is the same."""
    plain = gf.synthetic(nodes=200, edges=800, columns=4, classes=3, train=0.6)
    edges = [edge for edge in plain.edge_index.T.tolist() if GOES not in edge]
    own = [[GOES, 20 + 4 * number] for number in range(neighbours)]
    y = torch.from_numpy(np.random.default_rng(seed).normal(size=(200, 2)))
    train_mask = plain.train_mask.clone()
    train_mask[GOES] = True
    return gf.Graph.create(
        x=plain.x.double(),
        edges=torch.tensor(edges + own).T,
        y=y,
        train_mask=train_mask,
        test_mask=~train_mask,
    )


@pytest.mark.parametrize("neighbours", [0, 10])
def test_a_published_score_is_that_of_fresh_features(neighbours: int, tmp_path: Path) -> None:
    """Features that followed the deletion have other last digits, if the node had neighbours."""
    request = gf.Request(nodes=[GOES])
    for seed in range(4):
        graph, place = world(seed, neighbours), tmp_path / str(seed)
        before = opened(graph, place / "before")
        trained = train(before, "sign", sigma=0.05)
        before.look_up([GOES])
        outcome = unlearn(trained, before, request)
        published = {name: outcome.public()[f"test_{name}"]["released"] for name in ("r2", "rmse")}
        after = opened(graph.without(request), place / "after")
        assert after.digest == outcome.graph.digest
        fresh = train(after, "sign", sigma=0.05).released(outcome.released_theta, after, noise=0.05)
        assert fresh.scores(after) == published


def test_shares_of_right_answers_are_not_rounded() -> None:
    found = {"micro_f1": 1 / 3, "macro_f1": 2 / 3, "r2": -0.12345678, "rmse": 1234.5678}
    assert without_last_digits(found) == found | {"r2": -0.123457, "rmse": 1234.57}
