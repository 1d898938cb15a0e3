"""Scores of an audit: areas and intervals, what errors say of epsilon, the per-example test, the table's rows."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import beta, norm, ttest_ind
from sklearn.metrics import roc_auc_score, roc_curve

import graphforget as gf
from graphforget.audits import lira
from graphforget.audits.lira import UNLIKELY, LikelihoodRatio, PerExample, per_example
from graphforget.audits.power import can_fail, fewest_models, held_out_models, models_to_flag
from graphforget.audits.rows import Row, per_example_rows, rows_of
from graphforget.audits.scores import Interval, between_models, confidence, resampled, true_positive_rate, wins
from graphforget.privacy.audit_epsilon import epsilon_at_least, largest_auc, largest_share
from graphforget.privacy.gaussian import delta_of, epsilon_of
from graphforget.training.scores import auc

# Few different values, so that there are ties.
VALUES = st.integers(-3, 3).map(float)
SCORES = arrays(np.float64, st.integers(1, 30), elements=VALUES)


def labelled(positive: np.ndarray, negative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([1, 0], [positive.size, negative.size]), np.concatenate([positive, negative])


# -- areas, rates, intervals ---------------------------------------------------------------------------------


@pytest.mark.slow
@settings(deadline=None)
@given(SCORES, SCORES)
def test_auc_is_that_of_the_roc_curve_with_ties(positive: np.ndarray, negative: np.ndarray) -> None:
    assert auc(positive, negative) == pytest.approx(roc_auc_score(*labelled(positive, negative)), abs=1e-12)


@settings(deadline=None)
@given(SCORES, SCORES)
def test_auc_is_the_mean_of_wins_and_turns_round_with_the_groups(positive: np.ndarray, negative: np.ndarray) -> None:
    table = wins(positive, negative)
    assert table.shape == (positive.size, negative.size)
    assert set(np.unique(table)) <= {0.0, 0.5, 1.0}
    assert table.mean() == pytest.approx(auc(positive, negative), abs=1e-12)
    assert auc(positive, negative) + auc(negative, positive) == pytest.approx(1, abs=1e-12)


@pytest.mark.slow
@settings(deadline=None)
@given(SCORES, arrays(np.float64, st.integers(1, 250), elements=VALUES), st.sampled_from([0.01, 0.05, 0.3]))
def test_true_positive_rate_is_the_highest_point_of_the_curve_that_is_allowed(
    positive: np.ndarray, negative: np.ndarray, allowed: float
) -> None:
    rates, hits, _ = roc_curve(*labelled(positive, negative), drop_intermediate=False)
    result = true_positive_rate(positive, negative, false_positive_rate=allowed)
    assert result == pytest.approx(hits[rates <= allowed].max(), abs=1e-12)


@pytest.mark.parametrize("negatives", [99, 100, 101, 700, 2900])
def test_one_in_a_hundred_may_pass(negatives: int) -> None:
    negative = np.arange(negatives, dtype=float)
    positive = np.array([negatives - 1.5 - k for k in range(40)])  # k + 1 negatives lie above the k-th
    assert true_positive_rate(positive, negative) == (negatives // 100) / 40


def test_arrays_of_any_shape_are_taken_as_one_group_each() -> None:
    rng = np.random.default_rng(0)
    high, low = rng.normal(1, 1, (6, 7)), rng.normal(size=(5, 40))
    assert auc(high, low) == auc(high.ravel(), low.ravel())
    assert true_positive_rate(high, low) == true_positive_rate(high.ravel(), low.ravel())
    assert wins(high, low).shape == (42, 200)


def test_confidence_is_the_log_odds_of_the_label() -> None:
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 4)))
    labels = torch.arange(50) % 4
    p = logits.softmax(dim=1).gather(1, labels[:, None]).squeeze(1)
    np.testing.assert_allclose(confidence(logits, labels), (p / (1 - p)).log().numpy(), rtol=1e-10)


def test_confidence_is_finite_where_the_probability_rounds_to_0_or_1() -> None:
    logits = torch.tensor([[900.0, 0.0, 0.0], [900.0, 0.0, 0.0]], dtype=torch.float64)
    np.testing.assert_allclose(confidence(logits, torch.tensor([0, 1])), [900 - math.log(2), -900.0])


@pytest.mark.slow
def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    shift, truth = 0.8, float(ndtr(0.8 / math.sqrt(2)))
    rng, held, repeats = np.random.default_rng(0), 0, 150
    for repeat in range(repeats):
        result = resampled(wins(rng.normal(shift, 1, 50), rng.normal(size=40)), seed=repeat)
        held += result.holds(truth)
    assert 0.91 <= held / repeats <= 0.985


def test_the_interval_is_that_of_drawing_rows_and_columns_again() -> None:
    """Against a bootstrap that really draws."""
    rng = np.random.default_rng(1)
    table = wins(rng.normal(0.5, 1, 30), rng.normal(size=20))
    drawn = [table[np.ix_(rng.integers(0, 30, 30), rng.integers(0, 20, 20))].mean() for _ in range(4000)]
    result = resampled(table, seed=0)
    assert result.value == table.mean()
    assert (result.low, result.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.012)


def test_the_interval_is_repeatable_by_its_seed() -> None:
    rng = np.random.default_rng(2)
    table = wins(rng.normal(0.5, 1, 30), rng.normal(size=20))
    assert resampled(table, seed=3) == resampled(table, seed=3)
    assert resampled(table, seed=3) != resampled(table, seed=4)


def test_a_table_that_is_the_same_everywhere_has_no_width() -> None:
    result = resampled(np.full((7, 5), 0.25), seed=0)
    assert (result.value, result.low, result.high) == pytest.approx((0.25, 0.25, 0.25), abs=1e-12)
    assert Interval(0.5, 0.25, 0.75).holds(0.75)
    assert not Interval(0.5, 0.25, 0.75).holds(0.7500001)


def test_the_interval_between_models_is_welchs() -> None:
    """Of a table that is a row's part less a column's, its mean is the difference of two independent means."""
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(0.6, 0.05, 9), rng.normal(0.1, 0.02, 6)
    result, limit = between_models(rows[:, None] - columns[None, :], surely=0.99)
    expected = ttest_ind(rows, columns, equal_var=False).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert result.value == pytest.approx(rows.mean() - columns.mean())
    one_sided = ttest_ind(rows, columns, equal_var=False, alternative="greater").confidence_interval(0.99)
    assert limit == pytest.approx(one_sided.low, abs=1e-9)


@pytest.mark.parametrize("models", [6, 16])
def test_the_interval_between_models_covers_the_truth_about_as_often_as_it_says(models: int) -> None:
    rng, held, repeats = np.random.default_rng(0), 0, 1000
    truth = float(ndtr(0.5 / math.sqrt(2)))
    for _ in range(repeats):
        result, _limit = between_models(wins_of_models(rng, models, shift=0.5), surely=0.999)
        held += result.holds(truth)
    assert 0.925 <= held / repeats <= 0.975


def wins_of_models(rng: np.random.Generator, models: int, *, shift: float, items: int = 12) -> np.ndarray:
    """The mean wins of pairs of models, each of which answers about items with a shift of its own."""
    high, low = (m + rng.normal(scale=0.4, size=(models, 1)) for m in (shift, 0.0))
    a, b = (rng.normal(one, math.sqrt(1 - 0.4**2), (models, items)) for one in (high, low))
    return (a[:, None, :, None] > b[None, :, None, :]).mean(axis=(2, 3))


@pytest.mark.slow
@pytest.mark.parametrize(("models", "items"), [(4, 1), (4, 12), (8, 1), (8, 12)])
def test_what_is_surely_so_is_seldom_so_by_chance(models: int, items: int) -> None:
    """Where there is nothing to tell apart: with four models of each kind and one item, all four lie above the others
    once in 70 times."""
    rng, repeats = np.random.default_rng(1), 2000
    alarms = sum(
        between_models(wins_of_models(rng, models, shift=0.0, items=items), surely=1 - UNLIKELY)[1] > 0.5
        for _ in range(repeats)
    )
    assert alarms <= 4 * UNLIKELY * repeats


def test_an_interval_of_shares_ends_where_shares_do() -> None:
    result, limit = between_models(np.array([[1.0, 0.9], [0.95, 0.4]]), surely=0.999)
    assert (result.low, result.high) == (0, 1)
    assert limit == 0


# -- epsilon -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(1, 300), st.data(), st.sampled_from([0.9, 0.95, 0.975]))
def test_the_largest_share_is_clopper_and_pearsons(trials: int, data: st.DataObject, level: float) -> None:
    errors = data.draw(st.integers(0, trials))
    expected = 1.0 if errors == trials else float(beta.ppf(level, errors + 1, trials - errors))
    assert largest_share(errors, trials, confidence=level) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("errors", "trials"), [(-1, 5), (6, 5), (0, 0)])
def test_impossible_errors_are_refused(errors: int, trials: int) -> None:
    with pytest.raises(gf.InputError, match=f"^{errors} errors in {trials} trials are impossible$"):
        largest_share(errors, trials, confidence=0.95)


def bound(fp: int, fn: int, trials: int, *, delta: float = 0.0, **more: float) -> float:
    return epsilon_at_least(
        false_positives=fp, negatives=trials, false_negatives=fn, positives=trials, delta=delta, **more
    )


@pytest.mark.parametrize(
    ("trials", "known"), [(10, 1.05), (20, 1.82), (50, 2.78), (100, 3.49), (200, 4.19), (1000, 5.81)]
)
def test_what_no_errors_at_all_show(trials: int, known: float) -> None:
    """With 95 % for each of the two rates the known table, and with 95 % for both less."""
    assert bound(0, 0, trials, confidence=0.9) == pytest.approx(known, abs=0.006)
    share = 1 - 0.025 ** (1 / trials)
    assert bound(0, 0, trials) == pytest.approx(math.log((1 - share) / share), rel=1e-9)
    assert bound(0, 0, trials) < bound(0, 0, trials, confidence=0.9)
    assert bound(0, 0, trials, delta=0.1) == pytest.approx(math.log((0.9 - share) / share), rel=1e-9)


@settings(deadline=None)
@given(st.integers(1, 60), st.data(), st.sampled_from([0.0, 1e-5, 0.1]))
def test_epsilon_by_brute_force_over_both_directions(trials: int, data: st.DataObject, delta: float) -> None:
    fp, fn = (data.draw(st.integers(0, trials)) for _ in range(2))
    fpr, fnr = (largest_share(errors, trials, confidence=0.975) for errors in (fp, fn))
    # The least epsilon at which neither line forbids these rates.
    grid = np.linspace(0, 8, 80001)
    allowed = (np.exp(grid) * fpr + fnr >= 1 - delta) & (fpr + np.exp(grid) * fnr >= 1 - delta)
    expected = float(grid[allowed][0])
    assert bound(fp, fn, trials, delta=delta) == pytest.approx(expected, abs=2e-4)
    assert bound(fp, fn, trials, delta=delta) == bound(fn, fp, trials, delta=delta)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_test_that_is_always_wrong_shows_nothing(delta: float) -> None:
    assert bound(4, 4, 4, delta=delta) == 0
    assert bound(1, 1, 1, delta=delta) == 0


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(1, 40), st.data())
def test_fewer_errors_and_more_trials_never_show_less(trials: int, data: st.DataObject) -> None:
    fp, fn = (data.draw(st.integers(0, trials - 1)) for _ in range(2))
    here = bound(fp, fn, trials)
    assert bound(max(0, fp - 1), fn, trials) >= here
    assert bound(fp, fn, trials + 1) >= here - 1e-12
    assert bound(fp, fn, trials, delta=0.2) <= here


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.7, 2.0])
def test_the_bound_on_a_gaussian_mechanism_is_seldom_over_its_epsilon_and_comes_near(ratio: float) -> None:
    """The best test at (epsilon, delta) takes the log-likelihood ratio against epsilon."""
    delta = 1e-2
    truth = epsilon_of(ratio=ratio, delta=delta)
    fpr, fnr = float(ndtr(-ratio / 2 - truth / ratio)), float(ndtr(truth / ratio - ratio / 2))
    rng, repeats = np.random.default_rng(5), 400
    for trials in (100, 3000):
        errors, times = np.unique(rng.binomial(trials, [fpr, fnr], size=(repeats, 2)), axis=0, return_counts=True)
        over = [bound(int(fp), int(fn), trials, delta=delta) > truth for fp, fn in errors]
        assert times[over].sum() <= 0.05 * repeats
    many = 10**8
    near = bound(round(many * fpr), round(many * fnr), many, delta=delta)
    assert truth - 0.02 * max(1, truth) < near < truth


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.05, 0.5])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0, 12.0])
def test_the_largest_area_is_that_over_the_trade_off(epsilon: float, delta: float) -> None:
    def trade_off(a: float) -> float:
        return max(0.0, 1 - delta - math.exp(epsilon) * a, math.exp(-epsilon) * (1 - delta - a))

    corners = [(1 - delta) / (1 + math.exp(epsilon)), (1 - delta) * math.exp(-epsilon), 1 - delta]
    under = sum(quad(trade_off, a, b)[0] for a, b in zip([0.0, *sorted(corners)], [*sorted(corners), 1.0], strict=True))
    assert largest_auc(epsilon=epsilon, delta=delta) == pytest.approx(1 - under, abs=1e-9)


def test_the_largest_area_at_the_ends() -> None:
    assert largest_auc(epsilon=0, delta=0) == 0.5
    assert largest_auc(epsilon=1000, delta=0) == 1
    assert largest_auc(epsilon=math.inf, delta=1e-5) == 1
    assert largest_auc(epsilon=0, delta=1) == 1


@pytest.mark.slow
@settings(deadline=None)
@given(st.floats(0.01, 6), st.floats(0, 20))
def test_no_pair_of_gaussians_has_a_larger_area(ratio: float, epsilon: float) -> None:
    delta = min(1.0, delta_of(ratio=ratio, epsilon=epsilon))
    assert float(ndtr(ratio / math.sqrt(2))) <= largest_auc(epsilon=epsilon, delta=delta) + 1e-12


# -- the per-example test ------------------------------------------------------------------------------------


def populations(shift: float | np.ndarray, *, models: int, items: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Values whose items have places and spreads of their own, `shift` spreads apart."""
    rng = np.random.default_rng(seed)
    place, spread = rng.normal(0, 10, items), rng.uniform(0.1, 5, items)
    suspects, innocents = rng.normal(size=(2, models, items))
    return place + spread * (suspects + shift), place + spread * innocents


