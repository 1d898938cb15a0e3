"""Several methods on one graph, one split and one request, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphforget.certificates.levels import Level
from graphforget.ensembles.partition import PARTITIONS
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.models.registry import MODELS
from graphforget.models.schedules import RECIPES
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.training.score_names import SCORES
from graphforget.training.train import train
from graphforget.training.trained import Trained
from graphforget.unlearning.distance import optimum
from graphforget.unlearning.outcome import Outcome, PrivacyTarget
from graphforget.unlearning.registry import UTU, all_methods
from graphforget.unlearning.unlearn import unlearn

NO_OP = "no_op"  # the old weights on the retained graph: the baseline that every method has to beat
UNCHANGED = {
    NO_OP: "the old weights on the retained graph",
    UTU: "Unlink-to-Unlearn: the old weights, which hold what they learned from the edges",
}
RETRAIN = "retrain"
OWN_MODELS = ("cgu", "scalegun")  # methods with a model of their own name, in place of SGC
SHARDED = "sharded-"
ALIASES = {"nothing": NO_OP}  # the name in earlier versions


@dataclass(frozen=True)
class Contender:
    """A method and the model that it is shown on."""

    method: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)  # of the model

    @property
    def label(self) -> str:
        return f"{self.method} {self.options['partition']}" if "partition" in self.options else self.method


@dataclass(frozen=True)
class ComparisonRow:
    """The measurements of one method. A field is None if it could not be measured."""

    method: str
    model: str
    level: Level | None = None
    epsilon: float | None = None
    seconds: float | None = None  # of the request, everything counted but the audit of assumptions
    train_seconds: float | None = None  # of the model that it started from
    score: str = "micro_f1"  # the name of the score: "r2" for values
    f1: float | None = None  # this score of the private weights on the test nodes
    f1_released: float | None = None  # and of the released ones, with their noise
    agreement: float | None = None  # share of test predictions that are those of the retrained model; no values
    distance: float | None = None  # of the private weights to the optimum if it is unique, else to the retrained ones
    note: str = ""


def contenders(model: str, methods: Sequence[str] | None = None, *, shards: int = 10) -> list[Contender]:
    """The methods, each on the model that it needs to stand for `model`: itself, its shards, or CGU's own SGC."""
    if model not in MODELS or model.startswith(SHARDED) or model in OWN_MODELS:
        bases = ", ".join(name for name in MODELS if not name.startswith(SHARDED) and name not in OWN_MODELS)
        raise InputError(f"model {model!r} cannot be compared on, only {bases}")
    possible = {name: _contenders_of(name, model, shards=shards) for name in (*UNCHANGED, *all_methods())}
    possible = {name: entries for name, entries in possible.items() if entries}
    names = [name for name in possible if name != UTU] if methods is None else [_canonical(name) for name in methods]
    unknown = [name for name in names if name not in possible]
    if unknown:
        raise InputError(f"method {unknown[0]!r} cannot be compared on {model!r}, only {', '.join(possible)}")
    others = [contender for name in names if name != RETRAIN for contender in possible[name]]
    return [*possible[RETRAIN], *others]


def _canonical(name: str) -> str:
    lowered = str(name).lower()
    return ALIASES.get(lowered, lowered)


def _contenders_of(method: str, model: str, *, shards: int) -> list[Contender]:
    """One method on the model that it needs; empty if it supports no model of this kind."""
    if method == "grapheraser":
        partitions = PARTITIONS if SHARDED + model in MODELS else ()
        return [Contender(method, SHARDED + model, {"shards": shards, "partition": name}) for name in partitions]
    if method in OWN_MODELS:
        return [Contender(method, method)] if model == "sgc" else []
    return [Contender(method, model)] if method != "newton" or MODELS[model].affine else []


