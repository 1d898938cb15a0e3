"""What a caller asks for, what a method hands back, and what comes of a request."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

from torch import Tensor

from graphforget.certificates.annex import Annex
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.document import Certificate
from graphforget.certificates.levels import Level
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.request.footprint import Footprint
from graphforget.training.trained import Trained


@dataclass(frozen=True)
class PrivacyTarget:
    """What the caller wants guaranteed, and with how much noise."""

    epsilon: float = 1.0
    delta: float = 1e-5
    sigma: float | None = None  # None: the model's own

    def __post_init__(self) -> None:
        for name, value, good, wanted in (
            ("epsilon", self.epsilon, _is_real(self.epsilon) and self.epsilon > 0, "a positive number"),
            ("delta", self.delta, _is_real(self.delta) and 0 < self.delta < 1, "a number between 0 and 1"),
            ("sigma", self.sigma, self.sigma is None or (_is_real(self.sigma) and self.sigma >= 0), "a number from 0"),
        ):
            if not good:
                raise InputError(f"{name} is {value!r}, {wanted} is needed")
            if value is not None:
                object.__setattr__(self, name, float(value))


def _is_real(value: Any) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False


@dataclass(frozen=True, eq=False)
class MethodResult:
    """What a method hands back: the model on the retained graph, what it claims, and how it went."""

    trained: Trained
    claim: Claim
    measurements: dict[str, Any] = field(default_factory=dict)  # private: what was measured for the claim
    details: dict[str, Any] = field(default_factory=dict)  # private: how it went
    notes: tuple[str, ...] = ()  # private: what the caller should know, in sentences
    uncounted: float = 0.0  # seconds spent on measurements that are no part of unlearning
    centre: Tensor | None = None  # what noise is to be added to; None: the weights
    restarts: bool = False  # releases are counted anew: the caller had the model trained from fresh weights


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a request. `trained` and `graph` go into the next one, `released` may go out with its certificate.

    The certificate and `public()` may be shown. Everything else stays private.
    """

    method: str  # private: the one that was used in the end
    trained: Trained = field(repr=False)
    graph: Graph
    centre: Tensor = field(repr=False)  # private: what the noise was added to, the weights or a certified ball's centre
    released_theta: Tensor = field(repr=False)  # that with the certificate's noise
    certificate: Certificate
    annex: Annex = field(repr=False)  # private: what lets an auditor check the certificate without the deleted data
    touched: Footprint = field(repr=False)
    seconds: float  # everything but the assumption audit
    measured: dict[str, Any]
    details: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def level(self) -> Level:
        return self.certificate.level

    @cached_property
    def released(self) -> Trained:
        """The model that the certificate speaks of, with its noise. Further requests start from `trained`."""
        sigma = self.certificate.sigma or 0.0
        return self.trained.released(self.released_theta, self.graph, noise=sigma)

    @cached_property
    def _released_score(self) -> float | None:
        return self.released.micro_f1(self.graph) if self.graph.test_mask.any() else None

    def public(self) -> dict[str, Any]:
        """What may be shown: a function of the retained graph, the settings and the released weights."""
        return {
            "audience": "public",
            "level": self.level,
            "certificate": self.certificate.to_dict(),
            "test_micro_f1": {"released": self._released_score},
        }

    def private(self) -> dict[str, Any]:
        """What depends on what was deleted: numbers and sentences, nobody's name."""
        return dict(self.annex.account)

    def answer(self) -> dict[str, Any]:
        """What the operator is shown: the public part, and the private one under its name."""
        return self.public() | {"private": self.private()}


def account(
    *,
    method: str,
    weights_before: str,
    changed: bool,
    touched: Footprint,
    seconds: float,
    change: MethodResult,
    notes: tuple[str, ...],
) -> dict[str, Any]:
    """What the private annex keeps of how a request was answered. JSON."""
    return {
        "audience": "private",
        "method": method,
        "weights_before": weights_before,
        "changed": changed,
        "footprint": {
            "removed": touched.removed.numel(),
            "affected": touched.affected.numel(),
            "empty": touched.empty,
        },
        "measured": change.measurements,
        "details": change.details,
        "notes": list(notes),
        "seconds": seconds,
    }
