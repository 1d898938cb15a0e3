"""Random numbers that belong to a node: a keyed hash of its number, so that no other node can change them."""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import Tensor

# SplitMix64 (Steele, Lea and Flood 2014). Products of int64 tensors wrap, as the generator needs it.
INCREMENT = 0x9E3779B97F4A7C15 - 2**64
FIRST_FACTOR = 0xBF58476D1CE4E5B9 - 2**64
SECOND_FACTOR = 0x94D049BB133111EB - 2**64


def splitmix64(values: Tensor) -> Tensor:
    """The output function of SplitMix64, a bijection on 64 bits: inputs that differ in one bit give unrelated outputs.

    It works in place, so pass a tensor that is not used elsewhere.
    """
    for shift, factor in ((30, FIRST_FACTOR), (27, SECOND_FACTOR)):
        values ^= (values >> shift) & ((1 << (64 - shift)) - 1)  # the mask makes torch's shift a logical one
        values *= factor
    values ^= (values >> 31) & ((1 << 33) - 1)
    return values


def salt(*parts: int | str) -> int:
    """A signed 64-bit number for a purpose, a seed, an epoch ...: another one for every tuple of parts."""
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def pair_hashes(first: Tensor, second: Tensor) -> Tensor:
    """A hash of every ordered pair of node numbers."""
    return splitmix64(splitmix64(first + INCREMENT).add_(second))


def node_hashes(numbers: Tensor) -> Tensor:
    """A hash of every node number: that of the pair of the node with itself, as a self-loop has it."""
    return pair_hashes(numbers, numbers)


def salted(hashes: Tensor, number: int) -> Tensor:
    """The hashes under a salt; those under another salt are unrelated."""
    return splitmix64(hashes ^ number)


def uniform(hashes: Tensor) -> Tensor:
    """The hashes as numbers from 0 to 1, 1 not included, of 53 bits."""
    return ((hashes >> 11) & ((1 << 53) - 1)).double() * 2.0**-53


def random_words(hashes: Tensor, count: int) -> Tensor:
    """The first `count` outputs of the SplitMix64 generators that start at these hashes, a row for each."""
    steps = torch.arange(1, count + 1, device=hashes.device) * INCREMENT
    return splitmix64(hashes.unsqueeze(1) + steps)
