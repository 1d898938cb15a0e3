"""What is measured of a deletion: the attacks' scores, the per-example tests, the distances of the weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor

from graphforget.audits import attacks
from graphforget.audits.attributes import BlankedLoss, blanked_loss
from graphforget.audits.lira import LikelihoodRatio, PerExample, per_example
from graphforget.audits.populations import Case, noised
from graphforget.audits.queries import REFUSED, Answers, Queries
from graphforget.audits.rows import RETRAINED
from graphforget.errors import InputError, Refused
from graphforget.jobs.checkpoints import Checkpoint, Checkpoints
from graphforget.progress import Progress
from graphforget.training.trained import Trained, digest_of
from graphforget.unlearning.distance import Distance, distance, off_by, optimum

FEWEST = 10  # items that an attack is worth running on
TINY = 1e-6  # of the way from retrained to never changed: nearer than that is rounding


@dataclass(frozen=True)
class Position:
    """Where the audited weights themselves lie by the per-example test, 0: as retrained ones, 1: as if nothing had
    been done; and the chance that a retrained model lies that far off, to either side (by Student's t)."""

    place: float | None  # None where the test cannot even tell unchanged weights from retrained ones
    chance: float
    spread: float | None = None  # the standard deviation of retrained models, on the scale of `place`


@dataclass(frozen=True, eq=False)
class _Attack:
    """Computes the scores of one attack by its name, as `model/number/in` and `.../out`."""

    case: Case
    queries: Queries
    targets: attacks.Targets
    shadow: Answers

    def __call__(self, name: str) -> Checkpoint:
        try:
            return self._scores(name.partition(" of ")[0])
        except (InputError, Refused) as reason:  # the other attacks are worth having
            return {REFUSED: np.array(str(reason))}

    def _scores(self, name: str) -> Checkpoint:
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


class Measured:
    """The pieces of an audit, and what is computed of them."""

    def __init__(
        self,
        case: Case,
        queries: Queries,
        *,
        populations: Sequence[Checkpoint],
        again: Sequence[Answers],
        planted: Checkpoint,
        private: Trained,
        centre: Tensor,
        released: Trained,
        sigma: float,
        delta: float,
    ) -> None:
        """`again` are the answers of retrained models, the last of which is the attackers' own; `planted` those of the
        model with canaries. `centre` is what the noise of the release was to be added to."""
        self.case, self.queries, self.planted = case, queries, planted
        self.private, self.centre = private, centre
        self.sigma, self.delta = sigma, delta
        self.refusals: dict[str, str] = {}  # why attacks could not be run, by name
        self._release = digest_of(released.theta)[:16]
        self.populations = {name: np.stack([one[name] for one in populations]) for name in populations[0]}
        *self.again, self.shadow = again
        old = case.trained
        as_if = noised(old, sigma=self.sigma, seed=case.seeds("nothing", 0)[0])
        self.targets: dict[str, list[Answers]] = {
            "before": [queries.answers(old)],
            "nothing": [queries.answers(as_if)],
            RETRAINED: self.again,
            "method": [queries.answers(released)],
        }

    @property
    def models(self) -> int:
        """Of each population."""
        return len(self.populations["nothing"])

    @property
    def attackable(self) -> dict[str, int]:
        """How many items each attack has."""
        nodes, edges = self.queries.removed.numel(), self.queries.edges.shape[1]
        found = {"membership paper": nodes, "membership": nodes, "links paper": edges, "links": edges}
        return found | {"attributes": self.queries.attribute_rows.numel()}

    def attacked(self, pieces: Checkpoints, *, jobs: int, progress: Progress | None) -> dict[str, attacks.Scored]:
        names = [name for name, count in self.attackable.items() if count >= FEWEST]
        kept_as = [f"{name} of {self._release}" for name in names]
        compute = _Attack(self.case, self.queries, self.targets, self.shadow)
        found = pieces.compute(kept_as, compute, jobs=jobs, stage="attacks", progress=progress)
        several = {model: len(answers) for model, answers in self.targets.items()}
        scored = {
            name: {m: [(one[f"{m}/{k}/in"], one[f"{m}/{k}/out"]) for k in range(n)] for m, n in several.items()}
            for name, one in zip(names, found, strict=True)
            if REFUSED not in one
        }
        self.refusals = {name: str(one[REFUSED]) for name, one in zip(names, found, strict=True) if REFUSED in one}
        self.refusals |= {"canaries": str(self.planted[REFUSED])} if REFUSED in self.planted else {}
        return scored | self._canaries()

    def _canaries(self) -> dict[str, attacks.Scored]:
        if "canaries" in self.refusals:
            return {}
        logits = {model: [self.planted[model]] for model in ("before", "nothing", "method")}
        logits[RETRAINED] = [answers["canaries"] for answers in self.again]
        return attacks.canaries(self.queries, {model: logits[model] for model in self.targets})

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
        against = self.populations[f"{which}{RETRAINED}"]
        nothing, method = (self.populations[f"{which}{name}"] for name in ("nothing", "method"))
        pairs = {"before": (self.populations["nothing"], against), "nothing": (nothing, against)}
        pairs |= {RETRAINED: (against[::2], against[1::2]), "method": (method, against)}
        return {name: per_example(*pair, delta=self.delta) for name, pair in pairs.items()}

    @property
    def position(self) -> Position:
        return self.positions["method"]

    @functools.cached_property
    def positions(self) -> dict[str, Position]:
        """Of the release, and of weights that were not changed: whether the test would have flagged them."""
        ratio = LikelihoodRatio.fit(self.populations["released nothing"], self.populations[f"released {RETRAINED}"])

        def joint(answers: Answers) -> float:
            logits = torch.from_numpy(answers["full"])
            return float(ratio.joint(self.queries.items.values(logits, self.case.graph.y)))

        again = np.array([joint(answers) for answers in self.again])
        whole = joint(self.targets["nothing"][0]) - again.mean()
        deviation = max(float(again.std(ddof=1)), TINY * abs(whole))
        error = deviation * np.sqrt(1 + 1 / len(again))
        result = {}
        for model in ("nothing", "method"):
            far = joint(self.targets[model][0]) - again.mean()
            chance = float(2 * student.sf(abs(far) / error, len(again) - 1)) if error else 1.0
            shown = whole > 0
            result[model] = Position(
                float(far / whole) if shown else None, chance, float(deviation / whole) if shown else None
            )
        return result

    def distances(self) -> dict[str, Distance]:
        """Of what the noise was added to, to the optimum on the retained graph where there is one, else to the nearest
        of the retrained ones; of the old weights too, where they are of the same objective."""
        given: Any = {"sigma": self.sigma, "delta": self.delta or 1e-5}
        weights: dict[str, Tensor] = {"method": self.centre}
        if self.private.objective_noise_vector is None and (
            self.private.recipe.seed == self.case.trained.recipe.seed or not self.private.is_linearised
        ):
            weights["nothing"] = self.case.trained.theta
        if self.private.strongly_convex:
            best = optimum(self.private, self.case.retained)
            slack = off_by(self.private, self.case.retained, best)
            return {name: distance(theta, best, slack=slack, **given) for name, theta in weights.items()}
        again = [torch.from_numpy(answers["theta"]) for answers in self.again]
        same = [theta for theta in again if theta.shape == self.private.theta.shape]
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
