"""Checks that every method passes, as functions of a method, a model and a request. They fail as tests do."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphforget.certificates.levels import LEVELS
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.request.request import Request
from graphforget.testing.examples import example_graph, example_requests
from graphforget.training.trained import Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.plan import plan
from graphforget.unlearning.registry import find
from graphforget.unlearning.unlearn import unlearn


def possible_request(method: str, graph: Graph) -> Request:
    """The first of the examples that the method can answer."""
    able = find(method).kinds
    return next(request for request in example_requests(graph).values() if set(request.kinds) <= able)


def check_request(method: str, trained: Trained, graph: Graph, request: Request, **options: Any) -> Outcome | None:
    """The method deletes what was asked, claims no more than it plans, and leaves its arguments alone.

    Returns None for a request of a kind that it does not take, which it has to refuse.
    """
    if not set(request.kinds) <= find(method).kinds:
        with pytest.raises(InputError, match=f"method '{method}' cannot forget"):
            unlearn(trained, graph, request, method=method, **options)
        return None
    theta, state, asked = trained.theta.clone(), copy.deepcopy(trained.module.state_dict()), request.to_dict()
    tensors = {f.name: getattr(graph, f.name) for f in dataclasses.fields(graph)}
    before = {name: value.clone() for name, value in tensors.items() if isinstance(value, Tensor)}
    random_state = torch.random.get_rng_state()
    given: Any = {"method": method, **options}
    planned = plan(trained, graph, request, level="empirical", **given)
    outcome = unlearn(trained, graph, request, level="empirical", **given)
    void = outcome.certificate.claim.void
    assert outcome.level == ("empirical" if void else planned.level)
    if void:
        with pytest.raises(Refused, match=f"^the guarantee of '{method}' does not hold here"):
            unlearn(trained, graph, request, **given)
    else:
        assert plan(trained, graph, request, **given).level == outcome.level
    _check_result(method, trained, graph, request, outcome)
    assert torch.equal(trained.theta, theta), "the weights of the argument changed"
    assert all(torch.equal(value, state[name]) for name, value in trained.module.state_dict().items())
    assert request.to_dict() == asked
    for name, value in before.items():
        assert torch.equal(_dense(value), _dense(tensors[name])), f"{name} of the graph changed"
    assert torch.equal(random_state, torch.random.get_rng_state()), "the caller's random state changed"
    return outcome


def _dense(value: Tensor) -> Tensor:
    return value.to_dense() if value.layout == torch.sparse_csr else value


def _check_result(method: str, trained: Trained, graph: Graph, request: Request, outcome: Outcome) -> None:
    after, theta = outcome.trained, trained.theta
    assert outcome.graph.digest == graph.without(request).digest
    assert after.graph_digest == outcome.graph.digest
    if outcome.level != "exact":  # there, training may give the same weights again
        assert not torch.equal(after.theta, theta), "no weight changed"
    assert torch.isfinite(after.theta).all()
    assert torch.isfinite(outcome.released_theta).all()
    assert LEVELS.index(outcome.level) >= LEVELS.index(find(method).level)
    if not trained.certifiable:
        assert outcome.level != "certified"
    for entry in after.history[len(trained.history) :]:
        assert (entry.m, entry.removed) == (graph.train_rows.numel(), outcome.touched.num_removed)
        assert entry.affected == outcome.touched.num_affected
        assert entry.gradient_norm == trained.gradient_norm
        if after.theta.shape == theta.shape:
            assert entry.step_norm == pytest.approx(float((after.theta - theta).norm()))
    assert torch.equal(outcome.released.theta, outcome.released_theta)
    gradient = after.objective(outcome.graph).gradient(after.theta)
    assert after.gradient_norm == pytest.approx(float(gradient.norm()))


def check_seed(method: str, trained: Trained, graph: Graph, request: Request, **options: Any) -> None:
    """Equal seeds give equal weights, before and after the noise."""
    given: Any = {"method": method, "level": "empirical", "seed": 5, "noise_seed": 1, **options}
    first, second = (unlearn(trained, graph, request, **given) for _ in range(2))
    assert torch.equal(first.trained.theta, second.trained.theta)
    assert torch.equal(first.released_theta, second.released_theta)


def check_another_request(
    method: str, trained: Trained, graph: Graph, requests: Iterable[Request], **options: Any
) -> tuple[Trained, Graph]:
    """The method answers these requests one after the other, or says in one sentence that it answers no second one."""
    answered = 0
    for request in requests:
        if find(method).unsupported(trained) is not None:
            assert answered == 1
            with pytest.raises(InputError, match=f"^method '{method}' does not work here: ") as caught:
                unlearn(trained, graph, request, method=method, level="empirical", **options)
            assert "\n" not in str(caught.value)
            break
        outcome = unlearn(trained, graph, request, method=method, level="empirical", **options)
        assert outcome.graph.digest == graph.without(request).digest == outcome.trained.graph_digest
        trained, graph, answered = outcome.trained, outcome.graph, answered + 1
    return trained, graph


def check_refusals(method: str, trained: Trained, graph: Graph) -> None:
    """Bad arguments are refused in one sentence that says what was given."""
    kinds, beyond = find(method).kinds, f"method '{method}' cannot forget"
    for bad, message in (
        ({"request": Request(nodes=[99])}, "node 99 is not in the graph" if "nodes" in kinds else beyond),
        ({"request": Request(edges=[(0, 0)])}, r"edge \(0, 0\) is not in the graph" if "edges" in kinds else beyond),
        (
            {"request": Request(attributes={0: [99]})},
            "column 99 is out of range" if "partial attributes" in kinds else beyond,
        ),
        ({"request": {"nodes": [1]}}, "the request is a dict, a graphforget.Request is needed"),
        ({"graph": example_graph(4)}, "the graph is not the one that this model was trained or last updated on"),
        ({"graph": None}, "the graph is a NoneType"),
        ({"trained": trained.module}, f"the model is a {type(trained.module).__name__}"),
        ({"epsilon": 0}, "epsilon is 0, a positive number"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"epsilon": 10**400}, "epsilon is 1000"),
        ({"epsilon": True}, "epsilon is True"),
        ({"device": "nonsense"}, "device 'nonsense' cannot be used"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"sigma": -1}, "sigma is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"no_such_option": 1}, f"method '{method}' has no option 'no_such_option'"),
    ):
        given: dict[str, Any] = {"trained": trained, "graph": graph, "request": possible_request(method, graph)} | bad
        with pytest.raises(InputError, match=f"^{message}") as caught:
            unlearn(method=method, **given)
        assert "\n" not in str(caught.value)


def check_document(outcome: Outcome, *, names: Iterable[str] = ()) -> None:
    """Everything that the outcome tells is JSON, for two audiences, and contains none of these names."""
    assert (outcome.public()["audience"], outcome.private()["audience"]) == ("public", "private")
    assert outcome.answer() == outcome.public() | {"private": outcome.private()}
    text = json.dumps(outcome.answer(), allow_nan=False)
    for name in names:
        assert name not in text, name
