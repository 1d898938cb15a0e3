"""What every unlearning method is, and the checks that none of them can get around."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from graphforget.certificates.annex import Annex, weights_digest
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.document import Certificate
from graphforget.certificates.issue import Filing, issue_certificate, subject
from graphforget.certificates.levels import LEVELS, Level
from graphforget.certificates.releases import counted_ratio
from graphforget.errors import FloorMissed, InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.models.registry import reach_is_proven
from graphforget.models.sharded import Sharded
from graphforget.privacy.gaussian import noise_error_within_budget
from graphforget.privacy.noise import rounding_tv_bound, with_noise
from graphforget.privacy.salt import new_salt
from graphforget.progress import Progress
from graphforget.request.footprint import Footprint, footprint
from graphforget.request.kinds import KINDS, Kind
from graphforget.request.request import Request
from graphforget.training.environment import checked_device, environment
from graphforget.training.objective import Objective
from graphforget.training.recipe import HistoryEntry
from graphforget.training.trained import Trained
from graphforget.training.training_input import same_training_input
from graphforget.unlearning.catalogue import MethodInfo
from graphforget.unlearning.outcome import MethodResult, Outcome, PrivacyTarget, account
from graphforget.validation import whole_number

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
    target: PrivacyTarget
    seed: int | None
    noise_seed: int | None
    device: str
    progress: Progress
    started: float
    may_retrain: bool = True  # where a method's own way fails
    chosen: Mapping[str, Any] = field(default_factory=dict)  # what the caller set for this request alone
    notes: tuple[str, ...] = ()  # private: what the caller should know of how it came to this method
    filing: Filing = field(default_factory=Filing)  # where the certificate will be filed

    @classmethod
    def of(
        cls,
        trained: Trained,
        graph: Graph,
        request: Request,
        *,
        target: PrivacyTarget | None = None,
        seed: int | None = None,
        noise_seed: int | None = None,
        device: str = "cpu",
        progress: Progress | None = None,
        **more: Any,
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
            target=target or PrivacyTarget(epsilon=trained.recipe.epsilon, delta=trained.recipe.delta),
            seed=None if seed is None else whole_number(seed, "seed"),
            noise_seed=None if noise_seed is None else whole_number(noise_seed, "the seed"),
            device=checked_device(device),
            progress=report,
            started=started,
            **more,
        )

    @cached_property
    def before(self) -> Objective:
        return self.trained.objective(self.graph, device=self.device)

    @cached_property
    def after(self) -> Objective:
        return self.trained.objective(self.retained, device=self.device)

    @cached_property
    def training_unchanged(self) -> bool:
        """Whether training on the retained graph would end at the very weights that there are, bit for bit."""
        trained = self.trained
        replayable = not trained.history and not trained.certification_blockers and reach_is_proven(trained.module)
        if isinstance(trained.module, Sharded) or not (self.touched.empty and replayable):
            return False  # shards are looked at one by one, by GraphEraser
        if trained.recipe.environment != environment(device=self.device):
            return False
        return same_training_input(self.graph, self.retained, trained.reach)

    @property
    def theta(self) -> Tensor:
        """The weights to start from, on the device, in float64."""
        return self.trained.theta.to(device=self.device, dtype=torch.float64)

    def history_entry(self, method: str, theta: Tensor) -> HistoryEntry:
        """The line that this request adds to the model's history."""
        return HistoryEntry(
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

    def __init_subclass__(cls, info: MethodInfo | None = None, **more: Any) -> None:
        """What a method says of itself comes from the catalogue, or from attributes of its class."""
        super().__init_subclass__(**more)
        for field_ in dataclasses.fields(MethodInfo) if info is not None else ():
            setattr(cls, field_.name, getattr(info, field_.name))

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    level: ClassVar[Level]  # the best it can give
    kinds: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    models: ClassVar[str] = "all but sharded"  # which it takes, in words
    sequential: ClassVar[str] = "yes"  # whether request may follow on request
    keeps_untouched: ClassVar[bool] = True  # with an empty footprint there is nothing to do
    refuses_no_op: ClassVar[bool] = True  # unless it looks itself whether the weights may stay
    takes_shards: ClassVar[bool] = False  # whether it can serve an ensemble on shards
    takes_sigma: ClassVar[bool] = False  # whether a caller may set the noise for one request

    # -- what a method says of itself ----------------------------------------------------------------------------

    def unsupported(self, trained: Trained) -> str | None:
        """Why it cannot serve this model, in words, or None."""
        if isinstance(trained.module, Sharded) and not self.takes_shards:
            return "the model is an ensemble on shards, which 'grapheraser' and 'retrain' can serve"
        return None

    @abstractmethod
    def gradients(self, trained: Trained) -> int:
        """About how many gradients of the whole objective the work is worth, for a plan."""

    def best_level(self, trained: Trained, graph: Graph, options: Options) -> Level:
        """The best level it can give for this model, if the request touches its training. May raise `Refused`."""
        return "empirical" if trained.certification_blockers else self.level

    @abstractmethod
    def change(self, task: Task, options: Options) -> MethodResult:
        """The model as this method makes it on `task.retained`."""

    def leaves_weights_unchanged(self, task: Task) -> bool:
        """Whether no training loss depends on what goes, so that there is nothing to do."""
        return self.keeps_untouched and task.touched.empty

    def claim(self, task: Task, trained: Trained, options: Options) -> tuple[Claim, dict[str, Any]]:
        """What is claimed of `trained`, which this method made, and what was measured for it."""
        return Empirical("the method guarantees nothing"), {}

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
        if trained.recipe.objective_noise and trained.objective_noise_vector is None:
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

    def parse_options(self, options: dict[str, Any]) -> Options:
        """The options by name, checked."""
        known = [option.name for option in dataclasses.fields(self.options)]  # type: ignore[arg-type]
        unknown = [name for name in options if name not in known]
        if unknown:
            only = f", only {', '.join(known)}" if known else ""
            raise InputError(f"method {self.name!r} has no option {unknown[0]!r}{only}")
        return self.options(**options)

    def expected_level(self, task: Task, options: Options) -> Level:
        """The level that `unlearn` would give at best. Raises `Refused` where it would."""
        if self.leaves_weights_unchanged(task) and not reach_is_proven(task.trained.module):
            raise Refused(UNPROVEN)
        return self.best_level(task.trained, task.retained, options)

    def unlearn(self, task: Task, options: Options) -> Outcome:
        """Forgets what the task names; it and all that it holds are left as they are."""
        unchanged = self.leaves_weights_unchanged(task)
        change = self._untouched(task, options) if unchanged else self.change(task, options)
        self._refuse_false_success(task, change, unchanged=unchanged)
        centre = change.trained.theta if change.centre is None else change.centre
        claim, released, notes = _noised(task, change, centre)
        earlier = () if change.restarts else task.trained.releases
        trained = _counted(change.trained, earlier, claim)
        all_notes = (*change.notes, *notes, *_weak(task, claim), *task.notes)
        seconds = time.perf_counter() - task.started - change.uncounted
        salt = new_salt()
        about = account(
            method=self.name,
            weights_before=weights_digest(task.trained.theta, salt=salt),
            changed=not torch.equal(trained.theta, task.trained.theta),
            touched=task.touched,
            seconds=seconds,
            change=change,
            notes=all_notes,
        )
        annex = Annex.of(task.graph, task.request, salt=salt, account=about)
        outcome = Outcome(
            method=self.name,
            trained=trained,
            graph=task.retained,
            centre=centre,
            released_theta=released,
            certificate=_certificate(self.name, claim, task, trained, released, annex),
            annex=annex,
            touched=task.touched,
            seconds=seconds,
            measured=change.measurements,
            details=change.details,
            notes=all_notes,
        )
        _check_floor(task, outcome)
        return outcome

    def _refuse_false_success(self, task: Task, change: MethodResult, *, unchanged: bool) -> None:
        theta, level = change.trained.theta, change.claim.level
        if change.trained.graph_digest != task.retained.digest:
            raise Refused("the method did not end on the retained graph")
        if not torch.isfinite(theta).all():
            raise Refused("the method ended in weights that are not finite, so nothing was released")
        if not unchanged and self.refuses_no_op and torch.equal(theta, task.trained.theta):
            raise Refused(
                "the method changed no weight although the request may touch the training, so nothing was forgotten; "
                "retrain instead (method 'retrain')"
            )
        if change.claim.centred != (change.centre is not None):
            raise Refused("the method does not say what the noise is to be added to")
        if LEVELS.index(level) < LEVELS.index(self.level):
            raise Refused(f"the method claims {level!r} and can give {self.level!r} at best")
        if level == "exact" and change.trained.history:
            raise Refused("the method claims 'exact' for weights that moved away from those of training")

    def _untouched(self, task: Task, options: Options) -> MethodResult:
        """No training loss depends on what goes: the weights stay, and the claim is the same as after a step."""
        trained, theta = task.trained, task.theta
        if not reach_is_proven(trained.module):
            raise Refused(UNPROVEN)
        before, after = task.before.data.losses(theta), task.after.data.losses(theta)
        if not torch.allclose(before, after, rtol=1e-9, atol=1e-9):
            raise Refused("training losses changed where none should have, so the model's reach is not what it seemed")
        updated = trained.with_update(theta, task.after, task.history_entry(self.name, theta))
        started = time.perf_counter()
        claim, measurements = self.claim(task, updated, options)
        uncounted = time.perf_counter() - started
        updated = updated.amend_last_entry(refuted=tuple(measurements.get("refuted", ())))
        return MethodResult(updated, claim, measurements, {"untouched": True}, uncounted=uncounted)


def _noised(task: Task, change: MethodResult, centre: Tensor) -> tuple[Claim, Tensor, list[str]]:
    """The claim, `centre` with the noise that it names or the caller asked for, and what to know."""
    claim, seed, recipe = change.claim, task.noise_seed, task.trained.recipe
    named = claim.number("sigma")
    sigma = next((s for s in (task.target.sigma, named or None, recipe.sigma or None) if s is not None), 0.0)
    if sigma != named:
        claim = dataclasses.replace(claim, sigma=sigma)  # type: ignore[call-arg]
    if not sigma:
        message = "the released weights carry no noise"
        if change.trained.objective_noise_vector is not None:
            message += " but what was in the objective when they were trained"
        return claim, centre, [] if claim.level == "exact" else [message]
    released = with_noise(centre, sigma=sigma, seed=seed)
    if not torch.isfinite(released).all():
        raise Refused(f"noise of standard deviation {sigma:g} leaves no finite weights")
    target, error = task.target, rounding_tv_bound(centre, sigma=sigma)
    budget: Any = {"epsilon": target.epsilon, "delta": target.delta, "releases": recipe.releases}
    if claim.centred and claim.level != "empirical" and not noise_error_within_budget(error, **budget):
        message = f"noise in float64 is {error:.1e} from Gaussian in total variation"
        raise Refused(f"delta = {target.delta:g} is too small for epsilon = {target.epsilon:g}, {message}")
    if seed is None:
        return claim, released, []
    message = "the noise is from a seed, and whoever knows the seed can take it off the weights"
    if claim.level == "exact":
        return claim, released, [message]
    seeded = Empirical(message, sigma=sigma, around_centre=claim.centred, refuted=claim.void)
    return seeded, released, [message]


def _counted(trained: Trained, earlier: tuple[float, ...], claim: Claim) -> Trained:
    """The model with this release counted after the earlier ones."""
    if trained.releases_left is not None:
        earlier = (*earlier, counted_ratio(claim, vars(trained.recipe)))
    return dataclasses.replace(trained, releases=earlier)


def _check_floor(task: Task, outcome: Outcome) -> None:
    """Raises `FloorMissed` if the released weights score under the floor that was fixed when the model was trained."""
    floor = task.trained.recipe.floor
    if floor is None or outcome.released.utility(outcome.graph) >= floor:
        return
    claim = outcome.certificate.claim
    # The old model stays, also where a retrained one would have begun to count anew.
    counted = _counted(task.trained, task.trained.releases, claim)
    raise FloorMissed(
        f"the released model scores under the floor {floor:g}, so nothing was released, and this counts as a release: "
        "to go on, train the model again, with a smaller sigma or a lower floor",
        trained=counted,
        annex=dataclasses.replace(outcome.annex, released=False),
        ratio=claim.ratio if counted.releases_left is None else counted.releases[-1],
    )


def _weak(task: Task, claim: Claim) -> list[str]:
    """What is promised in name only."""
    epsilon, delta, m = claim.number("epsilon"), task.target.delta, task.retained.train_rows.numel()
    if not epsilon:
        return []
    notes = [f"epsilon = {epsilon:.3g} promises next to nothing"] if epsilon > 10 else []
    if delta > 1 / m:
        notes.append(f"delta = {delta:g} is over 1 / {m}, one over the number of training nodes; choose a smaller one")
    return notes


def _certificate(
    method: str, claim: Claim, task: Task, trained: Trained, released: Tensor, annex: Annex
) -> Certificate:
    """The claim with what it is about, as a document."""
    return issue_certificate(
        claim,
        filing=task.filing,
        method=method,
        chosen=dict(task.chosen),
        **subject(trained, strongly_convex=trained.proven_convex),
        training_nodes=task.retained.train_rows.numel(),
        releases_left=trained.releases_left,
        digests={
            "request": annex.request,
            "annex": annex.digest,
            "state": annex.state(trained.state_summary()),
            "graph": trained.graph_commitment(task.retained),
            "weights": annex.weights(trained.theta),
            "released": weights_digest(released),
        },
    )
