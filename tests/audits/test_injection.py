"""Inject-then-delete: the crafted nodes, and retraining, which is immune."""

from __future__ import annotations

import pytest
import torch

import graphforget as gf
from graphforget.audits.injection import inject, robustness
from graphforget.errors import InputError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def graph() -> gf.Graph:
    return gf.load("patients")


def test_injected_nodes_have_wrong_labels_and_lead_to_hubs(graph: gf.Graph) -> None:
    injection = inject(graph, count=20, seed=0, links=5)
    planted = injection.planted
    new = torch.arange(graph.num_nodes, planted.num_nodes)
    assert len(new) == 20
    assert planted.train_mask[new].all()
    degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes)
    source, target = planted.edge_index
    ends = target[(source >= graph.num_nodes)]
    hubs = degrees[graph.train_rows].sort(descending=True).values[:25]
    assert int(degrees[ends].min()) >= int(hubs.min())
    assert torch.bincount(source[source >= graph.num_nodes] - graph.num_nodes).tolist() == [5] * 20
    rows = [(graph.x == row).all(dim=1).nonzero().flatten() for row in planted.x[new]]
    assert all(graph.y[copied].ne(planted.y[node]).all() for copied, node in zip(rows, new, strict=True))


def test_the_request_gives_the_clean_graph_again(graph: gf.Graph) -> None:
    injection = inject(graph, count=10, seed=1)
    after = injection.planted.without(injection.request)
    assert torch.equal(after.edge_index, graph.edge_index)
    assert torch.equal(after.x, graph.x)
    assert torch.equal(after.y, graph.y)


def test_exact_and_certified_deletion_are_immune(graph: gf.Graph) -> None:
    clean = gf.train(graph, "sgc", seed=0)
    injection = inject(graph, count=25, seed=0, choice="loss", surrogate=clean)
    before = gf.train(injection.planted, "sgc", seed=0)
    assert not torch.allclose(before.logits(graph), clean.logits(graph), atol=0.1)
    for method in ("newton", "retrain"):
        after = gf.unlearn(before, injection.planted, injection.request, method=method).trained
        torch.testing.assert_close(after.logits(graph), clean.logits(graph), atol=0.1, rtol=0)
        assert abs(robustness(clean, before, after, injection).drop) < 0.02


def test_what_cannot_be_injected_is_refused(graph: gf.Graph) -> None:
    with pytest.raises(InputError, match="surrogate"):
        inject(graph, count=5, seed=0, choice="loss")
    with pytest.raises(InputError, match="at least 1"):
        inject(graph, count=0, seed=0)
