"""The per-example test between two populations of models (U-LiRA): a likelihood ratio of the answers for each item.

Values are arrays of models x items: the statistic of each item under each model (`items.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphforget.audits.scores import Interval, between_models, true_positive_rate
from graphforget.errors import InputError
from graphforget.privacy.audit_epsilon import epsilon_at_least
from graphforget.training.scores import auc

UNLIKELY = 1e-3  # the probability of a false alarm
FLOOR = 1e-9  # of a standard deviation, relative to the values: smaller differences are rounding


@dataclass(frozen=True)
class LikelihoodRatio:
    """For each item two Gaussians of one variance: `log N(v; m_a, s^2) - log N(v; m_b, s^2) = (v - middle) slope`.

    It detects a shift of the mean, not a change of the variance alone.
    """

    slope: np.ndarray
    middle: np.ndarray

    @classmethod
    def fit(cls, suspects: np.ndarray, innocents: np.ndarray) -> LikelihoodRatio:
        if min(len(suspects), len(innocents)) < 2:
            raise InputError("at least 2 models of each kind are needed to fit a likelihood ratio")
        mean_a, mean_b = suspects.mean(axis=0), innocents.mean(axis=0)
        within = np.square(suspects - mean_a).sum(axis=0) + np.square(innocents - mean_b).sum(axis=0)
        variance = within / (len(suspects) + len(innocents) - 2)
        variance = np.maximum(variance, np.square(FLOOR * np.maximum(1.0, np.abs(mean_a) + np.abs(mean_b))))
        return cls((mean_a - mean_b) / variance, (mean_a + mean_b) / 2)

    def items(self, values: np.ndarray) -> np.ndarray:
        """The log-likelihood ratio of every model and item."""
        return (values - self.middle) * self.slope

    def joint(self, values: np.ndarray) -> np.ndarray:
        """One score for each model: the sum over its items. Above 0 the model is more likely a suspect."""
        return self.items(values).sum(axis=-1)


@dataclass(frozen=True)
class PerExample:
    """How well suspects are separated from innocents, on models that the likelihood ratios were not fitted on."""

    auc: Interval  # over single items of single models; the interval is over models
    surely: float  # a lower bound of that AUC, which fails with probability `UNLIKELY`
    true_positives: float  # at 1 % false positives
    joint_auc: float  # over models, all items taken together
    epsilon: float  # 95 % lower bound, from the joint test's errors
    attainable: float  # the largest bound that this number of models can show
    models: int  # of each kind that it was tested on


def per_example(suspects: np.ndarray, innocents: np.ndarray, *, delta: float) -> PerExample:
    """Fits on the first half of each population and tests on the second half.

    The threshold of the joint test is 0, where both kinds are equally likely. It does not depend on the tested models.
    """
    if min(len(suspects), len(innocents)) < 4:
        raise InputError("at least 4 models of each kind are needed, half of them to test on")
    a, b = len(suspects) // 2, len(innocents) // 2
    ratio = LikelihoodRatio.fit(suspects[:a], innocents[:b])
    high, low = ratio.items(suspects[a:]), ratio.items(innocents[b:])
    joint_high, joint_low = high.sum(axis=1), low.sum(axis=1)
    table = np.array([[auc(suspect, innocent) for innocent in low] for suspect in high])
    interval, surely = between_models(table, surely=1 - UNLIKELY)
    trials: Any = {"negatives": len(low), "positives": len(high), "delta": delta}
    return PerExample(
        auc=interval,
        surely=surely,
        true_positives=true_positive_rate(high, low),
        joint_auc=auc(joint_high, joint_low),
        epsilon=epsilon_at_least(
            false_positives=int((joint_low > 0).sum()), false_negatives=int((joint_high <= 0).sum()), **trials
        ),
        attainable=epsilon_at_least(false_positives=0, false_negatives=0, **trials),
        models=min(len(high), len(low)),
    )
