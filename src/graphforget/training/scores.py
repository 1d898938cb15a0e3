"""How good predictions are, by what is predicted: classes, labels that are on or off, values, or links.

Their names are in `score_names.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from graphforget.errors import InputError
from graphforget.training.score_names import ScoreKind


def scores(kind: ScoreKind, logits: Tensor, y: Tensor) -> dict[str, float]:
    """The scores of this kind, by name. `logits` and `y` have the same rows, and every row has its target.

    classes: micro-F1, which for one class a node is the accuracy.
    labels: micro-F1 and macro-F1 of "the logit is over 0"; a label that is neither present nor predicted counts 0.
    values: R2, the mean over the values of `1 - sum (z - y)^2 / sum (y - mean y)^2`, and the root of the mean squared
    error. R2 is at most 1, and under 0 if the mean of `y` would be a better answer. Values that are all the same have
    R2 = 1 if they are predicted exactly, else 0.
    links: the area under the ROC curve and the average precision, of one logit and a label 0 or 1. If all links are
    present or all absent, the area is 0.5.

    Raises:
        InputError: There is no row.
    """
    if not y.shape[0]:
        raise InputError("there is nothing to score, the mask is empty")
    logits = logits.detach().cpu()
    y = y.detach().cpu()
    if kind == "classes":
        return {"micro_f1": float((logits.argmax(dim=1) == y).double().mean())}
    if kind == "labels":
        return _of_labels((logits > 0).numpy(), (y > 0).numpy())
    if kind == "values":
        return _of_values(logits.double(), y.double())
    flat, on = logits.double().flatten().numpy(), (y > 0).flatten().numpy()
    area = 0.5 if on.all() or not on.any() else auc(flat[on], flat[~on])
    return {"auc": area, "average_precision": average_precision(flat, on) if on.any() else 0.0}


def without_last_digits(found: dict[str, float]) -> dict[str, float]:
    """These scores to six digits: features that followed a deletion differ from fresh ones in the last digits alone.

    Scores that count right answers stay as they are.
    """
    rounded = {"r2": lambda value: round(value, 6), "rmse": lambda value: float(f"{value:.6g}")}
    return {name: rounded[name](value) if name in rounded else value for name, value in found.items()}


def can_score(kind: ScoreKind, y: Tensor) -> bool:
    """Whether these targets have scores of this kind: of links some must be present and some absent."""
    if kind != "links":
        return bool(y.shape[0])
    return bool((y > 0).any() and (y <= 0).any())


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """The chance that a positive scores above a negative, ties counting half (Mann and Whitney): the area under the
    ROC curve of the scores themselves."""
    ranks = rankdata(np.concatenate([positive.ravel(), negative.ravel()]))
    p, n = positive.size, negative.size
    return float((ranks[:p].sum() - p * (p + 1) / 2) / (p * n))


def average_precision(score: np.ndarray, on: np.ndarray) -> float:
    """`sum_k (R_k - R_{k-1}) P_k` over the distinct scores in descending order.

    `P_k` and `R_k` are precision and recall of "at least the k-th score", so that items with equal scores come all
    together, in whatever order they are given.
    """
    order = np.argsort(-score.ravel(), kind="stable")
    ordered, hits = score.ravel()[order], on.ravel()[order].cumsum()
    last = np.append(ordered[1:] != ordered[:-1], True)  # the last of each group of equal scores
    hits, taken = hits[last], last.nonzero()[0] + 1
    return float((np.diff(hits, prepend=0) * hits / taken).sum() / hits[-1])


def _of_labels(predicted: np.ndarray, on: np.ndarray) -> dict[str, float]:
    both = (predicted & on).sum(axis=0)
    either = predicted.sum(axis=0) + on.sum(axis=0)
    each = 2 * both / np.maximum(either, 1)
    return {"micro_f1": float(2 * both.sum() / max(int(either.sum()), 1)), "macro_f1": float(each.mean())}


def _of_values(z: Tensor, y: Tensor) -> dict[str, float]:
    errors = (z - y).square().sum(dim=0)
    spread = (y - y.mean(dim=0)).square().sum(dim=0)
    constant = (y == y[0]).all(dim=0)
    r2 = torch.where(constant, (errors == 0).double(), 1 - errors / torch.where(constant, 1.0, spread))
    return {"r2": float(r2.mean()), "rmse": float((errors.sum() / y.numel()).sqrt())}
