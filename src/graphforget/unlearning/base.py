"""What every unlearning method is, and the checks that none of them can get around."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from graphforget.certificates.annex import Annex, weights_digest
from graphforget.certificates.claim import UNTOUCHED, Claim, empirical, exact, noise_will_do, standing
from graphforget.certificates.document import Certificate, subject, written
from graphforget.certificates.gaussian import slip, with_noise
from graphforget.certificates.levels import LEVELS, Level
from graphforget.checks import checked_device, whole_number
from graphforget.errors import InputError, Refused
from graphforget.fitting import Progress
from graphforget.footprint import Footprint, footprint
from graphforget.graph import Graph
from graphforget.models.registry import reach_is_proven
from graphforget.models.sharded import Sharded
from graphforget.objective import Objective
from graphforget.request import KINDS, Kind, Request
from graphforget.trained import Forgotten, Trained
from graphforget.unlearning.outcome import Asked, Change, Outcome

Options = TypeVar("Options")

UNPROVEN = (
    "no training loss depends on what is to go if the model's reach is right, but the reach of a module of one's own "
    "is not proven; retrain it instead (method 'retrain')"
)


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
    noise_seed: int | None
    device: str
    progress: Progress
    started: float

    @classmethod
    def of(
        cls,
        trained: Trained,
        graph: Graph,
        request: Request,
        *,
        asked: Asked | None = None,
        seed: int | None = None,
        noise_seed: int | None = None,
        device: str = "cpu",
        progress: Progress | None = None,
    ) -> Task:
        """With the retained graph and the footprint. What is given has been checked."""
        started = time.perf_counter()
        report = progress or (lambda stage, done, total: None)
        report("footprint", 0, 0)
        return cls(
            trained=trained,
            graph=graph,
            request=request,
            retained=graph.without(request),
            touched=footprint(graph, request, trained.reach),
            asked=asked or Asked(),
            seed=None if seed is None else whole_number(seed, "seed"),
            noise_seed=None if noise_seed is None else whole_number(noise_seed, "the seed"),
            device=checked_device(device),
            progress=report,
            started=started,
        )

    @cached_property
    def before(self) -> Objective:
        return self.trained.objective(self.graph, device=self.device)

    @cached_property
    def after(self) -> Objective:
        return self.trained.objective(self.retained, device=self.device)

    @property
    def theta(self) -> Tensor:
        """The weights to start from, on the device, in float64."""
        return self.trained.theta.to(device=self.device, dtype=torch.float64)

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
    models: ClassVar[str] = "all but sharded"  # which it takes, in words
    sequential: ClassVar[str] = "yes"  # whether request may follow on request
    keeps_untouched: ClassVar[bool] = True  # with an empty footprint there is nothing to do
    takes_shards: ClassVar[bool] = False  # whether it can serve an ensemble on shards

    # -- what a method says of itself ----------------------------------------------------------------------------

    def unsupported(self, trained: Trained) -> str | None:
        """Why it cannot serve this model, in words, or None."""
        if isinstance(trained.module, Sharded) and not self.takes_shards:
            return "the model is an ensemble on shards, which 'grapheraser' and 'retrain' can serve"
        return None

    @abstractmethod
    def gradients(self, trained: Trained) -> int:
        """About how many gradients of the whole objective the work is worth, for a plan."""

    def reachable(self, trained: Trained, graph: Graph, options: Options) -> Level:
        """The best level it can give for this model, if the request touches its training. May raise `Refused`."""
        return "empirical" if trained.obstacles else self.level

    @abstractmethod
    def change(self, task: Task, options: Options) -> Change:
        """The model as this method makes it on `task.retained`."""

    def rests(self, trained: Trained, touched: Footprint) -> bool:
        """Whether it leaves the weights as they are, because no training loss depends on what goes."""
        return self.keeps_untouched and touched.empty

    def standing(self, task: Task, options: Options) -> Claim:
        """What holds of weights that this request does not touch, but that earlier ones have moved."""
        return empirical("of the requests before it nothing is guaranteed")

    # -- the same for all ----------------------------------------------------------------------------------------

    def check(self, trained: Trained, graph: Graph, request: Request) -> None:
        """Raises `InputError` with the first thing that speaks against it."""
        if not isinstance(trained, Trained):
            raise InputError(f"the model is a {type(trained).__name__}, a graphforget.Trained is needed")
        if not isinstance(graph, Graph):
            raise InputError(f"the graph is a {type(graph).__name__}, a graphforget.Graph is needed")
        if not isinstance(request, Request):
            raise InputError(f"the request is a {type(request).__name__}, a graphforget.Request is needed")
        if trained.noise:
            raise InputError("these are released weights with noise, go on from those without it (outcome.trained)")
        if trained.recipe.objective_noise and trained.tilt is None:
            raise InputError("these are released weights, without their objective's noise; go on from outcome.trained")
        if trained.graph_digest != graph.digest:
            raise InputError("the graph is not the one that this model stands on")
        reason = self.unsupported(trained)
        if reason is not None:
            raise InputError(f"method {self.name!r} does not work here: {reason}")
        beyond = [kind for kind in request.kinds if kind not in self.kinds]
        if beyond:
            able = ", ".join(kind for kind in KINDS if kind in self.kinds)
            raise InputError(f"method {self.name!r} cannot forget {beyond[0]}, only {able}")

    def chosen(self, options: dict[str, Any]) -> Options:
        """The options by name, checked."""
        known = [option.name for option in dataclasses.fields(self.options)]  # type: ignore[arg-type]
        unknown = [name for name in options if name not in known]
        if unknown:
            only = f", only {', '.join(known)}" if known else ""
            raise InputError(f"method {self.name!r} has no option {unknown[0]!r}{only}")
        return self.options(**options)

    def foreseen(self, task: Task, options: Options) -> Level:
        """The level that `unlearn` would give at best. Raises `Refused` where it would."""
        if self.rests(task.trained, task.touched) and not task.trained.history:
            if not reach_is_proven(task.trained.module):
                raise Refused(UNPROVEN)
            return "exact"
        return self.reachable(task.trained, task.retained, options)

    def unlearn(self, task: Task, options: Options) -> Outcome:
        """Forgets what the task names; it and all that it holds are left as they are."""
        if self.rests(task.trained, task.touched):
            change = self._untouched(task, options)
        else:
            change = self.change(task, options)
            self._refuse_false_success(task, change)
        centre = change.trained.theta if change.centre is None else change.centre
        claim, released, notes = _noised(task, change, centre)
        annex = Annex.of(task.graph, task.request)
        return Outcome(
            method=self.name,
            trained=change.trained,
            graph=task.retained,
            centre=centre,
            released_theta=released,
            certificate=_certificate(self.name, claim, task, change.trained, released, annex),
            annex=annex,
            touched=task.touched,
            seconds=time.perf_counter() - task.started - change.uncounted,
            details=change.details,
            notes=(*change.notes, *notes, *_weak(task.asked, claim)),
        )

    def _refuse_false_success(self, task: Task, change: Change) -> None:
        theta, level = change.trained.theta, change.claim.level
        if change.trained.graph_digest != task.retained.digest:
            raise Refused("the method did not end on the retained graph")
        if not torch.isfinite(theta).all():
            raise Refused("the method ended in weights that are not finite, so nothing was released")
        if self.keeps_untouched and torch.equal(theta, task.trained.theta):
            raise Refused(
                "the method changed no weight although the request may touch the training, so nothing was forgotten; "
                "retrain instead (method 'retrain')"
            )
        if change.claim.centred != (change.centre is not None):
            raise Refused("the method does not say what the noise is to be added to")
        if LEVELS.index(level) < LEVELS.index("exact" if change.retrained else self.level):
            raise Refused(f"the method claims {level!r} and can give {self.level!r} at best")
        if level == "exact" and change.trained.history:
            raise Refused("the method claims 'exact' for weights that moved away from those of training")

    def _untouched(self, task: Task, options: Options) -> Change:
        """No training loss depends on what goes, so training without it would have ended at the same weights."""
        trained, theta = task.trained, task.theta
        if not reach_is_proven(trained.module):
            raise Refused(UNPROVEN)
        before, after = task.before.data.losses(theta), task.after.data.losses(theta)
        if not torch.allclose(before, after, rtol=1e-9, atol=1e-9):
            raise Refused("training losses changed where none should have, so the model's reach is not what it seemed")
        started = time.perf_counter()
        stays = trained.history
        claim = standing(self.standing(task, options)) if stays else exact(UNTOUCHED, sigma=trained.recipe.sigma)
        uncounted = time.perf_counter() - started
        moved = trained.measured_on(task.after)
        return Change(moved, claim, {"untouched": True}, uncounted=uncounted)


def _noised(task: Task, change: Change, centre: Tensor) -> tuple[Claim, Tensor, list[str]]:
    """The claim, `centre` with the noise that it names or the caller asked for, and what to know."""
    claim, seed = change.claim, task.noise_seed
    own = task.trained.recipe.sigma or None
    sigma = next((s for s in (task.asked.sigma, claim.sigma, own) if s is not None), None)
    if sigma != claim.sigma:
        claim = dataclasses.replace(claim, sigma=sigma)
    if not claim.sigma:
        told = "the released weights carry no noise"
        if change.trained.tilt is not None:
            told += " but what was in the objective when they were trained"
        return claim, centre, [] if claim.level == "exact" else [told]
    released = with_noise(centre, sigma=claim.sigma, seed=seed)
    if not torch.isfinite(released).all():
        raise Refused(f"noise of standard deviation {claim.sigma:g} leaves no finite weights")
    off = slip(centre, sigma=claim.sigma)
    if claim.level == "certified" and not noise_will_do(off, epsilon=task.asked.epsilon, delta=task.asked.delta):
        told = f"noise in float64 is {off:.1e} from Gaussian in total variation"
        asked = f"delta = {task.asked.delta:g} is too small for epsilon = {task.asked.epsilon:g}"
        raise Refused(f"{asked}, {told}; retrain instead (method 'retrain')")
    if seed is None:
        return claim, released, []
    told = "the noise is from a seed, and whoever knows the seed can take it off the weights"
    return (claim if claim.level == "exact" else _unproven(claim, told)), released, [told]


def _weak(asked: Asked, claim: Claim) -> list[str]:
    """What is promised in name only."""
    if claim.epsilon and claim.epsilon > 10:
        return [f"epsilon = {claim.epsilon:.3g} promises next to nothing"]
    return [f"delta = {asked.delta:g} promises next to nothing"] if claim.epsilon and asked.delta > 1e-2 else []


def _unproven(claim: Claim, why: str) -> Claim:
    """The same numbers, and nothing that follows from them."""
    told = f"nothing is guaranteed, because {why} (the claim would be: {claim.statement})"
    return dataclasses.replace(claim, level="empirical", statement=told, epsilon=None, epsilon_measured=None)


def _certificate(
    method: str, claim: Claim, task: Task, trained: Trained, released: Tensor, annex: Annex
) -> Certificate:
    """The claim with what it is about, as a document."""
    return written(
        claim,
        method=method,
        **subject(trained, strongly_convex=trained.strongly_convex),
        training_nodes=task.retained.train_rows.numel(),
        changed=not torch.equal(trained.theta, task.trained.theta),
        digests={
            "request": annex.request,
            "annex": annex.digest,
            "state": annex.state(trained.facts()),
            "graph": task.retained.digest,
            "weights_before": annex.weights(task.trained.theta),
            "weights_after": annex.weights(trained.theta),
            "released": weights_digest(released),
        },
    )
