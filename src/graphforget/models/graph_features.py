"""Fixed features of the graphs of a collection: bags of Weisfeiler-Lehman colours, and pooled propagated attributes.

No number here is fitted: the row of a graph is a function of that graph alone (docs/maths.md, section 15).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.hashing import pair_hashes, salt, salted
from graphforget.linalg.sparse import (
    BoundedMatrix,
    SparseMatrix,
    csr_tensor,
    entry_rows,
    row_norms,
    scale_rows_to_unit,
)
from graphforget.models.propagation import normalised_adjacency

MOST_NUMBERS = 2**28  # of dense attributes, over all powers of the propagation
MOST_ROUNDING = 1e-6  # relative: more than that of any sum of fewer than 2^32 numbers


def graph_rows(graph: Graph) -> tuple[Tensor, Tensor]:
    """The numbers of the graphs of a collection, ascending, and the place of each node's graph among them."""
    numbers: Tensor = graph.numbers_of_graphs
    assert graph.graph_numbers is not None
    return numbers, torch.searchsorted(numbers, graph.graph_numbers)


# -- Weisfeiler-Lehman colours ----------------------------------------------------------------------------------


def wl_colours(graph: Graph, *, rounds: int, attributes: bool = True, degrees: bool = False) -> list[Tensor]:
    """The colour of each node after 0 to `rounds` rounds, as hashes of 64 bits (Shervashidze et al. 2011).

    Two nodes have one colour in round 0 if their attributes are the same, rounded as `_attribute_hashes` says, and
    their degrees, if these are asked for. In later rounds they have one colour if they had one before and their
    neighbours had the same colours, each as often. Colours that differ get different hashes, but for collisions.
    """
    colours = torch.zeros(graph.num_nodes, dtype=torch.int64)
    source, target = graph.edge_index
    if attributes:
        colours = colours + _attribute_hashes(graph.x)
    if degrees:
        counts = torch.bincount(target, minlength=graph.num_nodes)
        colours = pair_hashes(colours, counts)
    by_round = [salted(colours, salt("wl", 0))]
    for number in range(1, rounds + 1):
        messages = salted(by_round[-1], salt("wl message", number))
        # Sums of hashes do not depend on the order of the neighbours. They wrap, which loses nothing.
        sums = torch.zeros_like(colours).index_add_(0, target, messages[source])
        by_round.append(pair_hashes(by_round[-1], sums))
    return by_round


def _attribute_hashes(x: Tensor) -> Tensor:
    """A hash of the non-zero attributes of each node; values are rounded to whole numbers on the scale of `asinh`.

    0 and 1 stay as they are, and so do small whole numbers; of large values about the first digit counts.
    """
    if x.layout == torch.sparse_csr:
        rows, columns, values = entry_rows(x), x.col_indices(), x.values()
    else:
        rows, columns = x.nonzero(as_tuple=True)
        values = x[rows, columns]
    steps = values.double().asinh().round().to(torch.int64)
    hashes = torch.where(steps == 0, 0, pair_hashes(columns, steps))
    return torch.zeros(x.shape[0], dtype=torch.int64).index_add_(0, rows, hashes)


def wl_features(
    graph: Graph,
    *,
    rounds: int,
    buckets: int,
    attributes: bool = True,
    degrees: bool = False,
    dtype: torch.dtype = torch.float64,
) -> SparseMatrix:
    """How often each colour occurs in each graph, `log(1 + count)`, in rows of unit length.

    The colours of a round fall into `buckets` columns by their hash, so nothing has to be known of other graphs.
    """
    numbers, of_node = graph_rows(graph)
    colours = wl_colours(graph, rounds=rounds, attributes=attributes, degrees=degrees)
    width = buckets * (rounds + 1)
    keys = [of_node * width + _columns(hashes, buckets) + buckets * number for number, hashes in enumerate(colours)]
    cells, counts = np.unique(torch.cat(keys).numpy(), return_counts=True)
    rows, places = np.divmod(cells, width)
    crow = torch.from_numpy(np.searchsorted(rows, np.arange(len(numbers) + 1)))
    values = torch.from_numpy(np.log1p(counts)).to(dtype)
    matrix = csr_tensor(crow, torch.from_numpy(places), values, (len(numbers), width))
    return SparseMatrix(scale_rows_to_unit(matrix))


def _columns(hashes: Tensor, buckets: int) -> Tensor:
    """A column from 0 to `buckets` - 1 for each hash: the upper 32 bits as a share of 2^32, times `buckets`."""
    upper = (hashes >> 32) & 0xFFFFFFFF
    return (upper * buckets) >> 32


# -- pooled propagation -----------------------------------------------------------------------------------------


def sign_features(graph: Graph, *, hops: int, dtype: torch.dtype = torch.float64) -> BoundedMatrix:
    """Sums and means over each graph's nodes of `[X, S X, ..., S^hops X]`, in rows of unit length.

    The logarithm of the degree is one more attribute, and the number of nodes one more sum. All are on the scale of
    `asinh`, so that large graphs do not outweigh small ones. The bounds of the rows are those of docs/maths.md, 15.

    Raises:
        InputError: There are too many attributes to be made dense.
    """
    if graph.num_nodes * graph.num_columns * (hops + 1) > MOST_NUMBERS:
        raise InputError(
            f"graph-sign makes the attributes dense, and {graph.num_nodes:,} nodes x {graph.num_columns:,} columns x "
            f"{hops + 1} powers are more than {MOST_NUMBERS:,} numbers: use graph-wl, which keeps them sparse"
        )
    propagation = normalised_adjacency(graph.edge_index, graph.num_nodes, dtype=dtype)
    degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes).to(dtype).unsqueeze(1)
    attributes = torch.cat([graph.x.to_dense().to(dtype), degrees.log1p()], dim=1)
    pooled = _pooled(graph, attributes, propagation, hops)
    sizes = _pooled(graph, attributes.abs(), propagation, hops)
    values = pooled.asinh()
    least = (pooled.abs() - MOST_ROUNDING * sizes).clamp_min(0)  # of the exact sums
    errors = values.abs() + sizes / (1 + least.square()).sqrt()
    lengths = row_norms(values)  # no graph is empty, so its number of nodes is not 0
    return BoundedMatrix(values / lengths.unsqueeze(1), 2 * row_norms(errors) / lengths)


def _pooled(graph: Graph, attributes: Tensor, propagation: SparseMatrix, hops: int) -> Tensor:
    """Sums over each graph's nodes of the propagated attributes and of ones, and then the means."""
    numbers, of_node = graph_rows(graph)
    powers = [attributes]
    for _ in range(hops):
        powers.append(propagation @ powers[-1])
    values = torch.cat([*powers, torch.ones_like(attributes[:, :1])], dim=1)
    sums = torch.zeros(len(numbers), values.shape[1], dtype=values.dtype).index_add_(0, of_node, values)
    return torch.cat([sums, sums / sums[:, -1:]], dim=1)
