"""The encoders that one rank trains: those whose number has this remainder. It brings their parts together first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphforget.distributed.group import Group, Message
from graphforget.errors import OtherVersion
from graphforget.graph.gathered import induced_on
from graphforget.graph.graph import Graph
from graphforget.graph.row_part import RowPart
from graphforget.models.composite import inner_state
from graphforget.models.part_embeddings import stacked_on_ranks
from graphforget.models.registry import build
from graphforget.models.stacked import Stacked
from graphforget.training.encoders import trained_encoder, training_reach
from graphforget.training.environment import environment
from graphforget.training.fit import deterministic
from graphforget.training.losses import as_loss
from graphforget.training.recipe import Recipe
from graphforget.training.training_input import input_digest


@dataclass
class PartEncoders:
    """What one rank knows of the encoders that it trains. `inputs` has the digest of what each was trained on."""

    group: Group
    inputs: dict[int, str] = field(default_factory=dict)
    _here: dict[int, Graph] = field(default_factory=dict)  # parts that were brought here and are not trained yet
    _gathered: set[int] = field(default_factory=set)  # parts that are on the rank of their encoder

    def forget_parts(self) -> None:
        """Drops the parts that were brought together: the graph has changed."""
        self._here, self._gathered = {}, set()

    def read_inputs(self, digests: list[str] | None) -> None:
        """Takes those of all digests that are of this rank's encoders."""
        known = dict(enumerate(digests or []))
        self.inputs = {number: one for number, one in known.items() if self._is_mine(number)}
        self.forget_parts()

    def written_inputs(self) -> list[tuple[int, str]]:
        return sorted(self.inputs.items())

    def _is_mine(self, number: int) -> bool:
        return number % self.group.size == self.group.rank

    # -- what rank 0 calls ---------------------------------------------------------------------------------------

    def changed(self, part: RowPart, given: Mapping[str, Any]) -> Message:
        """Which of these encoders were trained on another input than the one that is there now."""
        task = _Task.of(given, columns=part.attributes.shape[1])
        self._gather(part, task)
        self._check_environment(task.recipe)
        reach = training_reach(task.module)
        mine = [number for number in task.parts if self._is_mine(number)]
        digests = {number: input_digest(self._here[number], reach) for number in mine}
        return Message({"changed": [number for number in mine if digests[number] != self.inputs.get(number)]})

    def train(self, part: RowPart, given: Mapping[str, Any]) -> Message:
        """Trains those of these encoders that are this rank's, as one machine does."""
        task = _Task.of(given, columns=part.attributes.shape[1])
        self._gather(part, task)
        self._check_environment(task.recipe)
        graphs = {number: self._here[number] for number in task.parts if self._is_mine(number)}
        self.forget_parts()
        tensors: dict[str, Tensor] = {}
        scales: dict[int, float] = {}
        blockers: list[str] = []
        with deterministic():
            for number, graph in graphs.items():
                encoder, scales[number], found = trained_encoder(
                    task.module, graph, task.recipe, as_loss(task.recipe.loss), number, device="cpu"
                )
                self.inputs[number] = input_digest(graph, training_reach(task.module))
                tensors |= inner_state(encoder, f"encoders.{number}.")
                blockers += found
        fields = {"scales": [[number, scale] for number, scale in scales.items()], "blockers": blockers}
        return Message(fields, tensors)

    def _check_environment(self, recipe: Recipe) -> None:
        """Raises `OtherVersion` unless training gives the same bits on this rank as on rank 0."""
        here = environment()
        other = next((name for name, value in recipe.environment.items() if here.get(name) != value), None)
        if other is not None:
            message = f"rank {self.group.rank} has {other} = {here.get(other)}, rank 0 has {recipe.environment[other]}"
            raise OtherVersion(f"{message}: encoders have the same bits only in the same environment")

    def _gather(self, part: RowPart, task: _Task) -> None:
        """Brings the parts to the ranks of their encoders, unless they are there. No rank can fail in between."""
        for number in task.parts:
            if number in self._gathered:
                continue

            def is_member(numbers: np.ndarray, number: int = number) -> np.ndarray:
                parts = task.module.hashed_part_of(torch.from_numpy(numbers), seed=task.recipe.seed)
                mask: np.ndarray = (parts == number).numpy()
                return mask

            given: Any = {"classes": task.classes, "sparse": task.sparse}
            graph = induced_on(number % self.group.size, part, is_member, self.group, **given)
            if graph is not None:
                self._here[number] = graph
            self._gathered.add(number)


@dataclass(frozen=True, eq=False)
class _Task:
    """Encoders to look at, and how they are trained."""

    parts: tuple[int, ...]
    module: Stacked
    recipe: Recipe
    classes: int
    sparse: bool

    @classmethod
    def of(cls, given: Mapping[str, Any], *, columns: int) -> _Task:
        recipe, classes = Recipe(**given["recipe"]), int(given["classes"])
        module = stacked_on_ranks(build(recipe.model, columns=columns, classes=classes, **recipe.options))
        assert module is not None
        return cls(tuple(given["parts"]), module, recipe, classes, bool(given["sparse"]))
