"""What is published of a release, how many releases there are, and when one is refused: the same on every path."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graphforget as gf
from cases import COLUMNS, OwnGCN, island, random_graph
from graphforget.errors import FloorMissed
from graphforget.linalg.newton import Minimum, newton_cg
from graphforget.privacy.gaussian import mu_gdp, release_ratio
from graphforget.unlearning.selection import Otherwise

TOUCHING = gf.Request(attributes={6: "all"})
UNTOUCHING = gf.Request(attributes={1: "all"})  # of a node that no training loss depends on


def stop_early(function: Any, theta: torch.Tensor, **given: Any) -> Minimum:
    """Newton's method that takes no step."""
    return newton_cg(function, theta, **given | {"gradient_tolerance": math.inf, "min_steps": 0})


@pytest.fixture
def newton_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphforget.unlearning.methods.newton.minimise", stop_early)


# -- one wording for every path --------------------------------------------------------------------------------------

MODELS: dict[str, Callable[[gf.Graph], gf.Trained]] = {
    "sgc": lambda graph: gf.train(graph, "sgc"),
    "sign": lambda graph: gf.train(graph, "sign"),
    "linearised-gcn": lambda graph: gf.train(graph, "linearised-gcn", hidden=4),
    "own linearised": lambda graph: gf.train(graph, gf.linearised(OwnGCN(), columns=COLUMNS), mu=1e-2),
}


def public_fields(outcome: gf.Outcome, *, named: bool) -> dict[str, Any]:
    """The certificate as it is published, without what may differ."""
    differing = {"id", "made", "digests", *(("method", "chosen") if named else ())}
    return {name: value for name, value in outcome.certificate.to_dict().items() if name not in differing}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_path_of_a_model_with_noise_ends_in_the_same_public_words(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = island()
    trained = MODELS[model](graph)
    assert trained.recipe.sigma > 0
    steps = gf.unlearn(trained, graph, TOUCHING)
    outcomes = {"untouched": gf.unlearn(trained, graph, UNTOUCHING)}
    outcomes |= {"retrained": gf.unlearn(trained, graph, TOUCHING, method="retrain")}
    outcomes |= {"retrained, untouched": gf.unlearn(trained, graph, UNTOUCHING, method="retrain")}
    monkeypatch.setattr("graphforget.unlearning.methods.newton.minimise", stop_early)
    outcomes |= {"fallback": gf.unlearn(trained, graph, TOUCHING)}
    assert steps.details["steps"] >= 1
    assert not steps.details["retrained"]
    assert outcomes["fallback"].details["retrained"]
    assert gf.footprint(graph, UNTOUCHING, trained.reach).empty
    assert (steps.level, steps.certificate.claim.kind) == ("certified", "residual-ball/1")
    for path, outcome in outcomes.items():
        named = path.startswith("retrained")
        assert public_fields(outcome, named=named) == public_fields(steps, named=named), path
        assert outcome.certificate.chosen == ({"method": "retrain"} if named else {})
        assert set(outcome.public()) == set(steps.public())
        assert set(outcome.public()["certificate"]["digests"]) == set(steps.certificate.digests)
        given: dict[str, Any] = {"released": outcome.released_theta, "annexes": [outcome.annex]}
        gf.verify(outcome.certificate, outcome.trained, outcome.graph, **given)


@pytest.mark.usefixtures("newton_fails")
def test_what_steps_do_not_reach_is_trained_from_0_or_refused() -> None:
    graph = island()
    trained = gf.train(graph, "sgc")
    ways: list[dict[str, Any]] = [{}, {"method": "newton"}, {"level": "certified"}]
    for named in ways:
        with pytest.raises(gf.Refused, match=r"over the tolerance \S+, and retraining was ruled out$"):
            gf.unlearn(trained, graph, TOUCHING, otherwise="refuse", **named)
        outcome = gf.unlearn(trained, graph, TOUCHING, **named)
        assert (outcome.method, outcome.level, outcome.trained.history) == ("newton", "certified", ())
        assert outcome.trained.releases_left == trained.recipe.releases - 1  # a fallback shows in no count


def test_the_noise_lies_around_the_centre_of_the_ball_on_every_path() -> None:
    graph = island()
    trained = gf.train(graph, "sgc")
    for request, method in ((TOUCHING, "auto"), (UNTOUCHING, "auto"), (TOUCHING, "retrain")):
        outcome = gf.unlearn(trained, graph, request, method=method)
        gradient = outcome.trained.objective(outcome.graph).gradient(outcome.trained.theta)
        centre = outcome.trained.theta - gradient / (2 * trained.recipe.mu)
        torch.testing.assert_close(outcome.centre, centre, rtol=1e-9, atol=1e-12)
        assert float((outcome.centre - outcome.trained.theta).norm()) > 0


# -- how many releases -----------------------------------------------------------------------------------------------


def node_after_node(trained: gf.Trained, graph: gf.Graph, count: int, **given: Any) -> gf.Outcome:
    for node in range(10, 10 + count):
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[node]), **given)
        trained, graph = outcome.trained, outcome.graph
    return outcome


