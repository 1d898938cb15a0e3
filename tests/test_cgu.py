"""CGU: the published step by a dense oracle, a bound that holds, a budget kept to the letter, claims that verify."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from graphforget.certificates.claim import NOT_COVERED, RETRAINED, STANDING, certified, perturbed, rounded_up
from torch import Tensor

import graphforget as gf
from cases import CLASSES, judged_without_annex, random_graph, with_lowered_leftover
from graphforget.certificates.assumptions import OPTIMUM
from graphforget.certificates.gaussian import delta_of, epsilon_of, mu_gdp
from graphforget.certificates.levels import MEANING
from graphforget.linalg.cg import conjugate_gradient
from graphforget.linalg.newton import newton_cg
from graphforget.linalg.solution import Solution
from graphforget.models.fixed import MeanSGC
from graphforget.trained import Forgotten
from graphforget.unlearning.cgu import step_bounds
from graphforget.unlearning.perturbation import BOUNDED, FIXED, SECRET, found_conditions, leftover
from graphforget.unlearning.perturbation import BOUNDED as KEPT_TO

pytestmark = pytest.mark.usefixtures("one_thread")

cgu = functools.partial(gf.unlearn, method="cgu")
FOR_EVER = 1e9  # an epsilon whose budget nothing spends
DELTA = 1e-5
NEEDED = {BOUNDED, FIXED, SECRET, OPTIMUM}
BOUNDS = (BOUNDED, OPTIMUM)  # those with numbers


# -- the dense oracle ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Dense:
    """A model of fixed propagation on a graph's training nodes: rows `Z`, 0/1 labels, bounds on the rows' lengths."""

    z: np.ndarray
    y: np.ndarray
    q: np.ndarray
    mu: float
    b: np.ndarray

    @classmethod
    def of(cls, trained: gf.Trained, graph: gf.Graph) -> Dense:
        module = trained.module
        x = graph.x.to_dense().double().numpy()
        if module.scale_rows:
            x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
        a = np.eye(graph.num_nodes)
        a[graph.edge_index[1], graph.edge_index[0]] = 1
        degree = a.sum(axis=1)
        p = a / degree[:, None] if isinstance(module, MeanSGC) else a / np.sqrt(np.outer(degree, degree))
        ones = [] if module.bias is None else [np.ones((graph.num_nodes, 1))]
        powers = [np.linalg.matrix_power(p, hop) for hop in module.powers]
        rows = graph.train_rows.numpy()
        lengths = np.linalg.norm(x, axis=1)
        q = np.sqrt(sum((power @ lengths) ** 2 for power in powers) + len(ones))
        return cls(
            z=np.concatenate([*(power @ x for power in powers), *ones], axis=1)[rows],
            y=np.eye(CLASSES)[graph.y.numpy()[rows]],
            q=q[rows],
            mu=trained.recipe.mu,
            b=trained.tilt.numpy().reshape(-1, CLASSES),
        )

    @property
    def m(self) -> int:
        return len(self.z)

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """`grad (m F)`: a column for each class, in the sum scale of the papers, with the noise."""
        return self.z.T @ (sigmoid(self.z @ w) - self.y) + self.mu * self.m * w + self.b

    def hessian(self, w: np.ndarray) -> np.ndarray:
        """Of one class."""
        s = sigmoid(self.z @ w)
        return self.z.T @ ((s * (1 - s))[:, None] * self.z) + self.mu * self.m * np.eye(self.z.shape[1])


def sigmoid(t: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(t / 2))


def columns_of(theta: Tensor) -> np.ndarray:
    return theta.numpy().reshape(-1, CLASSES)


def published_step(trained: gf.Trained, before: gf.Graph, after: gf.Graph) -> np.ndarray:
    """`H_k^-1 (grad L(w_k; Z, S) - grad L(w_k; Z', S'))`, class by class, with `H_k` on the new data."""
    old, new, w = Dense.of(trained, before), Dense.of(trained, after), columns_of(trained.theta)
    delta = old.gradient(w) - new.gradient(w)
    return np.stack([np.linalg.solve(new.hessian(w[:, k]), delta[:, k]) for k in range(CLASSES)], axis=1)


def published_bounds(trained: gf.Trained, after: gf.Graph, step: np.ndarray) -> np.ndarray:
    """`(1/4) max ||z_i|| ||Z'|| ||s_k|| ||Z' s_k||` for each class (`max ||z_i||` is at most 1 as published)."""
    new = Dense.of(trained, after)
    spectral = min(1.01 * np.linalg.norm(new.z, 2), float(np.linalg.norm(new.q)))
    return 0.25 * new.q.max() * spectral * np.linalg.norm(step, axis=0) * np.linalg.norm(new.z @ step, axis=0)


def left_of(trained: gf.Trained, graph: gf.Graph) -> np.ndarray:
    """The true `||grad (m F)||` of every class."""
    return np.linalg.norm(Dense.of(trained, graph).gradient(columns_of(trained.theta)), axis=0)


# -- cases -----------------------------------------------------------------------------------------------------------


def an_edge(graph: gf.Graph, place: int = 3) -> tuple[int, int]:
    source, target = graph.edge_index
    u, v = graph.numbers[graph.edge_index[:, source < target]].T[place].tolist()
    return u, v


def random_request(rng: np.random.Generator, graph: gf.Graph) -> gf.Request:
    """A mixture of up to two of every kind."""

    def some(count: int) -> list[int]:
        return rng.choice(count, size=min(count, int(rng.integers(0, 3))), replace=False).tolist()

    number = graph.numbers.tolist()
    pairs = {tuple(graph.numbers[graph.edge_index[:, i]].tolist()) for i in some(graph.edge_index.shape[1])}
    return gf.Request(
        nodes=[number[row] for row in some(graph.num_nodes - 4)],
        edges=[p for p in pairs if graph.directed or p[::-1] not in pairs or p[0] <= p[1]],
        attributes={number[row]: "all" if rng.random() < 0.5 else [0, 2] for row in some(graph.num_nodes)},
    )


def kinds(graph: gf.Graph) -> dict[str, gf.Request]:
    edge = an_edge(graph)
    return {
        "nodes": gf.Request(nodes=[4, 5]),
        "edges": gf.Request(edges=[edge]),
        "attributes": gf.Request(attributes={6: "all"}),
        "partial attributes": gf.Request(attributes={7: [0, 2], 8: [1]}),
        "mixed": gf.Request(nodes=[20], edges=[edge], attributes={6: "all", 7: [0, 2]}),
    }


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "cgu": ("cgu", {}),
    "cgu, one hop": ("cgu", {"hops": 1}),
    "cgu, rows as they are": ("cgu", {"scale_rows": False}),
    "sgc": ("sgc", {"loss": "one_vs_rest", "objective_noise": 1.0}),
    "sign": ("sign", {"loss": "one_vs_rest", "objective_noise": 1.0, "hops": 2}),
}


def train(graph: gf.Graph, model: str = "cgu", **more: Any) -> gf.Trained:
    name, options = MODELS[model]
    return gf.train(graph, name, **options | {"mu": 0.1, "tolerance": 1e-6} | more)


@functools.cache
def small() -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=40, edges=60)
    return train(graph), graph


def lonely_graph() -> gf.Graph:
    """Nodes 0 and 1 are an island that does not train."""
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    source, target = graph.edge_index
    edges = torch.cat([graph.edge_index[:, (source > 1) & (target > 1)], torch.tensor([[0], [1]])], dim=1)
    training, test = graph.train_mask.clone(), graph.test_mask.clone()
    training[:2], test[:2] = False, True
    return gf.Graph.create(x=graph.x, edges=edges, y=graph.y, train_mask=training, test_mask=test)


# -- the step --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nodes", "edges", "attributes", "partial attributes", "mixed"])
@pytest.mark.parametrize("model", MODELS)
def test_the_step_is_the_published_one(model: str, kind: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = train(graph, model, mu=0.01)
    outcome = cgu(trained, graph, kinds(graph)[kind], epsilon=FOR_EVER)
    wanted = published_step(trained, graph, outcome.graph)
    found = columns_of(outcome.trained.theta - trained.theta)
    assert np.linalg.norm(wanted) > 1e-3
    assert np.linalg.norm(found - wanted) <= 1e-6 * np.linalg.norm(wanted)
    bounds = published_bounds(trained, outcome.graph, wanted)
    assert outcome.details["bound"] == pytest.approx(np.linalg.norm(bounds), rel=1e-4)
    assert outcome.details["bound_by_class"] == pytest.approx(bounds.sum(), rel=1e-4)
    (entry,) = outcome.trained.history
    assert (entry.leftover, entry.leftover_by_class) == (outcome.details["bound"], outcome.details["bound_by_class"])
    assert leftover(outcome.trained) == entry.leftover + graph.train_rows.numel() * trained.gradient_norm


def test_it_ends_closer_to_where_retraining_with_the_same_noise_would() -> None:
    trained, graph = small()
    for request in kinds(graph).values():
        outcome = cgu(trained, graph, request, epsilon=FOR_EVER)
        objective = trained.objective(outcome.graph)
        there = newton_cg(objective, torch.zeros_like(trained.theta), gradient_tolerance=1e-12).theta
        before, after = (float((theta - there).norm()) for theta in (trained.theta, outcome.trained.theta))
        assert after < 0.05 * before


# -- the bound -------------------------------------------------------------------------------------------------------


BLOCKS = 4


def moves_nothing(trained: gf.Trained, before: gf.Graph, after: gf.Graph) -> bool:
    """A self-loop that goes, where every node has one anyway; or losses that are flat in float64."""
    return bool(np.linalg.norm(published_step(trained, before, after)) <= 1e-14 * float(trained.theta.norm()))


@functools.cache
def checked(block: int) -> list[float]:
    """36 cases: random graphs, models, mu, noise and tolerances; sequences of mixtures, held to the dense oracle."""
    ratios = []
    for seed in range(36 * block, 36 * (block + 1)):
        rng = np.random.default_rng(seed)
        shape = {"nodes": int(rng.integers(8, 15)), "edges": int(rng.integers(0, 25))}
        graph = random_graph(seed, directed=bool(rng.random() < 0.5), sparse=bool(rng.random() < 0.5), **shape)
        trained = train(
            graph,
            rng.choice(list(MODELS)),
            mu=rng.choice([1e-4, 1e-2, 1.0]),
            objective_noise=rng.choice([1e-3, 1.0, 100.0]),
            tolerance=rng.choice([1e-6, 1e-1]),
            noise_seed=seed,
        )
        for _ in range(rng.integers(1, 4)):
            try:
                request = random_request(rng, graph)
                if gf.footprint(graph, request, trained.reach).empty:
                    continue
            except gf.InputError:  # nothing in it, or attributes of a node that goes
                continue
            try:
                outcome = cgu(trained, graph, request, epsilon=1e30)
            except gf.Refused as refusal:
                assert "the method changed no weight" in str(refusal)
                assert moves_nothing(trained, graph, graph.without(request))
                continue
            ratios.append(check_the_bound(trained, graph, outcome))
            trained, graph = outcome.trained, outcome.graph
    return ratios


@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_is_left_of_the_gradient_is_never_over_the_bound(block: int) -> None:
    assert len(checked(block)) >= 40


def check_the_bound(before: gf.Trained, graph: gf.Graph, outcome: gf.Outcome) -> float:
    """What the step added to the gradient, over its bound."""
    assert not outcome.details["retrained"]
    trained, m = outcome.trained, outcome.graph.train_rows.numel()
    step = columns_of(trained.theta - before.theta)
    wanted = published_step(before, graph, outcome.graph)
    assert np.linalg.norm(step - wanted) <= 1e-6 * np.linalg.norm(wanted) + 1e-12
    left = left_of(trained, outcome.graph)
    rounding = 1e-10 * (1 + float(trained.tilt.norm()))
    assert m * trained.gradient_norm == pytest.approx(np.linalg.norm(left), rel=1e-6, abs=rounding)
    assert np.linalg.norm(left) <= leftover(trained) + rounding
    *_, entry = trained.history
    by_class = step_bounds(before.objective(outcome.graph), trained.theta - before.theta).numpy()
    unsolved = max(entry.leftover - float(np.linalg.norm(by_class)), 0)
    assert (left <= by_class + left_of(before, graph) + unsolved + rounding).all()
    old, new = Dense.of(before, graph), Dense.of(trained, outcome.graph)
    added = np.linalg.norm(new.gradient(columns_of(trained.theta)) - old.gradient(columns_of(before.theta)), axis=0)
    assert np.linalg.norm(added) <= entry.leftover + rounding
    assert added.sum() <= entry.leftover_by_class + CLASSES * rounding
    exact = published_bounds(before, outcome.graph, step)
    np.testing.assert_allclose(by_class, exact, rtol=0.011, atol=1e-20)
    assert (by_class >= exact / 1.01 * (1 - 1e-9)).all()  # the spectral norm is not under its own
    return float((np.linalg.norm(added) - rounding) / entry.leftover)


def test_the_cases_above_came_near_enough_to_the_bound_to_find_one_that_is_too_small() -> None:
    ratios = [ratio for block in range(BLOCKS) for ratio in checked(block)]
    print("left over bound, quantiles 5, 50, 95, 100 %:", np.quantile(ratios, [0.05, 0.5, 0.95, 1]), len(ratios))
    assert len(ratios) >= 200
    assert 0.03 < max(ratios) <= 1


def test_the_bound_is_loose_by_a_known_factor() -> None:
    """1/4 for 1/(6 sqrt 3) is a factor of 2.6, norms multiplied out the rest: on patients hundreds."""
    graph = gf.load("patients")
    trained = gf.train(graph, "cgu", tolerance=1e-8, noise_seed=0)
    factors = []
    for row in graph.train_rows[:10].tolist():
        outcome = cgu(trained, graph, gf.Request(nodes=[row]), epsilon=FOR_EVER)
        factors.append(leftover(outcome.trained) / (outcome.graph.train_rows.numel() * outcome.trained.gradient_norm))
    print("the bound over what is left, patients:", sorted(factors))
    assert min(factors) >= 2.6
    assert np.median(factors) < 1000


def test_it_adds_up_over_requests() -> None:
    trained, graph = small()
    start, bounds = trained, []
    for node in (4, 9, 14, 19):
        outcome = cgu(trained, graph, gf.Request(nodes=[node]), epsilon=FOR_EVER)
        bounds.append(outcome.details["bound"])
        trained, graph = outcome.trained, outcome.graph
        whole = math.fsum(bounds) + small()[1].train_rows.numel() * start.gradient_norm
        assert leftover(trained) == pytest.approx(whole, rel=1e-12)
        assert outcome.details["spent"] == leftover(trained)
        assert [entry.leftover for entry in trained.history] == bounds
        assert np.linalg.norm(left_of(trained, graph)) <= leftover(trained)


# -- the budget ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["joint", "published"])
@pytest.mark.parametrize(("epsilon", "delta", "noise"), [(1.0, 1e-5, 0.4), (0.3, 1e-4, 0.5), (2.0, 0.1, 0.05)])
def test_the_model_is_trained_anew_exactly_when_the_budget_is_spent(
    budget: str, epsilon: float, delta: float, noise: float
) -> None:
    """Both counts by hand, from the dense oracle's bounds."""
    graph = random_graph(8, nodes=60, edges=90)
    trained = train(graph, objective_noise=noise)
    published = noise * epsilon / math.sqrt(2 * math.log(1.5 / delta)) * CLASSES
    allowed = published if budget == "published" else noise * mu_gdp(epsilon=epsilon, delta=delta)
    spent, retrained, went_on = 0.0, 0, 0
    for row in range(25):
        request = gf.Request(nodes=[int(graph.numbers[graph.train_rows[row % graph.train_rows.numel()]])])
        if not trained.history:
            spent = 0.0 if budget == "published" else graph.train_rows.numel() * trained.gradient_norm
        after = graph.without(request)
        bounds = published_bounds(trained, after, published_step(trained, graph, after))
        spent += float(bounds.sum() if budget == "published" else np.linalg.norm(bounds))
        outcome = cgu(trained, graph, request, epsilon=epsilon, delta=delta, budget=budget)
        assert outcome.details["spent"] == pytest.approx(spent, rel=1e-4)
        assert outcome.details["budget"] == pytest.approx(allowed, rel=1e-12)
        assert outcome.details["retrained"] == (spent > allowed)
        if spent > allowed:
            retrained += 1
            assert outcome.level == "exact"
            assert outcome.certificate.statement == RETRAINED
            assert outcome.certificate.epsilon == 0
            assert outcome.trained.history == ()
            assert not torch.equal(outcome.trained.tilt, trained.tilt)
            assert outcome.trained.recipe.noise_seed is None
            assert outcome.trained.converged
            assert any("the budget is spent" in note for note in outcome.notes)
        else:
            went_on += 1
            assert outcome.level == "conditional"
            assert len(outcome.trained.history) == len(trained.history) + 1
            assert torch.equal(outcome.trained.tilt, trained.tilt)
            if budget == "joint":
                assert outcome.certificate.epsilon <= epsilon
        trained, graph = outcome.trained, outcome.graph
    assert retrained > 0
    assert went_on > 0


