"""The paper's bounds: their printed values, the quadratic they solve, and what they refuse."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphforget.errors import InputError
from graphforget.privacy.paper_bounds import (
    Constants,
    ceu_data_dependent_as_adapted,
    ceu_data_dependent_residual,
    ceu_distance,
    ceu_worst_as_adapted,
    ceu_worst_residual,
    idea_bound,
    optimum_shift,
    sequential_bound,
)

PAPER = Constants()
NAN, INF = float("nan"), float("inf")

counts = st.integers(0, 10**5)
positive = st.floats(1e-3, 1e3)
some_constants = st.builds(Constants, positive, positive, positive, positive, positive, positive)


def test_the_papers_constants() -> None:
    assert dataclasses.astuple(PAPER) == (0.05, 0.25, 3.0, 0.25, 1.0, 1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAPER.lipschitz = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(("n", "t", "step"), [(2437, 2088, 8.23), (2437, 1, 0.0), (1208, 100, 1.5)])
def test_edges_with_the_papers_constants(n: int, t: int, step: float) -> None:
    result = idea_bound(m=n, removed=0, affected=t, step_norm=step, constants=PAPER)
    assert result == pytest.approx(15.49 * math.sqrt(t / n) + step, rel=1e-3)


@pytest.mark.parametrize(("n", "k", "t"), [(2437, 122, 1810), (1208, 60, 0), (1208, 1, 40)])
def test_nodes_with_the_papers_constants(n: int, k: int, t: int) -> None:
    result = optimum_shift(m=n, removed=k, affected=t, constants=PAPER)
    assert result == pytest.approx((0.25 * k + math.sqrt(0.0625 * k**2 + 0.6 * n * t)) / (0.05 * n))


@settings(max_examples=200, deadline=None)
@given(m=st.integers(1, 10**6), removed=counts, affected=counts, constants=some_constants, nonnegative=st.booleans())
def test_the_shift_is_the_root_of_its_quadratic(
    m: int, removed: int, affected: int, constants: Constants, nonnegative: bool
) -> None:
    d = optimum_shift(m=m, removed=removed, affected=affected, constants=constants, nonnegative_losses=nonnegative)
    per_node = (2 if nonnegative else 4) * constants.loss_bound
    left = constants.strong_convexity * m / 2 * d * d
    assert left == pytest.approx(per_node * affected + constants.lipschitz * removed * d, rel=1e-9)
    assert (d > 0) == (removed + affected > 0)  # the larger root, not the one at or below zero


def test_doing_nothing_to_nobody_moves_nothing() -> None:
    assert optimum_shift(m=10, removed=0, affected=0, constants=PAPER) == 0
    assert idea_bound(m=10, removed=0, affected=0, step_norm=0.0, constants=PAPER) == 0
    assert idea_bound(m=10, removed=0, affected=0, step_norm=0.5, constants=PAPER) == 0.5
    assert sequential_bound(m=10, removed=[], affected=[], step_norms=[], constants=PAPER) == 0


def test_losses_of_either_sign_cost_a_factor_of_two_under_the_root() -> None:
    shifts = [
        optimum_shift(m=100, removed=0, affected=7, constants=PAPER, nonnegative_losses=nonnegative)
        for nonnegative in (True, False)
    ]
    assert shifts[1] / shifts[0] == pytest.approx(math.sqrt(2))
    bounds = [
        idea_bound(m=100, removed=0, affected=7, step_norm=1.0, constants=PAPER, nonnegative_losses=nonnegative)
        for nonnegative in (True, False)
    ]
    assert bounds == [shift + 1 for shift in shifts]


def test_the_shift_is_monotone_in_everything() -> None:
    base: dict[str, Any] = {"m": 1000, "removed": 20, "affected": 300}

    def shift(constants: Constants = PAPER, **changed: int) -> float:
        return optimum_shift(**(base | changed), constants=constants)

    def with_constant(name: str) -> float:
        return shift(dataclasses.replace(PAPER, **{name: 1.1 * getattr(PAPER, name)}))

    assert shift(removed=21) > shift()
    assert shift(affected=301) > shift()
    assert shift(m=1001) < shift()
    assert with_constant("strong_convexity") < shift()
    assert with_constant("lipschitz") > shift()
    assert with_constant("loss_bound") > shift()
    for name in ("hessian_lipschitz", "gradient_bound", "gradient_lipschitz"):
        assert with_constant(name) == shift()


@settings(max_examples=100, deadline=None)
@given(m=st.integers(1, 10**6), removed=counts, affected=counts, step=st.floats(0, 100), constants=some_constants)
def test_one_request_in_a_row_of_one(m: int, removed: int, affected: int, step: float, constants: Constants) -> None:
    one = idea_bound(m=m, removed=removed, affected=affected, step_norm=step, constants=constants)
    assert one == optimum_shift(m=m, removed=removed, affected=affected, constants=constants) + step
    row = sequential_bound(m=m, removed=[removed], affected=[affected], step_norms=[step], constants=constants)
    assert row == one


@settings(max_examples=100, deadline=None)
@given(t=st.integers(1, 20), m=st.integers(1, 10**6), n=counts, n_tilde=counts, constants=some_constants)
def test_requests_in_a_row_as_printed(t: int, m: int, n: int, n_tilde: int, constants: Constants) -> None:
    """Appendix, proof of Proposition 2, with `t`, `N`, `N'` and step norms `||dtheta_i|| / m` of 1, 2, .. t."""
    result = sequential_bound(
        m=m, removed=[n] * t, affected=[n_tilde] * t, step_norms=list(range(1, t + 1)), constants=constants
    )
    lam, lip, c = constants.strong_convexity, constants.lipschitz, constants.loss_bound
    root = math.sqrt(4 * t * m * lam * c * n_tilde + t**2 * lip**2 * n**2)
    assert result == pytest.approx((t * lip * n + root) / (m * lam) + t * (t + 1) / 2)


def test_unequal_requests_in_a_row() -> None:
    result = sequential_bound(m=500, removed=[1, 0, 4], affected=[10, 20, 0], step_norms=[0.5, 0, 2], constants=PAPER)
    assert result == pytest.approx(optimum_shift(m=500, removed=5, affected=30, constants=PAPER) + 2.5)
    either = sequential_bound(
        m=500, removed=[0, 0], affected=[3, 4], step_norms=[1, 1], constants=PAPER, nonnegative_losses=False
    )
    assert either == pytest.approx(2 + math.sqrt(8 * 25 * 3 * 7) / 25)


def test_ceu_worst_case() -> None:
    # The peers' measurement: 100 edges of Cora, 1734 training nodes, lambda .01.
    strong = dataclasses.replace(PAPER, strong_convexity=0.01)
    assert ceu_worst_residual(m=1734, touched=200, constants=strong) == pytest.approx(5.77e8, rel=1e-3)
    assert ceu_worst_residual(m=2437, touched=9, constants=PAPER) == pytest.approx(40_000 * 81 / 2437)
    assert ceu_worst_residual(m=2437, touched=0, constants=PAPER) == 0


@pytest.mark.parametrize(("affected", "plotted"), [(1518, 236.39), (1810, 336.08), (2088, 447.25), (2148, 473.31)])
def test_ceu_worst_case_as_plotted(affected: int, plotted: float) -> None:
    result = ceu_worst_as_adapted(m=2437, affected=affected, constants=PAPER)
    assert result == pytest.approx(0.25 * affected**2 / 2437)
    assert result == pytest.approx(plotted, abs=0.01)
    as_said = ceu_worst_as_adapted(m=2437, affected=affected, constants=PAPER, edge_strong_convexity=0.05)
    assert as_said == pytest.approx(160_000 * result)
    assert as_said == ceu_worst_residual(m=2437, touched=affected, constants=PAPER)


def test_ceu_takes_each_constant_to_its_power() -> None:
    powers = {"hessian_lipschitz": 1, "gradient_lipschitz": 2, "gradient_bound": 2, "strong_convexity": -4}
    powers |= {"lipschitz": 0, "loss_bound": 0}
    base = ceu_worst_residual(m=100, touched=6, constants=PAPER)
    adapted = ceu_worst_as_adapted(m=100, affected=6, constants=PAPER)
    for name, power in powers.items():
        tripled = dataclasses.replace(PAPER, **{name: 3 * getattr(PAPER, name)})
        assert ceu_worst_residual(m=100, touched=6, constants=tripled) == pytest.approx(3**power * base)
        expected = adapted if name == "strong_convexity" else 3**power * adapted  # it has its own
        assert ceu_worst_as_adapted(m=100, affected=6, constants=tripled) == pytest.approx(expected)


def test_ceu_data_dependent() -> None:
    residual = ceu_data_dependent_residual(step_norm=0.236, constants=PAPER)
    assert residual == pytest.approx(0.25 * 0.236**2)
    assert residual == pytest.approx(1.4e-2, rel=0.01)  # the peers' table
    assert ceu_data_dependent_as_adapted(step_norm=0.236, constants=PAPER) == pytest.approx(0.236**2)
    assert ceu_distance(residual=residual, constants=PAPER) == pytest.approx(5 * 0.236**2)
    steep = dataclasses.replace(PAPER, lipschitz=1.0)
    assert ceu_data_dependent_as_adapted(step_norm=2.0, constants=steep) == 1.0
    assert ceu_data_dependent_residual(step_norm=2.0, constants=steep) == 1.0


def test_a_step_that_ran_away_bounds_nothing() -> None:
    assert idea_bound(m=10, removed=1, affected=1, step_norm=INF, constants=PAPER) == INF
    assert ceu_data_dependent_residual(step_norm=1e200, constants=PAPER) == INF


def shift(**changed: float) -> float:
    given: dict[str, float] = {"m": 10, "removed": 1, "affected": 1}
    return optimum_shift(**(given | changed), constants=PAPER)  # type: ignore[arg-type]


def row(**changed: list[float]) -> float:
    given: dict[str, list[float]] = {"removed": [1, 1], "affected": [1, 1], "step_norms": [1, 1]}
    return sequential_bound(m=10, **(given | changed), constants=PAPER)  # type: ignore[arg-type]


BAD: dict[str, Callable[[], object]] = {
    "no training node": lambda: shift(m=0),
    "negative m": lambda: shift(m=-5),
    "half an m": lambda: shift(m=2.5),
    "no m": lambda: shift(m=NAN),
    "negative removed": lambda: shift(removed=-1),
    "no removed": lambda: shift(removed=NAN),
    "negative affected": lambda: shift(affected=-1),
    "infinite affected": lambda: shift(affected=INF),
    "negative step": lambda: idea_bound(m=10, removed=1, affected=1, step_norm=-1, constants=PAPER),
    "no step": lambda: idea_bound(m=10, removed=1, affected=1, step_norm=NAN, constants=PAPER),
    "negative removed in a row": lambda: row(removed=[2, -1]),
    "negative affected in a row": lambda: row(affected=[2, -1]),
    "no step in a row": lambda: row(step_norms=[1, NAN]),
    "worst residual, no training node": lambda: ceu_worst_residual(m=0, touched=1, constants=PAPER),
    "worst residual, negative": lambda: ceu_worst_residual(m=1, touched=-1, constants=PAPER),
    "worst adapted, no training node": lambda: ceu_worst_as_adapted(m=0, affected=1, constants=PAPER),
    "worst adapted, negative": lambda: ceu_worst_as_adapted(m=1, affected=-1, constants=PAPER),
    "worst adapted, flat": lambda: ceu_worst_as_adapted(m=1, affected=1, constants=PAPER, edge_strong_convexity=0),
    "data-dependent residual": lambda: ceu_data_dependent_residual(step_norm=NAN, constants=PAPER),
    "data-dependent adapted": lambda: ceu_data_dependent_as_adapted(step_norm=-1, constants=PAPER),
    "distance, negative": lambda: ceu_distance(residual=-1, constants=PAPER),
    "distance, none": lambda: ceu_distance(residual=NAN, constants=PAPER),
}


@pytest.mark.parametrize("name", BAD)
def test_refusals(name: str) -> None:
    with pytest.raises(InputError, match=r"^[^.\n]* is .*, .* is needed$"):
        BAD[name]()


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Constants)])
@pytest.mark.parametrize("value", [0.0, -1.0, NAN, INF])
def test_constants_are_positive_and_finite(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"^{field} is .*, a finite number above 0 is needed$"):
        Constants(**{field: value})


@pytest.mark.parametrize("name", ["removed", "affected", "step_norms"])
def test_a_row_needs_equal_lengths(name: str) -> None:
    with pytest.raises(InputError, match=r"each request needs one of every kind"):
        row(**{name: [1.0]})
