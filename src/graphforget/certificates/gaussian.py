"""Gaussian noise: how much of it hides a distance, and what a given amount hides (docs/maths.md, section 7).

Weights at distance `zeta`, both released with noise `N(0, sigma^2 I)`, depend on the ratio `r = zeta / sigma` alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from functools import lru_cache

import mpmath
import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.optimize import brentq
from scipy.special import erfcx, erfinv, ndtr, ndtri
from torch import Tensor

from graphforget.checks import check_from_zero, whole_number
from graphforget.errors import InputError

SLACK = 1e-12  # relative; covers the rounding in `delta_of` and of the root finder
NARROW = 1e-3  # below this ratio a difference of Mills' ratios loses digits to cancellation, its series does not
ROOT_2PI = math.sqrt(2 * math.pi)
DIGITS = 60  # of numbers that float64 is too coarse for
UNIT = 2.0**-53  # the largest relative error of one operation in float64


def delta_of(*, ratio: float, epsilon: float) -> float:
    """The smallest delta at this epsilon (Balle and Wang 2018): `Phi(r/2 - eps/r) - e^eps Phi(-r/2 - eps/r)`.

    Two Gaussians of one sigma, their means `ratio` sigmas apart, are (epsilon, delta)-indistinguishable for exactly the
    deltas from this one on. Holds for every epsilon from 0.
    """
    check_from_zero(ratio, "the ratio")
    if not 0 <= epsilon < math.inf:
        raise InputError(f"epsilon is {epsilon}, a finite number from 0 is needed")
    return math.exp(_log_delta(ratio, epsilon))


@lru_cache(maxsize=256)
def mu_gdp(*, epsilon: float, delta: float) -> float:
    """The largest ratio `zeta / sigma` that is (epsilon, delta)-indistinguishable, rounded down."""
    _check_promise(epsilon, delta)
    low = _ratio_from_below(epsilon, delta)
    high = 2 * low
    while _log_delta(high, epsilon) < math.log(delta):
        high *= 2

    def excess(log_ratio: float) -> float:
        return _log_delta(math.exp(log_ratio), epsilon) - math.log(delta)

    found = math.exp(brentq(excess, math.log(low), math.log(high), xtol=1e-14))
    slack = SLACK
    while delta_of(ratio=found * (1 - slack), epsilon=epsilon) > delta:
        slack *= 2
    return found * (1 - slack)


def epsilon_of(*, ratio: float, delta: float) -> float:
    """The implied epsilon: the smallest one with `delta_of(ratio, epsilon) <= delta`, rounded up."""
    check_from_zero(ratio, "the ratio")
    _check_delta(delta)
    if delta_of(ratio=ratio, epsilon=0.0) <= delta:
        return 0.0
    high = ratio * (ratio / 2 - float(ndtri(delta))) * (1 + SLACK)  # a little over where `Phi(r/2 - eps/r)` is delta
    if math.isinf(high):
        return math.inf

    def excess(share: float) -> float:
        return _log_delta(ratio, share * high) - math.log(delta)

    share = brentq(excess, 0.0, 1.0, xtol=1e-15) if excess(0.0) > 0 else 0.0
    slack = SLACK * share
    while delta_of(ratio=ratio, epsilon=(share + slack) * high) > delta:
        slack = 2 * slack or SLACK
    return (share + slack) * high


def exact_sigma(*, zeta: float, epsilon: float, delta: float) -> float:
    """The smallest sigma that hides the distance `zeta`: `zeta / mu_gdp(epsilon, delta)`, for every epsilon > 0."""
    check_from_zero(zeta, "zeta")
    return zeta / mu_gdp(epsilon=epsilon, delta=delta)


def paper_sigma(*, zeta: float, epsilon: float, delta: float) -> float:
    """The paper's sigma: `(zeta / epsilon) sqrt(2 ln(1.25 / delta))`, kept to reproduce it.

    Proven for epsilon < 1 only (Dwork and Roth, Theorem A.1), where it is more noise than needed; for a large enough
    epsilon it is too little. `exact_sigma` is right for every epsilon.
    """
    check_from_zero(zeta, "zeta")
    _check_promise(epsilon, delta)
    return zeta / epsilon * math.sqrt(2 * math.log(1.25 / delta))


LARGEST_DELTA = 1e-2  # a larger one lets a guarantee fail for one person in a hundred, and nothing is certified by it
ROUNDING_SHARE = 1 / 16  # of delta: set aside for noise that is drawn and added in float64


def release_ratio(*, epsilon: float, delta: float, releases: int = 1) -> float:
    """`mu_gdp(epsilon, 15/16 delta) / sqrt(T)`: the ratio at which `T` releases together keep (epsilon, delta)."""
    if whole_number(releases, "the number of releases") < 1:
        raise InputError("the number of releases is 0, at least 1 is needed")
    return mu_gdp(epsilon=epsilon, delta=(1 - ROUNDING_SHARE) * delta) / math.sqrt(releases)


def tolerance(*, sigma: float, epsilon: float, delta: float, releases: int = 1) -> float:
    """`sigma mu_gdp(epsilon, 15/16 delta) / sqrt(T)`: how far a release may be from the optimum (docs/maths.md, 9)."""
    return sigma * release_ratio(epsilon=epsilon, delta=delta, releases=releases)


def noise_error_within_budget(error: float, *, epsilon: float, delta: float, releases: int = 1) -> bool:
    """Whether `releases` draws, each `error` in total variation from Gaussian, keep within delta's rounding share."""
    return (1 + math.exp(min(epsilon, 700.0))) * releases * error <= ROUNDING_SHARE * delta