def test_noise_after_retraining_is_from_a_seed_only_if_one_is_given() -> None:
    trained, graph = small()
    first, second = (cgu(trained, graph, gf.Request(nodes=[4]), epsilon=1e-6, noise_seed=3) for _ in range(2))
    assert first.details["retrained"]
    assert torch.equal(first.trained.theta, second.trained.theta)
    assert first.trained.recipe.noise_seed == 3
    with_secret = cgu(trained, graph, gf.Request(nodes=[4]), epsilon=1e-6)
    assert with_secret.trained.recipe.noise_seed is None


def test_the_published_count_allows_more_than_the_joint_one() -> None:
    """The classes may spend `C` budgets together; the epsilon that is told is that of all together."""
    graph, noise = random_graph(3, nodes=40, edges=60), 0.02  # little, so that no epsilon near 0 will do
    trained = train(graph, objective_noise=noise)
    free = cgu(trained, graph, gf.Request(nodes=[4]), epsilon=FOR_EVER)
    needed = epsilon_of(ratio=leftover(free.trained) / noise, delta=DELTA)
    assert needed > 1
    for epsilon in (0.99 * needed, 0.95 * needed):
        assert cgu(trained, graph, gf.Request(nodes=[4]), epsilon=epsilon).level == "exact"
        published = cgu(trained, graph, gf.Request(nodes=[4]), epsilon=epsilon, budget="published")
        assert published.level == "conditional"
        assert published.certificate.epsilon == rounded_up(needed) > epsilon
    assert cgu(trained, graph, gf.Request(nodes=[4]), epsilon=1.01 * needed).level == "conditional"