def test_the_ratio_is_that_of_two_gaussians_of_one_variance() -> None:
    suspects, innocents = populations(0.7, models=9, items=5, seed=0)
    innocents = innocents[:6]
    means = suspects.mean(axis=0), innocents.mean(axis=0)
    within = (8 * suspects.var(axis=0, ddof=1) + 5 * innocents.var(axis=0, ddof=1)) / 13
    values = np.random.default_rng(1).normal(0, 10, (4, 5))
    expected = norm.logpdf(values, means[0], np.sqrt(within)) - norm.logpdf(values, means[1], np.sqrt(within))
    ratio = LikelihoodRatio.fit(suspects, innocents)
    np.testing.assert_allclose(ratio.items(values), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ratio.joint(values), expected.sum(axis=1), rtol=1e-8)
    assert ratio.joint(values[0]) == pytest.approx(expected[0].sum())


def test_equal_populations_are_not_told_apart() -> None:
    areas = [per_example(*populations(0.0, models=40, items=6, seed=s), delta=0.0) for s in range(12)]
    assert np.mean([result.auc.value for result in areas]) == pytest.approx(0.5, abs=0.03)
    assert np.mean([result.joint_auc for result in areas]) == pytest.approx(0.5, abs=0.1)
    assert [result.epsilon for result in areas] == [0] * 12
    assert sum(result.auc.holds(0.5) for result in areas) >= 10


