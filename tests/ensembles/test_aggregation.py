"""Ensembles of shard models: each formula against a loop, and the learned weights against the optimality conditions."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphforget.ensembles import aggregation
from graphforget.ensembles.aggregation import AGGREGATIONS, aggregate, learned_weights, uniform_weights
from graphforget.errors import InputError, Refused

F64 = torch.float64


def answers(seed: int, *, k: int = 5, n: int = 40, classes: int = 4, scale: float = 1.5) -> tuple[Tensor, Tensor]:
    """Log-probabilities of k models of rising quality, and the labels."""
    torch.manual_seed(seed)
    labels = torch.randint(classes, (n,))
    logits = scale * torch.randn(k, n, classes, dtype=F64)
    logits[:, torch.arange(n), labels] += scale * torch.rand(k, 1, dtype=F64)
    return logits.log_softmax(dim=2), labels


def on_simplex(k: int, *, count: int) -> Tensor:
    raw = -torch.rand(count, k, dtype=F64).clamp_min(1e-12).log()  # exponential: uniform on the simplex
    return raw / raw.sum(dim=1, keepdim=True)


def values(log_probabilities: Tensor, labels: Tensor, weights: Tensor, *, penalty: float) -> Tensor:
    """The objective at each row of the weights."""
    of_label = log_probabilities[:, torch.arange(labels.numel()), labels].double().exp()
    return -(weights @ of_label).log().mean(dim=1) + penalty * weights.square().sum(dim=1)


def gradient(log_probabilities: Tensor, labels: Tensor, weights: Tensor, *, penalty: float) -> Tensor:
    point = weights.clone().requires_grad_()
    return torch.autograd.grad(values(log_probabilities, labels, point[None], penalty=penalty).sum(), point)[0]


def shares(log_probabilities: Tensor, weights: Tensor) -> Tensor:
    k, n, classes = log_probabilities.shape
    result = torch.zeros(n, classes, dtype=F64)
    for s in range(k):
        for i in range(n):
            result[i, int(log_probabilities[s, i].argmax())] += float(weights[s])
    return result


@pytest.mark.parametrize("aggregation", ["mean", "learned"])
def test_the_mean_of_the_probabilities_against_a_loop(aggregation: str) -> None:
    log_p, _ = answers(0)
    weights = on_simplex(5, count=1)[0]
    result = aggregate(log_p, weights, aggregation=aggregation)
    for i in range(40):
        for c in range(4):
            mean = sum(float(weights[s]) * math.exp(float(log_p[s, i, c])) for s in range(5))
            assert float(result[i, c]) == pytest.approx(math.log(mean), rel=1e-12)
    torch.testing.assert_close(result.exp().sum(dim=1), torch.ones(40, dtype=F64))


def test_a_mean_of_probabilities_and_not_of_their_logarithms() -> None:
    """One model that rules a class out cannot outvote two that are fairly sure of it."""
    log_p = torch.tensor([[[0.7, 0.3]], [[0.7, 0.3]], [[1e-30, 1.0]]], dtype=F64).log()
    for rule in ("mean", "learned"):
        result = aggregate(log_p, torch.tensor([0.4, 0.4, 0.2], dtype=F64), aggregation=rule)
        torch.testing.assert_close(result.exp(), torch.tensor([[0.56, 0.44]], dtype=F64))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), equal=st.booleans())
def test_majority_is_the_share_of_votes_and_the_mean_breaks_ties_alone(seed: int, equal: bool) -> None:
    log_p, _ = answers(seed, k=6, n=20, classes=3)
    weights = torch.full((6,), 1 / 6, dtype=F64) if equal else on_simplex(6, count=1)[0]
    result = aggregate(log_p, weights, aggregation="majority")
    mean = aggregate(log_p, weights, aggregation="mean")
    votes = shares(log_p, weights)
    assert torch.isfinite(result).all()
    torch.testing.assert_close(result.exp(), votes, rtol=0, atol=1.01e-6)
    for i in range(20):
        for a in range(3):
            for b in range(3):
                difference = float(votes[i, a] - votes[i, b])
                tied = abs(difference) < 1e-12 and bool(mean[i, a] > mean[i, b])
                if difference > 1e-9 or tied:
                    assert result[i, a] > result[i, b]


def test_a_bare_majority_stands_against_any_mean() -> None:
    """Class 0 wins by 4e-8 of the votes, and the mean is for class 1."""
    log_p = torch.tensor([[[-0.693, -0.6932]], [[-500.0, -1e-3]]])
    weights = torch.tensor([0.5 + 2e-8, 0.5 - 2e-8], dtype=F64)
    assert int(aggregate(log_p.double(), weights, aggregation="majority").argmax()) == 0
    assert int(aggregate(log_p.double(), weights, aggregation="mean").argmax()) == 1


def test_a_tie_goes_to_the_higher_mean_even_by_a_hair() -> None:
    surer = torch.tensor([0.2, 0.8], dtype=F64)
    log_p = torch.stack([surer.flip(0), surer]).log()[:, None]
    log_p[1, 0, 1] += 1e-12
    half = torch.full((2,), 0.5, dtype=F64)
    assert int(aggregate(log_p, half, aggregation="majority").argmax()) == 1
    assert int(aggregate(log_p.flip(2), half, aggregation="majority").argmax()) == 0


@pytest.mark.parametrize("sure", [0.5, 0.99])
def test_a_tie_but_for_rounding_is_a_tie(sure: float) -> None:
    """0.1 + 0.2 votes for class 0 and 0.3 for class 1, with 0.4 for class 2 above both."""
    probabilities = torch.tensor([[0.7, 0.1, 0.2], [0.7, 0.1, 0.2], [0.0, 0.0, 0.0], [0.1, 0.1, 0.8]], dtype=F64)
    probabilities[2] = torch.tensor([(1 - sure) / 2, sure, (1 - sure) / 2], dtype=F64)
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=F64)
    votes, mean = (aggregate(probabilities.log()[:, None], weights, aggregation=a)[0] for a in ("majority", "mean"))
    assert int(votes.argmax()) == 2
    assert (votes[1] > votes[0]) == (mean[1] > mean[0]) == (sure == 0.99)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_shard_of_weight_0_is_not_looked_at(aggregation: str) -> None:
    log_p, _ = answers(1)
    weights = torch.tensor([0.5, 0.0, 0.2, 0.3, 0.0], dtype=F64)
    labelled = [0, 2, 3]
    expected = aggregate(log_p[labelled], weights[labelled], aggregation=aggregation)
    for rubbish in (-math.inf, math.nan):
        spoilt = log_p.clone()
        spoilt[1], spoilt[4, 3] = rubbish, rubbish
        torch.testing.assert_close(aggregate(spoilt, weights, aggregation=aggregation), expected, rtol=0, atol=0)
    single = aggregate(log_p, torch.eye(5, dtype=F64)[2], aggregation=aggregation)
    assert torch.equal(single.argmax(dim=1), log_p[2].argmax(dim=1))


def test_impossible_classes() -> None:
    log_p, _ = answers(2, k=3, n=6)
    log_p[:, 0, 1], log_p[0, 1, 2] = -math.inf, -math.inf
    weights = on_simplex(3, count=1)[0]
    mean, majority, mixture = (aggregate(log_p, weights, aggregation=a) for a in AGGREGATIONS)
    assert mean[0, 1] == mixture[0, 1] == -math.inf  # only what every model rules out is impossible
    for result in (mean, mixture):
        assert torch.isfinite(result[1:]).all()
        others = float(weights[1:] @ log_p[1:, 1, 2].exp())
        assert float(result[1, 2]) == pytest.approx(math.log(others), rel=1e-12)
        assert not result.isnan().any()
    assert torch.isfinite(majority).all()


@pytest.mark.parametrize("aggregation", ["mean", "learned"])
def test_derivatives(aggregation: str) -> None:
    log_p, _ = answers(3, k=3, n=4)
    weights = torch.tensor([0.3, 0.0, 0.7], dtype=F64)
    assert torch.autograd.gradcheck(
        lambda t: aggregate(t, weights, aggregation=aggregation), log_p.clone().requires_grad_()
    )
    log_p[1] = -math.inf
    log_p[:, 0, 0] = -math.inf
    point = log_p.requires_grad_()
    (slope,) = torch.autograd.grad(aggregate(point, weights, aggregation=aggregation)[1:].sum(), point)
    assert torch.isfinite(slope).all()


def test_majority_is_constant() -> None:
    log_p, _ = answers(3)
    assert not aggregate(log_p.requires_grad_(), uniform(5), aggregation="majority").requires_grad


def uniform(k: int) -> Tensor:
    return uniform_weights(torch.ones(k, dtype=torch.bool), k)


def test_types_and_inputs_unchanged() -> None:
    log_p, labels = answers(4)
    log_p, weights = log_p.float(), uniform(5)
    before = log_p.clone(), labels.clone(), weights.clone()
    kinds = [aggregate(log_p, weights, aggregation=a).dtype for a in AGGREGATIONS]
    assert kinds == [torch.float32, F64, torch.float32]
    assert learned_weights(log_p, labels).dtype == F64
    torch.testing.assert_close(learned_weights(log_p, labels), learned_weights(log_p.double(), labels))
    assert all(torch.equal(a, b) for a, b in zip(before, (log_p, labels, weights), strict=True))


def test_uniform_weights() -> None:
    alive = torch.tensor([True, False, True, True])
    assert torch.equal(uniform_weights(alive, 4), torch.tensor([1 / 3, 0.0, 1 / 3, 1 / 3], dtype=F64))
    with pytest.raises(InputError, match="no shard is alive"):
        uniform_weights(torch.zeros(4, dtype=torch.bool), 4)
    with pytest.raises(InputError, match="one boolean for 5 shards"):
        uniform_weights(alive, 5)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 12),
    n=st.sampled_from([1, 3, 50, 400]),
    scale=st.sampled_from([0.1, 2.0, 20.0]),
    penalty=st.sampled_from([0.0, 1e-3, 1.0, 1e4]),
)
def test_learned_weights_meet_the_optimality_conditions(
    seed: int, k: int, n: int, scale: float, penalty: float
) -> None:
    log_p, labels = answers(seed, k=k, n=n, scale=scale)
    result = learned_weights(log_p, labels, penalty=penalty, tolerance=1e-10)
    assert (result >= 0).all()
    assert float(result.sum()) == pytest.approx(1, abs=1e-14)
    slope = gradient(log_p, labels, result, penalty=penalty)
    level = float(slope @ result)
    near = 1e-6 * (1 + penalty)
    assert float((slope[result > 1e-3] - level).abs().max()) <= near  # equal on the support
    assert float(slope.min()) >= level - near  # and not smaller off it
    assert float((slope - slope.min()) @ result) <= 2e-10 * (1 + penalty)


@pytest.mark.parametrize("penalty", [0.0, 1e-3, 0.1])
def test_no_point_of_the_simplex_is_better(penalty: float) -> None:
    log_p, labels = answers(5, k=4, n=200)
    others = torch.cat([on_simplex(4, count=2000), torch.eye(4, dtype=F64), uniform(4)[None]])
    result = learned_weights(log_p, labels, penalty=penalty)
    best = float(values(log_p, labels, result[None], penalty=penalty))
    assert best <= float(values(log_p, labels, others, penalty=penalty).min()) + 1e-8


def test_the_one_shard_that_knows_is_found() -> None:
    torch.manual_seed(6)
    labels = torch.randint(3, (500,))
    logits = torch.randn(8, 500, 3)
    logits[5, torch.arange(500), labels] += 6
    result = learned_weights(logits.log_softmax(dim=2), labels)
    assert int(result.argmax()) == 5
    assert float(result[5]) > 0.95


def test_a_large_penalty_gives_equal_weights() -> None:
    log_p, labels = answers(7, scale=4.0)
    torch.testing.assert_close(learned_weights(log_p, labels, penalty=1e7), uniform(5), rtol=0, atol=1e-6)
    torch.testing.assert_close(learned_weights(log_p, labels, penalty=1e15), uniform(5), rtol=0, atol=1e-6)


@pytest.mark.parametrize("penalty", [0.0, 1e-3])
def test_shards_that_answer_alike_share_their_weight(penalty: float) -> None:
    log_p, labels = answers(8, k=4, n=300)
    twice = learned_weights(torch.cat([log_p, log_p]), labels, penalty=penalty)
    torch.testing.assert_close(twice[:4], twice[4:], rtol=0, atol=1e-4)
    once = learned_weights(log_p, labels, penalty=penalty / 2)  # half each: half the squares
    torch.testing.assert_close(twice[:4] + twice[4:], once, rtol=0, atol=1e-3)
    same = learned_weights(log_p[:1].expand(6, -1, -1), labels, penalty=penalty)
    torch.testing.assert_close(same, uniform(6))


def test_a_shard_that_rules_the_label_out() -> None:
    log_p, labels = answers(9, k=4, n=100)
    log_p[0, 3, labels[3]] = -math.inf
    log_p[1:, 7, labels[7]] = -math.inf  # only shard 0 gives node 7 a chance
    log_p[2] = -math.inf
    result = learned_weights(log_p, labels)
    assert result[2] == 0
    assert float(result[0]) >= 0.009  # at the optimum no node's likelihood is under 1/n of its best shard's
    assert math.isfinite(float(values(log_p, labels, result[None], penalty=0.0)))
    hopeless = log_p.clone()
    hopeless[:, 0, labels[0]] = -math.inf
    assert torch.equal(learned_weights(hopeless, labels), learned_weights(log_p[:, 1:], labels[1:]))
    assert torch.equal(learned_weights(torch.full_like(log_p, -math.inf), labels), uniform(4))


def test_dead_shards_and_unlabelled_nodes_are_left_out() -> None:
    log_p, labels = answers(10)
    alive = torch.tensor([True, False, True, True, False])
    expected = learned_weights(log_p[alive], labels)
    log_p[1] = math.nan
    result = learned_weights(log_p, labels, alive=alive)
    assert torch.equal(result[alive], expected)
    assert (result[~alive] == 0).all()
    with_gaps = labels.clone()
    with_gaps[::3] = -1
    labelled = with_gaps >= 0
    apart = learned_weights(log_p[:, labelled], labels[labelled], alive=alive)
    assert torch.equal(learned_weights(log_p, with_gaps, alive=alive), apart)


def test_learned_weights_are_deterministic_and_take_no_derivative() -> None:
    log_p, labels = answers(11, k=12, n=2000)
    first = learned_weights(log_p, labels)
    torch.manual_seed(99)
    second = learned_weights(log_p.requires_grad_(), labels)
    assert torch.equal(first, second)
    assert not second.requires_grad


def test_many_shards() -> None:
    log_p, labels = answers(12, k=60, n=3000)
    result = learned_weights(log_p, labels)
    slope = gradient(log_p, labels, result, penalty=1e-3)
    assert float((slope - slope.min()) @ result) <= 1.1e-8


def test_weights_short_of_the_optimum_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    log_p, labels = answers(13)
    monkeypatch.setattr(aggregation, "NEWTON_STEPS", 1)
    with pytest.raises(Refused, match="was asked for"):
        learned_weights(log_p, labels)


LOG_P, LABELS = answers(14)
NAN = torch.full_like(LOG_P, math.nan)
EQUAL = torch.full((5,), 0.2, dtype=F64)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: aggregate(LOG_P, EQUAL, aggregation="median"), "'median' is unknown"),
        (lambda: aggregate(LOG_P[0], EQUAL, aggregation="mean"), "k x n x C is needed"),
        (lambda: aggregate(LOG_P[:0], EQUAL[:0], aggregation="mean"), "no shard or no class"),
        (lambda: aggregate(LOG_P, EQUAL[:4], aggregation="mean"), "one for 5 shards"),
        (lambda: aggregate(LOG_P, 2 * EQUAL, aggregation="mean"), "sum to 1"),
        (lambda: aggregate(LOG_P, EQUAL * math.nan, aggregation="mean"), "sum to 1"),
        (lambda: aggregate(LOG_P, EQUAL * torch.tensor([-1, 3, 1, 1, 1]), aggregation="mean"), "at least 0"),
        (lambda: aggregate(NAN, EQUAL, aggregation="majority"), "NaN"),
        (lambda: aggregate(-LOG_P / 0, EQUAL, aggregation="learned"), "infinity"),
        (lambda: learned_weights(NAN, LABELS), "NaN"),
        (lambda: learned_weights(LOG_P, LABELS[1:]), "for 40 nodes"),
        (lambda: learned_weights(LOG_P, LABELS.double()), "whole numbers"),
        (lambda: learned_weights(LOG_P, LABELS + 4), "there are 4 classes"),
        (lambda: learned_weights(LOG_P, LABELS - 3), "there are 4 classes"),
        (lambda: learned_weights(LOG_P, torch.full_like(LABELS, -1)), "no node is labelled"),
        (lambda: learned_weights(LOG_P[:, :0], LABELS[:0]), "no node is labelled"),
        (lambda: learned_weights(LOG_P, LABELS, penalty=-1.0), "penalty"),
        (lambda: learned_weights(LOG_P, LABELS, penalty=math.inf), "penalty"),
        (lambda: learned_weights(LOG_P, LABELS, tolerance=0.0), "tolerance"),
        (lambda: learned_weights(LOG_P, LABELS, alive=torch.zeros(5, dtype=torch.bool)), "no shard is alive"),
        (lambda: learned_weights(LOG_P, LABELS, alive=torch.ones(4, dtype=torch.bool)), "one boolean for 5 shards"),
    ],
)
def test_bad_input_is_told_in_one_sentence(act: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        act()
    assert "\n" not in str(caught.value)
