"""Which method answers a request: the named one, or the cheapest that reaches the best level."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from graphforget.certificates.levels import LEVELS, Level, is_met
from graphforget.errors import InputError, Refused
from graphforget.privacy.gaussian import release_ratio
from graphforget.training.trained import Trained
from graphforget.unlearning.method import Method
from graphforget.unlearning.methods.newton import Newton
from graphforget.unlearning.methods.retrain import Retrain, has_noised_optimum
from graphforget.unlearning.outcome import PrivacyTarget
from graphforget.unlearning.task import Task

NEWTON, RETRAIN = Newton(), Retrain()

Otherwise = Literal["retrain", "refuse"]


@dataclass(frozen=True)
class LevelPolicy:
    """The lowest acceptable level (None: the best that can be reached), and the action if it is not reached."""

    level: Level | None = None
    otherwise: Otherwise = "retrain"

    def __post_init__(self) -> None:
        if self.level not in (None, *LEVELS):
            raise InputError(f"there is no level {self.level!r}, only {', '.join(LEVELS)}")
        if self.otherwise not in get_args(Otherwise):
            raise InputError(f"otherwise is {self.otherwise!r}, it must be one of {', '.join(get_args(Otherwise))}")

    def met_by(self, level: Level | None) -> bool:
        """Whether `level` is acceptable; None stands for no level."""
        return is_met(self.level, level)


@dataclass(frozen=True)
class Choice:
    """A method, its options, and the level that it is expected to reach (None: not determined)."""

    method: Method[Any]
    options: Any
    level: Level | None = None


def choose(task: Task, *, policy: LevelPolicy, options: Mapping[str, Any], named: Choice | None = None) -> Choice:
    """Newton steps if they can be certified, else retraining, which is `exact`.

    The choice follows from the model and never from the request, so it reveals nothing about the request. A `named`
    method is used. Whether it reaches the required level is found out by running it, or before that by
    `expected_choice`.

    Raises:
        Refused: Retraining is needed and was ruled out, or does not reach the level either.
    """
    promises = named is None or named.method.level == "certified"  # the others guarantee nothing for all releases
    if promises and has_noised_optimum(task.trained) and not covers_another_release(task.trained, task.target):
        reason = f"the guarantee for {task.trained.recipe.releases} releases together covers no further one"
        return retraining(task, policy=policy, options=model_option(options), why=reason)
    if named is None:
        return _automatic(task, policy, options)
    return named


def retraining(task: Task, *, policy: LevelPolicy, options: Mapping[str, Any], why: str) -> Choice:
    """Retraining, unless it was ruled out or does not reach the level. Options that it does not have are ignored."""
    if policy.otherwise == "refuse":
        raise Refused(f"{why}, and retraining was ruled out")
    parsed = RETRAIN.parse_options({name: value for name, value in options.items() if name in option_names(RETRAIN)})
    level = RETRAIN.best_level(task.trained, task.retained, parsed)
    if not policy.met_by(level):
        raise Refused(f"{why}, and retraining gives {level!r} at best, not {policy.level!r}")
    return Choice(RETRAIN, parsed, level)


def covers_another_release(trained: Trained, target: PrivacyTarget) -> bool:
    """Whether all releases and one more stay within the epsilon and delta that were fixed at training."""
    recipe = trained.recipe
    allowed = release_ratio(epsilon=recipe.epsilon, delta=recipe.delta)
    requested = release_ratio(epsilon=target.epsilon, delta=target.delta, releases=recipe.releases)
    ratio = max(requested, release_ratio(epsilon=recipe.epsilon, delta=recipe.delta, releases=recipe.releases))
    return math.hypot(*trained.releases, ratio) <= allowed * (1 + 1e-9)


def _automatic(task: Task, policy: LevelPolicy, options: Mapping[str, Any]) -> Choice:
    unknown = [name for name in options if name not in option_names(NEWTON) | option_names(RETRAIN)]
    if unknown:
        raise InputError(f"no method that 'auto' can choose has the option {unknown[0]!r}, name a method")
    reason = "no method but retraining has a guarantee that holds for this model"
    if NEWTON.unsupported(task.trained) is None:
        try:
            parsed = NEWTON.parse_options({n: value for n, value in options.items() if n in option_names(NEWTON)})
            level = NEWTON.expected_level(task, parsed)
            if policy.met_by(level) and level != "empirical":
                return Choice(NEWTON, parsed, level)
            reason = f"without retraining the best level in reach is {level!r}"
        except Refused as refusal:
            reason = str(refusal)
    return retraining(task, policy=policy, options=options, why=reason)


def expected_choice(task: Task, *, policy: LevelPolicy, named: Choice) -> Choice:
    """The named method with its expected level, or retraining if the method does not reach the required level.

    Raises:
        Refused: The method would be refused, and so would retraining.
    """
    method, trained = named.method, task.trained
    try:
        level = method.expected_level(task, named.options)
        if policy.level is None or method is RETRAIN:
            _refuse_void_guarantee(method, trained, level, method.best_level(trained, task.retained, named.options))
        if policy.met_by(level):
            return Choice(method, named.options, level)
        reason = f"without retraining the best level in reach is {level!r}"
    except Refused as refusal:
        if policy.level is None or method is RETRAIN:
            raise
        reason = str(refusal)
    if method is RETRAIN:
        raise Refused(f"{method.name!r} reaches level {level!r} at best, not {policy.level!r}")
    return retraining(task, policy=policy, options={}, why=reason)


def _refuse_void_guarantee(method: Method[Any], trained: Trained, level: Level, best: Level) -> None:
    if trained.certification_blockers and method.level in ("certified", "conditional"):
        raise Refused(f"the guarantee of {method.name!r} does not hold here: {trained.certification_blockers[0]}")
    if level == "empirical" != best:
        raise Refused(f"the guarantee of {method.name!r} does not hold here: one of its conditions is already refuted")


def model_option(options: Mapping[str, Any]) -> dict[str, Any]:
    """The option `model`, which every retraining accepts: how to make a fresh module."""
    return {name: value for name, value in options.items() if name == "model"}


def option_names(method: Method[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(method.options)}
