"""The low-rank preconditioner of models that are linear in their weights."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphforget.linalg.blocked import BlockedFeatures
from graphforget.linalg.cg import conjugate_gradient
from graphforget.linalg.preconditioner import LowRankPreconditioner, low_rank_preconditioner

MU = 1e-4
OUTPUTS = 6


def problem(seed: int, *, rows: int = 200, features: int = 40) -> tuple[BlockedFeatures, Tensor, Tensor]:
    """Features with few large directions, as propagated attributes have; weights of the rows; the dense Hessian."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    z = normal(rows, 4) @ normal(4, features) + 0.03 * normal(rows, features)
    probabilities = normal(rows, OUTPUTS).softmax(dim=1)
    curvature = torch.diag_embed(probabilities) - probabilities[:, :, None] * probabilities[:, None, :]
    hessian = torch.einsum("icd,if,ig->fcgd", curvature, z, z) / rows
    size = features * OUTPUTS
    weights = curvature.diagonal(dim1=1, dim2=2).mean(dim=1)
    dense = hessian.reshape(size, size) + MU * torch.eye(size, dtype=torch.float64)
    return BlockedFeatures(lambda: z, classes=OUTPUTS, bias=False), weights, dense


def contrasts(features: int = 40) -> Tensor:
    """An orthonormal basis of the vectors whose sum over the outputs is 0, where gradients of softmax losses lie."""
    centring = torch.eye(OUTPUTS, dtype=torch.float64) - 1 / OUTPUTS
    inside = torch.linalg.eigh(centring).eigenvectors[:, 1:].contiguous()
    return torch.kron(torch.eye(features, dtype=torch.float64), inside)


def as_matrix(preconditioner: LowRankPreconditioner, size: int) -> Tensor:
    return torch.stack([preconditioner(row) for row in torch.eye(size, dtype=torch.float64)], dim=1)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_it_is_positive_definite_and_serves_every_output_alike(seed: int) -> None:
    jacobian, weights, hessian = problem(seed)
    preconditioner = low_rank_preconditioner(jacobian, weights, mu=MU)
    assert preconditioner is not None
    matrix = as_matrix(preconditioner, hessian.shape[0])
    torch.testing.assert_close(matrix, matrix.T)
    assert float(torch.linalg.eigvalsh(matrix).min()) > 0
    one = matrix.view(-1, OUTPUTS, 40, OUTPUTS)[:, 0, :, 0].contiguous()
    torch.testing.assert_close(matrix, torch.kron(one, torch.eye(OUTPUTS, dtype=torch.float64)))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_solution_is_the_same_after_fewer_iterations(seed: int) -> None:
    jacobian, weights, hessian = problem(seed)
    basis = contrasts()
    point = torch.randn(basis.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    b = hessian @ (basis @ point)
    preconditioner = low_rank_preconditioner(jacobian, weights, mu=MU)
    plain = conjugate_gradient(lambda v: hessian @ v, b, tolerance=1e-9)
    faster = conjugate_gradient(lambda v: hessian @ v, b, tolerance=1e-9, preconditioner=preconditioner)
    assert plain.status == faster.status == "converged"
    assert float((hessian @ faster.x - b).norm()) <= 2e-9 * float(b.norm())
    assert faster.iterations < 0.8 * plain.iterations


def test_the_eigenvectors_of_large_eigenvalues_are_found_and_their_condition_is_gone() -> None:
    jacobian, weights, hessian = problem(0)
    preconditioner = low_rank_preconditioner(jacobian, weights, mu=MU)
    assert preconditioner is not None
    basis = contrasts()
    inside = basis.T @ hessian @ basis
    root = torch.linalg.cholesky(basis.T @ as_matrix(preconditioner, hessian.shape[0]) @ basis)
    before, after = (torch.linalg.eigvalsh(matrix) for matrix in (inside, root.T @ inside @ root))
    assert float(after.max() / after.min()) < 0.05 * float(before.max() / before.min())


@pytest.mark.parametrize("features", [1, 7, 11])
def test_too_few_features_have_none(features: int) -> None:
    jacobian, weights, _ = problem(0, features=features)
    assert low_rank_preconditioner(jacobian, weights, mu=MU) is None


def test_rows_without_weight_change_nothing() -> None:
    jacobian, weights, hessian = problem(0)
    preconditioner = low_rank_preconditioner(jacobian, torch.zeros_like(weights), mu=MU)
    assert preconditioner is not None
    torch.testing.assert_close(as_matrix(preconditioner, hessian.shape[0]), torch.eye(hessian.shape[0]).double())


@pytest.mark.parametrize("mu", [1e-4, 1e-6])
@pytest.mark.parametrize("size", [1.0, 30.0, 100.0])
@pytest.mark.parametrize("rank", [1, 3, OUTPUTS - 1])
def test_in_float32_it_stays_positive_definite_for_features_of_low_rank(rank: int, size: float, mu: float) -> None:
    """Fewer directions than outputs leave eigenvalues of 0 + mu, up to 1e10 times below the largest one."""
    generator = torch.Generator().manual_seed(rank)
    z = torch.randn(200, rank, generator=generator) @ torch.randn(rank, 40, generator=generator)
    z *= size / z.square().sum(dim=1).mean().sqrt()
    jacobian = BlockedFeatures(lambda: z, classes=OUTPUTS, bias=False)
    preconditioner = low_rank_preconditioner(jacobian, torch.full((200,), 1 / OUTPUTS), mu=mu)
    assert preconditioner is not None
    matrix = torch.stack([preconditioner(row) for row in torch.eye(40 * OUTPUTS)], dim=1).double()
    assert float(torch.linalg.eigvalsh((matrix + matrix.T) / 2).min()) > 1e-4
    b = jacobian.adjoint(torch.randn(200, OUTPUTS, generator=generator))

    def product(v: Tensor) -> Tensor:
        return jacobian.adjoint(jacobian.apply(v)) / (OUTPUTS * 200) + mu * v

    solution = conjugate_gradient(product, b, tolerance=1e-3, preconditioner=preconditioner)
    assert (solution.status, solution.iterations <= 2 * rank + 2) == ("converged", True)
    assert float((product(solution.x) - b).norm()) <= 2e-3 * float(b.norm())
