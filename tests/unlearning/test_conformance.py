"""The suite that every unlearning method must pass. A method added to the registry is tested here by itself."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch
from torch import nn

import graphforget as gf
from cases import COLUMNS, OwnGCN, claim_of, idea, present, random_graph
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.claims.paper_bound import PaperBound
from graphforget.certificates.conditions import REACH
from graphforget.testing import (
    check_another_request,
    check_document,
    check_refusals,
    check_request,
    check_seed,
    example_requests,
    possible_request,
)
from graphforget.testing.conformance import KINDS
from graphforget.unlearning.catalogue import CATALOGUE
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.task import Task
from graphforget.verification.noise import check_gaussian

# Whether a step of a small network moves its weights depends on the draw: with too much noise its ReLUs die.
pytestmark = pytest.mark.usefixtures("repeatable_objective_noise")

MODELS: dict[str, tuple[str | type[nn.Module], dict[str, Any]]] = {
    "sgc": ("sgc", {}),
    "relational-sign": ("relational-sign", {}),
    "linearised-gcn": ("linearised-gcn", {"hidden": 5}),
    "gcn": ("gcn", {"hidden": 5, "epochs": 30, "polish_steps": 10}),
    "gat": ("gat", {"hidden": 2, "heads": 2, "epochs": 30, "polish_steps": 5}),
    "gin": ("gin", {"hidden": 8, "epochs": 30, "polish_steps": 3}),
    "sage": ("sage", {"hidden": 5, "epochs": 30, "polish_steps": 10}),
    "own": (OwnGCN, {"epochs": 30, "polish_steps": 10}),
    "cgu": ("cgu", {"mu": 0.1, "objective_noise": 1.0}),
    "scalegun": ("scalegun", {"mu": 0.1, "objective_noise": 1.0}),
    "noisy-gcn": ("gcn", {"hidden": 16, "epochs": 30, "polish_steps": 10, "objective_noise": 0.1}),
    "stacked-gcn": ("stacked-gcn", {"hidden": 5, "epochs": 20, "parts": 2}),
    "boosted-gcn": ("boosted-gcn", {"hidden": 5, "epochs": 20}),
    "sharded-gcn": ("sharded-gcn", {"hidden": 5, "epochs": 20, "shards": 2}),
    "sharded-sgc": ("sharded-sgc", {"shards": 3, "partition": "blpa", "aggregation": "learned"}),
}
# Methods that serve one kind of model alone are shown on it.
MODEL_OF = {"cgu": "cgu", "scalegun": "scalegun", "grapheraser": "sharded-gcn", "gnndelete": "gcn"}
# Published schedules take seconds, whatever the graph.
QUICK: dict[str, dict[str, Any]] = {"gnndelete": {"epochs": 20}}
CASES = [
    pytest.param(method, model, marks=() if model == MODEL_OF.get(method, "sgc") else pytest.mark.slow)
    for method in gf.METHODS
    for model in MODELS
]


@functools.cache
def trained_on(model: str) -> tuple[gf.Trained, gf.Graph]:
    graph = random_graph(3, nodes=40, edges=60)
    what, options = MODELS[model]
    for seed in range(10):
        torch.manual_seed(seed)
        trained = gf.train(graph, what if isinstance(what, str) else what(), seed=seed, **options)
        if float(trained.logits(graph).std(dim=0).max()) > 1e-3:
            return trained, graph
    raise AssertionError("every training ended with the same logits for all nodes: no ReLU is alive")


def model_of(method: str) -> tuple[gf.Trained, gf.Graph]:
    return trained_on(MODEL_OF.get(method, "sgc"))


def supported(method: str, trained: gf.Trained) -> None:
    reason = gf.METHODS[method].unsupported(trained)
    if reason is not None:
        with pytest.raises(gf.InputError, match=f"method '{method}' does not work here"):
            gf.unlearn(trained, trained_on("sgc")[1], gf.Request(nodes=[4]), method=method)
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("method", "model"), CASES)
def test_it_deletes_what_was_asked_and_leaves_its_input_alone(method: str, model: str, kind: str) -> None:
    trained, graph = trained_on(model)
    supported(method, trained)
    outcome = check_request(method, trained, graph, example_requests(graph)[kind], **QUICK.get(method, {}))
    if outcome is not None and outcome.certificate.claim.void:
        assert method in ("idea", "ceu")  # no other is conditional on what was refuted here
    if outcome is not None and method == "grapheraser":
        assert outcome.details["retrained"] != torch.equal(outcome.trained.theta, trained.theta)


@pytest.mark.parametrize(("method", "model"), CASES)
def test_it_is_deterministic_by_seed(method: str, model: str) -> None:
    trained, graph = trained_on(model)
    supported(method, trained)
    check_seed(method, trained, graph, possible_request(method, graph), **QUICK.get(method, {}))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "model"), CASES)
def test_it_works_a_second_and_a_tenth_time(method: str, model: str) -> None:
    trained, graph = trained_on(model)
    supported(method, trained)
    by_nodes, size = "nodes" in gf.METHODS[method].kinds, (graph.num_nodes, graph.num_edges)
    requests = [gf.Request(nodes=[node]) for node in range(10, 20)] if by_nodes else edge_requests(graph, 10)
    touched = [one for one in requests if not gf.footprint(graph, one, trained.reach).empty]
    after, rest = check_another_request(method, trained, graph, touched, **QUICK.get(method, {}))
    gone = size[0] - rest.num_nodes if by_nodes else size[1] - rest.num_edges
    assert gone >= (1 if gf.METHODS[method].unsupported(after) else 7)


def edge_requests(graph: gf.Graph, count: int) -> list[gf.Request]:
    source, target = graph.edge_index
    return [gf.Request(edges=[(u, v)]) for u, v in graph.edge_index[:, source < target].T[:count].tolist()]


@pytest.mark.parametrize("method", gf.METHODS)
def test_it_refuses_bad_requests_in_one_sentence(method: str) -> None:
    check_refusals(method, *model_of(method))


def test_an_unknown_method_is_refused() -> None:
    trained, graph = trained_on("sgc")
    known = "auto, newton, retrain, idea, grapheraser, gif, ceu, cgu, scalegun, gnndelete, megu, ascent"
    with pytest.raises(gf.InputError, match=f"^there is no method 'magic', only {known}$"):
        gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="magic")


@pytest.mark.slow
@pytest.mark.parametrize("method", gf.METHODS)
def test_what_it_tells_is_json_and_names_nobody(method: str) -> None:
    graph = gf.load("patients")
    model = MODEL_OF.get(method, "sgc")
    trained = gf.train(graph, model, **MODELS[model][1])
    request = gf.Request(nodes=["patient-0017"], attributes={"patient-0042": "all"})
    if method == "ceu":
        u, v = graph.edge_index[:, 0].tolist()
        request = gf.Request(edges=[(graph.name_of(u), graph.name_of(v))])
    outcome = gf.unlearn(trained, graph, request, method=method, level="empirical", **QUICK.get(method, {}))
    check_document(outcome, names=("patient-", "mean radius"))


# -- planted failures ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class NoOptions:
    pass


def conditional_claim() -> Claim:
    return PaperBound(epsilon=1.0, delta=1e-5, sigma=0.0, constants=gf.Constants(), conditions=())


class Planted(Method[NoOptions]):
    options = NoOptions
    name, title, reference, level = "planted", "-", "-", "empirical"

    def __init__(self, what: str) -> None:
        self.what = what

    def gradients(self, trained: gf.Trained) -> int:
        return 1

    def on(self, trained: gf.Trained, graph: gf.Graph, request: gf.Request) -> gf.Outcome:
        self.check(trained, graph, request)
        return self.unlearn(Task.of(trained, graph, request), NoOptions())

    def change(self, task: Task, options: NoOptions) -> MethodResult:
        theta = task.theta.clone()
        if self.what == "NaN":
            theta[0] = float("nan")
        if self.what not in ("NaN", "nothing"):
            theta += 1
        objective = task.before if self.what == "old graph" else task.after
        moved = task.trained.with_update(theta, objective, task.history_entry("planted", task.theta))
        good = self.what in ("good", "too good", "another centre")
        claim = conditional_claim() if self.what == "too good" else Empirical("-") if good else Exact()
        if self.what == "no centre":
            claim = Empirical("-", around_centre=True)
        centre = theta if self.what == "another centre" else None
        return MethodResult(moved, Exact() if self.what == "exact" else claim, centre=centre)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("nothing", "changed no weight although the request may touch the training"),
        ("NaN", "weights that are not finite"),
        ("old graph", "did not end on the retained graph"),
        ("too good", "claims 'conditional', but its best level is 'empirical'"),
        ("no centre", "gives no centre for the noise"),
        ("another centre", "gives no centre for the noise"),
    ],
)
def test_a_method_that_does_nothing_or_the_wrong_thing_is_caught(what: str, told: str) -> None:
    trained, graph = trained_on("sgc")
    with pytest.raises(gf.Refused, match=told):
        Planted(what).on(trained, graph, gf.Request(nodes=[4]))
    assert Planted("good").on(trained, graph, gf.Request(nodes=[4])).level == "empirical"
    bold = Planted("exact")
    bold.level = "exact"  # type: ignore[assignment, misc]
    with pytest.raises(gf.Refused, match="claims 'exact' for weights that moved away"):
        bold.on(trained, graph, gf.Request(nodes=[4]))


def test_a_method_says_which_requests_and_models_it_takes() -> None:
    class Narrow(Planted):
        kinds = frozenset({"edges"})

        def unsupported(self, trained: gf.Trained) -> str | None:
            return None if trained.recipe.model == "sgc" else "it is for SGC"

    trained, graph = trained_on("sgc")
    with pytest.raises(gf.InputError, match=r"^method 'planted' cannot forget nodes, only edges$"):
        Narrow("good").on(trained, graph, example_requests(graph)["mixed"])
    with pytest.raises(gf.InputError, match=r"^method 'planted' does not work here: it is for SGC$"):
        Narrow("good").on(*trained_on("gcn"), example_requests(graph)["edges"])
    assert Narrow("good").on(trained, graph, example_requests(graph)["edges"]).graph.num_edges == graph.num_edges - 1


# -- an empty footprint ----------------------------------------------------------------------------------------------


def lonely_graph() -> gf.Graph:
    """Nodes 0 and 1 are an island that does not train."""
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    source, target = graph.edge_index
    inside = (source > 1) & (target > 1)
    edges = torch.cat([graph.edge_index[:, inside], torch.tensor([[0], [1]])], dim=1)
    train, test = graph.train_mask.clone(), graph.test_mask.clone()
    train[:2], test[:2] = False, True
    return gf.Graph.create(x=graph.x, edges=edges, y=graph.y, train_mask=train, test_mask=test)


@pytest.mark.parametrize(
    "request_", [gf.Request(nodes=[0]), gf.Request(edges=[(0, 1)]), gf.Request(attributes={1: "all"})]
)
@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_what_no_training_loss_depends_on_leaves_the_weights_of_training_on_the_rest(
    model: str, request_: gf.Request
) -> None:
    graph = lonely_graph()
    trained = gf.train(graph, model, **MODELS[model][1])
    outcome = gf.unlearn(trained, graph, request_)
    assert (outcome.level, outcome.certificate.epsilon) == (("certified", 1) if model == "sgc" else ("exact", 0))
    assert not outcome.private()["changed"]
    assert torch.equal(outcome.trained.theta, trained.theta)
    assert outcome.certificate.sigma == trained.recipe.sigma  # every release has the noise of the model
    assert torch.equal(outcome.released_theta, trained.theta) == (not trained.recipe.sigma)
    assert outcome.trained.graph_digest == outcome.graph.digest == graph.without(request_).digest
    assert torch.equal(gf.train(outcome.graph, model, **MODELS[model][1]).theta, trained.theta)
    assert gf.plan(trained, graph, request_, method="idea").level is None  # one of its conditions is already refuted


def test_after_an_approximate_step_an_empty_footprint_is_not_exact() -> None:
    """The weights are then as far from retraining as the steps before left them."""
    graph = lonely_graph()
    go_on: dict[str, Any] = {"level": "empirical"}
    first = idea(gf.train(graph, "sgc"), graph, gf.Request(nodes=[20]), **go_on)
    second = idea(first.trained, first.graph, gf.Request(nodes=[0]), **go_on)
    assert torch.equal(second.trained.theta, first.trained.theta)
    assert second.level == "empirical"
    assert second.measured["distance"] == first.measured["distance"]
    assert second.certificate.sigma == first.certificate.sigma
    assert second.measured["refuted"] == first.measured["refuted"] != []
    silent = idea(first.trained, first.graph, gf.Request(nodes=[0]), audit=False, **go_on)
    assert silent.measured["refuted"] == first.measured["refuted"]  # what was refuted once stays so
    with pytest.raises(gf.Refused, match="^the guarantee of 'idea' does not hold here"):
        idea(first.trained, first.graph, gf.Request(nodes=[0]), audit=False, sigma=1e9)
    others = gf.Constants(loss_bound=5.0)
    wider = idea(first.trained, first.graph, gf.Request(nodes=[0]), constants=others, **go_on)
    assert claim_of(wider, PaperBound).constants == others
    assert wider.measured["distance"] > first.measured["distance"]
    assert Planted("good").on(first.trained, first.graph, gf.Request(nodes=[0])).level == "empirical"
    assert gf.plan(first.trained, first.graph, gf.Request(nodes=[0]), method="idea").level is None


def test_the_reach_of_a_module_of_ones_own_proves_nothing() -> None:
    graph = lonely_graph()
    trained = gf.train(graph, OwnGCN(), epochs=5, polish_steps=2)
    assert gf.footprint(graph, gf.Request(nodes=[0]), trained.reach).empty
    with pytest.raises(gf.Refused, match="the reach of a custom module is not proven"):
        idea(trained, graph, gf.Request(nodes=[0]))
    assert gf.plan(trained, graph, gf.Request(nodes=[0]), method="idea").level is None
    assert gf.unlearn(trained, graph, gf.Request(nodes=[0]), method="retrain").level == "exact"
    linear = gf.train(graph, gf.linearised(OwnGCN(), columns=COLUMNS), mu=1e-2)
    with pytest.raises(gf.Refused, match="the reach of a custom module is not proven"):
        idea(linear, graph, gf.Request(nodes=[0]))
    touched = idea(linear, graph, gf.Request(nodes=[20]), audit=False, level="empirical")
    assert touched.certificate.conditions[-1] == REACH


def test_retraining_to_the_same_weights_is_no_failure_where_nothing_is_touched() -> None:
    graph = lonely_graph()
    trained = gf.train(graph, "sgc")
    outcome = gf.unlearn(trained, graph, gf.Request(edges=[(0, 1)]), method="retrain")
    assert outcome.level == "certified"
    assert torch.equal(outcome.trained.theta, trained.theta)


def test_a_reach_that_measurements_refute_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trained, graph = trained_on("sgc")
    nothing = gf.Footprint(*(torch.zeros(0, dtype=torch.int64) for _ in range(3)))
    monkeypatch.setattr("graphforget.unlearning.task.item_footprint", lambda *_: nothing)
    with pytest.raises(gf.Refused, match="training losses changed outside the footprint"):
        idea(trained, graph, gf.Request(attributes={6: "all"}))


def test_released_weights_are_no_start_for_another_request() -> None:
    """Their noise would be missing from the bound."""
    trained, graph = trained_on("sgc")
    outcome = idea(trained, graph, gf.Request(nodes=[4]), audit=False, level="empirical")
    assert outcome.released.noise == present(outcome.certificate.sigma) > 0
    assert outcome.trained.noise == 0
    with pytest.raises(gf.InputError, match="^these are released weights with noise"):
        idea(outcome.released, outcome.graph, gf.Request(nodes=[5]))


@pytest.mark.slow
@pytest.mark.parametrize("method", gf.METHODS)
def test_noise_that_is_asked_for_is_added_whatever_the_level(method: str) -> None:
    trained, graph = trained_on(MODEL_OF.get(method, "own"))
    supported(method, trained)
    request = possible_request(method, graph)
    given: dict[str, Any] = {"method": method, "level": "empirical"} | QUICK.get(method, {})
    outcome = gf.unlearn(trained, graph, request, sigma=0.5, **given)
    assert outcome.certificate.sigma == 0.5
    assert outcome.certificate.chosen["sigma"] == 0.5
    check_gaussian(outcome.released_theta - outcome.trained.theta, sigma=0.5, label="the noise")
    seeded = gf.unlearn(trained, graph, request, sigma=0.5, noise_seed=1, **given)
    assert any("whoever knows the seed can take it off" in note for note in seeded.notes)
    bare = gf.unlearn(trained, graph, request, sigma=0, **given)
    assert torch.equal(bare.released_theta, bare.trained.theta)
    with pytest.raises(gf.Refused, match="leaves no finite weights"):
        gf.unlearn(trained, graph, request, sigma=1.7e308, **given)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "model"), [(m, model) for m in gf.METHODS for model in ("own", "sgc", "cgu")])
def test_a_model_that_carries_data_gets_no_guarantee(method: str, model: str) -> None:
    trained, graph = trained_on(model)
    supported(method, trained)
    trained = dataclasses.replace(trained, certification_blockers=("layer 'norm' keeps statistics of the data",))
    request = possible_request(method, graph)
    outcome = gf.unlearn(trained, graph, request, method=method, level="empirical")
    assert outcome.level == "empirical"
    assert outcome.certificate.epsilon is None
    assert gf.plan(trained, graph, request, method=method, level="empirical").level == "empirical"
    void = gf.METHODS[method].level in ("certified", "conditional")
    assert outcome.certificate.claim.void == void
    if void:
        assert outcome.measured == {"obstacles": list(trained.certification_blockers)}
        assert "may carry data past its weights" in outcome.certificate.statement
        with pytest.raises(gf.Refused, match=f"^the guarantee of '{method}' does not hold here: layer 'norm'"):
            gf.unlearn(trained, graph, request, method=method)
        assert gf.plan(trained, graph, request, method=method).level is None
    else:
        assert gf.unlearn(trained, graph, request, method=method).level == "empirical"


class Remembering(OwnGCN):
    """Keeps what it saw in training, out of sight of an inspection before."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.mean = what, 0.0

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        if self.training and self.what == "rows":
            self.seen = x.detach().clone()
        if self.training and self.what == "mean":
            self.mean = 0.9 * self.mean + float(x.to_dense().mean())
        return super().forward(x, edge_index)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "told"), [("rows", "holds a tensor"), ("mean", "changed in training")])
