"""Any GNN as encoders on parts of the graph, with one linear head on top, for nodes (docs/maths.md, section 13)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.linalg.sparse import Matrix, SparseMatrix
from graphforget.models.composite import checked_positive
from graphforget.models.fixed import FixedPropagation
from graphforget.models.mini_batches import BATCH_SIZE, LARGE_PART, checked_mini_batches
from graphforget.models.stacked_model import OUTSIDE, StackedInputs, StackedModel

HOPS = 3
# The factor of a node's own attributes by the number of training nodes: with few labels a head overfits to them.
ATTRIBUTE_SCALES = ((1000, 1.0), (250, 0.5), (0, 0.25))


def default_attribute_scale(training_nodes: int) -> float:
    """The factor of a node's own attributes for so many training nodes. It is fixed when a model is first trained."""
    return next(scale for fewest, scale in ATTRIBUTE_SCALES if training_nodes >= fewest)


class Stacked(StackedModel):
    """`[c X, S X, ..., S^H X, E_1, ..., E_K, 1] W` with `E_k` the embedding by encoder k: linear in `W`."""

    def __init__(
        self,
        make: Callable[[], nn.Module],
        columns: int,
        classes: int,
        *,
        parts: int | Sequence[str],
        hops: int,
        attribute_scale: float,
        scale_rows: bool = True,
        **encoders: Any,
    ) -> None:
        """`encoders` are the settings of `StackedModel`."""
        scale = checked_positive(attribute_scale, "attribute_scale")
        averages = Reach(hops).hops or 0  # checks the number
        fixed = FixedPropagation(
            columns,
            classes,
            powers=tuple(range(averages + 1)),
            scales=(scale, *(1.0,) * averages),
            scale_rows=scale_rows,
        )
        super().__init__(make, fixed, classes, parts=parts, scale_rows=scale_rows, **encoders)
        self.attribute_scale = scale

    @property
    def settings(self) -> dict[str, Any]:
        parts = self.part_names if isinstance(self.part_names, int) else list(self.part_names)
        names = ("encoder_mu", "embedding_norm", "attribute_scale")
        batches = {"batch_size": self.batch_size, "num_neighbors": self.num_neighbors and list(self.num_neighbors)}
        return (
            {"parts": parts, "hops": max(self.fixed.powers)}
            | {name: getattr(self, name) for name in names}
            | {name: value for name, value in batches.items() if value is not None}
        )

    def choose_mini_batches(self, graph: Graph, *, seed: int) -> None:
        """Turns mini-batches on for large parts, before the first training, unless the caller has decided.

        An encoder whose messages may come from anywhere is trained on the whole of its part, and so is one on a graph
        with edge weights.
        """
        if graph.edge_weight is not None:
            return
        part_of = self.part_of(graph, seed=seed)[graph.train_mask]
        largest = int(part_of[part_of != OUTSIDE].bincount(minlength=1).max())
        if self.batch_size is None and largest > LARGE_PART and self.encoder_reach.hops is not None:
            self.batch_size, self.num_neighbors = checked_mini_batches(BATCH_SIZE, None, hops=self.encoder_reach.hops)

    def untrained(self) -> Stacked:
        """The same architecture and parts without encoders, the head at 0."""
        fresh = Stacked(
            self.make,
            self.fixed.weight.shape[1],
            self.fixed.weight.shape[2],
            **self.settings,
            width=self.width,
            encoder_reach=self.encoder_reach,
            scale_rows=self.scale_rows,
            findings=self.findings,
            built_in_modules=self.built_in_modules,
        )
        fresh.member_numbers, fresh.member_parts = self.member_numbers, self.member_parts
        return fresh.to(self.weight.dtype)

    # -- as a model ----------------------------------------------------------------------------------------------

    def prepare(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Matrix, object]:
        if self.encoders is None:
            raise InputError("the encoders of this model are not trained yet")
        weight = self.checked_weight(edge_weight)
        shared = self.fixed.prepare(x, edge_index, weight) if x.layout == torch.sparse_csr else None
        propagation = self.propagation(edge_index, x.shape[0], x.dtype, weight) if shared is None else shared[1]
        assert isinstance(propagation, SparseMatrix)
        embeddings = self.encoders.embeddings(
            x,
            edge_index,
            propagation,
            edge_weight=weight,
            rows=None if shared is None else shared[0],
            width=self.width,
            norm=self.embedding_norm,
        )
        # Dense features are large, and so are the messages of encoders: first these, then those.
        rows, inputs = self.fixed.prepare(x, edge_index, weight) if shared is None else shared
        return rows, StackedInputs(inputs, embeddings)

    def embedded(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """The embeddings of all nodes, beside fixed features that are there already."""
        if self.encoders is None:
            raise InputError("the encoders of this model are not trained yet")
        propagation = self.propagation(edge_index, x.shape[0], x.dtype)
        assert isinstance(propagation, SparseMatrix)
        return self.encoders.embeddings(x, edge_index, propagation, width=self.width, norm=self.embedding_norm)

    @property
    def preparation(self) -> Hashable:
        encoders = None if self.encoders is None else self.encoders.digest
        return type(self), self.fixed.preparation, self.embedding_norm, encoders

    def marked_symmetric(self, propagation: object) -> object:
        assert isinstance(propagation, StackedInputs)
        return StackedInputs(self.fixed.marked_symmetric(propagation.fixed), propagation.embeddings)

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        assert isinstance(propagation, StackedInputs)
        return self.fixed.logits(x, propagation.fixed) + propagation.embeddings @ self.weight
