"""What a caller asks for, what a method hands back, and what comes of a request."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

from torch import Tensor

from graphforget.certificates.annex import Annex
from graphforget.certificates.claim import Claim
from graphforget.certificates.document import Certificate
from graphforget.certificates.levels import Level
from graphforget.errors import InputError
from graphforget.footprint import Footprint
from graphforget.graph import Graph
from graphforget.trained import Trained


@dataclass(frozen=True)
class Asked:
    """What the caller wants guaranteed, and with how much noise."""

    epsilon: float = 1.0
    delta: float = 1e-5
    sigma: float | None = None  # None: as much as epsilon and delta need

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
class Change:
    """What a method hands back: the model on the retained graph, what it claims, and how it went."""

    trained: Trained
    claim: Claim
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what the caller should know, in sentences
    uncounted: float = 0.0  # seconds spent on measurements that are no part of unlearning
    retrained: bool = False  # the method gave up its own way and trained anew
    centre: Tensor | None = None  # what noise is to be added to; None: the weights


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a request. `trained` and `graph` go into the next one, `released` may go out with its certificate.

    `trained`, `graph`, `centre` and `annex` stay private.
    """

    method: str
    trained: Trained = field(repr=False)
    graph: Graph
    centre: Tensor = field(repr=False)  # private: what the noise was added to, the weights or a certified ball's middle
    released_theta: Tensor = field(repr=False)  # that with the certificate's noise
    certificate: Certificate
    annex: Annex = field(repr=False)  # private: what lets an auditor check the certificate without the deleted data
    touched: Footprint = field(repr=False)
    seconds: float  # everything but the assumption audit
    details: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def level(self) -> Level:
        return self.certificate.level

    @cached_property
    def released(self) -> Trained:
        """The model that the certificate speaks of, with its noise. Further requests start from `trained`."""
        sigma = self.certificate.sigma or 0.0
        if not sigma and self.trained.tilt is None:
            return self.trained
        return self.trained.released(self.released_theta, self.graph, noise=sigma)

    def scores(self) -> dict[str, float] | None:
        """Test micro-F1 on the retained graph, of the private and of the released weights."""
        if not self.graph.test_mask.any():
            return None
        return {"unlearned": self.trained.micro_f1(self.graph), "released": self.released.micro_f1(self.graph)}

    def answer(self) -> dict[str, Any]:
        """What a caller is told: the summary and the scores."""
        return self.summary() | {"test_micro_f1": self.scores()}

    def summary(self) -> dict[str, Any]:
        """What `--json` and `outcome.json` show of it: numbers and sentences, nobody's name."""
        return {
            "method": self.method,
            "level": self.level,
            "certificate": self.certificate.to_dict(),
            "graph_digest": self.graph.digest,
            "footprint": {"removed": self.touched.removed.numel(), "affected": self.touched.affected.numel()},
            "seconds": self.seconds,
            "details": self.details,
            "notes": list(self.notes),
        }
