"""The newer attacks: each formula against a small oracle, power where there is a trace, none on retrained models."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import graphforget as gf
from graphforget.audits.newer import (
    controls,
    edge_attacks,
    halves,
    make_shadow,
    node_attacks,
)
from graphforget.audits.output_change import output_change
from graphforget.audits.populations import ByMethod
from graphforget.audits.recall import RecallSettings, joint_probabilities, pseudo_labels, recall_attack
from graphforget.audits.rows import METHOD, NO_OP, RETRAINED, Row, rows_of
from graphforget.audits.trend import Base, View, trend_attacker, trend_bits
from graphforget.errors import InputError
from graphforget.request.sampling import Drawing, draw_request

pytestmark = pytest.mark.usefixtures("one_thread")
CLASSES = 3


@functools.cache
def memorised() -> tuple[gf.Graph, gf.Trained, gf.Request]:
    """A graph of noise, of which a model can learn nothing but its training nodes; and a request for some of them."""
    rng = np.random.default_rng(0)
    graph = gf.Graph.create(
        x=torch.from_numpy(rng.normal(size=(300, 2000))),
        edges=torch.tensor([[0, 1], [1, 2]]),
        y=torch.from_numpy(rng.integers(0, CLASSES, 300)),
        test_mask=torch.arange(300) >= 220,
        num_classes=CLASSES,
    )
    return graph, gf.train(graph, "sgc", mu=1e-6), gf.Request(nodes=list(range(60)))


@functools.cache
def node_rows() -> dict[tuple[str, str], Row]:
    graph, trained, request = memorised()
    outcome = gf.unlearn(trained, graph, request)
    models = controls(trained, graph, request, seeds=2, seed=0) | {METHOD: [outcome.trained]}
    scored = node_attacks(models, graph, request, seed=0)
    return {(row.attack, row.model): row for name, scores in scored.items() for row in rows_of(name, scores, seed=0)}


def test_recall_sees_unchanged_weights_and_no_retrained_ones() -> None:
    rows = node_rows()
    assert rows["recall", NO_OP].auc.value > 0.9
    assert rows["recall", RETRAINED].auc.holds(0.5)
    unchanged, method = rows["recall", NO_OP].gap, rows["recall", METHOD].gap
    assert unchanged is not None
    assert unchanged.low > 0.2
    assert method is not None
    assert method.holds(0) or abs(method.value) < 0.01


def test_changed_answers_are_half_for_unchanged_weights_and_more_for_retrained_ones() -> None:
    """So this attack measures change, and a retrained model is not at 0.5."""
    rows = node_rows()
    assert rows["output change", NO_OP].auc.value == 0.5
    assert rows["output change", RETRAINED].auc.low > 0.75
    gap = rows["output change", METHOD].gap
    assert gap is not None
    assert abs(gap.value) < 0.01


def test_output_change_by_hand() -> None:
    before, after = torch.tensor([[0.0, 0.0], [2.0, 2.0]]), torch.tensor([[math.log(3), 0.0], [5.0, 5.0]])
    np.testing.assert_allclose(output_change(before, after), [math.hypot(0.25, 0.25), 0], atol=1e-7)
    with pytest.raises(InputError, match="same nodes and classes"):
        output_change(before, after[:1])


def test_joint_probabilities_and_pseudo_labels_by_hand() -> None:
    teacher, student = torch.tensor([[0.8, 0.2]]), torch.tensor([[0.5, 0.5]])
    joint = joint_probabilities(teacher, student, smoothing=0.01)
    torch.testing.assert_close(joint, torch.tensor([[(0.99 * 0.8 + 0.005) * 0.5, (0.99 * 0.2 + 0.005) * 0.5]]))
    values = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])
    rows, names = pseudo_labels(values, share=0.6)  # ceil(0.6 * 4 / 2) = 2 of each class
    assert rows.tolist() == [0, 2, 1, 3]
    assert names.tolist() == [0, 0, 1, 1]


def test_a_student_recalls_what_attributes_tell() -> None:
    """Classes that a network reads off the attributes are recalled; the seed decides everything."""
    rng = np.random.default_rng(1)
    labels = torch.from_numpy(rng.integers(0, 2, 400))
    x = torch.from_numpy(rng.normal(size=(400, 20))).float() + 3 * labels[:, None]
    teacher = torch.nn.functional.one_hot(labels, 2).float() * 0.9 + 0.05
    once, again = (recall_attack(x, teacher, seed=3, settings=RecallSettings(learning_rate=1e-3)) for _ in range(2))
    np.testing.assert_array_equal(once.scores, again.scores)
    assert once.recall(torch.arange(400), labels) > 0.9
    with pytest.raises(InputError, match="each row needs one"):
        recall_attack(x[:5], teacher, seed=0)


def test_trend_bits_follow_dense_propagation() -> None:
    rng = np.random.default_rng(2)
    posteriors = torch.from_numpy(rng.dirichlet(np.ones(CLASSES), size=12))
    upper = np.triu(rng.random((12, 12)) < 0.3, 1)
    upper[:, 11] = upper[11] = False  # an isolated node
    adjacency = (upper | upper.T).astype(float)
    degrees = adjacency.sum(axis=0)
    inverse = np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1)), 0)
    operator = inverse[:, None] * adjacency * inverse
    trend = [posteriors.max(dim=1).values.numpy()]
    trend += [operator @ trend[0], operator @ operator @ trend[0]]
    expected = np.stack([trend[0] < trend[1], trend[0] >= trend[1], trend[1] < trend[2], trend[1] >= trend[2]], axis=1)
    edges = torch.from_numpy(np.stack(adjacency.nonzero()))
    np.testing.assert_array_equal(trend_bits(posteriors, edges).numpy(), expected)
    assert trend_bits(posteriors, edges)[11].tolist() == [0, 1, 0, 1]


def planted_view(seed: int, *, trace: bool) -> tuple[View, Tensor, Tensor]:
    """A ring with pairs to detect: with a trace, the ends of linked pairs are less confident than their neighbours."""
    rng = np.random.default_rng(seed)
    n, count = 900, 100
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    graph = gf.Graph.create(
        x=torch.from_numpy(rng.normal(size=(n, 5))), edges=ring, y=torch.from_numpy(rng.integers(0, 2, n))
    )
    places = 3 * rng.permutation(n // 3)[: 4 * count]
    linked, unlinked = (torch.from_numpy(part.reshape(2, -1)) for part in (places[: 2 * count], places[2 * count :]))
    top = rng.uniform(0.7, 0.9, n)
    if trace:
        top[linked.numpy().ravel()] = 0.55
    posteriors = torch.from_numpy(np.stack([top, 1 - top], axis=1))
    return View(posteriors, graph, graph.edge_index), linked, unlinked


@pytest.mark.parametrize("base", ["mia", "steal"])
def test_trend_bits_find_a_planted_trace_and_nothing_where_there_is_none(base: Base) -> None:
    attacker = trend_attacker(*planted_view(0, trace=True), base=base, with_trend=True, seed=0)
    for trace in (True, False):
        view, linked, unlinked = planted_view(1, trace=trace)
        (row,) = rows_of(
            "trend", {RETRAINED: [(attacker.scores(view, linked), attacker.scores(view, unlinked))]}, seed=0
        )
        assert row.auc.value > 0.95 if trace else row.auc.holds(0.5)
        np.testing.assert_array_equal(attacker.scores(view, linked), attacker.scores(view, linked.flip(0)))


def test_confidence_is_read_from_probabilities_alone() -> None:
    """Attributes of any size change no trend bit, as they did in the published code."""
    view, _, _ = planted_view(0, trace=True)
    assert torch.equal(trend_bits(view.posteriors, view.edges), trend_bits(view.posteriors.clone(), view.edges))
    larger = gf.Graph.create(x=1000 * view.attributes.x, edges=view.edges, y=view.attributes.y)
    view_of_larger = View(view.posteriors, larger, view.edges)
    linked = torch.tensor([[0, 3], [6, 9]])
    attacker = trend_attacker(*planted_view(2, trace=True), base="mia", with_trend=True, seed=0)
    np.testing.assert_array_equal(attacker.scores(view, linked), attacker.scores(view_of_larger, linked))


def test_edge_attacks_compare_with_both_controls() -> None:
    graph, other = halves(gf.load("patients"), seed=0)
    assert not set(graph.numbers.tolist()) & set(other.numbers.tolist())
    assert graph.num_nodes + other.num_nodes == 569
    trained = gf.train(graph, "sgc", seed=0)
    request = draw_request(graph, Drawing("edges", share=0.05), seed=0)
    how = ByMethod("newton")
    outcome = how(trained, graph, request, 0)
    models = controls(trained, graph, request, seeds=2, seed=0) | {METHOD: [outcome.trained]}
    scored = edge_attacks(models, graph, request, make_shadow(other, trained, how, seed=1), seed=0)
    assert list(scored) == ["mia", "trend mia", "steal", "trend steal"]
    for name, scores in scored.items():
        gap = next(row.gap for row in rows_of(name, scores, seed=0) if row.model == METHOD)
        assert gap is not None
        assert gap.holds(0) or abs(gap.value) < 0.02
    with pytest.raises(InputError, match="control 'retrained' is missing"):
        edge_attacks({NO_OP: [trained]}, graph, request, make_shadow(other, trained, how, seed=1), seed=0)


def test_a_request_without_items_is_refused() -> None:
    graph, trained, _ = memorised()
    models = {NO_OP: [trained], RETRAINED: [trained]}
    with pytest.raises(InputError, match="removed training nodes"):
        node_attacks(models, graph, gf.Request(nodes=[290]), seed=0)
