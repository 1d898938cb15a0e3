"""Whether a per-example test of so many models could fail at all, and how many models it would take."""

from __future__ import annotations

import bisect
import math

from scipy.stats import norm
from scipy.stats import t as student

from graphforget.audits.lira import UNLIKELY, PerExample
from graphforget.audits.scores import LEVEL, order_is_chance
from graphforget.privacy.audit_epsilon import epsilon_at_least, largest_auc

FEWEST_MODELS, MOST_MODELS = 8, 10_000  # of a population

Promise = tuple[float, float]  # epsilon and delta


def held_out_models(models: int) -> int:
    """How many models of a population the likelihood ratio is tested on; it is fitted on the others."""
    return models - models // 2


def can_fail(tested: int, promise: Promise | None) -> bool:
    """Whether some answers of `tested` models of each kind would be a finding: the best test makes no error."""
    if promise is not None and _epsilon(tested, 0.0, promise) > promise[0]:
        return True
    return _auc_limit(promise) < 1 and not order_is_chance(tested, tested, surely=1 - UNLIKELY)


def fewest_models(promise: Promise | None) -> int | None:
    """The smallest populations whose test can fail; None if no population of up to `MOST_MODELS` can."""
    sizes = range(FEWEST_MODELS, MOST_MODELS + 1)
    place = bisect.bisect_left(sizes, True, key=lambda models: can_fail(held_out_models(models), promise))
    return sizes[place] if place < len(sizes) else None


def models_to_flag(kept: PerExample, released: PerExample, promise: Promise | None) -> int | None:
    """About how large the populations have to be for a finding, if the models go on to differ as these do.

    The AUC over items stays and its error falls with the square root of the number of models. The joint test is taken
    for one of two Gaussians with the AUC that was measured. None if not even `MOST_MODELS` would do.
    """
    exact = promise is None or promise[0] == 0
    models = FEWEST_MODELS
    while models <= MOST_MODELS:
        tested = held_out_models(models)
        limit = _auc_limit(promise)
        if any(_expected_auc_bound(test, tested) > limit for test in ((released, kept) if exact else (released,))):
            return models
        if promise is not None and _epsilon(tested, _error_rate(released), promise) > promise[0]:
            return models
        models = math.ceil(1.1 * models)
    return None


def _auc_limit(promise: Promise | None) -> float:
    return 0.5 if promise is None else largest_auc(epsilon=promise[0], delta=promise[1])


def _epsilon(tested: int, rate: float, promise: Promise) -> float:
    """The lower bound on epsilon from so many tests of each kind, of which this share errs."""
    errors = min(tested, math.ceil(rate * tested))
    return epsilon_at_least(
        false_positives=errors, negatives=tested, false_negatives=errors, positives=tested, delta=promise[1]
    )


def _expected_auc_bound(test: PerExample, tested: int) -> float:
    if order_is_chance(tested, tested, surely=1 - UNLIKELY):
        return 0.0
    wide = max(test.auc.value - test.auc.low, test.auc.high - test.auc.value)
    error = wide / float(student.ppf((1 + LEVEL) / 2, 2 * test.models - 2)) * math.sqrt(test.models / tested)
    return test.auc.value - float(student.ppf(1 - UNLIKELY, 2 * tested - 2)) * error


def _error_rate(test: PerExample) -> float:
    """Of the joint test at the threshold between two Gaussians of its AUC."""
    auc = min(test.joint_auc, 1 - 0.5 / test.models**2)
    return float(norm.cdf(-norm.ppf(auc) / math.sqrt(2))) if auc > 0 else 1.0
