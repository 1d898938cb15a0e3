"""Gaussian noise: how much of it hides a distance, and what a given amount hides (docs/maths.md, section 7).

Weights at distance `zeta`, both released with noise `N(0, sigma^2 I)`, depend on the ratio `r = zeta / sigma` alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from statistics import NormalDist

import mpmath

from graphforget.errors import InputError
from graphforget.validation import check_from_zero, whole_number

SLACK = 1e-12  # relative; covers the rounding in `delta_of` and of the root finder
NARROW = 1e-3  # below this ratio a difference of Mills' ratios loses digits to cancellation, its series does not
NORMAL = NormalDist()
FAR = 1e8
ROOT_2PI = math.sqrt(2 * math.pi)


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

    found = math.exp(_root(excess, math.log(low), math.log(high)))
    slack = SLACK
    while delta_of(ratio=found * (1 - slack), epsilon=epsilon) > delta:
        slack *= 2
    return found * (1 - slack)


@lru_cache(maxsize=256)
def epsilon_of(*, ratio: float, delta: float) -> float:
    """The implied epsilon: the smallest one with `delta_of(ratio, epsilon) <= delta`, rounded up."""
    check_from_zero(ratio, "the ratio")
    _check_delta(delta)
    if delta_of(ratio=ratio, epsilon=0.0) <= delta:
        return 0.0
    high = ratio * (ratio / 2 - NORMAL.inv_cdf(delta)) * (1 + SLACK)  # a little over where `Phi(r/2 - eps/r)` is delta
    if math.isinf(high):
        return math.inf

    def excess(share: float) -> float:
        return _log_delta(ratio, share * high) - math.log(delta)

    share = _root(excess, 0.0, 1.0) if excess(0.0) > 0 else 0.0
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


def _ratio_from_below(epsilon: float, delta: float) -> float:
    """A ratio a little under `mu_gdp`: the larger of where `Phi(r/2 - eps/r)` and where `delta_of(r, 0)` is delta."""
    normal = NORMAL.inv_cdf(delta)
    root = math.hypot(normal, math.sqrt(2) * math.sqrt(epsilon))
    without_second_term = normal + root if normal > 0 else 2 * (epsilon / (root - normal))  # neither cancels
    return max(without_second_term, 2 * math.sqrt(2) * float(mpmath.erfinv(delta))) * (1 - SLACK)


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
        return math.log1p(-NORMAL.cdf(-a) - math.exp(log_density) * _mills(b))
    if ratio > NARROW:
        gap = _mills(-a) - _mills(b)
    else:  # Taylor around the middle; from M' = x M - 1
        mills = _mills(middle)
        first = middle * mills - 1
        third = 2 * first + middle * (mills + middle * first)
        gap = -ratio * (first + ratio * ratio / 24 * third)
    return math.log(gap) + log_density if gap > 0 else -math.inf


def _mills(x: float) -> float:
    """`Phi(-x) / phi(x)`. Both overflow or vanish in float64 for a large `x`, and do not with more digits."""
    if x > FAR:
        return 1 / x  # the next term of the series is smaller by 1 / x^2
    with mpmath.workdps(40):  # `x^2`, up to 1e16, takes some of them
        scaled = mpmath.mpf(x) / mpmath.sqrt(2)
        return float(mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(scaled) * mpmath.exp(scaled * scaled))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a monotone function changes its sign between `low` and `high`, by bisection to the last digit.

    Faster solvers overflow on the logarithms that occur here, or stop early.
    """
    rises = function(low) < function(high)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if (function(middle) < 0) == rises else (low, middle)
    return middle


def _check_promise(epsilon: float, delta: float) -> None:
    _check_epsilon(epsilon)
    _check_delta(delta)


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise InputError(f"epsilon is {epsilon}, a finite number above 0 is needed")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}, a number between 0 and 1 is needed")