@pytest.mark.slow
def test_releases_are_counted_and_when_none_is_left_the_model_is_retrained() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", releases=3)
    share = release_ratio(epsilon=1.0, delta=1e-5, releases=3)
    assert (trained.releases, trained.releases_left) == ((), 3)
    last = node_after_node(trained, graph, 3)
    assert (last.method, last.trained.releases_left, last.certificate.releases_left) == ("newton", 0, 0)
    assert last.trained.releases == pytest.approx((share,) * 3)
    assert math.hypot(*last.trained.releases) <= mu_gdp(epsilon=1.0, delta=15 / 16 * 1e-5) * (1 + 1e-9)
    given: Any = (last.trained, last.graph, gf.Request(nodes=[20]))
    ways: list[dict[str, Any]] = [{}, {"method": "newton"}]
    for named in ways:
        with pytest.raises(
            gf.Refused,
            match="^the guarantee for 3 releases together covers no further one, and retraining was ruled out$",
        ):
            gf.unlearn(*given, otherwise="refuse", **named)
        anew = gf.unlearn(*given, **named)
        assert (anew.method, anew.certificate.method, anew.level) == ("retrain", "retrain", "certified")
        assert (anew.trained.history, anew.trained.releases) == ((), pytest.approx((share,)))
        assert anew.trained.releases_left == anew.certificate.releases_left == 2
    assert last.trained.releases_left == 0  # what was handed over stays as it is


def test_the_count_starts_anew_where_the_model_is_retrained_by_name() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", releases=8)
    later = node_after_node(trained, graph, 5)
    assert later.trained.releases_left == 3
    assert gf.unlearn(later.trained, later.graph, gf.Request(nodes=[20]), method="retrain").trained.releases_left == 7


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.25, 0.5, 1.0, 1.5])
def test_another_epsilon_is_listed_as_chosen_and_counts_by_its_own_ratio_or_a_share(epsilon: float) -> None:
    """At least a share: the error of noise in float64 is set aside for as many releases as were promised."""
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", releases=8)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]), epsilon=epsilon)
    certificate, sigma = outcome.certificate, trained.recipe.sigma
    assert certificate.chosen == ({} if epsilon == 1.0 else {"epsilon": epsilon})
    assert (certificate.epsilon, certificate.settings["epsilon"]) == (epsilon, 1.0)
    own = release_ratio(epsilon=epsilon, delta=1e-5, releases=8)
    assert certificate.tolerance == pytest.approx(sigma * own)
    counted = max(own, release_ratio(epsilon=1.0, delta=1e-5, releases=8))
    assert outcome.trained.releases == pytest.approx((counted,))
    whole, count = release_ratio(epsilon=1.0, delta=1e-5), 1
    while math.hypot(*outcome.trained.releases, counted) <= whole * (1 + 1e-9):
        outcome = gf.unlearn(
            outcome.trained, outcome.graph, gf.Request(attributes={count % 3: [count % 4]}), epsilon=epsilon
        )
        count += 1
        assert (outcome.method, len(outcome.trained.releases)) == ("newton", count)
    assert count == math.floor((whole / counted) ** 2 * (1 + 1e-9)) <= 8
    again = gf.unlearn(outcome.trained, outcome.graph, gf.Request(nodes=[20]), epsilon=epsilon)
    assert again.method == "retrain"
    spent = math.fsum(ratio**2 for ratio in outcome.trained.releases) / whole**2 * 8
    assert outcome.trained.releases_left == math.floor(8 - spent + 1e-6)


