"""The privacy target of a request, the result of a method, and the outcome of a request."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from graphforget.certificates.annex import Annex
from graphforget.certificates.claims.base import Claim
from graphforget.certificates.document import Certificate
from graphforget.certificates.levels import Level
from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.hashing import node_hashes, salt, salted
from graphforget.models.inputs import fresh_inputs
from graphforget.models.items import Items
from graphforget.request.footprint import Footprint
from graphforget.training.score_names import SCORES
from graphforget.training.trained import Trained

MOST_SCORED = 50_000  # test items


@dataclass(frozen=True)
class PrivacyTarget:
    """The guarantee that the caller requires, and the noise."""

    epsilon: float = 1.0
    delta: float = 1e-5
    sigma: float | None = None  # None: the model's own

    def __post_init__(self) -> None:
        for name, value, valid, allowed in (
            ("epsilon", self.epsilon, _is_real(self.epsilon) and self.epsilon > 0, "a positive number"),
            ("delta", self.delta, _is_real(self.delta) and 0 < self.delta < 1, "a number between 0 and 1"),
            ("sigma", self.sigma, self.sigma is None or (_is_real(self.sigma) and self.sigma >= 0), "a number from 0"),
        ):
            if not valid:
                raise InputError(f"{name} is {value!r}, {allowed} is needed")
            if value is not None:
                object.__setattr__(self, name, float(value))


def _is_real(value: Any) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer that is too large for a float
        return False


@dataclass(frozen=True, eq=False)
class MethodResult:
    """The result of a method: the model on the retained graph, its claim, and measurements."""

    trained: Trained
    claim: Claim
    measurements: dict[str, Any] = field(default_factory=dict)  # private: the measurements for the claim
    details: dict[str, Any] = field(default_factory=dict)  # private: facts about the computation
    notes: tuple[str, ...] = ()  # private: sentences for the caller
    uncounted: float = 0.0  # seconds spent on measurements that are no part of unlearning
    centre: Tensor | None = None  # the noise is added to it; None: to the weights
    restarts: bool = False  # the releases are counted from 0: the model was trained from fresh weights


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of `unlearn`.

    `trained` and `graph` are the arguments of the next request. `released` may be published with the certificate. The
    certificate and `public()` may be shown. Everything else is private.

    Attributes:
        method: The method that was used in the end. Private.
        trained: The model on the retained graph, without noise. Private.
        graph: The retained graph.
        centre: The noise was added to it: the weights, or the centre of a certified ball. Private.
        released_theta: The released weights: `centre` with the noise of the certificate.
        certificate: The signed or unsigned certificate. Public.
        annex: With it an auditor can check the certificate without the deleted data. Private.
        touched: The footprint of the request. Private.
        seconds: The time of the request, without the audit of the assumptions.
        measured: The measurements for the claim. Private.
        details: Facts about the computation. Private.
        notes: Sentences for the caller. Private.
    """

    method: str
    trained: Trained = field(repr=False)
    graph: Graph
    centre: Tensor = field(repr=False)
    released_theta: Tensor = field(repr=False)
    certificate: Certificate
    annex: Annex = field(repr=False)
    touched: Footprint = field(repr=False)
    seconds: float
    measured: dict[str, Any]
    details: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def level(self) -> Level:
        return self.certificate.level

    @cached_property
    def released(self) -> Trained:
        """The model with the released weights, subject of the certificate. Start further requests from `trained`."""
        sigma = self.certificate.sigma or 0.0
        return self.trained.released(self.released_theta, self.graph, noise=sigma)

    @cached_property
    def _released_scores(self) -> dict[str, float | None]:
        """All scores on the test items by name, of large graphs on some of them; None without such items."""
        released, graph = self.released, self.graph
        names = SCORES[released.score_kind(graph)]
        fresh_inputs(released.module, graph)  # features that followed a deletion would show it in the last digits
        mask = scored_sample(released.items(graph))
        return {**(released.scores(graph, mask) if released.can_score(graph) else dict.fromkeys(names))}

    def public(self) -> dict[str, Any]:
        """The public part: a function of the retained graph, the settings and the released weights."""
        return {
            "audience": "public",
            "level": self.level,
            "certificate": self.certificate.to_dict(),
            **{f"test_{name}": {"released": score} for name, score in self._released_scores.items()},
        }

    def private(self) -> dict[str, Any]:
        """The part that depends on the deleted data: numbers and sentences, but no names of nodes."""
        return dict(self.annex.account)

    def answer(self) -> dict[str, Any]:
        """The answer for the operator: the public part, and the private part under the key `private`."""
        return self.public() | {"private": self.private()}


def scored_sample(items: Items) -> Tensor:
    """The test items, or the `MOST_SCORED` of them with the smallest hashes of their numbers if there are more.

    A score on all test nodes of a large graph would take longer than the request.
    """
    rows = items.test_mask.nonzero().flatten()
    if rows.numel() <= MOST_SCORED or items.keys.dim() > 1:
        return items.test_mask
    order = salted(node_hashes(items.keys[rows]), salt("scored")).argsort()[:MOST_SCORED]
    return torch.zeros_like(items.test_mask).index_fill_(0, rows[order], True)


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
    """The JSON object about a request that is stored in the private annex."""
    return {
        "audience": "private",
        "method": method,
        "weights_before": weights_before,
        "changed": changed,
        "footprint": {
            "removed": touched.num_removed,
            "affected": touched.num_affected,
            "empty": touched.empty,
        },
        "measured": change.measurements,
        "details": change.details,
        "notes": list(notes),
        "seconds": seconds,
    }
