"""`method="auto"`: the cheapest way to the best level in reach, and what to do where the asked level is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from graphforget.certificates.levels import LEVELS, Level
from graphforget.errors import InputError, Refused
from graphforget.graph import Graph
from graphforget.trained import Trained
from graphforget.unlearning.base import Method, Task
from graphforget.unlearning.idea import Idea
from graphforget.unlearning.newton import Newton
from graphforget.unlearning.retrain import Retrain

AUTO = "auto"
WITHOUT_RETRAINING: tuple[Method[Any], ...] = (Newton(), Idea())
RETRAIN = Retrain()

Otherwise = Literal["retrain", "refuse"]


@dataclass(frozen=True)
class Wanted:
    """The lowest level that will do (None: the best in reach without retraining), and what to do if it is not met."""

    level: Level | None = None
    otherwise: Otherwise = "retrain"

    def __post_init__(self) -> None:
        if self.level not in (None, *LEVELS):
            raise InputError(f"there is no level {self.level!r}, only {', '.join(LEVELS)}")
        if self.otherwise not in get_args(Otherwise):
            raise InputError(f"otherwise is {self.otherwise!r}, it must be one of {', '.join(get_args(Otherwise))}")

    def met_by(self, level: Level | None) -> bool:
        """Whether `level` will do; None is no level at all."""
        return level is not None and (self.level is None or LEVELS.index(level) <= LEVELS.index(self.level))


@dataclass(frozen=True)
class Way:
    """A method, its options, and the level that it is expected to reach."""

    method: Method[Any]
    options: Any
    level: Level


def choose(task: Task, *, wanted: Wanted, options: dict[str, Any], named: Method[Any] | None = None) -> Way:
    """The best level that a method other than retraining can reach, the cheapest such method first; else retraining.

    If a method is `named`, it is that one or, where a level was asked for that it does not reach, retraining. Raises
    `Refused` where retraining would be needed and is not wanted, or would not do either.
    """
    if named is RETRAIN or (named is not None and wanted.level is None):
        chosen = named.chosen(options)
        return Way(named, chosen, named.foreseen(task, chosen))
    split = _split(options, (*WITHOUT_RETRAINING, RETRAIN, *([] if named is None else [named])))
    ways: list[Way] = []
    why = "no method but retraining serves this model and request"
    for method in WITHOUT_RETRAINING if named is None else (named,):
        if method.unsupported(task.trained) is not None or not set(task.request.kinds) <= method.kinds:
            continue
        try:
            chosen = method.chosen(split[method.name])
            ways.append(Way(method, chosen, method.foreseen(task, chosen)))
        except Refused as refusal:
            why = str(refusal)
    ways.sort(key=lambda way: (LEVELS.index(way.level), way.method.gradients(task.trained)))
    if ways and wanted.met_by(ways[0].level):
        for name in options:
            if name not in split[ways[0].method.name] and name not in split[RETRAIN.name]:
                raise InputError(f"method {ways[0].method.name!r} was chosen and has no option {name!r}, name a method")
        return ways[0]
    if ways:
        why = f"without retraining the best level in reach is {ways[0].level!r}"
    return retraining(task.trained, task.retained, wanted=wanted, options=split[RETRAIN.name], why=why)


def retraining(trained: Trained, retained: Graph, *, wanted: Wanted, options: dict[str, Any], why: str) -> Way:
    """Retraining, if it is wanted and will do."""
    if wanted.otherwise == "refuse":
        raise Refused(f"{why}, and retraining was ruled out")
    chosen = RETRAIN.chosen(options)
    level = RETRAIN.reachable(trained, retained, chosen)
    if not wanted.met_by(level):
        raise Refused(f"{why}, and retraining gives {level!r} at best, not {wanted.level!r}")
    return Way(RETRAIN, chosen, level)


def _split(options: dict[str, Any], methods: Iterable[Method[Any]]) -> dict[str, dict[str, Any]]:
    """To each method those of the options that it has. One that none has is an `InputError`."""
    known = {method.name: {field.name for field in dataclasses.fields(method.options)} for method in methods}
    for name in options:
        if not any(name in names for names in known.values()):
            raise InputError(f"no method has an option {name!r}")
    return {method: {n: v for n, v in options.items() if n in names} for method, names in known.items()}
