"""Weighted sums over lists of rows: the product of a sparse matrix, given by its lists, with a dense one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
import torch

from graphforget.linalg.ranges import row_blocks

ENTRIES = 2**20  # of the lists in a block of rows; their weights take 8 MB


def neighbour_sums(
    indptr: np.ndarray, indices: np.ndarray, weights: Callable[[np.ndarray], np.ndarray], values: np.ndarray
) -> np.ndarray:
    """`out[r] = sum over i in indices[indptr[r]:indptr[r + 1]] of weights(i) values[i]`, added in this order.

    A row's sum depends on its own list alone, to the last bit: not on the other rows, nor on how many there are. Blocks
    of rows are computed on as many threads as torch uses.
    """
    out = np.empty((indptr.size - 1, values.shape[1]), dtype=values.dtype)

    def compute(block: tuple[int, int]) -> None:
        first, last = block
        start, end = int(indptr[first]), int(indptr[last])
        listed = indices[start:end]
        local = (indptr[first : last + 1] - start).astype(listed.dtype)
        lists = sp.csr_matrix((weights(listed), listed, local), shape=(last - first, values.shape[0]))
        out[first:last] = lists @ values

    blocks = list(row_blocks(indptr, ENTRIES))
    threads = min(torch.get_num_threads(), len(blocks))
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(compute, blocks))
    else:
        for block in blocks:
            compute(block)
    return out
