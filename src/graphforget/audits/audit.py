"""Does the model still remember? Attacks on a deletion and measurements of it, set against what was claimed."""

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
from graphforget.audits.lira import PerExample
from graphforget.audits.measurements import Measured, Position
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
from graphforget.training.trained import Trained, digest_of
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.distance import Distance
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.registry import find
from graphforget.validation import whole_number

CANARIES: tuple[Kind, ...] = ("nodes", "edges")
PROMISE = "promise"  # of a world, beside its values


@dataclass(frozen=True, eq=False)
class Release:
    """What came of a deletion: the private model, the one that went out, and what was claimed of it."""

    private: Trained
    released: Trained
    claim: Certificate

    @classmethod
    def of(cls, outcome: Outcome) -> Release:
        return cls(outcome.trained, outcome.released, outcome.certificate)


@dataclass(frozen=True, eq=False)
class Audit:
    """What was measured. A deletion passed if nothing was found and one that did nothing would have been flagged.

    `notes` say how much that means. It is private: every number in it is about what was deleted.
    """

    claim: dict[str, Any]
    rows: tuple[Row, ...]
    per_example: dict[str, PerExample]  # on the weights that are kept
    per_example_released: dict[str, PerExample]  # and on those that go out
    position: Position
    distances: dict[str, Distance]
    blanked: dict[str, BlankedLoss]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    settings: dict[str, Any]
    seconds: float
    inconclusive_reason: str | None = None  # why no finding would mean nothing, and how many models would do

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"

    @property
    def conclusive(self) -> bool:
        """Whether a deletion that did nothing would have been flagged."""
        return self.inconclusive_reason is None

    @property
    def verdict(self) -> str:
        """`refuted`, `remembers`, `passed`, or `inconclusive`: nothing was found, and nothing could have been."""
        if self.findings:
            return "refuted" if any(finding.refutes for finding in self.findings) else "remembers"
        return "passed" if self.conclusive else "inconclusive"

    def to_dict(self) -> dict[str, Any]:
        """JSON numbers, strings, lists and objects; nobody's name."""
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content["blanked"] = {model: loss._asdict() for model, loss in self.blanked.items()}
        content |= {"passed": self.passed, "verdict": self.verdict, "conclusive": self.conclusive}
        content["audience"] = "private"
        return json.loads(json.dumps(content, default=dataclasses.asdict, allow_nan=False))


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
    folder: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Audit:
    """Audits how `trained` forgets what `request` names of `graph`, which still holds it.

    `after` is what a deletion made of it; without it one is made now, by `method` and its `options`. (With it `auto` is
    the method that its certificate names.) Populations of `models` models (64 where training is convex and fast, else
    32) are trained on a `share` of the other training nodes and made to forget in the same way, or by any `forget`;
    `seeds` retrained models (20 or 5) are what the release is compared with. `jobs` processes work at a time.

    Finished pieces stay in `folder`, and an audit that was stopped goes on there; they tell of the deleted data, so
    remove them with it.
    """
    started = time.perf_counter()
    request.resolve(graph)
    fast = trained.strongly_convex
    models = (64 if fast else 32) if models is None else whole_number(models, "models")
    seeds = (20 if fast else 5) if seeds is None else whole_number(seeds, "seeds")
    if models < 8 or seeds < 2:
        raise InputError(f"{models} models and {seeds} seeds are too few, at least 8 and 2 are needed")
    if not 0 < share <= 1:
        raise InputError(f"the share is {share}, it must lie above 0 and up to 1")
    if whole_number(jobs, "jobs") < 1:
        raise InputError("at least 1 job is needed")
    if after is not None and method.lower() == AUTO:
        method = (after.claim if isinstance(after, Release) else after.certificate).method
    asked = {
        name: value for name, value in {"epsilon": epsilon, "delta": delta, **options}.items() if value is not None
    }
    forget_method = ByMethod(method, asked) if forget is None else forget
    case = Case(trained, graph, request, forget_method, share, whole_number(seed, "seed"))
    release = _release(case, after)
    queries = Queries.of(case, canaries=_forgettable(forget_method))
    if not len(queries.items):
        raise InputError("the request names nothing that a training loss is of, so there is nothing to audit")
    if not queries.outsiders.numel():
        raise InputError("the graph has no test node to compare removed ones with")
    settings = {"method": method, "models": models, "seeds": seeds, "share": share, "seed": seed}
    sigma = release.claim.sigma or 0.0
    with ExitStack() as stack:
        place = folder if folder is not None else stack.enter_context(tempfile.TemporaryDirectory())
        known = () if after is None else (release.private.theta, release.released.theta)
        pieces = Checkpoints(Path(place), _identity(case, (trained.theta, *known), settings | asked))
        names = ["canaries"] + [f"retrained-{k}" for k in range(seeds + 1)] + [f"world-{k}" for k in range(models)]
        work = _Work(case, queries, sigma=sigma)
        planted, *others = pieces.compute(names, work, jobs=jobs, stage="models", progress=progress)
        again, population_values = others[: seeds + 1], others[seeds + 1 :]
        measured = Measured(
            case,
            queries,
            populations=population_values,
            again=again,
            planted=planted,
            private=release.private,
            centre=noise_centre(release.private, case.retained, centred=release.claim.claim.centred),
            released=release.released,
            sigma=sigma,
            delta=release.claim.delta or 0.0,
        )
        scored = measured.attacked(pieces, jobs=jobs, progress=progress)
        rows = _rows(measured, scored, seed=case.seed)
        distances, promise = measured.distances(), _loosest(population_values)
        claim = release.claim
        return Audit(
            claim={"level": claim.level, "epsilon": claim.epsilon, "delta": claim.delta, "sigma": claim.sigma},
            rows=tuple(rows),
            per_example=measured.kept,
            per_example_released=measured.released,
            position=measured.position,
            distances=distances,
            blanked=measured.blanked(),
            findings=tuple(findings(measured, claim, promise, release.released, distances)),
            notes=tuple(notes(measured, claim, promise)),
            settings=settings | {"items": len(queries.items)},
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
        if kind == "world":
            values, outcome = population(self.case, self.queries.items, int(number))
            promise = promised(outcome.certificate)
            return values | {PROMISE: np.array((math.nan, math.nan) if promise is None else promise)}
        if kind == "canaries":
            return with_canaries(self.case, self.queries, sigma=self.sigma)
        return retrained(self.case, self.queries, int(number), sigma=self.sigma)


def _forgettable(forget_method: Forget) -> Collection[Kind]:
    """The kinds of canaries that it can be told to forget."""
    if isinstance(forget_method, ByMethod) and forget_method.method.lower() != AUTO:
        return [kind for kind in CANARIES if kind in find(forget_method.method).kinds]
    return CANARIES


def _release(case: Case, after: Release | Outcome | None) -> Release:
    if after is None:
        after = case.forget(case.trained, case.graph, case.request, case.seeds("release", 0)[0])
    release = after if isinstance(after, Release) else Release.of(after)
    if release.private.graph_digest != case.retained.digest:
        raise Mismatch("the model was not left on the graph without what the request names")
    return release


def _identity(case: Case, weights: Iterable[Tensor], settings: dict[str, Any]) -> str:
    """What finished pieces belong to."""
    try:
        forget_method = hashlib.sha256(pickle.dumps(case.forget)).hexdigest()
    except Exception:  # pickle raises whatever an object's own methods do
        forget_method = repr(case.forget)  # with its address: never the same in another process
    facts = [
        case.graph.digest,
        case.request.to_dict(),
        settings,
        repr(case.forget) if isinstance(case.forget, ByMethod) else forget_method,
        dataclasses.asdict(case.trained.recipe),
        [digest_of(theta) for theta in weights],
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def _loosest(populations: list[Checkpoint]) -> Promise | None:
    """What is promised of a mixture of worlds: the largest epsilon and delta of any, or nothing if one has none."""
    epsilon, delta = np.max([piece[PROMISE] for piece in populations], axis=0)
    return None if math.isnan(epsilon) else (float(epsilon), float(delta))


def _rows(measured: Measured, scored: dict[str, attacks.Scored], *, seed: int) -> list[Row]:
    rows = per_example_rows("per-example", measured.kept)
    if measured.sigma:
        rows += per_example_rows("per-example, released", measured.released)
    for name, of in scored.items():
        found = rows_of(name, of, seed=seed)
        if name == "membership paper":
            published = attacks.published_metric(of)
            found = [dataclasses.replace(row, published=published[row.model]) for row in found]
        rows += found
    return rows