def test_what_a_module_picks_up_in_training_is_no_secret(what: str, told: str) -> None:
    graph = random_graph(3, nodes=40, edges=60, sparse=False)
    trained = gf.train(graph, Remembering(what), epochs=3, polish_steps=0)
    assert any(told in obstacle for obstacle in trained.certification_blockers)
    assert idea(trained, graph, gf.Request(nodes=[4]), level="empirical").level == "empirical"
    with pytest.raises(gf.Refused, match=f"^the guarantee of 'idea' does not hold here: .*{told}"):
        idea(trained, graph, gf.Request(nodes=[4]))
    assert not gf.train(graph, Remembering("nothing"), epochs=3, polish_steps=0).certification_blockers


def test_a_loss_that_holds_a_tensor_gets_no_guarantee() -> None:
    graph = random_graph(3, nodes=40, edges=60)
    weights = torch.bincount(graph.y[graph.train_rows]).double()

    def weighted(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, labels, weight=weights.to(logits), reduction="none")

    trained = gf.train(graph, "gcn", loss=weighted, hidden=4, epochs=3, polish_steps=0)
    assert trained.certification_blockers == ("the loss 'weighted' holds a tensor, which may carry data",)
    assert gf.unlearn(trained, graph, gf.Request(nodes=[4]), method="retrain").level == "empirical"


def test_an_empirical_claim_promises_nothing() -> None:
    claim = Empirical("nothing")
    assert [claim.number(name) for name in ("epsilon", "delta", "tolerance", "ratio")] == [None] * 4
    assert (claim.level, claim.sigma, claim.void) == ("empirical", 0.0, False)


def test_the_catalogue_lists_every_method() -> None:
    assert [info.name for info in CATALOGUE] == list(gf.METHODS)
    for info in CATALOGUE:
        stated = {field.name: getattr(gf.METHODS[info.name], field.name) for field in dataclasses.fields(info)}
        assert stated == dataclasses.asdict(info)
