"""Sparse products, Jacobians, solvers, eigenvalues and Newton's method against dense oracles."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphforget.errors import InputError
from graphforget.linalg.cg import conjugate_gradient
from graphforget.linalg.dense import dense_matrix, dense_solve
from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.lanczos import extreme_eigenvalues
from graphforget.linalg.lissa import lissa
from graphforget.linalg.newton import newton_cg
from graphforget.linalg.pattern import Pattern
from graphforget.linalg.sparse import SparseMatrix, keep_entries, scale_rows_to_unit

F64 = torch.float64


def positive_definite(seed: int, size: int = 20) -> Tensor:
    torch.manual_seed(seed)
    root = torch.randn(size, size, dtype=F64)
    return root @ root.T + 0.1 * torch.eye(size, dtype=F64)


def test_a_matrix_and_its_transpose_are_freed_with_their_last_use() -> None:
    """Not by the garbage collector, which may come much later."""
    dense = torch.arange(6, dtype=F64).view(3, 2)
    matrix = SparseMatrix(dense.to_sparse_csr())
    same = SparseMatrix(torch.eye(3, dtype=F64).to_sparse_csr()).symmetric()
    assert same.T is same
    references = [weakref.ref(one) for one in (matrix, matrix.T, same)]
    turned = matrix.T
    gc.disable()
    try:
        del matrix, same
        torch.testing.assert_close(turned.T @ torch.eye(2, dtype=F64), dense)
        torch.testing.assert_close(turned @ torch.eye(3, dtype=F64), dense.T)
        del turned
        assert [one() for one in references] == [None, None, None]
    finally:
        gc.enable()


def test_a_matrix_travels_with_its_transpose_taken() -> None:
    matrix = SparseMatrix(torch.arange(6, dtype=F64).view(3, 2).to_sparse_csr())
    other = pickle.loads(pickle.dumps(matrix.T)).T
    torch.testing.assert_close(other @ torch.eye(2, dtype=F64), matrix @ torch.eye(2, dtype=F64))


@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("size", [1e-320, 1e-300, 1e-200, 1e-160, 1e-155, 1e-100, 1.0, 1e15])
def test_rows_of_any_length_are_scaled_to_unit_length(size: float, layout: str) -> None:
    """To the last digits, also where squares of their numbers underflow."""
    rows = size * torch.tensor([[3.0, 0.0, 4.0], [0.1, -0.7, 0.2], [0.0, 0.0, 0.0]], dtype=F64)
    rows = torch.cat([rows, torch.tensor([[1.0, 2.0, 1e-160]], dtype=F64)])
    given = rows.to_sparse_csr() if layout == "sparse" else rows
    scaled = scale_rows_to_unit(given).to_dense().numpy()
    exact = rows.numpy().astype(np.longdouble)
    lengths = np.sqrt(np.square(exact).sum(axis=1, keepdims=True))
    assert np.abs(scaled - exact / np.where(lengths > 0, lengths, 1)).max() <= 4 * 2.0**-53


def test_sparse_products_and_their_derivatives() -> None:
    torch.manual_seed(0)
    dense = torch.randn(6, 4, dtype=F64) * (torch.rand(6, 4) < 0.5)
    matrix = SparseMatrix(dense.to_sparse_csr())
    v = torch.randn(4, 3, dtype=F64, requires_grad=True)
    torch.testing.assert_close(matrix @ v, dense @ v)
    torch.testing.assert_close(matrix.T @ dense, dense.T @ dense)
    assert matrix.T.T is matrix
    assert torch.autograd.gradcheck(lambda u: (matrix @ u).sin(), v)
    assert torch.autograd.gradgradcheck(lambda u: (matrix @ u).sin(), v)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_keeping_entries_and_rows(seed: int) -> None:
    torch.manual_seed(seed)
    dense = torch.randn(5, 4, dtype=F64) * (torch.rand(5, 4) < 0.6)
    csr = dense.to_sparse_csr()
    keep, rows = torch.rand(csr.values().numel()) < 0.5, torch.rand(5) < 0.7
    expected = dense.clone()
    places = dense.nonzero()[~keep]
    expected[places[:, 0], places[:, 1]] = 0
    assert torch.equal(keep_entries(csr, keep, rows).to_dense(), expected[rows])


def test_unit_rows() -> None:
    dense = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]], dtype=F64)
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.0, -1.0]], dtype=F64)
    torch.testing.assert_close(scale_rows_to_unit(dense), expected)
    torch.testing.assert_close(scale_rows_to_unit(dense.to_sparse_csr()).to_dense(), expected)


@pytest.mark.slow
def test_sums_along_a_pattern_and_their_derivatives() -> None:
    torch.manual_seed(1)
    rows, columns = torch.tensor([0, 0, 1, 3, 3, 3]), torch.tensor([1, 3, 0, 0, 2, 3])
    pattern = Pattern(rows, columns, 4)
    values = torch.randn(6, 2, dtype=F64, requires_grad=True)
    left, right = (torch.randn(4, 2, 3, dtype=F64, requires_grad=True) for _ in range(2))
    expected = torch.zeros(4, 2, 3, dtype=F64).index_add(0, rows, values[:, :, None] * right[columns])
    torch.testing.assert_close(pattern.weighted_sum(values, right), expected)
    products = (left[rows] * right[columns]).sum(dim=2)
    torch.testing.assert_close(pattern.inner_products(left, right), products)
    assert torch.autograd.gradcheck(pattern.weighted_sum, (values, right))
    assert torch.autograd.gradgradcheck(pattern.weighted_sum, (values, right))
    assert torch.autograd.gradcheck(pattern.inner_products, (left, right))
    assert torch.autograd.gradgradcheck(pattern.inner_products, (left, right))
    assert torch.equal(pattern.T.in_transpose(pattern.in_transpose(values)), values)


def test_jacobian_products() -> None:
    torch.manual_seed(2)
    weights = torch.randn(5, 4, dtype=F64)
    point, v, u = torch.randn(4, dtype=F64), torch.randn(4, dtype=F64), torch.randn(5, dtype=F64)
    dense = torch.autograd.functional.jacobian(lambda t: (weights @ t).sin(), point)
    jacobian = Jacobian(lambda t: (weights @ t).sin(), point)
    torch.testing.assert_close(jacobian.apply(v), dense @ v)
    torch.testing.assert_close(jacobian.adjoint(u), dense.T @ u)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_conjugate_gradient_solves(seed: int) -> None:
    a = positive_definite(seed)
    b = torch.randn(20, dtype=F64)
    result = conjugate_gradient(lambda v: a @ v, b, tolerance=1e-8)
    assert result.status == "converged"
    assert float((b - a @ result.x).norm() / b.norm()) <= 2e-8
    assert result.residual <= 1e-8


def test_conjugate_gradient_says_when_it_has_not_converged() -> None:
    a = positive_definite(3)
    b = torch.randn(20, dtype=F64)
    result = conjugate_gradient(lambda v: a @ v, b, tolerance=1e-12, max_iterations=3)
    assert (result.status, result.iterations) == ("iterations spent", 3)
    assert result.residual == pytest.approx(float((b - a @ result.x).norm() / b.norm()), rel=1e-6)


def test_conjugate_gradient_meets_negative_curvature() -> None:
    a = torch.diag(torch.tensor([1.0, -1.0, 2.0], dtype=F64))
    result = conjugate_gradient(lambda v: a @ v, torch.tensor([0.1, 1.0, 0.1], dtype=F64))
    assert result.status == "negative curvature"
    assert torch.isfinite(result.x).all()
    b = torch.tensor([1.0, 2.0], dtype=F64)
    first = conjugate_gradient(lambda v: -v, b)
    assert torch.equal(first.x, b)
    assert first.residual == pytest.approx(2.0)
    assert conjugate_gradient(lambda v: v * float("nan"), b).status == "not finite"


def test_conjugate_gradient_does_not_claim_what_rounding_has_taken() -> None:
    torch.manual_seed(0)
    q, _ = torch.linalg.qr(torch.randn(60, 60, dtype=F64))
    a = q @ torch.diag(torch.logspace(0, 8, 60, dtype=F64)) @ q.T
    b = torch.randn(60, dtype=F64)
    result = conjugate_gradient(lambda v: a @ v, b, tolerance=1e-13, max_iterations=5000)
    assert result.status != "converged"
    assert result.residual == pytest.approx(float((b - a @ result.x).norm() / b.norm()), rel=0.5)


def test_conjugate_gradient_of_zero_is_zero() -> None:
    result = conjugate_gradient(lambda v: v, torch.zeros(3, dtype=F64))
    assert (result.status, result.iterations, result.residual) == ("converged", 0, 0.0)


class Softplus:
    """`sum log(1 + exp(A t)) + |t|^2/200`: convex, and Newton overshoots from afar."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.a = torch.randn(30, 10, dtype=F64) * 5

    def value_and_gradient(self, t: Tensor) -> tuple[float, Tensor]:
        z = self.a @ t
        return float(torch.nn.functional.softplus(z).sum() + t @ t / 200), self.a.T @ z.sigmoid() + t / 100

    def hessian(self, t: Tensor) -> Callable[[Tensor], Tensor]:
        s = (self.a @ t).sigmoid()
        return lambda v: self.a.T @ (s * (1 - s) * (self.a @ v)) + v / 100


