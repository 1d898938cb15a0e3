"""The base class of all unlearning methods, and the checks that apply to every one of them."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch

from graphforget.certificates.annex import weights_digest
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.levels import LEVELS, Level
from graphforget.errors import InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.models.deletion import DeletionModel, without_operator
from graphforget.models.items import view_of
from graphforget.models.recorded_settings import has_recorded_settings
from graphforget.models.registry import reach_is_proven
from graphforget.privacy.salt import new_salt
from graphforget.request.kinds import KINDS, Kind
from graphforget.request.request import Request
from graphforget.training.boosting import with_network
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import MethodInfo
from graphforget.unlearning.outcome import MethodResult, Outcome, account
from graphforget.unlearning.release import (
    add_noise,
    check_floor,
    count_release,
    weak_guarantee_notes,
    with_suppressed,
    write_annex,
    write_certificate,
)
from graphforget.unlearning.task import Task
from graphforget.validation import check_instance

Options = TypeVar("Options")
UNPROVEN = (
    "no training loss depends on the data to delete if the reach of the model is right, but the reach of a custom "
    "module is not proven; retrain it instead (method 'retrain')"
)


class Method(ABC, Generic[Options]):
    """An unlearning method. A subclass declares its abilities and implements `change`; `unlearn` is the same for all.

    Attributes:
        options: A dataclass with the options of the method. It checks its values itself.
        name: The name that `gf.unlearn(method=...)` accepts.
        title: One line for `graphforget methods`.
        reference: The publication.
        level: The best level that the method can reach.
        kinds: The kinds of request that it can answer.
        models: The models that it supports, in words.
        sequential: Whether it can answer several requests in a row, in words.
        keeps_untouched: Whether the weights stay if the footprint is empty.
        refuses_no_op: Whether unchanged weights are refused if the footprint is not empty.
        takes_shards: Whether it supports an ensemble on shards.
        takes_composites: Whether it supports stacked and boosted models, of which a part is trained anew.
        takes_items: Whether it supports models whose items are links or graphs.
        takes_operators: Whether it supports a model that GNNDelete has added operators to.
        needs_classes: Whether it supports models that predict one class an item, and no others.
        takes_sigma: Whether a caller may set the noise for one request.
    """

    options: type[Options]

    def __init_subclass__(cls, info: MethodInfo | None = None, **more: Any) -> None:
        """The attributes come from `info`, an entry of the catalogue, or from the class itself."""
        super().__init_subclass__(**more)
        for field_ in dataclasses.fields(MethodInfo) if info is not None else ():
            setattr(cls, field_.name, getattr(info, field_.name))

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    level: ClassVar[Level]
    kinds: ClassVar[frozenset[Kind]] = MethodInfo.kinds
    models: ClassVar[str] = MethodInfo.models
    sequential: ClassVar[str] = MethodInfo.sequential
    keeps_untouched: ClassVar[bool] = True
    refuses_no_op: ClassVar[bool] = True
    takes_shards: ClassVar[bool] = False
    takes_composites: ClassVar[bool] = False
    takes_items: ClassVar[bool] = False
    takes_operators: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False
    takes_sigma: ClassVar[bool] = False

    # -- different for each method -------------------------------------------------------------------------------

    def unsupported(self, trained: Trained) -> str | None:
        """The reason why the method does not support this model, in words, or None."""
        if trained.is_ensemble and not self.takes_shards:
            return "the model is an ensemble on shards, which only 'grapheraser' and 'retrain' support"
        if trained.composite is not None and not self.takes_composites:
            return f"the model has {trained.composite.replayed_part!r}, which only 'newton' and 'retrain' train anew"
        if isinstance(trained.module, DeletionModel) and not self.takes_operators:
            return "the model has operators of 'gnndelete', with which only 'retrain' can go on"
        view = view_of(trained.module)
        if view is not None and not self.takes_items:
            return f"the model answers for {view.word}s, which only 'newton', 'gif' and 'retrain' support"
        if self.needs_classes and trained.loss.targets not in (None, "classes"):
            return f"the model predicts {trained.loss.targets}, and the method is made for classes"
        return None

    @abstractmethod
    def gradients(self, trained: Trained) -> int:
        """The approximate cost in gradients of the full objective, for a plan."""

    def best_level(self, trained: Trained, graph: Graph, options: Options) -> Level:
        """The best level for this model if the request touches its training. May raise `Refused`."""
        return "empirical" if trained.certification_blockers else self.level

    def planned_claim(self, trained: Trained) -> Claim | None:
        """The claim for this model, if it is known before the request."""
        return None

    @abstractmethod
    def change(self, task: Task, options: Options) -> MethodResult:
        """Computes the model on `task.retained`."""

    def leaves_weights_unchanged(self, task: Task) -> bool:
        """Whether no training loss depends on the data to delete, so that the weights can stay."""
        return self.keeps_untouched and task.touched.empty

    def claim(self, task: Task, trained: Trained, options: Options) -> tuple[Claim, dict[str, Any]]:
        """The claim for `trained`, a result of this method, and the measurements for the claim."""
        return Empirical("the method guarantees nothing"), {}

    # -- the same for all ----------------------------------------------------------------------------------------

    def check_model(self, trained: Trained, graph: Graph) -> None:
        """Raises `InputError` if the method cannot change this model, or the graph is not the one that it stands on."""
        check_instance(trained, Trained, "model")
        check_instance(graph, Graph, "graph")
        if trained.noise:
            raise InputError("these are released weights with noise, go on from those without it (outcome.trained)")
        if trained.recipe.objective_noise and trained.objective_noise_vector is None:
            raise InputError("these are released weights, without their objective's noise; go on from outcome.trained")
        if trained.graph_digest != graph.digest:
            raise InputError("the graph is not the one that this model was trained or last updated on")
        recipe = trained.recipe
        module = without_operator(trained.module)
        if not has_recorded_settings(module, graph, name=recipe.model, options=dict(recipe.options)):
            raise InputError("the model has other settings than its recipe says: it was changed after its training")
        reason = self.unsupported(trained)
        if reason is not None:
            raise InputError(f"method {self.name!r} does not work here: {reason}")

    def check(self, trained: Trained, graph: Graph, request: Request) -> None:
        """Raises `InputError` if the method cannot answer this request for this model and graph."""
        if not isinstance(request, Request):
            raise InputError(f"the request is a {type(request).__name__}, a graphforget.Request is needed")
        self.check_model(trained, graph)
        beyond = [kind for kind in request.kinds if kind not in self.kinds]
        if beyond:
            able = ", ".join(kind for kind in KINDS if kind in self.kinds)
            raise InputError(f"method {self.name!r} cannot forget {beyond[0]}, only {able}")

    def checked_request(self, trained: Trained, graph: Graph, requests: Sequence[Request]) -> Request:
        """The requests as one, for a model and a graph that fit. Raises `InputError` as `check` does."""
        self.check(trained, graph, requests[0])
        if len(requests) == 1:
            return requests[0]
        merged = Request.merge(requests, graph)
        self.check(trained, graph, merged)
        return merged

    def parse_options(self, options: dict[str, Any]) -> Options:
        """Makes the options object and checks names and values."""
        known = [option.name for option in dataclasses.fields(self.options)]  # type: ignore[arg-type]
        unknown = [name for name in options if name not in known]
        if unknown:
            only = f", only {', '.join(known)}" if known else ""
            raise InputError(f"method {self.name!r} has no option {unknown[0]!r}{only}")
        return self.options(**options)

    def expected_level(self, task: Task, options: Options) -> Level:
        """The best level that `unlearn` can reach. Raises `Refused` if `unlearn` would."""
        if self.leaves_weights_unchanged(task) and not reach_is_proven(task.trained.module):
            raise Refused(UNPROVEN)
        return self.best_level(task.trained, task.retained, options)

    def unlearn(self, task: Task, options: Options) -> Outcome:
        """Answers the request of the task. The task and its parts do not change."""
        unchanged = self.leaves_weights_unchanged(task)
        change = self._untouched(task, options) if unchanged else self.change(task, options)
        self._refuse_false_success(task, change, unchanged=unchanged)
        centre = change.trained.theta if change.centre is None else change.centre
        claim, released, notes = add_noise(task, change, centre)
        earlier = () if change.restarts else task.trained.releases
        trained = with_suppressed(task, count_release(change.trained, earlier, claim))
        trained = with_network(trained, released, task.retained, device=task.device, progress=task.progress)
        all_notes = (*change.notes, *notes, *weak_guarantee_notes(task, claim), *task.notes)
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
        annex = write_annex(task, salt, about)
        outcome = Outcome(
            method=self.name,
            trained=trained,
            graph=task.retained,
            centre=centre,
            released_theta=released,
            certificate=write_certificate(self.name, claim, task, trained, released, annex),
            annex=annex,
            touched=task.touched,
            seconds=seconds,
            measured=change.measurements,
            details=change.details,
            notes=all_notes,
        )
        check_floor(task, outcome)
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
            raise Refused("the method gives no centre for the noise although its claim needs one, or the reverse")
        if LEVELS.index(level) < LEVELS.index(self.level):
            raise Refused(f"the method claims {level!r}, but its best level is {self.level!r}")
        if level == "exact" and change.trained.history:
            raise Refused("the method claims 'exact' for weights that moved away from those of training")

    def _untouched(self, task: Task, options: Options) -> MethodResult:
        """No training loss depends on the data to delete: the weights stay. The claim is the same as after a step."""
        trained, theta = task.trained, task.theta
        if not reach_is_proven(trained.module):
            raise Refused(UNPROVEN)
        before, after = task.before.data.losses(theta), task.after.data.losses(theta)
        if not torch.allclose(before, after, rtol=1e-9, atol=1e-9):
            raise Refused(
                "training losses changed outside the footprint, so the reach of the model is larger than declared"
            )
        updated = trained.with_update(theta, task.after, task.history_entry(self.name, theta))
        started = time.perf_counter()
        claim, measurements = self.claim(task, updated, options)
        uncounted = time.perf_counter() - started
        updated = updated.amend_last_entry(refuted=tuple(measurements.get("refuted", ())))
        return MethodResult(updated, claim, measurements, {"untouched": True}, uncounted=uncounted)
