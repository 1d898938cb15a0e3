"""The audit of the paper's assumptions against brute force."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from graphforget.certificates.claim import conditional
from torch import Tensor

import graphforget as gf
from cases import idea, random_graph, train_without_noise
from graphforget.certificates.assumptions import Finding, audit
from graphforget.linalg.dense import dense_matrix

NAMES = (
    "losses are at most C",
    "losses are L-Lipschitz",
    "the objective is lambda-strongly convex",
    "training ended at a minimum",
)


def elsewhere(trained: gf.Trained) -> Tensor:
    return trained.theta + torch.randn(trained.theta.shape, generator=torch.Generator().manual_seed(0)).double()


def audited(
    model: str, constants: gf.Constants, *, nodes: int = 1000, everybody: bool = True, **options: Any
) -> tuple[dict[str, Finding], gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=30, edges=40)
    trained = train_without_noise(graph, model, mu=1e-2, **options)
    retained = graph.without(gf.Request(nodes=[20]))
    found = audit(
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
    assert tuple(finding.name for finding in found) == NAMES
    return {finding.name: finding for finding in found}, trained, graph


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
    found, trained, graph = audited(model, gf.Constants(strong_convexity=1e-9), **options)
    retained = graph.without(gf.Request(nodes=[20]))
    largest = 0.0
    for where in (graph, retained):
        for theta in (trained.theta, elsewhere(trained)):
            largest = max(largest, float(trained.objective(where).data.losses(theta).max()))
    assert found[NAMES[0]].measured == pytest.approx(largest)
    assert found[NAMES[1]].measured == pytest.approx(max(single_gradients(trained, graph)), rel=1e-9)
    matrix: Tensor = dense_matrix(trained.objective(graph).hessian(trained.theta), trained.theta)
    smallest, *_, biggest = torch.linalg.eigvalsh(matrix).tolist()
    measured = found[NAMES[2]].measured
    assert measured is not None
    assert smallest - 1e-9 <= measured
    if measured >= 1e-9:  # else Lanczos has stopped, because the constant is refuted
        assert measured <= smallest + 2e-3 * biggest
    assert found[NAMES[3]].measured == trained.gradient_norm


def test_only_removed_nodes_need_the_lipschitz_constant() -> None:
    found, trained, graph = audited("sgc", gf.Constants(), everybody=False)
    norms = single_gradients(trained, graph)
    assert found[NAMES[1]].measured == pytest.approx(norms[graph.train_rows.tolist().index(20)], rel=1e-9)
    patients = gf.load("patients")
    start = train_without_noise(patients, "sgc")
    ends = patients.edge_index[:, 0].tolist()
    edge = gf.Request(edges=[(patients.subject_ids[ends[0]], patients.subject_ids[ends[1]])])
    assert idea(start, patients, edge).certificate.conditions[1].verdict == "holds"
    later = idea(start, patients, gf.Request(nodes=["patient-0300"]))
    second = idea(later.trained, later.graph, edge)
    assert second.certificate.conditions[1].verdict == "not checkable"
    assert any("those before it" in note for note in second.notes)


def test_of_few_nodes_it_takes_those_with_the_steepest_losses() -> None:
    few, trained, graph = audited("sgc", gf.Constants(), nodes=4)
    norms = single_gradients(trained, graph)
    data = trained.objective(graph).data
    slopes = data.loss.gradient(data.logits(trained.theta).detach(), data.labels).norm(dim=1)
    likely = slopes.argsort(descending=True)[:4].tolist()
    assert few[NAMES[1]].measured == pytest.approx(max(norms[i] for i in likely), rel=1e-9)


def test_verdicts_of_a_convex_model() -> None:
    found, trained, _ = audited("sgc", gf.Constants())
    assert [f.verdict for f in found.values()] == ["not checkable", "fails", "fails", "holds"]
    wide = gf.Constants(strong_convexity=trained.recipe.mu, lipschitz=100.0, loss_bound=1e-3)
    found, *_ = audited("sgc", wide)
    assert [f.verdict for f in found.values()] == ["fails", "not checkable", "holds", "holds"]
    found, *_ = audited("sgc", dataclasses.replace(wide, strong_convexity=1.01 * trained.recipe.mu))
    assert found[NAMES[2]].verdict == "fails"


def test_verdicts_of_a_network() -> None:
    options: dict[str, Any] = {"hidden": 4, "epochs": 60, "polish_steps": 5}
    found, *_ = audited("gcn", gf.Constants(strong_convexity=1e-4), **options)
    assert found[NAMES[2]].verdict in ("fails", "not checkable")  # never "holds": it is not convex
    assert found[NAMES[3]].verdict == "fails"
    found, *_ = audited("gcn", gf.Constants(strong_convexity=100.0), **options)
    assert found[NAMES[2]].verdict == "fails"


def test_negative_losses_count_by_their_size() -> None:
    graph = random_graph(3, nodes=30, edges=40)

    def negative(logits: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none") - 7

    trained = train_without_noise(graph, "gcn", loss=negative, hidden=4, epochs=5, polish_steps=0)
    outcome = idea(trained, graph, gf.Request(nodes=[20]))
    measured = outcome.certificate.conditions[0].measured
    assert measured is not None
    assert 3 < measured < 7
    assert outcome.certificate.conditions[0].verdict == "fails"


def test_an_outcome_carries_the_audit_and_its_time_is_not_counted() -> None:
    graph = gf.load("patients")
    trained = train_without_noise(graph, "sgc")
    outcome = idea(trained, graph, gf.Request(nodes=["patient-0017"]))
    assert tuple(finding.name for finding in outcome.certificate.conditions) == NAMES
    failing = tuple(f.name for f in outcome.certificate.conditions if f.verdict == "fails")
    assert outcome.certificate.refuted == outcome.trained.history[0].refuted == failing
    assert NAMES[2] in failing
    assert outcome.certificate.epsilon is None
    assert outcome.certificate.epsilon_under_constants == 1.0
    assert "nothing follows for this model" in outcome.certificate.statement
    second = idea(outcome.trained, outcome.graph, gf.Request(nodes=["patient-0018"]))
    last = second.certificate.conditions[3]
    assert last.threshold == trained.recipe.tolerance * trained.recipe.mu
    assert (last.measured, last.verdict) == (trained.gradient_norm, "holds")  # of training, not of the step since


def test_a_claim_says_what_it_is_made_of() -> None:
    given: dict[str, Any] = {"distance": 2.0, "epsilon": 1.0, "delta": 1e-5, "constants": gf.Constants()}
    claim = conditional(sigma=None, conditions=(), **given)
    assert claim.level == "conditional"
    assert "if every condition listed holds" in claim.statement
    assert claim.sigma == pytest.approx(2.0 / 0.26805, rel=1e-4)
    assert claim.sigma_by_paper == pytest.approx(2.0 * (2 * torch.tensor(1.25e5).log().item()) ** 0.5, rel=1e-6)
    assert claim.epsilon == claim.epsilon_under_constants == 1.0
    for sigma in (0.0, 1e-200):
        nothing = conditional(sigma=sigma, conditions=(), **given)
        assert nothing.level == "empirical"
        assert nothing.epsilon is None
        assert nothing.to_dict()["epsilon_under_constants"] is None
        json.dumps(nothing.to_dict(), allow_nan=False)
    failing = Finding("losses are at most C", 4.0, 3.0, "fails", "-")
    refuted = conditional(sigma=None, conditions=(failing,), **given)
    assert (refuted.level, refuted.epsilon, refuted.refuted) == ("conditional", None, ("losses are at most C",))
    earlier = conditional(sigma=None, conditions=(), refuted_before=("something",), **given)
    assert (earlier.epsilon, earlier.refuted) == (None, ("something",))


def test_a_measurement_that_is_not_a_number_holds_nothing() -> None:
    graph = random_graph(3, nodes=30, edges=40)
    trained = train_without_noise(graph, "sgc", mu=1e-2)
    objective = trained.objective(graph)
    theta = trained.theta * float("nan")
    found = audit(
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
    assert not any(finding.verdict == "holds" for finding in found)
