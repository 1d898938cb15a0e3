"""Products in blocks, and sums over lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphforget.linalg import blocked, neighbour_sums
from graphforget.linalg.blocked import BlockedFeatures


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 30])
def test_one_pass_in_blocks_is_the_product_of_both_passes(
    monkeypatch: pytest.MonkeyPatch, rows: int, bias: bool
) -> None:
    monkeypatch.setattr(blocked, "BLOCK", 8)
    generator = torch.Generator().manual_seed(rows)
    features, v = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((rows, 5), (15 + 3 * bias,))
    )
    weights = torch.rand(rows, 3, generator=generator, dtype=torch.float64)
    jacobian = BlockedFeatures(lambda: features, classes=3, bias=bias)
    ones = [torch.ones(rows, 1, dtype=torch.float64)] if bias else []
    dense = torch.cat([features, *ones], dim=1)
    outputs = dense @ v.view(-1, 3)
    torch.testing.assert_close(jacobian.apply(v), outputs)
    torch.testing.assert_close(jacobian.adjoint(weights), (dense.T @ weights).flatten())
    passed = jacobian.through(v, lambda block, part: part * weights[jacobian.blocks[block]])
    torch.testing.assert_close(passed, (dense.T @ (weights * outputs)).flatten())


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), entries=st.sampled_from([1, 5, 2**20]), threads=st.sampled_from([1, 2]))
def test_the_sum_of_a_row_is_the_same_to_the_last_bit_whatever_the_other_rows(
    seed: int, entries: int, threads: int
) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, size=12)
    indptr = np.concatenate([[0], counts.cumsum()])
    indices = rng.integers(0, 9, size=indptr[-1]).astype(np.int32)
    values, weights = rng.standard_normal((9, 3)), rng.random(9)
    before, used = torch.get_num_threads(), neighbour_sums.ENTRIES
    torch.set_num_threads(threads)
    neighbour_sums.ENTRIES = entries
    try:
        sums = neighbour_sums.neighbour_sums(indptr, indices, lambda i: weights[i], values)
    finally:
        neighbour_sums.ENTRIES = used
        torch.set_num_threads(before)
    for row in range(12):
        listed = indices[indptr[row] : indptr[row + 1]]
        np.testing.assert_allclose(sums[row], (weights[listed, None] * values[listed]).sum(axis=0), atol=1e-13)
        ends = np.array([0, listed.size])
        alone = neighbour_sums.neighbour_sums(ends, listed, lambda i: weights[i], values)
        assert np.array_equal(alone[0], sums[row])