def test_only_what_can_be_certified_has_releases_to_count() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    for trained in (gf.train(graph, "sgc", sigma=0.0), gf.train(graph, "gcn", hidden=4, epochs=2, polish_steps=0)):
        outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
        assert (trained.releases_left, outcome.trained.releases_left, outcome.certificate.releases_left) == (None,) * 3
    with pytest.raises(gf.InputError, match="^releases is 0, at least 1 is needed$"):
        gf.train(graph, "sgc", releases=0)


@pytest.mark.parametrize("how", [{"noise_seed": 1}, {"method": "gif"}, {"method": "retrain", "start": "continued"}])
def test_a_release_of_which_nothing_is_proven_takes_all_that_was_promised(how: dict[str, Any]) -> None:
    """What it told adds to every later release, so that only training anew keeps the promise."""
    graph = random_graph(3, nodes=40, edges=60)
    outcome = gf.unlearn(gf.train(graph, "sgc"), graph, gf.Request(nodes=[4]), **how)
    assert (outcome.level, outcome.trained.releases_left) == ("empirical", 0)
    again = gf.unlearn(outcome.trained, outcome.graph, gf.Request(nodes=[5]))
    assert (again.method, again.level, again.trained.releases_left) == ("retrain", "certified", 63)


# -- a floor under the score -----------------------------------------------------------------------------------------


def blind(**given: Any) -> tuple[gf.Trained, gf.Graph]:
    """So much noise that no release answers everything right."""
    graph = random_graph(3, nodes=60, edges=80)
    return gf.train(graph, "sgc", sigma=1e3, floor=1.0, **given), graph


@pytest.mark.parametrize("method", ["auto", "newton", "retrain"])
@pytest.mark.parametrize("otherwise", ["retrain", "refuse"])
def test_a_release_under_the_floor_is_refused_and_counted(method: str, otherwise: Otherwise) -> None:
    trained, graph = blind(releases=3)
    assert any("under its floor 1" in note for note in trained.notes)
    with pytest.raises(FloorMissed, match="under the floor 1, so nothing was released") as caught:
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method=method, otherwise=otherwise)
    missed = caught.value
    assert isinstance(missed, gf.Refused)
    share = release_ratio(epsilon=1.0, delta=1e-5, releases=3)
    assert missed.ratio == pytest.approx(share)
    assert (missed.trained.releases, missed.trained.releases_left) == (pytest.approx((share,)), 2)
    for field in dataclasses.fields(gf.Trained):
        if field.name != "releases":
            assert getattr(missed.trained, field.name) is getattr(trained, field.name), field.name
    assert trained.releases == ()
    assert not missed.annex.released
    gf.plan(missed.trained, graph, gf.Request(nodes=[4]))  # it still stands on the whole graph


def test_training_that_came_to_nothing_does_not_restart_the_count() -> None:
    """The old weights stay, so what was released around them still counts."""
    trained, graph = blind(releases=1)
    for missed_before in range(3):
        with pytest.raises(FloorMissed) as caught:
            gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="retrain" if missed_before else "auto")
        trained = caught.value.trained
        assert len(trained.releases) == missed_before + 1
        assert trained.releases_left == 0
    with pytest.raises(gf.Refused, match="^the guarantee for 1 releases together covers no further one"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), otherwise="refuse")


