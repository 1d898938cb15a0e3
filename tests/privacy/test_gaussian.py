"""Exact Gaussian accounting against quadrature, 80-digit arithmetic and Google's dp-accounting."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import erfcx, ndtri

from graphforget.errors import InputError
from graphforget.privacy import noise as noise_module
from graphforget.privacy.gaussian import (
    ROUNDING_SHARE,
    _mills,
    composed_ratio,
    delta_of,
    epsilon_of,
    exact_sigma,
    mu_gdp,
    noise_error_within_budget,
    paper_sigma,
    release_ratio,
    tolerance,
)
from graphforget.privacy.noise import grid, noise, rounding_tv_bound, with_noise

NAN, INF = float("nan"), float("inf")


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def by_quadrature(ratio: float, epsilon: float) -> float:
    """The hockey-stick divergence `integral of max(0, p - e^eps q)`, `p` and `q` being N(r, 1) and N(0, 1)."""

    def excess(x: float) -> float:
        return max(0.0, math.exp(-((x - ratio) ** 2) / 2) - math.exp(epsilon - x * x / 2)) / math.sqrt(2 * math.pi)

    crossing = ratio / 2 + epsilon / ratio
    points = [p for p in (crossing, ratio, crossing + 1) if p < ratio + 12]
    return integrate.quad(excess, -12, ratio + 12, points=points, epsabs=1e-14, epsrel=1e-10, limit=500)[0]


def in_80_digits(ratio: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(80):
        r, e = mpmath.mpf(ratio), mpmath.mpf(epsilon)
        upper, lower = (mpmath.erfc(x / mpmath.sqrt(2)) / 2 for x in (e / r - r / 2, e / r + r / 2))
        return upper - mpmath.exp(e) * lower


def test_known_values() -> None:
    assert f"{mu_gdp(epsilon=1, delta=1e-4):.5f}" == "0.31390"
    assert f"{mu_gdp(epsilon=1, delta=1e-5):.5f}" == "0.26805"


@pytest.mark.parametrize(
    ("ratio", "epsilon"),
    [(0.01, 0.0), (0.01, 0.01), (0.3, 0.5), (0.3, 1.0), (1, 0.0), (1, 1.0), (1, 5.0), (3, 5.0), (10, 40.0), (10, 70.0)],
)
def test_delta_by_quadrature(ratio: float, epsilon: float) -> None:
    result = delta_of(ratio=ratio, epsilon=epsilon)
    assert result > 1e-9
    assert result == pytest.approx(by_quadrature(ratio, epsilon), rel=1e-8, abs=1e-14)


@pytest.mark.parametrize(("ratio", "delta"), [(0.05, 1e-3), (0.3, 1e-5), (1, 1e-4), (3, 1e-6), (10, 0.3)])
def test_epsilon_by_quadrature(ratio: float, delta: float) -> None:
    result = epsilon_of(ratio=ratio, delta=delta)
    assert by_quadrature(ratio, result) == pytest.approx(delta, rel=1e-7)


@pytest.mark.parametrize("delta", [1e-2, 1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 5.0, 50.0])
def test_ratio_by_dp_accounting(epsilon: float, delta: float) -> None:
    assert mu_gdp(epsilon=epsilon, delta=delta) == pytest.approx(1 / get_sigma_gaussian(epsilon, delta), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-6])
@pytest.mark.parametrize("ratio", [0.05, 0.3, 1.0, 3.0, 20.0, 100.0])
def test_epsilon_by_dp_accounting(ratio: float, delta: float) -> None:
    assert epsilon_of(ratio=ratio, delta=delta) == pytest.approx(get_epsilon_gaussian(1 / ratio, delta), rel=1e-9)


@pytest.mark.slow
def test_several_releases_by_dp_accounting() -> None:
    """Its privacy loss distributions know nothing of a composed ratio."""
    ratios, delta = (0.1, 0.2, 0.05, 0.15), 1e-5
    parts = [from_gaussian_mechanism(1 / ratio, value_discretization_interval=1e-5) for ratio in ratios]
    together = functools.reduce(lambda a, b: a.compose(b), parts).get_epsilon_for_delta(delta)
    assert epsilon_of(ratio=composed_ratio(ratios), delta=delta) == pytest.approx(together, rel=1e-3)


@settings(max_examples=200, deadline=None)
@given(place=st.floats(0.5, 1, exclude_max=True), scale=st.integers(1, 55))
def test_a_draw_is_right_to_eight_units(place: float, scale: int) -> None:
    """What `rounding_tv_bound` takes for granted of scipy's inverse of the normal distribution."""
    with mpmath.workdps(40):
        u = place * 2.0**-scale
        result = float(ndtri(u))
        exact = mpmath.mpf(result)
        for _ in range(3):
            exact -= (mpmath.ncdf(exact) - mpmath.mpf(u)) / mpmath.npdf(exact)
        assert abs(mpmath.mpf(result) - exact) <= 8 * 2.0**-53 * (1 + abs(exact))


