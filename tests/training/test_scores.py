"""Scores against their definitions, item by item, with ties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphforget.errors import InputError
from graphforget.training.score_names import SCORES, ScoreKind, shown_score
from graphforget.training.scores import auc, average_precision, scores

few = settings(max_examples=100, deadline=None)
scored = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=12).filter(
    lambda items: {on for _, on in items} == {True, False}
)


@few
@given(items=scored)
def test_auc_and_average_precision_are_those_of_the_definition(items: list[tuple[int, bool]]) -> None:
    score, on = np.array([s for s, _ in items], dtype=float), np.array([o for _, o in items])
    pairs = [(a > b) + (a == b) / 2 for a in score[on] for b in score[~on]]
    assert auc(score[on], score[~on]) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
    area, recall_before = 0.0, 0.0
    for threshold in sorted(set(score), reverse=True):
        taken = [o for s, o in zip(score, on, strict=True) if s >= threshold]
        recall = sum(taken) / on.sum()
        area += (recall - recall_before) * sum(taken) / len(taken)
        recall_before = recall
    assert average_precision(score, on) == pytest.approx(area, abs=1e-12)
    links = scores("links", torch.from_numpy(score)[:, None], torch.from_numpy(on)[:, None])
    assert links == {"auc": auc(score[on], score[~on]), "average_precision": average_precision(score, on)}


@few
@given(items=scored, order=st.randoms())
def test_the_order_of_items_is_no_matter(items: list[tuple[int, bool]], order: object) -> None:
    shuffled = list(items)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    results = [
        average_precision(np.array([s for s, _ in each]), np.array([o for _, o in each])) for each in (items, shuffled)
    ]
    assert results[0] == pytest.approx(results[1], abs=1e-12)


@few
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 8), labels=st.integers(1, 4))
def test_f1_of_labels_counts_every_pair_of_node_and_label(seed: int, rows: int, labels: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randint(-1, 2, (rows, labels), generator=draw).double()  # 0 is off
    y = torch.randint(0, 2, (rows, labels), generator=draw, dtype=torch.int8)
    counts = []
    for k in range(labels):
        pairs = [(float(logits[i, k]) > 0, bool(y[i, k])) for i in range(rows)]
        counts.append([sum(p and o for p, o in pairs), sum(p for p, _ in pairs) + sum(o for _, o in pairs)])
    each = [2 * hits / total if total else 0.0 for hits, total in counts]
    hits, total = (sum(column) for column in zip(*counts, strict=True))
    result = scores("labels", logits, y)
    assert result["micro_f1"] == pytest.approx(2 * hits / total if total else 0.0, abs=1e-12)
    assert result["macro_f1"] == pytest.approx(sum(each) / labels, abs=1e-12)


@few
@given(seed=st.integers(0, 10**6), rows=st.integers(2, 8), values=st.integers(1, 3))
def test_r2_and_rmse_are_those_of_the_definition(seed: int, rows: int, values: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    z, y = torch.randn(2, rows, values, generator=draw, dtype=torch.float64)
    each = [1 - sum((z[:, t] - y[:, t]) ** 2) / sum((y[:, t] - y[:, t].mean()) ** 2) for t in range(values)]
    result = scores("values", z, y)
    assert result["r2"] == pytest.approx(float(sum(each)) / values, rel=1e-9, abs=1e-9)
    assert result["rmse"] == pytest.approx(math.sqrt(float(((z - y) ** 2).mean())), rel=1e-9)


def test_r2_of_constant_values() -> None:
    y = torch.full((4, 1), 0.1, dtype=torch.float64)
    assert scores("values", y, y) == {"r2": 1.0, "rmse": 0.0}
    assert scores("values", y + 0.5, y)["r2"] == 0.0
    assert scores("values", torch.tensor([[9.0], [-9.0]]), torch.tensor([[0.0], [1.0]]))["r2"] < 0


def test_classes_are_scored_by_accuracy() -> None:
    logits = torch.tensor([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0], [5.0, 1.0]])
    assert scores("classes", logits, torch.tensor([1, 0, 0, 0])) == {"micro_f1": 0.75}


@pytest.mark.parametrize("kind", list(SCORES))
def test_every_kind_has_the_scores_that_it_names_in_their_order(kind: ScoreKind) -> None:
    y = {"classes": torch.tensor([0, 1])}.get(kind, torch.tensor([[0], [1]]))
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0]]) if kind == "classes" else torch.tensor([[0.5], [0.2]])
    assert tuple(scores(kind, logits, y)) == SCORES[kind]
    with pytest.raises(InputError, match="nothing to score"):
        scores(kind, logits[:0], y[:0])


def test_links_of_one_kind_are_not_told_apart() -> None:
    logits = torch.tensor([[0.5], [0.2]])
    assert scores("links", logits, torch.tensor([[1], [1]])) == {"auc": 0.5, "average_precision": 1.0}
    assert scores("links", logits, torch.tensor([[0], [0]])) == {"auc": 0.5, "average_precision": 0.0}


def test_shares_are_shown_in_percent_and_errors_as_numbers() -> None:
    assert (shown_score("auc", 0.5), shown_score("r2", -0.25)) == ("50.00 %", "-0.2500")
