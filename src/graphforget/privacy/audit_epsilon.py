"""Bounds on epsilon from the errors of a test, and on the best test from epsilon (docs/audits.md)."""

from __future__ import annotations

import math

from scipy.stats import binomtest

from graphforget.errors import InputError


def largest_share(errors: int, trials: int, *, confidence: float) -> float:
    """Clopper and Pearson's upper limit on the rate behind `errors` of `trials`."""
    if not 0 <= errors <= trials or not trials:
        raise InputError(f"{errors} errors in {trials} trials are impossible")
    return float(binomtest(errors, trials, alternative="less").proportion_ci(confidence, method="exact").high)


def epsilon_at_least(
    *,
    false_positives: int,
    negatives: int,
    false_negatives: int,
    positives: int,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """A lower bound on epsilon from the errors of a test. It holds with probability `confidence`.

    (epsilon, delta)-indistinguishability allows no test with `e^eps FPR + FNR < 1 - delta` or `FPR + e^eps FNR <
    1 - delta`. Both rates are replaced by their upper limits, each at half of what may go wrong; both lines use them.
    """
    each = 1 - (1 - confidence) / 2
    fpr = largest_share(false_positives, negatives, confidence=each)
    fnr = largest_share(false_negatives, positives, confidence=each)
    rates = ((fnr, fpr), (fpr, fnr))
    return max([0.0, *(math.log((1 - delta - a) / b) for a, b in rates if a < 1 - delta)])


def largest_auc(*, epsilon: float, delta: float) -> float:
    """The largest area under a ROC curve that (epsilon, delta)-indistinguishability allows.

    One minus the area under the least possible trade-off `max(0, 1 - delta - e^eps a, e^-eps (1 - delta - a))`.
    """
    end = 1 - delta
    meet = end / (1 + math.exp(epsilon)) if epsilon < 700 else 0.0
    steep = meet * (end + meet) / 2  # trapezium from (0, end) to (meet, meet)
    flat = meet * (end - meet) / 2  # triangle from there to (end, 0)
    return 1 - steep - flat