@pytest.mark.parametrize("sigma", [1e-3, 0.05, 0.1, 3.0])
def test_noise_is_rounded_to_a_grid_after_it_was_added(sigma: float) -> None:
    theta = torch.linspace(-3, 3, 50_000, dtype=torch.float64)
    released = with_noise(theta, sigma=sigma, seed=1)
    step = grid(sigma)
    assert sigma / 32 <= step <= sigma / 16
    assert math.log2(step) == round(math.log2(step))
    assert torch.equal(torch.remainder(released, step), torch.zeros_like(released))
    assert float((released - theta - noise(size=50_000, sigma=sigma, seed=1)).abs().max()) <= step / 2 * (1 + 1e-9)
    assert float((released - theta).std()) == pytest.approx(sigma, rel=0.02)
    assert 0 < rounding_tv_bound(theta, sigma=sigma) < 1e-6
    assert rounding_tv_bound(theta, sigma=sigma / 1000) > rounding_tv_bound(theta, sigma=sigma)


@settings(max_examples=300, deadline=None)
@given(ratio=powers(-9, 6), normal=st.floats(-30, 8))
def test_delta_in_80_digits_over_its_whole_range(ratio: float, normal: float) -> None:
    """`normal` is where `Phi` is taken, so that delta is neither 0 nor 1 however large the ratio."""
    epsilon = max(0.0, ratio * (ratio / 2 - normal))
    assert delta_of(ratio=ratio, epsilon=epsilon) == pytest.approx(float(in_80_digits(ratio, epsilon)), rel=1e-8)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(ratio=powers(-12, 12), epsilon=powers(-12, 12), more=powers(-3, 3))
def test_delta_grows_with_the_ratio_and_falls_with_epsilon(ratio: float, epsilon: float, more: float) -> None:
    delta = delta_of(ratio=ratio, epsilon=epsilon)
    assert 0 <= delta <= 1
    assert delta_of(ratio=ratio * (1 + more), epsilon=epsilon) >= delta
    assert delta_of(ratio=ratio, epsilon=epsilon * (1 + more)) <= delta
    if 1e-290 < delta < 0.99:
        assert delta_of(ratio=ratio * (1 + more), epsilon=epsilon) > delta
        assert epsilon < 1e-3 or delta_of(ratio=ratio, epsilon=epsilon * (1 + more)) < delta


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(epsilon=powers(-10, 12), delta=powers(-200, -0.05))
def test_the_largest_ratio_is_safe_and_no_smaller_than_need_be(epsilon: float, delta: float) -> None:
    ratio = mu_gdp(epsilon=epsilon, delta=delta)
    assert delta_of(ratio=ratio, epsilon=epsilon) <= delta
    assert in_80_digits(ratio, epsilon) <= delta
    assert in_80_digits(ratio * (1 + 1e-11), epsilon) > delta


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(ratio=powers(-8, 5), delta=powers(-200, -0.05))
def test_the_implied_epsilon_is_safe_and_no_larger_than_need_be(ratio: float, delta: float) -> None:
    epsilon = epsilon_of(ratio=ratio, delta=delta)
    assert delta_of(ratio=ratio, epsilon=epsilon) <= delta
    assert in_80_digits(ratio, epsilon) <= delta
    if epsilon > 0:
        below = epsilon * (1 - 1e-11) - 1e-11 * ratio  # at a tiny epsilon delta hardly depends on it
        assert delta_of(ratio=ratio, epsilon=max(0.0, below)) > delta


