"""Stacked models that answer for links or graphs: encoders on parts, fixed features of items, one linear head."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.linalg.sparse import converted
from graphforget.models.item_features import LinearOnItems
from graphforget.models.items import ItemModel, ItemView
from graphforget.models.propagation import normalised_adjacency
from graphforget.models.stacked_model import StackedInputs, StackedModel


class StackedOnItems(StackedModel, ItemModel):
    """`[Phi, E_1, ..., E_K, 1] W` with `Phi` the fixed features of the items and `E_k` those by encoder k.

    An encoder is an `ItemNetwork`. It is trained on the items of its own part, and then gives every node a vector; the
    view makes features of items of these.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        fixed: LinearOnItems,
        *,
        parts: int,
        encoder_mu: float,
        embedding_norm: float,
        width: int,
    ) -> None:
        """`make` makes an encoder, `fixed` gives the fixed features and how items are seen."""
        with torch.device("meta"):
            shape = make()
        if not isinstance(parts, int):
            raise InputError(f"the parts of a model that answers for {fixed.view.word}s are given by their number")
        super().__init__(
            make,
            fixed,
            fixed.weight.shape[1],
            parts=parts,
            encoder_mu=encoder_mu,
            embedding_norm=embedding_norm,
            width=width,
            encoder_reach=shape.reach,  # type: ignore[arg-type]
        )
        self.view = fixed.view

    @property
    def settings(self) -> dict[str, Any]:
        parts = {"parts": self.part_names, "encoder_mu": self.encoder_mu, "embedding_norm": self.embedding_norm}
        return parts | self.fixed.settings

    def untrained(self) -> StackedOnItems:
        """The same architecture without encoders, the head at 0."""
        names = ("encoder_mu", "embedding_norm", "width")
        given: Any = {name: getattr(self, name) for name in names} | {"parts": self.part_names}
        return StackedOnItems(self.make, self.fixed.untrained(), **given).to(self.weight.dtype)

    @property
    def encoder_view(self) -> ItemView:
        return self.view.encoder_view()

    def part_numbers(self, graph: Graph) -> Tensor:
        return self.view.part_numbers(graph)

    # -- as a model ----------------------------------------------------------------------------------------------

    @property
    def preparation(self) -> Hashable:
        encoders = None if self.encoders is None else self.encoders.digest
        return type(self), self.fixed.preparation, self.embedding_norm, encoders

    def item_inputs(self, graph: Graph, *, dtype: torch.dtype, device: str | torch.device) -> tuple[Any, Any]:
        features, _ = self.fixed.item_inputs(graph, dtype=dtype, device=device)
        return features, StackedInputs(
            None, self._embeddings(graph, self.view.places(graph, dtype=dtype), dtype, device)
        )

    def _embeddings(self, graph: Graph, places: Any, dtype: torch.dtype, device: str | torch.device) -> Tensor:
        """The features of the items at these places by all encoders."""
        if self.encoders is None:
            raise InputError("the encoders of this model are not trained yet")
        x, edges = converted(graph.x, dtype=dtype, device=device), self.view.messages(graph).to(device)
        return self.encoders.embeddings(
            x,
            edges,
            normalised_adjacency(edges, graph.num_nodes, dtype=dtype),
            width=self.width,
            norm=self.embedding_norm,
            combined=lambda vectors: self.view.combined(vectors, places),
        )

    def pair_logits(self, graph: Graph, rows: Tensor) -> Tensor:
        fixed = self.fixed.pair_logits(graph, rows)
        with torch.no_grad():
            return fixed + self._embeddings(graph, rows, self.weight.dtype, self.weight.device) @ self.weight

    def logits(self, x: Any, propagation: object) -> Tensor:
        assert isinstance(propagation, StackedInputs)
        return self.fixed(x) + propagation.embeddings @ self.weight

    def forward(self, x: Any, edge_index: object, edge_weight: Tensor | None = None) -> Tensor:
        return self.logits(x, edge_index)
