"""GIF and gradient ascent: what they compute, and that they claim nothing."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphforget as gf
from cases import idea, random_graph
from graphforget.certificates.claims.empirical import Empirical
from graphforget.unlearning.methods.ascent import named_rows
from graphforget.unlearning.task import Task

pytestmark = pytest.mark.usefixtures("one_thread")

gif = functools.partial(gf.unlearn, method="gif")
ascent = functools.partial(gf.unlearn, method="ascent")
MODELS: dict[str, dict[str, Any]] = {
    "sgc": {"mu": 0.05},
    "cgu": {"mu": 0.05},
    "linearised-gcn": {"hidden": 4, "mu": 0.05},
    "gcn": {"hidden": 5, "epochs": 30, "polish_steps": 20},
}


@functools.cache
def trained_on(model: str = "sgc") -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=40, edges=60)
    return gf.train(graph, model, **MODELS[model]), graph


def an_edge(graph: gf.Graph, *, training: bool = True) -> tuple[int, int]:
    """With both ends in the training set, or neither."""
    source, target = graph.edge_index
    trains = graph.train_mask[source], graph.train_mask[target]
    wanted = (trains[0] & trains[1]) if training else ~(trains[0] | trains[1])
    u, v = graph.numbers[graph.edge_index[:, wanted & (source < target)]].T[0].tolist()
    return u, v


def kinds(graph: gf.Graph) -> dict[str, gf.Request]:
    return {
        "nodes": gf.Request(nodes=[4, 5]),
        "edges": gf.Request(edges=[an_edge(graph)]),
        "attributes": gf.Request(attributes={6: "all"}),
        "mixed": gf.Request(nodes=[20], edges=[an_edge(graph)], attributes={6: "all"}),
    }


# -- GIF -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nodes", "edges", "attributes", "mixed"])
@pytest.mark.parametrize("model", ["sgc", "cgu", "linearised-gcn"])
def test_with_many_rounds_it_comes_to_the_step_of_idea(model: str, kind: str) -> None:
    trained, graph = trained_on(model)
    request = kinds(graph)[kind]
    step = idea(trained, graph, request, tolerance=1e-12, level="empirical", audit=False)
    wanted = step.trained.theta - trained.theta
    gaps = []
    for iterations, tolerance in ((2, 1e-12), (20_000, 1e-9)):
        found = gif(trained, graph, request, tolerance=tolerance, iterations=iterations)
        gaps.append(float((found.trained.theta - trained.theta - wanted).norm() / wanted.norm()))
    assert gaps[1] < 1e-6
    assert gaps[0] > 1e-4  # as few rounds as this do not
    assert found.details["step"]["name"] == "lissa"


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_it_claims_nothing_whatever_the_model(model: str) -> None:
    trained, graph = trained_on(model)
    for request in kinds(graph).values():
        found = gif(trained, graph, request)
        assert found.level == "empirical"
        certificate = found.certificate
        assert isinstance(certificate.claim, Empirical)
        assert not certificate.claim.void  # it never wanted a guarantee
        assert (certificate.epsilon, certificate.delta, certificate.tolerance) == (None,) * 3
        assert certificate.conditions == ()
        assert found.measured == {}
        assert not torch.equal(found.trained.theta, trained.theta)
        assert gf.plan(trained, graph, request, method="gif").level == "empirical"
        gf.verify(certificate, found.trained, found.graph, released=found.released_theta, annexes=[found.annex])
        json.dumps(found.answer(), allow_nan=False)
        (entry,) = found.trained.history
        assert (entry.method, entry.gradient_residual_bound, entry.refuted) == ("gif", None, ())


def test_by_default_it_does_a_hundred_rounds_of_lissa() -> None:
    trained, graph = trained_on("gcn")
    step = gif(trained, graph, gf.Request(nodes=[4]), tolerance=1e-12).details["step"]
    assert (step["name"], step["iterations"]) == ("lissa", 100)
    other = gif(trained, graph, gf.Request(nodes=[4]), solver="cg").details["step"]
    assert other["name"] == "cg"


def test_it_forgets_no_part_of_the_attributes() -> None:
    trained, graph = trained_on()
    with pytest.raises(
        gf.InputError, match=r"^method 'gif' cannot forget partial attributes, only nodes, edges, attributes, graphs$"
    ):
        gif(trained, graph, gf.Request(attributes={6: [0]}))


def test_a_level_that_it_cannot_give_is_refused_or_retrained() -> None:
    trained, graph = trained_on()
    with pytest.raises(gf.Refused, match="'gif' reached level 'empirical', not 'conditional'"):
        gif(trained, graph, gf.Request(nodes=[4]), level="conditional", otherwise="refuse")
    again = gif(trained, graph, gf.Request(nodes=[4]), level="conditional")
    assert (again.method, again.level) == ("retrain", "certified")  # the model has noise of its own
    network, graph = trained_on("gcn")
    again = gif(network, graph, gf.Request(nodes=[4]), level="conditional")
    assert (again.method, again.level) == ("retrain", "exact")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"solver": "magic"}, "there is no solver 'magic', only cg, lissa, dense"),
        ({"iterations": 0}, "the solver's iterations is 0"),
        ({"scale": -1}, "the solver's scale is -1"),
        ({"solver": "cg", "batch": 3}, "batch belongs to the solver 'lissa', not to 'cg'"),
        ({"constants": None}, "method 'gif' has no option 'constants'"),
    ],
)
def test_bad_options_of_gif_are_refused_in_one_sentence(option: dict[str, Any], told: str) -> None:
    trained, graph = trained_on()
    with pytest.raises(gf.InputError, match=f"^{told}") as caught:
        gif(trained, graph, gf.Request(nodes=[4]), **option)
    assert "\n" not in str(caught.value)


# -- gradient ascent -------------------------------------------------------------------------------------------------


def mean_loss(trained: gf.Trained, graph: gf.Graph, rows: list[int], theta: Tensor) -> Tensor:
    """By its definition, on the graph before."""
    objective = trained.objective(graph)
    logits = objective.data.logits(theta)
    where = torch.searchsorted(graph.train_rows, torch.tensor(rows))
    return trained.loss(logits[where], graph.y[rows]).mean()


def expected_rows(graph: gf.Graph, request: gf.Request) -> list[int]:
    """Training nodes that go, ends of edges that are named, nodes that lose attributes."""
    named = {graph.row(n) for n in request.nodes}
    named |= {graph.row(n) for edge in request.edges for n in edge}
    named |= {graph.row(n) for n in request.attributes}
    return sorted(named & set(graph.train_rows.tolist()))


ASKED = {
    "nodes": lambda graph: gf.Request(nodes=[4, 5]),
    "edges": lambda graph: gf.Request(edges=[an_edge(graph)]),
    "attributes": lambda graph: gf.Request(attributes={int(graph.numbers[graph.train_rows[2]]): "all"}),
    "partial attributes": lambda graph: gf.Request(attributes={int(graph.numbers[graph.train_rows[5]]): [0, 1, 2, 3]}),
    "mixed": lambda graph: gf.Request(
        nodes=[20], edges=[an_edge(graph)], attributes={int(graph.numbers[graph.train_rows[5]]): [0, 1, 2]}
    ),
}


@pytest.mark.parametrize("kind", ASKED)
def test_what_a_request_names(kind: str) -> None:
    trained, graph = trained_on()
    request = ASKED[kind](graph)
    rows = named_rows(Task.of(trained, graph, request)).tolist()
    assert rows == expected_rows(graph, request)
    assert rows


def test_where_nothing_named_trains_it_is_what_the_request_reaches() -> None:
    trained, graph = trained_on()
    request = gf.Request(edges=[an_edge(graph, training=False)])
    task = Task.of(trained, graph, request)
    assert expected_rows(graph, request) == []
    assert named_rows(task).tolist() == task.touched.affected.tolist()
    assert not task.touched.empty
    found = ascent(trained, graph, request)
    assert found.details["nodes"] == task.touched.affected.numel()


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("model", MODELS)
def test_one_step_is_the_gradient_times_the_rate(model: str, kind: str) -> None:
    trained, graph = trained_on(model)
    request = ASKED[kind](graph)
    rows = expected_rows(graph, request)
    leaf = trained.theta.clone().requires_grad_()
    loss = mean_loss(trained, graph, rows, leaf)
    gradient = torch.autograd.grad(loss, leaf)[0]
    found = ascent(trained, graph, request, steps=1, learning_rate=0.03)
    torch.testing.assert_close(found.trained.theta, trained.theta + 0.03 * gradient, rtol=1e-10, atol=1e-12)
    assert found.details["nodes"] == len(rows)
    assert found.details["loss_before"] == pytest.approx(float(loss.detach()), rel=1e-10)


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("model", MODELS)
def test_it_raises_the_loss_on_what_is_named_and_claims_nothing(model: str, kind: str) -> None:
    trained, graph = trained_on(model)
    request = ASKED[kind](graph)
    found = ascent(trained, graph, request)
    rows = expected_rows(graph, request)
    before, after = (float(mean_loss(trained, graph, rows, at).detach()) for at in (trained.theta, found.trained.theta))
    assert after > before
    assert (found.details["loss_before"], found.details["loss_after"]) == pytest.approx((before, after), rel=1e-10)
    assert (found.level, found.certificate.epsilon) == ("empirical", None)
    assert found.graph.digest == graph.without(request).digest
    gf.verify(found.certificate, found.trained, found.graph, released=found.released_theta, annexes=[found.annex])
    json.dumps(found.answer(), allow_nan=False)


def test_it_leads_away_from_where_retraining_would() -> None:
    """Which is why nothing follows from it: the gradient on the retained graph grows."""
    trained, graph = trained_on()
    found = ascent(trained, graph, gf.Request(nodes=[4]), steps=20)
    assert found.trained.gradient_norm > 10 * trained.gradient_norm
    once, twice = (ascent(trained, graph, gf.Request(nodes=[4]), steps=steps) for steps in (1, 2))
    assert twice.trained.history[0].step_norm > once.trained.history[0].step_norm


def test_a_gradient_of_zero_is_no_success() -> None:
    """A loss that does not care, which no ascent can raise."""
    graph = random_graph(3, nodes=40, edges=60)

    def flat(logits: Tensor, labels: Tensor) -> Tensor:
        return 0.0 * logits.sum(dim=1)

    trained = gf.train(graph, "gcn", hidden=4, epochs=2, polish_steps=0, loss=flat)
    with pytest.raises(gf.Refused, match="the method changed no weight"):
        ascent(trained, graph, gf.Request(nodes=[4]))


def test_an_ascent_that_blows_up_is_refused() -> None:
    trained, graph = trained_on()
    with pytest.raises(gf.Refused, match="the ascent diverged"):
        ascent(trained, graph, gf.Request(nodes=[4]), learning_rate=1e308, steps=20)


@pytest.mark.parametrize("rate", [1e160, 1e200, 1e300])
def test_an_ascent_whose_weights_are_finite_and_their_norm_is_not_is_refused(rate: float) -> None:
    trained, graph = trained_on()
    rows = expected_rows(graph, gf.Request(nodes=[4, 5]))
    leaf = trained.theta.clone().requires_grad_()
    theta = trained.theta + rate * torch.autograd.grad(mean_loss(trained, graph, rows, leaf), leaf)[0]
    assert torch.isfinite(theta).all()
    assert not torch.isfinite(theta.norm())
    with pytest.raises(gf.Refused, match="^the ascent diverged; take fewer steps or lower the learning rate"):
        ascent(trained, graph, gf.Request(nodes=[4, 5]), steps=1, learning_rate=rate)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"steps": 0}, "steps is 0, at least 1 is needed"),
        ({"steps": -1}, "steps is -1"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"steps": True}, "steps is True"),
        ({"learning_rate": 0}, "learning_rate is 0, a positive number is needed"),
        ({"learning_rate": -0.1}, "learning_rate is -0.1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"learning_rate": True}, "learning_rate is True"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
        ({"epochs": 3}, "method 'ascent' has no option 'epochs', only steps, learning_rate"),
    ],
)
def test_bad_options_of_ascent_are_refused_in_one_sentence(option: dict[str, Any], told: str) -> None:
    trained, graph = trained_on()
    with pytest.raises(gf.InputError, match=f"^{told}") as caught:
        ascent(trained, graph, gf.Request(nodes=[4]), **option)
    assert "\n" not in str(caught.value)


def test_an_option_that_there_is_not_is_told_with_those_that_there_are() -> None:
    bare = []
    for name, method in gf.METHODS.items():
        known = [field.name for field in dataclasses.fields(method.options)]
        bare += [] if known else [name]
        with pytest.raises(gf.InputError) as caught:
            method.parse_options({"foo": 1})
        only = f", only {', '.join(known)}" if known else ""
        assert str(caught.value) == f"method '{name}' has no option 'foo'{only}"
    assert bare == ["grapheraser"]


def test_a_rate_of_numpy_will_do() -> None:
    trained, graph = trained_on()
    first, second = (
        ascent(trained, graph, gf.Request(nodes=[4]), learning_rate=rate) for rate in (0.1, np.float64(0.1))
    )
    assert torch.equal(first.trained.theta, second.trained.theta)
