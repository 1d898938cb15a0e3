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

SLACK = 1e-12  # relative: the first step to the safe side of a root that was computed in float64
NARROW = 1e-3  # below this ratio a difference of Mills' ratios loses digits to cancellation, its series does not
FAR = 12.0  # from here on a continued fraction gives Mills' ratio; below, `erfc` does
TERMS = 25  # of the continued fraction: enough for all digits from `FAR` on
UNIT = 2.0**-53  # the largest relative error of one operation in float64
LOG_ERROR = 1e-9  # more than the error of `_log_delta`, but for the rounding of its arguments
SURE = 80.0  # sigmas, twice those at which delta, or one minus it, is less than any number of float64
DIGITS = 40  # of a comparison that float64 cannot decide, beside those that cancel
NORMAL = NormalDist()
ROOT_2, ROOT_2PI = math.sqrt(2), math.sqrt(2 * math.pi)


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
    """The largest ratio `zeta / sigma` that is (epsilon, delta)-indistinguishable, rounded down.

    The root is computed in float64. The result lies below it by about 1e-12 of it, and `_is_indistinguishable` has
    confirmed it with as many digits as it takes.
    """
    _check_guarantee(epsilon, delta)
    low = _ratio_from_below(epsilon, delta)
    high = 2 * low
    while _log_delta(high, epsilon) < math.log(delta):
        high *= 2

    def excess(log_ratio: float) -> tuple[float, float]:
        ratio = math.exp(log_ratio)
        value = _log_delta(ratio, epsilon)
        return value - math.log(delta), ratio * _density_over_delta(ratio, epsilon, value)

    root = math.exp(_root(excess, math.log(low), math.log(high)))
    slack = SLACK
    while slack < 1 and not _is_indistinguishable(root * (1 - slack), epsilon, delta):
        slack *= 4
    return root * max(0.0, 1 - slack)


@lru_cache(maxsize=256)
def epsilon_of(*, ratio: float, delta: float) -> float:
    """The implied epsilon: the smallest one with `delta_of(ratio, epsilon) <= delta`, rounded up.

    As in `mu_gdp`, the result lies above the root by about 1e-12 of it and is confirmed. An epsilon so small that
    delta hardly depends on it (below about 1e-14) can be rounded up by more.
    """
    check_from_zero(ratio, "the ratio")
    _check_delta(delta)
    if _is_indistinguishable(ratio, 0.0, delta):
        return 0.0
    high = ratio * (ratio / 2 - NORMAL.inv_cdf(delta)) * (1 + SLACK)  # a little over where `Phi(r/2 - eps/r)` is delta
    if math.isinf(high):
        return math.inf

    def excess(share: float) -> tuple[float, float]:
        value = _log_delta(ratio, share * high)
        tail = _mills(ratio / 2 + share * high / ratio)
        return value - math.log(delta), -high * tail * _density_over_delta(ratio, share * high, value)

    share = _root(excess, 0.0, 1.0)
    slack = SLACK * share
    while not _is_indistinguishable(ratio, (share + slack) * high, delta):
        slack = 4 * slack or UNIT
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
    _check_guarantee(epsilon, delta)
    return zeta / epsilon * math.sqrt(2 * math.log(1.25 / delta))


LARGEST_DELTA = 1e-2  # a larger one lets a guarantee fail for one person in a hundred, and nothing is certified by it
ROUNDING_SHARE = 1 / 16  # of delta: set aside for noise that is drawn and added in float64


def release_ratio(*, epsilon: float, delta: float, releases: int = 1) -> float:
    """`mu_gdp(epsilon, 15/16 delta) / sqrt(T)`: the ratio at which `T` releases together keep (epsilon, delta)."""
    if whole_number(releases, "the number of releases") < 1:
        raise InputError("the number of releases is 0, at least 1 is needed")
    _check_guarantee(epsilon, delta)
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
        return math.log1p(-math.erfc(a / ROOT_2) / 2 - math.exp(log_density) * _mills(b))
    if ratio > NARROW:
        gap = _mills(-a) - _mills(b)
    else:  # Taylor around the middle; from M' = x M - 1
        mills = _mills(middle)
        first = middle * mills - 1
        third = 2 * first + middle * (mills + middle * first)
        gap = -ratio * (first + ratio * ratio / 24 * third)
    return math.log(gap) + log_density if gap > 0 else -math.inf


