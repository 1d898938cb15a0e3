"""Statistical tests of noise: whether it looks Gaussian of a given size, and independent of the noise before it."""

from __future__ import annotations

import math

from scipy import stats
from torch import Tensor

from graphforget.errors import Mismatch

FALSE_ALARM = 1e-6  # of each of two tests: the probability that correct noise fails
REUSE_FALSE_ALARM = 1e-3  # the same for the test that noise was not used before
POWER = 0.99  # of the test in `largest_detected_sigma`


def check_gaussian(draws: Tensor, *, sigma: float, label: str, spread: Tensor | float = 0.0) -> None:
    """Raises `Mismatch` unless the draws look like draws from `N(0, sigma^2)`. `label` names them in the message.

    Only a failure states the measured size, with one digit. With more digits, whoever has the released weights could
    test guesses about the private weights.
    """
    size = float(draws @ draws) / sigma**2
    measured = math.sqrt(size / draws.numel()) * sigma
    if 2 * min(stats.chi2.cdf(size, draws.numel()), stats.chi2.sf(size, draws.numel())) < FALSE_ALARM:
        raise Mismatch(f"{label} has standard deviation {measured:.1g}, not {sigma:.4g}")
    if stats.kstest(((draws + spread) / sigma).numpy(), "norm").pvalue < FALSE_ALARM:
        raise Mismatch(f"{label} is not Gaussian")


def largest_detected_sigma(*, sigma: float, count: int) -> float:
    """The largest standard deviation that `check_gaussian` detects as too small, in 99 of 100 cases.

    Of `count` draws with standard deviation `s` the sum of squares over `sigma^2` is `(s / sigma)^2` times a chi-square
    variable. The test fails if it is below the quantile at half the rate of false alarms.
    """
    least = stats.chi2.ppf(FALSE_ALARM / 2, count)
    return sigma * math.sqrt(float(least / stats.chi2.ppf(POWER, count)))


def check_fresh(noise: Tensor, before: Tensor) -> None:
    """Raises `Mismatch` if the noise of two releases is correlated, which shows that some of it was used again.

    For `p` independent Gaussian draws the square of `a . b / (||a|| ||b||)` has the law Beta(1/2, (p - 1)/2).
    """
    if noise.shape != before.shape:
        raise Mismatch("the release before has another number of weights, so its noise cannot be compared")
    lengths = float(noise.norm()) * float(before.norm())
    if lengths == 0 or noise.numel() < 2:
        return
    correlation = float(noise @ before) / lengths
    if stats.beta.sf(min(correlation**2, 1.0), 0.5, (noise.numel() - 1) / 2) < REUSE_FALSE_ALARM:
        raise Mismatch(f"the noise is at least in part that of the release before: correlation {correlation:.2f}")
