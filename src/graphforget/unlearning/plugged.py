"""Methods of other packages. Of their result only the weights are taken: everything else is made here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.certificates.levels import Level
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.request.kinds import KINDS
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import MethodInfo
from graphforget.unlearning.method import Method
from graphforget.unlearning.methods.newton import certified_level, released_around_centre
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.task import Task

LEVELS: tuple[Level, ...] = ("certified", "empirical")  # that the method of another package can have
T = TypeVar("T")


class PluggedMethod(Method[Any]):
    """A method of another package, behind the same protocol.

    Its weights become a model here, with the recipe, the history and the retained graph of the request. If its level is
    `certified` and the model has noise, the distance of its weights to the optimum is measured here, as for `newton`,
    and the claim is issued from that measurement. Any other claim than `ResidualBall` and `Empirical` is refused. The
    words of its claim are not published, because they could tell of deleted data.
    """

    def __init__(self, inner: Method[Any], package: str) -> None:
        self._inner, self.package = inner, package
        self.options = inner.options

    def unsupported(self, trained: Trained) -> str | None:
        reason = super().unsupported(trained)
        if reason is None:
            reason = self._call(lambda: self._inner.unsupported(trained))
        return None if reason is None else " ".join(str(reason).split())

    def gradients(self, trained: Trained) -> int:
        return int(self._call(lambda: self._inner.gradients(trained)))

    def parse_options(self, options: dict[str, Any]) -> Any:
        return self._call(lambda: super(PluggedMethod, self).parse_options(options))

    def best_level(self, trained: Trained, graph: Graph, options: Any) -> Level:
        has_noise = trained.releases_left is not None
        return certified_level(trained) if self.level == "certified" and has_noise else "empirical"

    def change(self, task: Task, options: Any) -> MethodResult:
        before = task.trained.theta.clone()
        result = self._call(lambda: self._inner.change(task, options))
        if not torch.equal(before, task.trained.theta):
            raise Refused(f"the method of package {self.package} changed the weights that it was given")
        theta = self._weights(result, like=before)
        details = self._details(result)
        entry = task.history_entry(self.name, theta)
        updated = task.trained.with_update(theta.to(task.device), task.after, entry)
        kind = type(result.claim)
        if kind not in (ResidualBall, Empirical):
            raise Refused(f"a method of another package cannot show what {kind.__name__} claims, so it is refused")
        if self.best_level(task.trained, task.retained, options) != "empirical":
            return _measured(task, updated, details)  # whatever it claims: else the level could tell of deleted data
        claim, _ = self.claim(task, updated, options)
        return MethodResult(updated, claim, details=details)

    def claim(self, task: Task, trained: Trained, options: Any) -> tuple[Claim, dict[str, Any]]:
        return Empirical(f"the method is that of package {self.package}, and nothing was measured for a claim"), {}

    def _weights(self, result: object, *, like: Tensor) -> Tensor:
        """The weights of the result, copied, if they are those of a model of the same shape."""
        theta = getattr(getattr(result, "trained", None), "theta", None)
        if not isinstance(result, MethodResult) or not isinstance(theta, Tensor) or theta.shape != like.shape:
            raise Refused(f"the method of package {self.package} did not return the weights of such a model")
        if not torch.isfinite(theta).all():
            raise Refused(f"the method of package {self.package} ended in weights that are not finite")
        return theta.detach().to(device="cpu", dtype=torch.float64, copy=True)

    def _details(self, result: MethodResult) -> dict[str, Any]:
        """Its private facts, if they are JSON."""
        try:
            details = json.loads(json.dumps(result.details, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise Refused(f"the details of the method of package {self.package} are no JSON") from error
        return {"package": self.package, "of_package": details}

    def _call(self, function: Callable[[], T]) -> T:
        """What the function returns; any failure of the other package's code becomes one sentence."""
        try:
            return function()
        except (InputError, Refused):
            raise
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise Refused(f"the method {self.name!r} of package {self.package} failed: {reason}") from error


def _measured(task: Task, updated: Trained, details: dict[str, Any]) -> MethodResult:
    """The release around these weights or, if they are too far from the optimum, around retrained ones.

    Both look the same to the public, as with `newton`: which of them it is may depend on deleted data.
    """
    result = released_around_centre(task, updated, details)
    if not result.details.get("retrained"):
        return result
    note = f"the model was retrained, because {result.details['reason']}"
    return dataclasses.replace(result, notes=(*result.notes, note))


def plugged_method(value: Any, name: str, package: str) -> Method[Any]:
    """The method that an entry point names, a subclass of `Method` or an instance, behind the protocol.

    Raises:
        ValueError: It is no method, has another name, or declares something that it cannot have.
    """
    inner = value() if isinstance(value, type) else value
    if not isinstance(inner, Method):
        raise ValueError("it is no graphforget.Method")
    if inner.name != name:
        raise ValueError(f"its method is called {inner.name!r}")
    if inner.level not in LEVELS:
        raise ValueError(f"its level is {inner.level!r}, and that of a package is {' or '.join(LEVELS)}")
    if not inner.kinds or not inner.kinds <= frozenset(KINDS):
        raise ValueError(f"its kinds of request are not among {', '.join(KINDS)}")
    if not dataclasses.is_dataclass(inner.options):
        raise ValueError("its options are no dataclass")
    words = {
        each: " ".join(str(getattr(inner, each)).split()) for each in ("title", "reference", "models", "sequential")
    }
    info = MethodInfo(name=name, level=inner.level, kinds=frozenset(inner.kinds), **words)

    class Plugged(PluggedMethod, info=info):
        keeps_untouched = inner.level == "empirical"  # else the distance is measured every time
        takes_items = bool(inner.takes_items)
        needs_classes = bool(inner.needs_classes)

    return Plugged(inner, package)
