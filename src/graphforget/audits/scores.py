"""How well scores separate two groups, with confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor

DRAWS = 1000  # of the bootstrap
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A measurement and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def confidence(logits: Tensor, labels: Tensor) -> np.ndarray:
    """`log p_y - log (1 - p_y)` of every row, from the logits: finite where `p_y` itself rounds to 0 or 1."""
    chosen = labels[:, None]
    true = logits.gather(1, chosen).squeeze(1)
    rest = torch.logsumexp(logits.scatter(1, chosen, -torch.inf), dim=1)
    return (true - rest).detach().cpu().double().numpy()


def true_positive_rate(positive: np.ndarray, negative: np.ndarray, *, false_positive_rate: float = 0.01) -> float:
    """The share of positives above a threshold that at most this share of the negatives passes."""
    ordered = np.sort(negative.ravel())[::-1]
    threshold = ordered[int(false_positive_rate * ordered.size)]
    return float((positive.ravel() > threshold).mean())


def wins(positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """For each positive and each negative 1 if the positive scores higher, 0.5 if both are the same: `auc` is its mean.

    Means and differences of such tables are those of the areas.
    """
    above, below = positive.ravel()[:, None], negative.ravel()[None, :]
    return (above > below) + 0.5 * (above == below)


def order_is_chance(rows: int, columns: int, *, surely: float) -> bool:
    """Whether there are so few models that no order of them is unlikely enough to be evidence."""
    return 1 / math.comb(rows + columns, rows) > 2 * (1 - surely)


def between_models(table: np.ndarray, *, surely: float) -> tuple[Interval, float]:
    """The mean of a table whose rows and columns are independent models (the mean `wins` of their items), with its
    95 % interval, and its one-sided lower bound at confidence `surely`.

    Uses Welch's t over the means of rows and of columns: with few models a bootstrap interval would be too narrow.
    """
    parts = [means.var(ddof=1) / means.size for means in (table.mean(axis=1), table.mean(axis=0))]
    error = sum(parts)
    freedom = (
        error**2 / sum(part**2 / (size - 1) for part, size in zip(parts, table.shape, strict=True)) if error else 1
    )
    value, spread = float(table.mean()), math.sqrt(error)
    half_width = float(student.ppf((1 + LEVEL) / 2, freedom)) * spread
    limit = max(0.0, value - float(student.ppf(surely, freedom)) * spread)
    if order_is_chance(*table.shape, surely=surely):
        limit = 0.0
    return Interval(value, max(0.0, value - half_width), min(1.0, value + half_width)), limit


def resampled(table: np.ndarray, *, seed: int) -> Interval:
    """The mean of a table like `wins` and its bootstrap interval: rows and columns are drawn with repetition,
    independently of each other."""
    rng = np.random.default_rng(seed)
    rows, columns = (rng.multinomial(size, np.full(size, 1 / size), size=DRAWS) / size for size in table.shape)
    means = ((rows @ table) * columns).sum(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(table.mean()), float(low), float(high))
