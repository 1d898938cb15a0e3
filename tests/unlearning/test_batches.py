"""Several requests in one solve: one release, and a commitment to each of the requests."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import graphforget as gf
from cases import graphs, random_graph, requests
from graphforget.certificates.annex import Annex, digest_of_all
from graphforget.linalg.newton import newton_cg

FIRST, SECOND = gf.Request(nodes=[4, 5]), gf.Request(nodes=[5], attributes={6: [0]})
pytestmark = pytest.mark.usefixtures("one_thread")


@functools.cache
def start(model: str = "sgc") -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    return gf.train(graph, model, sigma=0.03), graph


@functools.cache
def both() -> gf.Outcome:
    return gf.unlearn(*start(), [FIRST, SECOND])


def optimum(trained: gf.Trained, graph: gf.Graph) -> Tensor:
    """Trained from 0 in float64, as far as float64 goes."""
    return newton_cg(trained.objective(graph), torch.zeros_like(trained.theta), gradient_tolerance=1e-12).theta


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_one_solve_ends_as_near_to_the_optimum_as_one_after_the_other(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    listed = [data.draw(requests(graph)) for _ in range(2)]
    trained = gf.train(graph, "sgc", mu=1e-2)
    try:
        together = gf.unlearn(trained, graph, listed)
        first = gf.unlearn(trained, graph, listed[0])
        second = gf.unlearn(first.trained, first.graph, listed[1])
    except gf.InputError:  # no training node is left, or the first has removed what the second names
        assume(False)
    assert together.graph.digest == second.graph.digest
    best = optimum(trained, together.graph)
    for outcome in (together, second):
        assert outcome.level == "certified"
        assert float((outcome.centre - best).norm()) <= outcome.measured["distance"] <= outcome.certificate.tolerance
    assert (len(together.trained.releases), len(second.trained.releases)) == (1, 2)


@pytest.mark.parametrize("method", ["auto", "newton", "retrain"])
def test_a_list_is_one_release_with_one_certificate(method: str) -> None:
    trained, graph = start()
    outcome = gf.unlearn(trained, graph, (FIRST, SECOND), method=method)
    assert outcome.graph.digest == graph.without(gf.Request.merge([FIRST, SECOND], graph)).digest
    assert outcome.trained.releases_left == outcome.certificate.releases_left == 63
    checked = gf.verify(outcome.certificate, outcome.trained, outcome.graph, annexes=[outcome.annex])
    results = {check.name: check.result for check in checked.checks}
    assert results["deleted data"] == "nothing that the 2 requests so far named is in the retained graph"


def test_networks_answer_a_list_by_retraining() -> None:
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    trained = gf.train(graph, "gcn", epochs=3, polish_steps=1)
    together = gf.unlearn(trained, graph, [FIRST, SECOND])
    assert together.level == "exact"
    assert torch.equal(together.trained.theta, gf.train(together.graph, "gcn", epochs=3, polish_steps=1).theta)


def test_who_made_one_of_the_requests_can_be_shown_that_it_is_in_the_certificate() -> None:
    outcome = both()
    commitments = outcome.annex.commitments
    shown = [commitment.digest for commitment in commitments]  # of all requests, without their salts
    assert outcome.certificate.digests["request"] == digest_of_all(shown)
    for commitment, own, other in zip(commitments, (FIRST, SECOND), (SECOND, FIRST), strict=True):
        assert commitment.is_of(own)
        assert not commitment.is_of(other)
    assert digest_of_all(shown[:1]) != digest_of_all(shown) != digest_of_all(shown[::-1])


def test_two_people_who_ask_for_the_same_have_digests_that_do_not_tell() -> None:
    first, second = gf.unlearn(*start(), [FIRST, FIRST]).annex.commitments
    assert first.is_of(FIRST)
    assert second.is_of(FIRST)
    assert (first.salt, first.digest) != (second.salt, second.digest)


def test_a_list_of_one_is_that_request() -> None:
    annex = gf.unlearn(*start(), [FIRST]).annex
    assert annex.batch == ()
    assert annex.commitments[0].is_of(FIRST)
    assert "batch" not in annex.to_dict()


def test_the_annex_of_a_list_survives_its_file() -> None:
    annex = both().annex
    assert Annex.from_dict(annex.to_dict()) == annex
    assert len(annex.batch) == 2


@pytest.mark.parametrize("batch", [5, [5], [{}], [{"salt": "00", "digest": "00"}], [{"salt": "0" * 64}], {}])
def test_a_list_of_commitments_that_cannot_be_is_refused(batch: Any) -> None:
    with pytest.raises(gf.InputError, match="^this is no annex of a certificate: "):
        Annex.from_dict(both().annex.to_dict() | {"batch": batch})


def test_a_plan_of_a_list_is_that_of_its_union() -> None:
    trained, graph = start()
    planned = gf.plan(trained, graph, [FIRST, SECOND])
    whole = gf.plan(trained, graph, gf.Request([4, 5], attributes={6: [0]}))
    timed: dict[str, Any] = {"seconds": None}
    assert planned.to_dict() | timed == whole.to_dict() | timed
    assert (planned.nodes, planned.attribute_nodes) == (2, 1)


@pytest.mark.parametrize("function", [gf.unlearn, gf.plan])
@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ([], "^the list of requests is empty, at least one is needed$"),
        ((), "^the list of requests is empty, at least one is needed$"),
        ([FIRST, {"nodes": [1]}], "^request 2 of 2 is a dict, a graphforget.Request is needed$"),
        ([[FIRST]], "^the request is a list, a graphforget.Request is needed$"),
        ({FIRST}, "^the request is a set, a graphforget.Request is needed$"),
        ("4", "^the request is a str, a graphforget.Request is needed$"),
        ([FIRST, gf.Request(nodes=[99])], "^node 99 is not in the graph$"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(function: Any, given_: Any, message: str) -> None:
    with pytest.raises(gf.InputError, match=message):
        function(*start(), given_)


def test_a_list_beyond_a_method_is_refused() -> None:
    trained, graph = start()
    edge = tuple(graph.edge_index[:, 0].tolist())
    with pytest.raises(gf.InputError, match="^method 'ceu' cannot forget nodes, only edges$"):
        gf.unlearn(trained, graph, [gf.Request(edges=[edge]), FIRST], method="ceu")


def test_a_graph_of_another_type_is_refused() -> None:
    with pytest.raises(gf.InputError, match="^the graph is a str, a graphforget.Graph is needed$"):
        gf.unlearn(start()[0], "graph", [FIRST, SECOND])  # type: ignore[arg-type]


def test_a_commitment_that_is_not_in_the_certificate_is_a_mismatch() -> None:
    """An operator who adds a request to the annex afterwards, digest of the annex included."""
    outcome = both()
    third = gf.unlearn(*start(), [FIRST, SECOND, SECOND]).annex.batch[2]
    annex = dataclasses.replace(outcome.annex, batch=(*outcome.annex.batch, third))
    digests = {**outcome.certificate.digests, "annex": annex.digest}
    forged = dataclasses.replace(outcome.certificate, digests=digests)
    with pytest.raises(gf.Mismatch, match="^the annex is not about the requests that its certificate is about$"):
        gf.verify(forged, outcome.trained, outcome.graph, annexes=[annex])
