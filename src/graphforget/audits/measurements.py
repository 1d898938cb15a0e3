"""The measurements of an audit: the scores of the attacks, the per-example tests, the distances of the weights."""

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
from graphforget.audits.membership import Protocol
from graphforget.audits.plugged import plugged_attacks, plugged_scores
from graphforget.audits.populations import Case, noised
from graphforget.audits.queries import REFUSED, Answers, Queries
from graphforget.audits.rows import BEFORE, METHOD, NO_OP, RETRAINED
from graphforget.errors import InputError, Refused
from graphforget.jobs.checkpoints import Checkpoint, Checkpoints
from graphforget.progress import Progress
from graphforget.training.state import digest_of, same_tensors
from graphforget.training.trained import Trained
from graphforget.unlearning.distance import Distance, distance, optimum, optimum_distance_bound

FEWEST = 10  # items; an attack on fewer is left out
TINY = 1e-6  # of the difference between retrained and unchanged weights: a smaller one is rounding


@dataclass(frozen=True)
class Position:
    """The position of the audited weights by the per-example test: 0 is retrained, 1 is unchanged.

    `chance` is the probability that a retrained model lies that far from the mean, to either side (by Student's t).
    """

    place: float | None  # None if the test cannot distinguish unchanged weights from retrained ones
    chance: float
    spread: float | None = None  # the standard deviation of retrained models, on the scale of `place`


@dataclass(frozen=True, eq=False)
class _Attack:
    """Computes the scores of one attack by its name, as `model/number/in` and `model/number/out`."""

    case: Case
    queries: Queries
    targets: attacks.Targets
    shadow: Answers

    def __call__(self, name: str) -> Checkpoint:
        try:
            return self._scores(name.partition(" of ")[0])
        except (InputError, Refused) as reason:  # the other attacks can still be run
            return {REFUSED: np.array(str(reason))}

    def _scores(self, name: str) -> Checkpoint:
        kind, _, suffix = name.partition(" ")
        protocol: Protocol = "paper" if suffix else "honest"
        if kind == "membership":
            scored = attacks.membership(self.case, self.queries, self.targets, protocol=protocol)
        elif kind == "links":
            scored = attacks.links(self.case, self.queries, self.targets, self.shadow, protocol=protocol)
        elif kind == "attributes":
            scored = attacks.attributes(self.queries, self.targets)
        else:
            scored = plugged_scores(kind, self.case, self.queries, self.targets, self.shadow)
        return {
            f"{model}/{k}/{side}": values
            for model, pairs in scored.items()
            for k, pair in enumerate(pairs)
            for side, values in zip(("in", "out"), pair, strict=True)
        }


