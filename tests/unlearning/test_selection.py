"""Which method `auto` takes, which level comes of it, and what happens where the level asked for cannot be had."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import pytest
import torch

import graphforget as gf
from cases import COLUMNS, OwnGCN, idea, island, random_graph
from graphforget.certificates.levels import LEVELS, Level
from graphforget.unlearning.selection import Otherwise

SIGMA = gf.MODELS["sgc"].sigma

SHORT: dict[str, Any] = {"epochs": 30, "polish_steps": 10}
MODELS: dict[str, dict[str, Any]] = {
    "sgc": {},
    "sign": {},
    "linearised-gcn": {"hidden": 5},
    "own linearised": {"mu": 1e-2},
    "sgc without noise": {"sigma": 0.0},
    "gcn": {"hidden": 5, **SHORT},
    "gcn with noise": {"hidden": 5, "sigma": SIGMA, **SHORT},
    "own": SHORT,
}
CONVEX = ("sgc", "sign", "linearised-gcn", "own linearised")
NOT_CONVEX = ("gcn", "gcn with noise", "own")
NODES = gf.Request(nodes=[4, 5])
MANY = gf.Request(nodes=list(range(3, 20)))
REFUTED = {"sgc without noise", "gcn", "gcn with noise", "own"}  # IDEA's claim for NODES, by its own audit

Expected = tuple[str, Level] | Literal["refused"]


ISLANDER = gf.Request(nodes=[0])


@functools.cache
def trained_on(name: str, *, lonely: bool = False) -> tuple[gf.Trained, gf.Graph]:
    graph = island() if lonely else random_graph(3, nodes=40, edges=60)
    torch.manual_seed(0)
    model = {"own": OwnGCN, "own linearised": lambda: gf.linearised(OwnGCN(), columns=COLUMNS)}.get(name)
    return gf.train(graph, model() if model else name.split()[0], **MODELS[name]), graph


def came_out(
    trained: gf.Trained, graph: gf.Graph, request: gf.Request, **wanted: Any
) -> tuple[Expected, gf.Outcome | None]:
    try:
        outcome = gf.unlearn(trained, graph, request, **wanted)
    except gf.Refused as refusal:
        assert "\n" not in str(refusal)
        return "refused", None
    return (outcome.method, outcome.level), outcome


def expected_level(trained: gf.Trained, graph: gf.Graph, request: gf.Request, **wanted: Any) -> Expected:
    plan = gf.plan(trained, graph, request, **wanted)
    if plan.level is None:
        assert plan.meaning.startswith("would be refused: ")
        return "refused"
    return plan.method, plan.level


# -- nothing asked for -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", CONVEX)
def test_auto_takes_newton_steps_for_strongly_convex_models(model: str) -> None:
    trained, graph = trained_on(model)
    outcome = gf.unlearn(trained, graph, NODES)
    assert (outcome.method, outcome.level) == ("newton", "certified")
    assert outcome.certificate.sigma == trained.recipe.sigma > 0
    assert 0 < outcome.measured["distance"] <= outcome.certificate.tolerance
    assert outcome.trained.history[-1].method == "newton"


@pytest.mark.slow
@pytest.mark.parametrize("model", [*NOT_CONVEX, "sgc without noise"])
def test_auto_retrains_all_others(model: str) -> None:
    trained, graph = trained_on(model)
    outcome = gf.unlearn(trained, graph, NODES)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    assert outcome.certificate.claim.kind == "exact/1"
    assert not outcome.certificate.claim.void
    assert outcome.trained.history == ()
    assert outcome.certificate.chosen == {}


def test_auto_is_what_is_done_when_nothing_is_said() -> None:
    trained, graph = trained_on("sgc")
    said = [
        gf.unlearn(trained, graph, NODES, noise_seed=1),
        gf.unlearn(trained, graph, NODES, noise_seed=1, method="auto"),
    ]
    loud = gf.unlearn(trained, graph, NODES, noise_seed=1, method="AUTO")
    assert all(torch.equal(outcome.released_theta, loud.released_theta) for outcome in said)
    assert {outcome.method for outcome in said} == {"newton"}


@pytest.mark.parametrize("model", ["sgc", "gcn with noise"])
def test_auto_is_deterministic_by_its_seeds(model: str) -> None:
    trained, graph = trained_on(model)
    first, second, other = (
        gf.unlearn(trained, graph, NODES, seed=5, noise_seed=noise_seed) for noise_seed in (1, 1, 2)
    )
    assert torch.equal(first.trained.theta, second.trained.theta)
    assert torch.equal(first.released_theta, second.released_theta)
    assert torch.equal(first.trained.theta, other.trained.theta)
    assert not torch.equal(first.released_theta, other.released_theta)


@pytest.mark.parametrize(("model", "wanted"), [("sgc", {"method": "retrain"}), ("gcn", {"level": "exact"})])
def test_retraining_is_deterministic_by_its_seeds(model: str, wanted: dict[str, Any]) -> None:
    trained, graph = trained_on(model)
    first, second = (gf.unlearn(trained, graph, NODES, seed=5, noise_seed=1, **wanted) for _ in range(2))
    assert first.method == second.method == "retrain"
    assert first.details["seed"] == 5
    assert torch.equal(first.released_theta, second.released_theta)


def test_newton_certifies_a_model_that_idea_has_moved_before() -> None:
    trained, graph = trained_on("sgc")
    first = idea(trained, graph, NODES, audit=False, level="empirical")
    second = gf.unlearn(first.trained, first.graph, gf.Request(nodes=[7]))
    assert (second.method, second.level) == ("retrain", "certified")  # of what idea released nothing was proven
    assert second.measured["distance"] <= second.certificate.tolerance
    assert second.trained.history == ()


# -- a level asked for -----------------------------------------------------------------------------------------------

RETRAINED: Expected = ("retrain", "exact")
CERTIFIED: Expected = ("newton", "certified")
TABLE: list[tuple[str, Level | None, Otherwise, Expected]] = [
    ("sgc", None, "retrain", CERTIFIED),
    ("sgc", None, "refuse", CERTIFIED),
    ("sgc", "exact", "retrain", "refused"),
    ("sgc", "exact", "refuse", "refused"),
    ("sgc", "certified", "retrain", CERTIFIED),
    ("sgc", "certified", "refuse", CERTIFIED),
    ("sgc", "conditional", "retrain", CERTIFIED),
    ("sgc", "conditional", "refuse", CERTIFIED),
    ("sgc", "empirical", "retrain", CERTIFIED),
    ("sgc", "empirical", "refuse", CERTIFIED),
    ("sgc without noise", None, "retrain", RETRAINED),
    ("sgc without noise", None, "refuse", "refused"),
    ("sgc without noise", "exact", "retrain", RETRAINED),
    ("sgc without noise", "certified", "retrain", RETRAINED),
    ("gcn", None, "retrain", RETRAINED),
    ("gcn", None, "refuse", "refused"),
    ("gcn", "exact", "retrain", RETRAINED),
    ("gcn", "exact", "refuse", "refused"),
    ("gcn", "certified", "retrain", RETRAINED),
    ("gcn", "certified", "refuse", "refused"),
    ("gcn", "conditional", "retrain", RETRAINED),
    ("gcn", "conditional", "refuse", "refused"),
    ("gcn", "empirical", "retrain", RETRAINED),
    ("gcn", "empirical", "refuse", "refused"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "level", "otherwise", "expected"), TABLE)
def test_the_level_asked_for_decides(model: str, level: Level | None, otherwise: Otherwise, expected: Expected) -> None:
    trained, graph = trained_on(model)
    theta = trained.theta.clone()
    found, outcome = came_out(trained, graph, NODES, level=level, otherwise=otherwise)
    assert found == expected
    if outcome is not None:
        assert outcome.graph.digest == graph.without(NODES).digest
        assert level is None or LEVELS.index(outcome.level) <= LEVELS.index(level)
    assert torch.equal(trained.theta, theta)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "level", "otherwise"), [row[:3] for row in TABLE])
def test_a_plan_foresees_what_unlearn_does(model: str, level: Level | None, otherwise: Otherwise) -> None:
    trained, graph = trained_on(model)
    wanted: dict[str, Any] = {"level": level, "otherwise": otherwise}
    assert expected_level(trained, graph, NODES, **wanted) == came_out(trained, graph, NODES, **wanted)[0]


@pytest.mark.slow
@pytest.mark.parametrize("otherwise", ["retrain", "refuse"])
@pytest.mark.parametrize("level", [None, *LEVELS])
@pytest.mark.parametrize("method", ["newton", "idea", "retrain"])
def test_a_plan_foresees_what_a_named_method_does(method: str, level: Level | None, otherwise: Otherwise) -> None:
    trained, graph = trained_on("sgc without noise" if method == "idea" else "sgc")
    options = {"audit": False} if method == "idea" else {}  # so that nothing is refuted afterwards
    wanted: dict[str, Any] = {"method": method, "level": level, "otherwise": otherwise, **options}
    assert expected_level(trained, graph, NODES, **wanted) == came_out(trained, graph, NODES, **wanted)[0]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("lonely", [False, True], ids=["touched", "untouched"])
def test_a_plan_foresees_what_auto_does(model: str, lonely: bool) -> None:
    trained, graph = trained_on(model, lonely=lonely)
    request = ISLANDER if lonely else NODES
    assert expected_level(trained, graph, request) == came_out(trained, graph, request)[0]


@pytest.mark.slow
@pytest.mark.parametrize("otherwise", ["retrain", "refuse"])
@pytest.mark.parametrize("level", [None, *LEVELS])
@pytest.mark.parametrize("model", NOT_CONVEX)
def test_a_model_that_is_not_convex_never_comes_out_certified(
    model: str, level: Level | None, otherwise: Otherwise
) -> None:
    trained, graph = trained_on(model)
    assert not trained.certifiable
    choices: tuple[dict[str, Any], ...] = ({}, {"method": "idea"}, {"method": "retrain"})
    for wanted in choices:
        _, outcome = came_out(trained, graph, NODES, level=level, otherwise=otherwise, **wanted)
        assert outcome is None or outcome.level != "certified"
        assert outcome is None or outcome.method != "newton"
        assert gf.plan(trained, graph, NODES, level=level, otherwise=otherwise, **wanted).level != "certified"
    with pytest.raises(gf.InputError, match="^method 'newton' does not work here: the objective is not strongly"):
        gf.unlearn(trained, graph, NODES, method="newton", level=level, otherwise=otherwise)


@pytest.mark.parametrize("level", ["exact", "certified", "conditional"])
@pytest.mark.parametrize("otherwise", ["retrain", "refuse"])
def test_what_even_retraining_cannot_give_is_refused(level: Level, otherwise: Otherwise) -> None:
    trained, graph = trained_on("sgc")
    trained = dataclasses.replace(trained, certification_blockers=("layer 'norm' keeps statistics of the data",))
    with pytest.raises(gf.Refused, match="^without retraining the best level in reach is 'empirical', and retraining"):
        gf.unlearn(trained, graph, NODES, level=level, otherwise=otherwise)
    assert gf.plan(trained, graph, NODES, level=level, otherwise=otherwise).level is None
    expected: Expected = "refused" if otherwise == "refuse" else ("retrain", "empirical")
    assert came_out(trained, graph, NODES, level="empirical", otherwise=otherwise)[0] == expected
    assert expected_level(trained, graph, NODES, level="empirical", otherwise=otherwise) == expected


# -- refuted claims --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [{}, {"noise_seed": 1}], ids=["", "seeded"])
@pytest.mark.parametrize("model", sorted(REFUTED))
def test_a_refuted_claim_is_refused_unless_no_guarantee_is_wanted(model: str, seeded: dict[str, Any]) -> None:
    trained, graph = trained_on(model)
    with pytest.raises(gf.Refused, match="^the guarantee of 'idea' does not hold here .*; nothing was released"):
        idea(trained, graph, NODES, **seeded)
    outcome = idea(trained, graph, NODES, level="empirical", **seeded)
    assert (outcome.method, outcome.level) == ("idea", "empirical")
    assert outcome.measured["refuted"]
    assert outcome.certificate.claim.void
    assert outcome.certificate.epsilon is None
    assert outcome.certificate.sigma == trained.recipe.sigma  # never sized by a bound that does not hold
    assert outcome.measured["sigma_needed"] > trained.recipe.sigma


@pytest.mark.parametrize("model", sorted(REFUTED))
def test_a_refuted_claim_is_not_conditional(model: str) -> None:
    trained, graph = trained_on(model)
    outcome = idea(trained, graph, NODES, level="conditional")
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    assert outcome.trained.history == ()
    told = "the model was retrained, because the guarantee of 'idea' does not hold here "
    assert [note for note in outcome.notes if note.startswith(told)]
    with pytest.raises(gf.Refused, match="^the guarantee of 'idea' does not hold here .*retraining was ruled out$"):
        idea(trained, graph, NODES, level="conditional", otherwise="refuse")


def test_a_claim_that_nothing_refutes_is_conditional() -> None:
    trained, graph = trained_on("sgc without noise")
    for level in (None, "conditional", "empirical"):
        outcome = idea(trained, graph, NODES, level=level, otherwise="refuse", audit=False)
        assert (outcome.method, outcome.level, outcome.measured["refuted"]) == ("idea", "conditional", [])
        assert outcome.certificate.epsilon == 1.0
        assert not outcome.certificate.claim.void


# -- nothing touched -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("otherwise", ["retrain", "refuse"])
@pytest.mark.parametrize("level", [None, *LEVELS])
@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_an_empty_footprint_leaves_the_weights_and_is_published_as_any_other_request(
    model: str, level: Level | None, otherwise: Otherwise
) -> None:
    trained, graph = trained_on(model, lonely=True)
    wanted: dict[str, Any] = {"level": level, "otherwise": otherwise}
    found, outcome = came_out(trained, graph, ISLANDER, **wanted)
    expected = next(row[3] for row in TABLE if row[:3] == (model, level, otherwise))
    assert found == expected_level(trained, graph, ISLANDER, **wanted) == expected
    if outcome is not None:
        assert torch.equal(outcome.trained.theta, trained.theta)
        assert outcome.trained.history == ()
        assert not outcome.private()["changed"]
        assert outcome.details["steps" if model == "sgc" else "retrained"] == 0
        assert outcome.certificate.sigma == trained.recipe.sigma
        assert gf.plan(trained, graph, ISLANDER, **wanted).seconds == 0.0


def test_a_linearised_module_of_ones_own_is_certified_even_where_nothing_seems_touched() -> None:
    """Its reach is not proven, so the footprint may be wrong; the gradient is measured on everything."""
    trained, graph = trained_on("own linearised", lonely=True)
    assert gf.footprint(graph, ISLANDER, trained.reach).empty
    outcome = gf.unlearn(trained, graph, ISLANDER)
    assert (outcome.method, outcome.level) == ("newton", "certified")
    assert outcome.details["steps"] >= 1
    assert not torch.equal(outcome.trained.theta, trained.theta)
    objective = trained.objective(outcome.graph)
    reached = float(objective.gradient(outcome.trained.theta).norm()) / (2 * trained.recipe.mu)
    assert reached <= outcome.measured["distance"] <= outcome.certificate.tolerance
    found, _ = came_out(trained, graph, ISLANDER, level="exact", otherwise="refuse")
    assert found == "refused"


def test_a_module_of_ones_own_is_retrained_where_nothing_seems_touched() -> None:
    trained, graph = trained_on("own", lonely=True)
    outcome = gf.unlearn(trained, graph, ISLANDER)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    assert not torch.equal(outcome.trained.theta, trained.theta)  # it came with weights of its own
    with pytest.raises(gf.Refused, match="^no method but retraining .*, and retraining was ruled out$"):
        gf.unlearn(trained, graph, ISLANDER, otherwise="refuse")
    for level in (None, "empirical"):
        with pytest.raises(gf.Refused, match="the reach of a custom module is not proven"):
            idea(trained, graph, ISLANDER, level=level)


# -- newton that does not get there ----------------------------------------------------------------------------------


@functools.cache
def quiet() -> tuple[gf.Trained, gf.Graph]:
    """So little noise that one step from afar is not near enough."""
    graph = random_graph(3, nodes=40, edges=60)
    return gf.train(graph, "sgc", sigma=1e-5, releases=1), graph


@pytest.mark.parametrize("named", [{}, {"method": "newton"}, {"level": "certified"}], ids=["auto", "named", "level"])
def test_newton_that_falls_short_is_trained_from_0_and_certified(named: dict[str, Any]) -> None:
    trained, graph = quiet()
    assert not gf.unlearn(trained, graph, MANY).details["retrained"]
    outcome = gf.unlearn(trained, graph, MANY, steps=1, **named)
    assert (outcome.method, outcome.level) == ("newton", "certified")
    assert (outcome.details["steps"], outcome.details["retrained"]) == (1, True)
    assert "over the tolerance" in outcome.details["reason"]
    assert outcome.trained.history == ()
    assert outcome.trained.recipe.tolerance == trained.recipe.tolerance
    assert outcome.measured["distance"] <= outcome.certificate.tolerance
    assert outcome.certificate.sigma == 1e-5
    fresh = gf.train(outcome.graph, "sgc", sigma=1e-5, releases=1)
    assert float((outcome.trained.theta - fresh.theta).norm()) <= outcome.trained.residual + fresh.residual
    assert len(outcome.trained.releases) == 1


@pytest.mark.parametrize("named", [{}, {"method": "newton"}, {"level": "certified"}], ids=["auto", "named", "level"])
def test_newton_that_falls_short_is_refused_where_retraining_is_ruled_out(named: dict[str, Any]) -> None:
    trained, graph = quiet()
    told = r"^the optimum may be \S+ away, over the tolerance \S+, and retraining was ruled out$"
    with pytest.raises(gf.Refused, match=told):
        gf.unlearn(trained, graph, MANY, steps=1, otherwise="refuse", **named)


@pytest.mark.parametrize("method", ["auto", "newton", "retrain"])
def test_a_tolerance_that_drowns_in_rounding_is_refused_by_retraining_alone(method: str) -> None:
    """On every path: no steps get there, and what training on the retained graph reaches is not near enough."""
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", sigma=1e-10, tolerance=1e-3)
    with pytest.raises(gf.Refused, match="is below the rounding error .*, and retraining ended there$"):
        gf.unlearn(trained, graph, NODES, method=method)
    if method != "retrain":
        with pytest.raises(gf.Refused, match="is below the rounding error .*, and retraining was ruled out$"):
            gf.unlearn(trained, graph, NODES, method=method, otherwise="refuse")


# -- named methods ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["exact", "certified"])
def test_a_named_method_that_does_not_reach_the_level_gives_way_to_retraining(level: Level) -> None:
    trained, graph = trained_on("sgc without noise")
    outcome = idea(trained, graph, NODES, level=level, audit=False)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    told = f"'idea' reached level 'conditional', not {level!r}"
    assert outcome.notes == (f"the model was retrained, because {told}",)
    with pytest.raises(gf.Refused, match=f"^{told}, and retraining was ruled out$"):
        idea(trained, graph, NODES, level=level, audit=False, otherwise="refuse")


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (
            "auto",
            "^without retraining the best level in reach is 'certified', and retraining gives 'certified' at best",
        ),
        ("newton", "^'newton' reached level 'certified', not 'exact', and retraining gives 'certified' at best"),
        ("retrain", "^'retrain' reached level 'certified', not 'exact'$"),
    ],
)
def test_a_model_with_noise_is_never_exact_and_one_without_is(method: str, told: str) -> None:
    """What is published does not depend on the path, so neither retraining nor an empty footprint is `exact`."""
    for lonely, request in ((False, NODES), (True, ISLANDER)):
        trained, graph = trained_on("sgc", lonely=lonely)
        with pytest.raises(gf.Refused, match=told) as caught:
            gf.unlearn(trained, graph, request, method=method, level="exact")
        assert "\n" not in str(caught.value)
        assert gf.plan(trained, graph, request, method=method, level="exact").level is None
    if method != "newton":
        outcome = gf.unlearn(*trained_on("sgc without noise"), NODES, method=method, level="exact")
        assert (outcome.method, outcome.level, outcome.certificate.epsilon) == ("retrain", "exact", 0)


@pytest.mark.parametrize(("model", "level"), [("sgc", "certified"), ("sgc without noise", "exact")])
def test_a_named_retraining_is_no_fallback(model: str, level: Level) -> None:
    outcome = gf.unlearn(*trained_on(model), NODES, method="retrain", level=level, otherwise="refuse")
    assert (outcome.method, outcome.level, outcome.notes) == ("retrain", level, ())


def test_retraining_that_goes_on_from_the_old_weights_meets_no_level() -> None:
    trained, graph = trained_on("gcn")
    with pytest.raises(gf.Refused, match=r"^'retrain' reached level 'empirical', not 'exact'$"):
        gf.unlearn(trained, graph, NODES, method="retrain", start="continued", level="exact")
    outcome = gf.unlearn(trained, graph, NODES, method="retrain", start="continued", level="empirical")
    assert outcome.level == "empirical"


# -- options and noise -----------------------------------------------------------------------------------------------


def test_options_go_to_the_method_that_has_them() -> None:
    trained, graph = trained_on("gcn")
    outcome = idea(trained, graph, NODES, solver="lissa", iterations=7, audit=False, level="empirical")
    (step,) = outcome.details["steps"]
    assert (outcome.method, step["name"], step["iterations"]) == ("idea", "lissa", 7)
    steps = gf.unlearn(*trained_on("sgc"), NODES, steps=20)
    assert steps.details["steps"] <= 20
    assert steps.certificate.chosen == {"steps": 20}
    with pytest.raises(
        gf.InputError, match="^no method that 'auto' can choose has the option 'solver', name a method$"
    ):
        gf.unlearn(*trained_on("sgc"), NODES, steps=20, solver="lissa")


@pytest.mark.parametrize("wanted", [{"level": "exact"}, {"level": "conditional"}])
def test_a_maker_of_fresh_modules_goes_to_retraining(wanted: dict[str, Any]) -> None:
    trained, graph = trained_on("own")
    made: list[OwnGCN] = []

    def fresh() -> OwnGCN:
        made.append(OwnGCN())
        return made[-1]

    outcome = gf.unlearn(trained, graph, NODES, model=fresh, **wanted)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    assert made
    assert outcome.certificate.chosen == {"model": "fresh", **wanted}
    other = gf.unlearn(trained, graph, NODES, **wanted)
    assert outcome.certificate.statement == other.certificate.statement


@pytest.mark.parametrize("call", [gf.unlearn, gf.plan], ids=["unlearn", "plan"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"colour": "red"}, "no method that 'auto' can choose has the option 'colour', name a method"),
        ({"colour": "red", "level": "certified"}, "no method that 'auto' can choose has the option 'colour', name a"),
        ({"colour": "red", "method": "newton"}, "method 'newton' has no option 'colour', only steps"),
        ({"solver": "lissa", "method": "newton"}, "method 'newton' has no option 'solver', only steps"),
        ({"solver": "magic"}, "no method that 'auto' can choose has the option 'solver', name a method"),
        ({"solver": "magic", "method": "idea"}, "there is no solver 'magic', only cg, lissa, dense"),
        ({"steps": 0}, "steps is 0, at least 1 is needed"),
        ({"start": "stale", "method": "retrain"}, "the start is 'stale', it must be one of fresh, continued"),
        ({"level": "best"}, "there is no level 'best', only exact, certified, conditional, empirical"),
        ({"level": "Exact"}, "there is no level 'Exact', only"),
        ({"level": ""}, "there is no level '', only"),
        ({"level": "best", "method": "retrain"}, "there is no level 'best', only"),
        ({"otherwise": "maybe"}, "otherwise is 'maybe', it must be one of retrain, refuse"),
        ({"otherwise": None}, "otherwise is None, it must be one of retrain, refuse"),
        (
            {"method": "automatic"},
            "there is no method 'automatic', only auto, newton, retrain, idea, grapheraser, gif, ceu, cgu, scalegun, "
            "gnndelete, megu, ascent",
        ),
    ],
)
def test_bad_wishes_are_told_in_one_sentence(call: Any, given: dict[str, Any], told: str) -> None:
    trained, graph = trained_on("sgc")
    with pytest.raises(gf.InputError, match=f"^{told}") as caught:
        call(trained, graph, NODES, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sigma", [0.0, 0.5])
@pytest.mark.parametrize(
    ("lonely", "wanted"),
    [
        (False, {"method": "auto"}),
        (False, {"method": "newton"}),
        (False, {"level": "certified", "otherwise": "refuse"}),
        (False, {"steps": 1}),
        (False, {"method": "retrain"}),
        (True, {"method": "auto"}),
        (True, {"method": "newton"}),
    ],
)
def test_noise_other_than_the_model_s_own_is_bad_input(lonely: bool, wanted: dict[str, Any], sigma: float) -> None:
    trained, graph = trained_on("sgc", lonely=lonely)
    told = f"^sigma is {sigma:g}, but this model's was fixed at {SIGMA:g} when it was trained$"
    with pytest.raises(gf.InputError, match=told):
        gf.unlearn(trained, graph, ISLANDER if lonely else NODES, sigma=sigma, **wanted)


def test_the_model_s_own_noise_may_be_named() -> None:
    trained, graph = trained_on("sgc")
    assert gf.unlearn(trained, graph, NODES, sigma=SIGMA).certificate.sigma == SIGMA


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("sgc", {}),
        ("sgc", {"method": "retrain"}),
        ("sgc", {"method": "idea", "level": "empirical"}),
        ("gcn with noise", {}),
        ("gcn with noise", {"level": "exact"}),
        ("sgc", {"method": "retrain", "start": "continued"}),
    ],
)
def test_every_release_carries_the_noise_of_the_model(model: str, wanted: dict[str, Any]) -> None:
    trained, graph = trained_on(model)
    outcome = gf.unlearn(trained, graph, NODES, noise_seed=1, **wanted)
    assert outcome.certificate.sigma == trained.recipe.sigma > 0
    added = outcome.released_theta - outcome.trained.theta
    assert 0.5 < float(added.std()) / SIGMA < 1.5


def test_the_step_of_idea_sizes_the_noise_for_models_that_were_trained_without() -> None:
    trained, graph = trained_on("sgc without noise")
    assert trained.recipe.sigma == 0
    outcome = idea(trained, graph, NODES, audit=False)  # nothing is refuted, because nobody has looked
    assert outcome.level == "conditional"
    assert outcome.certificate.sigma == outcome.measured["sigma_needed"] > 0
    assert any("the size of the noise depends on this request" in note for note in outcome.notes)


# -- a model that may carry data past its weights --------------------------------------------------------------------

OBSTACLE = ("layer 'norm' keeps statistics of the data",)


@pytest.mark.slow
@pytest.mark.parametrize("model", [*CONVEX, "sgc without noise", *NOT_CONVEX])
def test_auto_retrains_a_model_with_an_obstacle_and_claims_nothing(model: str) -> None:
    trained, graph = trained_on(model)
    trained = dataclasses.replace(trained, certification_blockers=OBSTACLE)
    for method in ("auto", "retrain"):
        outcome = gf.unlearn(trained, graph, NODES, method=method)
        assert (outcome.method, outcome.level) == ("retrain", "empirical")
        assert not outcome.certificate.claim.void
        assert outcome.certificate.epsilon is None
        assert outcome.certificate.sigma == trained.recipe.sigma
        assert outcome.trained.releases == ()
        assert expected_level(trained, graph, NODES, method=method) == ("retrain", "empirical")


@pytest.mark.parametrize(("method", "model"), [("newton", "sgc"), ("idea", "sgc"), ("idea", "gcn"), ("idea", "own")])
def test_a_named_method_is_refused_where_an_obstacle_makes_its_guarantee_void(method: str, model: str) -> None:
    trained, graph = trained_on(model)
    trained = dataclasses.replace(trained, certification_blockers=OBSTACLE)
    with pytest.raises(gf.Refused, match=f"^the guarantee of '{method}' does not hold here: layer 'norm' keeps"):
        gf.unlearn(trained, graph, NODES, method=method)
    assert expected_level(trained, graph, NODES, method=method) == "refused"
    outcome = gf.unlearn(trained, graph, NODES, method=method, level="empirical")
    assert (outcome.method, outcome.level) == (method, "empirical")
    assert outcome.certificate.claim.void
    assert outcome.measured == {"obstacles": list(OBSTACLE)}
    assert outcome.trained.releases == ()
