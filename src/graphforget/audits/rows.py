"""One line of an audit's table: how well an attack does on one model, and by how much better than on retrained ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphforget.audits.lira import PerExample
from graphforget.audits.scores import Interval, resampled, true_positive_rate, wins

RETRAINED = "retrained"  # the row that all others are compared with

# The scores of what is in (or was) and of what is not; of retrained models one pair for each seed.
Scores = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Row:
    """`gap` is the AUC less that of retrained models; 0 is in its interval where the two cannot be told apart."""

    attack: str
    model: str  # before, nothing (old weights, asked as after), retrained, method
    auc: Interval
    true_positives: float  # at 1 % false positives
    gap: Interval | None = None  # None for retrained models themselves
    published: float | None = None  # what the paper's code calls AUC, where it is something else


def rows_of(attack: str, scores: Mapping[str, Sequence[Scores]], *, seed: int) -> list[Row]:
    """The table of one attack. All models are scored on the same items, which the bootstrap draws in pairs."""
    tables = {model: _mean(several) for model, several in scores.items()}
    found = []
    for model, table in tables.items():
        gap = None if model == RETRAINED else resampled(table - tables[RETRAINED], seed=seed)
        rate = float(np.mean([true_positive_rate(*pair) for pair in scores[model]]))
        found.append(Row(attack, model, resampled(table, seed=seed), rate, gap))
    return found


def _mean(several: Sequence[Scores]) -> np.ndarray:
    """The mean of their tables, one at a time: with many items each is large."""
    total = wins(*several[0])
    for pair in several[1:]:
        total += wins(*pair)
    return total / len(several)


def per_example_rows(attack: str, found: Mapping[str, PerExample]) -> list[Row]:
    """The per-example test is against retrained models already: its gap is to a coin's 0.5."""
    rows = []
    for model, test in found.items():
        gap = Interval(test.auc.value - 0.5, test.auc.low - 0.5, test.auc.high - 0.5)
        rows.append(Row(attack, model, test.auc, test.true_positives, None if model == RETRAINED else gap))
    return rows
