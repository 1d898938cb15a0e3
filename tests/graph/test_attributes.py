"""Attributes: mostly zeros are kept sparse, the rest dense, always a copy of finite numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

import graphforget as gf
from graphforget.graph import validation
from graphforget.graph.canonical import BLOCK
from graphforget.graph.validation import FEWEST_SPARSE_COLUMNS, LARGEST_SPARSE_SHARE, checked_attributes
from graphforget.linalg.sparse import from_scipy


def with_share(share: float, *, rows: int = 40, columns: int = FEWEST_SPARSE_COLUMNS) -> Tensor:
    """Attributes with this share of values that are not 0."""
    rng = np.random.default_rng(0)
    x = np.zeros(rows * columns, dtype=np.float32)
    x[rng.permutation(x.size)[: round(share * x.size)]] = 1 + rng.random(round(share * x.size))
    return torch.from_numpy(x.reshape(rows, columns))


@pytest.mark.parametrize(
    ("x", "sparse"),
    [
        (with_share(LARGEST_SPARSE_SHARE), True),
        (with_share(LARGEST_SPARSE_SHARE + 0.01), False),
        (with_share(0.01), True),
        (with_share(0.0), True),
        (with_share(1.0), False),
        (with_share(0.01, columns=FEWEST_SPARSE_COLUMNS - 1), False),
    ],
)
def test_mostly_zeros_are_kept_sparse(x: Tensor, sparse: bool) -> None:
    result = checked_attributes(x)
    assert (result.layout == torch.sparse_csr) == sparse
    assert torch.equal(result.to_dense(), x)


@pytest.mark.parametrize("block", [1, 100, BLOCK])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dense_and_sparse_input_of_one_content_end_in_the_same_tensor(
    block: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "BLOCK", block)
    x = with_share(0.1).to(dtype)
    x[3] = 0
    x[4, :5] = -0.0
    expected = from_scipy(sp.csr_matrix(x.numpy()))
    for given in (x, x.to_sparse_csr(), x.to_sparse(), x.numpy(), sp.coo_matrix(x.numpy())):
        result = checked_attributes(given)
        for name in ("crow_indices", "col_indices", "values"):
            mine, other = getattr(result, name)(), getattr(expected, name)()
            assert torch.equal(mine, other)
            assert mine.dtype == other.dtype


def test_dense_data_of_pyg_become_the_graph_that_a_sparse_file_gives() -> None:
    """So that training is as fast, whichever loader the data come from."""
    x, edges, y = with_share(0.05), torch.tensor([[0, 1], [1, 0]]), torch.arange(40) % 2
    graph = gf.Graph.from_pyg(Data(x=x, edge_index=edges, y=y))
    other = gf.Graph.create(x=sp.csr_matrix(x.numpy()), edges=edges, y=y)
    assert graph.x.layout == other.x.layout == torch.sparse_csr
    assert graph.digest == other.digest


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize(
    "kind", [lambda x: x, lambda x: x.double(), lambda x: x.half(), lambda x: x.long(), lambda x: x.numpy(), Tensor.t]
)
def test_a_later_change_of_the_input_changes_no_graph(share: float, kind: Callable[[Tensor], Any]) -> None:
    given = kind(with_share(share, rows=80, columns=80))
    result = checked_attributes(given)
    before = result.to_dense().clone()
    given[:] = 7
    assert torch.equal(result.to_dense(), before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_minus_zero_becomes_zero(dtype: torch.dtype) -> None:
    given = torch.tensor([[-0.0, 1.0]], dtype=dtype)
    assert not checked_attributes(given).signbit().any()
    assert given.signbit().any()  # the input stays as it is


def test_deletions_and_files_keep_how_attributes_are_stored(tmp_path: Path) -> None:
    """Which form is chosen depends on all rows; what is left after a deletion would be stored otherwise."""
    x = torch.zeros(40, 64)
    x[:, :15] = 1.0
    x[7] = 1.5  # over a quarter with this row, under it without
    edges = torch.stack([torch.arange(39), torch.arange(1, 40)])
    graph = gf.Graph.create(x=x, edges=edges, y=torch.arange(40) % 2)
    left = graph.without(gf.Request(nodes=[7]))
    assert not graph.has_sparse_attributes
    assert gf.Graph.create(x=left.x, edges=left.edge_index, y=left.y).has_sparse_attributes
    assert not left.has_sparse_attributes
    outcome = gf.unlearn(gf.train(graph, "gcn", epochs=2), graph, gf.Request(nodes=[7]))
    gf.save_outcome(tmp_path / "run", outcome)
    assert not gf.load_run(tmp_path / "run")[1].has_sparse_attributes
    assert gf.verify_run(tmp_path / "run", replay=True).checks
    assert gf.Graph.create(x=x, edges=edges, y=torch.arange(40) % 2, sparse=True).has_sparse_attributes


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e16, -1e16])
def test_values_that_are_not_finite_or_too_large_are_refused(value: float, sparse: bool) -> None:
    x = with_share(0.5)
    x[7, 9] = value
    with pytest.raises(gf.InputError, match="NaN or infinity" if abs(value) != 1e16 else r"an attribute is 1e\+16"):
        checked_attributes(x.to_sparse_csr() if sparse else x)
