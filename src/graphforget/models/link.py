"""Models of links that are linear in fixed features of pairs (docs/maths.md, section 15)."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphforget.graph.graph import Graph
from graphforget.graph.links import SUPERVISED
from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import BoundedMatrix, DenseMatrix, Matrix
from graphforget.models.item_features import LinearOnItems
from graphforget.models.link_view import LinkView, link_view
from graphforget.models.pair_features import Attributes, Messages, PairFeatures, num_features, pair_features


class LinkFixed(LinearOnItems):
    """`Phi W + b` with similarities of propagated attributes and structural features of a pair.

    A pair for training sees the message edges, which it is none of. A held-out pair sees all training edges: more is
    known then, and on validation edges that was better by a point of AUC.
    """

    view: LinkView

    def __init__(
        self, columns: int, outputs: int, *, powers: tuple[int, ...], scale_rows: bool = True, **settings: Any
    ) -> None:
        view = link_view(**settings)
        super().__init__(view, num_features(powers), view.outputs or outputs, columns=columns)
        self.powers, self.scale_rows = tuple(powers), scale_rows
        self.reach = Reach(max(powers), degree_normalised=True)

    @property
    def preparation(self) -> Hashable:
        return type(self), self.view, self.powers, self.scale_rows

    @property
    def settings(self) -> dict[str, Any]:
        return {"hops": max(self.powers), "scale_rows": self.scale_rows} | dataclasses.asdict(self.view.settings)

    def features(self, graph: Graph, *, dtype: torch.dtype) -> Matrix:
        pairs = self.view.pairs(graph)
        trains = (pairs.sides == SUPERVISED).numpy()
        values = np.empty((trains.size, self.weight.shape[0]))
        norms = np.empty(trains.size)
        attributes = Attributes(graph.x, scale_rows=self.scale_rows)
        for held_out, chosen in ((False, trains), (True, ~trains)):
            part = self._features(graph, attributes, pairs.rows.numpy()[chosen], held_out=held_out)
            values[chosen], norms[chosen] = part.values, part.norms
        return BoundedMatrix(torch.from_numpy(values).to(dtype), torch.from_numpy(norms).to(dtype))

    def _features(self, graph: Graph, attributes: Attributes, rows: np.ndarray, *, held_out: bool) -> PairFeatures:
        if not len(rows):
            return PairFeatures(np.zeros((0, self.weight.shape[0])), np.zeros(0))
        messages = Messages(self.view.edges(graph, held_out=held_out).numpy(), graph.num_nodes)
        return pair_features(rows, attributes, messages, powers=self.powers)

    def pair_logits(self, graph: Graph, rows: Tensor) -> Tensor:
        attributes = Attributes(graph.x, scale_rows=self.scale_rows)
        values = self._features(graph, attributes, rows.numpy(), held_out=True).values
        with torch.no_grad():
            return self(DenseMatrix(torch.from_numpy(values).to(self.weight)))

    def longest_sum(self, nodes: int) -> int:
        """Of both ends' propagated attributes, their product, its division by both norms, and the gradient."""
        propagated = max(self.powers) * (nodes + 10)
        return 4 * propagated + 3 * (self.columns + 10) + 3 * (nodes + 10) + self.weight.shape[0]


class LinkSGC(LinkFixed):
    """Similarity after two rounds of messages, and structural features."""

    def __init__(self, columns: int, classes: int, *, hops: int = 2, scale_rows: bool = True, **settings: Any) -> None:
        super().__init__(columns, classes, powers=(hops,), scale_rows=scale_rows, **settings)


class LinkSIGN(LinkFixed):
    """Similarity after 0, 1 and 2 rounds of messages, and structural features."""

    def __init__(self, columns: int, classes: int, *, hops: int = 2, scale_rows: bool = True, **settings: Any) -> None:
        powers = tuple(range((Reach(hops).hops or 0) + 1))
        super().__init__(columns, classes, powers=powers, scale_rows=scale_rows, **settings)