def test_a_floor_that_is_met_is_a_setting_like_any_other() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", floor=0.0)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    assert (outcome.level, outcome.certificate.settings["floor"]) == ("certified", 0.0)
    for bad in (-0.1, 1.1, "high"):
        with pytest.raises(gf.InputError, match="^floor is "):
            gf.train(graph, "sgc", floor=bad)  # type: ignore[arg-type]


# -- delta -----------------------------------------------------------------------------------------------------------


def test_nothing_is_certified_with_a_delta_over_one_in_a_hundred() -> None:
    graph = island()
    with pytest.raises(gf.InputError, match=r"^delta is 0\.02, and over 0\.01 nothing is certified$"):
        gf.train(graph, "sgc", delta=0.02)
    trained = gf.train(graph, "sgc", delta=0.01, releases=4)
    for request in (TOUCHING, UNTOUCHING):
        for method in ("auto", "newton", "retrain"):
            with pytest.raises(gf.Refused, match=r"^delta is 0\.011, and over 0\.01 nothing is certified$"):
                gf.unlearn(trained, graph, request, method=method, delta=0.011, epsilon=0.1)
            assert gf.unlearn(trained, graph, request, method=method).certificate.delta == 0.01
    assert gf.train(graph, "sgc", sigma=0.0, delta=0.02).recipe.delta == 0.02  # where no delta is promised


@pytest.mark.parametrize(("delta", "noted"), [(0.009, True), (1e-5, False)])
def test_a_delta_over_one_in_all_training_nodes_is_noted(delta: float, noted: bool) -> None:
    graph = random_graph(3, nodes=200, edges=300)
    m = graph.train_rows.numel()
    assert 1e-5 < 1 / m < 0.009
    trained = gf.train(graph, "sgc", delta=delta)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    retained = outcome.graph.train_rows.numel()
    assert any(f"delta = {delta:g} is over 1 / {m}," in note for note in trained.notes) == noted
    assert any(f"delta = {delta:g} is over 1 / {retained}," in note for note in outcome.notes) == noted
    assert outcome.level == "certified"


# -- auto and what is void -------------------------------------------------------------------------------------------


class Normalised(OwnGCN):
    """Its batch norm keeps statistics of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(self.first(x, edge_index)).tanh(), edge_index)


@pytest.mark.parametrize("model", ["gcn", "gat", "gin"])
def test_auto_retrains_a_network_and_that_is_exact(model: str) -> None:
    graph = random_graph(3, nodes=40, edges=60)
    given: dict[str, Any] = {"hidden": 2, "epochs": 3, "polish_steps": 1}
    trained = gf.train(graph, model, **given)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    assert (outcome.method, outcome.level, outcome.certificate.claim.void) == ("retrain", "exact", False)
    assert torch.equal(outcome.trained.theta, gf.train(outcome.graph, model, **given).theta)


@pytest.mark.slow
def test_auto_retrains_a_module_that_keeps_data_and_claims_nothing() -> None:
    graph = random_graph(3, nodes=40, edges=60, sparse=False)
    trained = gf.train(graph, Normalised(), epochs=3, polish_steps=0)
    assert trained.certification_blockers
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    assert (outcome.method, outcome.level, outcome.certificate.claim.void) == ("retrain", "empirical", False)
    with pytest.raises(gf.Refused, match="^the guarantee of 'idea' does not hold here: .*norm"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="idea")
    told = gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="idea", level="empirical")
    assert (told.method, told.level, told.certificate.claim.void) == ("idea", "empirical", True)


def test_training_that_goes_on_from_old_weights_does_not_restart_the_count() -> None:
    """Those weights have seen what earlier requests removed, so what was released of them still counts."""
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", releases=3)
    first = gf.unlearn(trained, graph, gf.Request(nodes=[4]))
    continued = gf.unlearn(first.trained, first.graph, gf.Request(nodes=[5]), method="retrain", start="continued")
    assert continued.trained.releases[:1] == first.trained.releases != ()
    anew = gf.unlearn(first.trained, first.graph, gf.Request(nodes=[5]), method="retrain")
    assert len(anew.trained.releases) == 1
    assert anew.certificate.releases_left == 2
