"""Trained encoders of a stacked model, one a part, and the embeddings that they give."""

from __future__ import annotations

import copy
import hashlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.errors import InputError
from graphforget.linalg.sparse import Matrix, SparseMatrix
from graphforget.models.base import GraphModel
from graphforget.models.composite import converted_module, inner_inputs, inner_state, load_inner_state, state_digest
from graphforget.models.gcn import GCN
from graphforget.models.item_networks import ItemNetwork

SCALES = "encoders.scales"


@dataclass(frozen=True, eq=False)
class Encoders:
    """Trained encoders, one a part, in float64. They are never changed, only replaced.

    `scales` holds the mean row norm of each encoder's embedding at the training nodes of its own part. 0 stands for a
    part without a training node, whose columns are 0.
    """

    modules: tuple[nn.Module, ...]
    scales: tuple[float, ...]

    def __deepcopy__(self, memo: dict[int, Any]) -> Encoders:
        return self

    @cached_property
    def digest(self) -> str:
        """For this process. Encoders that stay after a request are not hashed again."""
        parts = [f"{_digest_of(one)} {scale!r}" for one, scale in zip(self.modules, self.scales, strict=True)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def state(self) -> dict[str, Tensor]:
        """All tensors by name."""
        named: dict[str, Tensor] = {}
        for k, module in enumerate(self.modules):
            named |= inner_state(module, f"encoders.{k}.")
        return named | {SCALES: torch.tensor(self.scales, dtype=torch.float64)}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], fresh: Sequence[nn.Module]) -> Encoders:
        """The encoders whose `state` this is, in fresh modules. Raises `InputError` if a tensor does not fit."""
        rest = dict(state)
        scales = rest.pop(SCALES, None)
        if scales is None or scales.dtype != torch.float64 or scales.shape != (len(fresh),):
            raise InputError(f"the scales of {len(fresh)} encoders are missing")
        if not torch.isfinite(scales).all() or (scales < 0).any():
            raise InputError("a scale of an encoder is no finite number from 0")
        modules = [load_inner_state(module, rest, f"encoders.{k}.") for k, module in enumerate(fresh)]
        if rest:
            raise InputError(f"there is no tensor {next(iter(rest))[:80]!r} in these encoders")
        return cls(tuple(modules), tuple(scales.tolist()))

    def embeddings(
        self,
        x: Tensor,
        edge_index: Tensor,
        propagation: SparseMatrix,
        *,
        width: int,
        norm: float,
        edge_weight: Tensor | None = None,
        rows: Matrix | None = None,
        combined: Callable[[Tensor], Tensor] = lambda vectors: vectors,
    ) -> Tensor:
        """`norm [c(S E_1) / scale_1, ..., c(S E_K) / scale_K]`, by one pass of each encoder over the graph.

        `combined` is `c`, which makes vectors of items of those of nodes. `rows` are the scaled attributes: a sparse
        model that reads them and `S` as they are need not prepare the graph.
        """
        prepared: tuple[Any, Any] | None = None
        blocks: list[Tensor | None] = []
        for module, scale in zip(self.modules, self.scales, strict=True):
            if scale == 0:
                blocks.append(None)
                continue
            if prepared is None:  # all encoders are of one type
                shared = isinstance(rows, SparseMatrix) and type(module) is GCN and module.scale_rows
                prepared = (rows, propagation) if shared else inner_inputs(module, x, edge_index, edge_weight)
            vectors = embedding(converted_module(module, x), *prepared)
            blocks.append(combined(propagation @ vectors).mul_(norm / scale))
        if all(block is not None for block in blocks):
            return torch.cat(blocks, dim=1)  # type: ignore[arg-type]
        nothing = combined(torch.zeros(x.shape[0], width, dtype=x.dtype, device=x.device))
        return torch.cat([nothing if block is None else block for block in blocks], dim=1)


_digests: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()


def _digest_of(module: nn.Module) -> str:
    """The digest of the tensors of a trained encoder, which never change."""
    if module not in _digests:
        _digests[module] = state_digest(module.state_dict())
    return _digests[module]


def embedding(module: nn.Module, x: Any, edge_index: Any) -> Tensor:
    """The embedding of every node: by the module's own `embed`, if it has one, otherwise its outputs.

    A network that answers for links or graphs gives the vectors that these are made of. A user's module is used once
    and thrown away, so that it cannot remember a graph that it has seen.
    """
    if isinstance(module, ItemNetwork):
        module = module.inner
        with torch.no_grad():
            return module.logits(x, edge_index)
    module = module if isinstance(module, GraphModel) else copy.deepcopy(module)
    embed = getattr(module, "embed", None)
    with torch.no_grad():
        out = (embed if callable(embed) else module)(x, edge_index)
    if not isinstance(out, Tensor) or out.dim() != 2:
        raise InputError("the embedding of the encoder is not a matrix of nodes x columns")
    return out
