"""Solves in a Krylov space, and the preconditioner that they leave."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphforget.linalg.cg import conjugate_gradient
from graphforget.linalg.ritz import RitzPreconditioner, krylov_solution

SIZE = 120


def matrix(seed: int, *, decay: float = 0.8, smallest: float = 1e-4) -> Tensor:
    """A dense positive definite matrix with few large eigenvalues."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.linalg.qr(torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float64)).Q
    values = decay ** torch.arange(SIZE, dtype=torch.float64) + smallest
    return vectors @ torch.diag(values) @ vectors.T


def vector(seed: int) -> Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)


def as_matrix(preconditioner: RitzPreconditioner) -> Tensor:
    return torch.stack([preconditioner(row) for row in torch.eye(preconditioner.size, dtype=torch.float64)], dim=1)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_solution_is_the_best_of_the_krylov_space(seed: int) -> None:
    a, b = matrix(seed), vector(seed)
    solution = krylov_solution(lambda v: a @ v, b, products=20)
    plain = conjugate_gradient(lambda v: a @ v, b, tolerance=1e-14, max_iterations=20, remembered=20)
    assert solution.products == 20
    torch.testing.assert_close(solution.x, plain.x, rtol=1e-6, atol=1e-8)
    exact = krylov_solution(lambda v: a @ v, b, products=SIZE)
    torch.testing.assert_close(a @ exact.x, b, rtol=1e-7, atol=1e-7)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_it_is_positive_definite_and_saves_iterations_for_other_right_sides(seed: int) -> None:
    a, other = matrix(seed), vector(seed + 7)
    ritz = krylov_solution(lambda v: a @ v, vector(seed), products=40).ritz
    assert ritz is not None
    dense = as_matrix(ritz)
    torch.testing.assert_close(dense, dense.T)
    eigenvalues = torch.linalg.eigvalsh(dense)
    assert float(eigenvalues.min()) > 0
    assert float(eigenvalues.max()) == pytest.approx(1)
    plain = conjugate_gradient(lambda v: a @ v, other, tolerance=1e-6)
    faster = conjugate_gradient(lambda v: a @ v, other, tolerance=1e-6, preconditioner=ritz)
    assert plain.status == faster.status == "converged"
    assert float((a @ faster.x - other).norm()) <= 2e-6 * float(other.norm())
    assert faster.iterations < 0.7 * plain.iterations


def test_it_serves_a_matrix_close_to_its_own_and_never_changes_a_solution() -> None:
    a, b = matrix(0), vector(3)
    ritz = krylov_solution(lambda v: a @ v, vector(0), products=40).ritz
    assert ritz is not None
    for near in (a + 0.01 * matrix(1), matrix(2), torch.eye(SIZE, dtype=torch.float64)):  # close, far, another one
        solution = conjugate_gradient(near.matmul, b, tolerance=1e-8, preconditioner=ritz)
        assert solution.status == "converged"
        torch.testing.assert_close(near @ solution.x, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rank", [3, 20])
def test_a_space_that_is_exhausted_ends_the_process(rank: int) -> None:
    """With `rank` large eigenvalues and one small one the space has rank + 1 dimensions; rounding adds no more."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(SIZE, rank, generator=generator, dtype=torch.float64)
    a = z @ z.T + 1e-4 * torch.eye(SIZE, dtype=torch.float64)
    solution = krylov_solution(lambda v: a @ v, vector(0), products=40)
    assert solution.products <= rank + 2
    assert (solution.ritz is None) == (rank == 3)
    torch.testing.assert_close(a @ solution.x, vector(0), rtol=1e-5, atol=1e-5)


def test_in_float32_it_stays_positive_definite_whatever_the_condition() -> None:
    a = matrix(0, decay=0.3, smallest=1e-7).float()
    ritz = krylov_solution(lambda v: a @ v, vector(0).float(), products=40).ritz
    assert ritz is not None
    dense = torch.stack([ritz(row) for row in torch.eye(SIZE)], dim=1).double()
    assert float(torch.linalg.eigvalsh((dense + dense.T) / 2).min()) > 1e-4


def test_without_a_right_side_or_with_a_matrix_that_is_not_positive_definite_there_is_none() -> None:
    a = matrix(0)
    nothing = krylov_solution(lambda v: a @ v, torch.zeros(SIZE, dtype=torch.float64), products=40)
    assert (nothing.products, nothing.ritz, float(nothing.x.norm())) == (0, None, 0.0)
    assert krylov_solution(lambda v: -(a @ v), vector(0), products=40).ritz is None
