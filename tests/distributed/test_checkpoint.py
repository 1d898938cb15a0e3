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
from graphforget.runs.locks import try_lock
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


def one_rank(*, restarts: int = 0) -> Ranks:
    """A group of this process alone, as a restart makes it anew."""
    group = ThreadGroup(0, 1, threading.Barrier(1), {})
    group.restarts = restarts
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


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two runs of other graphs, with their parts."""
    for seed in (0, 1):
        graph = gf.synthetic(nodes=300, edges=900, columns=6, classes=4, train=0.6, seed=seed)
        (tmp_path / str(seed)).mkdir()
        shards = sharded(graph, tmp_path / str(seed), 1)[1]
        runs_on_ranks.train_on_ranks(one_rank(), shards, "sgc", out=tmp_path / f"run-{seed}")
    return tmp_path


def test_a_restarted_training_takes_no_other_run_for_its_own(two: Path) -> None:
    """A rank may die before the place of the run was looked at, and after the run was saved."""
    before = weights(two / "run-0")
    others: list[tuple[Path, dict[str, Any]]] = [
        (two / "1", {}),
        (two / "0", {"mu": 0.01}),
        (two / "0", {"epsilon": 2.0}),
    ]
    for data, settings in others:
        with pytest.raises(gf.InputError, match="exists already"):
            runs_on_ranks.train_on_ranks(one_rank(restarts=1), data / "shards-1", "sgc", out=two / "run-0", **settings)
        assert torch.equal(weights(two / "run-0"), before)
    trained, _ = runs_on_ranks.train_on_ranks(one_rank(restarts=1), two / "0" / "shards-1", "sgc", out=two / "run-0")
    assert torch.equal(trained.theta, before)
    assert sorted(path.name for path in two.iterdir()) == ["0", "1", "run-0", "run-0.parts", "run-1", "run-1.parts"]


def test_a_restarted_request_starts_from_its_run_and_not_from_what_it_replaces(two: Path) -> None:
    given: dict[str, Any] = {"requests": [gf.Request(nodes=[7])], "request_ids": ["one"]}
    runs_on_ranks.answer_on_ranks(one_rank(), two / "run-0", out=two / "expected", **given)
    more: dict[str, Any] = given | {"out": two / "run-1", "force": True}
    (answer,) = runs_on_ranks.answer_on_ranks(one_rank(restarts=1), two / "run-0", **more)
    assert not answer.repeated
    assert torch.equal(weights(two / "run-1"), weights(two / "expected"))
    (again,) = runs_on_ranks.answer_on_ranks(one_rank(restarts=1), two / "run-0", **more)
    assert again.repeated


def test_an_answer_at_another_place_is_repeated_by_its_id(two: Path) -> None:
    """Also what a kill after the commit left of the parts that were replaced is removed then."""
    given: dict[str, Any] = {"requests": [gf.Request(nodes=[7])], "request_ids": ["one"], "out": two / "next"}
    (first,) = runs_on_ranks.answer_on_ranks(one_rank(), two / "run-0", **given)
    left = two / "next.parts" / "0123456789abcdef" / "part-0000"
    left.mkdir(parents=True)
    (again,) = runs_on_ranks.answer_on_ranks(one_rank(), two / "run-0", **given)
    assert (first.repeated, again.repeated, again.folder) == (False, True, two / "next")
    assert not left.exists()
    assert len(list((two / "next.parts").iterdir())) == 1
    with pytest.raises(gf.InputError, match="exists already"):
        runs_on_ranks.answer_on_ranks(one_rank(), two / "run-1", **given)


def test_nobody_changes_the_parts_of_a_run_while_it_is_answered_elsewhere(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens the parts erases the journal of a change that is not committed yet."""
    locked: list[bool] = []

    def looked(*_: Any, **__: Any) -> None:
        with pytest.raises(gf.InputError), try_lock(two / "run-0", "locked"):
            pass
        locked.append(True)
        raise Killed

    monkeypatch.setattr(runs_on_ranks, "unlearn", looked)
    with pytest.raises(Killed):
        runs_on_ranks.answer_on_ranks(one_rank(), two / "run-0", [gf.Request(nodes=[7])], out=two / "next")
    assert locked == [True]
