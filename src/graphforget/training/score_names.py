"""The names of scores by what is predicted. The first of each kind is what `utility`, `floor` and warnings use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

ScoreKind = Literal["classes", "labels", "values", "links"]

SCORES: dict[ScoreKind, tuple[str, ...]] = {
    "classes": ("micro_f1",),
    "labels": ("micro_f1", "macro_f1"),
    "values": ("r2", "rmse"),
    "links": ("auc", "average_precision"),
}
SHOWN = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "r2": "R2",
    "rmse": "RMSE",
    "auc": "AUC",
    "average_precision": "average precision",
}
SHARES = ("micro_f1", "macro_f1", "auc", "average_precision")  # from 0 to 1, shown in percent


def stored_scores(result: Mapping[str, Any]) -> dict[str, Any]:
    """The scores on test items in a result that is written as `test_<name>`, by name; the first one is the utility."""
    return {name: result[f"test_{name}"] for name in SHOWN if f"test_{name}" in result}


def shown_score(name: str, value: float) -> str:
    """A score as text: in percent, or for R2 and errors as a number."""
    return f"{100 * value:.2f} %" if name in SHARES else f"{value:.4f}"
