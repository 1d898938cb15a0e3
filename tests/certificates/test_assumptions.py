"""The audit of the paper's assumptions against brute force."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import pytest
import torch
from torch import Tensor

import graphforget as gf
from cases import idea, present, random_graph, train_without_noise
from graphforget.certificates.assumptions import measure_conditions
from graphforget.certificates.claims.objective_noise import CEU_CONDITIONS, FIXED, SECRET, WITHIN
from graphforget.certificates.claims.paper_bound import CONDITIONS, PaperBound, distance_bound
from graphforget.certificates.claims.residual_ball import DECLARED_CONVEX
from graphforget.certificates.conditions import (
    BOUNDED,
    CONVEX,
    LIPSCHITZ,
    OPTIMUM,
    SENTENCES,
    ConditionCheck,
    refuted_by,
    sentence,
)
from graphforget.linalg.dense import dense_matrix

NAMES = (BOUNDED, LIPSCHITZ, CONVEX, OPTIMUM)
without_guarantee = functools.partial(idea, level="empirical")  # some condition does not hold in most cases here


def elsewhere(trained: gf.Trained) -> Tensor:
    return trained.theta + torch.randn(trained.theta.shape, generator=torch.Generator().manual_seed(0)).double()


def audited(
    model: str, constants: gf.Constants, *, nodes: int = 1000, everybody: bool = True, **options: Any
) -> tuple[dict[str, ConditionCheck], gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=30, edges=40)
    trained = train_without_noise(graph, model, mu=1e-2, **options)
    retained = graph.without(gf.Request(nodes=[20]))
    result = measure_conditions(
        trained.objective(graph),
        trained.objective(retained),
        start=trained.theta,
        end=elsewhere(trained),
        removed=graph.train_rows if everybody else torch.tensor([20]),
        removed_before=False,
        constants=constants,
        strongly_convex=trained.strongly_convex,
        training_gradient=trained.gradient_norm,
        training_tolerance=trained.recipe.tolerance * trained.recipe.mu,
        nodes=nodes,
        lanczos_steps=500,
    )
    assert tuple(finding.name for finding in result) == NAMES
    return {finding.name: finding for finding in result}, trained, graph


def single_gradients(trained: gf.Trained, graph: gf.Graph) -> list[float]:
    norms = []
    for row in graph.train_rows:
        theta = trained.theta.clone().requires_grad_()
        objective = gf.Objective(trained.module, graph, mu=1.0)
        logits = objective.data.logits(theta)[graph.train_rows == row]
        loss = torch.nn.functional.cross_entropy(logits, graph.y[row : row + 1])
        (gradient,) = torch.autograd.grad(loss + 0.5 * trained.recipe.mu * theta @ theta, theta)
        norms.append(float(gradient.norm()))
    return norms


@pytest.mark.parametrize(("model", "options"), [("sgc", {}), ("gcn", {"hidden": 4, "epochs": 60, "polish_steps": 5})])
def test_every_measurement_is_the_brute_force_one(model: str, options: dict[str, Any]) -> None:
    result, trained, graph = audited(model, gf.Constants(strong_convexity=1e-9), **options)
    retained = graph.without(gf.Request(nodes=[20]))
    largest = 0.0
    for where in (graph, retained):
        for theta in (trained.theta, elsewhere(trained)):
            largest = max(largest, float(trained.objective(where).data.losses(theta).max()))
    assert result[NAMES[0]].measured == pytest.approx(largest)
    assert result[NAMES[1]].measured == pytest.approx(max(single_gradients(trained, graph)), rel=1e-9)
    matrix: Tensor = dense_matrix(trained.objective(graph).hessian(trained.theta), trained.theta)
    smallest, *_, biggest = torch.linalg.eigvalsh(matrix).tolist()
    measured = result[NAMES[2]].measured
    assert measured is not None
    assert smallest - 1e-9 <= measured
    if measured >= 1e-9:  # else Lanczos has stopped, because the constant is refuted
        assert measured <= smallest + 2e-3 * biggest
    assert result[NAMES[3]].measured == trained.gradient_norm


@pytest.mark.slow
def test_only_removed_nodes_need_the_lipschitz_constant() -> None:
    result, trained, graph = audited("sgc", gf.Constants(), everybody=False)
    norms = single_gradients(trained, graph)
    assert result[NAMES[1]].measured == pytest.approx(norms[graph.train_rows.tolist().index(20)], rel=1e-9)
    patients = gf.load("patients")
    start = train_without_noise(patients, "sgc")
    ends = patients.edge_index[:, 0].tolist()
    edge = gf.Request(edges=[(present(patients.subject_ids)[ends[0]], present(patients.subject_ids)[ends[1]])])
    assert without_guarantee(start, patients, edge).measured["conditions"][1]["verdict"] == "holds"
    later = without_guarantee(start, patients, gf.Request(nodes=["patient-0300"]))
    second = without_guarantee(later.trained, later.graph, edge)
    assert second.measured["conditions"][1]["verdict"] == "not checkable"
    assert any("for the requests before it" in note for note in second.notes)


def test_of_few_nodes_it_takes_those_with_the_steepest_losses() -> None:
    few, trained, graph = audited("sgc", gf.Constants(), nodes=4)
    norms = single_gradients(trained, graph)
    data = trained.objective(graph).data
    slopes = data.loss.gradient(data.logits(trained.theta).detach(), data.labels).norm(dim=1)
    likely = slopes.argsort(descending=True)[:4].tolist()
    assert few[NAMES[1]].measured == pytest.approx(max(norms[i] for i in likely), rel=1e-9)


def test_verdicts_of_a_convex_model() -> None:
    result, trained, _ = audited("sgc", gf.Constants())
    assert [f.verdict for f in result.values()] == ["not checkable", "fails", "fails", "holds"]
    wide = gf.Constants(strong_convexity=trained.recipe.mu, lipschitz=100.0, loss_bound=1e-3)
    result, *_ = audited("sgc", wide)
    assert [f.verdict for f in result.values()] == ["fails", "not checkable", "holds", "holds"]
    result, *_ = audited("sgc", dataclasses.replace(wide, strong_convexity=1.01 * trained.recipe.mu))
    assert result[NAMES[2]].verdict == "fails"


@pytest.mark.slow
def test_verdicts_of_a_network() -> None:
    options: dict[str, Any] = {"hidden": 4, "epochs": 60, "polish_steps": 5}
    result, *_ = audited("gcn", gf.Constants(strong_convexity=1e-4), **options)
    assert result[NAMES[2]].verdict in ("fails", "not checkable")  # never "holds": it is not convex
    assert result[NAMES[3]].verdict == "fails"
    result, *_ = audited("gcn", gf.Constants(strong_convexity=100.0), **options)
    assert result[NAMES[2]].verdict == "fails"


def test_negative_losses_count_by_their_size() -> None:
    graph = random_graph(3, nodes=30, edges=40)

    def negative(logits: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none") - 7

    trained = train_without_noise(graph, "gcn", loss=negative, hidden=4, epochs=5, polish_steps=0)
    outcome = without_guarantee(trained, graph, gf.Request(nodes=[20]))
    bounded = outcome.measured["conditions"][0]
    assert bounded["name"] == BOUNDED
    assert 3 < bounded["measured"] < 7
    assert bounded["verdict"] == "fails"


def test_an_outcome_carries_the_audit_and_its_certificate_the_conditions_alone() -> None:
    graph = gf.load("patients")
    trained = train_without_noise(graph, "sgc")
    request = gf.Request(nodes=["patient-0017"])
    with pytest.raises(gf.Refused, match="the guarantee of 'idea' does not hold here .*: .*; nothing was released"):
        idea(trained, graph, request)
    outcome = without_guarantee(trained, graph, request)
    findings = outcome.measured["conditions"]
    assert outcome.certificate.conditions == tuple(finding["name"] for finding in findings) == NAMES
    assert set(findings[0]) == {"name", "measured", "threshold", "verdict", "meaning"}
    failing = [finding["name"] for finding in findings if finding["verdict"] == "fails"]
    assert outcome.measured["refuted"] == list(outcome.trained.history[0].refuted) == failing
    assert CONVEX in failing
    assert (outcome.level, outcome.certificate.epsilon, outcome.certificate.sigma) == ("empirical", None, 0.0)
    assert outcome.certificate.claim.void
    assert outcome.measured["epsilon_under_constants"] is None  # no noise was sized by a bound that does not hold
    assert outcome.measured["sigma_needed"] > 0
    public = json.dumps(outcome.public())
    for finding in findings:
        assert finding["meaning"] not in public
        assert finding["measured"] is None or repr(finding["measured"]) not in public
    second = without_guarantee(outcome.trained, outcome.graph, gf.Request(nodes=["patient-0018"]))
    last = second.measured["conditions"][3]
    assert last["threshold"] == trained.recipe.tolerance * trained.recipe.mu
    assert (last["measured"], last["verdict"]) == (trained.gradient_norm, "holds")  # of training, not of the step since
    assert set(failing) <= set(second.measured["refuted"])


@functools.cache
def once_unlearned() -> gf.Trained:
    """A model with one request in its history, and nothing refuted."""
    graph = random_graph(3, nodes=30, edges=40)
    outcome = without_guarantee(train_without_noise(graph, "sgc", mu=1e-2), graph, gf.Request(nodes=[20]), audit=False)
    return outcome.trained.amend_last_entry(refuted=())


def test_a_claim_says_what_it_is_made_of() -> None:
    trained = once_unlearned()
    distance = distance_bound(trained, gf.Constants())
    given: dict[str, Any] = {"trained": trained, "epsilon": 1.0, "delta": 1e-5, "constants": gf.Constants()}
    claim, measured = PaperBound.issue(sigma=None, findings=(), **given)
    assert claim.level == "conditional"
    assert not claim.void
    assert claim.sigma == measured["sigma_needed"] == pytest.approx(distance / 0.26805, rel=1e-4)
    by_paper = distance * (2 * torch.tensor(1.25e5).log().item()) ** 0.5
    assert measured["sigma_by_paper"] == pytest.approx(by_paper, rel=1e-6)
    assert measured["distance"] == distance
    assert claim.epsilon == 1.0
    assert measured["epsilon_under_constants"] == pytest.approx(1.0, rel=1e-9)
    for sigma in (0.0, 1e-200):
        nothing, measured = PaperBound.issue(sigma=sigma, findings=(), **given)
        assert (nothing.level, nothing.epsilon, nothing.void, nothing.sigma) == ("empirical", None, True, sigma)
        assert measured["epsilon_under_constants"] is None
        json.dumps([nothing.to_dict(), measured], allow_nan=False)
    failing = ConditionCheck(BOUNDED, 4.0, 3.0, "fails", "-")
    refuted, measured = PaperBound.issue(sigma=None, findings=(failing,), **given)
    assert (refuted.level, refuted.epsilon, refuted.sigma) == ("empirical", None, 0.0)
    assert (refuted.conditions, measured["refuted"]) == ((BOUNDED,), [BOUNDED])
    plenty, measured = PaperBound.issue(sigma=1e6, findings=(failing,), **given)
    assert (plenty.level, plenty.epsilon, plenty.sigma) == ("empirical", None, 1e6)
    before = given | {"trained": trained.amend_last_entry(refuted=("something",))}
    earlier, measured = PaperBound.issue(sigma=None, findings=(), **before)
    assert (earlier.level, earlier.epsilon, measured["refuted"]) == ("empirical", None, ["something"])


def test_what_was_refuted_stays_refuted_and_is_named_once() -> None:
    findings = tuple(
        ConditionCheck(name, None, None, verdict, "-")  # type: ignore[arg-type]
        for name, verdict in ((BOUNDED, "fails"), (LIPSCHITZ, "not checkable"), (CONVEX, "holds"), (OPTIMUM, "fails"))
    )
    assert refuted_by(findings, ()) == (BOUNDED, OPTIMUM)
    assert refuted_by(findings, (OPTIMUM, "earlier")) == (OPTIMUM, "earlier", BOUNDED)
    assert refuted_by((), ()) == ()


def test_every_condition_that_a_claim_can_list_has_a_sentence() -> None:
    ids = {*CONDITIONS, *(name for name, _ in CEU_CONDITIONS), SECRET, FIXED, WITHIN, DECLARED_CONVEX}
    assert ids <= set(SENTENCES)
    assert all(sentence(name) != name for name in ids)
    assert sentence("an id of a later version") == "an id of a later version"


def test_a_measurement_that_is_not_a_number_holds_nothing() -> None:
    graph = random_graph(3, nodes=30, edges=40)
    trained = train_without_noise(graph, "sgc", mu=1e-2)
    objective = trained.objective(graph)
    theta = trained.theta * float("nan")
    result = measure_conditions(
        objective,
        objective,
        start=theta,
        end=theta,
        removed=torch.tensor([20]),
        removed_before=False,
        constants=gf.Constants(),
        strongly_convex=False,
        training_gradient=float("nan"),
        training_tolerance=1.0,
    )
    assert not any(finding.verdict == "holds" for finding in result)
