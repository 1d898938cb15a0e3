"""Embeddings of one rank's rows by all encoders of a stacked model (docs/maths.md, section 17).

A network's own `embed` runs on small graphs: a block of node numbers with all neighbours. Its first layer multiplies
attributes by weights. These products are computed for a rank's own rows, and those of its boundary rows are sent, so no
attribute crosses the wire. What a block gives depends on the block alone, so the number of ranks changes no bit.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphforget.distributed.group import Group, Message
from graphforget.errors import InputError
from graphforget.graph.row_part import RowPart
from graphforget.linalg.neighbour_sums import neighbour_sums
from graphforget.linalg.sparse import DenseMatrix
from graphforget.models.base import GraphModel, NormalisedModel
from graphforget.models.built_in import as_stacked
from graphforget.models.composite import made_by_seed
from graphforget.models.encoders import Encoders, embedding
from graphforget.models.gat import GAT
from graphforget.models.gcn import GCN
from graphforget.models.gin import GIN
from graphforget.models.part_features import Boundary, add_own, inverse_root_degrees
from graphforget.models.propagated import scaled_attributes
from graphforget.models.propagation import normalised_adjacency
from graphforget.models.sage import SAGE
from graphforget.models.stacked import Stacked

NETWORKS: dict[str, Callable[..., GraphModel]] = {"gcn": GCN, "gat": GAT, "gin": GIN, "sage": SAGE}
PURPOSE = "embeddings"


def stacked_on_ranks(module: nn.Module) -> Stacked | None:
    """The module as a stacked model; None for any other. Raises `InputError` for one that ranks cannot train."""
    stacked = as_stacked(module)
    if stacked is None:
        return None
    only = "and on several ranks there are built-in networks on hashed parts, trained on whole parts"
    if not isinstance(stacked, Stacked) or not stacked.built_in_modules:
        raise InputError(f"the model is stacked of other networks, {only}")
    if stacked.has_given_parts:
        raise InputError(f"the parts are given by name, {only}")
    if stacked.mini_batches is not None:
        raise InputError(f"batch_size is {stacked.batch_size}, {only}")
    return stacked


@dataclass(frozen=True, eq=False)
class EncoderSet:
    """Encoders as rank 0 sends them to the others: a network, its options, and the tensors of all encoders."""

    encoders: Encoders
    network: str
    options: Mapping[str, Any]
    width: int
    norm: float

    @classmethod
    def of(cls, module: Stacked) -> EncoderSet:
        """Those of a trained model."""
        make: Any = module.make  # a partial of the network's class
        if module.encoders is None:
            raise InputError("the encoders of this model are not trained yet")
        name = next(name for name, kind in NETWORKS.items() if kind is make.func)
        return cls(module.encoders, name, dict(make.keywords), module.width, module.embedding_norm)

    @property
    def fields(self) -> dict[str, Any]:
        """What `from_message` needs beside `tensors`."""
        count = len(self.encoders.modules)
        named = {"network": self.network, "options": self.options, "digest": self.encoders.digest, "count": count}
        return named | {"width": self.width, "norm": self.norm}

    @property
    def tensors(self) -> dict[str, Tensor]:
        return self.encoders.state()

    @classmethod
    def from_message(
        cls, fields: Mapping[str, Any], tensors: Mapping[str, Tensor], *, columns: int, classes: int
    ) -> EncoderSet:
        """The encoders from what `fields` and `tensors` were on rank 0."""
        network, options = str(fields["network"]), dict(fields["options"])
        make = functools.partial(NETWORKS[network], columns, classes, **options)
        encoders = Encoders.from_state(tensors, [made_by_seed(make, 0) for _ in range(fields["count"])])
        return cls(encoders, network, options, int(fields["width"]), float(fields["norm"]))


@dataclass
class PartEmbeddings:
    """The embeddings of some rows of one rank by the encoders that rank 0 has sent last."""

    group: Group
    _encoders: str = ""  # which ones
    _rows: np.ndarray | None = None  # None: there are no encoders
    _values: np.ndarray | None = None

    def forget(self) -> None:
        """Drops all embeddings: the graph has changed."""
        self._encoders, self._rows, self._values = "", None, None

    def compute(self, part: RowPart, message: Message, rows: np.ndarray, *, classes: int) -> None:
        """Embeds these rows by the encoders of a message, unless that is done. Every rank calls it."""
        fields = message.fields["encoders"]
        if json.dumps(fields) != self._encoders:
            tensors = {name: value for name, value in message.tensors.items() if name.startswith("encoders.")}
            given = EncoderSet.from_message(fields, tensors, columns=part.attributes.shape[1], classes=classes)
            self._values = embed_part(part, given, rows, self.group)
            self._encoders, self._rows = json.dumps(fields), rows

    def of(self, rows: np.ndarray) -> np.ndarray | None:
        """Those of some of these rows; None without encoders."""
        if self._rows is None or self._values is None:
            return None
        values: np.ndarray = self._values[np.searchsorted(self._rows, rows)]
        return values


def embed_part(part: RowPart, given: EncoderSet, rows: np.ndarray, group: Group) -> np.ndarray:
    """`E_1 .. E_K` of these rows of the part, in float64. Every rank calls it.

    With a scale of 0, the columns of an encoder are 0.
    """
    place = _Place.of(part, group)
    lists, loops = place.boundary.lists(rows), part.loops(np.arange(part.num_rows))
    out = np.zeros((rows.size, len(given.encoders.modules) * given.width))
    values = np.empty((place.boundary.size, given.width))
    for number, (encoder, scale) in enumerate(zip(given.encoders.modules, given.encoders.scales, strict=True)):
        if scale == 0:
            continue
        assert isinstance(encoder, GraphModel)
        attributes = _Attributes(place, encoder.scale_rows)
        for block in place.blocks:
            values[block] = _Block.of(place, block).embedded(encoder, attributes)
        place.boundary.fill(values, purpose=PURPOSE)
        sums = neighbour_sums(*lists, lambda i: place.scale[i], values)
        add_own(sums, values[: part.num_rows], rows, place.scale[: part.num_rows], loops)
        out[:, number * given.width : (number + 1) * given.width] = sums * (given.norm / scale)
    return out


@dataclass(frozen=True, eq=False)
class _Place:
    """A part and its boundary, with the degrees of both."""

    part: RowPart
    boundary: Boundary
    scale: np.ndarray  # `D^-1/2` of this part's rows, then of the boundary rows
    degrees: np.ndarray  # of the same

    @classmethod
    def of(cls, part: RowPart, group: Group) -> _Place:
        boundary, everyone = Boundary(part, group), np.arange(part.num_rows)
        degrees = np.empty((boundary.size, 1))
        degrees[: part.num_rows, 0] = part.degrees(everyone)
        boundary.fill(degrees, purpose=PURPOSE)
        scale = np.empty((boundary.size, 1))
        scale[: part.num_rows, 0] = inverse_root_degrees(part, everyone, part.loops(everyone))
        boundary.fill(scale, purpose=PURPOSE)
        return cls(part, boundary, scale[:, 0], degrees[:, 0])

    @property
    def blocks(self) -> list[np.ndarray]:
        """The rows of each block of node numbers: they depend on the number of nodes alone."""
        part, size = self.part, self.part.ranges.block
        starts = [block * size - part.start for block in part.ranges.blocks_of(part.rank)]
        return [np.arange(start, min(start + size, part.num_rows)) for start in starts]


@dataclass(frozen=True, eq=False)
class _Block:
    """A block of node numbers with all neighbours, as a graph of its own: by ascending number, with true degrees."""

    place: _Place
    rows: np.ndarray
    nodes: np.ndarray  # where they are among the rows of the part and the boundary
    edges: Tensor  # whose receivers are in the block
    inside: np.ndarray  # where the block's rows are among the nodes

    @classmethod
    def of(cls, place: _Place, rows: np.ndarray) -> _Block:
        part = place.part
        counts, listed = part.lists(rows)
        own = rows + part.start
        numbers = np.unique(np.concatenate([listed.astype(np.int64), own]))
        inside = np.searchsorted(numbers, own)
        edges = np.stack([np.searchsorted(numbers, listed), np.repeat(inside, counts)])
        away = (numbers < part.start) | (numbers >= part.stop)
        nodes = numbers - part.start
        nodes[away] = part.num_rows + np.searchsorted(place.boundary.numbers, numbers[away])
        return cls(place, rows, nodes, torch.from_numpy(edges), inside)

    def embedded(self, encoder: GraphModel, attributes: _Attributes) -> np.ndarray:
        """The embeddings of the block's rows."""
        n, kind = self.nodes.size, torch.float64
        if isinstance(encoder, NormalisedModel):
            degrees = torch.from_numpy(self.place.degrees[self.nodes])
            propagation: object = normalised_adjacency(self.edges, n, dtype=kind, true_degrees=degrees)
        else:
            propagation = encoder.propagation(self.edges, n, kind)
        vectors: np.ndarray = embedding(encoder, attributes.at(self.nodes), propagation).numpy()
        return vectors[self.inside]


