"""Does the model still remember? Attacks on a deletion and measurements of it, set against what was claimed."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student

from graphforget.audits import attacks
from graphforget.audits.attributes import BlankedLoss, blanked_loss
from graphforget.audits.distance import TIGHT, Distance, distance, optimum
from graphforget.audits.epsilon import largest_auc
from graphforget.audits.lira import LikelihoodRatio, PerExample, per_example
from graphforget.audits.queries import Answers, Queries, retrained, with_canaries
from graphforget.audits.rows import RETRAINED, Row, per_example_rows, rows_of
from graphforget.audits.worlds import ByMethod, Case, Forget, noised, world
from graphforget.certificates.claim import Claim
from graphforget.checks import whole_number
from graphforget.errors import InputError, Mismatch
from graphforget.fitting import Progress
from graphforget.graph import Graph
from graphforget.pieces import Piece, Pieces
from graphforget.request import Request
from graphforget.trained import Trained
from graphforget.unlearning.outcome import Outcome

FEWEST = 10  # items that an attack is worth running on
UNLIKELY = 1e-3  # below this chance of a retrained model looking as the audited one does, it is flagged


@dataclass(frozen=True, eq=False)
class Release:
    """What came of a deletion: the private model, the one that went out, and what was claimed of it."""

    private: Trained
    released: Trained
    claim: Claim

    @classmethod
    def of(cls, outcome: Outcome) -> Release:
        return cls(outcome.trained, outcome.released, outcome.certificate)


@dataclass(frozen=True)
class Position:
    """Where the audited weights themselves lie by the per-example test, 0: as retrained ones, 1: as if nothing had
    been done; and the chance that a retrained model lies that far off."""

    place: float
    chance: float


@dataclass(frozen=True)
class Finding:
    """Something that an honest deletion does not show: it `refutes` the claim, or shows a memory that none denied."""

    refutes: bool
    told: str


@dataclass(frozen=True, eq=False)
class Audit:
    """What was measured. `findings` is empty where the deletion passed; `notes` say how much that means."""

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

    @property
    def passed(self) -> bool:
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """JSON numbers, strings, lists and objects; nobody's name."""
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content["passed"] = self.passed
        return json.loads(json.dumps(content, default=_plain))


def _plain(value: Any) -> Any:
    return value._asdict() if hasattr(value, "_asdict") else dataclasses.asdict(value)