def composed_ratio(ratios: Iterable[float]) -> float:
    """The ratio of several releases with independent noise seen together: `sqrt(sum r_t^2)`."""
    ratios = list(ratios)
    for ratio in ratios:
        check_from_zero(ratio, "a ratio")
    return math.hypot(*ratios)


def noise(*, size: int, sigma: float, seed: int | None = None) -> Tensor:
    """`size` independent draws from `N(0, sigma^2)`, float64.

    Without a seed they come from a key of the operating system's that nobody sees. With one they can be drawn again, so
    whoever knows the seed can take the noise off the released weights: it is for experiments, not for release.
    """
    size = whole_number(size, "the number of draws")
    if not 0 <= sigma < math.inf:
        raise InputError(f"sigma is {sigma}, a finite number from 0 is needed")
    if seed is None:
        normal = _secure_normal(size)
    else:
        normal = np.random.default_rng(whole_number(seed, "the seed")).standard_normal(size)
    return torch.from_numpy(sigma * normal)


def with_noise(theta: Tensor, *, sigma: float, seed: int | None = None) -> Tensor:
    """`theta + N(0, sigma^2 I)`, rounded to a grid of `grid(sigma)`.

    Without the rounding the last digits of a sum of floating-point numbers would tell what was added to what (Mironov
    2012). Rounding is done after the noise, so it costs nothing of what the noise guarantees. Where float64 cannot tell
    to which point of the grid a sum is to be rounded, it is computed anew with many digits.
    """
    step = grid(sigma)
    if seed is not None:
        return ((theta + noise(size=theta.numel(), sigma=sigma, seed=seed)) / step).round() * step
    bits = _random_words(2 * theta.numel()).reshape(2, theta.numel())
    normal = _normal_of(bits)
    places = (theta.numpy() + sigma * normal) / step  # a power of two: the division is exact
    points = np.round(places)
    error = 4 * UNIT * (np.abs(theta.numpy()) + 12 * sigma * (1 + np.abs(normal))) / step
    for unsure in np.flatnonzero(np.abs(np.abs(places - points) - 0.5) <= error):
        points[unsure] = _exact_point(float(theta[unsure]), bits[:, unsure], sigma=sigma, step=step)
    return torch.from_numpy(points * step)


