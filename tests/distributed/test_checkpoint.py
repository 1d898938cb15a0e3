"""A minimisation that goes on from a checkpoint ends as one that nothing interrupted, to the bit."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import graphforget as gf
from distributed_cases import copied, sharded, weights
from graphforget.distributed.checkpoint import Checkpoint
from graphforget.distributed.ranks import Ranks
from graphforget.linalg.newton import newton_cg
from graphforget.linalg.solution import Product
from graphforget.runs import on_ranks as runs_on_ranks
from graphforget.runs.part_server import PartServer
from thread_ranks import ThreadGroup

KEY = "a" * 64
TWO = 2  # steps before the kill


class Quartic:
    """`sum_i (a_i . t - 1)^4 + 0.01 ||t||^2`, which takes several Newton steps."""

    def __init__(self) -> None:
        self.a = torch.randn(30, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def value_and_gradient(self, theta: Tensor) -> tuple[float, Tensor]:
        off = self.a @ theta - 1
        return float((off**4).sum() + 0.01 * theta @ theta), 4 * self.a.T @ off**3 + 0.02 * theta

    def hessian(self, theta: Tensor) -> Product:
        weights = 12 * (self.a @ theta - 1) ** 2
        return lambda v: self.a.T @ (weights * (self.a @ v)) + 0.02 * v


@pytest.mark.parametrize("min_steps", [0, 1])
def test_every_step_is_a_point_to_go_on_from(tmp_path: Path, min_steps: int) -> None:
    place, start = Checkpoint(tmp_path / "point"), torch.zeros(6, dtype=torch.float64)
    points: list[bytes] = []

    def keep(theta: Tensor, steps: int, products: int) -> None:
        place.write(KEY, theta, steps=steps, products=products)
        points.append(place.path.read_bytes())

    given: Any = {"gradient_tolerance": 1e-9, "min_steps": min_steps}
    whole = newton_cg(Quartic(), start, on_point=keep, **given)
    assert whole.steps == len(points) > 3
    for content in points:  # the last one included: no step is taken after it
        place.path.write_bytes(content)
        theta, steps, products = place.read(KEY, like=start)
        resumed = newton_cg(Quartic(), theta, steps_before=steps, products_before=products, **given)
        assert torch.equal(resumed.theta, whole.theta)
        assert (resumed.steps, resumed.products, resumed.status) == (whole.steps, whole.products, whole.status)


def test_a_checkpoint_of_another_minimisation_is_not_used(tmp_path: Path) -> None:
    place, start = Checkpoint(tmp_path / "point"), torch.zeros(6, dtype=torch.float64)
    assert place.read(KEY, like=start) == (start, 0, 0)
    place.write(KEY, torch.ones(6, dtype=torch.float64), steps=3, products=9)
    theta, steps, products = place.read(KEY, like=start)
    assert (theta.tolist(), steps, products) == ([1.0] * 6, 3, 9)
    assert place.read("b" * 64, like=start) == (start, 0, 0)
    assert place.read(KEY, like=torch.zeros(5))[1:] == (0, 0)
    place.write(KEY, torch.full((6,), torch.nan, dtype=torch.float64), steps=3, products=9)
    assert place.read(KEY, like=start) == (start, 0, 0)
    assert place.path.stat().st_mode & 0o777 == 0o600


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


class Recorder:
    """The steps that checkpoints of this process were written at; the process ends after one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[int] = []
        self.ends_at: int | None = None
        write = Checkpoint.write

        def recorded(place: Checkpoint, key: str, point: Tensor, *, steps: int, products: int) -> None:
            write(place, key, point, steps=steps, products=products)
            self.steps.append(steps)
            if steps == self.ends_at:
                raise Killed

        monkeypatch.setattr(Checkpoint, "write", recorded)

    def until(self, steps: int | None) -> None:
        self.steps, self.ends_at = [], steps


def one_rank() -> Ranks:
    """A group of this process alone, as a restart makes it anew."""
    group = ThreadGroup(0, 1, threading.Barrier(1), {})
    return Ranks(group, PartServer(group))


@pytest.mark.parametrize("model", ["sgc", "stacked-gcn"])
def test_a_restarted_training_goes_on_from_the_last_step(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the steps that are left, and ends with the bits of a training that nothing interrupted."""
    graph = gf.synthetic(nodes=300, edges=900, columns=6, classes=4, train=0.6)
    shards, recorder = sharded(graph, tmp_path, 1)[1], Recorder(monkeypatch)
    more: dict[str, Any] = {"epochs": 3, "parts": 2} if model == "stacked-gcn" else {}
    whole, _ = runs_on_ranks.train_on_ranks(one_rank(), shards, model, out=tmp_path / "whole", **more)
    last = recorder.steps[-1]
    assert recorder.steps == list(range(1, last + 1))
    assert last > TWO
    recorder.until(TWO)
    with pytest.raises(Killed):
        runs_on_ranks.train_on_ranks(one_rank(), shards, model, out=tmp_path / "run", **more)
    assert runs_on_ranks.checkpoint_of(tmp_path / "run").path.is_file()
    recorder.until(None)
    trained, _ = runs_on_ranks.train_on_ranks(one_rank(), shards, model, out=tmp_path / "run", **more)
    assert recorder.steps == list(range(TWO + 1, last + 1))
    assert torch.equal(trained.theta, whole.theta)
    assert not runs_on_ranks.checkpoint_of(tmp_path / "run").path.exists()


def test_a_restarted_request_goes_on_from_the_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gf.synthetic(nodes=300, edges=900, columns=6, classes=4, train=0.6)
    shards, recorder = sharded(graph, tmp_path, 1)[1], Recorder(monkeypatch)
    runs_on_ranks.train_on_ranks(one_rank(), shards, "sgc", out=tmp_path / "run")
    given: dict[str, Any] = {"requests": [gf.Request(nodes=list(range(20)))], "request_ids": ["one"]}
    whole, killed = copied(tmp_path, "whole"), copied(tmp_path, "killed")
    recorder.until(None)
    runs_on_ranks.answer_on_ranks(one_rank(), whole, **given)
    last = recorder.steps[-1]
    assert recorder.steps == list(range(1, last + 1))
    recorder.until(1)
    with pytest.raises(Killed):
        runs_on_ranks.answer_on_ranks(one_rank(), killed, **given)
    recorder.until(None)
    runs_on_ranks.answer_on_ranks(one_rank(), killed, **given)
    assert recorder.steps == list(range(2, last + 1))
    assert torch.equal(weights(killed), weights(whole))
    assert not runs_on_ranks.checkpoint_of(killed).path.exists()
