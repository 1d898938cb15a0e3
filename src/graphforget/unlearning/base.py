"""What every unlearning method is and returns, and the checks that none of them can get around."""

from __future__ import annotations

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from graphforget.certificates.claim import Certificate, empirical, exact
from graphforget.certificates.gaussian import noise
from graphforget.certificates.levels import Level
from graphforget.checks import whole_number
from graphforget.errors import InputError, Refused
from graphforget.footprint import Footprint, footprint
from graphforget.graph import Graph
from graphforget.models.base import is_built_in
from graphforget.objective import Objective
from graphforget.request import KINDS, Kind, Request
from graphforget.trained import Forgotten, Trained
from graphforget.training import Progress

Options = TypeVar("Options")


@dataclass(frozen=True)
class Asked:
    """What the caller wants guaranteed, and with how much noise."""

    epsilon: float = 1.0
    delta: float = 1e-5
    sigma: float | None = None  # None: as much as epsilon and delta need

    def __post_init__(self) -> None:
        for name, value, good, wanted in (
            ("epsilon", self.epsilon, _is_real(self.epsilon) and self.epsilon > 0, "a positive number"),
            ("delta", self.delta, _is_real(self.delta) and 0 < self.delta < 1, "a number between 0 and 1"),
            ("sigma", self.sigma, self.sigma is None or (_is_real(self.sigma) and self.sigma >= 0), "a number from 0"),
        ):
            if not good:
                raise InputError(f"{name} is {value!r}, {wanted} is needed")


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, eq=False)
class Task:
    """One request against one model, with what every method needs to know of it."""

    trained: Trained
    graph: Graph
    request: Request
    retained: Graph  # G (-) dG
    touched: Footprint
    asked: Asked
    seed: int | None
    device: str
    progress: Progress

    @cached_property
    def before(self) -> Objective:
        return self.trained.objective(self.graph, device=self.device)

    @cached_property
    def after(self) -> Objective:
        return self.trained.objective(self.retained, device=self.device)

    @property
    def theta(self) -> Tensor:
        """The weights to start from, on the device."""
        return self.trained.theta.to(self.before.data.like)

    def forgotten(self, method: str, theta: Tensor) -> Forgotten:
        """The line that this request adds to the model's history."""
        return Forgotten(
            method=method,
            m=self.graph.train_rows.numel(),
            removed=self.touched.removed.numel(),
            affected=self.touched.affected.numel(),
            step_norm=float((theta.cpu() - self.trained.theta).norm()),
            gradient_norm=self.trained.gradient_norm,
        )


@dataclass(frozen=True, eq=False)
class Change:
    """What a method hands back: the model on the retained graph, what it claims, and how it went."""

    trained: Trained
    certificate: Certificate
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what the caller should know, in sentences
    uncounted: float = 0.0  # seconds spent on measurements that are no part of unlearning


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a request. `trained` and `graph` go into the next one and stay private; `released` may go out."""

    method: str
    trained: Trained
    graph: Graph
    released_theta: Tensor = field(repr=False)  # the weights with the certificate's noise
    certificate: Certificate
    touched: Footprint
    seconds: float  # everything but the assumption audit
    details: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def level(self) -> Level:
        return self.certificate.level

    @cached_property
    def released(self) -> Trained:
        """The model that the certificate speaks of: the weights with its noise."""
        if torch.equal(self.released_theta, self.trained.theta):
            return self.trained
        value, gradient = self.trained.objective(self.graph).value_and_gradient(self.released_theta)
        norm = float(gradient.norm())
        return self.trained.with_weights(
            self.released_theta, objective_value=value, gradient_norm=norm, converged=False
        )

    def summary(self) -> dict[str, Any]:
        """What `--json` and `outcome.json` show of it: numbers and sentences, nobody's name."""
        return {
            "method": self.method,
            "level": self.level,
            "certificate": self.certificate.to_dict(),
            "footprint": {"removed": self.touched.removed.numel(), "affected": self.touched.affected.numel()},
            "seconds": self.seconds,
            "details": self.details,
            "notes": list(self.notes),
        }


