"""A minimisation that goes on from a checkpoint ends as one that nothing interrupted, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphforget.distributed.checkpoint import Checkpoint
from graphforget.linalg.newton import newton_cg
from graphforget.linalg.solution import Product

KEY = "a" * 64


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