# -- the claim -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-5, 0.01])
@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_the_epsilon_is_that_of_the_shifted_noise(noise: float, delta: float) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = train(graph, objective_noise=noise)
    outcome = cgu(trained, graph, gf.Request(nodes=[4]), epsilon=FOR_EVER, delta=delta)
    claim, bound = outcome.certificate, leftover(outcome.trained)
    assert outcome.level == "conditional"
    assert delta_of(ratio=bound / noise, epsilon=claim.epsilon) <= delta
    if claim.epsilon:
        assert delta_of(ratio=bound / noise, epsilon=0.9 * claim.epsilon) > delta
        assert claim.epsilon == rounded_up(epsilon_of(ratio=bound / noise, delta=delta))
    assert claim.epsilon_under_constants == claim.epsilon
    assert claim.delta == delta
    m = outcome.graph.train_rows.numel()
    assert claim.distance == rounded_up(bound / (0.1 * m))
    assert claim.tolerance == pytest.approx(noise * mu_gdp(epsilon=FOR_EVER, delta=delta) / (0.1 * m), rel=1e-12)
    assert claim.objective["noise"] == noise
    conditions = {finding.name: finding for finding in claim.conditions}
    assert set(conditions) == NEEDED
    assert {name for name, finding in conditions.items() if finding.verdict == "holds"} == NEEDED - {FIXED}
    assert conditions[FIXED].verdict == "not checkable"
    assert conditions[KEPT_TO].measured == rounded_up(m * outcome.trained.gradient_norm)
    assert conditions[KEPT_TO].threshold == rounded_up(bound)
    before = graph.train_rows.numel()
    assert conditions[OPTIMUM].measured == rounded_up(before * trained.gradient_norm)
    assert conditions[OPTIMUM].threshold == rounded_up(before * 1e-6 * 0.1)
    assert (claim.sigma, claim.constants, claim.refuted) == (None, None, ())
    assert torch.equal(outcome.released_theta, outcome.trained.theta)
    assert outcome.notes[0] == (
        "the released weights carry no noise but what was in the objective when they were trained"
    )


