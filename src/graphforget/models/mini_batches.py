"""The settings of mini-batches with sampled neighbours, in which encoders of stacked models can be trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphforget.errors import InputError
from graphforget.validation import whole_number

BATCH_SIZE = 1024
NEIGHBOURS = 10  # of each node, by default
EPOCHS = 10  # by default; an epoch has many steps
# Training nodes. An encoder of a part with more of them is trained in mini-batches by default. With 38,000 of them the
# whole part took less time for the same score; with 152,000 a module of PyG gained (`benchmarks/sampling.py`).
LARGE_PART = 100_000
MOST_HOPS = 100
BATCH_OPTIONS = ("batch_size", "num_neighbors")


@dataclass(frozen=True)
class MiniBatches:
    """`batch_size` training nodes a batch, at most, and up to `num_neighbors[h]` neighbours of a node at hop `h`.

    The names are those of PyG's `NeighborLoader`. A number of neighbours of -1 stands for all of them.
    """

    batch_size: int
    num_neighbors: tuple[int, ...]


def checked_mini_batches(
    batch_size: Any, num_neighbors: Any, *, hops: int | None
) -> tuple[int | None, tuple[int, ...] | None]:
    """Both settings, with the one that is left open if the other is given; `hops` is the reach of an encoder.

    A `batch_size` of 0 stands for the whole part, and None for the same where nothing else is decided.

    Raises:
        InputError: A number is out of its range, or nobody knows how many hops there are.
    """
    given = checked_num_neighbors(num_neighbors)
    size = None if batch_size is None else whole_number(batch_size, "batch_size")
    if size == 0 and given is not None:
        raise InputError("batch_size is 0, which is the whole part, and num_neighbors needs mini-batches")
    if not size and given is None:
        return size, None
    if given is None and hops is None:
        raise InputError(
            "how far messages travel in the encoder is not known, give num_neighbors with one number for each layer"
        )
    return size or BATCH_SIZE, (NEIGHBOURS,) * (hops or 0) if given is None else given


def checked_num_neighbors(given: Any) -> tuple[int, ...] | None:
    """The numbers of neighbours, one for each hop; None if they are left open."""
    if given is None:
        return None
    numbers = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if not all(type(number) is int and number >= -1 and number for number in numbers) or len(numbers) > MOST_HOPS:
        numbers = ()
    if not numbers:
        raise InputError(f"num_neighbors is {given!r}, a list such as [10, 10] is needed, -1 for all neighbours")
    return numbers
