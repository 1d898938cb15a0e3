"""The rows of an audit's table: the success of an attack on a model, compared with that on retrained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphforget.audits.lira import PerExample
from graphforget.audits.scores import Interval, resampled, true_positive_rate, wins

BEFORE = "before"  # the old weights, queried on the graph before the request
NO_OP = "no_op"  # the old weights, queried as after the request: a deletion that changes no weights
RETRAINED = "retrained"  # the row that all others are compared with
METHOD = "method"  # the audited weights

# The scores of members and of non-members; several pairs for retrained models, one for each seed.
Scores = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Row:
    """`gap` is the AUC less that of retrained models; its interval holds 0 if the two cannot be distinguished."""

    attack: str
    model: str  # `BEFORE`, `NO_OP`, `RETRAINED` or `METHOD`
    auc: Interval
    true_positives: float  # at 1 % false positives
    gap: Interval | None = None  # None for retrained models themselves
    published: float | None = None  # what the paper's code calls AUC, where it is something else


def rows_of(attack: str, scores: Mapping[str, Sequence[Scores]], *, seed: int) -> list[Row]:
    """The rows of one attack. All models are scored on the same items, which the bootstrap draws in pairs."""
    tables = {model: _mean(pairs) for model, pairs in scores.items()}
    rows = []
    for model, table in tables.items():
        gap = None if model == RETRAINED else resampled(table - tables[RETRAINED], seed=seed)
        rate = float(np.mean([true_positive_rate(*pair) for pair in scores[model]]))
        rows.append(Row(attack, model, resampled(table, seed=seed), rate, gap))
    return rows


def _mean(pairs: Sequence[Scores]) -> np.ndarray:
    """The mean of their tables, summed one at a time, because a table of many items is large."""
    total = wins(*pairs[0])
    for pair in pairs[1:]:
        total += wins(*pair)
    return total / len(pairs)


def per_example_rows(attack: str, tests: Mapping[str, PerExample]) -> list[Row]:
    """The per-example test compares with retrained models already, so its gap is to the 0.5 of a random guess."""
    rows = []
    for model, test in tests.items():
        gap = Interval(test.auc.value - 0.5, test.auc.low - 0.5, test.auc.high - 0.5)
        rows.append(Row(attack, model, test.auc, test.true_positives, None if model == RETRAINED else gap))
    return rows