def test_noise_from_a_seed_hides_nothing() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = train(graph, noise_seed=1)
    outcome = cgu(trained, graph, gf.Request(nodes=[4]))
    assert outcome.certificate.epsilon is None
    assert outcome.certificate.refuted == (SECRET,)
    assert outcome.certificate.statement.startswith("nothing follows for this model, because this does not hold: ")
    with pytest.raises(gf.Refused, match="a condition of its claim does not hold"):
        cgu(trained, graph, gf.Request(nodes=[4]), level="conditional", otherwise="refuse")
    again = cgu(outcome.trained, outcome.graph, gf.Request(nodes=[9]))
    assert again.certificate.refuted == (SECRET,)
    verified(outcome)
    verified(again)


@pytest.mark.parametrize(("method", "options"), [("ascent", {"learning_rate": 0.5}), ("gif", {}), ("idea", {})])
def test_other_methods_in_between_leave_no_claim(method: str, options: dict[str, Any]) -> None:
    """What they left of the gradient no step of CGU has accounted for, however small it may be."""
    trained, graph = small()
    moved = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method=method, **options)
    outcome = cgu(moved.trained, moved.graph, gf.Request(nodes=[9]), epsilon=FOR_EVER)
    told = f"a request before was answered by {method!r}, which says nothing of what it left"
    assert (outcome.level, outcome.certificate.statement) == ("empirical", told)
    assert outcome.certificate.epsilon is None
    assert outcome.certificate.epsilon_under_constants is None
    verified(outcome)
    asked: dict[str, Any] = {"level": "conditional", "otherwise": "refuse", "epsilon": FOR_EVER}
    with pytest.raises(gf.Refused, match="'cgu' reached level 'empirical', not 'conditional'"):
        cgu(moved.trained, moved.graph, gf.Request(nodes=[9]), **asked)