def audit(
    trained: Trained,
    graph: Graph,
    request: Request,
    *,
    after: Release | Outcome | None = None,
    method: str = "auto",
    epsilon: float = 1.0,
    delta: float = 1e-5,
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

    `after` is what a deletion made of it; without it one is made now, by `method` and its `options`. Populations of
    `models` models (64 where training is convex and fast, else 32) are trained on a `share` of the other training
    nodes and made to forget in the same way, or by any `forget`; `seeds` retrained models (20 or 5) are what the
    release is compared with. Finished pieces stay in `folder`, and an audit that was stopped goes on there; they tell
    of the deleted data, so remove them with it. `jobs` processes work at a time.
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
    asked = {"epsilon": epsilon, "delta": delta, **options}
    way = ByMethod(method, asked) if forget is None else forget
    case = Case(trained, graph, request, way, share, whole_number(seed, "seed"))
    release = _release(case, after)
    queries = Queries.of(case)
    if not len(queries.items):
        raise InputError("the request names nothing that a training loss is of, so there is nothing to audit")
    if not queries.outsiders.numel():
        raise InputError("the graph has no test node to compare removed ones with")
    settings = {"method": method, "models": models, "seeds": seeds, "share": share, "seed": seed}
    with ExitStack() as stack:
        place = folder if folder is not None else stack.enter_context(tempfile.TemporaryDirectory())
        pieces = Pieces(Path(place), _identity(case, release, settings | asked))
        work = _Work(case, queries, sigma=release.claim.sigma or 0.0)
        names = [f"retrained-{k}" for k in range(seeds + 1)] + ["canaries"] + [f"world-{k}" for k in range(models)]
        pieces.compute(names, work, jobs=jobs, stage="models", progress=progress)
        measured = _Measured(case, queries, release, pieces, models=models, seeds=seeds)
        scored = measured.attacked(jobs=jobs, progress=progress)
    return _judged(measured, scored, settings, started)


@dataclass(frozen=True, eq=False)
class _Work:
    """Computes a piece by its name."""

    case: Case
    queries: Queries
    sigma: float

    def __call__(self, name: str) -> Piece:
        kind, _, number = name.partition("-")
        if kind == "world":
            return world(self.case, self.queries.items, int(number))
        if kind == "canaries":
            return with_canaries(self.case, self.queries, sigma=self.sigma)
        return retrained(self.case, self.queries, int(number), sigma=self.sigma)


@dataclass(frozen=True, eq=False)
class _Attack:
    """Computes the scores of one attack by its name, as `model/number/in` and `.../out`."""

    case: Case
    queries: Queries
    targets: attacks.Targets
    shadow: Answers

    def __call__(self, name: str) -> Piece:
        kind, _, protocol = name.partition(" ")
        way: Any = "paper" if protocol else "honest"
        if kind == "membership":
            scored = attacks.membership(self.case, self.queries, self.targets, protocol=way)
        elif kind == "links":
            scored = attacks.links(self.case, self.queries, self.targets, self.shadow, protocol=way)
        else:
            scored = attacks.attributes(self.queries, self.targets)
        return {
            f"{model}/{k}/{side}": values
            for model, several in scored.items()
            for k, pair in enumerate(several)
            for side, values in zip(("in", "out"), pair, strict=True)
        }


class _Measured:
    """The pieces of an audit, and what is computed of them."""

    def __init__(
        self, case: Case, queries: Queries, release: Release, pieces: Pieces, *, models: int, seeds: int
    ) -> None:
        self.case, self.queries, self.release, self.pieces = case, queries, release, pieces
        worlds = [pieces.get(f"world-{k}") for k in range(models)]
        self.worlds = {name: np.stack([one[name] for one in worlds]) for name in worlds[0]}
        *self.again, self.shadow = (pieces.get(f"retrained-{k}") for k in range(seeds + 1))
        self.sigma = release.claim.sigma or 0.0
        old = case.trained
        as_if = noised(old, sigma=self.sigma, seed=case.seeds("nothing", 0)[0])
        self.targets: dict[str, list[Answers]] = {
            "before": [queries.answers(old)],
            "nothing": [queries.answers(as_if)],
            RETRAINED: self.again,
            "method": [queries.answers(release.released)],
        }

    @property
    def attackable(self) -> dict[str, int]:
        """How many items each attack has."""
        nodes, edges = self.queries.removed.numel(), self.queries.edges.shape[1]
        found = {"membership paper": nodes, "membership": nodes, "links paper": edges, "links": edges}
        return found | {"attributes": self.queries.attribute_rows.numel()}

    def attacked(self, *, jobs: int, progress: Progress | None) -> dict[str, attacks.Scored]:
        names = [name for name, count in self.attackable.items() if count >= FEWEST]
        compute = _Attack(self.case, self.queries, self.targets, self.shadow)
        found = self.pieces.compute(names, compute, jobs=jobs, stage="attacks", progress=progress)
        planted = self.pieces.get("canaries")
        logits = {model: [planted[model]] for model in ("before", "nothing", "method")}
        logits[RETRAINED] = [answers["canaries"] for answers in self.again]
        several = {model: len(answers) for model, answers in self.targets.items()}
        scored = {
            name: {m: [(one[f"{m}/{k}/in"], one[f"{m}/{k}/out"]) for k in range(n)] for m, n in several.items()}
            for name, one in zip(names, found, strict=True)
        }
        return scored | attacks.canaries(self.queries, {model: logits[model] for model in self.targets})

    @functools.cached_property
    def kept(self) -> dict[str, PerExample]:
        """The per-example test on the weights that the operator keeps: the sharper one, noise hides nothing from it."""
        return self._tests("")

    @functools.cached_property
    def released(self) -> dict[str, PerExample]:
        """The same on what goes out, which is what an epsilon is claimed of."""
        return self._tests("released ")

    def _tests(self, which: str) -> dict[str, PerExample]:
        """Of each population against retrained models, and of these against each other."""
        delta, seed = self.release.claim.delta or 0.0, self.case.seed
        against = self.worlds[f"{which}{RETRAINED}"]
        nothing, method = (self.worlds[f"{which}{name}"] for name in ("nothing", "method"))
        pairs = {"before": (self.worlds["nothing"], against), "nothing": (nothing, against)}
        pairs |= {RETRAINED: (against[::2], against[1::2]), "method": (method, against)}
        return {name: per_example(*pair, delta=delta, seed=seed) for name, pair in pairs.items()}

    @functools.cached_property
    def position(self) -> Position:
        ratio = LikelihoodRatio.fit(self.worlds["released nothing"], self.worlds[f"released {RETRAINED}"])

        def joint(answers: Answers) -> float:
            logits = torch.from_numpy(answers["full"])
            return float(ratio.joint(self.queries.items.values(logits, self.case.graph.y)))

        again = np.array([joint(answers) for answers in self.again])
        here, nothing = joint(self.targets["method"][0]), joint(self.targets["nothing"][0])
        spread = float(again.std(ddof=1)) * np.sqrt(1 + 1 / len(again))
        far, whole = here - again.mean(), nothing - again.mean()
        chance = float(student.sf(far / spread, len(again) - 1)) if spread else float(far <= 0)
        return Position(float(far / whole) if whole else 0.0, chance)

    def distances(self) -> dict[str, Distance]:
        """Of the private weights to the optimum on the retained graph where there is one, else to the nearest of the
        retrained ones."""
        given: Any = {"sigma": self.sigma, "delta": self.release.claim.delta or 1e-5}
        weights = {"nothing": self.case.trained.theta, "method": self.release.private.theta}
        if self.case.trained.strongly_convex:
            best = optimum(self.release.private, self.case.retained)
            return {name: distance(theta, best, slack=TIGHT, **given) for name, theta in weights.items()}
        again = [torch.from_numpy(answers["theta"]) for answers in self.again]
        same = [theta for theta in again if theta.shape == self.case.trained.theta.shape]
        nearest = {name: min((theta - one).norm() for one in same) for name, theta in weights.items() if same}
        return {name: Distance(float(found)) for name, found in nearest.items()}

    def blanked(self) -> dict[str, BlankedLoss]:
        rows = self.queries.attribute_rows
        if not rows.numel():
            return {}
        found = {}
        for model, several in self.targets.items():
            losses = [blanked_loss(torch.from_numpy(a["reduced"])[rows], self.case.graph.y[rows]) for a in several]
            found[model] = BlankedLoss(*(float(np.mean(part)) for part in zip(*losses, strict=True)))
        return found


def _release(case: Case, after: Release | Outcome | None) -> Release:
    if isinstance(after, Release):
        release = after
    else:
        outcome = case.forget(case.trained, case.graph, case.request, case.seeds("release", 0)[0])
        release = Release.of(outcome if after is None else after)
    if release.private.graph_digest != case.retained.digest:
        raise Mismatch("the model was not left on the graph without what the request names")
    return release


def _identity(case: Case, release: Release, settings: dict[str, Any]) -> str:
    """What finished pieces belong to."""
    weights = (case.trained.theta, release.private.theta, release.released.theta)
    facts = [
        case.graph.digest,
        case.request.to_dict(),
        settings,
        repr(case.forget) if isinstance(case.forget, ByMethod) else getattr(case.forget, "__qualname__", ""),
        dataclasses.asdict(case.trained.recipe),
        [hashlib.sha256(theta.numpy().tobytes()).hexdigest() for theta in weights],
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def _judged(measured: _Measured, scored: dict[str, attacks.Scored], settings: dict[str, Any], started: float) -> Audit:
    seed, claim = measured.case.seed, measured.release.claim
    rows = per_example_rows("per-example", measured.kept)
    if measured.sigma:
        rows += per_example_rows("per-example, released", measured.released)
    for name, of in scored.items():
        found = rows_of(name, of, seed=seed)
        if name == "membership paper":
            published = attacks.published_metric(of)
            found = [dataclasses.replace(row, published=published[row.model]) for row in found]
        rows += found
    distances = measured.distances()
    return Audit(
        claim={"level": claim.level, "epsilon": claim.epsilon, "delta": claim.delta, "sigma": claim.sigma},
        rows=tuple(rows),
        per_example=measured.kept,
        per_example_released=measured.released,
        position=measured.position,
        distances=distances,
        blanked=measured.blanked(),
        findings=tuple(_findings(measured, distances)),
        notes=tuple(_notes(measured)),
        settings=settings | {"items": len(measured.queries.items)},
        seconds=time.perf_counter() - started,
    )


def claimed(claim: Claim) -> tuple[float, float] | None:
    """The epsilon and delta that a claim stands for, or None where it claims nothing that could be refuted."""
    if claim.level == "exact":
        return 0.0, 0.0
    if claim.level == "empirical" or claim.refuted or claim.epsilon is None:
        return None
    return claim.epsilon, claim.delta or 0.0


def _findings(measured: _Measured, distances: dict[str, Distance]) -> list[Finding]:
    claim, test, position = measured.release.claim, measured.released["method"], measured.position
    promise = claimed(claim)
    found = []
    if promise is None:
        kept = measured.kept["method"]
        if kept.auc.low > 0.5:
            told = f"single items tell its weights from retrained ones with AUC {_interval(kept)}"
            found.append(Finding(False, f"{told}, and nothing was claimed"))
    else:
        epsilon, delta = promise
        if test.epsilon > epsilon:
            told = f"epsilon is at least {test.epsilon:.2f} (95 % confidence), and {epsilon:g} was claimed"
            found.append(Finding(True, told))
        limit = largest_auc(epsilon=epsilon, delta=delta)
        if test.auc.low > limit:
            found.append(Finding(True, f"single items tell it apart with AUC {_interval(test)}, over {limit:.3f}"))
    here = distances.get("method")
    if promise is not None and here is not None and measured.case.trained.strongly_convex:
        allowed = measured.case.trained.recipe.tolerance + TIGHT
        if claim.level == "exact" and here.distance > allowed:
            told = (
                f"the weights are {here.distance:.2g} from the retrained optimum, training stops within {allowed:.2g}"
            )
            found.append(Finding(True, told))
        if claim.level != "exact" and here.epsilon is not None and here.epsilon > promise[0]:
            told = f"the weights are {here.distance:.2g} from the retrained optimum, which implies epsilon"
            found.append(Finding(True, f"{told} {here.epsilon:.3g}, and {promise[0]:g} was claimed"))
    if position.chance < UNLIKELY:
        told = f"the released weights lie at {position.place:.2f} between retrained (0) and never changed (1)"
        refutes = promise is not None and claim.level != "conditional"
        found.append(Finding(refutes, f"{told}, a chance of {position.chance:.1g} for retrained ones"))
    return found


def _notes(measured: _Measured) -> list[str]:
    few = {name: n for name, n in measured.attackable.items() if 0 < n < FEWEST and not name.endswith(" paper")}
    notes = [f"the attack {name!r} was left out, with {n} item(s) to go by" for name, n in few.items()]
    if measured.released["nothing"].auc.low <= 0.5:
        notes.append(
            "not even unchanged weights can be told from retrained ones by single items, so passing says little here"
        )
    if not measured.kept[RETRAINED].auc.holds(0.5):
        notes.append(
            "retrained models seem to differ from retrained models, which is chance: more models would tell (--models)"
        )
    if measured.release.claim.level == "conditional" and measured.release.claim.refuted:
        notes.append("a condition of the claim does not hold, so there is no claim to refute")
    return notes


def _interval(test: PerExample) -> str:
    return f"{test.auc.value:.3f} [{test.auc.low:.3f}, {test.auc.high:.3f}]"