def _exact_point(weight: float, bits: np.ndarray, *, sigma: float, step: float) -> float:
    """The point of the grid for one weight, with so many digits that float64 plays no part."""
    with mpmath.workdps(DIGITS):
        further = mpmath.mpf(int.from_bytes(os.urandom(DIGITS // 2), "little")) / mpmath.mpf(256) ** (DIGITS // 2)
        leading = int(np.frexp(np.float64(int(bits[1]) >> 11))[1])
        mantissa = mpmath.mpf(1) / 2 + (mpmath.mpf(int(bits[0]) >> 12) + further) * mpmath.mpf(2) ** -53
        below = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mantissa * mpmath.mpf(2) ** (leading - 54))
        normal = below if int(bits[0]) & 1 else -below
        return float(mpmath.nint((mpmath.mpf(weight) + mpmath.mpf(sigma) * normal) / mpmath.mpf(step)))


def grid(sigma: float) -> float:
    """A power of two between sigma / 32 and sigma / 16: far above the rounding of float64, far below the noise."""
    return 2.0 ** (math.floor(math.log2(sigma)) - 4)


def slip(theta: Tensor, *, sigma: float) -> float:
    """How far in total variation `with_noise` is at most from rounding exact Gaussian noise.

    A weight comes out on another point of the grid only if errors carry it over the middle between two, which has twice
    their mean size over the grid's as probability. Where float64 might do that, more digits decide; their errors, of
    the sum and of the draw, are `e (|theta_i| + 9 sigma)` with `e` of as many digits as the computation has, less the
    ten that the inverse of the error function may cost. (A draw in float64 is taken to be off by at most `8 u (1 +
    |z|)`; the tests look.)
    """
    unit = 10.0 ** (10 - DIGITS)
    return 2 * unit * (float(theta.abs().sum()) + 9 * theta.numel() * sigma) / grid(sigma)


def _secure_normal(size: int) -> np.ndarray:
    return _normal_of(_random_words(2 * size).reshape(2, size))


def _normal_of(words: np.ndarray) -> np.ndarray:
    """From 128 random bits a draw: a sign, and a place in the lower half with 52 bits after its leading one.

    A uniform number of 53 bits would be coarse in the tails, where its neighbours are far apart as normal numbers.
    """
    bits, more = words
    leading = np.frexp((more >> np.uint64(11)).astype(np.float64))[1]  # 53 if the first bit is set, and so on
    mantissa = 0.5 + ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-53
    lower_half = np.ldexp(mantissa, leading - 54)
    below = ndtri(lower_half)
    return np.where(bits & np.uint64(1), below, -below)


def _random_words(count: int) -> np.ndarray:
    """64 random bits each: AES-256 in counter mode under a fresh key from the operating system, ten times as fast."""
    stream = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), dtype=np.uint64)


def _ratio_from_below(epsilon: float, delta: float) -> float:
    """A ratio a little under `mu_gdp`: the larger of where `Phi(r/2 - eps/r)` and where `delta_of(r, 0)` is delta."""
    normal = float(ndtri(delta))
    root = math.hypot(normal, math.sqrt(2) * math.sqrt(epsilon))
    without_second_term = normal + root if normal > 0 else 2 * (epsilon / (root - normal))  # neither cancels
    return max(without_second_term, 2 * math.sqrt(2) * float(erfinv(delta))) * (1 - SLACK)


def _log_delta(ratio: float, epsilon: float) -> float:
    """`ln delta_of` without overflow or cancellation.

    As `e^eps phi(r/2 + eps/r) = phi(r/2 - eps/r)`, delta is `phi(a) (M(-a) - M(b))` with `a = r/2 - eps/r`,
    `b = r/2 + eps/r` and Mills' ratio `M(x) = Phi(-x) / phi(x)`: `e^eps` does not occur.
    """
    if ratio == 0:
        return -math.inf
    middle = epsilon / ratio
    a, b = ratio / 2 - middle, ratio / 2 + middle
    log_density = -a * a / 2 - math.log(ROOT_2PI)
    if a > 1:
        return math.log1p(-float(ndtr(-a)) - math.exp(log_density) * _mills(b))
    if ratio > NARROW:
        gap = _mills(-a) - _mills(b)
    else:  # Taylor around the middle; from M' = x M - 1
        mills = _mills(middle)
        first = middle * mills - 1
        third = 2 * first + middle * (mills + middle * first)
        gap = -ratio * (first + ratio * ratio / 24 * third)
    return math.log(gap) + log_density if gap > 0 else -math.inf


def _mills(x: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _check_promise(epsilon: float, delta: float) -> None:
    _check_epsilon(epsilon)
    _check_delta(delta)


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise InputError(f"epsilon is {epsilon}, a finite number above 0 is needed")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}, a number between 0 and 1 is needed")
