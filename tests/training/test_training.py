"""Training: what it reaches, that it says so, and that it leaves its input alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import graphforget as gf
from cases import OwnGCN, WithNorm, present, random_graph
from graphforget.models.parameters import flatten
from graphforget.models.registry import MODELS as REGISTRY
from graphforget.models.schedules import Schedule
from graphforget.training.losses import CrossEntropy
from graphforget.training.objective import Objective
from graphforget.training.recipe import Recipe
from graphforget.training.train import OWN_MODEL

CONVEX = ("sgc", "sign", "linearised-gcn", "linearised-gat", "linearised-gin", "linearised-sage")
OTHERS = ("gcn", "gat", "gin", "sage")


@pytest.fixture(scope="module")
def patients() -> gf.Graph:
    return gf.load("patients")


@pytest.mark.slow
@pytest.mark.parametrize("model", CONVEX)
def test_a_convex_model_ends_within_its_tolerance_and_says_so(model: str) -> None:
    graph = random_graph(0, nodes=40, edges=60)
    trained = gf.train(graph, model, tolerance=1e-6)
    assert trained.converged
    assert trained.certifiable
    objective = Objective(trained.module, graph, mu=trained.recipe.mu)
    measured = float(objective.gradient(trained.theta).norm())
    assert measured == pytest.approx(trained.gradient_norm, rel=1e-6)
    assert trained.residual <= 1e-6
    assert torch.equal(flatten(trained.module), trained.theta)


@pytest.mark.slow
def test_the_residual_bounds_the_distance_to_the_optimum() -> None:
    """docs/maths.md, section 4, on an optimum found by a dense Newton method."""
    graph = random_graph(1, nodes=30, edges=40)
    for tolerance in (100.0, 1.0, 1e-2):
        trained = gf.train(graph, "sgc", tolerance=tolerance)
        objective = trained.objective(graph)
        theta = trained.theta.clone()
        for _ in range(30):
            hessian = torch.stack([objective.hessian(theta)(e) for e in torch.eye(theta.numel(), dtype=theta.dtype)])
            theta = theta - torch.linalg.solve(hessian, objective.gradient(theta))
        assert float(objective.gradient(theta).norm()) < 1e-13
        assert float((trained.theta - theta).norm()) <= trained.residual


def test_the_bound_is_tight() -> None:
    """A shift of all biases by one amount changes no softmax, so there the residual *is* the distance."""
    graph = random_graph(1, nodes=30, edges=40)
    trained = gf.train(graph, "sgc", tolerance=1e-6)
    shift = torch.zeros_like(trained.theta)
    shift[-3:] = 1.0
    gradient = trained.objective(graph).gradient(trained.theta + shift)
    assert float(gradient.norm()) / trained.recipe.mu == pytest.approx(float(shift.norm()), rel=1e-5)


@pytest.mark.slow
def test_adam_minimises_the_whole_objective(patients: gf.Graph) -> None:
    """The L2 term too: with a heavy one the weights shrink to almost nothing."""
    light, heavy = (gf.train(patients, "gcn", mu=mu, epochs=200, polish_steps=0) for mu in (1e-4, 1.0))
    assert float(heavy.theta.norm()) < 0.05 * float(light.theta.norm())


@pytest.mark.slow
@pytest.mark.parametrize("model", OTHERS)
def test_other_models_lower_the_objective_and_are_not_called_certifiable(model: str, patients: gf.Graph) -> None:
    trained = gf.train(patients, model, epochs=60)
    assert not trained.certifiable
    assert not trained.converged
    assert trained.micro_f1(patients) > 0.85
    objective = trained.objective(patients)
    assert trained.objective_value == pytest.approx(objective.value(trained.theta), rel=1e-9)
    assert trained.gradient_norm == pytest.approx(float(objective.gradient(trained.theta).norm()), rel=1e-6)


@pytest.mark.slow
def test_the_polish_lowers_the_gradient_and_the_objective(patients: gf.Graph) -> None:
    rough, fine = (gf.train(patients, "gcn", epochs=60, polish_steps=steps) for steps in (0, 60))
    assert fine.gradient_norm < 0.5 * rough.gradient_norm
    assert fine.objective_value < rough.objective_value


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", "gcn", "gat", "gin", "sage", "linearised-gcn"])
def test_the_seed_decides_everything(model: str) -> None:
    graph = random_graph(2, nodes=30, edges=40)
    torch.manual_seed(0)
    one = gf.train(graph, model, seed=4, epochs=5)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    same = gf.train(graph, model, seed=4, epochs=5)
    assert torch.equal(one.theta, same.theta)
    assert torch.equal(state, torch.random.get_rng_state())
    if not one.strongly_convex:
        assert not torch.equal(one.theta, gf.train(graph, model, seed=5, epochs=5).theta)


@pytest.mark.slow
def test_only_training_labels_are_used() -> None:
    graph = random_graph(3, nodes=30, edges=40)
    other = graph.y.clone()
    other[graph.test_mask] = (other[graph.test_mask] + 1) % 3
    relabelled = gf.Graph.create(
        x=graph.x, edges=graph.edge_index, y=other, train_mask=graph.train_mask, test_mask=graph.test_mask
    )
    for model in ("sgc", "gcn"):
        assert torch.equal(gf.train(graph, model, epochs=5).theta, gf.train(relabelled, model, epochs=5).theta)


@pytest.mark.slow
def test_own_module_own_loss_and_own_reach(patients: gf.Graph) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(30, 2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.linear(x)
            return h.index_add(0, edge_index[1], h[edge_index[0]])

    def hinge(logits: Tensor, labels: Tensor) -> Tensor:
        return functional.multi_margin_loss(logits, labels, reduction="none")

    module = Own()
    before = flatten(module)
    reach = gf.Reach(1, degree_normalised=False)
    trained = gf.train(patients, module, loss=hinge, reach=reach, epochs=100)
    assert torch.equal(before, flatten(module))
    assert trained.reach == reach
    assert trained.recipe.loss == "hinge"
    assert not trained.certifiable
    assert trained.micro_f1(patients) > 0.85


@pytest.mark.slow
def test_a_module_with_batchnorm_trains_and_is_named_not_certifiable() -> None:
    graph = random_graph(4, nodes=30, edges=40)
    module = WithNorm(nn.BatchNorm1d(3))
    trained = gf.train(graph, module, epochs=20)
    assert not trained.certifiable
    assert "carries statistics of the training data" in trained.certification_blockers[0]
    assert float(trained.module.get_buffer("norm.running_mean").abs().sum()) > 0
    assert float(module.get_buffer("norm.running_mean").abs().sum()) == 0


def test_nothing_can_claim_to_be_convex() -> None:
    class Claims(OwnGCN):
        affine = True
        convex = True

    class CrossEntropyToo(CrossEntropy):
        convex = True

    graph = random_graph(5)
    assert not gf.train(graph, Claims(), epochs=1, polish_steps=0).strongly_convex
    assert not gf.train(graph, "sgc", loss=CrossEntropyToo(), epochs=1, polish_steps=0).strongly_convex


@pytest.mark.slow
def test_a_convex_model_with_a_loss_of_ones_own_is_not_called_convex() -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none").sqrt()

    trained = gf.train(random_graph(5), "sgc", loss=loss, polish_steps=0)
    assert not trained.strongly_convex
    assert trained.recipe.epochs > 0
    assert float(trained.theta.norm()) > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mu": 0.0}, "mu is 0.0"),
        ({"mu": float("inf")}, "mu is inf"),
        ({"tolerance": -1.0}, "tolerance is -1.0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"tolerance": 1e-9, "mu": 1e-4}, "tolerance x mu"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"hidden": 10**11, "model": "gcn"}, "does not take these options"),
        ({"reach": gf.Reach(0)}, "the reach of SGC is known"),
        ({"epochs": -1}, "epochs is -1"),
        ({"model": "none"}, "there is no model 'none'"),
        ({"recipe": "slow"}, "there is no recipe 'slow', only quick and paper"),
        ({"recipe": None, "model": "gcn"}, "there is no recipe None"),
        ({"model": 3}, "the model is a int"),
        ({"model": nn.Identity()}, "no trainable parameter"),
        ({"model": OwnGCN(), "hidden": 3}, "option 'hidden' belongs to built-in models"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: dict, words: str) -> None:
    with pytest.raises(gf.InputError, match=words):
        gf.train(random_graph(0), **options)


def class_weighted(logits: Tensor, labels: Tensor) -> Tensor:
    weights = 1.0 / torch.bincount(labels, minlength=logits.shape[1]).clamp_min(1).to(logits.dtype)
    return weights[labels] * functional.cross_entropy(logits, labels, reduction="none")


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nn.MultiMarginLoss(), r"gives \(\) for 7 nodes, one loss a node is needed"),
        (lambda logits, labels: logits, r"gives \(7, 3\) for 7 nodes"),
        (lambda logits, labels: 1.0, "gives float for 7 nodes"),
        (functional.cross_entropy, r"'own cross_entropy' gives \(\) for 7 nodes"),
        (gf.Loss(functional.cross_entropy, name="cross_entropy"), "cannot be named 'cross_entropy'"),
        (class_weighted, "depends on other nodes"),
        (lambda logits, labels: logits[:, 0] / 0, "is not finite"),
        ("mse", "there is no loss 'mse', only cross_entropy, one_vs_rest"),
        (lambda logits: logits, "does not run"),
    ],
)
def test_a_loss_that_is_not_one_loss_a_node_is_refused(loss: object, words: str) -> None:
    with pytest.raises(gf.InputError, match=words):
        gf.train(random_graph(0), "gcn", loss=loss)  # type: ignore[arg-type]


def test_a_loss_on_probabilities_is_tried_on_probabilities() -> None:
    class Probabilities(OwnGCN):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index).softmax(dim=1)

    trained = gf.train(
        random_graph(0),
        Probabilities(),
        loss=lambda p, y: -p.gather(1, y[:, None])[:, 0].log(),
        epochs=2,
        polish_steps=0,
    )
    assert torch.isfinite(trained.theta).all()


def test_scoring_without_nodes_is_refused() -> None:
    graph = random_graph(0)
    trained = gf.train(graph, "sgc")
    with pytest.raises(gf.InputError, match="no node to score: the mask is empty"):
        trained.micro_f1(graph, nobody(graph))
    everybody_trains = dataclasses.replace(
        graph, train_mask=graph.train_mask | graph.test_mask, test_mask=nobody(graph)
    )
    with pytest.raises(gf.InputError, match=r"no node to score: .* Graph\.split"):
        gf.train(everybody_trains, "sgc").micro_f1(everybody_trains)


def nobody(graph: gf.Graph) -> torch.Tensor:
    return torch.zeros(graph.num_nodes, dtype=torch.bool)


@pytest.mark.parametrize(("make", "maker"), [(gf.Graph.to_pyg, "from_pyg"), (lambda graph: [graph], "from_pyg_list")])
def test_data_in_place_of_a_graph_is_answered_with_what_makes_one(make: Callable[[gf.Graph], Any], maker: str) -> None:
    with pytest.raises(gf.InputError, match=rf"which gf\.Graph\.{maker} makes of it$"):
        gf.train(make(random_graph(0)))


SCHEDULE = ("epochs", "learning_rate", "polish_steps")


def schedule_of(recipe: Recipe) -> Schedule:
    return Schedule(*(getattr(recipe, name) for name in SCHEDULE))


@pytest.mark.parametrize("model", [*OTHERS, "own"])
def test_a_network_is_trained_by_the_quick_recipe_unless_the_papers_is_named(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the recipe that training would follow is looked at: the training itself is left out."""
    monkeypatch.setattr("graphforget.training.train.fit", lambda module, graph, recipe, *_, **__: stopped(recipe))
    entry = OWN_MODEL if model == "own" else REGISTRY[model]

    def asked(**given: Any) -> Schedule:
        with pytest.raises(Stopped) as caught:
            gf.train(random_graph(0), OwnGCN() if model == "own" else model, **given)
        return schedule_of(caught.value.recipe)

    quick, paper = entry.schedule("quick"), present(entry.paper)
    assert asked() == asked(recipe="quick") == quick
    assert asked(recipe="paper") == paper == entry.schedule("paper")
    assert quick.epochs + 2 * quick.polish_steps < 0.55 * (paper.epochs + 2 * paper.polish_steps)
    own: dict[str, Any] = {"epochs": 7, "learning_rate": 0.5, "polish_steps": 2}
    for name, value in own.items():
        assert asked(recipe="paper", **{name: value}) == dataclasses.replace(paper, **{name: value})
    assert asked(**own) == Schedule(**own)


