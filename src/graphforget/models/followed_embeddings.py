"""Embeddings by GCN and GraphSAGE encoders, which follow a deletion (docs/maths.md, section 13).

For an encoder, `P` are products of attributes and weights, `H` the activations and `E = c S H / s` the embedding. Rows
of `P` change where attributes do, rows of `H` and `E` where a row that they read does. Only these are computed again,
and every one of them has the bits of a pass over the whole graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from graphforget.graph.graph import Graph
from graphforget.graph.overlay import SlotChange
from graphforget.linalg.versioned import VersionedRows, exclusive, without_rows
from graphforget.models.embedding_nodes import EmbeddingNodes, Slots
from graphforget.models.encoders import Encoders
from graphforget.models.gcn import GCN
from graphforget.models.prepared import prepared_once
from graphforget.models.sage import SAGE
from graphforget.models.stacked import Stacked

MOST = 0.5  # of all messages; a change that reaches more of them is followed by computing all rows
MOST_HELD = 2**30  # bytes of products and activations; larger ones are computed anew for each request


@dataclass(frozen=True, eq=False, repr=False)
class Activations:
    """What is held of one encoder on one graph, in slots."""

    products: VersionedRows  # P
    hidden: VersionedRows  # H


@dataclass(frozen=True, eq=False, repr=False)
class Embedded:
    """The embeddings of the nodes of one graph, and what they follow the next deletion from."""

    encoders: Encoders
    norm: float
    activations: tuple[Activations | None, ...]  # of each encoder; None: it has no part, or they are not held
    embeddings: Tensor  # n x (K x width)


@dataclass(frozen=True, eq=False, repr=False)
class Reached:
    """The slots of each matrix that a deletion changes, and the rows of the graph before that are gone."""

    gone: np.ndarray
    has_moved: bool  # the other slots move up to take the place of those that are gone
    products: np.ndarray
    hidden: dict[bool, np.ndarray]  # by whether messages are weighted by the degrees of senders
    embeddings: dict[bool, np.ndarray]


def can_embed_by_rows(module: Stacked, graph: Graph) -> bool:
    """Whether the embeddings can follow: for GCN and GraphSAGE on undirected graphs, without weights of edges."""
    if module.encoders is None:
        return False
    used = [one for one, scale in zip(module.encoders.modules, module.encoders.scales, strict=True) if scale]
    plain = graph.overlay is not None or (graph.has_sparse_attributes and not graph.directed)
    plain = plain and graph.edge_weight is None and graph.edge_relations is None and graph.graph_numbers is None
    return plain and all(type(encoder) in (GCN, SAGE) for encoder in used)


def row_embeddings(module: Stacked, graph: Graph, nodes: EmbeddingNodes) -> Tensor:
    """The embeddings of all nodes of a graph."""
    encoders, norm, width = module.encoders, module.embedding_norm, module.width
    assert encoders is not None

    def prepare() -> Embedded:
        return _embedded(encoders, norm, width, nodes)

    def follow(earlier: Embedded) -> Embedded:
        return _followed(earlier, encoders, norm, width, nodes, graph)

    key = ("embeddings by rows", module.num_parts, width)
    known: Embedded = prepared_once(graph, key, prepare, follow=follow)
    if known.encoders is not encoders or known.norm != norm:
        known = prepared_once(graph, key, prepare, anew=True)
    return known.embeddings


def _embedded(encoders: Encoders, norm: float, width: int, nodes: EmbeddingNodes) -> Embedded:
    """By one pass of every encoder over the graph."""
    activations = [_activations(one, scale, nodes) for one, scale in _each(encoders)]
    blocks = [
        _embedding(nodes, made, norm / scale if scale else 0.0, width)
        for made, scale in zip(activations, encoders.scales, strict=True)
    ]
    return _held(encoders, norm, activations, torch.cat(blocks, dim=1))


@exclusive
def _followed(
    earlier: Embedded, encoders: Encoders, norm: float, width: int, nodes: EmbeddingNodes, graph: Graph
) -> Embedded:
    """From the embeddings of the graph before a deletion."""
    reached = _reached(nodes, graph)
    embeddings = torch.from_numpy(without_rows(earlier.embeddings.numpy(), reached.gone))
    before = zip(earlier.encoders.modules, earlier.encoders.scales, earlier.activations, strict=True)
    activations: list[Activations | None] = []
    for place, ((encoder, scale), (old, old_scale, known)) in enumerate(zip(_each(encoders), before, strict=True)):
        block = embeddings[:, place * width : (place + 1) * width]
        if old is not encoder or old_scale != scale or earlier.norm != norm or known is None:
            made = _activations(encoder, scale, nodes)
            block.copy_(_embedding(nodes, made, norm / scale if scale else 0.0, width))
        else:
            made = _followed_activations(known, encoder, nodes, reached)
            slots = _some(nodes, reached.embeddings[type(encoder) is GCN])
            if slots is None:
                block.copy_(_embedding(nodes, made, norm / scale, width))
            else:
                slots, rows = nodes.rows_of(slots)
                block[rows] = torch.from_numpy(nodes.propagated(made.hidden.array(), slots) * (norm / scale))
        activations.append(made)
    return _held(encoders, norm, activations, embeddings)


def _held(encoders: Encoders, norm: float, activations: list[Activations | None], embeddings: Tensor) -> Embedded:
    parts = [rows for made in activations if made is not None for rows in (made.products, made.hidden)]
    numbers = sum(math.prod(part.shape) for part in parts)
    held = activations if 8 * numbers <= MOST_HELD else [None] * len(activations)
    return Embedded(encoders, norm, tuple(held), embeddings)


def _each(encoders: Encoders) -> list[tuple[nn.Module, float]]:
    return list(zip(encoders.modules, encoders.scales, strict=True))


# -- one encoder -----------------------------------------------------------------------------------------------------


def _activations(encoder: nn.Module, scale: float, nodes: EmbeddingNodes) -> Activations | None:
    if not scale:
        return None
    products = _products(encoder, nodes)
    return Activations(VersionedRows(products), VersionedRows(_hidden(encoder, nodes, products)))


def _embedding(nodes: EmbeddingNodes, made: Activations | None, factor: float, width: int) -> Tensor:
    """`E` of all rows of the graph."""
    if made is None:
        return torch.zeros(nodes.rows_in(np.empty((nodes.num_slots, 0))).shape[0], width, dtype=torch.float64)
    values = nodes.rows_in(nodes.propagated(made.hidden.array()))
    values *= factor
    return torch.from_numpy(values)


def _products(encoder: nn.Module, nodes: EmbeddingNodes, slots: Slots = None) -> np.ndarray:
    """`P`: `X W` of a GCN, and both products of a GraphSAGE side by side."""
    if isinstance(encoder, GCN):
        return nodes.product(encoder.first.weight, slots, scale_rows=encoder.scale_rows)
    assert isinstance(encoder, SAGE)
    weight = torch.cat([encoder.near.weight, encoder.own.weight], dim=1)
    return nodes.product(weight, slots, scale_rows=encoder.scale_rows)


def _hidden(encoder: nn.Module, nodes: EmbeddingNodes, products: np.ndarray, slots: Slots = None) -> np.ndarray:
    """`H` from all rows of `P`, as `embed` has it."""
    if isinstance(encoder, GCN):
        out = nodes.propagated(products, slots)
        out += encoder.first_bias.detach().numpy()
    else:
        assert isinstance(encoder, SAGE)
        assert encoder.own.bias is not None
        near, own = products[:, : encoder.width], products[:, encoder.width :]
        out = nodes.means(np.ascontiguousarray(near), slots, include_self=encoder.include_self)
        out += own if slots is None else own[slots]
        out += encoder.own.bias.detach().numpy()
    np.maximum(out, 0.0, out=out)
    out += 0.0  # of 0.0 and -0.0 either is the maximum, and which one could depend on where a row stands
    return out


def _followed_activations(
    known: Activations, encoder: nn.Module, nodes: EmbeddingNodes, reached: Reached
) -> Activations:
    products, hidden = known.products, known.hidden
    if reached.has_moved:
        products, hidden = (VersionedRows(without_rows(part.array(), reached.gone)) for part in (products, hidden))
    if reached.products.size:
        products = products.updated(reached.products, _products(encoder, nodes, reached.products))
    slots = _some(nodes, reached.hidden[type(encoder) is GCN])
    if slots is None:
        return Activations(products, VersionedRows(_hidden(encoder, nodes, products.array())))
    return Activations(products, hidden.updated(slots, _hidden(encoder, nodes, products.array(), slots)))


# -- what a deletion reaches -----------------------------------------------------------------------------------------


def _reached(nodes: EmbeddingNodes, graph: Graph) -> Reached:
    change = graph.change
    assert change is not None
    gone = change.gone
    if isinstance(change, SlotChange):
        before = change.parent()
        assert before is not None
        assert before.overlay is not None
        gone = before.overlay.rows_of(gone)
    altered, relinked = change.altered, change.relinked
    both = np.union1d(altered, relinked)
    hidden = {True: nodes.receivers(both), False: np.union1d(nodes.receivers(altered), relinked)}
    embeddings = {weighted: nodes.receivers(slots) for weighted, slots in hidden.items()}
    has_moved = not isinstance(change, SlotChange) and gone.size > 0
    return Reached(gone, has_moved, altered, hidden, embeddings)


def _some(nodes: EmbeddingNodes, slots: np.ndarray) -> Slots:
    """These slots; None for all, if they get most of the messages."""
    return None if nodes.share(slots) > MOST else slots
