"""The influence step: how a request changes the summed training loss, what follows for the weights, and how much of it
to take (docs/maths.md, section 6)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphforget.errors import Refused
from graphforget.graph.reach import Reach
from graphforget.request.footprint import Footprint
from graphforget.training.objective import LossSum, Objective
from graphforget.training.trained import Trained
from graphforget.unlearning.curvature_solve import Solved, Solver, solve
from graphforget.unlearning.task import Task


@dataclass(frozen=True)
class LossChange:
    """`L_add - L_sub`: what turns the summed training loss on `G` into that on `G'`, on the footprint's rows alone.

        sum over V_trn minus dV of l_i(G')  =  sum over V_trn of l_i(G)  +  L_add  -  L_sub
        L_add = sum over A of l_i(G'),   L_sub = sum over A and dV & V_trn of l_i(G)

    The paper's Lemma 1, for every mixture of requests at once.
    """

    added: LossSum | None
    subtracted: LossSum | None

    @classmethod
    def of(cls, before: Objective, after: Objective, touched: Footprint, reach: Reach) -> LossChange:
        there = torch.searchsorted(after.graph.numbers, before.graph.numbers[touched.affected])
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
    """How much of a step was taken."""

    theta: Tensor
    length: float  # 1: the whole step
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
    """The whole step if it lowers what it aims at, else the first half, quarter ... that does; None if none does.

    What an influence step minimises is `(1/m) sum l_i(theta; G') + (mu/2) ||theta||^2 - initial_gradient . theta`. Here
    `m` is that before the request and `initial_gradient` the gradient of `F` that training left at the start. The slope
    along the step is negative by construction. (`F` on `G'` itself may rise along the best step, because that step
    ignores `m -> m'` and `initial_gradient`.) With `shorten` the step is halved as
    long as that lowers the value further: the quadratic model of a network that is not convex is good only near its
    weights.
    """

    def aim(at: Tensor) -> tuple[float, float]:
        data, penalty = after.data.value(at) + after.linear_term(at), 0.5 * after.mu * float(at @ at)
        return data / m + penalty - float(initial_gradient @ (at - theta)), data / after.m + penalty

    start, objective_before = aim(theta)
    tiny = 1e-13 * abs(start)  # a whole step may be too small for its effect to show, a shortened one not
    best: tuple[float, AcceptedStep] | None = None
    for halvings in range(most):
        length = 0.5**halvings
        at = theta + length * step
        value, objective = aim(at)
        lowest = (start if halvings else start + tiny) if best is None else best[0]
        if value < lowest:  # not NaN either
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
    solved: Solved
    accepted: AcceptedStep

    @property
    def notes(self) -> list[str]:
        accepted, told = self.accepted, list(self.solved.notes)
        if accepted.length < 1:
            told.append(f"the whole step would have overshot, {accepted.length:g} of it was taken")
        if accepted.objective_after > accepted.objective_before:
            rise = accepted.objective_after - accepted.objective_before
            told.append(
                f"the objective on the retained graph rose by {rise:.2g}: the step accounts neither for the gradient "
                "that training left nor for the smaller number of training nodes"
            )
        return told

    def summary(self) -> dict[str, object]:
        return self.solved.summary() | {
            "length": self.accepted.length,
            "objective_before": self.accepted.objective_before,
        }


def influence_step(task: Task, way: Solver, *, method: str) -> Step:
    """`theta - (1/m) H^-1 (grad L_add - grad L_sub)`, or the part of it that lowers what it aims at."""
    trained, before, after, theta = task.trained, task.before, task.after, task.theta
    task.progress("gradients on the footprint", 0, 0)
    change = LossChange.of(before, after, task.touched, trained.reach).gradient(theta)
    solved = solve(
        before,
        theta,
        -change / before.m,
        solver=way,
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
        raise Refused("no part of the influence step lowers what it aims at; retrain instead (method 'retrain')")
    return Step(
        trained.with_update(accepted.theta, after, task.history_entry(method, accepted.theta)), solved, accepted
    )
