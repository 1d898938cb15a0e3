"""How releases are counted against what was promised for all of them together (docs/maths.md, section 9)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphforget.certificates.chain import REFUSED, Entry
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.document import Certificate
from graphforget.privacy.gaussian import composed_ratio, epsilon_of, release_ratio


def counted_ratio(claim: Claim, settings: Mapping[str, Any]) -> float:
    """What a release takes of the promise: at least one share, so that no more than the promised number fit in.

    A release of which nothing is proven takes all of it: after it only training anew keeps the promise.
    """
    promise: Any = {"epsilon": settings["epsilon"], "delta": settings["delta"]}
    if claim.counted_ratio is None:
        return release_ratio(**promise)
    return max(claim.counted_ratio, release_ratio(**promise, releases=settings["releases"]))


def since_training(entries: Sequence[Entry], certificates: Sequence[Certificate | None]) -> list[list[Entry]]:
    """The entries between two trainings from fresh weights. Those after one tell nothing of what was deleted before."""
    windows: list[list[Entry]] = [[]]
    for entry, certificate in zip(entries, certificates, strict=True):
        if certificate is not None and _is_anew(certificate):
            windows.append([])
        windows[-1].append(entry)
    return [window for window in windows if window]


def compose_since_training(
    entries: Sequence[Entry], certificates: Sequence[Certificate | None], *, delta: float
) -> Composition:
    """What all releases together tell at most of anything that was deleted: the largest of `since_training`."""
    parts = [compose(window, delta=delta) for window in since_training(entries, certificates) or [[]]]
    worst = max(parts, key=lambda part: float("inf") if part.epsilon is None else part.epsilon)
    return dataclasses.replace(worst, releases=len(entries))


def _is_anew(certificate: Certificate) -> bool:
    return certificate.method == "retrain" and certificate.claim.counted_ratio is not None


def counted_in(entries: Iterable[Entry], certificates: Iterable[Certificate | None]) -> tuple[list[float], bool]:
    """The ratios that a ledger has counted since the model was last trained anew, and whether it was."""
    ratios: list[float] = []
    anew = False
    for entry, certificate in zip(entries, certificates, strict=True):
        if certificate is None:
            ratios += [] if entry.level != REFUSED or entry.ratio is None else [entry.ratio]
        elif certificate.releases_left is not None:
            if _is_anew(certificate):
                ratios, anew = [], True
            ratios.append(counted_ratio(certificate.claim, certificate.settings))
    return ratios, anew


@dataclass(frozen=True)
class Composition:
    """What all releases together tell at most: `epsilon` at this `delta`, or the `reason` why there is none.

    It is public: it follows from the tolerances, which are settings, and not from what was measured.
    """

    releases: int
    epsilon: float | None
    delta: float
    reason: str | None


def compose(entries: Iterable[Entry], *, delta: float) -> Composition:
    """The epsilon of all these releases seen together, which takes a proof for each of them.

    Their ratios add up in squares (docs/maths.md, section 7), and exact releases add nothing. The entries are not
    checked here: make a `Chain` of them first.
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
    return Composition(releases=len(entries), epsilon=None if reason else epsilon, delta=delta, reason=reason)


def _proven_ratio(entry: Entry) -> float | None:
    return entry.ratio if entry.level in ("exact", "certified", REFUSED) else None