def in_60_digits(ratio: float, epsilon: float, delta: float) -> bool:
    """Whether delta is enough, with 60 digits beside those that cancel."""
    with mpmath.workdps(60 + math.ceil(abs(math.log10(ratio)) + 3 * max(0.0, math.log10(ratio + epsilon / ratio)))):
        r, e = mpmath.mpf(ratio), mpmath.mpf(epsilon)
        return bool(mpmath.ncdf(r / 2 - e / r) - mpmath.exp(e) * mpmath.ncdf(-r / 2 - e / r) <= mpmath.mpf(delta))


@settings(max_examples=300, deadline=None)
@given(epsilon=powers(-15, 15), delta=powers(-300, -1e-3))
def test_the_largest_ratio_is_rounded_down(epsilon: float, delta: float) -> None:
    ratio = mu_gdp(epsilon=epsilon, delta=delta)
    assert in_60_digits(ratio, epsilon, delta)
    assert not in_60_digits(ratio * (1 + 1e-11), epsilon, delta)


@settings(max_examples=300, deadline=None)
@given(ratio=powers(-10, 8), delta=powers(-300, -1e-3))
def test_the_implied_epsilon_is_rounded_up(ratio: float, delta: float) -> None:
    assert in_60_digits(ratio, epsilon_of(ratio=ratio, delta=delta), delta)


@settings(max_examples=300, deadline=None)
@given(ratio=powers(-9, 0.5), nearness=powers(-16, -1))
def test_an_epsilon_near_zero_is_rounded_up(ratio: float, nearness: float) -> None:
    """Delta hardly depends on such an epsilon, and float64 cannot tell on which side of it a delta is."""
    delta = delta_of(ratio=ratio, epsilon=0.0) * (1 - nearness)
    assert in_60_digits(ratio, epsilon_of(ratio=ratio, delta=delta), delta)
    assert epsilon_of(ratio=ratio, delta=delta) < 10 * ratio * nearness + 1e-14


def test_delta_against_scipy_in_both_tails() -> None:
    """By `erfcx`, which scipy has: from delta near 1 down to 1e-300."""
    for ratio, normal in itertools.product(np.logspace(-2, 3, 26), np.linspace(-37, 8, 91)):
        epsilon = max(0.0, float(ratio * (ratio / 2 - normal)))
        a, b = ratio / 2 - epsilon / ratio, ratio / 2 + epsilon / ratio
        if a > 1:
            expected = stats.norm.cdf(a) - stats.norm.pdf(a) * math.sqrt(math.pi / 2) * erfcx(b / math.sqrt(2))
        else:
            gap = erfcx(-a / math.sqrt(2)) - erfcx(b / math.sqrt(2))
            expected = stats.norm.pdf(a) * math.sqrt(math.pi / 2) * gap
        assert delta_of(ratio=float(ratio), epsilon=epsilon) == pytest.approx(float(expected), rel=1e-11)