def test_ceu_in_between_is_accounted_for() -> None:
    trained, graph = small()
    moved = gf.unlearn(trained, graph, gf.Request(edges=[an_edge(graph)]), method="ceu")
    outcome = cgu(moved.trained, moved.graph, gf.Request(nodes=[9]), epsilon=FOR_EVER)
    assert outcome.level == "conditional"
    assert leftover(outcome.trained) == pytest.approx(
        graph.train_rows.numel() * trained.gradient_norm + sum(entry.leftover for entry in outcome.trained.history)
    )
    verified(outcome)


def test_nothing_touched_and_nothing_before_is_exact() -> None:
    graph = lonely_graph()
    trained = train(graph)
    outcome = cgu(trained, graph, gf.Request(edges=[(0, 1)]))
    assert outcome.level == "exact"
    assert torch.equal(outcome.trained.theta, trained.theta)
    verified(outcome)


def touched_before() -> tuple[gf.Outcome, gf.Outcome]:
    """A request, then one that touches no training loss."""
    graph = lonely_graph()
    first = cgu(train(graph), graph, gf.Request(nodes=[5]))
    assert first.level == "conditional"
    return first, cgu(first.trained, first.graph, gf.Request(edges=[(0, 1)]))


def test_nothing_touched_after_other_requests_leaves_their_claim() -> None:
    first, second = touched_before()
    assert second.level == "conditional"
    assert second.certificate.epsilon == pytest.approx(first.certificate.epsilon)
    assert torch.equal(second.trained.theta, first.trained.theta)
    assert second.trained.history == first.trained.history
    assert second.graph.num_edges == first.graph.num_edges - 1


def test_nothing_touched_after_other_requests_says_so_and_verifies() -> None:
    first, second = touched_before()
    assert second.certificate.statement == STANDING + first.certificate.statement
    assert not second.certificate.changed
    vouched = "that the request touches no training loss, now that it is deleted: the signer vouches for it"
    assert vouched in verified(second).unchecked
    assert vouched not in verified(first).unchecked


def test_weights_that_stay_without_that_word_or_with_it_for_others_are_noticed() -> None:
    first, second = touched_before()
    silent = dataclasses.replace(second.certificate, statement=first.certificate.statement)
    with pytest.raises(gf.Mismatch, match="^the weights are those from before, so nothing was unlearned$"):
        gf.verify(silent, second.trained, second.graph)
    boast = dataclasses.replace(first.certificate, statement=STANDING + first.certificate.statement)
    with pytest.raises(gf.Mismatch, match="^the certificate says that the weights stay, which does not go with"):
        gf.verify(boast, first.trained, first.graph)


def test_a_step_that_does_nothing_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    trained, graph = small()

    def nothing(product: Any, b: Tensor, **more: Any) -> Solution:
        return Solution(torch.zeros_like(b), "converged", 0, 0.0)

    monkeypatch.setattr("graphforget.unlearning.cgu.conjugate_gradient", nothing)
    with pytest.raises(gf.Refused, match="the method changed no weight"):
        cgu(trained, graph, gf.Request(nodes=[4]), epsilon=FOR_EVER)
    spent = cgu(trained, graph, gf.Request(nodes=[4]), epsilon=1e-6)  # all that it did not solve is counted
    assert (spent.level, spent.details["retrained"]) == ("exact", True)


