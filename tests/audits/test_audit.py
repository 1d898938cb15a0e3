"""Audits from end to end: honest deletions pass, planted cheats are caught, and nothing else is touched."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import io
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pytest
import torch

import graphforget as gf
from cases import Run, present
from collection_cases import random_collection
from graphforget.audits import findings as audit_findings
from graphforget.audits import measurements as measured
from graphforget.audits.attributes import BlankedLoss
from graphforget.audits.figure import audit_figure
from graphforget.audits.findings import Finding, position_notes, promised
from graphforget.audits.measurements import Position
from graphforget.audits.populations import ByMethod
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.claims.objective_noise import ObjectiveNoise
from graphforget.certificates.claims.paper_bound import PaperBound
from graphforget.certificates.claims.residual_ball import DECLARED_CONVEX, ResidualBall
from graphforget.certificates.levels import Level
from graphforget.certificates.residual import noise_centre, residual
from graphforget.privacy.audit_epsilon import largest_auc
from graphforget.privacy.gaussian import epsilon_of
from graphforget.privacy.noise import with_noise
from graphforget.privacy.paper_bounds import Constants
from graphforget.runs.layout import AUDIT_PICTURE, AUDIT_PIECES, AUDIT_RESULT
from graphforget.unlearning.distance import optimum

MODULE = importlib.import_module("graphforget.audits.audit")  # which the function of that name hides
MODELS = ("before", "no_op", "retrained", "method")
NODES, GONE = 90, range(20, 36)


@pytest.fixture(scope="module", autouse=True)
def without_attacks(one_thread: None) -> Iterator[None]:
    """Attack networks take most of the time; `attacks` has them back."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (measured, audit_findings):
            patched.setattr(module, "FEWEST", 10**6)
        yield


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (measured, audit_findings):
        monkeypatch.setattr(module, "FEWEST", 10)


