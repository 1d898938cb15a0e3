"""Retraining, and what the paper calls so."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphforget as gf
from cases import CLASSES, COLUMNS, OwnGCN, WithNorm, random_graph
from graphforget.models.registry import build
from graphforget.training.train import fit

SHORT: dict[str, Any] = {"epochs": 20, "polish_steps": 3}
REQUEST = gf.Request(nodes=[20], attributes={6: "all"})


@pytest.fixture(scope="module")
def graph() -> gf.Graph:
    return random_graph(3, nodes=40, edges=60)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "gat", "gin", "sgc", "sign"])
def test_it_is_what_training_on_the_retained_graph_gives(model: str, graph: gf.Graph) -> None:
    options = {} if model in ("sgc", "sign") else SHORT
    trained = gf.train(graph, model, seed=3, **options)
    outcome = gf.unlearn(trained, graph, REQUEST, method="retrain", seed=7)
    again = gf.train(graph.without(REQUEST), model, seed=7, **options)
    assert torch.equal(outcome.trained.theta, again.theta)
    assert outcome.level == ("certified" if trained.recipe.sigma else "exact")
    assert outcome.certificate.epsilon == (1.0 if trained.recipe.sigma else 0)
    assert outcome.certificate.chosen == {"method": "retrain", "seed": 7}
    assert outcome.certificate.sigma == trained.recipe.sigma == gf.MODELS[model].sigma
    assert torch.equal(outcome.released_theta, again.theta) == (not trained.strongly_convex)
    assert outcome.trained.history == ()
    assert outcome.trained.recipe.seed == 7
    assert gf.unlearn(trained, graph, REQUEST, method="retrain").trained.recipe.seed == 3


@pytest.mark.slow
def test_another_seed_is_another_network(graph: gf.Graph) -> None:
    trained = gf.train(graph, "gcn", **SHORT)
    first, second = (gf.unlearn(trained, graph, REQUEST, method="retrain", seed=s) for s in (1, 2))
    assert float((first.trained.theta - second.trained.theta).norm()) > 0.1


def test_the_papers_way_goes_on_from_the_old_weights_and_guarantees_nothing(graph: gf.Graph) -> None:
    trained = gf.train(graph, "gcn", **SHORT)
    fresh, continued = (
        gf.unlearn(trained, graph, REQUEST, method="retrain", start=start) for start in ("fresh", "continued")
    )
    assert continued.level == "empirical"
    assert gf.plan(trained, graph, REQUEST, method="retrain", start="continued").level == "empirical"
    assert "were trained on the removed data" in continued.certificate.statement
    moved = float((continued.trained.theta - trained.theta).norm())
    assert 0 < moved < 0.5 * float((fresh.trained.theta - trained.theta).norm())
    assert continued.trained.history[0].step_norm == pytest.approx(moved)
    assert continued.trained.recipe == trained.recipe  # the next retraining is at the full learning rate again


def test_continued_training_runs_at_a_hundredth_of_the_rate(graph: gf.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []

    def spied(module: nn.Module, where: gf.Graph, recipe: gf.Recipe, *rest: Any, **more: Any) -> gf.Trained:
        rates.append(recipe.learning_rate)
        return fit(module, where, recipe, *rest, **more)

    monkeypatch.setattr("graphforget.unlearning.methods.retrain.fit", spied)
    monkeypatch.setattr("graphforget.training.retraining.fit", spied)
    trained = gf.train(graph, "gcn", **SHORT)
    for start in ("fresh", "continued"):
        gf.unlearn(trained, graph, REQUEST, method="retrain", start=start)
    assert rates == [trained.recipe.learning_rate, trained.recipe.learning_rate / 100]


def test_convex_models_end_at_the_same_optimum_either_way(graph: gf.Graph) -> None:
    trained = gf.train(graph, "sgc", tolerance=1e-6)
    fresh, continued = (
        gf.unlearn(trained, graph, REQUEST, method="retrain", start=start) for start in ("fresh", "continued")
    )
    apart = float((fresh.trained.theta - continued.trained.theta).norm())
    assert apart <= fresh.trained.residual + continued.trained.residual
    assert continued.level == "empirical"


@pytest.mark.slow
def test_a_module_of_ones_own_is_reset(graph: gf.Graph) -> None:
    trained = gf.train(graph, OwnGCN(), **SHORT)
    first, second = (gf.unlearn(trained, graph, REQUEST, method="retrain", seed=1) for _ in range(2))
    assert torch.equal(first.trained.theta, second.trained.theta)
    assert first.level == "exact"
    other = gf.unlearn(trained, graph, REQUEST, method="retrain", seed=2)
    assert not torch.equal(other.trained.theta, first.trained.theta)


class Unresettable(nn.Module):
    reach = gf.Reach(0, degree_normalised=False)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(COLUMNS, CLASSES))
        self.linear = nn.Linear(COLUMNS, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x.to_dense() if x.layout == torch.sparse_csr else x
        return x @ self.weight + self.linear(x)


@pytest.mark.slow
def test_a_module_that_cannot_be_reset_has_to_be_handed_over_fresh(graph: gf.Graph) -> None:
    trained = gf.train(graph, Unresettable(), **SHORT)
    with pytest.raises(gf.Refused, match=r"^parameter 'weight' is not drawn again by any reset_parameters\(\)"):
        gf.unlearn(trained, graph, REQUEST, method="retrain")
    plan = gf.plan(trained, graph, REQUEST, method="retrain")
    assert plan.level is None
    assert plan.meaning.startswith("would be refused: parameter 'weight'")
    outcome = gf.unlearn(trained, graph, REQUEST, method="retrain", model=Unresettable)
    torch.manual_seed(0)
    again = gf.train(graph.without(REQUEST), Unresettable(), seed=0, **SHORT)
    assert torch.equal(outcome.trained.theta, again.theta)
    assert outcome.level == "exact"
    assert outcome.certificate.chosen == {"method": "retrain", "model": "Unresettable"}
    for stale in (trained.module, copy.deepcopy(trained.module).float()):
        with pytest.raises(gf.InputError, match=r"^'model' made a module whose parameter 'weight' is the trained one"):
            gf.unlearn(trained, graph, REQUEST, method="retrain", model=lambda stale=stale: stale)


class HalfReset(OwnGCN):
    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Parameter(torch.randn(2, CLASSES))

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.extra[0] = torch.randn(CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + self.extra.sum(dim=0)


@pytest.mark.slow
def test_a_parameter_that_is_reset_in_part_is_noticed(graph: gf.Graph) -> None:
    trained = gf.train(graph, HalfReset(), **SHORT)
    with pytest.raises(gf.Refused, match=r"^parameter 'extra' is not drawn again"):
        gf.unlearn(trained, graph, REQUEST, method="retrain")


@pytest.mark.slow
def test_a_built_in_model_given_as_an_instance_never_goes_on_from_its_weights(graph: gf.Graph) -> None:
    """Its class has no reset_parameters(): it is refused, not continued and called exact."""
    module = build("gcn", columns=COLUMNS, classes=CLASSES, hidden=4)
    trained = gf.train(graph, module, **SHORT)
    with pytest.raises(gf.Refused, match="is not drawn again"):
        gf.unlearn(trained, graph, REQUEST, method="retrain")
    make = functools.partial(build, "gcn", columns=COLUMNS, classes=CLASSES, hidden=4, seed=9)
    with pytest.raises(gf.InputError, match="'model' makes the same parameter 'first.weight' whatever the seed"):
        gf.unlearn(trained, graph, REQUEST, method="retrain", model=make)

    def drawn() -> nn.Module:
        return build("gcn", columns=COLUMNS, classes=CLASSES, hidden=4, seed=int(torch.randint(10**6, ())))

    assert gf.unlearn(trained, graph, REQUEST, method="retrain", model=drawn).level == "exact"
    convex = gf.train(graph, build("sgc", columns=COLUMNS, classes=CLASSES), mu=1e-4, tolerance=1e-6)
    fresh = gf.unlearn(convex, graph, REQUEST, method="retrain")
    again = gf.train(graph.without(REQUEST), "sgc", tolerance=1e-6)
    assert float((fresh.trained.theta - again.theta).norm()) <= fresh.trained.residual + again.residual


@pytest.mark.slow
def test_an_affine_model_with_a_loss_of_ones_own_does_not_go_on_from_its_weights(graph: gf.Graph) -> None:
    def squared(logits: Tensor, labels: Tensor) -> Tensor:
        return (logits - nn.functional.one_hot(labels, CLASSES).to(logits)).square().sum(dim=1)

    trained = gf.train(graph, gf.linearised(OwnGCN(), columns=COLUMNS), loss=squared, epochs=50, polish_steps=0)
    assert not trained.strongly_convex
    with pytest.raises(gf.Refused, match="is not drawn again"):
        gf.unlearn(trained, graph, REQUEST, method="retrain")


@pytest.mark.slow
def test_a_wrong_fresh_model_is_refused(graph: gf.Graph) -> None:
    own = gf.train(graph, OwnGCN(), **SHORT)
    built_in = gf.train(graph, "gcn", **SHORT)
    for trained, options, told in (
        (own, {"model": Unresettable}, "'model' made a Unresettable, a OwnGCN is needed"),
        (own, {"model": OwnGCN()}, "model is not a function that makes a fresh module"),
        (own, {"model": "gcn"}, "model is not a function that makes a fresh module"),
        (built_in, {"model": OwnGCN}, "gcn is a built-in model and is made again by itself"),
        (own, {"start": "warm"}, "the start is 'warm', it must be one of fresh, continued"),
        (own, {"start": "continued", "model": OwnGCN}, "a fresh model does not go with start='continued'"),
    ):
        with pytest.raises(gf.InputError, match=f"^{told}"):
            gf.unlearn(trained, graph, REQUEST, method="retrain", **options)


@pytest.mark.slow
def test_a_module_with_statistics_of_the_data_gets_no_guarantee(graph: gf.Graph) -> None:
    trained = gf.train(graph, WithNorm(nn.BatchNorm1d(CLASSES)), **SHORT)
    assert trained.certification_blockers
    assert gf.unlearn(trained, graph, REQUEST, method="retrain").level == "empirical"


@pytest.mark.slow
def test_a_linearised_module_of_ones_own_keeps_its_public_weights(graph: gf.Graph) -> None:
    torch.manual_seed(0)
    trained = gf.train(graph, gf.linearised(OwnGCN(), columns=COLUMNS), tolerance=1e-6, mu=1e-2)
    outcome = gf.unlearn(trained, graph, REQUEST, method="retrain")
    assert outcome.level == "certified"
    assert outcome.trained.converged
    continued = gf.unlearn(trained, graph, REQUEST, method="retrain", start="continued")
    apart = float((continued.trained.theta - outcome.trained.theta).norm())
    assert apart <= continued.trained.residual + outcome.trained.residual