def test_what_a_solver_leaves_unsolved_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the step leaves half of the equation, in every class."""

    def half(product: Any, b: Tensor, *, tolerance: float) -> Solution:
        found = conjugate_gradient(product, b, tolerance=tolerance)
        return dataclasses.replace(found, x=found.x / 2, residual=0.5)

    monkeypatch.setattr("graphforget.unlearning.cgu.conjugate_gradient", half)
    trained, graph = small()
    outcome = cgu(trained, graph, gf.Request(nodes=[4]), epsilon=FOR_EVER)
    left, step = left_of(outcome.trained, outcome.graph), columns_of(outcome.trained.theta - trained.theta)
    bounds = published_bounds(trained, outcome.graph, step)
    assert np.linalg.norm(left) > 2 * np.linalg.norm(bounds)  # the bound of the step is not enough
    assert np.linalg.norm(left) <= leftover(outcome.trained)
    assert left.sum() <= outcome.details["bound_by_class"] + left_of(trained, graph).sum()
    assert left.sum() > outcome.details["bound_by_class"] / 3


@pytest.mark.parametrize("model", ["sgc", "linearised-gcn", "gcn"])
def test_it_takes_no_other_model(model: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    options: dict[str, Any] = {"epochs": 2, "polish_steps": 1} if model == "gcn" else {}
    options |= {} if model == "sgc" else {"hidden": 3, "loss": "one_vs_rest", "objective_noise": 1.0}
    with pytest.raises(gf.InputError, match="^method 'cgu' does not work here: it needs fixed propagation, the loss"):
        cgu(gf.train(graph, model, **options), graph, gf.Request(nodes=[4]))
    with pytest.raises(gf.InputError, match="^method 'cgu' does not work here"):
        cgu(gf.train(graph, "cgu", objective_noise=0), graph, gf.Request(nodes=[4]))


@pytest.mark.parametrize("budget", ["twice", None, 1])
def test_a_bad_budget_is_refused_in_one_sentence(budget: Any) -> None:
    trained, graph = small()
    told = f"^the budget is {budget!r}, it must be one of joint, published$"
    with pytest.raises(gf.InputError, match=told):
        cgu(trained, graph, gf.Request(nodes=[4]), budget=budget)


def test_a_plan_foresees_it() -> None:
    trained, graph = small()
    assert gf.plan(trained, graph, gf.Request(nodes=[4]), method="cgu").level == "conditional"
    graph = lonely_graph()
    assert gf.plan(train(graph), graph, gf.Request(edges=[(0, 1)]), method="cgu").level == "exact"


@pytest.mark.parametrize("kind", ["nodes", "edges", "attributes", "partial attributes", "mixed"])
def test_it_leaves_its_input_alone_and_its_answer_is_json(kind: str) -> None:
    trained, graph = small()
    theta, tilt, digest = trained.theta.clone(), trained.tilt.clone(), graph.digest
    state = copy.deepcopy(trained.module.state_dict())
    outcome = cgu(trained, graph, kinds(graph)[kind])
    assert torch.equal(trained.theta, theta)
    assert torch.equal(trained.tilt, tilt)
    assert graph.digest == digest
    assert trained.history == ()
    assert all(torch.equal(value, state[name]) for name, value in trained.module.state_dict().items())
    assert outcome.graph.digest == graph.without(kinds(graph)[kind]).digest
    json.dumps(outcome.summary(), allow_nan=False)
    first, second = (cgu(trained, graph, kinds(graph)[kind]) for _ in range(2))
    assert torch.equal(first.trained.theta, second.trained.theta)


# -- verification ----------------------------------------------------------------------------------------------------


def verified(found: gf.Outcome) -> gf.Verification:
    return gf.verify(
        found.certificate, found.trained, found.graph, released=found.released_theta, annexes=[found.annex]
    )


@functools.cache
def outcome() -> gf.Outcome:
    """The honest one that every cheat starts from: two requests, the second with a history."""
    trained, graph = small()
    first = cgu(trained, graph, gf.Request(nodes=[4], attributes={6: [0]}))
    return cgu(first.trained, first.graph, gf.Request(edges=[an_edge(first.graph)]))


def test_honest_outcomes_verify() -> None:
    trained, graph = small()
    for request in kinds(graph).values():
        found = cgu(trained, graph, request)
        assert found.level == "conditional"
        assert "claim" in [check.name for check in verified(found).checks]
    assert len(outcome().trained.history) == 2
    verified(outcome())
    spent = cgu(trained, graph, gf.Request(nodes=[4]), epsilon=1e-6)
    assert spent.level == "exact"
    verified(spent)


@pytest.mark.parametrize("how", ["the model's own", "asked for"])
def test_an_honest_outcome_with_noise_in_the_weights_too_verifies(how: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    own = how == "the model's own"
    found = cgu(train(graph, sigma=0.1 if own else 0.0), graph, gf.Request(nodes=[4]), sigma=None if own else 0.1)
    assert (found.level, found.certificate.sigma) == ("conditional", 0.1)
    verified(found)


def cheated(*cheat: Any, **more: Any) -> None:
    judged_without_annex(outcome(), *cheat, **more)


def without_condition(name: str) -> Callable[[gf.Certificate], dict[str, Any]]:
    return lambda certificate: {"conditions": tuple(f for f in certificate.conditions if f.name != name)}


def test_a_cheat_that_changes_nothing_passes() -> None:
    cheated()


def not_as_told(name: str, verdict: str) -> str:
    return f"^the condition that {name} is not as the certificate tells it: {verdict}$"


def test_a_lowered_leftover_does_not_give_the_epsilon() -> None:
    """Neither with the certificate's bound, nor with the lowered one written into its condition."""
    with pytest.raises(gf.Mismatch, match=not_as_told(KEPT_TO, "holds")):
        cheated(lambda trained: with_lowered_leftover(trained, 0.5))
    found = outcome()
    trained, m = with_lowered_leftover(found.trained, 0.5), found.graph.train_rows.numel()
    fitting = found_conditions(trained, m=m, measured=m * found.trained.gradient_norm)
    with pytest.raises(gf.Mismatch, match="^the certificate's (statement|epsilon|distance|conditions) is"):
        cheated(lambda _: trained, lambda _: {"conditions": fitting})


def test_a_leftover_lowered_under_the_gradient_is_noticed_even_if_the_claim_fits() -> None:
    """With a claim that fits it: the gradient is measured, and is over it."""
    found = outcome()
    trained = with_lowered_leftover(found.trained, 1e-6)
    m = found.graph.train_rows.numel()
    told = found_conditions(trained, m=m, measured=m * found.trained.gradient_norm)
    assert {f.name: f.verdict for f in told}[KEPT_TO] == "fails"
    forged = perturbed(
        leftover=leftover(trained),
        noise=1.0,
        scale=0.1 * m,
        epsilon=1.0,
        delta=DELTA,
        conditions=tuple(dataclasses.replace(f, verdict="holds") if f.name == KEPT_TO else f for f in told),
    )
    written = {field.name: getattr(forged, field.name) for field in dataclasses.fields(forged)}
    with pytest.raises(gf.Mismatch, match=not_as_told(KEPT_TO, "fails")):
        gf.verify(dataclasses.replace(found.certificate, **written), trained, found.graph)


@pytest.mark.parametrize("by", [1e-2, 1.0])
def test_changed_weights_are_noticed(by: float) -> None:
    def moved(trained: gf.Trained) -> gf.Trained:
        theta = trained.theta.clone()
        theta[0] += by
        return trained.with_weights(theta)

    with pytest.raises(gf.Mismatch, match=not_as_told(KEPT_TO, "fails")):
        cheated(moved)


