"""Deletions with a model that was trained elsewhere: what can be had, and what is never claimed."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch
from torch import nn

import graphforget as gf
from adopted_cases import RETRAIN, PlainGCN, half_loss, plain_loop, retrain_gcn
from cases import claim_of, random_graph
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.claims.own_training import OwnTraining
from graphforget.certificates.conditions import RETAINED_ONLY, sentence

pytestmark = pytest.mark.usefixtures("one_thread")

REQUEST = gf.Request(nodes=[4, 5])


@functools.cache
def graph() -> gf.Graph:
    return random_graph(3, nodes=40, edges=60, sparse=False)


@functools.cache
def module_of(name: str = "gcn") -> nn.Module:
    torch.manual_seed(5)
    return RETRAIN[name](graph().to_pyg())


@functools.cache
def adopted(name: str = "gcn", **options: Any) -> gf.Trained:
    return gf.adopt(module_of(name), graph(), **options)


@functools.cache
def exact_outcome(name: str = "gcn") -> gf.Outcome:
    return gf.unlearn(adopted(name, retrain=RETRAIN[name]), graph(), REQUEST)


# -- with a training function ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RETRAIN)
def test_an_exact_request_gives_what_the_function_gives_on_the_retained_graph(name: str) -> None:
    outcome = exact_outcome(name)
    retained = graph().without(REQUEST)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = RETRAIN[name](retained.to_pyg())
    assert (outcome.level, outcome.method) == ("exact", "retrain")
    assert outcome.graph.digest == retained.digest
    state = dict(expected.named_parameters()) | dict(expected.named_buffers())
    ours = dict(outcome.trained.module.named_parameters()) | dict(outcome.trained.module.named_buffers())
    assert state.keys() == ours.keys()
    assert all(torch.equal(ours[key].to(value.dtype), value) for key, value in state.items())
    assert not torch.equal(outcome.trained.theta, adopted(name).theta)
    assert torch.equal(outcome.released.theta, outcome.trained.theta)


def test_the_claim_is_its_own_kind_and_lists_its_condition() -> None:
    outcome = exact_outcome()
    claim = claim_of(outcome, OwnTraining)
    assert claim.to_dict() == {"kind": "exact-own-training/1", "sigma": 0.0, "conditions": (RETAINED_ONLY,)}
    certificate = outcome.certificate
    assert certificate.conditions == (RETAINED_ONLY,)
    assert certificate.model["options"] == {"adopted": True}
    for words in (certificate.statement, certificate.definition, certificate.words["definition"]):
        assert sentence(RETAINED_ONLY) in words
    assert gf.Certificate.from_dict(certificate.to_dict()) == certificate


def test_a_batch_norm_is_no_obstacle_if_the_function_makes_it_anew() -> None:
    outcome = exact_outcome("normalised")
    assert outcome.trained.certification_blockers
    before, after = (
        dict(trained.module.named_buffers())["norm.running_mean"]
        for trained in (adopted("normalised"), outcome.trained)
    )
    assert not torch.equal(before, after)
    assert torch.equal(dict(outcome.released.module.named_buffers())["norm.running_mean"], after)
    gf.verify(outcome.certificate, outcome.trained, outcome.graph, annexes=[outcome.annex], replay=True)


def test_requests_in_a_row_stay_exact() -> None:
    first = exact_outcome()
    numbers = first.graph.numbers[first.graph.edge_index[:, 3]]
    edge = (int(numbers[0]), int(numbers[1]))
    request = gf.Request(edges=[edge], attributes={9: "all"})
    second = gf.unlearn(first.trained, first.graph, request)
    both = gf.Request(nodes=REQUEST.nodes, edges=request.edges, attributes=request.attributes)
    at_once = gf.unlearn(adopted(retrain=retrain_gcn), graph(), both)
    assert (second.level, second.trained.history) == ("exact", ())
    assert torch.equal(second.trained.theta, at_once.trained.theta)
    assert not torch.equal(second.trained.theta, first.trained.theta)


def test_a_step_before_does_not_matter_after_the_function_was_called() -> None:
    trained = adopted(retrain=retrain_gcn)
    step = gf.unlearn(trained, graph(), gf.Request(nodes=[9]), method="gif", level="empirical")
    assert len(step.trained.history) == 1
    after = gf.unlearn(step.trained, step.graph, REQUEST)
    both = gf.unlearn(trained, graph(), gf.Request(nodes=[4, 5, 9]))
    assert (after.level, after.trained.history) == ("exact", ())
    assert torch.equal(after.trained.theta, both.trained.theta)


def test_another_seed_gives_other_weights_and_is_listed() -> None:
    outcome = gf.unlearn(adopted(retrain=retrain_gcn), graph(), REQUEST, seed=3)
    assert not torch.equal(outcome.trained.theta, exact_outcome().trained.theta)
    assert outcome.certificate.chosen == {"seed": 3}


def test_the_same_weights_are_noted_in_private_and_not_refused() -> None:
    """A refusal would tell whether what was deleted mattered. That the function really trains is a listed condition."""
    unchanged = dataclasses.replace(adopted(retrain=retrain_gcn), retrain=lambda data: module_of())
    outcome = gf.unlearn(unchanged, graph(), REQUEST)
    assert any("the same weights as before" in note for note in outcome.notes)
    assert outcome.certificate.to_dict()["claim"] == exact_outcome().certificate.to_dict()["claim"]
    assert not any("the same weights as before" in note for note in exact_outcome().notes)


def test_the_same_weights_are_possible_if_no_training_loss_depends_on_the_request() -> None:
    """A node of its own that does not train: an honest function may give the same bits."""
    own, test = graph(), graph().test_mask.nonzero().flatten()
    lonely = int(test[0])
    inside = (own.edge_index != lonely).all(dim=0)
    alone = dataclasses.replace(own, edge_index=own.edge_index[:, inside])
    trained = gf.adopt(module_of(), alone, retrain=retrain_gcn)
    same = dataclasses.replace(trained, retrain=lambda data: module_of())
    outcome = gf.unlearn(same, alone, gf.Request(nodes=[lonely]))
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, trained.theta)


def test_a_release_below_the_floor_is_refused() -> None:
    with pytest.raises(gf.FloorMissed):
        gf.unlearn(adopted(retrain=retrain_gcn, floor=1.0), graph(), REQUEST)


def test_options_of_our_own_training_are_refused() -> None:
    trained = adopted(retrain=retrain_gcn)
    with pytest.raises(gf.Refused, match="an adopted model cannot be continued"):
        gf.unlearn(trained, graph(), REQUEST, method="retrain", start="continued", level="empirical")
    with pytest.raises(gf.InputError, match="retrained by its own function, leave model out"):
        gf.unlearn(trained, graph(), REQUEST, model=PlainGCN)


# -- without one -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"method": "retrain"}, {"level": "exact"}, {"level": "certified"}])
def test_without_a_function_nothing_with_a_guarantee_is_possible(options: dict[str, Any]) -> None:
    with pytest.raises(gf.Refused, match="has no function that trains it again") as caught:
        gf.unlearn(adopted(), graph(), REQUEST, **options)
    for way in ("retrain=...", "--retrain", "'idea'", "'empirical'", "stacked"):
        assert way in str(caught.value)


@pytest.mark.parametrize("name", ["gcn", "normalised"])
@pytest.mark.parametrize("method", ["idea", "gif"])
def test_influence_steps_guarantee_nothing(method: str, name: str) -> None:
    trained = adopted(name)
    if method == "idea":
        with pytest.raises(gf.Refused, match="the guarantee of 'idea' does not hold here"):
            gf.unlearn(trained, graph(), REQUEST, method=method)
    outcome = gf.unlearn(trained, graph(), REQUEST, method=method, level="empirical")
    assert outcome.level == "empirical"
    assert not torch.equal(outcome.trained.theta, trained.theta)
    assert len(outcome.trained.history) == 1
    gf.verify(outcome.certificate, outcome.trained, outcome.graph, annexes=[outcome.annex])


def test_the_step_is_that_of_the_same_weights_with_the_callers_loss_and_mu() -> None:
    """Weights that `gf.train` of 0 epochs leaves as they are take the same step."""
    settings: Any = {"loss": half_loss, "mu": 0.02}
    ours = adopted(**settings)
    theirs = gf.train(graph(), module_of(), epochs=0, polish_steps=0, **settings)
    torch.testing.assert_close(ours.theta, theirs.theta)
    steps = [gf.unlearn(t, graph(), REQUEST, method="gif", level="empirical") for t in (ours, theirs)]
    torch.testing.assert_close(steps[0].trained.theta, steps[1].trained.theta)


# -- the plan --------------------------------------------------------------------------------------------------------


def test_the_plan_says_what_can_be_had() -> None:
    bare, own = (gf.plan(adopted(**o), graph(), REQUEST) for o in ({}, {"retrain": retrain_gcn}))
    assert (bare.level, bare.conditions) == (None, ())
    assert bare.meaning.startswith("would be refused: the model was trained elsewhere")
    assert [way.split(":")[0].split(",")[0] for way in bare.advice] == ["exact", "empirical", "certified"]
    assert "gf.stacked(PlainGCN)" in bare.advice[-1]
    assert (own.method, own.level, own.conditions) == ("retrain", "exact", (sentence(RETAINED_ONLY),))
    assert sentence(RETAINED_ONLY) in own.meaning
    assert [way.split(":")[0].split(",")[0] for way in own.advice] == ["empirical", "certified"]
    assert (own.seconds, own.retrain_seconds) == (None, None)
    step = gf.plan(adopted(), graph(), REQUEST, method="gif", level="empirical")
    assert (step.method, step.level, step.conditions) == ("gif", "empirical", ())
    trained_here = gf.plan(gf.train(graph(), "sgc"), graph(), REQUEST)
    assert (trained_here.advice, trained_here.conditions) == ((), ())
    (advice,) = gf.plan(gf.train(graph(), "gcn", hidden=4, epochs=2), graph(), REQUEST).advice
    assert 'gf.train(graph, "stacked-gcn")' in advice
    (advice,) = gf.plan(gf.train(graph(), module_of(), epochs=2), graph(), REQUEST).advice
    assert "gf.stacked(PlainGCN)" in advice


def test_the_plan_knows_the_time_of_the_function_once_it_was_called() -> None:
    first = exact_outcome()
    plan = gf.plan(first.trained, first.graph, gf.Request(nodes=[9]))
    assert plan.seconds == plan.retrain_seconds == first.trained.seconds > 0


# -- verification ----------------------------------------------------------------------------------------------------


def test_verify_says_what_it_cannot_know() -> None:
    outcome = exact_outcome()
    evidence: Any = (outcome.certificate, outcome.trained, outcome.graph)
    plain = gf.verify(*evidence, annexes=[outcome.annex], released=outcome.released)
    replayed = gf.verify(*evidence, annexes=[outcome.annex], replay=True)
    vouched = [gap for gap in plain.unchecked if "vouch" in gap]
    assert len(vouched) == 2
    assert [gap for gap in replayed.unchecked if "vouch" in gap] == vouched[1:]
    assert sentence(RETAINED_ONLY) in vouched[1]


def test_a_replay_finds_other_weights() -> None:
    outcome = exact_outcome()
    theta = outcome.trained.theta.clone()
    theta[3] += 1e-12
    with pytest.raises(gf.Mismatch, match="gives other weights, or the training function is not deterministic"):
        gf.verify(outcome.certificate, outcome.trained.with_weights(theta), outcome.graph, replay=True)


def test_a_replay_finds_other_buffers() -> None:
    outcome = exact_outcome("normalised")
    moved = outcome.trained.with_weights(outcome.trained.theta)
    dict(moved.module.named_buffers())["norm.running_mean"] += 1e-6
    with pytest.raises(gf.Mismatch, match="gives other weights"):
        gf.verify(outcome.certificate, moved, outcome.graph, replay=True)
    with pytest.raises(gf.Mismatch, match="do not match the certificate"):
        gf.verify(outcome.certificate, moved, outcome.graph, annexes=[outcome.annex])


def test_a_replay_needs_the_function() -> None:
    outcome = exact_outcome()
    bare = dataclasses.replace(outcome.trained, retrain=None)
    with pytest.raises(gf.Refused, match="only its own training function can train it again"):
        gf.verify(outcome.certificate, bare, outcome.graph, replay=True)


def rewritten(outcome: gf.Outcome, claim: Any) -> gf.Certificate:
    return dataclasses.replace(outcome.certificate, claim=claim)


def test_an_adopted_model_is_never_plainly_exact() -> None:
    outcome = exact_outcome()
    with pytest.raises(gf.Mismatch, match="^the level is too high: the model was adopted"):
        gf.verify(rewritten(outcome, Exact()), outcome.trained, outcome.graph)


def test_the_claim_holds_for_no_other_weights() -> None:
    step = gf.unlearn(adopted(), graph(), REQUEST, method="gif", level="empirical")
    assert isinstance(step.certificate.claim, Empirical)
    with pytest.raises(gf.Mismatch, match="moved away from those of training"):
        gf.verify(rewritten(step, OwnTraining()), step.trained, step.graph)
    first = dataclasses.replace(step.trained, history=())
    with pytest.raises(gf.Mismatch, match="the training function was never called"):
        gf.verify(rewritten(step, OwnTraining()), first, step.graph)
    ours = gf.unlearn(gf.train(graph(), "gcn", hidden=5, epochs=3, polish_steps=1), graph(), REQUEST)
    with pytest.raises(gf.Mismatch, match="and the model was trained here"):
        gf.verify(rewritten(ours, OwnTraining()), ours.trained, ours.graph)


def test_the_condition_cannot_be_left_out() -> None:
    for conditions in ((), ("another",), (RETAINED_ONLY, "another")):
        with pytest.raises(gf.InputError, match="conditions"):
            OwnTraining(conditions=conditions)


@pytest.mark.slow
def test_an_audit_trains_its_models_by_the_function() -> None:
    trained = adopted(retrain=retrain_gcn)
    audit = gf.audit(trained, graph(), REQUEST, models=8, seeds=2)
    assert audit.claim["level"] == "exact"
    with pytest.raises(gf.Refused, match="only its own training function can train it again"):
        gf.audit(adopted(), graph(), REQUEST, models=8, seeds=2, method="gif", level="empirical")


def test_plain_loop_moves_the_weights() -> None:
    """Otherwise the tests above would compare fresh weights."""
    torch.manual_seed(0)
    fresh = PlainGCN()
    before = [parameter.clone() for parameter in fresh.parameters()]
    plain_loop(fresh, graph().to_pyg())
    assert not any(torch.equal(old, new) for old, new in zip(before, fresh.parameters(), strict=True))
