"""The paper's bounds on distances between weights, and those of CEU it is compared with (docs/maths.md, section 8).

All of them hold only if the declared constants do. They are what the `conditional` level and the paper's figures use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from graphforget.errors import InputError
from graphforget.validation import check_from_zero, whole_number


@dataclass(frozen=True)
class Constants:
    """What the bounds assume of each training node's loss, its share of the weight decay included.

    The values are the paper's; nothing here measures whether they hold.
    """

    strong_convexity: float = 0.05  # lambda
    lipschitz: float = 0.25  # L, of the loss: a bound on each node's gradient between the two optima
    loss_bound: float = 3.0  # C, at both optima and on both graphs
    hessian_lipschitz: float = 0.25  # gamma1 in CEU, M in the paper
    gradient_bound: float = 1.0  # c1
    gradient_lipschitz: float = 1.0  # gamma2

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            _check_constant(value, name)

    @classmethod
    def of(cls, given: Constants | Mapping[str, float]) -> Constants:
        """From constants, or from names and numbers. Those that are left out have the paper's values."""
        if isinstance(given, Constants):
            return given
        if not isinstance(given, Mapping):
            raise InputError(f"the constants are {given!r}, graphforget.Constants are needed")
        known = [constant.name for constant in fields(cls)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise InputError(f"there is no constant {unknown[0]!r}, only {', '.join(known)}")
        return cls(**given)


def optimum_shift(
    *, m: int, removed: int, affected: int, constants: Constants, nonnegative_losses: bool = True
) -> float:
    """Theorem 2, how far the optimum can move: `(L k + sqrt(f m lambda C a + L^2 k^2)) / (m lambda)`.

    `m` training nodes before, `k = removed` of them go, `a = affected` stay and may have another loss (the footprint's
    sets; `|dV|` and `|V~|` for the paper's own). `f` is 4 for losses in `[0, C]`; if only `|l| <= C` it is 8, where the
    paper prints 4. With `F`, `F'` the mean losses before and after and `d` the distance of their optima:

    1. `F` is strongly convex and least at `theta*`:   `lambda/2 d^2 <= F(theta~) - F(theta*)`.
    2. `m F` is `(m - k) F'`, plus old minus new loss of the affected nodes, plus the loss of the removed ones.
    3. `F'` is least at `theta~`, so its part of `m (F(theta~) - F(theta*))` is at most 0; each affected node adds at
       most `2 C` (`4 C` if losses may be negative), each removed one `L d`.
    4. Together `m lambda/2 d^2 <= 2 C a + L k d`; the larger root of that is the bound.
    """
    m, removed, affected = _checked_m(m), whole_number(removed, "removed"), whole_number(affected, "affected")
    factor = 4 if nonnegative_losses else 8
    scale = m * constants.strong_convexity
    slope = constants.lipschitz * removed
    return (slope + math.sqrt(factor * scale * constants.loss_bound * affected + slope * slope)) / scale


def idea_bound(
    *,
    m: int,
    removed: int,
    affected: int,
    step_norm: float,
    constants: Constants,
    nonnegative_losses: bool = True,
) -> float:
    """Proposition 3, the unlearned weights' distance from the retrained ones: `optimum_shift + step_norm`.

    `step_norm = ||theta_bar - theta*||`, which the paper writes `||dtheta|| / m`. A triangle inequality around
    `theta*`: it is smallest for a step of zero.
    """
    return sequential_bound(
        m=m,
        removed=[removed],
        affected=[affected],
        step_norms=[step_norm],
        constants=constants,
        nonnegative_losses=nonnegative_losses,
    )


def sequential_bound(
    *,
    m: int,
    removed: Sequence[int],
    affected: Sequence[int],
    step_norms: Sequence[float],
    constants: Constants,
    nonnegative_losses: bool = True,
) -> float:
    """Proposition 2, after several requests: `optimum_shift` of the summed counts plus the sum of the step norms.

    `m` counts the training nodes before the first. In the paper every request has the same `N` and `N'`:
    `(t L N + sqrt(4 t m lambda C N' + t^2 L^2 N^2)) / (m lambda) + sum_i ||dtheta_i|| / m`.
    """
    if not len(removed) == len(affected) == len(step_norms):
        lengths = f"{len(removed)} removed, {len(affected)} affected and {len(step_norms)} step norms"
        raise InputError(f"there are {lengths}, each request needs one of every kind")
    for step_norm in step_norms:
        check_from_zero(step_norm, "a step norm")
    shift = optimum_shift(
        m=m,
        removed=sum(whole_number(count, "removed") for count in removed),
        affected=sum(whole_number(count, "affected") for count in affected),
        constants=constants,
        nonnegative_losses=nonnegative_losses,
    )
    return shift + math.fsum(step_norms)


def ceu_worst_residual(*, m: int, touched: int, constants: Constants) -> float:
    """CEU's Theorem 8, a bound on the gradient's norm: `gamma1 gamma2^2 c1^2 touched^2 / (lambda^4 m)`.

    `touched` sums over the nodes the number of their removed neighbours: twice the number of removed edges.
    """
    return _worst(m=m, count=touched, constants=constants, strong_convexity=constants.strong_convexity)


def ceu_data_dependent_residual(*, step_norm: float, constants: Constants) -> float:
    """CEU's Theorem 9, a bound on the gradient's norm: `gamma1 ||theta_bar - theta*||^2`."""
    check_from_zero(step_norm, "the step norm")
    return constants.hessian_lipschitz * step_norm * step_norm


def ceu_worst_as_adapted(*, m: int, affected: int, constants: Constants, edge_strong_convexity: float = 1.0) -> float:
    """What the paper's code plots for CEU's Theorem 8: `M gamma2^2 c1^2 affected^2 / (lambda_edge^4 m)`.

    A residual used as a distance, with affected nodes for touched ones and `lambda_edge = 1`, although the paper says
    0.05 throughout.
    """
    _check_constant(edge_strong_convexity, "edge_strong_convexity")
    return _worst(m=m, count=affected, constants=constants, strong_convexity=edge_strong_convexity)


def ceu_data_dependent_as_adapted(*, step_norm: float, constants: Constants) -> float:
    """What the paper's code plots for CEU's Theorem 9: `(M / L) ||theta_bar - theta*||^2`.

    Dividing by a Lipschitz constant is the wrong direction: it bounds the distance from below, not from above (and `L`
    is that of the loss, not of its gradient). `ceu_distance` converts rightly.
    """
    return ceu_data_dependent_residual(step_norm=step_norm, constants=constants) / constants.lipschitz


def ceu_distance(*, residual: float, constants: Constants) -> float:
    """The distance from the optimum that a gradient's norm allows, by strong convexity: `residual / lambda`."""
    check_from_zero(residual, "the residual")
    return residual / constants.strong_convexity


def _worst(*, m: int, count: int, constants: Constants, strong_convexity: float) -> float:
    m, count = _checked_m(m), whole_number(count, "the count of nodes")
    root = constants.gradient_lipschitz * constants.gradient_bound * count / strong_convexity / strong_convexity
    return constants.hessian_lipschitz * root * root / m


def _checked_m(m: int) -> int:
    m = whole_number(m, "m")
    if m < 1:
        raise InputError(f"m is {m}, at least one training node is needed")
    return m


def _check_constant(value: float, name: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise InputError(f"{name} is {value}, a finite number above 0 is needed")
