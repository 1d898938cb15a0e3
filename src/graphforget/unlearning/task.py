"""One request for one model, with everything that a method needs of both."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphforget.certificates.issue import Filing
from graphforget.errors import InputError
from graphforget.graph.distributed_graph import DistributedGraph
from graphforget.graph.graph import Graph
from graphforget.models.items import Items, item_footprint, view_of
from graphforget.models.registry import reach_is_proven
from graphforget.progress import Progress
from graphforget.request.footprint import Footprint
from graphforget.request.request import Request
from graphforget.training.boosting import without_network
from graphforget.training.encoders import with_members_that_stay, with_renewed_encoders
from graphforget.training.environment import checked_device, environment
from graphforget.training.objective import Objective
from graphforget.training.recipe import UPDATE, HistoryEntry
from graphforget.training.trained import Trained
from graphforget.training.training_input import same_training_input
from graphforget.unlearning.outcome import PrivacyTarget
from graphforget.validation import whole_number


def refuse_emptied(items: Items, what: str = "request") -> None:
    """Raises `InputError` if no training item remains. A class may lose its last one: `num_classes` is a setting."""
    if not items.num_training:
        raise InputError(f"the {what} leaves no training {items.word}")


@dataclass(frozen=True, eq=False)
class Task:
    """One request for one model, with everything that a method needs of both."""

    trained: Trained
    graph: Graph
    asked: Request | None  # of requests that are answered together, their union; None: an update of the graph
    retained: Graph  # G (-) dG, or the next state of the graph
    touched: Footprint
    target: PrivacyTarget
    seed: int | None
    noise_seed: int | None
    device: str
    progress: Progress
    started: float
    may_retrain: bool = True  # if the method itself fails
    chosen: Mapping[str, Any] = field(default_factory=dict)  # settings of the caller for this request alone
    filing: Filing = field(default_factory=Filing)  # where the certificate will be filed
    notes: tuple[str, ...] = ()  # private: sentences about the choice of the method, and what came back
    requests: tuple[Request, ...] = ()  # those that are answered together, if there are several
    returning: Request | None = None  # of an update: what was deleted once and is in the graph again, for a reason

    @classmethod
    def of(
        cls,
        trained: Trained,
        graph: Graph,
        request: Request | None,
        *,
        retained: Graph | None = None,
        target: PrivacyTarget | None = None,
        seed: int | None = None,
        noise_seed: int | None = None,
        device: str = "cpu",
        progress: Progress | None = None,
        **more: Any,
    ) -> Task:
        """Computes the retained graph and the footprint. The arguments have been checked before.

        For an update `request` is None, and `retained` is the next state of the graph.
        """
        started = time.perf_counter()
        report = progress or (lambda stage, done, total: None)
        report("footprint", 0, 0)
        if request is not None:
            retained = graph.without(request)
        assert retained is not None
        refuse_emptied(trained.items(retained), UPDATE if request is None else "request")
        return cls(
            trained=trained,
            graph=graph,
            asked=request,
            retained=retained,
            touched=item_footprint(trained.module, graph, retained, request, trained.reach),
            target=target or PrivacyTarget(epsilon=trained.recipe.epsilon, delta=trained.recipe.delta),
            seed=None if seed is None else whole_number(seed, "seed"),
            noise_seed=None if noise_seed is None else whole_number(noise_seed, "the seed"),
            device=checked_device(device),
            progress=report,
            started=started,
            **more,
        )

    @property
    def request(self) -> Request:
        """What was asked for. Methods that cannot update a graph read it."""
        assert self.asked is not None
        return self.asked

    @cached_property
    def to_train_anew(self) -> Trained:
        """The model that a training from 0 on the retained graph makes again."""
        return with_members_that_stay(self.trained, self.graph, self.retained, self.asked)

    @property
    def after_items(self) -> Items:
        """What the model answers for on the retained graph."""
        return self.trained.items(self.retained)

    @cached_property
    def before(self) -> Objective:
        return self.trained.objective(self.graph, device=self.device)

    @cached_property
    def renewed(self) -> Trained:
        """The model with the encoders that training on the retained graph gives, and without a network of before.

        A model without either is the model itself.
        """
        return self._renewed[0]

    @property
    def renewed_parts(self) -> list[int]:
        """The parts of a stacked model whose encoders were trained again."""
        return self._renewed[1]

    @cached_property
    def _renewed(self) -> tuple[Trained, list[int]]:
        if self.trained.is_boosted:
            return without_network(self.trained), []
        if not self.trained.is_stacked:
            return self.trained, []
        where: Any = {"device": self.device, "progress": self.progress}
        return with_renewed_encoders(self.trained, self.graph, self.retained, self.asked, **where)

    @cached_property
    def after(self) -> Objective:
        return self.renewed.objective(self.retained, device=self.device)

    @cached_property
    def training_unchanged(self) -> bool:
        """Whether training on the retained graph would give the present weights again, bit for bit."""
        trained = self.trained
        replayable = not trained.history and not trained.certification_blockers and reach_is_proven(trained.module)
        if trained.is_ensemble or trained.composite is not None or not (self.touched.empty and replayable):
            return False  # shards and encoders are compared one by one, networks made anew
        if trained.recipe.environment != environment(device=self.device):
            return False
        if isinstance(self.graph, DistributedGraph):  # training reads the features of training rows, all unchanged
            return True
        return same_training_input(self.graph, self.retained, trained.reach, view=view_of(trained.module))

    @property
    def theta(self) -> Tensor:
        """The weights to start from, on the device, in float64."""
        return self.trained.theta.to(device=self.device, dtype=torch.float64)

    def history_entry(self, method: str, theta: Tensor) -> HistoryEntry:
        """The entry that this request adds to the history of the model."""
        return HistoryEntry(
            method=UPDATE if self.asked is None else method,
            m=self.trained.items(self.graph).num_training,
            removed=self.touched.num_removed,
            affected=self.touched.num_affected,
            step_norm=float((theta.cpu() - self.trained.theta).norm()),
            gradient_norm=self.trained.gradient_norm,
        )
