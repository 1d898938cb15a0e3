"""Noise in float64 is rounded to the grid as exact noise would be, whatever the number of weights."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest
import torch

import graphforget as gf
from cases import random_graph
from graphforget.certificates.annex import weights_digest
from graphforget.errors import Mismatch
from graphforget.models.dropout import dropout_mask
from graphforget.privacy import noise as noise_module
from graphforget.privacy.gaussian import noise_error_within_budget
from graphforget.privacy.noise import grid, rounding_tv_bound, with_noise
from graphforget.verification.noise import check_fresh


def counted_exact_points(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The weights whose point is computed with many digits from here on."""
    weights: list[float] = []
    exact = noise_module._exact_point

    def counted(weight: float, bits: np.ndarray, *, sigma: float, step: float) -> float:
        weights.append(weight)
        return exact(weight, bits, sigma=sigma, step=step)

    monkeypatch.setattr(noise_module, "_exact_point", counted)
    return weights


def test_many_digits_decide_as_float64_does_where_that_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight is computed anew with many digits, and comes out where float64 put it."""
    theta = torch.linspace(-30, 30, 200, dtype=torch.float64)
    words = noise_module._random_words(400)
    monkeypatch.setattr(noise_module, "_random_words", lambda count: words[:count])
    plain = with_noise(theta, sigma=0.1)
    monkeypatch.setattr(noise_module, "UNIT", 1.0)  # nothing is sure any more
    calls = counted_exact_points(monkeypatch)
    assert torch.equal(with_noise(theta, sigma=0.1), plain)
    assert calls == theta.tolist()


def test_a_sum_in_the_middle_between_two_points_is_decided_by_more_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same random bits with other further digits can fall on both sides, one step of the grid apart."""
    sigma, calls = 1.0, counted_exact_points(monkeypatch)
    distances = []
    for seed in range(20):
        words = np.random.default_rng(seed).integers(0, 2**64, size=2, dtype=np.uint64)
        z = float(noise_module._normal_of(words.reshape(2, 1))[0])
        theta = torch.tensor([(round(z / grid(sigma)) + 0.5) * grid(sigma) - z], dtype=torch.float64)
        monkeypatch.setattr(noise_module, "_random_words", lambda count, words=words: words)
        points = []
        for further in (b"\x00", b"\xff"):
            monkeypatch.setattr(os, "urandom", lambda count, further=further: further * count)
            points.append(float(with_noise(theta, sigma=sigma)))
        assert calls[-2:] == 2 * theta.tolist()
        distances.append(abs(points[0] - points[1]))
    assert set(distances) == {0.0, grid(sigma)}


@pytest.mark.parametrize("weights", [10**3, 10**5, 10**7])
def test_the_error_leaves_room_for_a_thousand_releases_of_large_models(weights: int) -> None:
    theta = torch.full((weights,), 10.0, dtype=torch.float64)
    error = rounding_tv_bound(theta, sigma=0.05)
    assert noise_error_within_budget(error, epsilon=8.0, delta=1e-9, releases=1000)


@pytest.mark.slow
def test_a_model_of_many_weights_is_certified_with_default_settings() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((60, 4000)) * (rng.random((60, 4000)) < 0.05))
    edges = torch.from_numpy(rng.integers(0, 60, size=(2, 120)))
    graph = gf.Graph.create(x=x.to_sparse_csr(), edges=edges, y=torch.arange(60) % 10)
    trained = gf.train(graph, "sign")
    assert trained.theta.numel() > 10**5
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[7]))
    assert outcome.level == "certified"
    assert gf.verify(outcome.certificate, outcome.trained, outcome.graph, released=outcome.released).checks


def test_weights_that_are_not_on_the_grid_are_noticed() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    outcome = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(nodes=[4]))
    released = outcome.released_theta + 1e-9
    digests = dict(outcome.certificate.digests) | {"released": weights_digest(released)}
    certificate = dataclasses.replace(outcome.certificate, digests=digests)
    with pytest.raises(Mismatch, match="not on the grid"):
        gf.verify(certificate, outcome.trained, outcome.graph, released=released)


@pytest.mark.parametrize("count", [3, 5, 15, 60])
def test_noise_that_is_used_again_is_noticed_in_small_models_too(count: int) -> None:
    noise = torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with pytest.raises(Mismatch, match="correlation 1.00"):
        check_fresh(noise, noise)


@pytest.mark.slow
def test_honest_noise_is_seldom_taken_for_reused() -> None:
    generator = torch.Generator().manual_seed(2)
    alarms = 0
    for _ in range(3000):
        first, second = torch.randn(2, 12, dtype=torch.float64, generator=generator)
        try:
            check_fresh(first, second)
        except Mismatch:
            alarms += 1
    assert alarms <= 12  # 3 are expected


def test_a_tiny_dropout_drops_next_to_nothing() -> None:
    keys = torch.arange(1000)
    for p in (1e-6, 1e-9):
        assert torch.equal(dropout_mask(keys, torch.Size([8]), p=p, dtype=torch.float64), torch.ones(1000, 8).double())
