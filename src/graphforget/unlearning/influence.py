"""The influence step: the change of the summed training loss, the step of the weights that follows from it, and the
length of the step (docs/maths.md, section 6)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphforget.errors import Refused
from graphforget.graph.reach import Reach
from graphforget.request.footprint import Footprint
from graphforget.training.loss_sum import LossSum
from graphforget.training.objective import Objective
from graphforget.training.trained import Trained
from graphforget.unlearning.curvature_solve import CurvatureSolution, Solver, solve
from graphforget.unlearning.task import Task


@dataclass(frozen=True)
class LossChange:
    """`L_add - L_sub`: the summed training loss on `G'` minus that on `G`, on the rows of the footprint alone.

        sum over V_trn minus dV of l_i(G')  =  sum over V_trn of l_i(G)  +  L_add  -  L_sub
        L_add = sum over A and the added items of l_i(G'),   L_sub = sum over A and dV & V_trn of l_i(G)

    The paper's Lemma 1, for every mixture of requests at once.
    """

    added: LossSum | None
    subtracted: LossSum | None

    @classmethod
    def of(cls, before: Objective, after: Objective, touched: Footprint, reach: Reach) -> LossChange:
        there = after.items.rows_of(before.items.keys[touched.affected])
        there = torch.cat([there, touched.added]).sort().values
        here = torch.cat([touched.affected, touched.removed]).sort().values
        return cls(
            added=after.on(there, reach=reach) if there.numel() else None,
            subtracted=before.on(here, reach=reach) if here.numel() else None,
        )

    def value(self, theta: Tensor) -> float:
        added = 0.0 if self.added is None else self.added.value(theta)
        return added - (0.0 if self.subtracted is None else self.subtracted.value(theta))

    def gradient(self, theta: Tensor) -> Tensor:
        added = torch.zeros_like(theta) if self.added is None else self.added.gradient(theta)
        return added if self.subtracted is None else added - self.subtracted.gradient(theta)


@dataclass(frozen=True)
class AcceptedStep:
    """The part of a step that was taken."""

    theta: Tensor
    length: float  # 1: the full step
    objective_before: float  # F on the retained graph
    objective_after: float


def line_search(
    after: Objective,
    theta: Tensor,
    step: Tensor,
    *,
    m: int,
    initial_gradient: Tensor,
    shorten: bool,
    most: int = 20,
) -> AcceptedStep | None:
    """The full step if it lowers its own objective, else the first half, quarter ... that does; None if none does.

    An influence step minimises `(1/m) sum l_i(theta; G') + (mu/2) ||theta||^2 - initial_gradient . theta`.
    Here `m` is that before the request, and `initial_gradient` is the gradient of `F` at the weights that training
    ended with. The slope along the step is negative by construction. (`F` on `G'` itself may rise along the best step,
    because that step ignores `m -> m'` and `initial_gradient`.) With `shorten` the step is halved as long as the value
    falls further: the quadratic model of a network that is not convex is good only near its weights.
    """

    def values(at: Tensor) -> tuple[float, float]:
        data, penalty = after.data.value(at) + after.linear_term(at), 0.5 * after.mu * float(at @ at)
        return data / m + penalty - float(initial_gradient @ (at - theta)), data / after.m + penalty

    start, objective_before = values(theta)
    tiny = 1e-13 * abs(start)  # a full step may be too small for a visible effect; a shortened one may not
    best: tuple[float, AcceptedStep] | None = None
    for halvings in range(most):
        length = 0.5**halvings
        at = theta + length * step
        value, objective = values(at)
        lowest = (start if halvings else start + tiny) if best is None else best[0]
        if value < lowest:  # false for NaN
            best = value, AcceptedStep(at, length, objective_before, objective)
            if not shorten:
                break
        elif best is not None:
            break
    return None if best is None else best[1]


@dataclass(frozen=True)
class Step:
    """An influence step that was taken."""

    trained: Trained  # with the step in its history
    solved: CurvatureSolution
    accepted: AcceptedStep

    @property
    def notes(self) -> list[str]:
        accepted, notes = self.accepted, list(self.solved.notes)
        if accepted.length < 1:
            notes.append(f"the full step would have overshot, {accepted.length:g} of it was taken")
        if accepted.objective_after > accepted.objective_before:
            rise = accepted.objective_after - accepted.objective_before
            notes.append(
                f"the objective on the retained graph rose by {rise:.2g}: the step ignores the gradient at the "
                "trained weights and the smaller number of training nodes"
            )
        return notes

    def summary(self) -> dict[str, object]:
        return self.solved.summary() | {
            "length": self.accepted.length,
            "objective_before": self.accepted.objective_before,
        }


def influence_step(task: Task, solver: Solver, *, method: str) -> Step:
    """`theta - (1/m) H^-1 (grad L_add - grad L_sub)`, or the part of it that lowers its own objective."""
    trained, before, after, theta = task.trained, task.before, task.after, task.theta
    task.progress("gradients on the footprint", 0, 0)
    change = LossChange.of(before, after, task.touched, trained.reach).gradient(theta)
    solved = solve(
        before,
        theta,
        -change / before.m,
        solver=solver,
        strongly_convex=trained.strongly_convex,
        reach=trained.reach,
        seed=task.seed or 0,
        progress=task.progress,
    )
    task.progress("length of the step", 0, 0)
    accepted = line_search(
        after,
        theta,
        solved.solution.x,
        m=before.m,
        initial_gradient=before.gradient(theta),
        shorten=not trained.strongly_convex,
    )
    if accepted is None:
        raise Refused("no part of the influence step lowers its own objective; retrain instead (method 'retrain')")
    return Step(
        trained.with_update(accepted.theta, after, task.history_entry(method, accepted.theta)), solved, accepted
    )