class Method(ABC, Generic[Options]):
    """An unlearning method. A subclass says what it can do and implements `change`; `unlearn` is the same for all.

    `options` is a dataclass of what a caller may set, which checks its values itself.
    """

    options: type[Options]
    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    level: ClassVar[Level]  # the best it can give
    kinds: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    keeps_untouched: ClassVar[bool] = True  # with an empty footprint there is nothing to do

    def unsupported(self, trained: Trained) -> str | None:
        """Why it cannot serve this model, in words, or None."""
        return None

    @abstractmethod
    def gradients(self, trained: Trained) -> int:
        """About how many gradients of the whole objective the work is worth, for a plan."""

    def reachable(self, trained: Trained) -> Level:
        """The best level it can give for this model, if the request touches its training."""
        return "empirical" if trained.obstacles else self.level

    @abstractmethod
    def change(self, task: Task, options: Options) -> Change:
        """The model as this method makes it on `task.retained`."""

    def standing(self, task: Task, options: Options) -> Certificate:
        """What holds of weights that this request does not touch, but that earlier ones have moved."""
        return empirical("this request touches no training loss, and of the requests before it nothing is guaranteed")

    def _untouched(self, task: Task, options: Options) -> Change:
        """No training loss depends on what goes, so training without it would have ended at the same weights."""
        if not is_built_in(task.trained.module):
            raise Refused(
                "no training loss depends on what is to go if the model's reach is right, but the reach of a module of "
                "one's own is not proven; retrain it instead (method 'retrain')"
            )
        value, gradient = task.after.value_and_gradient(task.theta)
        trained = task.trained.with_weights(
            task.trained.theta,
            objective_value=value,
            gradient_norm=float(gradient.norm()),
            graph_digest=task.retained.digest,
        )
        told = "no training loss depends on what was removed, so the weights are those of training without it"
        certificate = self.standing(task, options) if trained.history else exact(told)
        return Change(trained, certificate, {"untouched": True})

    def check(self, trained: Trained, graph: Graph, request: Request) -> None:
        """Raises `InputError` with the first thing that speaks against it."""
        if not isinstance(trained, Trained):
            raise InputError(f"the model is a {type(trained).__name__}, a graphforget.Trained is needed")
        if not isinstance(graph, Graph):
            raise InputError(f"the graph is a {type(graph).__name__}, a graphforget.Graph is needed")
        if not isinstance(request, Request):
            raise InputError(f"the request is a {type(request).__name__}, a graphforget.Request is needed")
        if trained.graph_digest != graph.digest:
            raise InputError("the graph is not the one that this model stands on")
        reason = self.unsupported(trained)
        if reason is not None:
            raise InputError(f"method {self.name!r} does not work here: {reason}")
        beyond = [kind for kind in request.kinds if kind not in self.kinds]
        if beyond:
            able = ", ".join(kind for kind in KINDS if kind in self.kinds)
            raise InputError(f"method {self.name!r} cannot forget {beyond[0]}, only {able}")

    def unlearn(
        self,
        trained: Trained,
        graph: Graph,
        request: Request,
        *,
        asked: Asked | None = None,
        seed: int | None = None,
        noise_seed: int | None = None,
        device: str = "cpu",
        progress: Progress | None = None,
        **options: Any,
    ) -> Outcome:
        """Forgets `request`. Its arguments are left as they are."""
        started = time.perf_counter()
        chosen = self._chosen(options)
        self.check(trained, graph, request)
        report = progress or (lambda stage, done, total: None)
        report("footprint", 0, 0)
        task = Task(
            trained=trained,
            graph=graph,
            request=request,
            retained=graph.without(request),
            touched=footprint(graph, request, trained.reach),
            asked=asked or Asked(),
            seed=None if seed is None else whole_number(seed, "seed"),
            device=device,
            progress=report,
        )
        if self.keeps_untouched and task.touched.empty:
            change = self._untouched(task, chosen)
        else:
            change = self.change(task, chosen)
            _refuse_nothing_done(task, change)
        return Outcome(
            method=self.name,
            trained=change.trained,
            graph=task.retained,
            released_theta=_noised(change, noise_seed),
            certificate=change.certificate,
            touched=task.touched,
            seconds=time.perf_counter() - started - change.uncounted,
            details=change.details,
            notes=change.notes,
        )

    def _chosen(self, options: dict[str, Any]) -> Options:
        known = [option.name for option in dataclasses.fields(self.options)]  # type: ignore[arg-type]
        unknown = [name for name in options if name not in known]
        if unknown:
            raise InputError(f"method {self.name!r} has no option {unknown[0]!r}, only {', '.join(known)}")
        return self.options(**options)


def _refuse_nothing_done(task: Task, change: Change) -> None:
    theta = change.trained.theta
    if change.trained.graph_digest != task.retained.digest:
        raise Refused("the method did not end on the retained graph")
    if not torch.isfinite(theta).all():
        raise Refused("the method ended in weights that are not finite, so nothing was released")
    if torch.equal(theta, task.trained.theta):
        raise Refused(
            "the method changed no weight although the request touches the training, so nothing was forgotten"
        )


def _noised(change: Change, seed: int | None) -> Tensor:
    theta, sigma = change.trained.theta, change.certificate.sigma
    return theta + noise(size=theta.numel(), sigma=sigma, seed=seed) if sigma else theta
