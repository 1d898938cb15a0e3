"""SGC and SIGN: fixed propagation and a linear head, strongly convex by construction (docs/maths.md, section 5.1)."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.graph.reach import Reach
from graphforget.linalg.blocked import BlockedFeatures
from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.sparse import DenseMatrix, Matrix, SparseMatrix, row_norms
from graphforget.models.affine import AffineModel
from graphforget.models.base import NormalisedModel
from graphforget.models.propagated import PropagatedFeatures, Settings
from graphforget.models.propagation import mean_adjacency
from graphforget.validation import whole_number

FEW_ROWS = 0.75  # of all rows of features; up to this share the rows of training nodes are copied


class FixedPropagation(NormalisedModel, AffineModel):
    """`sum_h c_h S^h X W_h + b` over the given powers `h` of the normalised adjacency `S`; `c_h` is 1 by default.

    Propagation has two forms, and the attributes' layout says which takes fewer operations. Sparse ones are
    propagated on the fly by Horner's rule, `X W_0 + S (X W_1 + S (X W_2 ...))`: a product costs their non-zeros and the
    edges. Dense ones are propagated once and kept, `[X, S X, S^2 X ...]`: a product no longer costs the edges.
    """

    has_fixed_features = True
    bias: nn.Parameter | None

    def __init__(
        self,
        columns: int,
        classes: int,
        *,
        powers: tuple[int, ...],
        scales: tuple[float, ...] | None = None,
        scale_rows: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(scale_rows=scale_rows)
        if not powers or powers[0] < 0 or any(b <= a for a, b in pairwise(powers)):
            raise InputError(f"the powers are {powers}, ascending whole numbers from 0 are needed")
        self.powers = tuple(powers)
        self.scales = dict(zip(powers, scales or (1.0,) * len(powers), strict=True))  # `c_h` of each power
        self.reach = Reach(max(powers), degree_normalised=True)
        self.weight = nn.Parameter(torch.zeros(len(powers), columns, classes))
        self.bias = nn.Parameter(torch.zeros(classes)) if bias else None

    def prepare(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Matrix, object]:
        rows, propagation = super().prepare(x, edge_index, edge_weight)
        assert isinstance(propagation, SparseMatrix)
        if isinstance(rows, SparseMatrix):
            return rows, propagation
        parts_by_power = []
        power = rows.values
        for hop in range(max(self.powers) + 1):
            power = propagation @ power if hop else power
            parts_by_power += [self._scaled(power, hop)] if hop in self.powers else []
        return DenseMatrix(torch.cat(parts_by_power, dim=1)), self._feature_norms(rows, propagation)

    @property
    def propagated_settings(self) -> Settings:
        """What `models/propagated.py` computes for this model."""
        return Settings(self.powers, tuple(self.scales.values()), self.scale_rows)

    @property
    def preparation(self) -> Hashable:
        return type(self), self.scale_rows, self.powers, tuple(self.scales.values()), self.bias is None

    def _scaled(self, values: Tensor, power: int) -> Tensor:
        """`c_h` times the values."""
        scale = self.scales[power]
        return values if scale == 1 else scale * values

    def logits(self, x: Matrix, propagation: object) -> Tensor:
        return self._logits(self.weight, self.bias, x, propagation)

    def _logits(self, weight: Tensor, bias: Tensor | None, x: Matrix, propagation: object) -> Tensor:
        total = self._propagated(weight, x, propagation)
        return total if bias is None else total + bias

    def _propagated(self, weight: Tensor, x: Matrix, propagation: object) -> Tensor:
        powers, columns, classes = weight.shape
        if isinstance(x, PropagatedFeatures):
            return x.logits(weight)
        if isinstance(propagation, Tensor):
            return x @ weight.reshape(powers * columns, classes)
        assert isinstance(propagation, SparseMatrix)
        if powers == 1:
            total = self._scaled(x @ weight[0], self.powers[0])
            for _ in range(self.powers[0]):
                total = propagation @ total
            return total
        terms = (x @ weight.permute(1, 0, 2).reshape(columns, powers * classes)).split(classes, dim=1)
        term_of = {power: self._scaled(term, power) for power, term in zip(self.powers, terms, strict=True)}
        total = term_of[max(self.powers)].contiguous()  # a product with a slice of a matrix takes twice the time
        for hop in reversed(range(max(self.powers))):
            total = propagation @ total
            if hop in term_of:
                total = total + term_of[hop]
        return total

    def at(self, theta: Tensor, x: Matrix, propagation: object) -> Tensor:
        """The logits at flat parameters `theta`, of which they are a linear function; nothing is recorded."""
        weight, bias = self.parts(theta)
        with torch.no_grad():
            return self._logits(weight, bias, x, propagation)

    def parts(self, theta: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weights and bias as views into flat parameters."""
        size = self.weight.numel()
        return theta[:size].view_as(self.weight), None if self.bias is None else theta[size:]

    def transposed(self, u: Tensor, x: Matrix, propagation: object) -> Tensor:
        """The transpose of `at`: `W_h` gets `X^T (S^T)^h u`, the bias the sum of `u`."""
        powers, columns, classes = self.weight.shape
        bias = [] if self.bias is None else [u.sum(dim=0)]
        with torch.no_grad():
            if isinstance(propagation, Tensor):
                assert isinstance(x, DenseMatrix)
                return torch.cat([(x.values.T @ u).flatten(), *bias])
            assert isinstance(x, SparseMatrix)
            assert isinstance(propagation, SparseMatrix)
            back, parts_by_power = u, []
            for hop in range(max(self.powers) + 1):
                back = propagation.T @ back if hop else back
                parts_by_power += [self._scaled(back, hop)] if hop in self.powers else []
            weight = x.T @ (parts_by_power[0] if powers == 1 else torch.cat(parts_by_power, dim=1))
            by_power = weight.view(columns, powers, classes).permute(1, 0, 2)
            return torch.cat([by_power.reshape(-1), *bias])

    def feature_norms(self, x: Matrix, propagation: object) -> Tensor:
        """For each node at least the norm of its features `[S^h x, ..., 1]`, all numbers taken in absolute value.

        From what `prepare` returned. The norm of a sum is at most the sum of the norms, so propagating the norms will
        do: `S` has no negative entry.
        """
        if isinstance(x, PropagatedFeatures):
            return (x.row_norms().square() + (0.0 if self.bias is None else 1.0)).sqrt()
        return propagation if isinstance(propagation, Tensor) else self._feature_norms(x, propagation)

    def _feature_norms(self, rows: Matrix, propagation: object) -> Tensor:
        assert isinstance(propagation, SparseMatrix)
        lengths = rows.csr if isinstance(rows, SparseMatrix) else rows.values
        norms = row_norms(lengths).unsqueeze(1)
        squares = torch.full_like(norms, 0.0 if self.bias is None else 1.0)
        for hop in range(max(self.powers) + 1):
            norms = propagation.csr @ norms if hop else norms
            squares += self._scaled(norms, hop).square() if hop in self.powers else 0
        return squares.sqrt().squeeze(1)

    # -- as an affine model --------------------------------------------------------------------------------------

    def logits_jacobian(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> Jacobian:
        features = inputs[0]
        if not isinstance(features, PropagatedFeatures):
            return _FixedJacobian(self, inputs, rows, nodes=nodes)
        _, _, classes = self.weight.shape
        return BlockedFeatures(features.of_rows(rows), classes=classes, bias=self.bias is not None)

    def row_norm_sums(self, inputs: tuple[Any, Any], rows: Tensor, jacobian: Jacobian) -> tuple[float, float]:
        features = inputs[0]
        if isinstance(features, PropagatedFeatures):
            squares = features.row_norms(rows).square() + (0.0 if self.bias is None else 1.0)
            return float(squares.sqrt().sum()), float(squares.sum())
        norms = self.feature_norms(*inputs)[rows]
        return float(norms.sum()), float(norms.square().sum())

    def feature_error(self, inputs: tuple[Any, Any]) -> float | None:
        features = inputs[0]
        return features.error if isinstance(features, PropagatedFeatures) else None

    def summed_nodes(self, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> int:
        return rows.numel() if isinstance(inputs[0], PropagatedFeatures) else nodes

    def longest_sum(self, nodes: int) -> int:
        powers, columns, _ = self.weight.shape
        return (max(self.powers) + 3) * (nodes + powers * columns + 10)

    def can_share(self, like: Tensor) -> bool:
        return self.weight.to(like) is self.weight  # the Jacobian reads only the shapes of the parameters


class _FixedJacobian(Jacobian):
    """Some rows of the logits, which are a linear function of the parameters.

    If the features are there already, a row needs no other row, and only these rows are computed with. They are copied
    where they are few.
    """

    has_shared_features = True

    def __init__(self, module: FixedPropagation, inputs: tuple[Any, Any], rows: Tensor, *, nodes: int) -> None:
        x, propagation = inputs
        self._rows: Tensor | None = rows
        if isinstance(propagation, Tensor) and rows.numel() <= FEW_ROWS * nodes:
            inputs, self._rows = (DenseMatrix(x.values.index_select(0, rows)), propagation), None
        self._module, self._inputs = module, inputs
        self._nodes, self.value = nodes, module.weight.detach().new_zeros(rows.numel(), module.weight.shape[2])

    def apply(self, v: Tensor) -> Tensor:
        logits = self._module.at(v, *self._inputs)
        return logits if self._rows is None else logits.index_select(0, self._rows)

    def adjoint(self, u: Tensor) -> Tensor:
        if self._rows is None:
            return self._module.transposed(u, *self._inputs)
        everywhere = torch.zeros(self._nodes, u.shape[1], dtype=u.dtype, device=u.device)
        return self._module.transposed(everywhere.index_copy_(0, self._rows, u), *self._inputs)


def _whole_hops(hops: Any) -> int:
    """A number of hops that a model can have. `None`, the reach of a model that reads everything, is not one."""
    return Reach(whole_number(hops, "hops")).hops or 0


class SGC(FixedPropagation):
    """Simplified graph convolution, `S^K X W + b` (Wu et al. 2019)."""

    def __init__(self, columns: int, classes: int, *, hops: int = 2, scale_rows: bool = True) -> None:
        super().__init__(columns, classes, powers=(_whole_hops(hops),), scale_rows=scale_rows)


class MeanSGC(FixedPropagation):
    """`P^K X W` with means over neighbours, `P = D^-1 (A + I)`, as CGU has it (Chien et al. 2023).

    Rows of at most unit length stay so, which CGU's worst-case bounds need. A node weighs its neighbours by its own
    degree alone, so an edge that goes is felt one step less far than in SGC.
    """

    symmetric_propagation = False
    takes_edge_weight = False

    def __init__(self, columns: int, classes: int, *, hops: int = 2, scale_rows: bool = True) -> None:
        super().__init__(columns, classes, powers=(_whole_hops(hops),), scale_rows=scale_rows, bias=False)
        self.reach = Reach(hops, degree_normalised=False)

    def propagation(
        self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
    ) -> Matrix:
        self.checked_weight(edge_weight)
        return mean_adjacency(edge_index, num_nodes, dtype=dtype)


class SIGN(FixedPropagation):
    """`X W_0 + S X W_1 + ... + S^K X W_K + b`, a linear SIGN (Frasca et al. 2020)."""

    def __init__(self, columns: int, classes: int, *, hops: int = 3, scale_rows: bool = True) -> None:
        super().__init__(columns, classes, powers=tuple(range(_whole_hops(hops) + 1)), scale_rows=scale_rows)


def sgc_without_bias(columns: int, classes: int, *, hops: int = 2, scale_rows: bool = True) -> FixedPropagation:
    """`S^K X W`, as ScaleGUN has it."""
    return FixedPropagation(columns, classes, powers=(_whole_hops(hops),), scale_rows=scale_rows, bias=False)
