"""How far a change of the graph can travel through a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reach:
    """What `footprint` must know of a model's layers (MATHS section 2).

    `hops` is the number of message-passing rounds; None means that no bound is known, so every node may be touched.
    `degree_normalised` says that an edge's weight depends on the degree of its *source* (GCN, SGC, APPNP ...), so a
    lost edge changes every message its end sends. It is the larger footprint, and the one for unknown layers.
    """

    hops: int | None
    degree_normalised: bool = True

    def __str__(self) -> str:
        if self.hops is None:
            return "unbounded"
        return f"{self.hops} hops, {'degree-normalised' if self.degree_normalised else 'plain'}"
