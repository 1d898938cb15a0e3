"""Which method `auto` takes, which level comes of it, and what happens where the level asked for cannot be had."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import pytest
import torch

import graphforget as gf
from cases import COLUMNS, OwnGCN, idea, random_graph
from graphforget.certificates.levels import LEVELS, Level
from graphforget.unlearning.auto import Otherwise

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


def island() -> gf.Graph:
    """Nodes 0 and 1 have no edge but their own and do not train, so no training loss depends on them."""
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    inside = (graph.edge_index > 1).all(dim=0)
    edges = torch.cat([graph.edge_index[:, inside], torch.tensor([[0], [1]])], dim=1)
    train, test = graph.train_mask.clone(), graph.test_mask.clone()
    train[:2], test[:2] = False, True
    return gf.Graph.create(x=graph.x, edges=edges, y=graph.y, train_mask=train, test_mask=test)


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


def foreseen(trained: gf.Trained, graph: gf.Graph, request: gf.Request, **wanted: Any) -> Expected:
    plan = gf.plan(trained, graph, request, **wanted)
    if plan.level is None:
        assert plan.meaning.startswith("would be refused: ")
        return "refused"
    return plan.method, plan.level


# -- nothing asked for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", CONVEX)
def test_auto_takes_newton_steps_for_strongly_convex_models(model: str) -> None:
    trained, graph = trained_on(model)
    outcome = gf.unlearn(trained, graph, NODES)
    assert (outcome.method, outcome.level) == ("newton", "certified")
    assert outcome.certificate.sigma == trained.recipe.sigma > 0
    assert 0 < outcome.certificate.distance <= outcome.certificate.tolerance
    assert outcome.trained.history[-1].method == "newton"


@pytest.mark.parametrize("model", [*NOT_CONVEX, "sgc without noise"])
def test_auto_takes_the_step_of_idea_for_all_others(model: str) -> None:
    trained, graph = trained_on(model)
    outcome = gf.unlearn(trained, graph, NODES)
    assert (outcome.method, outcome.level) == ("idea", "conditional")
    assert outcome.trained.history[-1].method == "idea"


def test_auto_is_what_is_done_when_nothing_is_said() -> None:
    trained, graph = trained_on("sgc")
    said = [gf.unlearn(trained, graph, NODES, noise_seed=1, **named) for named in ({}, {"method": "auto"})]
    loud = gf.unlearn(trained, graph, NODES, noise_seed=1, method="AUTO")
    assert all(torch.equal(outcome.released_theta, loud.released_theta) for outcome in said)
    assert {outcome.method for outcome in said} == {"newton"}


@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_auto_is_deterministic_by_its_seeds(model: str) -> None:
    trained, graph = trained_on(model)
    first, second, other = (
        gf.unlearn(trained, graph, NODES, seed=5, noise_seed=noise_seed) for noise_seed in (1, 1, 2)
    )
    assert torch.equal(first.trained.theta, second.trained.theta)
    assert torch.equal(first.released_theta, second.released_theta)
    assert torch.equal(first.trained.theta, other.trained.theta)
    assert not torch.equal(first.released_theta, other.released_theta)


@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_falling_back_to_retraining_is_deterministic_by_its_seeds(model: str) -> None:
    trained, graph = trained_on(model)
    first, second = (gf.unlearn(trained, graph, NODES, level="exact", seed=5, noise_seed=1) for _ in range(2))
    assert first.method == second.method == "retrain"
    assert first.details["seed"] == 5
    assert torch.equal(first.released_theta, second.released_theta)


def test_newton_certifies_a_model_that_idea_has_moved_before() -> None:
    trained, graph = trained_on("sgc")
    first = idea(trained, graph, NODES, audit=False)
    second = gf.unlearn(first.trained, first.graph, gf.Request(nodes=[7]))
    assert (second.method, second.level) == ("newton", "certified")
    assert second.certificate.distance <= second.certificate.tolerance
    assert [entry.method for entry in second.trained.history] == ["idea", "newton"]


# -- a level asked for -----------------------------------------------------------------------------------------------

RETRAINED: Expected = ("retrain", "exact")
CERTIFIED: Expected = ("newton", "certified")
CONDITIONAL: Expected = ("idea", "conditional")
TABLE: list[tuple[str, Level | None, Otherwise, Expected]] = [
    ("sgc", None, "retrain", CERTIFIED),
    ("sgc", None, "refuse", CERTIFIED),
    ("sgc", "exact", "retrain", RETRAINED),
    ("sgc", "exact", "refuse", "refused"),
    ("sgc", "certified", "retrain", CERTIFIED),
    ("sgc", "certified", "refuse", CERTIFIED),
    ("sgc", "conditional", "retrain", CERTIFIED),
    ("sgc", "conditional", "refuse", CERTIFIED),
    ("sgc", "empirical", "retrain", CERTIFIED),
    ("sgc", "empirical", "refuse", CERTIFIED),
    ("gcn", None, "retrain", CONDITIONAL),
    ("gcn", None, "refuse", CONDITIONAL),
    ("gcn", "exact", "retrain", RETRAINED),
    ("gcn", "exact", "refuse", "refused"),
    ("gcn", "certified", "retrain", RETRAINED),
    ("gcn", "certified", "refuse", "refused"),
    ("gcn", "conditional", "retrain", RETRAINED),  # its claim is refuted, see below
    ("gcn", "conditional", "refuse", "refused"),
    ("gcn", "empirical", "retrain", CONDITIONAL),
    ("gcn", "empirical", "refuse", CONDITIONAL),
]


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


# The audit comes after the plan: a plan cannot know that a conditional claim will be refuted.
KNOWN = [row[:3] for row in TABLE if row[:2] != ("gcn", "conditional")]


@pytest.mark.parametrize(("model", "level", "otherwise"), KNOWN)
def test_a_plan_foresees_what_unlearn_does(model: str, level: Level | None, otherwise: Otherwise) -> None:
    trained, graph = trained_on(model)
    wanted: dict[str, Any] = {"level": level, "otherwise": otherwise}
    assert foreseen(trained, graph, NODES, **wanted) == came_out(trained, graph, NODES, **wanted)[0]


@pytest.mark.parametrize("otherwise", ["retrain", "refuse"])
@pytest.mark.parametrize("level", [None, *LEVELS])
@pytest.mark.parametrize("method", ["newton", "idea", "retrain"])
def test_a_plan_foresees_what_a_named_method_does(method: str, level: Level | None, otherwise: Otherwise) -> None:
    trained, graph = trained_on("sgc without noise" if method == "idea" else "sgc")
    options = {"audit": False} if method == "idea" else {}  # so that nothing is refuted afterwards
    wanted: dict[str, Any] = {"method": method, "level": level, "otherwise": otherwise, **options}
    assert foreseen(trained, graph, NODES, **wanted) == came_out(trained, graph, NODES, **wanted)[0]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("lonely", [False, True], ids=["touched", "untouched"])
def test_a_plan_foresees_what_auto_does(model: str, lonely: bool) -> None:
    trained, graph = trained_on(model, lonely=lonely)
    request = ISLANDER if lonely else NODES
    assert foreseen(trained, graph, request) == came_out(trained, graph, request)[0]


@pytest.mark.parametrize("otherwise", ["retrain", "refuse"])
@pytest.mark.parametrize("level", [None, *LEVELS])
@pytest.mark.parametrize("model", NOT_CONVEX)
def test_a_model_that_is_not_convex_never_comes_out_certified(
    model: str, level: Level | None, otherwise: Otherwise
) -> None:
    trained, graph = trained_on(model)
    assert not trained.certifiable
    for wanted in ({}, {"method": "idea"}, {"method": "retrain"}):
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
    trained = dataclasses.replace(trained, obstacles=("layer 'norm' keeps statistics of the data",))
    with pytest.raises(gf.Refused, match="^without retraining the best level in reach is 'empirical', and retraining"):
        gf.unlearn(trained, graph, NODES, level=level, otherwise=otherwise)
    assert gf.plan(trained, graph, NODES, level=level, otherwise=otherwise).level is None
    assert gf.unlearn(trained, graph, NODES, level="empirical", otherwise=otherwise).level == "empirical"


# -- refuted claims --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", sorted(REFUTED))
def test_a_refuted_claim_is_returned_when_no_level_was_asked_for(model: str) -> None:
    outcome = gf.unlearn(*trained_on(model), NODES)
    assert (outcome.method, outcome.level) == ("idea", "conditional")
    assert outcome.certificate.refuted
    assert outcome.certificate.epsilon is None
    assert outcome.certificate.statement.startswith("nothing follows for this model, because this does not hold: ")


@pytest.mark.parametrize("named", [{}, {"method": "idea"}], ids=["auto", "named"])
@pytest.mark.parametrize("model", sorted(REFUTED))
def test_a_refuted_claim_is_not_conditional(model: str, named: dict[str, Any]) -> None:
    trained, graph = trained_on(model)
    outcome = gf.unlearn(trained, graph, NODES, level="conditional", **named)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    assert outcome.trained.history == ()
    told = "the model was retrained, because a condition of its claim does not hold: "
    assert [note for note in outcome.notes if note.startswith(told)]
    with pytest.raises(gf.Refused, match="^a condition of its claim does not hold: .*retraining was ruled out"):
        gf.unlearn(trained, graph, NODES, level="conditional", otherwise="refuse", **named)


def test_a_claim_that_nothing_refutes_is_conditional() -> None:
    trained, graph = trained_on("sgc without noise")
    for level in ("conditional", "empirical"):
        outcome = gf.unlearn(trained, graph, NODES, level=level, otherwise="refuse", audit=False)
        assert (outcome.method, outcome.level, outcome.certificate.refuted) == ("idea", "conditional", ())
        assert outcome.certificate.epsilon == 1.0


# -- nothing touched -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("otherwise", ["retrain", "refuse"])
@pytest.mark.parametrize("level", [None, *LEVELS])
@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_an_empty_footprint_is_exact_without_retraining(model: str, level: Level | None, otherwise: Otherwise) -> None:
    trained, graph = trained_on(model, lonely=True)
    plan = gf.plan(trained, graph, ISLANDER, level=level, otherwise=otherwise)
    outcome = gf.unlearn(trained, graph, ISLANDER, level=level, otherwise=otherwise)
    assert (outcome.level, outcome.details) == ("exact", {"untouched": True})
    assert outcome.method != "retrain"
    assert torch.equal(outcome.trained.theta, trained.theta)
    assert outcome.certificate.sigma == trained.recipe.sigma
    assert (plan.method, plan.level, plan.seconds) == (outcome.method, "exact", 0.0)


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
    assert reached <= outcome.certificate.distance <= outcome.certificate.tolerance
    found, _ = came_out(trained, graph, ISLANDER, level="exact", otherwise="refuse")
    assert found == "refused"


def test_a_module_of_ones_own_is_retrained_where_nothing_seems_touched() -> None:
    trained, graph = trained_on("own", lonely=True)
    outcome = gf.unlearn(trained, graph, ISLANDER)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    with pytest.raises(gf.Refused, match="the reach of a module of one's own is not proven"):
        gf.unlearn(trained, graph, ISLANDER, otherwise="refuse")


# -- newton that does not get there ----------------------------------------------------------------------------------


@functools.cache
def quiet() -> tuple[gf.Trained, gf.Graph]:
    """So little noise that one step from afar is not near enough."""
    graph = random_graph(3, nodes=40, edges=60)
    return gf.train(graph, "sgc", sigma=1e-5), graph


def test_newton_that_falls_short_is_retrained_with_a_note() -> None:
    trained, graph = quiet()
    assert gf.unlearn(trained, graph, MANY).method == "newton"
    outcome = gf.unlearn(trained, graph, MANY, steps=1)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    assert outcome.certificate.sigma == 1e-5
    (note,) = outcome.notes
    assert note.startswith("the model was retrained, because after 1 Newton step ")
    assert "over the tolerance" in note


def test_newton_that_falls_short_is_refused_where_retraining_is_ruled_out() -> None:
    trained, graph = quiet()
    with pytest.raises(gf.Refused, match="over the tolerance .*retraining was ruled out"):
        gf.unlearn(trained, graph, MANY, steps=1, otherwise="refuse")


def test_newton_that_falls_short_is_refused_where_it_was_named_and_no_level_asked_for() -> None:
    trained, graph = quiet()
    with pytest.raises(gf.Refused, match="^after 1 Newton step .* over the tolerance"):
        gf.unlearn(trained, graph, MANY, steps=1, method="newton")
    assert gf.unlearn(trained, graph, MANY, steps=1, method="newton", level="certified").method == "retrain"


def test_a_tolerance_that_drowns_in_rounding_is_retrained() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    trained = gf.train(graph, "sgc", sigma=1e-9, tolerance=1e-3)
    outcome = gf.unlearn(trained, graph, NODES)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    assert "drowns in rounding" in outcome.notes[-1]


# -- named methods ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "level", "reached"),
    [("newton", "exact", "certified"), ("idea", "exact", "conditional"), ("idea", "certified", "conditional")],
)
def test_a_named_method_that_does_not_reach_the_level_gives_way_to_retraining(
    method: str, level: Level, reached: Level
) -> None:
    trained, graph = trained_on("sgc")
    outcome = gf.unlearn(trained, graph, NODES, method=method, level=level)
    assert (outcome.method, outcome.level) == ("retrain", "exact")
    assert outcome.notes == (f"the model was retrained, because {method!r} reached level {reached!r}, not {level!r}",)
    with pytest.raises(gf.Refused, match=f"^{method!r} reached level {reached!r}, not {level!r}, and retraining was"):
        gf.unlearn(trained, graph, NODES, method=method, level=level, otherwise="refuse")


def test_a_named_retraining_is_no_fallback() -> None:
    outcome = gf.unlearn(*trained_on("sgc"), NODES, method="retrain", level="exact", otherwise="refuse")
    assert (outcome.method, outcome.level, outcome.notes) == ("retrain", "exact", ())


def test_retraining_that_goes_on_from_the_old_weights_meets_no_level() -> None:
    trained, graph = trained_on("gcn")
    with pytest.raises(gf.Refused, match=r"^'retrain' reached level 'empirical', not 'exact'$"):
        gf.unlearn(trained, graph, NODES, method="retrain", start="continued", level="exact")
    outcome = gf.unlearn(trained, graph, NODES, method="retrain", start="continued", level="empirical")
    assert outcome.level == "empirical"


# -- options and noise -----------------------------------------------------------------------------------------------


def test_options_go_to_the_method_that_has_them() -> None:
    trained, graph = trained_on("gcn")
    outcome = gf.unlearn(trained, graph, NODES, solver="lissa", iterations=7, audit=False)
    (step,) = outcome.details["steps"]
    assert (outcome.method, step["name"], step["iterations"]) == ("idea", "lissa", 7)
    assert gf.unlearn(*trained_on("sgc"), NODES, steps=20).details["steps"] <= 20
    with pytest.raises(gf.InputError, match="^method 'newton' was chosen and has no option 'solver', name a method$"):
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
    assert "the weights that 'model' made for it" in outcome.certificate.statement


@pytest.mark.parametrize("call", [gf.unlearn, gf.plan], ids=["unlearn", "plan"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"colour": "red"}, "no method has an option 'colour'"),
        ({"colour": "red", "level": "exact"}, "no method has an option 'colour'"),
        ({"colour": "red", "method": "newton"}, "method 'newton' has no option 'colour', only steps"),
        ({"solver": "lissa", "method": "newton"}, "method 'newton' has no option 'solver', only steps"),
        ({"solver": "magic"}, "there is no solver 'magic', only cg, lissa, dense"),
        ({"steps": 0}, "steps is 0, at least 1 is needed"),
        ({"start": "stale", "level": "exact"}, "the start is 'stale', it must be one of fresh, continued"),
        ({"level": "best"}, "there is no level 'best', only exact, certified, conditional, empirical"),
        ({"level": "Exact"}, "there is no level 'Exact', only"),
        ({"level": ""}, "there is no level '', only"),
        ({"level": "best", "method": "retrain"}, "there is no level 'best', only"),
        ({"otherwise": "maybe"}, "otherwise is 'maybe', it must be one of retrain, refuse"),
        ({"otherwise": None}, "otherwise is None, it must be one of retrain, refuse"),
        ({"method": "automatic"}, "there is no method 'automatic', only auto, newton, idea, retrain"),
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
        (False, {"level": "exact"}),
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
        ("sgc", {"level": "exact"}),
        ("sgc", {"method": "idea"}),
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
    trained, graph = trained_on("gcn")
    outcome = gf.unlearn(trained, graph, NODES)
    assert trained.recipe.sigma == 0
    assert outcome.certificate.sigma == outcome.certificate.sigma_needed > 0
    assert any("the noise was sized for this request" in note for note in outcome.notes)