def test_the_weights_from_before_are_noticed() -> None:
    with pytest.raises(gf.Mismatch, match=not_as_told(KEPT_TO, "fails")):
        cheated(lambda trained: trained.with_weights(small()[0].theta))


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_condition_that_was_left_out_is_noticed(name: str) -> None:
    with pytest.raises(gf.Mismatch, match=f"^a conditional claim without this condition is none: {name}"):
        cheated(rewrite=without_condition(name))


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda certificate: {"epsilon": certificate.epsilon / 2},
        lambda certificate: {"epsilon": None},
        lambda certificate: {"delta": certificate.delta / 10},
        lambda certificate: {"distance": certificate.distance / 2},
        lambda certificate: {"epsilon_under_constants": certificate.epsilon / 2},
        lambda certificate: {"statement": certificate.statement.replace("if every condition listed holds, ", "")},
        lambda certificate: {"refuted": (SECRET,)},
        lambda certificate: {"level": "certified"},
        lambda certificate: {"level": "exact"},
    ],
    ids=["epsilon", "no epsilon", "delta", "distance", "under constants", "statement", "refuted", "certified", "exact"],
)
def test_an_edited_claim_is_noticed(rewrite: Callable[[gf.Certificate], dict[str, Any]]) -> None:
    with pytest.raises(gf.Mismatch):
        cheated(rewrite=rewrite)


def test_a_seed_that_is_said_to_be_none_is_noticed() -> None:
    with pytest.raises(gf.Mismatch, match=not_as_told(SECRET, "fails")):
        cheated(lambda trained: dataclasses.replace(trained, recipe=dataclasses.replace(trained.recipe, noise_seed=1)))


def test_noise_that_was_not_there_is_noticed() -> None:
    def without(trained: gf.Trained) -> gf.Trained:
        recipe = dataclasses.replace(trained.recipe, objective_noise=0.0)
        return dataclasses.replace(trained, recipe=recipe, tilt=None)

    def more(trained: gf.Trained) -> gf.Trained:
        return dataclasses.replace(trained, recipe=dataclasses.replace(trained.recipe, objective_noise=10.0))

    for change in (without, more, lambda trained: dataclasses.replace(trained, history=())):
        with pytest.raises(gf.Mismatch):
            cheated(change)


def test_noise_in_the_objective_that_was_swapped_is_noticed() -> None:
    with pytest.raises(gf.Mismatch, match=not_as_told(KEPT_TO, "fails")):
        cheated(lambda trained: dataclasses.replace(trained, tilt=torch.zeros_like(trained.theta)))


@pytest.mark.parametrize("name", sorted(BOUNDS))
@pytest.mark.parametrize("number", ["measured", "threshold"])
def test_an_edited_number_of_a_condition_is_noticed(name: str, number: str) -> None:
    def edited(certificate: gf.Certificate) -> dict[str, Any]:
        told = {f.name: f for f in certificate.conditions}
        told[name] = dataclasses.replace(told[name], **{number: 1.5 * getattr(told[name], number) + 1e-6})
        return {"conditions": tuple(told.values())}

    with pytest.raises(gf.Mismatch, match=not_as_told(name, "holds")):
        cheated(rewrite=edited)


def test_an_edited_verdict_of_what_cannot_be_checked_is_noticed() -> None:
    def edited(certificate: gf.Certificate) -> dict[str, Any]:
        return {
            "conditions": tuple(
                dataclasses.replace(f, verdict="holds") if f.name == FIXED else f for f in certificate.conditions
            )
        }

    with pytest.raises(gf.Mismatch, match=not_as_told(FIXED, "not checkable")):
        cheated(rewrite=edited)


def test_constants_have_no_place_in_a_claim_of_cgus() -> None:
    with pytest.raises(gf.Mismatch, match="^a claim by noise in the objective without that noise, delta, constants or"):
        cheated(rewrite=lambda _: {"constants": gf.Constants()})


def test_a_claim_of_cgus_for_a_model_that_it_does_not_take_is_none() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", objective_noise=1.0, mu=0.1, tolerance=1e-6)
    found = gf.unlearn(trained, graph, gf.Request(edges=[an_edge(graph)]), method="ceu")
    verified(found)
    with pytest.raises(gf.Mismatch, match="^the claim is CGU's, and the model is not one that CGU takes$"):
        gf.verify(dataclasses.replace(found.certificate, method="cgu", constants=None), found.trained, found.graph)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda tilt: 10 * tilt, "the noise in the objective has standard deviation"),
        (lambda tilt: torch.zeros_like(tilt), "the noise in the objective has standard deviation 0, not 1$"),
        (lambda tilt: tilt.norm() / tilt.numel() ** 0.5 * torch.ones_like(tilt), "the noise in the objective is not"),
    ],
    ids=["larger", "none", "all the same"],
)
def test_noise_in_the_objective_is_tested(change: Callable[[Tensor], Tensor], told: str) -> None:
    """Under 'model and objective'; a claim of an exact outcome does not look at the gradient that would show it."""
    graph = random_graph(3, nodes=40, edges=60)
    found = gf.unlearn(train(graph, noise_seed=1), graph, gf.Request(nodes=[4]), method="retrain", noise_seed=2)
    checks = {check.name: check.found for check in verified(found).checks}
    assert checks["model and objective"] == "cgu, mu = 0.1, noise in the objective as if from N(0, 1^2)"
    swapped = dataclasses.replace(found.trained, tilt=change(found.trained.tilt))
    with pytest.raises(gf.Mismatch, match=f"^{told}"):
        gf.verify(found.certificate, swapped, found.graph)


DRAWN_BEFORE = "that the noise in the objective was drawn before training: the signer vouches for it"


