"""What a graph may hold for each edge beside its ends: a weight, and the relations that the edge is in.

Every array is aligned with the columns of `edge_index`. Whoever makes other edges of a graph's edges passes the arrays
through one of these functions, so that each of them handles all arrays at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphforget.errors import InputError
from graphforget.graph.canonical import CanonicalEdges, checked_pairs, edge_list
from graphforget.graph.validation import checked_names

if TYPE_CHECKING:
    from graphforget.graph.graph import Graph

WEIGHT, RELATIONS = "edge_weight", "edge_relations"
EDGE_ARRAYS = {WEIGHT: torch.float64, RELATIONS: torch.int64}  # fields of a graph, with their types
FORGOTTEN_WEIGHT = 1.0  # the weight of an edge whose weight was deleted
SMALLEST, LARGEST = 1e-12, 1e12  # weights; sums and quotients of them stay ordinary numbers
MOST_RELATIONS = 63  # bits of a mask


def edge_arrays(graph: Graph) -> dict[str, Tensor]:
    """The arrays that the graph has, by the names of its fields."""
    arrays = {name: getattr(graph, name) for name in EDGE_ARRAYS}
    return {name: array for name, array in arrays.items() if array is not None}


def has_edge_arrays(graph: Graph) -> bool:
    return graph.edge_weight is not None or graph.edge_relations is not None


def selected(graph: Graph, columns: Tensor) -> dict[str, Any]:
    """The arrays of some columns of `edge_index`, which are given as a mask or as places, for `dataclasses.replace`."""
    return {name: array[columns] for name, array in edge_arrays(graph).items()}


def with_more(graph: Graph, more: int) -> dict[str, Any]:
    """The arrays of the graph's edges and of further ones, which weigh 1 and are in the first relation."""
    arrays = edge_arrays(graph)
    return {name: torch.cat([array, torch.ones(more, dtype=array.dtype)]) for name, array in arrays.items()}


def check_aligned(graph: Graph) -> None:
    """Raises `ValueError` unless there is one value an edge: who replaces the edges replaces their arrays too."""
    for name, array in edge_arrays(graph).items():
        if array.shape != graph.edge_index.shape[1:]:
            raise ValueError(f"{name} has {array.numel()} values for {graph.edge_index.shape[1]} edges")


def checked_edge_arrays(
    edges: Any, canonical: CanonicalEdges, *, weight: Any, relations: Any, relation_names: Sequence[str] | None
) -> dict[str, Any]:
    """The fields of a graph for the arrays of a list of edges, in the order of its canonical edges.

    Args:
        edges: The list as it was given.
        canonical: Its canonical form.
        weight: One number over 0 for each entry of the list, or None. Entries for the same edge must agree.
        relations: One mask for each entry, or None. Bit r says that the edge is in relation r. An edge is in every
            relation that one of its entries is in.
        relation_names: The names of the relations, if there are masks.

    Returns:
        The two arrays and the names; None for what is not given.

    Raises:
        InputError: An array is malformed, or two entries for one edge have different weights.
    """
    n = canonical.indptr.numel() - 1
    of_list = weight is not None or relations is not None
    places = _places(edges, canonical, n) if of_list else []
    names = _checked_relation_names(relation_names, relations)
    return {
        WEIGHT: None if weight is None else _merged_weights(_checked_weights(weight, edges), places, canonical),
        RELATIONS: None
        if relations is None
        else _merged_relations(_checked_relations(relations, edges, len(names or ())), places, canonical),
        "relation_names": names,
    }


def same_weights_both_ways(edges: Tensor, weight: Any, n: int) -> bool:
    """Whether each edge of a list that has every edge in both directions weighs the same both ways.

    An edge may be repeated, also in one direction alone.
    """
    source, target = checked_pairs(edges, n).numpy().astype(np.int64)
    values = _checked_weights(weight, edges).numpy()
    return np.array_equal(_sorted_once(source, target, values), _sorted_once(target, source, values))