@dataclass(eq=False)
class _Attributes:
    """The scaled attributes of a rank's rows and of its boundary rows, of which only products with weights are known.

    A product is computed when it is asked for first, which every rank does for its first block.
    """

    place: _Place
    scale_rows: bool
    products: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # weights, and the product of all rows

    def at(self, nodes: np.ndarray) -> _Rows:
        return _Rows(self, torch.from_numpy(nodes))

    def product(self, weight: Tensor) -> Tensor:
        """`X W` of all rows, computed in blocks of node numbers."""
        for known, product in self.products:
            if known is weight:
                return product
        place = self.place
        values = np.empty((place.boundary.size, weight.shape[1]))
        for rows in place.blocks:
            own = scaled_attributes(np.asarray(place.part.attributes[rows]), scale_rows=self.scale_rows)
            values[rows] = (torch.from_numpy(own[:, :-1]).contiguous() @ weight.detach()).numpy()
        place.boundary.fill(values, purpose=PURPOSE)
        self.products.append((weight, torch.from_numpy(values)))
        return self.products[-1][1]


class _Rows(DenseMatrix):
    """Some rows of `_Attributes`."""

    def __init__(self, attributes: _Attributes, nodes: Tensor) -> None:
        self._attributes, self._nodes = attributes, nodes

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self._attributes.product(dense).index_select(0, self._nodes)
