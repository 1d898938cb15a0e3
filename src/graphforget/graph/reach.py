"""How far a change of the graph can travel through a model."""

from __future__ import annotations

from dataclasses import dataclass

from graphforget.errors import InputError
from graphforget.validation import whole_number

MOST_HOPS = 256


@dataclass(frozen=True)
class Reach:
    """What `footprint` must know of a model's layers (docs/maths.md, section 2).

    `hops` is the number of message-passing rounds; None means that no bound is known, so every node may be touched.
    `degree_normalised` says that an edge's weight depends on the degree of its *source* (GCN, SGC, APPNP ...), so a
    lost edge changes every message its end sends. It is the larger footprint, and the one for unknown layers.
    `both_ways` says that messages, or the degrees they are weighted by, may go against the edges of a directed graph.
    """

    hops: int | None
    degree_normalised: bool = True
    both_ways: bool = False

    def __post_init__(self) -> None:
        if self.hops is not None:
            object.__setattr__(self, "hops", whole_number(self.hops, "hops"))
            if self.hops > MOST_HOPS:
                raise InputError(f"hops is {self.hops}, up to {MOST_HOPS} are possible")

    def __str__(self) -> str:
        if self.hops is None:
            return "unbounded"
        kind = "degree-normalised" if self.degree_normalised else "plain"
        return f"{self.hops} hops, {kind}{', both ways' * self.both_ways}"
