"""Counts releases against the budget for all of them together (docs/maths.md, section 9)."""

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
    """What a release takes of the model's budget: at least one share, so that at most the planned number fit in.

    A release of which nothing is proven takes all of it. After it the model has to be trained again.
    """
    budget: Any = {"epsilon": settings["epsilon"], "delta": settings["delta"]}
    if claim.counted_ratio is None:
        return release_ratio(**budget)
    return max(claim.counted_ratio, release_ratio(**budget, releases=settings["releases"]))


def since_training(entries: Sequence[Entry], certificates: Sequence[Certificate | None]) -> list[list[Entry]]:
    """The entries between two trainings from fresh weights. Those after one reveal nothing deleted before it."""
    windows: list[list[Entry]] = [[]]
    for entry, certificate in zip(entries, certificates, strict=True):
        if certificate is not None and _is_retrained(certificate):
            windows.append([])
        windows[-1].append(entry)
    return [window for window in windows if window]


def compose_since_training(
    entries: Sequence[Entry], certificates: Sequence[Certificate | None], *, delta: float
) -> Composition:
    """The composition of all releases, for anything that was deleted: the largest one in `since_training`."""
    parts = [compose(window, delta=delta) for window in since_training(entries, certificates) or [[]]]
    worst = max(parts, key=lambda part: float("inf") if part.epsilon is None else part.epsilon)
    return dataclasses.replace(worst, releases=len(entries))


def _is_retrained(certificate: Certificate) -> bool:
    return certificate.method == "retrain" and certificate.claim.counted_ratio is not None


def counted_in(entries: Iterable[Entry], certificates: Iterable[Certificate | None]) -> tuple[list[float], bool]:
    """The ratios that a ledger has counted since the model was last retrained, and whether it was retrained."""
    ratios: list[float] = []
    retrained = False
    for entry, certificate in zip(entries, certificates, strict=True):
        if certificate is None:
            ratios += [] if entry.level != REFUSED or entry.ratio is None else [entry.ratio]
        elif certificate.releases_left is not None:
            if _is_retrained(certificate):
                ratios, retrained = [], True
            ratios.append(counted_ratio(certificate.claim, certificate.settings))
    return ratios, retrained


@dataclass(frozen=True)
class Composition:
    """The guarantee of all releases together: `epsilon` at this `delta`, or the `reason` why there is none.

    It is public: it follows from the tolerances, which are settings, and not from measurements.
    """

    releases: int
    epsilon: float | None
    delta: float
    reason: str | None


def compose(entries: Iterable[Entry], *, delta: float) -> Composition:
    """The epsilon of all these releases together, which needs a proof for each of them.

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