@pytest.mark.parametrize("shift", [1.0, 2.0])
def test_a_known_shift_gives_the_known_area(shift: float) -> None:
    result = per_example(*populations(shift, models=120, items=9, seed=0), delta=0.0)
    assert result.auc.value == pytest.approx(float(ndtr(shift / math.sqrt(2))), abs=0.03)
    assert result.auc.holds(float(ndtr(shift / math.sqrt(2))))
    assert result.joint_auc == pytest.approx(float(ndtr(3 * shift / math.sqrt(2))), abs=0.03)
    assert result.true_positives == pytest.approx(float(ndtr(shift - norm.isf(0.01))), abs=0.06)
    assert result.models == 60


def test_a_shift_down_is_as_good_as_one_up() -> None:
    """An item may be remembered by a lower value: that is what the sign of the slope is for."""
    signs = np.array([1, -1, 1, -1])
    result = per_example(*populations(1.5 * signs, models=100, items=4, seed=0), delta=0.0)
    assert result.auc.value == pytest.approx(float(ndtr(1.5 / math.sqrt(2))), abs=0.03)


def test_every_number_is_that_of_the_second_half() -> None:
    suspects, innocents = populations(2.0, models=20, items=5, seed=3)
    innocents = innocents[:16]
    ratio = LikelihoodRatio.fit(suspects[:10], innocents[:8])
    high, low = ratio.items(suspects[10:]), ratio.items(innocents[8:])
    result = per_example(suspects, innocents, delta=0.01)
    assert result.auc.value == pytest.approx(np.mean([roc_auc_score(*labelled(a, b)) for a in high for b in low]))
    assert result.true_positives == true_positive_rate(high, low)
    assert result.joint_auc == roc_auc_score(*labelled(high.sum(axis=1), low.sum(axis=1)))
    assert result.epsilon == epsilon_at_least(
        false_positives=int((low.sum(axis=1) > 0).sum()),
        negatives=8,
        false_negatives=int((high.sum(axis=1) <= 0).sum()),
        positives=10,
        delta=0.01,
    )
    assert result.epsilon > 0
    table = np.array([[roc_auc_score(*labelled(a, b)) for b in low] for a in high])
    assert (result.auc, result.surely) == between_models(table, surely=1 - UNLIKELY)
    assert result.attainable == epsilon_at_least(
        false_positives=0, negatives=8, false_negatives=0, positives=10, delta=0.01
    )
    assert result.models == 8