@functools.cache
def people() -> gf.Graph:
    """Three classes of people, and of each so many attributes of their own that a model learns them by heart."""
    rng = np.random.default_rng(0)
    words, own = 30, 150
    y = np.arange(NODES) % 3
    x = np.zeros((NODES, words + own))
    for row in range(NODES):
        x[row, rng.choice(words, 4, replace=False)] = 1
        x[row, words // 3 * y[row] + rng.choice(words // 3, 3, replace=False)] = 1
        x[row, words + rng.choice(own, 6, replace=False)] = 1
    ends = rng.integers(0, NODES, size=(4 * NODES, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    same = y[ends[:, 0]] == y[ends[:, 1]]
    loops = np.repeat(np.arange(12), 2).reshape(-1, 2)
    edges = np.concatenate([ends[same][:NODES], ends[~same][: NODES // 2], loops])
    test = torch.arange(NODES) >= 66
    return gf.Graph.create(
        x=torch.from_numpy(x).to_sparse_csr(),
        edges=torch.from_numpy(edges).T,
        y=torch.from_numpy(y),
        train_mask=~test,
        test_mask=test,
        subject_ids=[f"person-{row:02d}" for row in range(NODES)],
    )


def named(rows: Any) -> list[str]:
    return [f"person-{row:02d}" for row in rows]


def edges_outside(rows: Any) -> list[tuple[str, str]]:
    """Between two nodes neither of which is in these rows."""
    pairs = [(u, v) for u, v in people().edge_index.T.tolist() if u < v and not {u, v} & set(rows)]
    return [(f"person-{u:02d}", f"person-{v:02d}") for u, v in pairs]


REQUEST = gf.Request(nodes=named(GONE))
OTHERS = gf.Request(nodes=named(range(40, 56)))


SIGMA = 0.05


@functools.cache
def trained(sigma: float = SIGMA) -> gf.Trained:
    return gf.train(people(), "sgc", mu=1e-3, sigma=sigma)


def audited(request: gf.Request = REQUEST, *, old: gf.Trained | None = None, **options: Any) -> gf.Audit:
    settings: dict[str, Any] = {"models": 8, "seeds": 4} | options
    return gf.audit(trained() if old is None else old, people(), request, **settings)


@functools.cache
def audited_once() -> gf.Audit:
    return audited()


def pretended(outcome: gf.Outcome, weights: gf.Trained, noise_seed: int) -> gf.Outcome:
    """The outcome's claim for other weights, which are said to be on its graph."""
    private = weights.measured_on(weights.objective(outcome.graph))
    sigma = outcome.certificate.sigma or 0.0
    released = with_noise(private.theta, sigma=sigma, seed=noise_seed) if sigma else private.theta
    return dataclasses.replace(outcome, trained=private, released_theta=released)


def doing_nothing(old: gf.Trained, graph: gf.Graph, request: gf.Request, noise_seed: int) -> gf.Outcome:
    return pretended(ByMethod("newton")(old, graph, request, noise_seed), old, noise_seed)


def deleting_others(old: gf.Trained, graph: gf.Graph, request: gf.Request, noise_seed: int) -> gf.Outcome:
    wrong = gf.unlearn(old, graph, OTHERS, method="newton").trained
    return pretended(ByMethod("newton")(old, graph, request, noise_seed), wrong, noise_seed)


def release_by(forget: Callable[..., gf.Outcome]) -> gf.Release:
    return gf.Release.of(forget(trained(), people(), REQUEST, 5))


def certificate_of(claim: Claim) -> gf.Certificate:
    """A certificate of the request that makes this claim."""
    return dataclasses.replace(gf.unlearn(trained(), people(), REQUEST).certificate, claim=claim)


def strict(text: str) -> Any:
    def forbidden(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=forbidden)


def row_of(audit_result: gf.Audit, attack: str, model: str) -> Any:
    return next(row for row in audit_result.rows if (row.attack, row.model) == (attack, model))


# -- honest deletions ----------------------------------------------------------------------------------------


@functools.cache
def honest() -> gf.Audit:
    return audited(models=24)


@pytest.mark.slow
def test_a_certified_deletion_passes() -> None:
    audit_result = honest()
    assert audit_result.findings == ()
    assert audit_result.passed
    assert audit_result.claim == {"level": "certified", "epsilon": 1.0, "delta": 1e-5, "sigma": SIGMA}
    assert audit_result.per_example_released["method"].epsilon <= 1
    assert audit_result.per_example_released["method"].auc.low < largest_auc(epsilon=1, delta=1e-5)
    assert abs(present(audit_result.position.place)) < 0.2
    assert audit_result.position.chance > 1e-3
    assert audit_result.distances["method"].epsilon is not None
    assert audit_result.distances["method"].epsilon <= 1


def test_the_same_test_would_have_caught_a_model_that_did_nothing() -> None:
    audit_result = honest()
    for tests in (audit_result.per_example, audit_result.per_example_released):
        assert list(tests) == list(MODELS)
        assert tests["no_op"].auc.low > 0.8
        assert tests["no_op"].epsilon > 1
        assert tests["no_op"].models == tests["method"].models == 12
        assert tests["retrained"].models == 6
        assert tests["retrained"].epsilon == 0
    assert audit_result.distances["no_op"].epsilon is not None
    assert audit_result.distances["no_op"].epsilon > 100
    assert not any("did nothing would have passed" in note for note in audit_result.notes)


def test_the_distance_is_to_the_optimum_on_the_retained_graph() -> None:
    audit_result = honest()
    best = optimum(trained(), people().without(REQUEST))
    assert audit_result.distances["no_op"].distance == pytest.approx(float((trained().theta - best).norm()), rel=1e-4)
    outcome = gf.unlearn(trained(), people(), REQUEST)
    assert not torch.equal(outcome.centre, outcome.trained.theta)
    assert audit_result.distances["method"].distance == pytest.approx(float((outcome.centre - best).norm()), abs=2e-6)


def test_every_attack_has_a_row_for_every_model() -> None:
    rows = honest().rows
    assert [row.model for row in rows] == list(MODELS) * (len(rows) // 4)
    assert [row.attack for row in rows[::4]] == [
        *("per-example", "per-example, released"),
        *("canary nodes", "canary edges"),
    ]
    for row in rows:
        assert 0 <= row.auc.low <= row.auc.value <= row.auc.high <= 1
        assert 0 <= row.true_positives <= 1
        assert (row.gap is None) == (row.model == "retrained")


def test_an_audit_is_json_and_names_nobody() -> None:
    content = honest().to_dict()
    text = json.dumps(content, allow_nan=False)
    assert strict(text) == content
    assert "person" not in text
    assert content["passed"] is True
    assert content["settings"] == {
        **{"method": "auto", "models": 24, "seeds": 4, "share": 0.9, "seed": 0, "items": len(GONE)},
    }
    assert content["rows"][0]["auc"].keys() == {"value", "low", "high"}
    assert content["position"].keys() == {"place", "chance", "spread"}
    assert (content["audience"], content["verdict"], content["conclusive"]) == ("private", "passed", True)
    assert content["distances"]["method"].keys() == {"distance", "ratio", "epsilon"}


def test_every_number_in_json_has_a_name() -> None:
    audit_result = dataclasses.replace(honest(), blanked={"method": BlankedLoss(0.5, 0.75)})
    assert audit_result.to_dict()["blanked"] == {"method": {"true": 0.5, "as_published": 0.75}}


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "level", "epsilon"), [(SIGMA, "certified", 1.0), (0.0, "exact", 0.0)])
def test_retraining_passes(sigma: float, level: str, epsilon: float) -> None:
    """With noise it is published as every other release of the model, without as exact."""
    audit_result = audited(old=trained(sigma), method="retrain", models=16)
    assert audit_result.findings == ()
    assert audit_result.passed
    assert audit_result.claim == {"level": level, "epsilon": epsilon, "delta": 1e-5 if epsilon else 0.0, "sigma": sigma}
    assert audit_result.distances["method"].distance <= trained(sigma).recipe.tolerance


@pytest.mark.slow
def test_inputs_stay_as_they_are_and_the_seed_decides_everything() -> None:
    graph, old = people(), trained()
    digest, theta, state = graph.digest, old.theta.clone(), copy.deepcopy(old.module.state_dict())
    first = audited_once()
    torch.manual_seed(2)
    again, other = audited(), audited(seed=1)
    assert dataclasses.replace(graph).digest == digest
    assert torch.equal(old.theta, theta)
    assert all(torch.equal(value, state[name]) for name, value in old.module.state_dict().items())
    contents = [one.to_dict() | {"seconds": 0} for one in (first, again, other)]
    assert contents[0] == contents[1]
    assert contents[0]["per_example"] != contents[2]["per_example"]
    assert contents[0]["position"] != contents[2]["position"]


# -- cheats --------------------------------------------------------------------------------------------------


def messages_of(audit_result: gf.Audit, *, refutes: bool = True) -> str:
    return "\n".join(finding.message for finding in audit_result.findings if finding.refutes == refutes)


@pytest.mark.slow
@pytest.mark.parametrize("cheat", [doing_nothing, deleting_others])
def test_a_method_that_cheats_is_refuted_by_its_populations(cheat: Callable[..., gf.Outcome]) -> None:
    """Nothing of the single release tells: it is an honest one."""
    audit_result = audited(models=24, forget=cheat, after=release_by(ByMethod("newton")))
    assert not audit_result.passed
    test = audit_result.per_example_released["method"]
    assert test.epsilon > 1
    assert f"epsilon is at least {test.epsilon:.2f} (95 % confidence), and 1 was claimed" in messages_of(audit_result)
    assert "single items distinguish it from retrained models with AUC" in messages_of(audit_result)
    assert len(audit_result.findings) == 2
    assert audit_result.position.chance > 1e-3
    assert test.surely > largest_auc(epsilon=1, delta=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cheat", [doing_nothing, deleting_others])
def test_a_single_release_that_cheats_is_refuted(cheat: Callable[..., gf.Outcome]) -> None:
    """Its method does what it should: the populations do not tell."""
    audit_result = audited(after=release_by(cheat))
    assert not audit_result.passed
    assert "from the retrained optimum, which implies epsilon" in messages_of(audit_result)
    assert "between retrained (0) and never changed (1)" in messages_of(audit_result)
    assert "is not noise of sigma" in messages_of(audit_result)  # it does not lie around where the optimum can be
    assert len(audit_result.findings) == 3
    assert 0.7 < present(audit_result.position.place) < 1.3


@pytest.mark.slow
def test_a_cheat_whose_noise_lies_where_it_should_is_refuted() -> None:
    """Around the centre that its own weights tell: distance and position are left to tell."""
    cheat = release_by(doing_nothing)
    centre = noise_centre(cheat.private, people().without(REQUEST), centred=True)
    released = cheat.private.with_weights(with_noise(centre, sigma=SIGMA, seed=5))
    audit_result = audited(after=gf.Release(cheat.private, released, cheat.claim))
    assert "is not noise of sigma" not in messages_of(audit_result)
    assert "from the retrained optimum, which implies epsilon" in messages_of(audit_result)
    assert present(audit_result.position.place) < 0  # the centre lies beyond the optimum
    assert "further from the unchanged weights than retrained ones are" in messages_of(audit_result)


@pytest.mark.slow
def test_old_weights_released_beside_honest_private_ones_are_refuted() -> None:
    good, bad = release_by(ByMethod("newton")), release_by(doing_nothing)
    audit_result = audited(after=gf.Release(good.private, bad.released, good.claim))
    assert [finding.refutes for finding in audit_result.findings] == [True, True]
    assert "is not noise of sigma = 0.05" in messages_of(audit_result)
    assert "the released weights lie at" in messages_of(audit_result)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.0, 0.5])
def test_less_noise_than_claimed_is_refuted(size: float) -> None:
    good = release_by(ByMethod("newton"))
    centre = noise_centre(good.private, people().without(REQUEST), centred=True)
    theta = centre + size * (good.released.theta - centre)
    audit_result = audited(after=gf.Release(good.private, good.private.with_weights(theta), good.claim), seeds=2)
    assert [finding.refutes for finding in audit_result.findings] == [True]
    assert "is not noise of sigma = 0.05" in messages_of(audit_result)


@pytest.mark.slow
def test_a_false_claim_of_retraining_is_refuted() -> None:
    bad = release_by(doing_nothing)
    after = gf.Release(bad.private, bad.released, certificate_of(Exact(sigma=SIGMA)))
    audit_result = audited(after=after, method="retrain")
    assert audit_result.claim["level"] == "exact"
    assert audit_result.verdict == "refuted"
    assert "from the optimum, training ends within" in messages_of(audit_result)
    assert "between retrained (0) and never changed (1)" in messages_of(audit_result)


def test_a_release_on_another_graph_does_not_match() -> None:
    wrong = gf.unlearn(trained(), people(), OTHERS)
    for after in (wrong, gf.Release.of(wrong), gf.Release(trained(), trained(), wrong.certificate)):
        with pytest.raises(gf.Mismatch, match="^the model is not on the graph without what the request names$"):
            audited(after=after)


@pytest.mark.slow
def test_a_method_that_claims_nothing_and_remembers_is_told_of() -> None:
    audit_result = audited(method="ascent", models=16)
    assert audit_result.claim["level"] == "empirical"
    assert (audit_result.passed, audit_result.verdict) == (False, "remembers")
    assert not any(finding.refutes for finding in audit_result.findings)
    messages = messages_of(audit_result, refutes=False)
    assert "single items distinguish its weights from retrained ones with AUC" in messages
    assert "and nothing was claimed" in messages


@pytest.mark.slow
@pytest.mark.parametrize("nudge", [1e-9, 1e-5])
def test_weights_within_the_tolerance_of_training_are_not_taken_for_a_memory(nudge: float) -> None:
    """Without noise all retrained models are the same, and another machine's differ from them in the last digits."""
    old = trained(0.0)
    outcome = gf.unlearn(old, people(), REQUEST, method="retrain")
    near = outcome.trained.with_weights(outcome.trained.theta * (1 + nudge))
    near = near.measured_on(near.objective(outcome.graph))
    audit_result = audited(old=old, method="retrain", after=gf.Release(near, near, outcome.certificate))
    assert audit_result.distances["method"].distance < old.recipe.tolerance
    assert audit_result.findings == ()
    assert (audit_result.position.chance > 0.5) == (nudge == 1e-9)


@pytest.mark.slow
def test_what_a_large_epsilon_allows_does_not_refute_it() -> None:
    """Weights 30 sigmas from retrained ones are easily told from these, as an epsilon of 700 says they may be."""
    good = release_by(ByMethod("newton"))
    best = optimum(trained(), people().without(REQUEST))
    towards = trained().theta - best
    private = good.private.with_weights(best + 30 * SIGMA * towards / towards.norm())
    released = private.with_weights(with_noise(private.theta, sigma=SIGMA, seed=3))
    assert epsilon_of(ratio=30.1, delta=1e-5) < 700
    claim = PaperBound(epsilon=700.0, delta=1e-5, sigma=SIGMA, constants=Constants(), conditions=())
    assert not claim.centred
    audit_result = audited(after=gf.Release(private, released, certificate_of(claim)), seeds=10)
    assert audit_result.claim["epsilon"] == 700
    assert audit_result.distances["method"].ratio == pytest.approx(30, rel=1e-3)
    assert audit_result.position.chance < 1e-3
    assert messages_of(audit_result) == ""
    assert any("claim another epsilon than the release" in note for note in audit_result.notes)


BALL = ResidualBall(epsilon=2.0, delta=1e-4, sigma=SIGMA, mu=1e-3, releases=64, tolerance=1e-3)
BOUND = PaperBound(epsilon=3.0, delta=1e-5, sigma=SIGMA, constants=Constants(), conditions=("bounded losses",))
IN_OBJECTIVE = ObjectiveNoise(epsilon=4.0, delta=1e-6, noise=1.0, budget=1.0, conditions=("secret noise",))


@pytest.mark.parametrize(
    ("claim", "promise"),
    [
        (Exact(sigma=SIGMA), (0.0, 0.0)),
        (Exact(), (0.0, 0.0)),
        (BALL, (2.0, 1e-4)),
        (dataclasses.replace(BALL, conditions=(DECLARED_CONVEX,)), (2.0, 1e-4)),
        (Empirical("nothing"), None),
        (Empirical("an obstacle", sigma=SIGMA, around_centre=True, refuted=True), None),
        (BOUND, (3.0, 1e-5)),
        (dataclasses.replace(BOUND, epsilon=None), None),
        (IN_OBJECTIVE, (4.0, 1e-6)),
        (dataclasses.replace(IN_OBJECTIVE, epsilon=None), None),
    ],
)
def test_what_a_claim_promises(claim: Claim, promise: tuple[float, float] | None) -> None:
    assert promised(certificate_of(claim)) == promise


# -- what an audit without a finding is worth ------------------------------------------------------------------


@pytest.mark.slow
def test_so_few_models_that_their_test_cannot_fail_are_inconclusive() -> None:
    """Whatever else would have shown a deletion that did nothing."""
    audit_result = audited_once()
    assert audit_result.findings == ()
    assert present(audit_result.distances["no_op"].epsilon) > 100
    assert (audit_result.verdict, audit_result.passed, audit_result.conclusive) == ("inconclusive", False, False)
    assert "at least 11 models are needed (--models 11)" in str(audit_result.inconclusive_reason)
    content = audit_result.to_dict()
    assert (content["verdict"], content["passed"], content["conclusive"]) == ("inconclusive", False, False)
    assert audited(models=11).verdict == "passed"


@pytest.mark.slow
def test_a_finding_counts_however_few_the_models_are() -> None:
    audit_result = audited(after=release_by(doing_nothing))
    assert (audit_result.verdict, audit_result.conclusive) == ("refuted", False)


@pytest.mark.slow
@pytest.mark.parametrize("place", [-5.0, 4.0])
def test_a_position_far_outside_is_a_finding_if_it_is_unlikely_and_else_explained(
    monkeypatch: pytest.MonkeyPatch, place: float
) -> None:
    def audited_at(chance: float) -> gf.Audit:
        placed = {"no_op": Position(1.0, 1e-9, 3.0), "method": Position(place, chance, 3.0)}
        monkeypatch.setattr(measured.Measurements, "positions", placed)
        return audited(models=12)

    usual, unlikely = audited_at(0.2), audited_at(1e-9)
    assert (usual.verdict, usual.findings) == ("passed", ())
    (note,) = [note for note in usual.notes if "position" in note]
    assert f"the position {place:.2f} means that the release lies" in note
    assert ("further from the unchanged weights" in note) == (place < 0)
    assert "with probability 0.2" in note
    assert unlikely.verdict == "refuted"
    assert f"the released weights lie at {place:.2f}" in messages_of(unlikely)
    assert ("further from the unchanged weights" in messages_of(unlikely)) == (place < 0)
    assert not any("position" in note for note in unlikely.notes)


@pytest.mark.parametrize(("place", "explained"), [(0.3, False), (-0.4, False), (-0.6, True), (1.4, False), (1.6, True)])
def test_only_a_position_far_outside_is_explained(place: float, explained: bool) -> None:
    assert bool(list(position_notes(Position(place, 0.5, 1.0)))) is explained


def test_no_position_is_explained() -> None:
    (note,) = position_notes(Position(None, 0.5))
    assert note.startswith("there is no position")


# -- other models and requests -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_gcn_is_audited_and_never_called_certified() -> None:
    old = gf.train(people(), "gcn", hidden=4, epochs=15, polish_steps=2)
    assert audited(old=old).claim == {"level": "exact", "epsilon": 0.0, "delta": 0.0, "sigma": 0.0}
    audit_result = audited(old=old, method="idea", audit=False)  # of the claim's conditions, which takes long
    assert audit_result.claim["level"] == "empirical"
    assert not any(finding.refutes for finding in audit_result.findings)
    assert audit_result.distances["no_op"].epsilon is None
    assert audit_result.distances["no_op"].distance > 0
    strict(json.dumps(audit_result.to_dict(), allow_nan=False))


@pytest.mark.slow
def test_a_mixture_is_attacked_in_every_way(attacks: None) -> None:
    request = gf.Request(
        named(range(40, 52)), edges_outside(range(40, 52))[:12], dict.fromkeys(named(range(20, 32)), "all")
    )
    audit_result = audited(request, seeds=2)
    assert list(dict.fromkeys(row.attack for row in audit_result.rows)) == [
        *("per-example", "per-example, released", "membership paper", "membership"),
        *("links paper", "links", "attributes", "canary nodes", "canary edges"),
    ]
    assert len(audit_result.rows) == 9 * 4
    for row in audit_result.rows:
        assert (row.published is not None) == (row.attack == "membership paper")
    assert set(audit_result.blanked) == set(MODELS)
    assert not any("left out" in note for note in audit_result.notes)
    assert audit_result.settings["items"] == 12 + 12 + 12
    assert not any(finding.refutes for finding in audit_result.findings)
    assert "person" not in json.dumps(audit_result.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_attributes_alone_are_audited(attacks: None) -> None:
    audit_result = audited(gf.Request(attributes=dict.fromkeys(named(range(16, 46)), "all")), models=16)
    assert audit_result.passed
    assert {row.attack for row in audit_result.rows} == {
        *("per-example", "per-example, released", "attributes", "canary nodes", "canary edges")
    }
    nothing, method = row_of(audit_result, "attributes", "no_op"), row_of(audit_result, "attributes", "method")
    assert nothing.gap.value > 0.05
    assert abs(method.gap.value) < 0.02
    assert method.gap.holds(0)
    assert 0 < audit_result.blanked["method"].true < audit_result.blanked["method"].as_published


def test_few_items_are_noted(attacks: None) -> None:
    audit_result = audited(gf.Request(named([20, 21]), edges_outside([20, 21])[:3], {"person-30": [0, 5]}), seeds=2)
    assert audit_result.settings["items"] == 6
    for name, count in {"membership": 2, "links": 3, "attributes": 1}.items():
        assert f"the attack {name!r} was left out, because it has only {count} item(s)" in audit_result.notes
        assert name not in {row.attack for row in audit_result.rows}
    assert not any("paper" in note for note in audit_result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["newton", "ascent"])
def test_a_request_that_nobody_could_tell_is_inconclusive_however_many_models(method: str) -> None:
    """One value that is 0 already: no model changes."""
    column = int((people().x.to_dense()[20] == 0).nonzero()[0])
    settings: dict[str, Any] = {"learning_rate": 1e-9} if method == "ascent" else {}
    audit_result = audited(
        gf.Request(attributes={"person-20": [column]}), seeds=2, models=12, method=method, **settings
    )
    assert audit_result.findings == ()
    assert (audit_result.verdict, audit_result.passed) == ("inconclusive", False)
    assert audit_result.inconclusive_reason is not None
    assert "a deletion that did nothing would not have been flagged either" in audit_result.inconclusive_reason
    assert any("did nothing would have passed the per-example test too" in note for note in audit_result.notes)


def test_self_loops_are_no_links_to_steal(attacks: None) -> None:
    audit_result = audited(gf.Request(edges=[(name, name) for name in named(range(12))]), seeds=2)
    assert "links" not in {row.attack for row in audit_result.rows}
    assert audit_result.settings["items"] == 12


@pytest.mark.slow
def test_an_attack_that_cannot_be_run_does_not_cost_the_audit(attacks: None) -> None:
    """Without an edge left no attacker could learn what edges look like."""
    audit_result = audited(gf.Request(edges=edges_outside([])), seeds=2)
    assert "per-example" in {row.attack for row in audit_result.rows}
    assert any("links" in note for note in audit_result.notes)


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"models": 4}, "4 models and 4 seeds are too few, at least 8 and 2 are needed"),
        ({"seeds": 1}, "8 models and 1 seeds are too few, at least 8 and 2 are needed"),
        ({"models": 8.5}, "models is 8.5, a whole number from 0 is needed"),
        ({"share": 0}, "the share is 0, it must be above 0 and up to 1"),
        ({"share": 1.1}, "the share is 1.1, it must be above 0 and up to 1"),
        ({"share": float("nan")}, "the share is nan, it must be above 0 and up to 1"),
        ({"jobs": 0}, "at least 1 job is needed"),
        ({"seed": -1}, "seed is -1, a whole number from 0 is needed"),
        ({"epsilon": 0}, "epsilon is 0, a positive number is needed"),
        ({"method": "magic"}, "there is no method 'magic'"),
        ({"nonsense": 1}, ""),
    ],
)
def test_bad_options_are_refused_and_nothing_is_written(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(gf.InputError, match=f"^{sentence}"):
        audited(**options, folder=tmp_path / "pieces")
    assert not (tmp_path / "pieces").exists()


@pytest.mark.parametrize(
    "request_", [gf.Request(nodes=named([70, 80])), gf.Request(attributes={"person-70": "all"})], ids=repr
)
def test_a_request_that_no_training_loss_is_of_cannot_be_audited(request_: gf.Request) -> None:
    with pytest.raises(gf.InputError, match="^the request names no labelled training node"):
        audited(request_)


def test_a_graph_without_test_nodes_cannot_be_audited() -> None:
    graph = dataclasses.replace(people(), test_mask=torch.zeros(NODES, dtype=torch.bool))
    with pytest.raises(gf.InputError, match="^the graph has no test node"):
        gf.audit(gf.train(graph, "sgc"), graph, REQUEST, models=8, seeds=2)
    with pytest.raises(gf.InputError, match="^node 'nobody' is not in the graph$"):
        audited(gf.Request(nodes=["nobody"]))


# -- pieces --------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """Somebody pulled the plug."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is computed and not read."""
    audit_result: list[str] = []

    def spied(name: str, really: Callable[..., Any], *settings: Any, **more: Any) -> Any:
        audit_result.append(name)
        return really(*settings, **more)

    for name in ("population", "retrained", "with_canaries"):
        monkeypatch.setattr(MODULE, name, functools.partial(spied, name, getattr(MODULE, name)))
    return audit_result


@pytest.mark.slow
def test_a_stopped_audit_goes_on_and_a_finished_one_is_read(tmp_path: Path, made: list[str]) -> None:
    reports: list[tuple[str, int, int]] = []

    def stop(stage: str, done: int, total: int) -> None:
        reports.append((stage, done, total))
        if (stage, done) == ("models", 9):
            raise Stopped

    with pytest.raises(Stopped):
        audited(folder=tmp_path, progress=stop)
    total = 8 + 4 + 1 + 1  # populations, retrained ones, one for the attackers, one with canaries
    assert reports == [("models", done, total) for done in range(10)]
    assert len(made) == 9
    first = audited(folder=tmp_path)
    assert sorted(made) == sorted(["population"] * 8 + ["retrained"] * 5 + ["with_canaries"])
    made.clear()
    again = audited(folder=tmp_path)
    assert made == []
    elsewhere = audited_once().to_dict() | {"seconds": 0}
    assert [one.to_dict() | {"seconds": 0} for one in (first, again)] == [elsewhere] * 2


@pytest.mark.parametrize(
    "changes",
    [
        *({"models": 9}, {"seeds": 7}, {"seed": 1}, {"share": 0.8}, {"epsilon": 2.0}, {"method": "retrain"}),
        *({"steps": 9}, {"forget": doing_nothing}, {"after": "other noise"}),
    ],
    ids=lambda changed: "-".join(changed),
)
def test_pieces_of_other_settings_are_refused(changes: dict[str, Any], finished: Path) -> None:
    if "after" in changes:
        changes = {"after": gf.Release.of(ByMethod("newton")(trained(), people(), REQUEST, 77))}
    with pytest.raises(gf.InputError, match="holds checkpoints of another run, remove it or choose another folder$"):
        audited(**{"method": "newton", "folder": finished, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an audit that has begun, no more of which is needed to know it by."""
    folder = tmp_path_factory.mktemp("begun") / "pieces"

    def stop(stage: str, done: int, total: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        audited(method="newton", folder=folder, progress=stop)
    return folder


@pytest.mark.slow
def test_an_audit_of_noise_in_the_objective_goes_on_as_well(tmp_path: Path) -> None:
    """Its release is retrained for the audit, with noise of its own; the populations are those that are there."""
    old = gf.train(people(), "cgu", noise_seed=1)
    first = audited(old=old, method="retrain", folder=tmp_path, seeds=2)
    again = audited(old=old, method="retrain", folder=tmp_path, seeds=2)
    assert again.per_example == first.per_example


def by_name(old: gf.Trained, graph: gf.Graph, request: gf.Request, noise_seed: int, *, method: str) -> gf.Outcome:
    return ByMethod(method)(old, graph, request, noise_seed)


def test_pieces_of_another_way_to_forget_are_refused(tmp_path: Path) -> None:
    after = release_by(ByMethod("newton"))
    one, other = (functools.partial(by_name, method=method) for method in ("ascent", "newton"))
    audited(after=after, forget=one, folder=tmp_path, seeds=2)
    with pytest.raises(gf.InputError, match="holds checkpoints of another run"):
        audited(after=after, forget=other, folder=tmp_path, seeds=2)


def test_what_a_deletion_made_is_taken_and_not_made_again() -> None:
    seen: list[str] = []

    def forget(old: gf.Trained, graph: gf.Graph, request: gf.Request, noise_seed: int) -> gf.Outcome:
        seen.append(graph.digest)
        return ByMethod("newton")(old, graph, request, noise_seed)

    outcome = gf.unlearn(trained(), people(), REQUEST, noise_seed=3)
    audit_result = audited(after=outcome, forget=forget, seeds=2)
    assert audit_result.findings == ()
    assert len(set(seen)) == 8 + 1
    assert people().digest not in seen


# -- run directories -----------------------------------------------------------------------------------------

FEW: dict[str, Any] = {"models": 8, "seeds": 2}


class Runs(NamedTuple):
    """A trained run, what came of it at epsilon 3, the request between them, a cheat's, and one whose weights are
    deleted from but not those that it released."""

    plain: Path
    after: Path
    request: Path
    cheat: Path
    sly: Path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    audit_result = Runs(folder / "plain", folder / "after", folder / "request.json", folder / "cheat", folder / "sly")
    gf.save_run(audit_result.plain, trained(), people())
    outcome = gf.unlearn(trained(), people(), REQUEST, epsilon=3.0)
    gf.save_outcome(audit_result.after, outcome, after=audit_result.plain)
    cheat = doing_nothing(trained(), people(), REQUEST, 1)
    gf.save_outcome(audit_result.cheat, cheat, after=audit_result.plain)
    sly = dataclasses.replace(outcome, released_theta=cheat.released_theta)
    gf.save_outcome(audit_result.sly, sly, after=audit_result.plain)
    audit_result.request.write_text(json.dumps(REQUEST.to_dict()))
    return audit_result


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


@pytest.mark.slow
def test_a_trained_run_rehearses_a_deletion(runs: Runs, tmp_path: Path) -> None:
    before = tree(runs.plain.parent)
    out = tmp_path / "deep" / "audit"
    audit_result = gf.audit_run(runs.plain, out=out, **FEW)
    assert audit_result.claim == {"level": "certified", "epsilon": 1.0, "delta": 1e-5, "sigma": SIGMA}
    assert audit_result.settings["method"] == "auto"
    assert audit_result.settings["items"] == 3  # 5 % of 66 training nodes
    assert {file.name for file in out.iterdir()} == {AUDIT_RESULT, AUDIT_PICTURE}
    assert strict((out / AUDIT_RESULT).read_text()) == audit_result.to_dict()
    assert (out / AUDIT_PICTURE).read_bytes().startswith(b"\x89PNG")
    assert tree(runs.plain.parent) == before
    with pytest.raises(gf.InputError, match="holds the result of an audit already, remove it or choose another folder"):
        gf.audit_run(runs.plain, out=out, **FEW)


@pytest.mark.slow
def test_a_run_that_came_of_a_deletion_rehearses_by_its_method_and_epsilon(runs: Runs, tmp_path: Path) -> None:
    audit_result = gf.audit_run(runs.after, request="node:4", out=tmp_path / "audit", keep=True, **FEW)
    assert audit_result.claim == {"level": "certified", "epsilon": 3.0, "delta": 1e-5, "sigma": SIGMA}
    assert (audit_result.settings["method"], audit_result.settings["items"]) == ("newton", 4)
    pieces = {file.name for file in (tmp_path / "audit" / AUDIT_PIECES).iterdir()}
    assert {"world-7.npz", "retrained-2.npz", "canaries.npz"} <= pieces
    other = gf.audit_run(runs.after, request=gf.Request(nodes=named([1])), method="retrain", epsilon=None, **FEW)
    assert (other.claim["level"], other.claim["epsilon"], other.settings["items"]) == ("certified", 3.0, 1)
    assert other.settings["method"] == "retrain"


def squared(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (logits - torch.nn.functional.one_hot(labels, logits.shape[1])).square().sum(dim=1)


@pytest.mark.slow
def test_a_conditional_claim_is_rehearsed_with_its_epsilon(tmp_path: Path) -> None:
    loss = gf.Loss(squared, convex=True)
    gf.save_run(tmp_path / "before", gf.train(people(), "sgc", loss=loss), people())
    gf.answer(tmp_path / "before", OTHERS, out=tmp_path / "after", epsilon=3.0, loss=loss)
    audit_result = gf.audit_run(tmp_path / "after", request=gf.Request(nodes=named([1, 2])), loss=loss, **FEW)
    assert (audit_result.claim["level"], audit_result.claim["epsilon"]) == ("conditional", 3.0)
    assert audit_result.settings["method"] == "newton"


@pytest.mark.slow
def test_the_deletion_itself_is_audited(runs: Runs) -> None:
    before = tree(runs.plain.parent)
    audit_result = gf.audit_run(runs.after, before=runs.plain, request=runs.request, **FEW)
    assert audit_result.claim["epsilon"] == 3
    assert audit_result.settings["items"] == len(GONE)
    private, left = gf.load_run(runs.after)
    best = optimum(trained(), people().without(REQUEST))
    centre = residual(private.objective(left), private.theta).centre
    assert audit_result.distances["method"].distance == pytest.approx(float((centre - best).norm()), abs=2e-6)
    assert audit_result.findings == ()
    assert tree(runs.plain.parent) == before


@pytest.mark.slow
def test_a_run_of_a_cheat_is_refuted(runs: Runs) -> None:
    audit_result = gf.audit_run(runs.cheat, before=runs.plain, request=runs.request, models=8, seeds=4)
    assert "between retrained (0) and never changed (1)" in messages_of(audit_result)
    assert "which implies epsilon" in messages_of(audit_result)
    audit_result = gf.audit_run(runs.sly, before=runs.plain, request=runs.request, models=8, seeds=4)
    assert "is not noise of sigma" in messages_of(audit_result)
    assert "the released weights lie at" in messages_of(audit_result)


def test_runs_and_requests_have_to_belong_together(runs: Runs, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"out": tmp_path / "audit", **FEW}
    with pytest.raises(gf.Mismatch, match="is not that of .* without what the request names$"):
        gf.audit_run(runs.after, before=runs.plain, request=OTHERS, **settings)
    with pytest.raises(gf.InputError, match="holds no certificate: it has not answered any request$"):
        gf.audit_run(runs.plain, before=runs.plain, request=REQUEST, **settings)
    requests: tuple[Path | str | None, ...] = (None, "node:5%")
    for request in requests:
        with pytest.raises(gf.InputError, match="^--before needs --request: the request file of that deletion"):
            gf.audit_run(runs.after, before=runs.plain, request=request, **settings)
    for request in (tmp_path / "absent.json", "nonsense"):
        with pytest.raises(gf.InputError, match="is neither a file nor of the form node:5%"):
            gf.audit_run(runs.plain, request=request, **settings)
    with pytest.raises(gf.InputError):
        gf.audit_run(tmp_path / "absent", **settings)
    assert not (tmp_path / "audit").exists()


# -- the command line ----------------------------------------------------------------------------------------

QUICK = ("--models", "12", "--seeds", "3", "--jobs", "1", "--request", "node:4")


@pytest.fixture
def run(run: Run) -> Run:
    """`graphforget audit` with these arguments."""
    return functools.partial(run, "audit")


@pytest.mark.slow
def test_an_audit_that_is_passed_ends_with_0_and_is_json(run: Run, runs: Runs, tmp_path: Path) -> None:
    ran = run(runs.plain, *QUICK, "--out", tmp_path / "audit", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout.count("\n") == 1
    content = strict(ran.stdout)
    assert content.pop("folder") == str(tmp_path / "audit")
    assert content == strict((tmp_path / "audit" / AUDIT_RESULT).read_text())
    assert content["passed"] is True
    assert {file.name for file in (tmp_path / "audit").iterdir()} == {AUDIT_RESULT, AUDIT_PICTURE}
    again = run(runs.plain, *QUICK, "--out", tmp_path / "audit", "--json")
    assert (again.code, again.stdout) == (2, "")
    assert "holds the result of an audit already" in again.stderr


@pytest.mark.slow
def test_an_audit_of_too_few_models_ends_with_3_and_never_says_passed(run: Run, runs: Runs, tmp_path: Path) -> None:
    ran = run(runs.plain, *QUICK, "--models", "8", "--out", tmp_path / "audit")
    assert (ran.code, ran.stderr) == (3, "")
    assert "Passed" not in ran.stdout
    assert "\nInconclusive: these tests detected nothing, but the per-example test cannot fail with 4" in ran.stdout
    assert "--models 11" in ran.stdout
    assert strict((tmp_path / "audit" / AUDIT_RESULT).read_text())["verdict"] == "inconclusive"


@pytest.mark.slow
def test_a_model_that_remembers_ends_with_1_and_a_sentence(run: Run, runs: Runs, tmp_path: Path) -> None:
    ran = run(runs.plain, *QUICK[:-1], "node:12", "--method", "ascent", "--out", tmp_path / "audit", "--keep")
    assert (ran.code, ran.stderr) == (1, "")
    assert "\nREMEMBERS: " in ran.stdout
    assert "Passed" not in ran.stdout
    assert "REFUTED" not in ran.stdout
    assert f"the checkpoints in {AUDIT_PIECES}, to be removed with the deleted data" in ran.stdout
    assert (tmp_path / "audit" / AUDIT_PIECES / "world-0.npz").exists()


@pytest.mark.slow
def test_a_refuted_claim_ends_with_1(run: Run, runs: Runs, tmp_path: Path) -> None:
    ran = run(runs.cheat, *QUICK[:-2], "--request", runs.request, "--before", runs.plain, "--out", tmp_path / "audit")
    assert ran.code == 1
    assert "\nREFUTED: the weights are" in ran.stdout
    other = tmp_path / "other.json"
    other.write_text(json.dumps(OTHERS.to_dict()))
    ran = run(runs.after, *QUICK[:-2], "--request", other, "--before", runs.plain, "--out", tmp_path / "more")
    assert (ran.code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("graphforget: does not hold: the graph of")
    assert not (tmp_path / "more").exists()


@pytest.mark.slow
def test_people_are_told_what_was_measured(run: Run, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder beside the run, where nobody says otherwise."""
    monkeypatch.chdir(runs.plain.parent)
    ran = run("plain", *QUICK)
    assert (ran.code, ran.stderr) == (0, "")
    for text in (
        "certified, epsilon = 1",
        "position",
        "distance, no_op",
        "Passed: these tests cannot distinguish",
        "canary",
        "\nPrivate: this table, the result file and the plot depend on deleted data.",
    ):
        assert text in ran.stdout
    assert "Written to plain.audit: audit.json, a plot." in ran.stdout
    assert (runs.plain.parent / "plain.audit" / AUDIT_RESULT).exists()
    assert "person" not in ran.stdout
    shutil.rmtree(runs.plain.parent / "plain.audit")


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--models", "4"), ("--seeds", "1"), ("--jobs", "0"), ("--share", "0"), ("--method", "magic")),
        *(("--request", "node:900"), ("--epsilon", "-1"), ("--option", "nonsense"), ("--option", "nonsense=1")),
    ],
    ids=" ".join,
)
def test_bad_arguments_end_with_2_and_write_nothing(
    run: Run, runs: Runs, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    ran = run(runs.plain, *QUICK, "--out", tmp_path / "audit", *arguments)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr
    assert not (tmp_path / "audit").exists()


@pytest.mark.parametrize("option", ["models=9", "folder=here", "forget=1", "after=1", "progress=1"])
def test_an_option_that_is_none_of_the_methods_is_refused(run: Run, runs: Runs, tmp_path: Path, option: str) -> None:
    ran = run(runs.plain, *QUICK, "--out", tmp_path / "audit", "--option", option)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("graphforget: ")


@pytest.mark.slow
def test_the_run_may_be_the_folder_one_is_in(
    run: Run, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs.plain, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    assert run(".", *QUICK).code == 0
    assert (tmp_path / "here.audit" / AUDIT_RESULT).exists()


def test_help_has_an_example(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    assert "3: inconclusive" in " ".join(ran.stdout.split())
    assert "Example: graphforget audit runs/two --before runs/one --request request.json" in " ".join(
        ran.stdout.split()
    )


# -- the plot ------------------------------------------------------------------------------------------------


def drawn_row(attack: str, model: str, value: float, low: float, high: float) -> dict[str, Any]:
    return {"attack": attack, "model": model, "auc": {"value": value, "low": low, "high": high}}


def test_the_plot_shows_every_attack_on_every_model() -> None:
    rows = [
        drawn_row(attack, model, 0.1 * k + 0.2, 0.1 * k + 0.15, 0.1 * k + 0.3)
        for k, (attack, model) in enumerate((attack, model) for attack in ("first", "second") for model in MODELS[:3])
    ]
    figure = audit_figure(rows)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second"]
    assert axes.get_xlim() == (0, 1)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    legend = axes.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 4
    points = {(round(x, 6), round(y)) for bars in axes.containers for x, y in zip(*bars[0].get_data(), strict=True)}
    assert points == {(round(row["auc"]["value"], 6), row["attack"] == "second") for row in rows}
    spans = [line for bars in axes.containers for line in bars[2][0].get_segments()]
    assert len(spans) == 6
    assert sorted((round(s[0][0], 6), round(s[1][0], 6)) for s in spans) == sorted(
        (round(row["auc"]["low"], 6), round(row["auc"]["high"], 6)) for row in rows
    )
    heights = [y for bars in axes.containers for y in bars[0].get_data()[1]]
    assert len(set(heights)) == 6


def test_an_interval_that_misses_its_value_by_rounding_is_drawn_all_the_same() -> None:
    rows = [drawn_row("some", model, 1.0, 1 + 1e-16, 1 - 1e-12) for model in MODELS]
    file = io.BytesIO()
    audit_figure(rows).savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")


def test_the_plot_of_an_audit_has_its_rows() -> None:
    (axes,) = audit_figure(honest().to_dict()["rows"]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.attack for row in honest().rows[::4]]


def test_findings_say_whether_they_refute() -> None:
    assert Finding(True, "message").refutes
    assert not dataclasses.replace(honest(), findings=(Finding(False, "message"),)).passed


@pytest.mark.slow
@pytest.mark.parametrize("model", list(gf.MODELS))
def test_models_can_be_sent_to_other_processes(model: str) -> None:
    """Else an audit would work in one process alone, whatever was asked."""
    short: dict[str, Any] = {} if gf.MODELS[model].affine else {"epochs": 1, "polish_steps": 1}
    graph = random_collection(0) if model.startswith("graph-") else people()
    built = gf.train(graph, model, noise_seed=1, **short)
    again = pickle.loads(pickle.dumps(built))
    assert torch.equal(again.logits(graph), built.logits(graph))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "level"),
    [("retrain", "certified"), ("newton", "certified"), ("idea", "empirical"), ("gif", "empirical")],
)
def test_a_deletion_of_every_level_is_audited_from_its_run(method: str, level: Level, tmp_path: Path) -> None:
    gf.save_run(tmp_path / "before", trained(), people())
    gf.answer(tmp_path / "before", REQUEST, out=tmp_path / "after", method=method, level=level)
    audit_result = gf.audit_run(tmp_path / "after", before=tmp_path / "before", request=REQUEST, models=12, seeds=2)
    assert audit_result.settings["rehearsal"] is False
    assert audit_result.settings["certificate"]
    assert (audit_result.settings["method"], audit_result.claim["level"]) == (method, level)
    assert audit_result.passed == (method in ("retrain", "newton"))
    assert audit_result.verdict in ("passed", "remembers")
    with pytest.raises(gf.InputError, match="it cannot be audited as"):
        gf.audit_run(tmp_path / "after", before=tmp_path / "before", request=REQUEST, method="ascent")
    for inside in (tmp_path / "after", tmp_path / "after" / "deep"):
        with pytest.raises(gf.InputError, match="is in the run directory"):
            gf.audit_run(tmp_path / "after", out=inside)