class Stopped(Exception):
    def __init__(self, recipe: Recipe) -> None:
        super().__init__("the test needs no training")
        self.recipe = recipe


def stopped(recipe: Recipe) -> NoReturn:
    raise Stopped(recipe)


@pytest.mark.parametrize("model", ["sgc", "sharded-gcn"])
def test_the_papers_recipe_changes_nothing_for_convex_models_and_shards(model: str) -> None:
    graph = random_graph(0, nodes=40, edges=60)
    options: dict[str, Any] = {"shards": 2, "hidden": 3} if "sharded" in model else {}
    quick, paper = (gf.train(graph, model, recipe=recipe, **options) for recipe in ("quick", "paper"))
    assert quick.recipe == paper.recipe
    assert torch.equal(quick.theta, paper.theta)


def test_the_papers_schedules() -> None:
    """They belong to the tables in docs/results, so they stay as they are."""
    assert {name: dataclasses.astuple(present(REGISTRY[name].paper)) for name in ("gcn", "gat", "gin")} == {
        "gcn": (300, 0.01, 100),
        "gat": (300, 0.01, 20),
        "gin": (200, 0.01, 3),
    }


def test_progress_is_reported(patients: gf.Graph) -> None:
    seen: list[tuple[str, int, int]] = []
    gf.train(patients, "gcn", epochs=3, polish_steps=2, progress=lambda *step: seen.append(step))
    assert ("Adam", 3, 3) in seen
    assert seen[-1] == ("polish", 2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "cs", "physics"])
@pytest.mark.usefixtures("raw_data")
def test_certifiable_models_reach_their_tolerance_on_the_five_datasets(name: str) -> None:
    graph = gf.load(name)
    trained = gf.train(graph, "sgc")
    assert trained.converged
    assert trained.residual <= 1e-3
    assert trained.micro_f1(graph) > {"cora": 0.85, "citeseer": 0.73, "pubmed": 0.86, "cs": 0.91, "physics": 0.94}[name]


@pytest.mark.parametrize(
    ("epsilon", "ratios"), [(1e-200, (0.0,)), (1e-200, (1.0,)), (1e-150, (1e50,)), (1.0, (1e200,))]
)
def test_releases_left_of_extreme_numbers(epsilon: float, ratios: tuple[float, ...]) -> None:
    """As a hostile run.json may hold them."""
    recipe = gf.train(random_graph(3, nodes=40, edges=60), "sgc").recipe
    extreme = dataclasses.replace(recipe, epsilon=epsilon, delta=min(epsilon, 1e-5))
    assert extreme.releases_left(ratios) == (0 if any(ratios) else 64)
