"""Whether numbers look like draws from a Gaussian of a given size, and unlike the draws before them."""

from __future__ import annotations

import math

from scipy import stats
from torch import Tensor

from graphforget.errors import Mismatch

FALSE_ALARM = 1e-6  # the chance that rightly drawn noise is taken for wrong, in each of two tests
REUSE_FALSE_ALARM = 1e-3  # the same for noise that is taken for that of the release before
CAUGHT = 0.99  # of the cases: what `smallest_caught` means by caught


def check_gaussian(draws: Tensor, *, sigma: float, what: str, spread: Tensor | float = 0.0) -> None:
    """Raises `Mismatch` for what `N(0, sigma^2)` would hardly give.

    How large the draws are is said of wrong ones alone, with one digit: with more, whoever has the released weights
    could test guesses about the private ones, and see through the noise.
    """
    size = float(draws @ draws) / sigma**2
    measured = math.sqrt(size / draws.numel()) * sigma
    if 2 * min(stats.chi2.cdf(size, draws.numel()), stats.chi2.sf(size, draws.numel())) < FALSE_ALARM:
        raise Mismatch(f"{what} has standard deviation {measured:.1g}, not {sigma:.4g}")
    if stats.kstest(((draws + spread) / sigma).numpy(), "norm").pvalue < FALSE_ALARM:
        raise Mismatch(f"{what} is not Gaussian")


def smallest_caught(*, sigma: float, count: int) -> float:
    """The size of noise from which on down the test of `check_gaussian` finds too little of it, in 99 of 100 cases.

    Of `count` draws with standard deviation `s` the sum of squares over `sigma^2` is `(s / sigma)^2` times a chi-square
    variable; it is caught under the quantile at half the rate of false alarms.
    """
    least = stats.chi2.ppf(FALSE_ALARM / 2, count)
    return sigma * math.sqrt(float(least / stats.chi2.ppf(CAUGHT, count)))


def check_fresh(noise: Tensor, before: Tensor) -> None:
    """Raises `Mismatch` if the noise of two releases is correlated, as it is where some of it was used again.

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