# Longer than 50 lines because of its signature and its documentation.
def compare(
    graph: Graph,
    model: str,
    request: Request,
    *,
    methods: Sequence[str] | None = None,
    seed: int = 0,
    shards: int = 10,
    recipe: str = RECIPES[0],
    epochs: int | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Iterator[ComparisonRow]:
    """Runs the methods one after the other and yields a row for each, retraining first.

    All methods are measured against the same retrained model. It is trained on the retained graph from the same
    initial weights. `agreement` compares the predictions on the test nodes. `distance` is the distance of the weights
    to the optimum if the objective has only one (for `cgu` with its own noise), and to the retrained weights otherwise.
    Sharded models have no distance. The training of a network is unstable: even a very small deletion changes its
    weights, so compare the distance with that of the row `no_op`. If a method cannot answer the request, the note of
    its row gives the reason.

    Args:
        graph: The graph, with test nodes.
        model: The name of a built-in model.
        request: The request that every method answers.
        methods: Names of methods; "no_op" stands for the old weights, and so does "utu" for edges. By default all
            that support the model, without "utu".
        seed: The seed of training and of retraining.
        shards: The number of shards of GraphEraser.
        recipe: How long networks are trained, "quick" or "paper"; see `train`.
        epochs: Epochs of Adam, for models that are not convex.
        epsilon: The epsilon to guarantee.
        delta: The delta to guarantee.
        device: The torch device to compute on.
        progress: A function that is called with a stage, the steps done and their total.

    Yields:
        One `ComparisonRow` for each method, as soon as it is measured.

    Raises:
        InputError: The arguments do not fit together, or a method cannot be compared on this model.
        Refused: Retraining, the reference of all rows, was refused.
    """
    if not graph.test_mask.any():
        raise InputError("there is no test node to compare on")
    request.resolve(graph)
    PrivacyTarget(epsilon=epsilon, delta=delta)
    computing: dict[str, Any] = {"device": device, "progress": progress}
    target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, **computing}
    trained: dict[tuple[str, str], Trained] = {}
    reference: Trained | None = None
    for contender in contenders(model.lower(), methods, shards=shards):
        key = (contender.model, str(contender.options))
        row = ComparisonRow(contender.label, contender.model)
        try:
            if key not in trained:
                trained[key] = _train(graph, contender, seed=seed, recipe=recipe, epochs=epochs, **computing)
            start = trained[key]
            row = dataclasses.replace(row, train_seconds=start.seconds)
            if contender.method == UTU and set(request.kinds) != {"edges"}:
                raise InputError("method 'utu' cannot forget anything but edges")
            outcome = _outcome(start, graph, request, contender.method, seed=seed, target=target)
        except (InputError, Refused) as reason:
            if reference is None:
                raise
            yield dataclasses.replace(row, note=str(reason))
            continue
        after = start if outcome is None else outcome.trained
        retained = graph.without(request) if outcome is None else outcome.graph
        reference = after if reference is None else reference
        yield dataclasses.replace(
            row,
            **_certified(outcome, contender.method),
            **_measured(after, reference, retained),
            f1_released=_released_f1(outcome),
        )


def _train(graph: Graph, contender: Contender, *, epochs: int | None, **settings: Any) -> Trained:
    own: dict[str, Any] = {} if epochs is None or MODELS[contender.model].affine else {"epochs": epochs}
    return train(graph, contender.model, **settings, **contender.options, **own)


def _outcome(
    start: Trained, graph: Graph, request: Request, method: str, *, seed: int, target: dict[str, Any]
) -> Outcome | None:
    if method in UNCHANGED:
        return None
    # Retraining starts from the same initial weights as before: else a distance would be one between two draws of them.
    own_seed = seed if method == RETRAIN else None
    return unlearn(start, graph, request, method=method, level="empirical", seed=own_seed, **target)


def _certified(outcome: Outcome | None, method: str) -> dict[str, Any]:
    """The guarantee and the time of an outcome, with a note."""
    if outcome is None:
        return {"note": UNCHANGED[method]}
    certificate = outcome.certificate
    note = "a condition of its claim does not hold" if certificate.claim.void else "; ".join(outcome.notes[:1])
    return {"level": outcome.level, "epsilon": certificate.epsilon, "seconds": outcome.seconds, "note": note}


def _measured(model: Trained, reference: Trained, graph: Graph) -> dict[str, Any]:
    return {
        "score": SCORES[model.score_kind(graph)][0],
        "f1": next(iter(model.scores(graph).values())),
        "agreement": _agreement(model, reference, graph),
        "distance": _distance(model, reference, graph),
    }


def _released_f1(outcome: Outcome | None) -> float | None:
    return None if outcome is None else next(iter(outcome.released.scores(outcome.graph).values()))


def _agreement(model: Trained, reference: Trained, graph: Graph) -> float | None:
    mask, kind = model.items(graph).test_mask, model.score_kind(graph)
    if kind == "values":
        return None
    logits = [trained.logits(graph)[mask] for trained in (model, reference)]
    first, second = (each.argmax(dim=1) if kind == "classes" else each > 0 for each in logits)
    return float((first == second).double().mean())


def _distance(model: Trained, reference: Trained, graph: Graph) -> float | None:
    if model.strongly_convex:
        return float((model.theta - optimum(model, graph)).norm())
    same = model.recipe.model == reference.recipe.model and model.theta.shape == reference.theta.shape
    return float((model.theta - reference.theta).norm()) if same else None
