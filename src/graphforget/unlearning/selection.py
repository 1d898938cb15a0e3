"""`method="auto"`: the cheapest way to the best level that holds, and what to do where the asked level does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from graphforget.certificates.levels import LEVELS, Level, is_met
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.training.trained import Trained
from graphforget.unlearning.method import Method, Task
from graphforget.unlearning.methods.newton import Newton
from graphforget.unlearning.methods.retrain import Retrain

NEWTON, RETRAIN = Newton(), Retrain()

Otherwise = Literal["retrain", "refuse"]


@dataclass(frozen=True)
class LevelPolicy:
    """The lowest level that will do (None: the best in reach), and what to do if it is not met."""

    level: Level | None = None
    otherwise: Otherwise = "retrain"

    def __post_init__(self) -> None:
        if self.level not in (None, *LEVELS):
            raise InputError(f"there is no level {self.level!r}, only {', '.join(LEVELS)}")
        if self.otherwise not in get_args(Otherwise):
            raise InputError(f"otherwise is {self.otherwise!r}, it must be one of {', '.join(get_args(Otherwise))}")

    def met_by(self, level: Level | None) -> bool:
        """Whether `level` will do; None is no level at all."""
        return is_met(self.level, level)


@dataclass(frozen=True)
class Choice:
    """A method, its options, and the level that it is expected to reach."""

    method: Method[Any]
    options: Any
    level: Level


def choose(task: Task, *, policy: LevelPolicy, options: dict[str, Any], named: Method[Any] | None = None) -> Choice:
    """Newton steps where they can be certified, else retraining, which is `exact`.

    It follows from the model alone and never from the request, so that it tells nothing of it. If a method is `named`,
    it is that one or, where a level was asked for that it does not reach, retraining. Raises `Refused` where retraining
    would be needed and is not wanted, or would not do either.
    """
    if named is RETRAIN or (named is not None and policy.level is None):
        parsed = named.parse_options(options)
        level = named.expected_level(task, parsed)
        if not policy.met_by(level):
            raise Refused(f"{named.name!r} reaches level {level!r} at best, not {policy.level!r}")
        if task.trained.certification_blockers and named.level in ("certified", "conditional"):
            raise Refused(
                f"the guarantee of {named.name!r} does not hold here: {task.trained.certification_blockers[0]}"
            )
        if level == "empirical" != named.best_level(task.trained, task.retained, parsed):
            raise Refused(f"the guarantee of {named.name!r} does not hold here: a condition of it is refuted already")
        return Choice(named, parsed, level)
    split = _split(options, (NEWTON, RETRAIN, *([] if named is None else [named])))
    method = NEWTON if named is None else named
    reason = "no way but retraining has a guarantee that holds for this model"
    if method.unsupported(task.trained) is None and set(task.request.kinds) <= method.kinds:
        try:
            parsed = method.parse_options(split[method.name])
            level = method.expected_level(task, parsed)
            if policy.met_by(level) and (named is not None or level != "empirical"):
                return Choice(method, parsed, level)
            reason = f"without retraining the best level in reach is {level!r}"
        except Refused as refusal:
            reason = str(refusal)
    return retraining(task.trained, task.retained, policy=policy, options=split[RETRAIN.name], why=reason)


def retraining(trained: Trained, retained: Graph, *, policy: LevelPolicy, options: dict[str, Any], why: str) -> Choice:
    """Retraining, if it is wanted and will do."""
    if policy.otherwise == "refuse":
        raise Refused(f"{why}, and retraining was ruled out")
    parsed = RETRAIN.parse_options(options)
    level = RETRAIN.best_level(trained, retained, parsed)
    if not policy.met_by(level):
        raise Refused(f"{why}, and retraining gives {level!r} at best, not {policy.level!r}")
    return Choice(RETRAIN, parsed, level)


def _split(options: dict[str, Any], methods: Iterable[Method[Any]]) -> dict[str, dict[str, Any]]:
    """To each method those of the options that it has. One that none has is an `InputError`."""
    known = {method.name: {field.name for field in dataclasses.fields(method.options)} for method in methods}
    for name in options:
        if not any(name in names for names in known.values()):
            raise InputError(f"no method that could be chosen has an option {name!r}, name a method")
    return {method: {n: v for n, v in options.items() if n in names} for method, names in known.items()}
