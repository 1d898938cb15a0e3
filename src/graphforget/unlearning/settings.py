"""What a caller of `unlearn` or `update` chooses, and how the release follows from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphforget.certificates.conditions import sentence
from graphforget.certificates.issue import Filing
from graphforget.certificates.levels import Level
from graphforget.errors import FloorMissed, Refused
from graphforget.graph.graph import Graph
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.training.trained import Trained
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import Outcome, PrivacyTarget
from graphforget.unlearning.registry import named_choice
from graphforget.unlearning.selection import RETRAIN, Choice, LevelPolicy, Otherwise, choose, model_option, retraining
from graphforget.unlearning.task import Task


@dataclass(frozen=True, kw_only=True, eq=False)
class Settings:
    """The arguments that `unlearn` and `update` share; `unlearn` documents them. Raises `InputError` if one is bad."""

    method: str
    epsilon: float | None
    delta: float | None
    sigma: float | None = None
    level: Level | None
    otherwise: Otherwise
    seed: int | None
    noise_seed: int | None
    device: str
    progress: Progress | None
    filing: Filing | None
    options: Mapping[str, Any]
    policy: LevelPolicy = field(init=False)
    named: Choice | None = field(init=False)  # the method that the caller names; None if it is to be chosen

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", LevelPolicy(self.level, self.otherwise))
        object.__setattr__(self, "named", named_choice(self.method, dict(self.options)))

    @property
    def checking_method(self) -> Method[Any]:
        """The method that checks the model and the request: the named one, or the one that takes the most of them."""
        return self.named.method if self.named else RETRAIN

    def target(self, trained: Trained) -> PrivacyTarget:
        """The settings of the model, unless the caller gives others."""
        recipe = trained.recipe
        return PrivacyTarget(
            epsilon=recipe.epsilon if self.epsilon is None else self.epsilon,
            delta=recipe.delta if self.delta is None else self.delta,
            sigma=self.sigma,
        )

    def release(
        self, trained: Trained, graph: Graph, request: Request | None, *, also_chosen: Mapping[str, Any], **more: Any
    ) -> Outcome:
        """The outcome of a request, or without one of an update; `more` are further fields of the task."""
        task = Task.of(
            trained,
            graph,
            request,
            target=self.target(trained),
            seed=self.seed,
            noise_seed=self.noise_seed,
            device=self.device,
            progress=self.progress,
            may_retrain=self.otherwise == "retrain",
            chosen={**self._differing(trained), **also_chosen},
            filing=self.filing or Filing(),
            **more,
        )
        choice = choose(task, policy=self.policy, options=self.options, named=self.named)
        return self._run(task, choice)

    def _run(self, task: Task, choice: Choice) -> Outcome:
        """The outcome of the chosen method, or of retraining if the method does not reach the required level."""
        policy = self.policy
        only_this = choice.method is RETRAIN or policy.level in (None, "empirical")
        try:
            outcome = choice.method.unlearn(task, choice.options)
        except FloorMissed:
            raise
        except Refused as refusal:
            if only_this or policy.otherwise == "refuse":
                raise
            reason = str(refusal)
        else:
            shortfall = _shortfall(outcome, policy.level, task.target)
            if shortfall is None:
                return outcome
            if only_this:
                raise Refused(shortfall)
            reason = shortfall
        again = retraining(task, policy=policy, options=model_option(self.options), why=reason)
        task = dataclasses.replace(task, notes=(*task.notes, f"the model was retrained, because {reason}"))
        return again.method.unlearn(task, again.options)

    def _differing(self, trained: Trained) -> dict[str, Any]:
        """The settings of the caller that differ from those that were fixed at training."""
        given = {name: getattr(self, name) for name in ("epsilon", "delta", "sigma", "level", "seed")}
        given |= {"method": self.named.method.name if self.named else None, **self.options}
        given |= {"otherwise": None if self.otherwise == "retrain" else self.otherwise}
        fixed = {name: getattr(trained.recipe, name) for name in ("epsilon", "delta", "sigma", "seed")}
        differing = {name: value for name, value in given.items() if value is not None and value != fixed.get(name)}
        return {name: _plain(value) for name, value in differing.items()}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value if isinstance(value, bool | int | float | str) else getattr(value, "__name__", type(value).__name__)


def _shortfall(outcome: Outcome, level: Level | None, target: PrivacyTarget) -> str | None:
    """The reason why an outcome is not acceptable, or None."""
    certificate = outcome.certificate
    if certificate.claim.void and level != "empirical":
        refuted = outcome.measured.get("refuted")
        blockers = outcome.measured.get("obstacles") or ["the noise is too little"]
        reason = f"this condition fails: {sentence(refuted[0])}" if refuted else blockers[0]
        needed = outcome.measured.get("sigma_needed")
        noise = "" if needed is None else f" (the noise that it needs has standard deviation {needed:.3g})"
        return (
            f"the guarantee of {outcome.method!r} does not hold here{noise}: {reason}; nothing was released, ask for "
            "level 'empirical' to go on without a guarantee, or retrain"
        )
    if level is None:
        return None
    if not LevelPolicy(level).met_by(outcome.level):
        return f"{outcome.method!r} reached level {outcome.level!r}, not {level!r}"
    if (certificate.epsilon or 0) > target.epsilon * (1 + 1e-9):
        return f"{outcome.method!r} reached epsilon {certificate.epsilon:.3g}, not {target.epsilon:g}"
    return None