@settings(max_examples=300, deadline=None)
@given(ratio=powers(-9, 3), normal=st.floats(-37, 8))
def test_delta_is_right_to_eleven_digits(ratio: float, normal: float) -> None:
    """Where rounding its arguments costs none of them: a larger ratio loses one more for each power of ten."""
    epsilon = max(0.0, ratio * (ratio / 2 - normal))
    allowed = 1e-11 + 2.0**-50 * (1 + abs(normal)) * (ratio + epsilon / ratio)
    exact = in_80_digits(ratio, epsilon)
    assert abs(mpmath.mpf(delta_of(ratio=ratio, epsilon=epsilon)) - exact) <= allowed * exact


@settings(max_examples=300, deadline=None)
@given(x=st.floats(-1, 45))
def test_mills_ratio_is_right_to_eight_units(x: float) -> None:
    with mpmath.workdps(60):
        z = mpmath.mpf(x)
        exact = mpmath.ncdf(-z) / mpmath.npdf(z)
        assert abs(mpmath.mpf(_mills(x)) - exact) <= 8 * 2.0**-53 * exact


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(epsilon=powers(-3, 6), delta=powers(-12, -1), zeta=powers(-9, 9))
def test_round_trips(epsilon: float, delta: float, zeta: float) -> None:
    ratio = mu_gdp(epsilon=epsilon, delta=delta)
    assert epsilon_of(ratio=ratio, delta=delta) == pytest.approx(epsilon, rel=1e-9)
    assert delta_of(ratio=ratio, epsilon=epsilon) == pytest.approx(delta, rel=1e-6)
    sigma = exact_sigma(zeta=zeta, epsilon=epsilon, delta=delta)
    assert sigma * ratio == pytest.approx(zeta, rel=1e-12)
    assert delta_of(ratio=zeta / sigma, epsilon=epsilon) <= delta


@pytest.mark.parametrize("ratio", [1e3, 1e5, 1e100])
def test_a_large_ratio_implies_a_large_epsilon(ratio: float) -> None:
    assert delta_of(ratio=ratio, epsilon=1) == 1
    # The privacy loss is N(r^2/2, r^2): delta is below, but near, the chance that it exceeds epsilon.
    quantile = ratio * (ratio / 2 + 4.264890793922825)
    assert (1 - 1e-5) * quantile < epsilon_of(ratio=ratio, delta=1e-5) < (1 + 1e-11) * quantile


@pytest.mark.parametrize("ratio", [1e-6, 1e-9, 1e-100, 1e-320])
def test_a_tiny_ratio_implies_none(ratio: float) -> None:
    assert epsilon_of(ratio=ratio, delta=1e-5) == 0
    assert delta_of(ratio=ratio, epsilon=1) == 0
    assert delta_of(ratio=ratio, epsilon=0) == pytest.approx(ratio / math.sqrt(2 * math.pi), rel=1e-3)


def test_the_ends() -> None:
    assert delta_of(ratio=0, epsilon=0) == 0
    assert delta_of(ratio=INF, epsilon=1e12) == 1
    assert delta_of(ratio=1e12, epsilon=1e12) == 1
    assert delta_of(ratio=1, epsilon=1e12) == 0
    assert epsilon_of(ratio=0, delta=1e-5) == 0
    assert epsilon_of(ratio=INF, delta=1e-5) == INF
    assert epsilon_of(ratio=1e200, delta=1e-5) == INF  # no double is large enough
    assert exact_sigma(zeta=0, epsilon=1, delta=1e-5) == 0
    assert paper_sigma(zeta=0, epsilon=1, delta=1e-5) == 0
    for epsilon in (5e-324, 1e308):
        for delta in (5e-324, 1 - 2**-53):
            assert 0 < mu_gdp(epsilon=epsilon, delta=delta) < INF


def test_the_papers_sigma() -> None:
    assert paper_sigma(zeta=2, epsilon=0.5, delta=1e-4) == pytest.approx(4 * 4.344, rel=1e-4)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(epsilon=powers(-6, -1e-9), delta=powers(-100, -0.01))
