"""The power of the per-example test: whether it can fail with a number of models, and how many it needs."""

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
    """Whether any answers of `tested` models of each kind are a finding. The best test makes no error."""
    if promise is not None and _epsilon(tested, 0.0, promise) > promise[0]:
        return True
    return _auc_limit(promise) < 1 and not order_is_chance(tested, tested, surely=1 - UNLIKELY)


def fewest_models(promise: Promise | None) -> int | None:
    """The size of the smallest populations whose test can fail; None if `MOST_MODELS` are too few."""
    sizes = range(FEWEST_MODELS, MOST_MODELS + 1)
    index = bisect.bisect_left(sizes, True, key=lambda models: can_fail(held_out_models(models), promise))
    return sizes[index] if index < len(sizes) else None


def models_to_flag(private: PerExample, released: PerExample, promise: Promise | None) -> int | None:
    """The estimated size of populations that give a finding, if further models differ as much as these do.

    The AUC over items stays the same and its error falls with the square root of the number of models. The joint test
    is modelled as one between two Gaussians with the measured AUC. None if `MOST_MODELS` are too few.
    """
    exact = promise is None or promise[0] == 0
    models = FEWEST_MODELS
    while models <= MOST_MODELS:
        tested = held_out_models(models)
        limit = _auc_limit(promise)
        if any(_expected_auc_bound(test, tested) > limit for test in ((released, private) if exact else (released,))):
            return models
        if promise is not None and _epsilon(tested, _error_rate(released), promise) > promise[0]:
            return models
        models = math.ceil(1.1 * models)
    return None


def _auc_limit(promise: Promise | None) -> float:
    return 0.5 if promise is None else largest_auc(epsilon=promise[0], delta=promise[1])


def _epsilon(tested: int, rate: float, promise: Promise) -> float:
    """The lower bound on epsilon from `tested` tests of each kind with this error rate."""
    errors = min(tested, math.ceil(rate * tested))
    return epsilon_at_least(
        false_positives=errors, negatives=tested, false_negatives=errors, positives=tested, delta=promise[1]
    )


def _expected_auc_bound(test: PerExample, tested: int) -> float:
    if order_is_chance(tested, tested, surely=1 - UNLIKELY):
        return 0.0
    half_width = max(test.auc.value - test.auc.low, test.auc.high - test.auc.value)
    error = half_width / float(student.ppf((1 + LEVEL) / 2, 2 * test.models - 2)) * math.sqrt(test.models / tested)
    return test.auc.value - float(student.ppf(1 - UNLIKELY, 2 * tested - 2)) * error


def _error_rate(test: PerExample) -> float:
    """The error rate of the joint test at the middle between two Gaussians of its AUC."""
    auc = min(test.joint_auc, 1 - 0.5 / test.models**2)
    return float(norm.cdf(-norm.ppf(auc) / math.sqrt(2))) if auc > 0 else 1.0