def _sorted_once(first: np.ndarray, second: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The weighted pairs in order, each once, as columns."""
    order = np.lexsort((values, second, first))
    columns = np.stack([first, second, values])[:, order]
    is_new = np.ones(order.size, dtype=bool)
    is_new[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    return columns[:, is_new]


def _count(edges: Any) -> int:
    if isinstance(edges, CanonicalEdges):
        return edges.indices.numel()
    return checked_count(edges)


def checked_count(edges: Any) -> int:
    """How many entries a list of edges has."""
    listed = torch.as_tensor(edges)
    return listed.shape[1] if listed.dim() == 2 else 0


def _checked_weights(weight: Any, edges: Any) -> Tensor:
    values = torch.as_tensor(weight).detach().cpu()
    if values.dtype.is_complex or values.dtype == torch.bool or values.shape != (_count(edges),):
        shape = f"{values.dtype} of shape {tuple(values.shape)}"
        raise InputError(f"the edge weights are {shape}, one number for each of the {_count(edges)} edges is needed")
    values = values.to(torch.float64)
    wrong = ~((values >= SMALLEST) & (values <= LARGEST))  # NaN is wrong too
    if wrong.any():
        first = float(values[wrong][0])
        raise InputError(
            f"an edge weight is {first:g}, numbers over 0 from {SMALLEST:g} to {LARGEST:g} are needed: leave out an "
            "edge without weight"
        )
    return values


def _checked_relation_names(names: Sequence[str] | None, relations: Any) -> tuple[str, ...] | None:
    if (names is None) != (relations is None):
        raise InputError("relations need both edge_relations, a mask for each edge, and relation_names")
    if names is None:
        return None
    if not 0 < len(names) <= MOST_RELATIONS:
        raise InputError(f"there are {len(names)} relations, 1 to {MOST_RELATIONS} are possible")
    return checked_names(names, len(names), "relation names")


def _checked_relations(relations: Any, edges: Any, count: int) -> Tensor:
    masks = torch.as_tensor(relations).detach().cpu()
    if masks.dtype.is_floating_point or masks.dtype.is_complex or masks.shape != (_count(edges),):
        shape = f"{masks.dtype} of shape {tuple(masks.shape)}"
        raise InputError(f"the edge relations are {shape}, one mask for each of the {_count(edges)} edges is needed")
    masks = masks.to(torch.int64)
    if masks.numel() and (int(masks.min()) < 1 or int(masks.max()) >= 2**count):
        raise InputError(f"a mask of edge relations is out of range, 1 to {2**count - 1} are possible")
    return masks


def _places(edges: Any, canonical: CanonicalEdges, n: int) -> list[np.ndarray]:
    """For each entry of a list the place of its edge in the canonical order; if undirected, of both directions."""
    target_source = edge_list(canonical.indptr, canonical.indices)
    keys = (target_source[1] * n + target_source[0]).numpy()
    listed = target_source if isinstance(edges, CanonicalEdges) else checked_pairs(edges, n)
    source, target = listed.to(torch.int64).numpy()
    places = [np.searchsorted(keys, target * n + source)]
    return places if canonical.directed else [*places, np.searchsorted(keys, source * n + target)]


def _merged_weights(values: Tensor, places: list[np.ndarray], canonical: CanonicalEdges) -> Tensor:
    merged, given = np.zeros(canonical.indices.numel()), values.numpy()
    for place in places:
        merged[place] = given
    for place in places:
        differs = merged[place] != given
        if differs.any():
            first = int(np.flatnonzero(differs)[0])
            two = f"{given[first]:g} and {merged[place][first]:g}"
            raise InputError(f"an edge has two different weights, {two}: every edge has one weight")
    return torch.from_numpy(merged)


def _merged_relations(masks: Tensor, places: list[np.ndarray], canonical: CanonicalEdges) -> Tensor:
    merged = np.zeros(canonical.indices.numel(), dtype=np.int64)
    for place in places:
        np.bitwise_or.at(merged, place, masks.numpy())
    return torch.from_numpy(merged)
