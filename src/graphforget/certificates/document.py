"""The certificate: a claim with what it is about, as a document that can be filed, signed and recomputed.

It names nobody. Digests of the request and of private weights are salted (the salt is in the annex), and a certified
distance is rounded up, because with all of its digits it could be used to test guesses about the deleted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from graphforget.certificates.assumptions import Finding
from graphforget.certificates.claim import ESTIMATED, NOT_COVERED, Claim
from graphforget.certificates.ledger import START
from graphforget.certificates.levels import LEVELS, MEANING
from graphforget.certificates.paper_bounds import Constants
from graphforget.certificates.residual import is_bounded
from graphforget.checks import fields_once
from graphforget.errors import InputError, OtherVersion
from graphforget.trained import Trained

SCHEMA = "graphforget.certificate/2"
DIGESTS = ("request", "annex", "state", "graph", "weights_before", "weights_after", "released")
NUMBERS = (
    *("epsilon", "delta", "sigma", "distance", "tolerance", "epsilon_measured"),
    *("epsilon_under_constants", "sigma_needed", "sigma_by_paper"),
)


@dataclass(frozen=True, kw_only=True)
class Certificate(Claim):
    """A claim and what it is about. `to_dict` is the document, `gf.verify` recomputes it."""

    id: str
    made: str  # when, UTC
    method: str
    model: Mapping[str, Any]  # name, options, number of parameters
    objective: Mapping[str, Any]  # loss, mu, whether it is strongly convex by construction
    training_nodes: int  # that stay
    changed: bool  # whether the weights are others than before
    digests: Mapping[str, str]
    definition: str  # what the level means, in words
    not_covered: tuple[str, ...]
    versions: Mapping[str, str]
    follows: str = START  # the ledger's last entry when this was written
    signature: Mapping[str, str] | None = field(default=None)  # by `certificates/signing.py`

    def to_dict(self) -> dict[str, Any]:
        """The document: JSON numbers, strings, lists and objects."""
        content = {"schema": SCHEMA, **super().to_dict()}
        return json.loads(json.dumps(content, allow_nan=False))

    def signed_bytes(self) -> bytes:
        """What a signature covers: everything but itself, in one canonical form."""
        content = self.to_dict()
        del content["signature"]
        return canonical(content)

    @property
    def digest(self) -> str:
        """SHA-256 of the whole document, signature included."""
        return hashlib.sha256(canonical(self.to_dict())).hexdigest()

    @classmethod
    def from_dict(cls, content: Any) -> Certificate:
        """Reads `to_dict` back. Anything more, less or of another schema is an `InputError`."""
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            if isinstance(schema, str) and re.fullmatch(r"graphforget\.certificate/\d{1,4}", schema):
                told = f"the certificate has schema {schema}, and this version of graphforget reads {SCHEMA}"
                raise OtherVersion(f"{told}: verify it with the version that made it, and train anew to go on here")
            raise InputError(f"this is no certificate of schema {SCHEMA}")
        known = {f.name for f in dataclasses.fields(cls)}
        given = {name: value for name, value in content.items() if name != "schema"}
        for name in sorted(known ^ set(given)):
            raise InputError(f"the certificate's field {name!r} is {'missing' if name in known else 'unknown'}")
        if given["level"] not in LEVELS:
            raise InputError(f"the certificate's level {given['level']!r} is none of {', '.join(LEVELS)}")
        for name in NUMBERS:
            value = given[name]
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and 0 <= value < math.inf):
                raise InputError(f"the certificate's {name} is {value!r}, a number from 0 is needed")
        for name in ("changed", "centred"):
            if not isinstance(given[name], bool):
                raise InputError(f"the certificate's {name} is {given[name]!r}, true or false is needed")
        try:
            json.dumps(content, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"the certificate holds what JSON does not have: {error}") from error
        signature = given["signature"]
        if signature is not None and not isinstance(signature, dict):
            raise InputError(f"the certificate's signature is {signature!r}, an object or null is needed")
        if not isinstance(given["digests"], dict) or set(given["digests"]) != set(DIGESTS):
            raise InputError(f"the certificate's digests must be those of {', '.join(DIGESTS)}")
        try:
            given["conditions"] = tuple(Finding(**finding) for finding in given["conditions"])
            given["constants"] = None if given["constants"] is None else Constants.of(given["constants"])
            for name in ("refuted", "not_covered"):
                given[name] = tuple(map(str, given[name]))
        except (TypeError, AttributeError) as error:
            raise InputError(f"the certificate cannot be read: {error}") from error
        return cls(**given)

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        """From a file."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(), object_pairs_hook=fields_once("the certificate")))
        except OtherVersion:
            raise
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read as a certificate: {error}") from error


def subject(trained: Trained, *, strongly_convex: bool) -> dict[str, dict[str, Any]]:
    """The model and the objective that a certificate speaks of."""
    recipe = trained.recipe
    objective = {"loss": recipe.loss, "mu": recipe.mu, "strongly_convex": strongly_convex}
    if recipe.objective_noise:
        objective["noise"] = recipe.objective_noise
    if strongly_convex:
        objective["rounding"] = "bounded" if is_bounded(trained.module) else "estimated"
    model = {"name": recipe.model, "options": recipe.options, "parameters": trained.theta.numel()}
    return {"model": model, "objective": objective}


def written(claim: Claim, **about: Any) -> Certificate:
    """A certificate for `claim`, dated now."""
    return Certificate(
        **{f.name: getattr(claim, f.name) for f in dataclasses.fields(claim)},
        id=str(uuid.uuid4()),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        definition=MEANING[claim.level],
        not_covered=(*NOT_COVERED, *([ESTIMATED] if about["objective"].get("rounding") == "estimated" else [])),
        versions=versions(),
        **about,
    )


@cache
def versions() -> dict[str, str]:
    """Of the code and of what it computes with."""
    names = ("graphforget", "torch", "torch_geometric", "numpy", "scipy")
    return {name: version(name) for name in names} | {"python": platform.python_version()}


def canonical(content: Any) -> bytes:
    """JSON in one form only: sorted keys, no spaces, ASCII."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