def test_the_papers_sigma_is_enough_where_it_is_proven(epsilon: float, delta: float) -> None:
    assert paper_sigma(zeta=1, epsilon=epsilon, delta=delta) >= exact_sigma(zeta=1, epsilon=epsilon, delta=delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(7, 0.01), (9, 1e-4), (10, 1e-5), (100, 1e-5)])
def test_the_papers_sigma_is_too_small_for_a_large_epsilon(epsilon: float, delta: float) -> None:
    sigma = paper_sigma(zeta=1, epsilon=epsilon, delta=delta)
    assert delta_of(ratio=1 / sigma, epsilon=epsilon) > 1.01 * delta
    assert by_quadrature(1 / sigma, epsilon) > 1.01 * delta


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(epsilon=powers(-3, 1.5), delta=powers(-12, -2), releases=st.integers(1, 1000))
def test_all_releases_at_the_tolerance_together_keep_epsilon_and_delta(
    epsilon: float, delta: float, releases: int
) -> None:
    """With the share of delta that is set aside for rounding left over, and not much more."""
    ratio = release_ratio(epsilon=epsilon, delta=delta, releases=releases)
    assert tolerance(sigma=0.3, epsilon=epsilon, delta=delta, releases=releases) == 0.3 * ratio
    together = composed_ratio([ratio] * releases)
    left = (1 - ROUNDING_SHARE) * delta
    assert delta_of(ratio=together * (1 - 1e-12), epsilon=epsilon) <= left
    assert delta_of(ratio=together * (1 + 1e-6), epsilon=epsilon) > left * (1 - 1e-9)
    assert delta_of(ratio=composed_ratio([ratio] * (2 * releases)), epsilon=epsilon) > delta


def test_at_least_one_release_is_needed() -> None:
    for needs_releases in (release_ratio, functools.partial(tolerance, sigma=1.0)):
        with pytest.raises(InputError, match="^the number of releases is 0, at least 1 is needed$"):
            needs_releases(epsilon=1.0, delta=0.1, releases=0)


def test_one_release_is_the_default() -> None:
    assert release_ratio(epsilon=1, delta=1e-5) == mu_gdp(epsilon=1, delta=1e-5 * 15 / 16)
    assert release_ratio(epsilon=1, delta=1e-5, releases=64) == release_ratio(epsilon=1, delta=1e-5) / 8


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 20.0])
@pytest.mark.parametrize("releases", [1, 64])
def test_the_error_of_the_noise_must_fit_into_its_share_of_delta(epsilon: float, releases: int) -> None:
    """`T` draws that are each `t` from Gaussian cost `(1 + e^eps) T t` of delta."""
    delta = 1e-5
    largest = delta / 16 / (1 + math.exp(epsilon)) / releases
    assert noise_error_within_budget(largest * 0.999, epsilon=epsilon, delta=delta, releases=releases)
    assert not noise_error_within_budget(largest * 1.001, epsilon=epsilon, delta=delta, releases=releases)
    assert noise_error_within_budget(0.0, epsilon=1e6, delta=delta, releases=releases)
    assert not noise_error_within_budget(1e-300, epsilon=1e6, delta=delta, releases=releases)


def test_composition() -> None:
    assert composed_ratio([3, 4, 12]) == 13
    assert composed_ratio(iter([0.3])) == 0.3
    assert composed_ratio([]) == 0
    assert composed_ratio([1, INF]) == INF
    assert composed_ratio([0.1] * 100) == pytest.approx(1)
    # Two releases together: N(0, I) against N((r, s), I) is one Gaussian along the line between the means.
    r, s, epsilon = 0.6, 0.9, 1.0

    def given_the_first(x: float) -> float:
        """Seeing `x` in the first release leaves the second to make up for the rest of epsilon."""
        left = epsilon - (r * x - r * r / 2)
        second = float(stats.norm.cdf(s / 2 - left / s) - math.exp(left) * stats.norm.cdf(-s / 2 - left / s))
        return float(stats.norm.pdf(x - r)) * second

    together = integrate.quad(given_the_first, -10, 10, epsabs=1e-12)[0]
    assert delta_of(ratio=composed_ratio([r, s]), epsilon=epsilon) == pytest.approx(together, rel=1e-8)