def made_to_fit() -> tuple[gf.Certificate, gf.Trained, gf.Graph, gf.Outcome]:
    """The old weights, barely moved, with `tilt' = b - m grad`, which makes the gradient 0."""
    trained, graph = small()
    honest = cgu(trained, graph, gf.Request(nodes=[4]), epsilon=FOR_EVER)
    after, m = honest.graph, honest.graph.train_rows.numel()
    moved = trained.with_weights(trained.theta + 1e-6)
    tilt = trained.tilt - m * moved.objective(after).gradient(moved.theta)
    entry = Forgotten("cgu", graph.train_rows.numel(), 1, 0, 1e-6, trained.gradient_norm)
    fitted = dataclasses.replace(moved, tilt=tilt, history=(entry,))
    fitted = fitted.measured_on(fitted.objective(after))
    assert m * fitted.gradient_norm < 1e-12
    claim = perturbed(
        leftover=leftover(fitted),
        noise=1.0,
        scale=0.1 * m,
        epsilon=1.0,
        delta=DELTA,
        conditions=found_conditions(fitted, m=m, measured=m * fitted.gradient_norm),
    )
    digests = {
        **honest.certificate.digests,
        "state": honest.annex.state(fitted.facts()),
        "weights_after": honest.annex.weights(fitted.theta),
    }
    written = {field.name: getattr(claim, field.name) for field in dataclasses.fields(claim)}
    return dataclasses.replace(honest.certificate, **written, digests=digests), fitted, after, honest


def test_noise_that_was_made_to_fit_passes_and_verify_says_that_it_cannot_tell() -> None:
    """No measurement tells such noise from some that was drawn before training, so that it stands as unchecked."""
    certificate, fitted, after, honest = made_to_fit()
    assert certificate.epsilon is not None
    found = gf.verify(certificate, fitted, after, annexes=[honest.annex])
    assert DRAWN_BEFORE in found.unchecked
    assert DRAWN_BEFORE in verified(honest).unchecked
    spent = cgu(*small(), gf.Request(nodes=[4]), epsilon=1e-6)
    assert spent.level == "exact"
    assert DRAWN_BEFORE in verified(spent).unchecked
    assert "distance to the optimum" in verified(spent).unchecked


def test_noise_that_was_made_to_fit_is_never_certified() -> None:
    certificate, fitted, after, _ = made_to_fit()
    claim = certified(distance=1e-9, epsilon=1.0, delta=DELTA, sigma=0.1)
    written = {field.name: getattr(claim, field.name) for field in dataclasses.fields(claim)}
    boast = dataclasses.replace(certificate, **written, definition=MEANING["certified"], method="newton")
    with pytest.raises(gf.Mismatch, match="^the level is too high: noise in the objective can be made to fit any"):
        gf.verify(boast, fitted, after)
    assert not fitted.certifiable
    trained, graph = train(small()[1], sigma=0.1), small()[1]
    with pytest.raises(gf.InputError, match="^method 'newton' does not work here: the model was trained with noise in"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="newton")


def test_a_refuted_condition_of_an_earlier_request_stays() -> None:
    def refuted(trained: gf.Trained) -> gf.Trained:
        first, *others = trained.history
        return dataclasses.replace(trained, history=(dataclasses.replace(first, refuted=(KEPT_TO,)), *others))

    with pytest.raises(gf.Mismatch, match="the certificate's"):
        cheated(refuted)


def test_with_the_annex_every_number_of_the_history_counts() -> None:
    found = outcome()
    for trained in (
        with_lowered_leftover(found.trained, 1 + 1e-12),
        dataclasses.replace(found.trained, recipe=dataclasses.replace(found.trained.recipe, seed=9)),
        dataclasses.replace(found.trained, tilt=found.trained.tilt * (1 + 1e-12)),
    ):
        with pytest.raises(gf.Mismatch, match="recipe, reach or history"):
            gf.verify(found.certificate, trained, found.graph, annexes=[found.annex])


# -- an epsilon that was asked for -----------------------------------------------------------------------------------


def test_an_epsilon_over_the_asked_one_is_retrained_or_refused() -> None:
    """The published count lets it pass; `level` does not."""
    trained, graph = small()
    request = gf.Request(nodes=[4])
    needed = epsilon_of(ratio=leftover(cgu(trained, graph, request, epsilon=FOR_EVER).trained), delta=DELTA)
    asked: dict[str, Any] = {"budget": "published", "epsilon": 0.99 * needed}
    assert cgu(trained, graph, request, **asked).level == "conditional"
    short = f"'cgu' reached epsilon {rounded_up(needed):.3g}, not {0.99 * needed:g}"
    again = cgu(trained, graph, request, level="conditional", **asked)
    assert (again.method, again.level) == ("retrain", "exact")
    assert again.notes[-1] == f"the model was retrained, because {short}"
    with pytest.raises(gf.Refused) as caught:
        cgu(trained, graph, request, level="conditional", otherwise="refuse", **asked)
    assert short in str(caught.value)


def test_an_epsilon_that_promises_next_to_nothing_is_noted() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    for noise in (1e-3, 100.0):
        found = cgu(train(graph, objective_noise=noise), graph, gf.Request(nodes=[4]), epsilon=FOR_EVER)
        epsilon = found.certificate.epsilon
        assert (epsilon > 10) == (noise < 1)
        assert (f"epsilon = {epsilon:.3g} promises next to nothing" in found.notes) == (noise < 1)


def test_requests_that_were_chosen_by_looking_are_not_covered() -> None:
    (told,) = [line for line in NOT_COVERED if "chosen by looking at earlier releases" in line]
    assert told in outcome().certificate.not_covered
