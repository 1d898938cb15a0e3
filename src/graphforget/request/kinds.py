"""The kinds of things that a request can name."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["nodes", "edges", "attributes", "partial attributes", "graphs", "labels", "edge weights"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def in_words(counts: dict[str, int]) -> str:
    """The counts of `count_items` in words, such as "2 deleted items (1 node, 1 label)"."""
    words = ", ".join(f"{count:,} {kind}{'s' * (count != 1)}" for kind, count in counts.items())
    total = sum(counts.values())
    return f"{total:,} deleted item{'s' * (total != 1)} ({words})"