def _density_over_delta(ratio: float, epsilon: float, log_delta: float) -> float:
    """`phi(a) / delta`, the derivative of `ln delta` in the ratio; times `-M(b)` it is the derivative in epsilon."""
    a = ratio / 2 - epsilon / ratio
    log_quotient = -a * a / 2 - math.log(ROOT_2PI) - log_delta
    return math.exp(log_quotient) if log_quotient < 700 else math.inf


def _mills(x: float) -> float:
    """`M(x) = Phi(-x) / phi(x)` for `x >= -1`, to a few units in the last place.

    Up to `FAR` it is `sqrt(pi/2) erfc(z) e^(z^2)` with `z = x / sqrt(2)`. `z^2` is computed exactly, as a sum of two
    numbers (Dekker 1971), because `exp` multiplies an error of its argument by the argument. Beyond, it is Laplace's
    continued fraction `1 / (x + 1 / (x + 2 / (x + 3 / ...)))`.
    """
    if x > FAR:
        tail = x
        for term in range(TERMS, 0, -1):
            tail = x + term / tail
        return 1 / tail
    z = x / ROOT_2
    shifted = (2.0**27 + 1) * z
    upper = shifted - (shifted - z)
    lower = z - upper
    square = z * z
    error = ((upper * upper - square) + 2 * upper * lower) + lower * lower
    return ROOT_2PI / 2 * math.erfc(z) * math.exp(square) * (1 + error)


def _is_indistinguishable(ratio: float, epsilon: float, delta: float) -> bool:
    """Whether `delta_of(ratio, epsilon) <= delta`, exactly: with more digits where float64 cannot decide it."""
    if ratio == 0 or math.isinf(ratio):
        return ratio == 0
    middle = epsilon / ratio
    a, b = ratio / 2 - middle, ratio / 2 + middle
    if math.isinf(middle) or abs(a) > SURE + 32 * UNIT * b:
        return a < 0
    excess = _log_delta(ratio, epsilon) - math.log(delta)
    if abs(excess) > LOG_ERROR + 16 * UNIT * (1 + abs(a)) * b:
        return excess < 0
    with mpmath.workdps(DIGITS + _cancelled_digits(ratio, epsilon)):
        r, eps, root_2 = mpmath.mpf(ratio), mpmath.mpf(epsilon), mpmath.sqrt(2)
        upper = mpmath.erfc((eps / r - r / 2) / root_2)
        lower = mpmath.erfc((eps / r + r / 2) / root_2)
        return bool(upper - mpmath.exp(eps) * lower <= 2 * mpmath.mpf(delta))


def _cancelled_digits(ratio: float, epsilon: float) -> int:
    """At most how many digits the difference of the two terms of delta, and their arguments, lose."""
    log_b = max(math.log10(ratio), math.log10(epsilon or 1e-300) - math.log10(ratio), 0.0)
    return math.ceil(3 * log_b + max(-math.log10(ratio), 0.0)) + 1


def _root(function: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Where a monotone function, given with its derivative, changes its sign between `low` and `high`.

    Newton's method. A step that leaves the bracket, or is not half as long as the one before the last, is replaced by
    a bisection, so that it always ends.
    """
    rises = function(low)[0] < function(high)[0]
    x, before, last = (low + high) / 2, high - low, high - low
    while low < x < high:
        value, slope = function(x)
        low, high = (x, high) if (value < 0) == rises else (low, x)
        step = value / slope if slope and math.isfinite(value) and math.isfinite(slope) else math.inf
        newton = x - step
        if not (low <= newton <= high and abs(step) <= before / 2):
            newton = (low + high) / 2
        before, last = last, abs(newton - x)
        if last <= 2 * UNIT * abs(x):
            return newton
        x = newton
    return x


def _check_guarantee(epsilon: float, delta: float) -> None:
    _check_epsilon(epsilon)
    _check_delta(delta)


def _check_epsilon(epsilon: float) -> None:
    if isinstance(epsilon, str) or not 0 < epsilon < math.inf:
        raise InputError(f"epsilon is {epsilon}, a finite number above 0 is needed")


def _check_delta(delta: float) -> None:
    if isinstance(delta, str) or not 0 < delta < 1:
        raise InputError(f"delta is {delta}, a number between 0 and 1 is needed")
