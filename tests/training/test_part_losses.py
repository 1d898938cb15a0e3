"""Blocks of a rank's training rows: their products do not depend on where the rank begins."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphforget.linalg.blocked import BlockedFeatures
from graphforget.training.part_losses import aligned


def product(values: torch.Tensor, theta: torch.Tensor, classes: int) -> torch.Tensor:
    features = BlockedFeatures(lambda: values, classes=classes, bias=False)
    return features.through(theta, lambda _, rows: rows)


@pytest.mark.parametrize("width", [3, 5, 7, 21])
@pytest.mark.parametrize("classes", [3, 7])
def test_the_bits_of_a_block_do_not_depend_on_its_place_in_the_array(width: int, classes: int) -> None:
    rng = np.random.default_rng(width)
    theta = torch.from_numpy(rng.normal(size=width * classes))
    block = rng.normal(size=(64, width))
    expected = product(torch.from_numpy(block.copy()), theta, classes)
    for offset in range(4):
        array = np.concatenate([rng.normal(size=(offset, width)), block])
        assert torch.equal(product(aligned(array[offset:]), theta, classes), expected)


def test_rows_that_are_aligned_are_not_copied() -> None:
    array = np.zeros((8, 4))
    assert aligned(array[1:]).data_ptr() == array[1:].ctypes.data
