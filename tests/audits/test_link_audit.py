"""Audits of links: a release is where retraining is, and weights that were left as they are would be seen."""

from __future__ import annotations

import pytest

import graphforget as gf
from cases import random_graph
from graphforget.audits.link_audit import audit_deleted_links, audit_link_canaries
from graphforget.graph.links import SUPERVISED, edge_sides
from graphforget.models.link import LinkFixed

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def graph() -> gf.Graph:
    return random_graph(3, nodes=120, edges=300, unlabelled=0)


@pytest.mark.slow
def test_canaries_are_forgotten(graph: gf.Graph) -> None:
    trained = gf.train(graph, "sign", task="link", sigma=0.01)
    found = audit_link_canaries(trained, graph, count=40, seed=0)
    assert found.pairs == 40
    assert abs(found.position) < 0.05
    assert found.passed


@pytest.mark.slow
def test_deleted_links_are_forgotten(graph: gf.Graph) -> None:
    trained = gf.train(graph, "sign", task="link", sigma=0.01)
    assert isinstance(trained.module, LinkFixed)
    pairs, sides = edge_sides(graph, trained.module.view.settings)
    request = gf.Request(edges=[(u, v) for u, v in pairs[sides == SUPERVISED][:30].tolist()])
    outcome = gf.unlearn(trained, graph, request, noise_seed=1)
    found = audit_deleted_links(trained, graph, request, outcome, seed=0)
    assert found.pairs == 30
    assert abs(found.position) < 0.05
    assert found.passed


@pytest.mark.slow
def test_unchanged_weights_would_be_seen(graph: gf.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position of weights that were not changed is 1."""
    trained = gf.train(graph, "sign", task="link", sigma=0.01)
    monkeypatch.setattr("graphforget.audits.link_audit.unlearn", _left_as_they_are)
    found = audit_link_canaries(trained, graph, count=40, seed=0)
    assert found.position == pytest.approx(1)


def _left_as_they_are(trained: gf.Trained, graph: gf.Graph, request: gf.Request, *, noise_seed: int) -> object:
    class Outcome:
        pass

    outcome = Outcome()
    outcome.__dict__.update(graph=graph.without(request), trained=trained, released=trained)
    return outcome


def test_nothing_to_audit_is_refused(graph: gf.Graph) -> None:
    trained = gf.train(graph, "sign", task="link")
    request = gf.Request(attributes={3: "all"})
    outcome = gf.unlearn(trained, graph, request)
    with pytest.raises(gf.InputError, match="no edge"):
        audit_deleted_links(trained, graph, request, outcome, seed=0)
    with pytest.raises(gf.InputError, match="link-sign"):
        audit_link_canaries(gf.train(graph, "sgc"), graph, seed=0)
    with pytest.raises(gf.InputError, match="no room"):
        audit_link_canaries(trained, graph, count=10**5, seed=0)
    with pytest.raises(gf.InputError, match="links"):
        gf.audit(trained, graph, request)
