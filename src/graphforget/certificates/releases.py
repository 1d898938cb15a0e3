"""How releases are counted against what was promised for all of them together (docs/maths.md, section 9)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphforget.certificates.chain import REFUSED, Entry
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.composition import Composed, composed
from graphforget.certificates.document import Certificate
from graphforget.privacy.gaussian import release_ratio


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


def composed_since_training(
    entries: Sequence[Entry], certificates: Sequence[Certificate | None], *, delta: float
) -> Composed:
    """What all releases together tell at most of anything that was deleted: the largest of `since_training`."""
    parts = [composed(window, delta=delta) for window in since_training(entries, certificates) or [[]]]
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