def test_seeded_noise_is_normal() -> None:
    sample = noise(size=200_000, sigma=2.5, seed=7)
    assert sample.dtype == torch.float64
    assert sample.shape == (200_000,)
    assert abs(float(sample.mean())) < 4 * 2.5 / math.sqrt(200_000)
    assert float(sample.var()) == pytest.approx(6.25, rel=0.015)
    assert stats.kstest(sample.numpy() / 2.5, "norm").pvalue > 1e-3


def test_unseeded_noise_is_normal() -> None:
    """Drawn anew every time: a right sampler fails this about once in 10^8 runs."""
    sample = noise(size=100_000, sigma=0.5).numpy() / 0.5
    assert stats.kstest(sample, "norm").pvalue > 1e-8
    assert abs(sample.mean()) < 6 / math.sqrt(100_000)
    assert abs(sample.var() - 1) < 6 * math.sqrt(2 / 100_000)
    assert abs(np.corrcoef(np.sign(sample), np.abs(sample))[0, 1]) < 6 / math.sqrt(100_000)
    assert abs(np.corrcoef(sample[1:], sample[:-1])[0, 1]) < 6 / math.sqrt(100_000)


def test_noise_repeats_by_seed_only() -> None:
    assert torch.equal(noise(size=50, sigma=1, seed=3), noise(size=50, sigma=1, seed=3))
    assert not torch.equal(noise(size=50, sigma=1, seed=3), noise(size=50, sigma=1, seed=4))
    state = np.random.get_state()  # noqa: NPY002  the global generator must have no say
    first = noise(size=50, sigma=1)
    np.random.set_state(state)  # noqa: NPY002
    torch.manual_seed(0)
    assert not torch.equal(first, noise(size=50, sigma=1))


def test_noise_of_no_size() -> None:
    assert torch.equal(noise(size=4, sigma=0), torch.zeros(4, dtype=torch.float64))
    assert torch.equal(noise(size=4, sigma=0, seed=1), torch.zeros(4, dtype=torch.float64))
    assert noise(size=0, sigma=1).shape == (0,)


