"""Dropout keyed by node number: a node's mask does not depend on the other nodes of the graph."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from graphforget.graph.hashing import node_hashes, pair_hashes, random_words, salt, salted
from graphforget.linalg.pattern import Pattern

LANES = 4  # numbers of 16 bits in a 64-bit word
STEPS = 1 << 16  # the probability of keeping a value is a multiple of 1 / STEPS


class KeyedDropout(TorchFunctionMode):
    """Inside it `torch.nn.functional.dropout` draws from (seed, epoch, call, node number, column), never from a row.

    It works for all layers that call it, such as `nn.Dropout` and PyG's layers. A tensor with one row per node is keyed
    by the node. A tensor with one row per edge is keyed by the edge's two ends; its rows may have the order of
    `edge_index`, of a `Pattern`, or of PyG's attention layers: edges without self-loops, then a loop for every node.
    A tensor of another size is left to torch's generator. `unkeyed` says whether a forward pass drew from that, from
    those of numpy and Python, or from a generator of the module's own.

    A module that repeats a part of its forward pass in the backward pass (`torch.utils.checkpoint`) would meet other
    masks there, and so get a wrong gradient: train it without checkpoints.
    """

    def __init__(self, numbers: Tensor, edges: Tensor | Pattern | None, *, seed: int, device: str = "cpu") -> None:
        super().__init__()
        self._seed, self._epoch, self._call = seed, 0, 0
        self._hashes = _hashes_by_size(numbers.to(device), edges)
        self._device = torch.device(device)
        self._states: tuple[Any, ...] = ()
        self.unkeyed = False

    def at(self, epoch: int) -> KeyedDropout:
        """The same for one forward pass in this epoch, `with dropout.at(epoch): ...`."""
        self._epoch, self._call = epoch, 0
        return self

    def __enter__(self) -> KeyedDropout:
        self._states = _generator_states(self._device)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.unkeyed = self.unkeyed or _generator_states(self._device) != self._states

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.dropout:
            return self._dropout(*args, **kwargs)
        if kwargs.get("generator") is not None:
            self.unkeyed = True
        return func(*args, **kwargs)

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        hashes = self._hashes.get(input.shape[0]) if input.dim() else None
        if not training or not 0 < p < 1 or hashes is None or input.layout != torch.strided:
            return functional.dropout(input, p, training, inplace)
        keys = salted(hashes, salt("dropout", self._seed, self._epoch, self._call))
        self._call += 1
        mask = dropout_mask(keys, input.shape[1:], p=p, dtype=input.dtype)
        return input.mul_(mask) if inplace else input * mask


def dropout_mask(keys: Tensor, shape: torch.Size, *, p: float, dtype: torch.dtype) -> Tensor:
    """0 with probability `p`, else 1 over the probability of staying; a row for each key, each of this shape.

    Every number of 16 bits out of the rows' generators decides one value. `p` is rounded to a multiple of 2^-16, and
    what stays is scaled by the rounded probability, so that expectations are kept.
    """
    columns = shape.numel()
    numbers = random_words(keys, -(-columns // LANES)).view(torch.int16)[:, :columns]
    staying = max(1, round((1 - p) * STEPS))
    if staying == STEPS:  # 16 bits could not tell it from 0
        return torch.ones(keys.numel(), *shape, dtype=dtype, device=keys.device)
    mask = (numbers < staying - STEPS // 2).to(dtype).mul_(STEPS / staying)
    return mask.view(-1, *shape)


def _hashes_by_size(numbers: Tensor, edges: Tensor | Pattern | None) -> dict[int, Tensor]:
    """The hashes of what the rows of a tensor stand for, by the number of rows. Nodes come before edges."""
    by_size: dict[int, Tensor] = {}
    if isinstance(edges, Pattern):
        by_size[edges.rows.numel()] = pair_hashes(numbers[edges.columns], numbers[edges.rows])
    elif isinstance(edges, Tensor):
        hashes = pair_hashes(*numbers[edges])
        plain = hashes[edges[0] != edges[1]]
        with_loops = torch.cat([plain, node_hashes(numbers)])
        by_size |= {with_loops.numel(): with_loops, hashes.numel(): hashes}
    return by_size | {numbers.numel(): node_hashes(numbers)}


def _generator_states(device: torch.device) -> tuple[Any, ...]:
    """The states of the global generators of torch, numpy and Python."""
    states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])
    numpys = pickle.dumps(np.random.get_state(legacy=False))  # noqa: NPY002, the module may use what is legacy
    return (*(state.numpy().tobytes() for state in states), numpys, random.getstate())
