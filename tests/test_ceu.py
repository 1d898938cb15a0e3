"""CEU: IDEA's step for edges, both of its bounds by hand, and a claim that says when they do not hold."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from graphforget.certificates.claim import perturbed, rounded_up

import graphforget as gf
from cases import OwnGCN, idea, judged_without_annex, random_graph, with_lowered_leftover
from graphforget.certificates.assumptions import CONVEX, OPTIMUM, REACH
from graphforget.certificates.gaussian import epsilon_of
from graphforget.unlearning.ceu import ASSUMED
from graphforget.unlearning.perturbation import BOUNDED, FIXED, SECRET, found_conditions, leftover
from graphforget.unlearning.perturbation import BOUNDED as KEPT_TO

pytestmark = pytest.mark.usefixtures("one_thread")

ceu = functools.partial(gf.unlearn, method="ceu")
DELTA = 1e-5
NEEDED = {BOUNDED, FIXED, SECRET, OPTIMUM}
MODELS: dict[str, dict[str, Any]] = {
    "sgc": {"mu": 0.01},
    "cgu": {"mu": 0.01},
    "linearised-gcn": {"hidden": 4, "mu": 0.01},
    "gcn": {"hidden": 5, "epochs": 30, "polish_steps": 20},
}


def edges_of(graph: gf.Graph, count: int, *, seed: int = 0) -> list[tuple[int, int]]:
    source, target = graph.edge_index
    keep = source != target if graph.directed else source < target
    pairs = graph.numbers[graph.edge_index[:, keep]].T.tolist()
    chosen = np.random.default_rng(seed).choice(len(pairs), size=count, replace=False)
    return [(int(u), int(v)) for u, v in (pairs[i] for i in chosen)]


@functools.cache
def trained_on(model: str, noise: float = 1.0, *, directed: bool = False) -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=40, edges=60, directed=directed)
    return gf.train(graph, model, objective_noise=noise, **MODELS[model]), graph


def verified(found: gf.Outcome) -> gf.Verification:
    return gf.verify(
        found.certificate, found.trained, found.graph, released=found.released_theta, annexes=[found.annex]
    )


def not_as_told(name: str, verdict: str) -> str:
    return f"^the condition that {name} is not as the certificate tells it: {verdict}$"


# -- the step --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_step_is_that_of_idea(model: str, noise: float) -> None:
    trained, graph = trained_on(model, noise)
    request = gf.Request(edges=edges_of(graph, 3))
    found, wanted = ceu(trained, graph, request), idea(trained, graph, request, sigma=0.1)
    assert torch.equal(found.trained.theta, wanted.trained.theta)
    assert not torch.equal(found.trained.theta, trained.theta)


def test_the_step_is_the_dense_formula() -> None:
    """`-(1/m) H^-1 (grad L_add - grad L_sub)` with `H` on the graph before, noise in the objective or not."""
    for noise in (0.0, 1.0):
        trained, graph = trained_on("sgc", noise)
        found = ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)), tolerance=1e-10)
        before, after = trained.objective(graph), trained.objective(found.graph)
        eye = torch.eye(trained.theta.numel(), dtype=torch.float64)
        hessian = torch.stack([before.hessian(trained.theta)(v) for v in eye])
        change = after.data.gradient(trained.theta) - before.data.gradient(trained.theta)
        step = -torch.linalg.solve(hessian, change) / before.m * found.details["step"]["length"]
        torch.testing.assert_close(found.trained.theta - trained.theta, step, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    "request_",
    [
        gf.Request(nodes=[4]),
        gf.Request(attributes={6: "all"}),
        gf.Request(attributes={6: [0]}),
        gf.Request(nodes=[4], edges=[(6, 13)]),
    ],
    ids=["nodes", "attributes", "partial attributes", "mixed"],
)
def test_it_forgets_edges_and_nothing_else(request_: gf.Request) -> None:
    trained, graph = trained_on("sgc")
    with pytest.raises(gf.InputError, match=r"^method 'ceu' cannot forget (nodes|(partial )?attributes), only edges$"):
        ceu(trained, graph, request_)


# -- the bounds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_both_bounds_are_the_published_ones(count: int, directed: bool) -> None:
    """Every edge has two ends that lose a neighbour, whether it is stored in one direction or in both."""
    trained, graph = trained_on("sgc", directed=directed)
    constants = gf.Constants(strong_convexity=0.2, hessian_lipschitz=0.3, gradient_bound=1.5, gradient_lipschitz=0.7)
    m = graph.train_rows.numel()
    request = gf.Request(edges=edges_of(graph, count))
    for bound in ("data-dependent", "worst"):
        found = ceu(trained, graph, request, bound=bound, constants=constants)
        length = float((found.trained.theta - trained.theta).norm())
        by_hand = {
            "data-dependent": 0.3 * length**2,
            "worst": 0.3 * 0.7**2 * 1.5**2 * (2 * count) ** 2 / (0.2**4 * m),
        }
        assert found.details["bounds"] == pytest.approx(by_hand, rel=1e-12)
        (entry,) = found.trained.history
        assert entry.leftover == pytest.approx(m * by_hand[bound], rel=1e-12)
        assert leftover(found.trained) == pytest.approx(m * (by_hand[bound] + trained.gradient_norm), rel=1e-12)
        claim = found.certificate
        assert claim.epsilon_under_constants == rounded_up(epsilon_of(ratio=leftover(found.trained), delta=DELTA))
        assert claim.distance == rounded_up(leftover(found.trained) / (0.01 * m))  # mu is proven, whatever is declared
        assert claim.constants == constants
        assert found.details["gradient_left"] == found.trained.gradient_norm


def test_the_constants_are_those_of_the_paper_and_may_come_by_name() -> None:
    trained, graph = trained_on("sgc")
    request = gf.Request(edges=edges_of(graph, 1))
    assert ceu(trained, graph, request).certificate.constants == gf.Constants()
    named = ceu(trained, graph, request, constants={"hessian_lipschitz": 0.5})
    assert named.certificate.constants == gf.Constants(hessian_lipschitz=0.5)
    assert named.trained.history[0].leftover == pytest.approx(
        2 * ceu(trained, graph, request).trained.history[0].leftover
    )


def test_sequences_add_up() -> None:
    trained, graph = trained_on("sgc")
    m, bounds = graph.train_rows.numel(), []
    start = trained
    for seed in range(4):
        found = ceu(trained, graph, gf.Request(edges=edges_of(graph, 1, seed=seed)))
        trained, graph = found.trained, found.graph
        bounds.append(found.details["bounds"]["data-dependent"])
        assert len(trained.history) == seed + 1
        assert leftover(trained) == pytest.approx(m * (start.gradient_norm + sum(bounds)), rel=1e-12)
        assert found.certificate.epsilon_under_constants == rounded_up(epsilon_of(ratio=leftover(trained), delta=DELTA))
        verified(found)


# -- the claim -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_without_noise_in_the_objective_nothing_is_claimed(model: str) -> None:
    trained, graph = trained_on(model, 0.0)
    found = ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)))
    assert found.level == "empirical"
    assert found.certificate.epsilon is None
    assert "without noise in the objective" in found.certificate.statement
    assert gf.plan(trained, graph, gf.Request(edges=edges_of(graph, 2)), method="ceu").level == "empirical"
    verified(found)


@pytest.mark.parametrize("model", ["sgc", "cgu", "linearised-gcn"])
def test_with_noise_it_is_conditional_and_lists_every_condition(model: str) -> None:
    trained, graph = trained_on(model)
    request = gf.Request(edges=edges_of(graph, 2))
    found = ceu(trained, graph, request, constants=gf.Constants(strong_convexity=0.01))
    claim = found.certificate
    assert found.level == "conditional"
    assert claim.epsilon == rounded_up(epsilon_of(ratio=leftover(found.trained), delta=DELTA))
    assert claim.statement.startswith("if every condition listed holds, ")
    conditions = {finding.name: finding for finding in claim.conditions}
    assert set(conditions) == NEEDED | {name for name, _ in ASSUMED}
    unchecked = {name for name, finding in conditions.items() if finding.verdict == "not checkable"}
    assert unchecked == {FIXED, *(name for name, _ in ASSUMED if name != CONVEX)}
    assert (conditions[CONVEX].threshold, conditions[CONVEX].verdict) == (0.01, "holds")
    m = found.graph.train_rows.numel()
    measured = m * float(trained.objective(found.graph).gradient(found.trained.theta).norm())
    assert conditions[KEPT_TO].measured == pytest.approx(rounded_up(measured))
    assert measured <= leftover(found.trained) <= conditions[KEPT_TO].threshold == rounded_up(leftover(found.trained))
    assert claim.distance == rounded_up(leftover(found.trained) / (0.01 * m))
    assert gf.plan(trained, graph, request, method="ceu").level == "conditional"
    verified(found)


@pytest.mark.parametrize("model", MODELS)
def test_a_curvature_under_the_constant_refutes_it(model: str) -> None:
    """The smallest eigenvalue on the graph before, by Lanczos: never over the dense one by more than it tells."""
    trained, graph = trained_on(model)
    found = ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)))
    claim = found.certificate
    convex = {finding.name: finding for finding in claim.conditions}[CONVEX]
    eye = torch.eye(trained.theta.numel(), dtype=torch.float64)
    product = trained.objective(graph).hessian(trained.theta)
    smallest = float(torch.linalg.eigvalsh(torch.stack([product(v) for v in eye])).min())
    assert smallest < 0.05
    assert convex.measured is not None
    assert smallest - 1e-8 <= convex.measured < 0.05
    assert (convex.verdict, convex.threshold) == ("fails", gf.Constants().strong_convexity)
    assert CONVEX in claim.refuted
    assert CONVEX in found.trained.history[-1].refuted
    assert claim.epsilon is None
    assert claim.statement.startswith("nothing follows for this model, because this does not hold: ")
    assert CONVEX in claim.statement
    verified(found)
    with pytest.raises(gf.Refused, match="a condition of its claim does not hold"):
        ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)), level="conditional", otherwise="refuse", epsilon=1e9)


def test_the_distance_is_by_the_declared_constant_where_nothing_is_proven() -> None:
    trained, graph = trained_on("gcn")
    found = ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)), constants={"strong_convexity": 0.3})
    m = graph.train_rows.numel()
    assert found.certificate.distance == rounded_up(leftover(found.trained) / (0.3 * m))


def test_other_methods_in_between_leave_no_claim() -> None:
    trained, graph = trained_on("sgc")
    moved = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="gif")
    request = gf.Request(edges=edges_of(moved.graph, 2))
    found = ceu(moved.trained, moved.graph, request, constants=gf.Constants(strong_convexity=0.01))
    assert (found.level, found.certificate.epsilon) == ("empirical", None)
    assert found.certificate.statement.startswith("a request before was answered by 'gif', ")
    verified(found)


def test_an_epsilon_over_the_asked_one_is_retrained_or_refused() -> None:
    trained, graph = trained_on("sgc")
    given: dict[str, Any] = {"constants": gf.Constants(strong_convexity=0.01), "level": "conditional"}
    request = gf.Request(edges=edges_of(graph, 2))
    free = ceu(trained, graph, request, epsilon=1e9, **given)
    assert (free.method, free.level) == ("ceu", "conditional")
    again = ceu(trained, graph, request, epsilon=0.9 * free.certificate.epsilon, **given)
    assert (again.method, again.level) == ("retrain", "exact")
    assert f"because 'ceu' reached epsilon {free.certificate.epsilon:.3g}, not" in again.notes[-1]
    with pytest.raises(gf.Refused, match="'ceu' reached epsilon"):
        ceu(trained, graph, request, epsilon=0.9 * free.certificate.epsilon, otherwise="refuse", **given)


def test_a_network_that_was_not_trained_to_a_minimum_gets_no_epsilon() -> None:
    trained, graph = trained_on("gcn")
    found = ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)))
    assert found.level == "conditional"
    assert "training ended at a minimum" in found.certificate.refuted
    assert found.certificate.epsilon is None
    verified(found)


def test_the_reach_of_a_module_of_ones_own_is_a_condition() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    torch.manual_seed(0)
    trained = gf.train(graph, OwnGCN(), objective_noise=1.0, epochs=30, polish_steps=10)
    found = ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)))
    assert REACH in [finding.name for finding in found.certificate.conditions]


def test_noise_from_a_seed_hides_nothing() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", objective_noise=1.0, noise_seed=2, mu=0.05)
    found = ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)))
    assert found.certificate.refuted == (SECRET,)
    assert found.certificate.epsilon is None
    verified(found)


def attempt(seed: int, scale: float, *, scale_rows: bool, mu: float = 0.1) -> gf.Outcome:
    """A few edges of a graph whose attributes are `scale` times as large; noise by a seed, so that it is repeatable."""
    graph = random_graph(seed, nodes=40, edges=60)
    graph = dataclasses.replace(graph, x=(scale * graph.x.to_dense()).to_sparse_csr())
    trained = gf.train(graph, "sgc", mu=mu, objective_noise=1.0, tolerance=1e-8, noise_seed=seed, scale_rows=scale_rows)
    return ceu(trained, graph, gf.Request(edges=edges_of(graph, 1 + seed % 3, seed=seed)))


def fails(found: gf.Outcome) -> bool:
    """By measurement: `||grad (m F)||` on the retained graph against the bound."""
    m = found.graph.train_rows.numel()
    gradient = found.trained.objective(found.graph).gradient(found.trained.theta)
    return m * float(gradient.norm()) > leftover(found.trained)


def test_where_its_bound_is_violated_the_claim_says_that_nothing_follows() -> None:
    """The bound leaves the change of the Hessian out, which attributes of any length make large, and small steps."""
    counts = {}
    for name, scale, scale_rows, mu in (
        *(("unit", 1.0, True, 0.1), ("raw", 1.0, False, 0.1), ("large", 5.0, False, 0.1)),
        ("unit, mu = 1", 1.0, True, 1.0),
    ):
        found = [attempt(seed, scale, scale_rows=scale_rows, mu=mu) for seed in range(12)]
        counts[name] = sum(map(fails, found))
        for outcome in found:
            assert (KEPT_TO in outcome.certificate.refuted) == fails(outcome)
            assert (KEPT_TO in outcome.trained.history[0].refuted) == fails(outcome)
            verified(outcome)
    print("CEU's data-dependent bound is violated, of 12:", counts)
    assert counts["large"] >= 3
    assert counts["unit"] < min(counts["large"], counts["unit, mu = 1"])


@functools.cache
def violated() -> tuple[gf.Outcome, gf.Outcome]:
    """With noise nobody knows: the first such case, and a request after it."""
    for seed in range(25):
        if fails(attempt(seed, 5.0, scale_rows=False)):
            graph = random_graph(seed, nodes=40, edges=60)
            graph = dataclasses.replace(graph, x=(5.0 * graph.x.to_dense()).to_sparse_csr())
            request = gf.Request(edges=edges_of(graph, 1 + seed % 3, seed=seed))
            for _ in range(20):
                given: dict[str, Any] = {"mu": 0.1, "objective_noise": 1.0, "tolerance": 1e-8}
                trained = gf.train(graph, "sgc", scale_rows=False, **given)
                found = ceu(trained, graph, request)
                if fails(found):
                    return found, ceu(found.trained, found.graph, gf.Request(edges=edges_of(found.graph, 1)))
    raise AssertionError("no case was found")


def test_what_was_refuted_once_stays_so() -> None:
    first, second = violated()
    for found in (first, second):
        assert found.level == "conditional"
        assert KEPT_TO in found.certificate.refuted
        assert found.certificate.epsilon is None
        assert found.certificate.epsilon_under_constants is not None
        assert found.certificate.statement.startswith("nothing follows for this model, because this does not hold: ")
        verified(found)
    told = {f.name: f for f in first.certificate.conditions}
    told[KEPT_TO] = dataclasses.replace(told[KEPT_TO], verdict="holds")
    rosy = dataclasses.replace(first.certificate, conditions=tuple(told.values()))
    with pytest.raises(gf.Mismatch, match=not_as_told(KEPT_TO, "fails")):
        gf.verify(rosy, first.trained, first.graph)


# -- verification ----------------------------------------------------------------------------------------------------


@functools.cache
def outcome() -> gf.Outcome:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", objective_noise=1.0, mu=0.1, tolerance=1e-6)
    return ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)))


def checked(*cheat: Any, **more: Any) -> None:
    judged_without_annex(outcome(), *cheat, **more)


def test_an_honest_outcome_verifies() -> None:
    checked()
    verified(outcome())
    trained, graph = trained_on("sgc", directed=True)
    verified(ceu(trained, graph, gf.Request(edges=edges_of(graph, 2)), bound="worst"))


def test_a_lowered_bound_is_noticed_with_and_without_a_claim_that_fits_it() -> None:
    found = outcome()
    with pytest.raises(gf.Mismatch, match=not_as_told(KEPT_TO, "holds")):
        checked(lambda trained: with_lowered_leftover(trained, 0.5))
    m = found.graph.train_rows.numel()
    measured = m * found.trained.gradient_norm
    assumed = found.certificate.conditions[len(NEEDED) :]
    half = with_lowered_leftover(found.trained, 0.5)
    fitting = (*found_conditions(half, m=m, measured=measured), *assumed)
    with pytest.raises(gf.Mismatch, match="^the certificate's (statement|epsilon|distance|conditions) is"):
        checked(lambda _: half, lambda _: {"conditions": fitting})
    trained = with_lowered_leftover(found.trained, 1e-6)
    constants = gf.Constants()
    told = found_conditions(trained, m=m, measured=measured)
    claim = perturbed(
        leftover=leftover(trained),
        noise=1.0,
        scale=0.1 * m,
        epsilon=1.0,
        delta=DELTA,
        conditions=(*(dataclasses.replace(f, verdict="holds") if f.name == KEPT_TO else f for f in told), *assumed),
        constants=constants,
    )
    written = {field.name: getattr(claim, field.name) for field in dataclasses.fields(claim)}
    with pytest.raises(gf.Mismatch, match=not_as_told(KEPT_TO, "fails")):
        gf.verify(dataclasses.replace(found.certificate, **written), trained, found.graph)


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_condition_that_was_left_out_is_noticed(name: str) -> None:
    with pytest.raises(gf.Mismatch, match=f"^a conditional claim without this condition is none: {name}"):
        checked(rewrite=lambda certificate: {"conditions": tuple(f for f in certificate.conditions if f.name != name)})


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda certificate: {"epsilon": certificate.epsilon / 2},
        lambda certificate: {"delta": certificate.delta / 10},
        lambda certificate: {"distance": certificate.distance / 2},
        lambda certificate: {"constants": None},
        lambda certificate: {"constants": gf.Constants(strong_convexity=1.0)},
        lambda certificate: {"refuted": ("something",)},
        lambda certificate: {"level": "certified"},
    ],
    ids=["epsilon", "delta", "distance", "no constants", "constants", "refuted", "level"],
)
def test_an_edited_claim_is_noticed(rewrite: Callable[[gf.Certificate], dict[str, Any]]) -> None:
    with pytest.raises(gf.Mismatch):
        checked(rewrite=rewrite)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda trained: trained.with_weights(trained.theta + 1.0), not_as_told(KEPT_TO, "fails")),
        (lambda trained: dataclasses.replace(trained, tilt=None), not_as_told(KEPT_TO, "fails")),
        (lambda trained: dataclasses.replace(trained, history=()), "^a claim by noise in the objective without"),
        (
            lambda trained: dataclasses.replace(trained, recipe=dataclasses.replace(trained.recipe, noise_seed=1)),
            not_as_told(SECRET, "fails"),
        ),
    ],
    ids=["weights", "no noise", "no history", "seed"],
)
def test_a_model_that_is_another_is_noticed(change: Callable[[gf.Trained], gf.Trained], told: str) -> None:
    with pytest.raises(gf.Mismatch, match=told):
        checked(change)


@pytest.mark.parametrize("name", [name for name, _ in ASSUMED])
def test_a_condition_on_a_constant_that_was_left_out_is_noticed(name: str) -> None:
    with pytest.raises(gf.Mismatch, match=f"^a conditional claim without this condition is none: {name}$"):
        checked(rewrite=lambda certificate: {"conditions": tuple(f for f in certificate.conditions if f.name != name)})


def test_a_strong_convexity_that_nothing_proves_is_not_said_to_hold() -> None:
    """The default constant is over mu: the verdict was measured, and cannot be talked away."""

    def forged(certificate: gf.Certificate) -> dict[str, Any]:
        holds = [dataclasses.replace(f, verdict="holds") if f.name == CONVEX else f for f in certificate.conditions]
        return {"conditions": tuple(holds), "constants": gf.Constants(strong_convexity=0.5)}

    def raised(certificate: gf.Certificate) -> dict[str, Any]:
        told = forged(certificate)
        same = [dataclasses.replace(f, threshold=0.5) if f.name == CONVEX else f for f in told["conditions"]]
        return told | {"conditions": tuple(same)}

    with pytest.raises(gf.Mismatch, match=f"^the condition that {CONVEX} is not about the constant"):
        checked(rewrite=forged)
    with pytest.raises(gf.Mismatch, match="is not about the constant|is said to hold, and nothing proves it"):
        checked(rewrite=raised)


def test_verify_says_what_it_did_not_look_at() -> None:
    unchecked = verified(outcome()).unchecked
    assert "what was measured of the conditions, now that what it was measured on is deleted" in unchecked
    assert "that the noise in the objective was drawn before training: the signer vouches for it" in unchecked


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"bound": "best"}, "the bound is 'best', it must be one of data-dependent, worst"),
        ({"constants": 1}, "the constants are 1, graphforget.Constants are needed"),
        ({"constants": {"mu": 1}}, "there is no constant 'mu'"),
        ({"constants": {"hessian_lipschitz": 0}}, "hessian_lipschitz is 0, a finite number above 0"),
        ({"tolerance": 2}, "the solver's tolerance is 2"),
        ({"iterations": 0}, "the solver's iterations is 0"),
        ({"damping": -1}, "the solver's damping is -1"),
        ({"curvature": "flat"}, "there is no curvature 'flat'"),
        ({"solver": "cg"}, "method 'ceu' has no option 'solver'"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(option: dict[str, Any], told: str) -> None:
    trained, graph = trained_on("sgc")
    with pytest.raises(gf.InputError, match=f"^{told}") as caught:
        ceu(trained, graph, gf.Request(edges=edges_of(graph, 1)), **option)
    assert "\n" not in str(caught.value)
