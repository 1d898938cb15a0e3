"""GIF, the influence update that IDEA grew from, without a certificate."""

from __future__ import annotations

from dataclasses import dataclass

from graphforget.certificates.claim import empirical
from graphforget.trained import Trained
from graphforget.unlearning.base import Method, Task
from graphforget.unlearning.influence import influence_step
from graphforget.unlearning.outcome import Change
from graphforget.unlearning.solve import Curvature, Name, Solver


@dataclass(frozen=True)
class GifOptions:
    """How the step is solved for (see `Solver`): by default a hundred rounds of LiSSA, as published."""

    solver: Name = "lissa"
    curvature: Curvature | None = None
    tolerance: float | None = None
    iterations: int | None = 100
    damping: float = 0.0
    scale: float | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        self.way()  # checks its own

    def way(self) -> Solver:
        return Solver(
            name=self.solver,
            curvature=self.curvature,
            tolerance=self.tolerance,
            iterations=self.iterations,
            damping=self.damping,
            scale=self.scale,
            batch=self.batch,
        )


class Gif(Method[GifOptions]):
    """`theta - (1/m) H^-1 (grad L_add - grad L_sub)`, the same step as IDEA's; nothing is claimed of it."""

    options = GifOptions
    name = "gif"
    title = "GIF, one influence step without a certificate"
    reference = "Wu et al., WWW 2023"
    level = "empirical"
    kinds = frozenset({"nodes", "edges", "attributes"})

    def gradients(self, trained: Trained) -> int:
        return 240

    def change(self, task: Task, options: GifOptions) -> Change:
        step = influence_step(task, options.way(), method=self.name)
        claim = empirical("an influence step, of which nothing is guaranteed")
        details = {"step": step.summary(), "objective_after": step.trained.objective_value}
        return Change(step.trained, claim, details, tuple(step.notes))