def test_unseeded_noise_has_a_key_of_the_operating_systems_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever knew the key would know the noise: it is 256 bits long and never the same."""
    asked: list[int] = []

    def urandom(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    monkeypatch.setattr(os, "urandom", urandom)
    assert torch.equal(noise(size=50, sigma=1), noise(size=50, sigma=1))
    assert asked == [32, 32]
    monkeypatch.setattr(os, "urandom", lambda n: bytes([1, *bytes(n - 1)]))
    other = noise(size=50, sigma=1)
    monkeypatch.undo()
    drawn = [noise(size=50, sigma=1) for _ in range(3)] + [other]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(drawn, 2))


def test_unseeded_noise_is_finite_for_every_random_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [0, 1, 2**64 - 1, 2**64 - 2]  # the two ends of a scale, with either sign
    scales = [0, 0, 2**64 - 1, 2**64 - 1]  # the smallest and the largest
    monkeypatch.setattr(noise_module, "_random_words", lambda count: np.array(words + scales, dtype=np.uint64)[:count])
    far, far_below, near_below, near = noise(size=4, sigma=1).tolist()
    assert far == -far_below == pytest.approx(float(stats.norm.isf(2.0**-55)))
    assert 0 <= near == -near_below < 1e-15


def test_unseeded_noise_has_all_its_digits_in_the_tails() -> None:
    """A uniform number of 53 bits has neighbours 1e-7 apart there, as normal numbers: they would show in a release."""
    drawn = noise(size=200_000, sigma=1).numpy()
    far = np.abs(drawn[np.abs(drawn) > 3.5])
    assert far.size > 30
    places = stats.norm.sf(far) * 2.0**53
    assert np.abs(places - np.round(places)).max() > 1e-3  # none of the 2^53 places that a plain uniform number has
    assert stats.kstest(drawn, "norm").pvalue > 1e-6


BAD: dict[str, Callable[[], object]] = {
    "delta_of a negative ratio": lambda: delta_of(ratio=-1, epsilon=1),
    "delta_of no ratio": lambda: delta_of(ratio=NAN, epsilon=1),
    "delta_of a negative epsilon": lambda: delta_of(ratio=1, epsilon=-1e-9),
    "delta_of no epsilon": lambda: delta_of(ratio=1, epsilon=NAN),
    "delta_of infinite epsilon": lambda: delta_of(ratio=1, epsilon=INF),
    "mu_gdp zero epsilon": lambda: mu_gdp(epsilon=0, delta=0.1),
    "mu_gdp infinite epsilon": lambda: mu_gdp(epsilon=INF, delta=0.1),
    "mu_gdp zero delta": lambda: mu_gdp(epsilon=1, delta=0),
    "mu_gdp delta of one": lambda: mu_gdp(epsilon=1, delta=1),
    "mu_gdp no delta": lambda: mu_gdp(epsilon=1, delta=NAN),
    "epsilon_of a negative ratio": lambda: epsilon_of(ratio=-1, delta=0.1),
    "epsilon_of no ratio": lambda: epsilon_of(ratio=NAN, delta=0.1),
    "epsilon_of zero delta": lambda: epsilon_of(ratio=1, delta=0),
    "exact_sigma a negative distance": lambda: exact_sigma(zeta=-1, epsilon=1, delta=0.1),
    "exact_sigma zero epsilon, no distance": lambda: exact_sigma(zeta=0, epsilon=0, delta=0.1),
    "paper_sigma no distance": lambda: paper_sigma(zeta=NAN, epsilon=1, delta=0.1),
    "paper_sigma zero epsilon": lambda: paper_sigma(zeta=1, epsilon=0, delta=0.1),
    "paper_sigma delta above one": lambda: paper_sigma(zeta=1, epsilon=1, delta=1.1),
    "release_ratio half a release": lambda: release_ratio(epsilon=1, delta=0.1, releases=0.5),  # type: ignore[arg-type]
    "release_ratio zero epsilon": lambda: release_ratio(epsilon=0, delta=0.1, releases=1),
    "tolerance zero delta": lambda: tolerance(sigma=1, epsilon=1, delta=0, releases=1),
    "composed_ratio a negative one": lambda: composed_ratio([1, -1]),
    "composed_ratio no number": lambda: composed_ratio([NAN]),
    "noise a negative sigma": lambda: noise(size=1, sigma=-1),
    "noise no sigma": lambda: noise(size=1, sigma=NAN),
    "noise infinite sigma": lambda: noise(size=1, sigma=INF),
    "noise a negative size": lambda: noise(size=-1, sigma=1),
    "noise a negative seed": lambda: noise(size=1, sigma=1, seed=-1),
    "noise half a seed": lambda: noise(size=1, sigma=1, seed=0.5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_refusals(name: str) -> None:
    with pytest.raises(InputError, match=r"^[^.\n]* is .*, a (finite |whole )?number .* is needed$"):
        BAD[name]()


@pytest.mark.parametrize(
    ("epsilon", "delta", "ratio"),
    [(2.6e-310, 6.5e-306, 1.6293e-305), (5.9e-320, 2.37e-318, 6.014e-318), (1e-305, 1e-306, 1.0668e-305)],
)
def test_the_largest_ratio_of_tiny_inputs(epsilon: float, delta: float, ratio: float) -> None:
    """A slope that overflows must not stop the search for the root."""
    assert mu_gdp(epsilon=epsilon, delta=delta) == pytest.approx(ratio, rel=1e-3)
