"""Products with a tall matrix of features in blocks of rows that stay in cache: it is read once where two passes would
read it twice."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphforget.linalg.jacobian import Jacobian
from graphforget.linalg.versioned import exclusive

BLOCK = 1024  # rows


class BlockedFeatures(Jacobian):
    """`theta -> Z W + 1 b^T` for features `Z`, with `theta` the numbers of `W`, then of `b` if there is one.

    `features` gives `Z`, each time anew: the array behind it may belong to another version in between.
    """

    has_shared_features = True

    def __init__(self, features: Callable[[], Tensor], *, classes: int, bias: bool) -> None:
        self._features, self._classes, self._bias = features, classes, bias
        like = features()
        self.value = like.new_zeros(classes, like.shape[0]).T  # laid out as products are

    @property
    def blocks(self) -> list[slice]:
        """The blocks of rows."""
        return [slice(start, start + BLOCK) for start in range(0, self.value.shape[0], BLOCK)]

    @exclusive
    def apply(self, v: Tensor) -> Tensor:
        weight, bias = self._parts(v)
        product = weight @ self._features().T
        return (product if bias is None else product.add_(bias[:, None])).T

    @exclusive
    def adjoint(self, u: Tensor) -> Tensor:
        weight = (u.T.contiguous() @ self._features()).T.flatten()
        return torch.cat([weight, u.sum(dim=0)]) if self._bias else weight

    @exclusive
    def through(self, v: Tensor, inner: Callable[[int, Tensor], Tensor]) -> Tensor:
        """`J^T f(J v)` in one pass, where `inner(i, rows)` is `f` on the rows of block `i`."""
        features, (weight, bias) = self._features(), self._parts(v)
        out, sums = torch.zeros_like(weight), v.new_zeros(self._classes)
        for number, block in enumerate(self.blocks):
            rows = features[block]
            product = weight @ rows.T
            outputs = inner(number, (product if bias is None else product.add_(bias[:, None])).T)
            out.addmm_(outputs.T.contiguous(), rows)
            if bias is not None:
                sums += outputs.sum(dim=0)
        return torch.cat([out.T.flatten(), sums]) if self._bias else out.T.flatten()

    def _parts(self, v: Tensor) -> tuple[Tensor, Tensor | None]:
        """`W^T` and `b`. There are few classes, and products with few rows are faster than with few columns."""
        size = v.numel() - (self._classes if self._bias else 0)
        weight = v[:size].view(-1, self._classes).T.contiguous()
        return weight, v[size:] if self._bias else None
