"""What several releases of a ledger promise together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from graphforget.certificates.chain import REFUSED, Entry
from graphforget.privacy.gaussian import composed_ratio, epsilon_of


@dataclass(frozen=True)
class Composed:
    """What all releases together tell at most: `epsilon` at this `delta`, or the `reason` why there is none.

    It is public: it follows from the tolerances, which are settings, and not from what was measured.
    """

    releases: int
    epsilon: float | None
    delta: float
    reason: str | None


def composed(entries: Iterable[Entry], *, delta: float) -> Composed:
    """The epsilon of all these releases seen together, which takes a proof for each of them.

    Their ratios add up in squares (docs/maths.md, section 7), and exact releases add nothing. The entries are taken as
    they are: `check_chain` them first.
    """
    entries = sorted(entries, key=lambda entry: entry.number)
    ratios = [_proven_ratio(entry) for entry in entries]
    epsilon = epsilon_of(ratio=composed_ratio(ratio for ratio in ratios if ratio is not None), delta=delta)
    unproven = next((entry for entry, ratio in zip(entries, ratios, strict=True) if ratio is None), None)
    reason = None
    if unproven:
        reason = f"entry {unproven.number} is {unproven.level}, so nothing is proven about its release"
    elif math.isinf(epsilon):
        reason = "the noise of all releases together is too little for any epsilon"
    return Composed(releases=len(entries), epsilon=None if reason else epsilon, delta=delta, reason=reason)


def _proven_ratio(entry: Entry) -> float | None:
    return entry.ratio if entry.level in ("exact", "certified", REFUSED) else None
