"""Whether numbers look like draws from a Gaussian of a given size."""

from __future__ import annotations

import math

from scipy import stats
from torch import Tensor

from graphforget.errors import Mismatch

FALSE_ALARM = 1e-6  # the chance that rightly drawn noise is taken for wrong, in each of two tests


def check_gaussian(draws: Tensor, *, sigma: float, what: str, spread: Tensor | float = 0.0) -> None:
    """Raises `Mismatch` for what `N(0, sigma^2)` would hardly give.

    How large the draws are is told of wrong ones alone, with one digit: with more, whoever has the released weights
    could test guesses about the private ones, and see through the noise.
    """
    size = float(draws @ draws) / sigma**2
    found = math.sqrt(size / draws.numel()) * sigma
    if 2 * min(stats.chi2.cdf(size, draws.numel()), stats.chi2.sf(size, draws.numel())) < FALSE_ALARM:
        raise Mismatch(f"{what} has standard deviation {found:.1g}, not {sigma:.4g}")
    if stats.kstest(((draws + spread) / sigma).numpy(), "norm").pvalue < FALSE_ALARM:
        raise Mismatch(f"{what} is not Gaussian")
