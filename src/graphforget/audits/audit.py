"""The audit of a deletion: attacks and measurements, compared with what was claimed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import pickle
import tempfile
import time
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphforget.audits import attacks
from graphforget.audits.attributes import BlankedLoss
from graphforget.audits.findings import Finding, findings, inconclusive_reason, notes, promised
from graphforget.audits.items import refuse_other_targets
from graphforget.audits.lira import PerExample
from graphforget.audits.measurements import Measurements, Position
from graphforget.audits.populations import ByMethod, Case, Forget, population
from graphforget.audits.power import Promise
from graphforget.audits.queries import Queries, retrained, with_canaries
from graphforget.audits.rows import Row, per_example_rows, rows_of
from graphforget.certificates.document import Certificate
from graphforget.certificates.residual import noise_centre
from graphforget.errors import InputError, Mismatch
from graphforget.graph.graph import Graph
from graphforget.jobs.checkpoints import Checkpoint, Checkpoints
from graphforget.progress import Progress
from graphforget.request.kinds import Kind
from graphforget.request.request import Request
from graphforget.training.environment import checked_device
from graphforget.training.state import digest_of
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.distance import Distance
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.registry import find
from graphforget.validation import whole_number, written_fields

CANARIES: tuple[Kind, ...] = ("nodes", "edges")
PROMISE = "promise"  # the array of epsilon and delta, beside the values of a population's model
WORLD = "world"  # in the file names of the models of the populations
PIECE_FORMAT = 2  # raised when the arrays of the checkpoints change, so that those of older versions are refused


@dataclass(frozen=True, eq=False)
class Release:
    """The result of a deletion: the private model, the released model, and what was claimed of it."""

    private: Trained
    released: Trained
    claim: Certificate

    @classmethod
    def of(cls, outcome: Outcome) -> Release:
        return cls(outcome.trained, outcome.released, outcome.certificate)


@dataclass(frozen=True, eq=False)
class Audit:
    """The results of an audit. It passed if there is no finding and a deletion that did nothing would have had one.

    `notes` give the limits of that. An audit is private: every number in it is about the deleted data.
    """

    claim: dict[str, Any]
    rows: tuple[Row, ...]
    per_example: dict[str, PerExample]  # on the private weights
    per_example_released: dict[str, PerExample]  # on the released weights
    position: Position
    distances: dict[str, Distance]
    blanked: dict[str, BlankedLoss]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    settings: dict[str, Any]
    seconds: float
    inconclusive_reason: str | None = None  # why no finding proves nothing, and how many models would be enough

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"

    @property
    def conclusive(self) -> bool:
        """Whether a deletion that did nothing would have been flagged."""
        return self.inconclusive_reason is None

    @property
    def verdict(self) -> str:
        """`refuted`, `remembers`, `passed`, or `inconclusive`: there is no finding, and there could not have been."""
        if self.findings:
            return "refuted" if any(finding.refutes for finding in self.findings) else "remembers"
        return "passed" if self.conclusive else "inconclusive"

    def to_dict(self) -> dict[str, Any]:
        """The audit as JSON numbers, strings, lists and objects. It names nobody."""
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content["blanked"] = {model: loss._asdict() for model, loss in self.blanked.items()}
        content |= {"passed": self.passed, "verdict": self.verdict, "conclusive": self.conclusive}
        content["audience"] = "private"
        return json.loads(json.dumps(content, default=written_fields, allow_nan=False))


# Longer than 50 lines because of its parameters and their documentation.
def audit(
    trained: Trained,
    graph: Graph,
    request: Request,
    *,
    after: Release | Outcome | None = None,
    method: str = "auto",
    epsilon: float | None = None,
    delta: float | None = None,
    forget: Forget | None = None,
    models: int | None = None,
    seeds: int | None = None,
    share: float = 0.9,
    seed: int = 0,
    jobs: int = 1,
    device: str = "cpu",
    folder: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Audit:
    """Audits how `trained` forgets what `request` names of `graph`.

    Populations of models are trained on part of the data and forget in the same way. They are compared with models
    that never saw the deleted data, and the release is compared with retrained models.

    Args:
        trained: The model before the deletion.
        graph: The graph before the deletion, on which the model was trained.
        request: What was deleted.
        after: The result of the deletion; by default the deletion is made now.
        method: The method of unlearning. With `after`, "auto" is the method that its certificate names.
        epsilon: The epsilon that the method is to reach, where it takes one.
        delta: The delta that the method is to reach, where it takes one.
        forget: A function that unlearns, instead of a method.
        models: The size of each population, at least 8; by default 64 if training is convex and fast, else 32.
        seeds: The number of retrained models, at least 2; by default 20 if training is convex and fast, else 5.
        share: The share of the other training nodes that a model of a population is trained on.
        seed: Decides all random draws.
        jobs: How many processes work at a time.
        device: The torch device to train on.
        folder: Where checkpoints are stored, so that a stopped audit can continue; by default a temporary folder.
            They reveal deleted data, so remove the folder together with that data.
        progress: Called with the stage, the number of finished parts and the number of all parts.
        **options: Further options of the method.

    Returns:
        The measurements, the findings and the verdict.

    Raises:
        InputError: If a parameter is not allowed, or if the request names nothing that can be audited.
        Mismatch: If `after` is not on the graph without what the request names.
        Refused: If the method refuses to unlearn.
    """
    started = time.perf_counter()
    request.resolve(graph)
    refuse_other_targets(graph, trained.items(graph).word)
    if after is not None and method.lower() == AUTO:
        method = _as_release(after).claim.method
    settings = _checked_settings(trained, method, models=models, seeds=seeds, share=share, seed=seed, jobs=jobs)
    own = {"epsilon": epsilon, "delta": delta, **options}
    own = {name: value for name, value in own.items() if value is not None}
    how = ByMethod(method, own, checked_device(device)) if forget is None else forget
    case = Case(trained, graph, request, how, share, settings["seed"], checked_device(device))
    release = _release(case, after)
    queries = _checked_queries(case)
    with ExitStack() as stack:
        path = Path(folder if folder is not None else stack.enter_context(tempfile.TemporaryDirectory()))
        weights = [trained.theta] + ([] if after is None else [release.private.theta, release.released.theta])
        pieces = Checkpoints(path, _identity(case, weights, settings | own))
        measured, promise = _measurements(case, queries, release, pieces, settings, jobs=jobs, progress=progress)
        scored = measured.attack_scores(pieces, jobs=jobs, progress=progress)
    return _result(measured, scored, promise, release, settings, started)


def _checked_settings(
    trained: Trained, method: str, *, models: int | None, seeds: int | None, share: float, seed: int, jobs: int
) -> dict[str, Any]:
    """The settings of an audit, with defaults filled in."""
    fast = trained.strongly_convex and trained.composite is None
    models = (64 if fast else 32) if models is None else whole_number(models, "models")
    seeds = (20 if fast else 5) if seeds is None else whole_number(seeds, "seeds")
    if models < 8 or seeds < 2:
        raise InputError(f"{models} models and {seeds} seeds are too few, at least 8 and 2 are needed")
    if not 0 < share <= 1:
        raise InputError(f"the share is {share}, it must be above 0 and up to 1")
    if whole_number(jobs, "jobs") < 1:
        raise InputError("at least 1 job is needed")
    return {"method": method, "models": models, "seeds": seeds, "share": share, "seed": whole_number(seed, "seed")}


def _checked_queries(case: Case) -> Queries:
    queries = Queries.of(case, canaries=_canary_kinds(case.forget))
    if not len(queries.items):
        raise InputError("the request names no labelled training node or edge of one, so there is nothing to audit")
    if not queries.outsiders.numel():
        raise InputError("the graph has no test node to compare removed ones with")
    return queries


def _measurements(
    case: Case,
    queries: Queries,
    release: Release,
    pieces: Checkpoints,
    settings: dict[str, Any],
    *,
    jobs: int,
    progress: Progress | None,
) -> tuple[Measurements, Promise | None]:
    """Computes the pieces; gives the measurements and the weakest claim of the populations."""
    models, seeds = settings["models"], settings["seeds"]
    sigma = release.claim.sigma or 0.0
    names = ["canaries"] + [f"retrained-{k}" for k in range(seeds + 1)] + [f"{WORLD}-{k}" for k in range(models)]
    planted, *others = pieces.compute(
        names, _Work(case, queries, sigma=sigma), jobs=jobs, stage="models", progress=progress
    )
    populations = others[seeds + 1 :]
    measured = Measurements(
        case,
        queries,
        populations=populations,
        retrained=others[: seeds + 1],
        planted=planted,
        private=release.private,
        centre=noise_centre(release.private, case.retained, centred=release.claim.claim.centred),
        released=release.released,
        sigma=sigma,
        delta=release.claim.delta or 0.0,
    )
    return measured, _weakest_promise(populations)


def _result(
    measured: Measurements,
    scored: dict[str, attacks.Scored],
    promise: Promise | None,
    release: Release,
    settings: dict[str, Any],
    started: float,
) -> Audit:
    claim, distances = release.claim, measured.distances()
    return Audit(
        claim={"level": claim.level, "epsilon": claim.epsilon, "delta": claim.delta, "sigma": claim.sigma},
        rows=tuple(_rows(measured, scored, seed=settings["seed"])),
        per_example=measured.per_example,
        per_example_released=measured.per_example_released,
        position=measured.position,
        distances=distances,
        blanked=measured.blanked(),
        findings=tuple(findings(measured, claim, promise, release.released, distances)),
        notes=tuple(notes(measured, claim, promise)),
        settings=settings | {"items": len(measured.queries.items)},
        seconds=time.perf_counter() - started,
        inconclusive_reason=inconclusive_reason(measured, claim, promise, distances),
    )


@dataclass(frozen=True, eq=False)
class _Work:
    """Computes a piece by its name."""

    case: Case
    queries: Queries
    sigma: float

    def __call__(self, name: str) -> Checkpoint:
        kind, _, number = name.partition("-")
        if kind == WORLD:
            values, outcome = population(self.case, self.queries.items, int(number))
            promise = promised(outcome.certificate)
            return values | {PROMISE: np.array((math.nan, math.nan) if promise is None else promise)}
        if kind == "canaries":
            return with_canaries(self.case, self.queries, sigma=self.sigma)
        return retrained(self.case, self.queries, int(number), sigma=self.sigma)


def _canary_kinds(forget: Forget) -> Collection[Kind]:
    """The kinds of canaries that it can unlearn."""
    if isinstance(forget, ByMethod) and forget.method.lower() != AUTO:
        return [kind for kind in CANARIES if kind in find(forget.method).kinds]
    return CANARIES


def _as_release(after: Release | Outcome) -> Release:
    return after if isinstance(after, Release) else Release.of(after)


def _release(case: Case, after: Release | Outcome | None) -> Release:
    if after is None:
        after = case.forget(case.trained, case.graph, case.request, case.seeds("release", 0)[0])
    release = _as_release(after)
    if release.private.graph_digest != case.retained.digest:
        raise Mismatch("the model is not on the graph without what the request names")
    return release


def _identity(case: Case, weights: Iterable[Tensor], settings: dict[str, Any]) -> str:
    """A digest of everything that the checkpoints depend on."""
    try:
        forget = hashlib.sha256(pickle.dumps(case.forget)).hexdigest()
    except Exception:  # an object's own methods can raise anything
        forget = repr(case.forget)  # it has an address, so it differs in another process
    facts = [
        PIECE_FORMAT,
        case.graph.digest,
        case.request.to_dict(),
        settings,
        repr(case.forget) if isinstance(case.forget, ByMethod) else forget,
        dataclasses.asdict(case.trained.recipe),
        [digest_of(theta) for theta in weights],
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def _weakest_promise(populations: list[Checkpoint]) -> Promise | None:
    """What is promised of all models together: the largest epsilon and delta, or nothing if one has no promise."""
    epsilon, delta = np.max([piece[PROMISE] for piece in populations], axis=0)
    return None if math.isnan(epsilon) else (float(epsilon), float(delta))


def _rows(measured: Measurements, scored: dict[str, attacks.Scored], *, seed: int) -> list[Row]:
    rows = per_example_rows("per-example", measured.per_example)
    if measured.sigma:
        rows += per_example_rows("per-example, released", measured.per_example_released)
    for name, scores in scored.items():
        new = rows_of(name, scores, seed=seed)
        if name == "membership paper":
            published = attacks.published_metric(scores)
            new = [dataclasses.replace(row, published=published[row.model]) for row in new]
        rows += new
    return rows