class Measurements:
    """The computed pieces of an audit, and the measurements that follow from them."""

    def __init__(
        self,
        case: Case,
        queries: Queries,
        *,
        populations: Sequence[Checkpoint],
        retrained: Sequence[Answers],
        planted: Checkpoint,
        private: Trained,
        centre: Tensor,
        released: Trained,
        sigma: float,
        delta: float,
    ) -> None:
        """`retrained` are the answers of retrained models, the last of which belongs to the attacker; `planted` are
        those of the model with canaries. `centre` are the weights that the noise of the release was added to."""
        self.case, self.queries, self.planted = case, queries, planted
        self.private, self.centre = private, centre
        self.sigma, self.delta = sigma, delta
        self.refusals: dict[str, str] = {}  # why attacks could not be run, by name
        self._release = digest_of(released.theta)[:16]
        self.populations = {name: np.stack([piece[name] for piece in populations]) for name in populations[0]}
        *self.retrained, self.shadow = retrained
        unchanged = noised(case.trained, case.graph, sigma=self.sigma, seed=case.seeds("nothing", 0)[0])
        self.targets: dict[str, list[Answers]] = {
            BEFORE: [queries.answers(case.trained)],
            NO_OP: [queries.answers(unchanged)],
            RETRAINED: self.retrained,
            METHOD: [queries.answers(released)],
        }

    @property
    def models(self) -> int:
        """The number of models of each population."""
        return len(self.populations[NO_OP])

    @property
    def item_counts(self) -> dict[str, int]:
        """How many items each attack has."""
        nodes, edges = self.queries.removed.numel(), self.queries.edges.shape[1]
        counts = {"membership paper": nodes, "membership": nodes, "links paper": edges, "links": edges}
        return counts | {"attributes": self.queries.attribute_rows.numel()} | dict.fromkeys(plugged_attacks(), nodes)

    def attack_scores(self, pieces: Checkpoints, *, jobs: int, progress: Progress | None) -> dict[str, attacks.Scored]:
        """Runs every attack with enough items; the reasons of attacks that cannot be run are in `refusals`."""
        names = [name for name, count in self.item_counts.items() if count >= FEWEST]
        files = [f"{name} of {self._release}" for name in names]
        compute = _Attack(self.case, self.queries, self.targets, self.shadow)
        computed = pieces.compute(files, compute, jobs=jobs, stage="attacks", progress=progress)
        scores = dict(zip(names, computed, strict=True))
        self.refusals = {name: str(piece[REFUSED]) for name, piece in scores.items() if REFUSED in piece}
        self.refusals |= {"canaries": str(self.planted[REFUSED])} if REFUSED in self.planted else {}
        counts = {model: len(answers) for model, answers in self.targets.items()}
        scored = {
            name: {m: [(piece[f"{m}/{k}/in"], piece[f"{m}/{k}/out"]) for k in range(n)] for m, n in counts.items()}
            for name, piece in scores.items()
            if REFUSED not in piece
        }
        return scored | self._canaries()

    def _canaries(self) -> dict[str, attacks.Scored]:
        if "canaries" in self.refusals:
            return {}
        logits = {model: [self.planted[model]] for model in (BEFORE, NO_OP, METHOD)}
        logits[RETRAINED] = [answers["canaries"] for answers in self.retrained]
        return attacks.canaries(self.queries, {model: logits[model] for model in self.targets})

    @functools.cached_property
    def per_example(self) -> dict[str, PerExample]:
        """The per-example test on the private weights. It is the sharper one, because they have no noise."""
        return self._tests("")

    @functools.cached_property
    def per_example_released(self) -> dict[str, PerExample]:
        """The same test on the released weights, which a claim of epsilon is about."""
        return self._tests("released ")

    def _tests(self, prefix: str) -> dict[str, PerExample]:
        """Each population against retrained models, and one half of the retrained models against the other."""
        retrained = self.populations[f"{prefix}{RETRAINED}"]
        unchanged, method = (self.populations[f"{prefix}{name}"] for name in (NO_OP, METHOD))
        pairs = {BEFORE: (self.populations[NO_OP], retrained), NO_OP: (unchanged, retrained)}
        pairs |= {RETRAINED: (retrained[::2], retrained[1::2]), METHOD: (method, retrained)}
        return {name: per_example(*pair, delta=self.delta) for name, pair in pairs.items()}

    @property
    def position(self) -> Position:
        return self.positions[METHOD]

    @functools.cached_property
    def positions(self) -> dict[str, Position]:
        """The positions of the release and of unchanged weights; the latter shows whether the test would flag them."""
        ratio = LikelihoodRatio.fit(self.populations[f"released {NO_OP}"], self.populations[f"released {RETRAINED}"])

        def joint(answers: Answers) -> float:
            logits = torch.from_numpy(answers["full"])
            return float(ratio.joint(self.queries.items.values(logits, self.case.graph.y)))

        retrained = np.array([joint(answers) for answers in self.retrained])
        scale = joint(self.targets[NO_OP][0]) - retrained.mean()
        deviation = max(float(retrained.std(ddof=1)), TINY * abs(scale))
        error = deviation * np.sqrt(1 + 1 / len(retrained))
        positions = {}
        for model in (NO_OP, METHOD):
            offset = joint(self.targets[model][0]) - retrained.mean()
            chance = float(2 * student.sf(abs(offset) / error, len(retrained) - 1)) if error else 1.0
            defined = scale > 0
            positions[model] = Position(
                float(offset / scale) if defined else None, chance, float(deviation / scale) if defined else None
            )
        return positions

    def distances(self) -> dict[str, Distance]:
        """The distances of the noise's centre and, if they have the same objective, of the old weights.

        They are to the optimum on the retained graph if there is a unique one, else to the nearest retrained weights.
        """
        privacy: Any = {"sigma": self.sigma, "delta": self.delta or 1e-5}
        weights: dict[str, Tensor] = {METHOD: self.centre}
        if self._has_objective_of_before:
            weights[NO_OP] = self.case.trained.theta
        if self.private.strongly_convex:
            best = optimum(self.private, self.case.retained)
            slack = optimum_distance_bound(self.private, self.case.retained, best)
            return {name: distance(theta, best, slack=slack, **privacy) for name, theta in weights.items()}
        retrained = [torch.from_numpy(answers["theta"]) for answers in self.retrained]
        same_shape = [theta for theta in retrained if theta.shape == self.private.theta.shape]
        if not same_shape:
            return {}
        return {
            name: Distance(float(min((theta - other).norm() for other in same_shape)))
            for name, theta in weights.items()
        }

    @property
    def _has_objective_of_before(self) -> bool:
        """Whether the objective is the same function of the weights and the graph as before the deletion."""
        before, after = self.case.trained, self.private
        if after.objective_noise_vector is not None or (
            after.is_linearised and after.recipe.seed != before.recipe.seed
        ):
            return False
        return not after.is_stacked or same_tensors(before.released_state, after.released_state)

    def blanked(self) -> dict[str, BlankedLoss]:
        """The mean loss of the nodes whose attributes are blanked, for each model."""
        rows = self.queries.attribute_rows
        if not rows.numel():
            return {}
        result = {}
        for model, answers in self.targets.items():
            logits = [torch.from_numpy(one["reduced"])[rows] for one in answers]
            losses = [blanked_loss(one, self.case.graph.y[rows]) for one in logits]
            result[model] = BlankedLoss(*(float(np.mean(part)) for part in zip(*losses, strict=True)))
        return result
