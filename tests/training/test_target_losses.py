"""The losses of labels and of values: derivatives against autograd, constants, names."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from graphforget.training.losses import (
    Logistic,
    Loss,
    OneVsRest,
    SquaredError,
    as_loss,
    is_convex,
    is_recorded,
)

CASES = [Logistic(), SquaredError()]


def drawn(loss: Loss, seed: int, *, rows: int = 9, outputs: int = 3, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, outputs, generator=draw, dtype=torch.float64)
    if loss.targets == "labels":
        return logits, torch.randint(0, 2, (rows, outputs), generator=draw, dtype=torch.int8)
    return logits, scale * torch.randn(rows, outputs, generator=draw, dtype=torch.float64)


def of_torch(loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
    if loss.targets == "labels":
        return functional.binary_cross_entropy_with_logits(logits, y.to(logits), reduction="none").sum(dim=1)
    return functional.mse_loss(logits, y, reduction="none").sum(dim=1) / 2


@settings(max_examples=30, deadline=None)
@given(
    loss=st.sampled_from(CASES),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-3, 1.0, 30.0, 1e6]),
    outputs=st.integers(1, 4),
)
def test_values_gradient_and_curvature_are_those_of_torch(loss: Loss, seed: int, scale: float, outputs: int) -> None:
    logits, y = drawn(loss, seed, outputs=outputs, scale=scale)
    torch.testing.assert_close(loss(logits, y), of_torch(loss, logits, y), rtol=1e-10, atol=1e-12)
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(of_torch(loss, leaf, y).sum(), leaf)
    torch.testing.assert_close(loss.gradient(logits, y), gradient, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(Loss.gradient(loss, logits, y), gradient, rtol=1e-10, atol=1e-12)
    dense = torch.autograd.functional.hessian(lambda z: of_torch(loss, z.view(logits.shape), y).sum(), logits.flatten())
    u = torch.randn(logits.shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    product = loss.curvature(logits, y)(u)
    torch.testing.assert_close(product.flatten(), dense @ u.flatten(), rtol=1e-10, atol=1e-12)
    assert float((u * product).sum()) <= loss.smoothness * float(u.square().sum()) * (1 + 1e-12)


@settings(max_examples=50, deadline=None)
@given(
    loss=st.sampled_from(CASES),
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-3, 1.0, 1e4]),
    target=st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_the_sum_of_gradient_norms_is_bounded(loss: Loss, seed: int, size: float, target: float) -> None:
    """`sum_i q_i ||r_i||` for logits that are at most `q_i norm` long."""
    logits, y = drawn(loss, seed, rows=20)
    y = y * target if loss.targets == "values" else y
    q = torch.rand(20, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
    logits = logits / logits.norm(dim=1, keepdim=True) * (q * size)[:, None]
    largest = loss.steepness_sum(
        float(y.double().norm()), classes=3, total=float(q.sum()), squares=float(q.square().sum()), norm=size
    )
    exact = float((q * loss.gradient(logits, y).norm(dim=1)).sum())
    assert exact <= largest * (1 + 1e-12)
    assert largest <= 100 * exact + 100 * float(q.sum())  # and it is no wild guess


def test_the_gradient_of_labels_is_bounded_and_that_of_values_is_not() -> None:
    assert Logistic().steepness(4) == 2.0
    assert math.isinf(SquaredError().steepness(4))
    logits, y = torch.full((1, 4), 1e4, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.int8)
    assert float(Logistic().gradient(logits, y).norm()) == pytest.approx(2.0)


@pytest.mark.parametrize("loss", CASES, ids=lambda loss: loss.name)
def test_they_are_convex_by_construction_and_made_from_their_names(loss: Loss) -> None:
    assert is_convex(loss)
    assert is_recorded(loss.name)
    assert type(as_loss(loss.name)) is type(loss)
    altered = copy.copy(loss)
    altered.smoothness = 0.0
    assert not is_convex(altered)

    class Own(type(loss)):  # type: ignore[misc]
        pass

    assert not is_convex(Own())
    assert as_loss(Own()).name == f"own {loss.name}"


def test_the_default_follows_from_the_targets() -> None:
    names = {kind: as_loss(None, targets=kind).name for kind in ("classes", "labels", "values")}
    assert names == {"classes": "cross_entropy", "labels": "logistic", "values": "squared_error"}


def test_torchs_binary_loss_becomes_the_built_in_one() -> None:
    assert is_convex(as_loss(nn.BCEWithLogitsLoss()))
    assert not is_convex(as_loss(nn.BCEWithLogitsLoss(pos_weight=torch.ones(2))))


@pytest.mark.parametrize("torchs", [nn.BCEWithLogitsLoss, nn.CrossEntropyLoss])
def test_an_altered_object_of_torch_is_a_loss_of_ones_own(torchs: Any) -> None:
    replaced, hooked = torchs(reduction="none"), torchs(reduction="none")
    replaced.forward = lambda z, y: -z.square().sum(dim=1)
    hooked.register_forward_hook(lambda module, given, losses: -losses)
    assert is_convex(as_loss(torchs(reduction="none")))
    for altered in (replaced, hooked):
        assert as_loss(altered).convexity == "unknown"


def test_one_label_a_node_gives_one_versus_rest() -> None:
    logits, _ = drawn(Logistic(), 1)
    classes = torch.arange(9) % 3
    on = functional.one_hot(classes, 3)
    assert torch.equal(OneVsRest()(logits, classes), Logistic()(logits, on))
    assert torch.equal(OneVsRest().gradient(logits, classes), Logistic().gradient(logits, on))


def test_extreme_logits_leave_them_finite() -> None:
    logits = torch.tensor([[1000.0, -1000.0], [-1000.0, 1000.0]])
    y = torch.tensor([[0, 1], [0, 1]], dtype=torch.int8)
    for values in (Logistic()(logits, y), Logistic().gradient(logits, y), Logistic().curvature(logits, y)(logits)):
        assert torch.isfinite(values).all()
        assert values.dtype == torch.float32
