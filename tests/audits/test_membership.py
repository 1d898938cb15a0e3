"""The attack network, and the membership attack that is built on it."""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from torch import Tensor, nn

import graphforget as gf
from cases import OwnGCN, random_graph
from graphforget.audits import membership
from graphforget.audits.membership import (
    MembershipAttacker,
    Protocol,
    _by_class,
    _features,
    balanced_accuracy,
    membership_attacker,
)
from graphforget.audits.network import AttackNetwork

SMALL = AttackNetwork(hidden=(8, 5), dropout=0.2, learning_rate=0.01, epochs=6, batch=16)
CLASSES = 3
EXCLUDED = range(5, 35)


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    kinds = np.repeat([1, 0], [len(positive), len(negative)])
    return float(roc_auc_score(kinds, np.concatenate([positive, negative])))


def examples(count: int = 90, *, apart: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Members lie `apart` from the others."""
    rng = np.random.default_rng(seed)
    members = rng.random(count) < 0.5
    return rng.normal(size=(count, 4)) + apart * members[:, None], members


@functools.cache
def memorised() -> tuple[gf.Graph, gf.Trained]:
    """A graph of noise, of which a model can learn nothing but its training nodes by heart; and such a model."""
    rng = np.random.default_rng(0)
    graph = gf.Graph.create(
        x=torch.from_numpy(rng.normal(size=(300, 500))),
        edges=torch.tensor([[0, 1], [1, 2]]),
        y=torch.from_numpy(rng.integers(0, CLASSES, 300)),
        test_mask=torch.arange(300) >= 250,
        num_classes=CLASSES,
    )
    return graph, gf.train(graph, "sgc")


@functools.cache
def attacker(protocol: Protocol) -> MembershipAttacker:
    graph, like = memorised()
    return membership_attacker(graph, like, protocol=protocol, seed=0, exclude=torch.tensor(EXCLUDED))


def random_states() -> tuple[bytes, bytes, object]:
    numpy_state = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002 - to see that nobody else uses it
    return torch.random.get_rng_state().numpy().tobytes(), np.asarray(numpy_state).tobytes(), random.getstate()


# -- the network -------------------------------------------------------------------------------------------------


def test_the_seed_decides_everything_and_no_global_randomness_is_touched() -> None:
    features, members = examples()
    before = random_states()
    once, again, other = (SMALL.fit(features, members, seed=seed).scores(features) for seed in (0, 0, 1))
    assert random_states() == before
    np.testing.assert_array_equal(once, again)
    assert np.abs(once - other).max() > 1e-3


@pytest.mark.parametrize("standardise", [True, False])
def test_a_row_scores_the_same_in_any_company(standardise: bool) -> None:
    features, members = examples(301)
    network = dataclasses.replace(SMALL, standardise=standardise).fit(features, members, seed=0)
    together = network.scores(features)
    alone = np.concatenate([network.scores(row[None]) for row in features])
    np.testing.assert_array_equal(together, alone)
    assert np.unique(network.scores(np.repeat(features[:1], 77, axis=0))).size == 1
    assert network.scores(features[:0]).shape == (0,)


def test_standardised_features_have_no_unit() -> None:
    features, members = examples()
    scales = np.array([1.0, 1e3, 1e-3, 1.0])
    network = dataclasses.replace(SMALL, standardise=True)
    once = network.fit(features, members, seed=0).scores(features)
    np.testing.assert_allclose(
        network.fit(features * scales, members, seed=0).scores(features * scales), once, atol=1e-4
    )
    raw = SMALL.fit(features * scales, members, seed=0).scores(features * scales)
    assert np.abs(raw - SMALL.fit(features, members, seed=0).scores(features)).max() > 0.1


@pytest.mark.slow
def test_what_is_held_out_ends_training_and_keeps_it_from_learning_by_heart() -> None:
    features, members = examples(120, apart=0.0)
    seen: list[tuple[str, int, int]] = []
    greedy = dataclasses.replace(SMALL, hidden=(100, 50), epochs=120)
    careful = dataclasses.replace(greedy, held_out=0.2, patience=5)
    scores = careful.fit(features, members, seed=0, progress=lambda *predicted: seen.append(predicted)).scores(features)
    assert 5 < len(seen) < 120
    assert seen[0] == ("attack network", 1, 120)
    learned = greedy.fit(features, members, seed=0).scores(features)
    assert auc(learned[members], learned[~members]) > 0.95
    assert auc(scores[members], scores[~members]) < 0.9
    # The last epochs were no better than the kept one, so to have stopped there changes nothing.
    best = len(seen) - careful.patience
    stopped = dataclasses.replace(careful, epochs=best).fit(features, members, seed=0).scores(features)
    np.testing.assert_array_equal(stopped, scores)


@pytest.mark.slow
def test_the_honest_network_stays_alive_where_there_is_little_to_learn() -> None:
    """Of many nodes that hardly differ; at the paper's rate units die until many nodes get one score."""
    features, members = examples(3000, apart=0.05)
    short = dataclasses.replace(membership.HONEST, epochs=20)
    ours = short.fit(features, members, seed=0).scores(features)
    theirs = dataclasses.replace(short, learning_rate=0.01).fit(features, members, seed=0).scores(features)
    assert len(np.unique(ours)) == 3000 > len(np.unique(theirs))
    assert auc(ours[members], ours[~members]) > 0.5


def test_features_that_cannot_be_used_are_refused() -> None:
    features, members = examples()
    network = SMALL.fit(features, members, seed=0)
    with pytest.raises(gf.InputError, match="only one kind"):
        SMALL.fit(features, np.ones(90, dtype=bool), seed=0)
    with pytest.raises(gf.InputError, match="90 rows of features and 89 labels"):
        SMALL.fit(features, members[1:], seed=0)
    with pytest.raises(gf.InputError, match="trained on 4"):
        network.scores(features[:, 1:])
    with pytest.raises(gf.InputError, match="NaN"):
        network.scores(np.full((1, 4), np.nan))
    with pytest.raises(gf.InputError, match="shape"):
        network.scores(features[0])
    with pytest.raises(gf.InputError, match="seed"):
        SMALL.fit(features, members, seed=-1)


# -- the attack --------------------------------------------------------------------------------------------------


def answers(*, count: int = 1000, given_away: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits of which the first half favour the true label by so much, and the labels."""
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, CLASSES, count))
    logits = torch.from_numpy(rng.normal(size=(count, CLASSES)))
    logits[: count // 2] += given_away * nn.functional.one_hot(labels[: count // 2], CLASSES)
    return logits, labels


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "at_least"), [("paper", 0.9), ("honest", 0.99)])
def test_members_that_give_themselves_away_are_found_and_alike_ones_are_not(
    protocol: Protocol, at_least: float
) -> None:
    result = attacker(protocol).scores(*answers(given_away=10.0))
    assert auc(result[:500], result[500:]) > at_least
    equal = attacker(protocol).scores(*answers(given_away=0.0))
    assert 0.4 < auc(equal[:500], equal[500:]) < 0.6


def test_a_target_that_learned_its_nodes_by_heart_is_found_out() -> None:
    graph, like = memorised()
    chosen, outside = torch.tensor(EXCLUDED), graph.test_mask.nonzero().flatten()
    logits = like.logits(graph)
    result = attacker("honest").scores(logits, graph.y)
    assert auc(result[chosen], result[outside]) > 0.9


@pytest.mark.slow
def test_a_wrong_but_confident_answer_speaks_against_membership_where_the_label_is_looked_at() -> None:
    logits = answers(given_away=10.0)[0][:500]
    right = logits.argmax(dim=1)
    wrong = (right + 1) % CLASSES
    honest, paper = attacker("honest"), attacker("paper")
    assert (honest.scores(logits, right) > honest.scores(logits, wrong)).mean() > 0.95
    np.testing.assert_array_equal(paper.scores(logits, right), paper.scores(logits, wrong))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["paper", "honest"])
def test_a_node_scores_the_same_in_any_company(protocol: Protocol) -> None:
    logits, labels = answers(given_away=3.0, count=40)
    together = attacker(protocol).scores(logits, labels)
    alone = [attacker(protocol).scores(logits[i : i + 1], labels[i : i + 1])[0] for i in range(40)]
    np.testing.assert_array_equal(together, alone)
    assert np.unique(together).size > 30


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["paper", "honest"])
def test_excluded_rows_teach_nothing_and_the_input_stays_as_it_is(protocol: Protocol) -> None:
    graph, like = memorised()
    exclude = torch.tensor(EXCLUDED)
    other = graph.y.clone()
    other[exclude] = (other[exclude] + 1) % CLASSES
    relabelled = dataclasses.replace(graph, y=other)
    before = random_states(), graph.digest, like.theta.clone()
    again = membership_attacker(relabelled, like, protocol=protocol, seed=0, exclude=exclude)
    fresh = dataclasses.replace(graph)  # whose digest is taken anew
    assert (random_states(), fresh.digest) == before[:2]
    assert torch.equal(like.theta, before[2])
    assert exclude.tolist() == list(EXCLUDED)
    once = attacker(protocol)
    assert torch.equal(again.shadow.theta, once.shadow.theta)
    logits, labels = answers(given_away=1.0)
    np.testing.assert_array_equal(again.scores(logits, labels), once.scores(logits, labels))
    used = torch.cat([once.members, once.non_members])
    assert not torch.isin(used, exclude).any()
    assert used.unique().numel() == used.numel()


def test_the_honest_shadow_knows_half_of_the_training_nodes() -> None:
    graph, _ = memorised()
    result = attacker("honest")
    expected = graph.train_mask.clone()
    expected[torch.tensor(EXCLUDED)] = False
    assert torch.equal(torch.cat([result.members, result.non_members]).sort().values, expected.nonzero().flatten())
    assert (result.members.numel(), result.non_members.numel()) == (110, 110)


@pytest.mark.slow
def test_another_seed_is_another_split_another_shadow_and_another_attack() -> None:
    graph = gf.load("patients")
    like = gf.train(graph, "gcn", hidden=4, epochs=5, polish_steps=0)
    one, same, other = (membership_attacker(graph, like, protocol="honest", seed=s) for s in (0, 0, 1))
    logits = like.logits(graph)
    np.testing.assert_array_equal(one.scores(logits, graph.y), same.scores(logits, graph.y))
    assert not torch.equal(one.members, other.members)
    assert one.shadow.recipe.seed != other.shadow.recipe.seed
    assert one.shadow.recipe.seed != like.recipe.seed
    assert np.abs(one.scores(logits, graph.y) - other.scores(logits, graph.y)).max() > 1e-3


def test_the_paper_draws_as_many_of_each_class_and_half_of_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (30, 9, 4)
    graph = dataclasses.replace(memorised()[0], y=torch.arange(3).repeat_interleave(torch.tensor([240, 50, 10])))
    usable = torch.cat([torch.arange(n) < m for n, m in zip((240, 50, 10), sizes, strict=True)])
    monkeypatch.setitem(membership.SHADOW_NODES, "told", 6)
    members, others = _by_class(dataclasses.replace(graph, name="told"), usable, seed=0)
    assert graph.y[members].bincount().tolist() == graph.y[others].bincount().tolist() == [6, 4, 2]
    assert usable[members].all()
    assert usable[others].all()
    assert not torch.isin(members, others).any()
    members, others = _by_class(graph, usable, seed=0)
    assert graph.y[members].bincount().tolist() == graph.y[others].bincount().tolist() == [15, 4, 2]
    assert members.tolist() != list(range(members.numel()))


@pytest.mark.slow
def test_the_papers_shadow_is_its_gcn_whatever_is_attacked() -> None:
    recipe = attacker("paper").shadow.recipe
    assert (recipe.model, recipe.options) == ("gcn", {"hidden": 256})
    assert (recipe.epochs, recipe.learning_rate, recipe.polish_steps) == (300, 1e-4, 0)
    assert attacker("paper").note == ""


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sign", "cgu", "gin", "sharded-sgc"])
def test_the_honest_shadow_follows_the_recipe_of_what_is_attacked(model: str) -> None:
    graph = random_graph(3, nodes=60, edges=90)
    options: dict[str, Any] = {"shards": 2} if model == "sharded-sgc" else {}
    like = gf.train(graph, model, mu=0.03, epochs=7, seed=5, **options)
    result = membership_attacker(graph, like, protocol="honest", seed=5)
    again = membership_attacker(graph, like, protocol="honest", seed=5)
    ours: dict[str, Any] = {"seed": 5, "noise_seed": like.recipe.noise_seed}
    assert dataclasses.replace(result.shadow.recipe, **ours) == like.recipe
    assert result.shadow.recipe.seed != 5
    assert not torch.equal(result.shadow.theta, like.theta)
    assert result.note == ""
    np.testing.assert_array_equal(
        result.scores(like.logits(graph), graph.y.clamp_min(0)), again.scores(like.logits(graph), graph.y.clamp_min(0))
    )


class Stubborn(OwnGCN):
    """Whose own parameter no reset draws anew."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(CLASSES))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + self.shift


@pytest.mark.slow
def test_a_module_of_ones_own_is_shadowed_by_fresh_weights_or_else_by_a_gcn_with_a_note() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    like = gf.train(graph, OwnGCN(), epochs=3, polish_steps=0)
    result = membership_attacker(graph, like, protocol="honest", seed=0)
    assert type(result.shadow.module) is OwnGCN
    assert float((result.shadow.theta - like.theta).norm()) > 0.5
    stubborn = gf.train(graph, Stubborn(), epochs=3, polish_steps=0)
    fallen = membership_attacker(graph, stubborn, protocol="honest", seed=0)
    assert fallen.shadow.recipe.model == "gcn"
    assert "'shift'" in fallen.note


def test_features_are_the_posterior_sorted_and_the_odds_of_the_true_label() -> None:
    logits, labels = answers(given_away=2.0, count=50)
    p = logits.softmax(dim=1)
    np.testing.assert_allclose(_features(logits, labels, protocol="paper"), p.numpy())
    result = _features(logits, labels, protocol="honest")
    np.testing.assert_allclose(result[:, :CLASSES], -np.sort(-p.numpy(), axis=1))
    own = p[torch.arange(50), labels]
    np.testing.assert_allclose(result[:, CLASSES], (own.log() - (1 - own).log()).numpy())
    far = torch.tensor([[100.0, 0.0, 0.0], [0.0, 1e5, -torch.inf]], dtype=torch.float64)
    result = _features(far, torch.tensor([0, 2]), protocol="honest")
    np.testing.assert_allclose(result[:, CLASSES], [100 - np.log(2), -700])


def test_balanced_accuracy_is_the_area_under_the_curve_of_hard_labels() -> None:
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(size=30) + 0.5, rng.normal(size=20)
    kinds, predicted = np.repeat([1, 0], [30, 20]), np.concatenate([positive, negative]) > 0
    assert balanced_accuracy(positive, negative) == pytest.approx(balanced_accuracy_score(kinds, predicted))
    assert balanced_accuracy(positive, negative) == pytest.approx(roc_auc_score(kinds, predicted))
    assert balanced_accuracy(np.zeros(3), np.zeros(5)) == 0.5
    with pytest.raises(gf.InputError, match="there are no scores"):
        balanced_accuracy(np.zeros(0), negative)


def test_what_cannot_be_attacked_is_refused() -> None:
    graph, like = memorised()
    attack = functools.partial(membership_attacker, graph, like, seed=0)
    with pytest.raises(gf.InputError, match="protocol is 'strong'"):
        attack(protocol="strong")  # type: ignore[arg-type]
    with pytest.raises(gf.InputError, match="too few nodes"):
        attack(protocol="honest", exclude=torch.arange(300))
    with pytest.raises(gf.InputError, match="too few nodes"):
        attack(protocol="paper", exclude=torch.arange(1, 300))
    with pytest.raises(gf.InputError, match="outside the graph"):
        attack(protocol="honest", exclude=torch.tensor([300]))
    with pytest.raises(gf.InputError, match="a list of rows"):
        attack(protocol="honest", exclude=graph.test_mask)
    with pytest.raises(gf.InputError, match="the seed is -1"):
        membership_attacker(graph, like, protocol="honest", seed=-1)
    logits, labels = answers(given_away=0.0, count=4)
    with pytest.raises(gf.InputError, match="one label for each node"):
        attacker("paper").scores(logits, labels[1:])
    with pytest.raises(gf.InputError, match="no class from 0 to 2"):
        attacker("paper").scores(logits, labels - 3)
    with pytest.raises(gf.InputError, match="NaN"):
        attacker("honest").scores(logits * torch.nan, labels)
