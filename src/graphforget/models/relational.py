"""SIGN over named relations: fixed propagation along each of them, and a linear head (docs/maths.md, section 5.4)."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.graph.schema import ALL_EDGES, ANY, Schema, schema_of, target_type
from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.sparse import Matrix, SparseMatrix, as_matrix, row_norms, scale_rows_to_unit
from graphforget.models.affine import AffineModel
from graphforget.models.base import GraphModel
from graphforget.models.propagation import weighted_mean_adjacency
from graphforget.models.relation_paths import RelationPath, relation_paths

RELATION_OPTIONS = ("relations", "types", "widths", "target", "directed")


class Relations:
    """The mean over the neighbours in each relation, as one matrix each."""

    def __init__(self, matrices: Sequence[SparseMatrix]) -> None:
        self.matrices = tuple(matrices)

    def to(self, dtype: torch.dtype) -> Relations:
        """The same matrices in another precision."""
        return Relations([matrix.to(dtype) for matrix in self.matrices])


class RelationalSIGN(GraphModel, AffineModel):
    """`sum over paths p of S_{p_k} ... S_{p_1} X W_p + b`, the empty path included.

    `S_r` takes the mean over the neighbours in relation r, with edge weights the weighted mean. The paths are all
    compositions of up to `hops` relations that lead to the nodes of type `target`, each with weights for the columns
    of the type that it starts at. Nothing is propagated before it is needed: a product shares the ends of the paths,
    `X W_() + sum_r S_r (X W_r + sum_s S_s (X W_sr + ...))`.
    """

    has_fixed_features = True
    takes_relations = True
    takes_edge_weight = True

    # Types and relations are settings, because a deletion must not change the shape of the weights.
    def __init__(
        self,
        columns: int,
        classes: int,
        *,
        hops: int = 2,
        relations: Sequence[str] = (ALL_EDGES,),
        types: Sequence[str] = (ANY,),
        widths: Sequence[int] | None = None,
        target: str = ANY,
        directed: bool = False,
        scale_rows: bool = True,
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        self.reach = Reach(hops, degree_normalised=False)
        self.relations, self.types = tuple(relations), tuple(types)
        self.widths = (columns,) if widths is None else tuple(widths)
        self.target, self.directed = target, directed
        self._check(columns)
        self.weight = nn.Parameter(torch.zeros(sum(path.width for path in self.paths), classes))
        self.bias = nn.Parameter(torch.zeros(classes))

    def _check(self, columns: int) -> None:
        words = (*self.relations, *self.types, self.target)
        if not all(isinstance(word, str) for word in words) or not all(type(width) is int for width in self.widths):
            raise InputError("the relations, types and target are names, and the widths of types whole numbers")
        known = len(self.types) == len(self.widths) and sum(self.widths) == columns and self.target in self.types
        ends = {end for relation in self.relations for end in self.schema.ends(relation)}
        if not known or not self.relations or not ends <= set(self.types) or not isinstance(self.directed, bool):
            raise InputError(f"the relations, types and widths of the model do not fit a graph with {columns} columns")

    @staticmethod
    def options_for(graph: Graph) -> dict[str, Any]:
        """The options that follow from a graph."""
        schema, target = schema_of(graph), target_type(graph)
        if graph.relation_names is None:
            return {}
        named = {"relations": list(schema.relations)}
        if not schema.typed:
            return named
        typed = {"types": list(schema.types), "widths": list(schema.widths), "directed": schema.directed}
        return named | typed | {"target": target}

    @property
    def schema(self) -> Schema:
        return Schema(self.types, self.widths, self.relations, self.directed)

    @property
    def paths(self) -> tuple[RelationPath, ...]:
        return _paths(self.schema, self.target, self.reach.hops or 0)

    @property
    def preparation(self) -> Hashable:
        return type(self), self.scale_rows, len(self.relations)

    # -- the graph -----------------------------------------------------------------------------------------------

    def prepare_graph(self, x: Tensor, edge_index: Tensor, graph: Graph) -> tuple[Matrix, Relations]:
        """Attributes and one propagation a relation, from the converted attributes and edges of a graph."""
        if (graph.relation_names or (ALL_EDGES,)) != self.relations:
            raise InputError(f"the graph has the relations {graph.relation_names}, and the model {self.relations}")
        where = edge_index.device
        masks = None if graph.edge_relations is None else graph.edge_relations.to(where)
        weights = None if graph.edge_weight is None else graph.edge_weight.to(where)
        return self._scaled(x), self._propagations(edge_index, x.shape[0], x.dtype, masks, weights)

    def propagation(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
    ) -> Relations:
        if len(self.relations) > 1:
            raise InputError("the model needs the relations of the edges, which an edge_index does not have")
        return self._propagations(edge_index, num_nodes, dtype, None, edge_weight)

    def _scaled(self, x: Tensor) -> Matrix:
        return as_matrix(scale_rows_to_unit(x) if self.scale_rows else x)

    def _propagations(
        self, edge_index: Tensor, n: int, dtype: torch.dtype, masks: Tensor | None, weights: Tensor | None
    ) -> Relations:
        matrices = []
        for number in range(len(self.relations)):
            inside = slice(None) if masks is None else ((masks >> number) & 1).bool()
            own = None if weights is None else weights[inside]
            matrices.append(weighted_mean_adjacency(edge_index[:, inside], n, dtype=dtype, weights=own))
        return Relations(matrices)

    # -- the logits ----------------------------------------------------------------------------------------------

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        return self._logits(self.weight, self.bias, x, propagation)

    def _logits(self, weight: Tensor, bias: Tensor, x: Matrix, propagation: object) -> Tensor:
        assert isinstance(propagation, Relations)
        classes, paths = weight.shape[1], self.paths
        blocks = torch.cat([self._padded(block, path) for block, path in self._blocks(weight)], dim=1)
        terms = (x @ blocks).split(classes, dim=1)
        totals = {path.relations: term for path, term in zip(paths, terms, strict=True)}
        for path in reversed(paths):  # longer ones first
            if path.relations:
                matrix, end = propagation.matrices[path.relations[0]], path.relations[1:]
                totals[end] = totals[end] + matrix @ totals.pop(path.relations)
        return totals[()] + bias

    def _blocks(self, weight: Tensor) -> list[tuple[Tensor, RelationPath]]:
        paths = self.paths
        return list(zip(weight.split([path.width for path in paths]), paths, strict=True))

    def _padded(self, block: Tensor, path: RelationPath) -> Tensor:
        """The weights of a path for all columns: 0 for those of other types."""
        return nn.functional.pad(block, (0, 0, path.first, sum(self.widths) - path.last))

    def at(self, theta: Tensor, x: Matrix, propagation: object) -> Tensor:
        """The logits at flat parameters `theta`, of which they are a linear function; nothing is recorded."""
        size = self.weight.numel()
        with torch.no_grad():
            return self._logits(theta[:size].view_as(self.weight), theta[size:], x, propagation)

    def transposed(self, u: Tensor, x: Matrix, propagation: object) -> Tensor:
        """The transpose of `at`: `W_p` gets `X^T S_{p_1}^T ... S_{p_k}^T u`, the bias the sum of `u`."""
        assert isinstance(propagation, Relations)
        back: dict[tuple[int, ...], Tensor] = {(): u}
        with torch.no_grad():
            for path in self.paths[1:]:
                first, end = path.relations[0], path.relations[1:]
                back[path.relations] = propagation.matrices[first].T @ back[end]
            received = torch.cat([back[path.relations] for path in self.paths], dim=1)
            turned = x.T @ received if isinstance(x, SparseMatrix) else x.values.T @ received
            parts = turned.split(u.shape[1], dim=1)
            own = [part[path.first : path.last] for part, path in zip(parts, self.paths, strict=True)]
            return torch.cat([torch.cat(own).flatten(), u.sum(dim=0)])

    # -- as an affine model --------------------------------------------------------------------------------------

    def feature_norms(self, x: Matrix, propagation: object) -> Tensor:
        """For each node at least the norm of its features, all numbers taken in absolute value, the bias included.

        The norm of a mean is at most the mean of the norms, so propagating the norms will do.
        """
        assert isinstance(propagation, Relations)
        norms = row_norms(x.csr if isinstance(x, SparseMatrix) else x.values).unsqueeze(1)
        squares = torch.ones_like(norms)
        for path in self.paths:
            lengths = norms
            for relation in path.relations:
                lengths = propagation.matrices[relation].csr @ lengths
            squares += lengths.square()
        return squares.sqrt().squeeze(1)

    def logits_jacobian(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> Jacobian:
        return _RelationalJacobian(self, inputs, rows, nodes=nodes)

    def row_norm_sums(self, inputs: tuple[Any, Any], rows: Tensor, jacobian: Jacobian) -> tuple[float, float]:
        norms = self.feature_norms(*inputs)[rows]
        return float(norms.sum()), float(norms.square().sum())

    def longest_sum(self, nodes: int) -> int:
        """A hop sums messages, and before that the weights of the edges that they are divided by."""
        return (2 * (self.reach.hops or 0) + 3) * (nodes + self.weight.shape[0] + len(self.paths) + 10)

    def can_share(self, like: Tensor) -> bool:
        return self.weight.to(like) is self.weight  # the Jacobian reads only the shapes of the parameters


@functools.lru_cache(maxsize=64)
def _paths(schema: Schema, target: str, hops: int) -> tuple[RelationPath, ...]:
    return relation_paths(schema, target, hops=hops)


class _RelationalJacobian(Jacobian):
    """Some rows of the logits, which are a linear function of the parameters."""

    def __init__(self, module: RelationalSIGN, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> None:
        self._module, self._inputs, self._rows = module, inputs, rows
        self._nodes, self.value = nodes, module.weight.detach().new_zeros(rows.numel(), module.weight.shape[1])

    def apply(self, v: Tensor) -> Tensor:
        return self._module.at(v, *self._inputs).index_select(0, self._rows)

    def adjoint(self, u: Tensor) -> Tensor:
        everywhere = torch.zeros(self._nodes, u.shape[1], dtype=u.dtype, device=u.device)
        return self._module.transposed(everywhere.index_copy_(0, self._rows, u), *self._inputs)
