"""GIF, the influence update that IDEA grew from, without a certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.empirical import Empirical
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import GIF
from graphforget.unlearning.curvature_solve import Name, SolverOptions
from graphforget.unlearning.influence import influence_step
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import MethodResult
from graphforget.unlearning.task import Task


@dataclass(frozen=True)
class GifOptions(SolverOptions):
    """How the step is solved for: by default a hundred rounds of LiSSA, as published."""

    solver: Name = "lissa"
    iterations: int | None = 100


class Gif(Method[GifOptions], info=GIF):
    """`theta - (1/m) H^-1 (grad L_add - grad L_sub)`, the same step as that of IDEA, without a guarantee."""

    options = GifOptions
    takes_items = True

    def gradients(self, trained: Trained) -> int:
        return 240

    def change(self, task: Task, options: GifOptions) -> MethodResult:
        step = influence_step(task, options.curvature_solver(), method=self.name)
        claim, _ = self.claim(task, step.trained, options)
        details = {"step": step.summary(), "objective_after": step.trained.objective_value}
        return MethodResult(step.trained, claim, details=details, notes=tuple(step.notes))

    def claim(self, task: Task, trained: Trained, options: GifOptions) -> tuple[Claim, dict[str, Any]]:
        return Empirical("an influence step without a guarantee"), {}
