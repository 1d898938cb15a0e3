"""Row ranges and sums in a fixed tree, against a plain recursion over all blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphforget.distributed.row_ranges import RowRanges, joined_sum, tree_sum
from graphforget.errors import InputError


@given(nodes=st.integers(1, 5000), parts=st.integers(1, 12))
def test_sums_do_not_depend_on_the_number_of_ranks(nodes: int, parts: int) -> None:
    whole = RowRanges(nodes, 1)
    if parts > whole.num_blocks:
        with pytest.raises(InputError):
            RowRanges(nodes, parts)
        return
    ranges = RowRanges(nodes, parts)
    rng = np.random.default_rng(nodes)
    values = torch.from_numpy(rng.normal(size=whole.num_blocks) * 10.0 ** rng.integers(-8, 8, size=whole.num_blocks))
    expected = tree_sum((0, whole.num_blocks), lambda block: values[block], torch.add)
    spans = [span for rank in range(parts) for span in ranges.subtrees_of(rank)]
    sums = [tree_sum(span, lambda block: values[block], torch.add) for span in spans]
    assert torch.equal(joined_sum(ranges.num_blocks, spans, sums, torch.add), expected)


def test_the_order_of_a_sum_shows_in_its_bits() -> None:
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=200) * 10.0 ** rng.integers(-8, 8, size=200))
    assert not torch.equal(tree_sum((0, 200), lambda block: values[block], torch.add), values.cumsum(0)[-1])


@given(nodes=st.integers(1, 100_000), parts=st.integers(1, 8))
def test_every_number_has_one_rank(nodes: int, parts: int) -> None:
    if parts > RowRanges(nodes, 1).num_blocks:
        return
    ranges = RowRanges(nodes, parts)
    numbers = np.unique(np.linspace(0, nodes - 1, 50).astype(np.int64))
    owners = ranges.owners(numbers)
    for number, owner in zip(numbers.tolist(), owners.tolist(), strict=True):
        first, last = ranges.range_of(owner)
        assert first <= number < last
    assert ranges.starts[0] == 0
    assert ranges.starts[-1] == nodes
    sizes = np.diff(ranges.block_starts)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 2


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_ranks_of_a_power_of_two_send_one_sum(parts: int) -> None:
    assert all(len(RowRanges(100_000, parts).subtrees_of(rank)) == 1 for rank in range(parts))