def test_the_ratio_is_fitted_on_no_model_that_it_is_tested_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    fit = LikelihoodRatio.fit

    def spied(suspects: np.ndarray, innocents: np.ndarray) -> LikelihoodRatio:
        seen.append((suspects.copy(), innocents.copy()))
        return fit(suspects, innocents)

    monkeypatch.setattr(lira.LikelihoodRatio, "fit", spied)
    suspects, innocents = populations(1.0, models=11, items=3, seed=4)
    per_example(suspects, innocents, delta=0.0)
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0][0], suspects[:5])
    np.testing.assert_array_equal(seen[0][1], innocents[:5])


@pytest.mark.parametrize("place", [0.0, 3.0, -1e6])
def test_items_that_no_model_differs_in_tell_nothing(place: float) -> None:
    """Nor does what is left of them by rounding drown the others."""
    suspects, innocents = populations(1.0, models=20, items=3, seed=5)
    without = per_example(suspects, innocents, delta=0.0)
    rng = np.random.default_rng(0)
    rounding = [place + 1e-16 * abs(place) * rng.normal(size=(20, 1)) for _ in range(2)]
    more = [np.hstack([one, still]) for one, still in zip((suspects, innocents), rounding, strict=True)]
    result = per_example(*more, delta=0.0)
    assert np.isfinite([*vars(result.auc).values(), result.true_positives, result.epsilon]).all()
    assert (result.joint_auc, result.epsilon) == (without.joint_auc, without.epsilon)


