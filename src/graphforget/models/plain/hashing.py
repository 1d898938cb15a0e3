"""Keyed hashes of node numbers and colours, as SplitMix64 gives them."""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import Tensor

INCREMENT = 0x9E3779B97F4A7C15 - 2**64
FACTORS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))
TRAINING = 1  # the highest side that a link is predicted from
HELD_OUT = 2


def salt(*parts: int | str) -> int:
    """A number for a purpose."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little", signed=True)


def pair_hashes(first: Tensor, second: Tensor) -> Tensor:
    return _mixed(_mixed(first + INCREMENT) + second)


def salted(hashes: Tensor, number: int) -> Tensor:
    return _mixed(hashes ^ number)


def sides(pairs: Tensor, seed: int, held_out: float, messages: float) -> Tensor:
    """The side of each pair of node numbers: 0 carries messages, 1 is learned from, 2 is held out."""
    hashes = pair_hashes(pairs.amin(dim=1), pairs.amax(dim=1))
    carries = _uniform(salted(hashes, salt("link message", seed))) < messages
    is_held_out = _uniform(salted(hashes, salt("link side", seed))) < held_out
    return torch.where(is_held_out, HELD_OUT, torch.where(carries, 0, TRAINING))


def _mixed(values: Tensor) -> Tensor:
    for shift, factor in FACTORS:
        values = (values ^ _shifted(values, shift)) * factor
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, shift: int) -> Tensor:
    return (values >> shift) & ((1 << (64 - shift)) - 1)  # the mask makes torch's shift a logical one


def _uniform(hashes: Tensor) -> Tensor:
    return _shifted(hashes, 11).double() * 2.0**-53
