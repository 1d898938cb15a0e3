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
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.training.train import train
from graphforget.training.trained import Trained
from graphforget.unlearning.distance import optimum
from graphforget.unlearning.outcome import Outcome, PrivacyTarget
from graphforget.unlearning.registry import METHODS, find
from graphforget.unlearning.unlearn import unlearn

NO_OP = "no_op"  # the old weights on the retained graph: what every method has to beat
CGU = "cgu"
SHARDED = "sharded-"


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
    """What came of one method. None where there is nothing to tell."""

    method: str
    model: str
    level: Level | None = None
    epsilon: float | None = None
    seconds: float | None = None  # of the request, everything counted but the audit of assumptions
    train_seconds: float | None = None  # of the model that it started from
    f1: float | None = None  # test micro-F1 of the private weights
    f1_released: float | None = None  # and of the released ones, with their noise
    agreement: float | None = None  # share of test nodes that the retrained model answers alike
    distance: float | None = None  # of the kept weights to the retrained ones; to the optimum where there is one
    note: str = ""


def contenders(model: str, methods: Sequence[str] | None = None, *, shards: int = 10) -> list[Contender]:
    """The methods, each on the model it needs to stand for `model`: itself, its shards, or CGU's own SGC."""
    if model not in MODELS or model.startswith(SHARDED) or model == CGU:
        bases = ", ".join(name for name in MODELS if not name.startswith(SHARDED) and name != CGU)
        raise InputError(f"model {model!r} cannot be compared on, only {bases}")
    chosen = [NO_OP, *(name for name in METHODS if name != "retrain")] if methods is None else list(methods)
    found: list[Contender] = []
    for name in chosen:
        method = NO_OP if name in (NO_OP, "nothing") else find(name).name
        if method == "grapheraser":
            if SHARDED + model in MODELS:
                ways: list[dict[str, Any]] = [{"shards": shards, "partition": way} for way in PARTITIONS]
                found += [Contender(method, SHARDED + model, way) for way in ways]
        elif method == CGU:
            found += [Contender(method, CGU)] if model == "sgc" else []
        elif method != "newton" or MODELS[model].affine:
            found.append(Contender(method, model))
        if methods is not None and not any(one.method == method for one in found):
            raise InputError(f"method {method!r} cannot be compared on {model!r}, it serves no model of that kind")
    return [Contender("retrain", model), *(one for one in found if one.method != "retrain")]


def compare(
    graph: Graph,
    model: str,
    request: Request,
    *,
    methods: Sequence[str] | None = None,
    seed: int = 0,
    shards: int = 10,
    epochs: int | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Iterator[ComparisonRow]:
    """Runs the methods one after the other and yields a row for each, retraining first.

    All are measured against the same retrained model, trained from the same initial weights on the retained graph:
    `agreement` is with its answers on the test nodes, `distance` to its weights. Where there is one optimum it is to
    that (for `cgu` with its own noise); for shards, whose weights have no counterpart, there is none. A network's
    training is unstable, so that even next to no deletion puts it some way off: compare with the row `no_op`. A
    method that cannot serve says so in its note.
    """
    if not graph.test_mask.any():
        raise InputError("there is no test node to compare on")
    request.resolve(graph)
    PrivacyTarget(epsilon=epsilon, delta=delta)
    given: dict[str, Any] = {"seed": seed, "device": device, "progress": progress}
    target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "device": device, "progress": progress}
    trained: dict[tuple[str, str], Trained] = {}
    reference: Trained | None = None
    for one in contenders(model.lower(), methods, shards=shards):
        key = (one.model, str(one.options))
        if key not in trained:
            own = one.options | ({} if epochs is None or MODELS[one.model].affine else {"epochs": epochs})
            trained[key] = train(graph, one.model, **given, **own)
        start = trained[key]
        row = ComparisonRow(one.label, one.model, train_seconds=start.seconds)
        try:
            outcome = _outcome(start, graph, request, one.method, seed=seed, target=target)
        except (InputError, Refused) as reason:
            if one.method == "retrain":
                raise
            yield dataclasses.replace(row, note=str(reason))
            continue
        after = start if outcome is None else outcome.trained
        retained = graph.without(request) if outcome is None else outcome.graph
        reference = after if one.method == "retrain" else reference
        assert reference is not None
        yield dataclasses.replace(
            row,
            **_told(outcome),
            f1=after.micro_f1(retained),
            f1_released=None if outcome is None else outcome.released.micro_f1(retained),
            agreement=_agreement(after, reference, retained),
            distance=_distance(after, reference, retained),
        )


def _outcome(
    start: Trained, graph: Graph, request: Request, method: str, *, seed: int, target: dict[str, Any]
) -> Outcome | None:
    if method == NO_OP:
        return None
    # Retraining starts from the same initial weights as before: else a distance would be one between two draws of them.
    own_seed = seed if method == "retrain" else None
    return unlearn(start, graph, request, method=method, level="empirical", seed=own_seed, **target)


def _told(outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {"note": "the old weights on the retained graph"}
    certificate = outcome.certificate
    note = "a condition of its claim does not hold" if certificate.claim.void else ""
    known = {"level": outcome.level, "epsilon": certificate.epsilon, "seconds": outcome.seconds}
    return known | {"note": note or "; ".join(outcome.notes[:1])}


def _agreement(model: Trained, reference: Trained, graph: Graph) -> float:
    answers = [trained.logits(graph)[graph.test_mask].argmax(dim=1) for trained in (model, reference)]
    return float((answers[0] == answers[1]).double().mean())


def _distance(model: Trained, reference: Trained, graph: Graph) -> float | None:
    if model.strongly_convex:
        return float((model.theta - optimum(model, graph)).norm())
    same = model.recipe.model == reference.recipe.model
    return float((model.theta - reference.theta).norm()) if same else None