@pytest.mark.parametrize("seed", range(5))
def test_newton_reaches_the_tolerance_from_afar(seed: int) -> None:
    function = Softplus(seed)
    result = newton_cg(function, torch.full((10,), 3.0, dtype=F64), gradient_tolerance=1e-9)
    assert result.status == "converged"
    assert result.gradient_norm <= 1e-9
    assert float(function.value_and_gradient(result.theta)[1].norm()) == result.gradient_norm


def test_newton_says_when_nothing_goes_down() -> None:
    class Lies(Softplus):
        def value_and_gradient(self, t: Tensor) -> tuple[float, Tensor]:
            value, gradient = super().value_and_gradient(t)
            return -value, gradient

    result = newton_cg(Lies(0), torch.full((10,), 3.0, dtype=F64), gradient_tolerance=1e-9)
    assert result.status == "no descent"


def test_newton_says_when_its_steps_are_spent() -> None:
    result = newton_cg(Softplus(0), torch.full((10,), 3.0, dtype=F64), gradient_tolerance=1e-9, max_steps=1)
    assert result.status == "steps spent"
    assert result.gradient_norm > 1e-9


class Quadratic:
    """`t A t / 2`, of which one Newton step is as good as its solution."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def value_and_gradient(self, t: Tensor) -> tuple[float, Tensor]:
        return float(t @ self.matrix @ t) / 2, self.matrix @ t

    def hessian(self, t: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda v: self.matrix @ v


def test_newton_goes_all_the_way_in_one_step_where_it_is_near_and_in_several_where_it_is_far() -> None:
    function, start = Quadratic(positive_definite(0)), torch.ones(20, dtype=F64)
    norm = float(function.value_and_gradient(start)[1].norm())
    near, far = (newton_cg(function, start, gradient_tolerance=norm * share) for share in (0.01, 0.001))
    for result, share in ((near, 0.01), (far, 0.001)):
        assert result.gradient_norm <= norm * share
    assert near.steps == 1
    assert far.steps > 1


# -- dense, LiSSA, Lanczos -------------------------------------------------------------------------------------------


def test_the_dense_oracle() -> None:
    matrix = positive_definite(0)
    b = torch.randn(20, dtype=F64)
    torch.testing.assert_close(dense_matrix(lambda v: matrix @ v, b), matrix)
    solution = dense_solve(lambda v: matrix @ v, b)
    torch.testing.assert_close(solution.x, torch.linalg.solve(matrix, b))
    assert solution.status == "converged"
    assert solution.residual < 1e-10
    indefinite = matrix - 5 * torch.eye(20, dtype=F64)
    assert dense_solve(lambda v: indefinite @ v, b).status == "negative curvature"
    assert dense_solve(lambda v: float("nan") * v, b).status == "not finite"
    with pytest.raises(InputError, match=r"^a dense matrix of 5,001 parameters is too large"):
        dense_matrix(lambda v: v, torch.zeros(5001, dtype=F64))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_lissa_solves_where_it_contracts(seed: int) -> None:
    matrix = positive_definite(seed)
    b = torch.randn(20, dtype=F64)
    scale = 1.1 * float(torch.linalg.eigvalsh(matrix)[-1])
    solution = lissa(lambda: lambda v: matrix @ v, b, iterations=20_000, scale=scale, tolerance=1e-8)
    assert solution.status == "converged"
    assert float((b - matrix @ solution.x).norm() / b.norm()) == pytest.approx(solution.residual, rel=1e-6, abs=1e-12)
    assert solution.residual <= 2e-8
    short = lissa(lambda: lambda v: matrix @ v, b, iterations=3, scale=scale, tolerance=1e-8)
    assert short.status == "iterations spent"
    assert short.iterations == 3
    assert solution.residual < short.residual <= 1


def test_lissa_with_damping_solves_the_damped_system() -> None:
    """`h <- b + (1 - damping) h - A h / scale` ends at `(A + damping scale) x = b`."""
    matrix = positive_definite(1)
    b = torch.randn(20, dtype=F64)
    solution = lissa(lambda: lambda v: matrix @ v, b, iterations=20_000, scale=200.0, damping=0.01, tolerance=1e-12)
    damped = matrix + 2.0 * torch.eye(20, dtype=F64)
    torch.testing.assert_close(solution.x, torch.linalg.solve(damped, b), rtol=1e-6, atol=1e-9)


def test_lissa_says_when_it_diverges() -> None:
    matrix = positive_definite(2)
    b = torch.randn(20, dtype=F64)
    largest = float(torch.linalg.eigvalsh(matrix)[-1])
    run_away = lissa(lambda: lambda v: matrix @ v, b, iterations=1000, scale=largest / 3)
    assert run_away.status == "diverged"
    assert run_away.iterations < 1000
    indefinite = matrix - 5 * torch.eye(20, dtype=F64)
    assert lissa(lambda: lambda v: indefinite @ v, b, iterations=3000, scale=2 * largest).status == "diverged"
    slow = lissa(lambda: lambda v: -v, b, iterations=3, scale=50.0)  # too few to run away, yet worse than nothing
    assert slow.status == "diverged"
    assert lissa(lambda: lambda v: float("nan") * v, b, iterations=3, scale=1.0).status == "not finite"
    assert lissa(lambda: lambda v: v, torch.zeros(3), iterations=3, scale=1.0).status == "converged"


def test_sampled_lissa_is_judged_by_the_true_residual() -> None:
    torch.manual_seed(0)
    rows = torch.randn(200, 10, dtype=F64)
    matrix = rows.T @ rows / 200 + 0.5 * torch.eye(10, dtype=F64)
    b = torch.randn(10, dtype=F64)

    def draw() -> Callable[[Tensor], Tensor]:
        some = rows[torch.randint(200, (50,))]
        return lambda v: some.T @ (some @ v) / 50 + 0.5 * v

    solution = lissa(draw, b, iterations=200, scale=5.0, exact=lambda v: matrix @ v)
    assert solution.residual == pytest.approx(float((b - matrix @ solution.x).norm() / b.norm()))
    assert 0 < solution.residual < 0.5


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 20), shift=st.floats(-50, 50))
def test_ritz_values_lie_inside_the_spectrum_and_near_an_eigenvalue(seed: int, steps: int, shift: float) -> None:
    matrix = positive_definite(seed) + shift * torch.eye(20, dtype=F64)
    values = torch.linalg.eigvalsh(matrix)
    result = extreme_eigenvalues(lambda v: matrix @ v, values, steps=steps, tolerance=1e-9)
    slack = 1e-9 * float(values.abs().max())
    assert result.smallest >= float(values[0]) - slack
    assert result.largest <= float(values[-1]) + slack
    assert float((values - result.smallest).abs().min()) <= result.smallest_residual + slack
    assert float((values - result.largest).abs().min()) <= result.largest_residual + slack
    if steps == 20:
        assert result.smallest == pytest.approx(float(values[0]), abs=1e-6 * float(values.abs().max()))
        assert result.largest == pytest.approx(float(values[-1]), rel=1e-6)


def test_lanczos_stops_when_the_answer_is_known_and_says_how_it_ended() -> None:
    matrix = torch.diag(torch.linspace(-1, 100, 200, dtype=F64))
    like = torch.zeros(200, dtype=F64)
    result = extreme_eigenvalues(lambda v: matrix @ v, like, steps=200, stop_below=1.0, tolerance=1e-12)
    assert result.status == "stopped"
    assert result.smallest < 1.0
    assert result.products < 200
    assert extreme_eigenvalues(lambda v: matrix @ v, like, steps=3, tolerance=1e-12).status == "steps spent"
    assert extreme_eigenvalues(lambda v: 2 * v, like).status == "converged"
    assert extreme_eigenvalues(lambda v: 2 * v, like).smallest == pytest.approx(2)
    assert extreme_eigenvalues(lambda v: float("nan") * v, like).status == "not finite"


def test_remembered_residuals_undo_the_rounding_of_single_precision() -> None:
    """With products in float32 fewer iterations are needed, and the solution is the same."""
    generator = torch.Generator().manual_seed(0)
    q = torch.linalg.qr(torch.randn(300, 300, generator=generator, dtype=F64)).Q
    a = (q * torch.logspace(-4, 0, 300, dtype=F64)) @ q.T
    b = torch.randn(300, generator=generator, dtype=F64)

    def product(v: torch.Tensor) -> torch.Tensor:
        return (a.float() @ v.float()).double()

    plain, remembered = (conjugate_gradient(product, b, tolerance=1e-3, remembered=n) for n in (0, 200))
    assert remembered.iterations < 0.9 * plain.iterations
    for solution in (plain, remembered):
        assert float((b - a @ solution.x).norm()) <= 2e-3 * float(b.norm())
    few = conjugate_gradient(product, b, tolerance=1e-3, remembered=5)
    assert few.status == "converged"
