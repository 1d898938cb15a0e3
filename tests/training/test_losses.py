"""Losses: torch's own become the built-in ones, class weights included, and a declared convexity is tried."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import graphforget as gf
from cases import OwnGCN, random_graph
from graphforget.models.fixed import SGC
from graphforget.training.losses import (
    CrossEntropy,
    Loss,
    OneVsRest,
    as_loss,
    assumed_convex,
    captured_by_loss,
    is_convex,
    is_recorded,
)

WEIGHTS = (0.5, 2.0, 0.1 + 0.2)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"weight": WEIGHTS},
    {"label_smoothing": 0.1},
    {"weight": WEIGHTS, "label_smoothing": 0.3},
    {"weight": (0.0, 1.0, 7.0), "label_smoothing": 1.0},
]
CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}


def draws(rows: int, classes: int = 3, *, seed: int = 0) -> Tensor:
    return torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def of_torch(
    weight: tuple[float, ...] | None = None, label_smoothing: float = 0.0
) -> Callable[[Tensor, Tensor], Tensor]:
    return functools.partial(
        functional.cross_entropy,
        weight=None if weight is None else torch.tensor(weight, dtype=torch.float64),
        label_smoothing=label_smoothing,
        reduction="none",
    )


# -- cross-entropy with weights and smoothing --------------------------------------------------------------------------


@pytest.mark.parametrize("given_settings", SETTINGS)
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_values_gradient_and_curvature_are_those_of_torch(given_settings: dict[str, Any], scale: float) -> None:
    loss, theirs, labels = CrossEntropy(**given_settings), of_torch(**given_settings), torch.arange(9) % 3
    logits = scale * draws(9)
    torch.testing.assert_close(loss(logits, labels), theirs(logits, labels), **CLOSE)
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(theirs(leaf, labels).sum(), leaf)
    torch.testing.assert_close(loss.gradient(logits, labels), gradient, **CLOSE)
    torch.testing.assert_close(Loss.gradient(loss, logits, labels), gradient, **CLOSE)
    dense = torch.autograd.functional.hessian(lambda z: theirs(z.view(9, 3), labels).sum(), logits.flatten())
    for seed in range(3):
        u = draws(9, seed=seed)
        torch.testing.assert_close(loss.curvature(logits, labels)(u).flatten(), dense @ u.flatten(), **CLOSE)


def random_settings(classes: int, seed: int) -> dict[str, Any]:
    drawn = torch.rand(classes + 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weight = (drawn[:classes] * 3).square() if drawn[-1] < 0.7 else None
    return {"weight": weight, "label_smoothing": float(drawn[-2]) if seed % 3 else 0.0}


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 10.0, 1e3]), classes=st.integers(2, 6))
def test_smoothness_and_steepness_bound_the_derivatives(seed: int, scale: float, classes: int) -> None:
    loss, labels = CrossEntropy(**random_settings(classes, seed)), torch.arange(30) % classes
    logits = scale * draws(30, classes, seed=seed)
    assert float(loss.gradient(logits, labels).norm(dim=1).max()) <= loss.steepness(classes) * (1 + 1e-12)
    product = loss.curvature(logits, labels)
    columns = [product(torch.eye(classes, dtype=torch.float64)[c].expand(30, -1)) for c in range(classes)]
    eigenvalues = torch.linalg.eigvalsh(torch.stack(columns, dim=2))
    assert float(eigenvalues.min()) >= -1e-12 * (1 + loss.smoothness)
    assert float(eigenvalues.max()) <= loss.smoothness * (1 + 1e-12)


@pytest.mark.parametrize("given_settings", SETTINGS)
def test_smoothness_and_steepness_are_attained(given_settings: dict[str, Any]) -> None:
    """The gradient at the corners of the simplex, the curvature where two classes share all."""
    loss, labels = CrossEntropy(**given_settings), torch.arange(9) // 3
    corners = 1e4 * torch.eye(3, dtype=torch.float64).repeat(3, 1)
    assert float(loss.gradient(corners, labels).norm(dim=1).max()) == pytest.approx(loss.steepness(3), rel=1e-12)
    halves = torch.tensor([[0.0, 0.0, -1e4]], dtype=torch.float64).repeat(3, 1)
    u = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64).repeat(3, 1) / math.sqrt(2)
    largest = float((u * loss.curvature(halves, torch.arange(3))(u)).sum(dim=1).max())
    assert largest == pytest.approx(loss.smoothness, rel=1e-12)


def test_extreme_logits_leave_it_finite() -> None:
    loss, labels = CrossEntropy(WEIGHTS, 0.1), torch.tensor([0, 1])
    logits = torch.tensor([[1000.0, -1000.0, 1000.0], [1000.0, -1000.0, -1000.0]])
    for values in (loss(logits, labels), loss.gradient(logits, labels), loss.curvature(logits, labels)(logits)):
        assert torch.isfinite(values).all()
        assert values.dtype == torch.float32


@pytest.mark.parametrize(
    ("weight", "smoothing", "words"),
    [
        ([1.0, -1.0], 0.0, "finite numbers from 0"),
        ([1.0, float("nan")], 0.0, "finite numbers from 0"),
        ([0.0, 0.0], 0.0, "not all of them 0"),
        ([], 0.0, "finite numbers from 0"),
        (3.0, 0.0, "one number a class is needed"),
        (torch.ones(2, 2), 0.0, "one number a class is needed"),
        (None, 1.5, "label_smoothing is 1.5"),
        (None, "a", "label_smoothing is 'a'"),
    ],
)
def test_bad_weights_are_refused(weight: Any, smoothing: Any, words: str) -> None:
    with pytest.raises(gf.InputError, match=words):
        CrossEntropy(weight, smoothing)


def test_weights_of_another_number_of_classes_are_refused() -> None:
    with pytest.raises(gf.InputError, match="^the loss has weights of 2 classes, the graph has 3 classes$"):
        gf.train(random_graph(0), "sgc", loss=CrossEntropy([1.0, 2.0]))


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_settings", SETTINGS)
def test_the_name_gives_the_loss_back(given_settings: dict[str, Any]) -> None:
    loss = CrossEntropy(**given_settings)
    assert is_recorded(loss.name)
    again = as_loss(loss.name)
    assert isinstance(again, CrossEntropy)
    assert (again.weight, again.label_smoothing, again.name) == (loss.weight, loss.label_smoothing, loss.name)
    assert again.weight == given_settings.get("weight")
    assert is_convex(pickle.loads(pickle.dumps(loss)))


def test_weights_of_1_are_no_weights() -> None:
    assert CrossEntropy([1, 1, 1]).name == "cross_entropy"


@pytest.mark.parametrize(
    "name",
    [
        *("cross_entropy()", "cross_entropy(weight=[])", "cross_entropy(weight=[1])", "cross_entropy(weight=[2.0,])"),
        *("cross_entropy(weight=[nan])", "cross_entropy(weight=[2.0],)", "cross_entropy(,label_smoothing=0.1)"),
        *(
            "cross_entropy(label_smoothing=0.10)",
            "cross_entropy(label_smoothing=2.0)",
            "cross_entropy(label_smoothing=)",
        ),
        *("cross_entropy(weight=[2.0]label_smoothing=0.1)", "cross_entropy(weight=[__import__('os')])", "hinge", ""),
        *("one_vs_rest(weight=[2.0])", " cross_entropy", "cross_entropy(weight=[2.0])\n", "cross_entropy(weight=2.0)"),
    ],
)
def test_no_other_text_is_a_name(name: str) -> None:
    assert not is_recorded(name)
    with pytest.raises(gf.InputError, match="there is no loss"):
        as_loss(name)


def test_no_loss_of_ones_own_takes_such_a_name() -> None:
    name = CrossEntropy(WEIGHTS).name
    with pytest.raises(gf.InputError, match="cannot be named"):
        as_loss(Loss(lambda z, y: z[:, 0], name=name))
    altered = CrossEntropy(WEIGHTS)
    altered.weight = (9.0, 9.0, 9.0)
    assert not is_convex(altered)
    with pytest.raises(gf.InputError, match="cannot be named"):
        as_loss(altered)
    replaced = CrossEntropy()
    replaced.gradient = lambda z, y: z  # type: ignore[method-assign, assignment]
    assert not is_convex(replaced)


def test_a_subclass_is_recorded_as_a_loss_of_ones_own() -> None:
    class Mine(CrossEntropy):
        pass

    own = Mine()
    assert as_loss(own).name == "own cross_entropy"
    assert own.name == "cross_entropy"
    assert not is_recorded(as_loss(own).name)
    assert as_loss(own).convexity == "unknown"


# -- torch's loss objects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("given_settings", SETTINGS)
def test_cross_entropy_of_torch_becomes_the_built_in_one(given_settings: dict[str, Any], reduction: str) -> None:
    weight = given_settings.get("weight")
    theirs = nn.CrossEntropyLoss(
        weight=None if weight is None else torch.tensor(weight, dtype=torch.float64),
        label_smoothing=given_settings.get("label_smoothing", 0.0),
        reduction=reduction,
    )
    loss = as_loss(theirs)
    assert loss.name == CrossEntropy(**given_settings).name
    assert is_convex(loss)
    assert captured_by_loss(loss) == []


def test_float32_weights_go_with_any_model() -> None:
    """The weights are the numbers of the tensor given, whatever precision the logits have."""
    theirs = nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 2.0]), label_smoothing=0.1)
    graph = random_graph(0, nodes=30, edges=40)
    trained = gf.train(graph, "sgc", loss=theirs)
    assert trained.certifiable
    assert trained.converged
    assert f"{0.1:.6f}"[:3] in trained.recipe.loss
    losses = functional.cross_entropy(
        trained.logits(graph)[graph.train_rows],
        graph.y[graph.train_rows],
        weight=theirs.weight.double() if theirs.weight is not None else None,
        label_smoothing=0.1,
        reduction="none",
    )
    penalty = trained.recipe.mu / 2 * float(trained.theta.square().sum())
    assert trained.objective_value == pytest.approx(float(losses.mean()) + penalty, rel=1e-12)
    assert not torch.equal(trained.theta, gf.train(graph, "sgc").theta)
    assert gf.train(graph, OwnGCN(), loss=theirs, epochs=2, polish_steps=1).recipe.loss == trained.recipe.loss


def test_a_run_with_class_weights_loads_without_its_loss(tmp_path: Path) -> None:
    graph = random_graph(0, nodes=30, edges=40)
    trained = gf.train(graph, "sgc", loss=CrossEntropy(WEIGHTS, 0.1))
    gf.save_run(tmp_path / "run", trained, graph)
    loaded, _ = gf.load_run(tmp_path / "run")
    assert loaded.loss.name == trained.loss.name
    assert is_convex(loaded.loss)
    assert loaded.objective(graph).value(trained.theta) == trained.objective_value


def test_an_ignored_class_is_refused() -> None:
    with pytest.raises(gf.InputError, match="^the loss has ignore_index=1, take nodes out of train_mask instead"):
        as_loss(nn.CrossEntropyLoss(ignore_index=1))
    assert is_convex(as_loss(nn.CrossEntropyLoss(ignore_index=-1)))


def test_an_altered_object_of_torch_is_a_loss_of_ones_own() -> None:
    altered = nn.CrossEntropyLoss(reduction="none")
    altered.forward = lambda z, y: z[:, 0]  # type: ignore[method-assign, assignment]
    assert as_loss(altered).convexity == "unknown"


def test_other_losses_of_torch_are_losses_of_ones_own() -> None:
    graph = random_graph(0)
    trained = gf.train(graph, "gcn", loss=nn.MultiMarginLoss(reduction="none"), epochs=1, polish_steps=0)
    assert trained.recipe.loss == "MultiMarginLoss"
    assert captured_by_loss(trained.loss) == []
    for loss in (nn.MultiMarginLoss(), nn.NLLLoss(reduction="sum"), functional.cross_entropy):
        with pytest.raises(gf.InputError, match='one loss a node is needed, use reduction="none"$'):
            gf.train(graph, "gcn", loss=loss)
    with pytest.raises(gf.InputError, match="'logistic'"):
        gf.train(graph, "gcn", loss=nn.BCEWithLogitsLoss(reduction="none"))


COUNTS = torch.tensor([0.2, 0.3, 0.5])


def uses_counts(logits: Tensor, labels: Tensor) -> Tensor:
    return COUNTS[labels].to(logits) * functional.cross_entropy(logits, labels, reduction="none")


class Focal:
    def __init__(self, weights: object) -> None:
        self.weights = weights

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none")


@pytest.mark.parametrize(
    "function",
    [
        uses_counts,
        Focal([0.21341, 0.3]),
        Focal({"a": COUNTS}),
        functools.partial(uses_counts, labels=[0.123456]),  # type: ignore[arg-type]
        nn.NLLLoss(weight=COUNTS, reduction="none"),
        Focal(COUNTS.numpy().tobytes()),
    ],
)
def test_data_in_a_loss_of_ones_own_is_named(function: Any) -> None:
    (finding,) = captured_by_loss(as_loss(function))
    assert finding.startswith("the loss '")


@pytest.mark.parametrize("function", [Focal(2.0), Focal(None), functional.cross_entropy, lambda z, y: z[:, 0]])
def test_settings_of_a_loss_are_no_data(function: Any) -> None:
    assert captured_by_loss(as_loss(function)) == []


# -- declared convexity ------------------------------------------------------------------------------------------------


def squared(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits - functional.one_hot(labels, logits.shape[1])).square().sum(dim=1)


def saturating(logits: Tensor, labels: Tensor) -> Tensor:
    return 1 - logits.softmax(dim=1).gather(1, labels[:, None])[:, 0]


def folded(logits: Tensor, labels: Tensor) -> Tensor:
    """Not convex, and its second derivative is 0 wherever there is one."""
    return -logits[:, 0].abs()


def of_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    return -logits.gather(1, labels[:, None])[:, 0].log()


def test_convexity_is_proven_declared_or_unknown() -> None:
    cases = {"proven": CrossEntropy(WEIGHTS), "declared": gf.Loss(squared, convex=True), "unknown": gf.Loss(squared)}
    for convexity, loss in cases.items():
        assert loss.convexity == convexity
        assert is_convex(loss) == (convexity == "proven")
        assert assumed_convex(loss) == (convexity != "unknown")
    assert OneVsRest().convexity == "proven"


def test_a_class_cannot_declare_itself_convex() -> None:
    class Claims(CrossEntropy):
        declared_convex = True
        convex = True

    assert Claims().convexity == "unknown"


def test_a_declared_convex_loss_is_minimised_by_newton_and_not_called_certifiable() -> None:
    graph = random_graph(0, nodes=30, edges=40)
    trained = gf.train(graph, SGC(4, 3), loss=gf.Loss(squared, convex=True), tolerance=1e-6)
    assert trained.residual <= 1e-6
    assert trained.converged
    assert trained.strongly_convex
    assert not trained.proven_convex
    assert not trained.certifiable
    unknown = gf.train(graph, SGC(4, 3), loss=squared, epochs=1, polish_steps=0)
    assert not (unknown.strongly_convex)
    assert not (unknown.proven_convex)
    assert not (unknown.certifiable)
    assert not (unknown.converged)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (saturating, "'saturating' is declared convex and is not"),
        (folded, "'folded' is declared convex and is not"),
        (of_probabilities, "'of_probabilities' is declared convex and is not finite"),
    ],
)
def test_a_declaration_that_trials_refute_is_refused(function: Any, words: str) -> None:
    with pytest.raises(gf.InputError, match=words):
        gf.train(random_graph(0), "sgc", loss=gf.Loss(function, convex=True))


@pytest.mark.parametrize(
    "function", [squared, lambda z, y: functional.cross_entropy(z, y, reduction="none"), lambda z, y: z[:, 0].abs()]
)
def test_a_true_declaration_passes(function: Any) -> None:
    trained = gf.train(random_graph(0), "sgc", loss=gf.Loss(function, convex=True, name="mine"))
    assert (trained.strongly_convex, trained.proven_convex, trained.recipe.loss) == (True, False, "mine")


# -- half precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make_module", [OwnGCN, lambda: SGC(4, 3)])
def test_a_module_in_half_precision_is_trained_and_leaves_a_note(
    make_module: Callable[[], nn.Module], dtype: torch.dtype
) -> None:
    module = make_module().to(dtype)
    trained = gf.train(random_graph(0, nodes=30, edges=40), module, epochs=3, polish_steps=1)
    (note,) = trained.notes
    assert note.startswith(f"the module came in {str(dtype).removeprefix('torch.')}; it was trained in float32 or")
    assert trained.theta.dtype == torch.float64
    assert torch.isfinite(trained.theta).all()
    assert trained.certification_blockers == ()
    assert next(module.parameters()).dtype == dtype


def test_a_module_in_half_precision_is_linearised_at_the_same_weights() -> None:
    full, half = (gf.linearised(module, columns=4) for module in (OwnGCN(), OwnGCN().half()))
    assert torch.equal(full.origin, half.origin)


def test_no_note_without_a_reason() -> None:
    assert gf.train(random_graph(0), OwnGCN().double(), epochs=1, polish_steps=0).notes == ()