def test_items_of_no_spread_that_differ_tell_everything() -> None:
    result = per_example(np.ones((16, 2)), np.zeros((16, 2)), delta=0.0)
    assert (result.auc.value, result.true_positives, result.joint_auc) == (1, 1, 1)
    assert result.epsilon == bound(0, 0, 8)


def test_equal_values_everywhere_are_no_evidence() -> None:
    result = per_example(np.ones((16, 2)), np.ones((16, 2)), delta=0.0)
    assert (result.auc.value, result.joint_auc, result.true_positives, result.epsilon) == (0.5, 0.5, 0, 0)


def test_populations_that_change_places_between_the_halves_do_not_stop_the_test() -> None:
    """Every model is told wrongly then, which chance does to few models now and then."""
    suspects = np.repeat([1.0, -1.0], 4)[:, None] + np.linspace(0, 0.1, 8)[:, None]
    result = per_example(suspects, -suspects, delta=1e-5)
    assert (result.joint_auc, result.epsilon) == (0, 0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: LikelihoodRatio.fit(np.zeros((1, 3)), np.zeros((5, 3))), "at least 2 models of each kind"),
        (lambda: per_example(np.zeros((5, 3)), np.zeros((3, 3)), delta=0.0), "at least 4 models of each kind"),
    ],
)
def test_too_few_models_are_refused(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(gf.InputError, match=f"^{sentence}"):
        call()


# -- rows ----------------------------------------------------------------------------------------------------


def scored(*, seed: int = 0, times: int = 3) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    rng = np.random.default_rng(seed)

    def pair(shift: float) -> tuple[np.ndarray, np.ndarray]:
        return rng.normal(shift, 1, 30), rng.normal(size=25)

    return {"before": [pair(2)], "no_op": [pair(1)], "retrained": [pair(0.3) for _ in range(times)]}


def test_rows_hold_the_areas_rates_and_gaps() -> None:
    scores = scored()
    rows = {row.model: row for row in rows_of("some attack", scores, seed=0)}
    assert list(rows) == list(scores)
    areas = {name: np.mean([roc_auc_score(*labelled(*p)) for p in pairs]) for name, pairs in scores.items()}
    for name, row in rows.items():
        assert (row.attack, row.published) == ("some attack", None)
        assert row.auc.value == pytest.approx(areas[name])
        assert row.auc.low < row.auc.value < row.auc.high
        assert row.true_positives == pytest.approx(np.mean([true_positive_rate(*p) for p in scores[name]]))
    assert rows["retrained"].gap is None
    for name in ("before", "no_op"):
        gap = rows[name].gap
        assert gap is not None
        assert gap.value == pytest.approx(areas[name] - areas["retrained"])
        assert gap.low < gap.value < gap.high


def test_a_model_that_answers_as_retrained_ones_has_no_gap_and_no_doubt_of_it() -> None:
    """The same items are drawn for both, so what they have in common cancels."""
    scores = scored(times=1)
    scores["method"] = scores["retrained"]
    gap = {row.model: row.gap for row in rows_of("some attack", scores, seed=0)}["method"]
    assert gap == Interval(0, 0, 0)


def test_the_gaps_interval_is_of_pairs_not_of_two_independent_areas() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(0.5, 1, 40), rng.normal(size=40)
    near = inside + 0.05 * rng.normal(size=40), outside + 0.05 * rng.normal(size=40)
    rows = {r.model: r for r in rows_of("some", {"retrained": [(inside, outside)], "method": [near]}, seed=0)}
    gap, area = rows["method"].gap, rows["method"].auc
    assert gap is not None
    assert gap.high - gap.low < 0.3 * (area.high - area.low)


def test_a_table_of_many_retrained_models_is_not_kept_for_each_of_them() -> None:
    """With thousands of items one such table is large, and twenty of them at once do not fit."""
    rng = np.random.default_rng(0)
    size, times = 600, 20
    pairs = [(rng.normal(size=size), rng.normal(size=size)) for _ in range(times)]
    tracemalloc.start()
    rows_of("some", {"retrained": pairs, "method": pairs[:1]}, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    draws = 8 * 1000 * size  # the bootstrap's own arrays: weights of rows and of columns, and their products
    assert peak < 8 * 8 * size**2 + 8 * draws


def test_rows_of_the_per_example_test_have_a_coin_to_compare_with() -> None:
    test = PerExample(Interval(0.75, 0.625, 0.875), 0.6, 0.25, 0.9, 1.5, 2.0, 12)
    rows = per_example_rows("per-example", {"no_op": test, "retrained": test})
    assert rows == [
        Row("per-example", "no_op", test.auc, 0.25, Interval(0.25, 0.125, 0.375)),
        Row("per-example", "retrained", test.auc, 0.25, None),
    ]


# -- whether a test could fail at all ---------------------------------------------------------------------------

EXACT, NO_CLAIM = (0.0, 0.0), None


@pytest.mark.parametrize("promise", [NO_CLAIM, EXACT, (1.0, 1e-5), (3.0, 1e-5), (700.0, 1e-5)])
@pytest.mark.parametrize("models", [8, 10, 11, 12, 33, 64])
def test_a_test_can_fail_if_models_that_are_perfectly_told_apart_would(
    models: int, promise: tuple[float, float] | None
) -> None:
    rng = np.random.default_rng(0)
    high, low = (rng.normal(size=(models, 5), scale=1e-3) + shift for shift in (10.0, -10.0))
    epsilon, delta = promise or EXACT
    best = per_example(high, low, delta=delta)
    limit = 0.5 if promise is None else largest_auc(epsilon=epsilon, delta=delta)
    flagged = best.surely > limit or (promise is not None and best.epsilon > epsilon)
    assert can_fail(held_out_models(models), promise) is flagged
    assert best.models == held_out_models(models)


def test_the_fewest_models_are_the_first_that_can_fail() -> None:
    for promise in (NO_CLAIM, EXACT, (1.0, 1e-5), (4.0, 1e-5)):
        fewest = fewest_models(promise)
        assert fewest is not None
        assert can_fail(held_out_models(fewest), promise)
        assert not can_fail(held_out_models(fewest - 1), promise)
    assert fewest_models((700.0, 0.0)) is None


def shifted_models(models: int, *, shift: float, items: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(models)
    return rng.normal(size=(models, items)) + shift, rng.normal(size=(models, items))


@pytest.mark.slow
@pytest.mark.parametrize("promise", [NO_CLAIM, EXACT, (1.0, 1e-5)])
@pytest.mark.parametrize("shift", [0.5, 1.0])
def test_about_so_many_models_as_are_said_to_be_needed_show_it(
    shift: float, promise: tuple[float, float] | None
) -> None:
    few = per_example(*shifted_models(60, shift=shift), delta=1e-5)
    needed = models_to_flag(few, few, promise)
    assert needed is not None
    assert needed < 100
    epsilon, delta = promise or EXACT
    limit = 0.5 if promise is None else largest_auc(epsilon=epsilon, delta=delta)
    many = per_example(*shifted_models(2 * needed, shift=shift), delta=delta)
    assert many.surely > limit or many.epsilon > epsilon


@pytest.mark.slow
@pytest.mark.parametrize("promise", [NO_CLAIM, EXACT, (1.0, 1e-5)])
def test_no_number_of_models_shows_what_is_not_there(promise: tuple[float, float] | None) -> None:
    high, low = shifted_models(64, shift=0.0)
    same = per_example(np.concatenate([high, low]), np.concatenate([low, high]), delta=0.0)
    none = dataclasses.replace(same, auc=Interval(0.5, 0.45, 0.55), joint_auc=0.5)
    assert models_to_flag(none, none, promise) is None
